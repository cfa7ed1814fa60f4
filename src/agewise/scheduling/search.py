"""One certified search for every problem that an oracle can tell: a dual, moves, and branching.

The search space is cut into parts: columns that are left to each row, and a band of scales of the
draw of noise. The part with the least bound is cut first: at the row whose columns in the two
heaviest answers of its dual differ most, or in its band where more of the gap is due to that. Every
answer is a schedule; the best one is improved by moving one or two rows at a time.
"""

from __future__ import annotations

import heapq
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.progress import Progress
from agewise.scheduling.capacity import Chooser, Picked, least_of_each
from agewise.scheduling.costs import Columns, Costs, Oracle, Settled
from agewise.scheduling.dual import STEPS, Answer, Dual, maximise
from agewise.scheduling.moves import improve, trade
from agewise.scheduling.schedule import Halved, Leaf, Proof, Schedule, Split
from agewise.scheduling.tables import no_schedule

PROVEN = 1e-9
"""Relative gap at which a schedule counts as proven and the search stops."""

NODES = 2_000
"""Parts of the search space looked at, at most."""

CELLS = 100_000_000
"""Cells looked at in all these parts together, at most, beyond the first part."""

SETTLED = 20_000
"""Rows up to which every answer is settled as a schedule; of more rows only the best one."""

MOVED = 4_000_000
"""Numbers of the table of all moves, at most."""

BLOCK = 2**18
"""Cells of a block: its temporaries stay in the cache, and two threads share the work."""


@dataclass(order=True)
class _Part:
    """Columns left to each row, a band of scales, and what is known of them."""

    bound: float
    number: int
    allowed: NDArray[np.bool_] | None = field(compare=False)
    low: float = field(compare=False)
    high: float = field(compare=False)
    at: Array = field(compare=False)
    cut: Cut | None = field(compare=False, default=None)


Cut = float | tuple[int, NDArray[np.bool_]]
"""Where a part is cut: a scale of the draw, or a row and some of its columns."""


def search(
    oracle: Oracle,
    choose: Chooser = least_of_each,
    *,
    capacity: int | None = None,
    start: Array | None = None,
    columns: Columns | None = None,
    steps: int = STEPS,
    divide: bool = True,
    keep_best: bool = False,
    progress: Progress | None = None,
) -> Schedule:
    """Find a schedule that is near-optimal, and prove it.

    `choose` picks columns within the capacity. `start` is a guess of the multipliers, `columns` a
    first schedule; `steps` limits the questions about one part. Without `divide` no part is cut at
    a row, so that the proof holds however the clients of a row are spread. With `keep_best`, Ctrl-C
    ends the search with the best schedule so far.

    Guarantees
        No schedule that keeps to the capacity has an objective below `lower_bound` (to rounding);
        the proof shows it.
    """
    run = _Search(oracle, choose, capacity, steps, divide, progress)
    complete = True
    try:
        if columns is not None:
            run.offer(columns)
        run.look(np.zeros(oracle.dimensions) if start is None else start)
    except KeyboardInterrupt:
        if run.partial is not None and not run.leaves:  # the first part is as good as it was
            run.leaves, run.bounds = [_leaf(run.partial)], [run.partial.bound]
        if not keep_best or run.best is None or not run.leaves:
            raise
        complete = False
    if run.best is None:
        raise no_schedule()
    first = run.leaves[0]
    return Schedule(
        run.columns,
        run.best.objective,
        min(run.bound(), run.best.objective),
        run.asked,
        multipliers=np.array(first.multipliers),
        prices=None if first.prices is None else np.array(first.prices),
        proof=run.proof(),
        complete=complete,
        gains=run.best.gains,
    )


class _Search:
    """The best schedule so far, and the parts of the search space that are open."""

    def __init__(
        self,
        oracle: Oracle,
        choose: Chooser,
        capacity: int | None,
        steps: int,
        divide: bool,
        progress: Progress | None,
    ) -> None:
        self.oracle, self.choose, self.capacity = oracle, choose, capacity
        self.progress, self.steps, self.divide = progress, steps, divide
        self.every = oracle.allowed()
        self.best: Settled | None = None
        self.columns: Columns = np.empty(0, dtype=np.intp)
        self.asked, self.fresh = 0, False
        self.seen: set[bytes] = set()
        self.leaves: list[Leaf] = []
        self.bounds: list[float] = []
        self.cuts: dict[int, tuple[Cut, int, int]] = {}
        self.partial: Answer | None = None  # the best of the first part while it is looked at
        self.size = oracle.rows * oracle.slots * max(oracle.dimensions, 1)

    # The dual of one part -------------------------------------------------------------------------

    def ask(self, at: Array, part: _Part) -> Answer:
        """What rows choose at λ, at the scale that loses least in the band; the bound it shows."""
        self.asked += 1
        oracle = self.oracle
        if part.allowed is None and self.capacity is None and not oracle.power:
            return self._in_blocks(at)
        picked = self.choose(self._values(at, part.high, part.allowed))
        bound, scale = picked.least + oracle.power * part.low**2, part.high
        if part.low < part.high < math.inf and math.isfinite(picked.least):
            picked, bound, scale = self._in_band(at, part, picked, bound)
        cells = oracle.chosen(picked.columns, at, scale)
        cost, bias = float(cells.cost.sum()), cells.bias.sum(axis=0)
        bound -= float(at @ at)
        return Answer(at, bound, cost, bias, picked.columns, scale, picked.prices)

    def _in_band(
        self, at: Array, part: _Part, picked: Picked, bound: float
    ) -> tuple[Picked, float, float]:
        """Columns at the scale of a band that loses least, and what prices at both ends show.

        What rows lose is above its tangents at the upper end, so the least sum is above the chord
        between the ends of the band, and c·B² and the chord are least at one scale.
        """
        slopes, c = self.oracle.slopes(at, part.high), self.oracle.power
        if slopes is None:
            return picked, bound, part.high
        wide = part.high - part.low
        steep = self._values(at, part.high, part.allowed) + slopes * wide
        other = self.choose(steep)
        fall = max((other.least - picked.least) / wide, 0.0)
        scale = min(max(fall / (2 * c), part.low), part.high)
        bound = picked.least + fall * (part.high - scale) + c * scale**2
        prices = picked.prices
        if prices is not None and other.prices is not None:
            prices = np.concatenate([prices, other.prices])
        columns = self.choose(self._values(at, scale, part.allowed)).columns
        return replace(picked, columns=columns, prices=prices), bound, scale

    def _values(self, at: Array, scale: float, allowed: NDArray[np.bool_] | None) -> Array:
        values = self.oracle.values(at, scale)
        return values if allowed is None else np.where(allowed, values, np.inf)

    def _in_blocks(self, at: Array) -> Answer:
        """The least of each row, a block of rows after the other, on two threads."""
        oracle = self.oracle
        step = max(1, BLOCK // (oracle.slots * max(oracle.dimensions, 1)))
        blocks = [slice(k, min(k + step, oracle.rows)) for k in range(0, oracle.rows, step)]

        def work(rows: slice) -> tuple[Columns, float, float, Array]:
            picked = least_of_each(oracle.values(at, math.inf, rows))
            cells = oracle.chosen(picked.columns, at, math.inf, rows)
            return picked.columns, picked.least, float(cells.cost.sum()), cells.bias.sum(axis=0)

        if len(blocks) < 4:
            parts = list(map(work, blocks))
        else:
            with ThreadPoolExecutor(max_workers=2) as pool:
                parts = list(pool.map(work, blocks))
        columns = np.concatenate([part[0] for part in parts])
        bound = math.fsum(part[1] for part in parts) - float(at @ at)
        bias = np.sum([part[3] for part in parts], axis=0)
        return Answer(at, bound, math.fsum(part[2] for part in parts), bias, columns)

    # Schedules ------------------------------------------------------------------------------------

    def offer(self, columns: Columns) -> None:
        """Take columns as the best schedule, if they are; each is looked at once."""
        key = columns.tobytes()
        if key in self.seen:
            return
        self.seen.add(key)
        found = self.oracle.settle(columns)
        if math.isfinite(found.objective) and (
            self.best is None or found.objective < self.best.objective
        ):
            self.best, self.columns, self.fresh = found, columns.copy(), True

    def polish(self) -> None:
        """Move one or two rows at a time, gains held where they are best now; then settle anew."""
        if self.size > MOVED:
            return
        for _ in range(20):
            if not self.fresh or self.best is None:
                return
            self.fresh = False
            at, scale = self.best.bias, self.best.scale
            u, b = self.oracle.held(at, scale * (1 + 1e-12))
            if not at.size:
                at, b = np.zeros(1), np.zeros((*u.shape, 1))
            if self.capacity is None:
                self.offer(improve(u, b, self.columns, at)[0])
            else:
                self.offer(trade(u, b, self.columns, self.capacity, at))

    # Branching ------------------------------------------------------------------------------------

    def look(self, start: Array) -> None:
        """Look at the whole, then at the parts of it that may hold better schedules."""
        queue = self.whole(start)
        limit = min(NODES, max(2, CELLS // max(1, self.size)))
        first = self.asked
        while queue and self.best is not None:
            part = heapq.heappop(queue)
            done = (self.asked - first) * self.size > CELLS or len(self.leaves) >= limit
            if part.bound >= self.best.objective * (1 - PROVEN) - 1e-300 or done:
                return
            if part.cut is None:
                continue
            children = self.parted(part)
            if children is None:
                continue
            before = len(self.leaves)
            try:
                found = [self.node(*child, part.at, part.bound) for child in children]
            except KeyboardInterrupt:  # a part that was not looked at proves nothing
                del self.leaves[before:], self.bounds[before:]
                raise
            self.cuts[part.number] = part.cut, before, before + 1
            for child in found:
                if child is not None:
                    heapq.heappush(queue, child)
            if self.progress is not None:
                self.progress(len(self.leaves), len(self.leaves) + len(queue))

    def whole(self, start: Array) -> list[_Part]:
        """The whole search space, or with a draw and gains what lies below a scale and above it."""
        oracle = self.oracle
        if not oracle.power or isinstance(oracle, Costs):
            root = self.node(None, 0.0, math.inf, start, -math.inf)
            return [] if root is None else [root]
        at, nothing = np.zeros(oracle.dimensions), Leaf((0.0,) * oracle.dimensions)
        floor = float(oracle.values(at, math.inf).min(axis=1).sum())
        for _ in range(8):
            scale = math.inf if self.best is None else self.best.scale
            picked = self.choose(oracle.values(at, scale))
            if not math.isfinite(picked.least):
                return []
            self.offer(picked.columns)
            at = at if self.best is None else self.best.bias
        self.polish()
        if self.best is None:
            return []
        room = max(self.best.objective - min(floor, 0.0), 1e-300)
        top = math.sqrt(room / oracle.power) * (1 + 1e-9)  # any larger draw alone loses more
        self.leaves.append(nothing)
        self.bounds.append(floor)
        root = self.node(None, 0.0, top, at, -math.inf)
        self.leaves.append(nothing)
        self.bounds.append(oracle.power * top**2 + floor)
        self.cuts[0] = top, 1, 2
        return [] if root is None else [root]

    def node(
        self,
        allowed: NDArray[np.bool_] | None,
        low: float,
        high: float,
        at: Array,
        floor: float,
    ) -> _Part | None:
        """Bound a part; None where it holds no schedule. What bounds the whole bounds its parts."""
        oracle, number = self.oracle, len(self.leaves)
        open_to = self.every if allowed is None else self.every & allowed
        low = max(low, oracle.least_scale(open_to))
        part = _Part(floor, number, allowed, low, high, at)
        enough = math.inf if self.best is None else self.best.objective * (1 - PROVEN)

        def ask(at: Array) -> Answer:
            answer = self.ask(at, part)
            if oracle.rows <= SETTLED:
                self.offer(answer.columns)
            if not number and math.isfinite(answer.bound):
                if self.partial is None or answer.bound > self.partial.bound:
                    self.partial = answer
                if self.progress is not None:
                    self.progress(self.asked, self.asked + self.steps)
            return answer

        empty = low > high or not open_to.any(axis=1).all()
        dual = None if empty else maximise(ask, self._curvature, at, enough, self.steps)
        if dual is None or not math.isfinite(dual.best.bound):
            self.leaves.append(Leaf(()))
            self.bounds.append(math.inf)
            return None
        self.offer(dual.best.columns)
        self.polish()
        self.leaves.append(_leaf(dual.best))
        self.bounds.append(dual.best.bound)
        part.bound = max(dual.best.bound, floor)
        part.at, part.cut = dual.best.at, self._cut(dual, part)
        return part

    def _curvature(self, answer: Answer) -> Array:
        return self.oracle.curvature(answer.columns, answer.at, answer.scale)

    def _cut(self, dual: Dual, part: _Part) -> Cut | None:
        """Where to cut a part: rows, or the scale, whichever more of the gap is due to."""
        split = self._disagreement(dual) if self.divide else None
        if not self.oracle.power or self.best is None:
            return split
        best = dual.best
        need = float(self.oracle.chosen(best.columns, best.at, best.scale).need.max())
        if isinstance(self.oracle, Costs):
            apart = float(((best.bias - best.at) ** 2).sum())
            due = self.oracle.power * (need**2 - part.low**2)
            middle = (part.low + min(need, part.high)) / 2
            return middle if split is None or due > apart else split
        if part.low < 2 * self.best.scale < part.high / 2:  # so far out that little is said
            return 2 * self.best.scale
        chord = best.alone + self.oracle.power * need**2 - best.bound
        if split is None or chord > 0.1 * (self.best.objective - best.bound):
            return (part.low + part.high) / 2
        return split

    def _disagreement(self, dual: Dual) -> Cut | None:
        """The row whose columns in the two heaviest answers move Σw most, and how to part them."""
        order = np.argsort(-dual.weights, kind="stable")
        answers = [dual.answers[place].columns for place in order]
        other = next((one for one in answers[1:] if (one != answers[0]).any()), None)
        if other is None:
            return None
        at, scale = dual.best.at, dual.best.scale
        one, two = (self.oracle.chosen(each, at, scale).bias for each in (answers[0], other))
        apart = np.where(answers[0] != other, ((one - two) ** 2).sum(axis=1), -1.0)
        row = int(apart.argmax())
        left, right = int(answers[0][row]), int(other[row])
        columns = answers[0].copy()
        biases = []
        for column in range(self.oracle.slots):
            columns[row] = column
            biases.append(self.oracle.chosen(columns, at, scale).bias[row])
        along = np.stack(biases) @ (one[row] - two[row])
        inside = along >= (along[left] + along[right]) / 2
        inside[left], inside[right] = True, False
        return row, inside

    def parted(self, part: _Part) -> list[tuple[NDArray[np.bool_] | None, float, float]] | None:
        """The two parts that the cut of a part makes; None where there is nothing to cut."""
        if isinstance(part.cut, float):
            above = self.oracle.next_scale(part.cut)
            wide = part.high == math.inf or part.high - part.low > 1e-11 * part.high
            if not (part.low < above <= part.high and above < math.inf and wide):
                return None
            return [(part.allowed, part.low, part.cut), (part.allowed, above, part.high)]
        if part.cut is None:
            return None
        row, inside = part.cut
        shape = (self.oracle.rows, self.oracle.slots)
        one = np.ones(shape, dtype=bool) if part.allowed is None else part.allowed.copy()
        two = one.copy()
        one[row] &= inside
        two[row] &= ~inside
        return [(one, part.low, part.high), (two, part.low, part.high)]

    # What is shown --------------------------------------------------------------------------------

    def bound(self) -> float:
        """The least bound of all parts that are not cut."""
        return min(one for place, one in enumerate(self.bounds) if place not in self.cuts)

    def proof(self) -> Proof:
        """The cuts as nested data, built from the last part back to the first."""
        nodes: list[Proof] = list(self.leaves)
        for node in sorted(self.cuts, reverse=True):  # parts of a part have higher numbers
            cut, one, two = self.cuts[node]
            if isinstance(cut, float):
                nodes[node] = Halved(cut, nodes[one], nodes[two])
            else:
                columns = frozenset(np.flatnonzero(cut[1]).tolist())
                nodes[node] = Split(cut[0], columns, nodes[one], nodes[two])
        return nodes[0]


def _leaf(answer: Answer) -> Leaf:
    prices = None if answer.prices is None else tuple(answer.prices.tolist())
    return Leaf(tuple(answer.at.tolist()), prices)
