"""The low-complexity scheduler: near-linear time, with a proof of near-optimality.

Minimise F = Σ_i u_i(t_i) + ‖Σ_i b_i(t_i)‖². For any λ, ‖s‖² ≥ 2λ·s − ‖λ‖², so

    L(λ) = Σ_i min_t [u_i(t) + 2λ·b_i(t)] − ‖λ‖²

is a lower bound, concave in λ, and where every client takes a minimiser, F − L(λ) = ‖Σ b − λ‖².
The best λ equals Σ b at its own minimisers. In one dimension Σ b falls as λ rises, so a search
brackets it; clients that choose the same column at both ends of the bracket are settled, and only
the few others are looked at again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.errors import InvalidInput, whole
from agewise.process.joint import Array
from agewise.scheduling.branching import branch_and_bound
from agewise.scheduling.capacity import solve_with_capacity
from agewise.scheduling.enumeration import best_within
from agewise.scheduling.exhaustive import all_schedules, table_objective
from agewise.scheduling.local_search import improve
from agewise.scheduling.mixture import STEPS, search_multipliers
from agewise.scheduling.schedule import Leaf, Schedule
from agewise.scheduling.tables import Stream, Tables, check_block, checked_counts

Progress = Callable[[int, int], None]

SAMPLE = 20_000
"""Rows up to which all of them are looked at in every step."""

GUESS = 20_000
"""Rows that a first guess of λ is made from where there are more."""

EXHAUSTIVE = 50_000
"""Schedules up to which all of them are simply tried."""

FINISH_CLIENTS = 128
"""Clients up to which the remaining gap is closed by branch and bound, or by enumeration."""

LOOSE = 100
"""Sampled rows that may still be undecided when a guess of λ is good enough."""

ENOUGH = 5e-7
"""Relative gap at which many clients count as done."""

PASSES = 8
"""Passes over many clients at most."""

PROVEN = 1e-10
"""Relative gap at which a schedule counts as proven optimal and the search stops."""


def solve_schedule(
    u: ArrayLike,
    b: ArrayLike,
    capacity: int | None = None,
    *,
    counts: ArrayLike | None = None,
    start: ArrayLike | None = None,
    keep_best: bool = False,
    progress: Progress | None = None,
) -> Schedule:
    """Choose a column for each row of the tables: minimise Σu + ‖Σb‖².

    `u` `[m, T]` (infinite: that column is forbidden), `b` `[m, T]` or `[m, T, d]`. At most
    `capacity` clients may share a column. `counts[i]` clients share row i (without capacity).
    `start` is a first guess of the multipliers, from an earlier solution. With `keep_best`,
    Ctrl-C ends the search early with the best schedule so far and its honest gap.

    Guarantees
        No schedule that keeps to the capacity has an objective below `lower_bound` (to rounding,
        a relative 1e-12). Small problems end at gap 0. Without capacity time is O(m·T) for a
        fixed number of passes. `check_schedule` recomputes the bound from the proof; with several
        biases a gap that enumeration closed is more than it can confirm.

    >>> found = solve_schedule([[1.0, 0.0], [0.0, 2.0]], [[0.0, 3.0], [1.0, -2.0]])
    >>> found.columns.tolist(), found.objective, found.relative_gap
    ([0, 0], 2.0, 0.0)
    """
    tables = Tables(u, b)
    many = checked_counts(counts, tables.clients)
    guess = None if start is None else _checked_start(start, tables.dimensions)
    if capacity is not None:
        limit = whole("capacity", capacity, 1)
        if many is not None:
            raise InvalidInput(
                "counts", "given with a capacity", "one of the two", "Give each client its row."
            )
        if tables.clients > limit * tables.slots:
            raise InvalidInput(
                "capacity",
                limit,
                f"at least {-(-tables.clients // tables.slots)} for {tables.clients} clients in "
                f"{tables.slots} slots",
                "No schedule exists: raise the capacity or add slots.",
            )
        if limit < tables.clients:
            check_block(0, tables.u, tables.b)
            if _few(tables):
                return _try_all(tables, limit)
            return solve_with_capacity(tables, limit, guess, keep_best, progress)
    if many is None and _few(tables):
        check_block(0, tables.u, tables.b)
        return _try_all(tables, None)
    return _without_capacity(tables, many, guess, keep_best, progress)


def solve_stream(
    blocks: Stream,
    *,
    counts: ArrayLike | None = None,
    start: ArrayLike | None = None,
    progress: Progress | None = None,
) -> Schedule:
    """`solve_schedule` for tables that do not fit in memory, without capacity.

    `blocks()` starts a new pass and yields (u, b) for one block of rows after the other, the same
    each time. A scalar b needs about five passes. The result is that of the tables in memory,
    but for the last polish that those get where their gap is still above 5e-7.
    """
    tables = Tables(None, None, blocks)
    many = checked_counts(counts, tables.clients)
    guess = None if start is None else _checked_start(start, tables.dimensions)
    if tables.clients * tables.slots * tables.dimensions <= 2**22:  # small: take it all in
        parts = list(tables.blocks())
        held_u = np.concatenate([p[1] for p in parts])
        held_b = np.concatenate([p[2] for p in parts])
        return solve_schedule(
            held_u, held_b[:, :, 0] if tables.scalar else held_b,
            counts=counts, start=start, progress=progress,
        )  # fmt: skip
    return _without_capacity(tables, many, guess, False, progress)


def _few(tables: Tables) -> bool:
    """Whether all schedules can simply be tried."""
    return EXHAUSTIVE > 0 and tables.clients * math.log(tables.slots) <= math.log(EXHAUSTIVE)


def _without_capacity(
    tables: Tables,
    counts: NDArray[np.int64] | None,
    start: Array | None,
    keep_best: bool,
    progress: Progress | None,
) -> Schedule:
    if tables.dimensions == 1:
        found = _scalar(tables, counts, start)
    else:
        found = _vector(tables, counts, start, keep_best, progress)
    if found.multipliers is not None:
        found = replace(found, proof=Leaf(tuple(found.multipliers.tolist())))
    if counts is not None or not tables.in_memory:
        return found
    return _polish(tables, found, keep_best, progress)


def _polish(
    tables: Tables, found: Schedule, keep_best: bool, progress: Progress | None
) -> Schedule:
    """Improve the schedule by moving one or two clients; for few clients close the gap exactly."""
    if found.multipliers is None or found.lower_bound is None:
        return found
    try:
        if (found.relative_gap or 0.0) > ENOUGH or tables.clients <= FINISH_CLIENTS:
            columns, objective = improve(tables.u, tables.b, found.columns, found.multipliers)
            if objective < found.objective:
                found = replace(found, columns=columns, objective=objective)
        if tables.clients <= FINISH_CLIENTS:
            closing = (
                _branching(tables, found)
                if tables.dimensions == 1
                else (_enumerating(tables, found))
            )
            for step, better in enumerate(closing):
                found = better
                if progress is not None:
                    progress(step + 1, step + 2)
    except KeyboardInterrupt:
        if not keep_best:
            raise
        return replace(found, complete=False)
    return found


def _branching(tables: Tables, found: Schedule) -> Iterator[Schedule]:
    start = found.columns, found.objective
    for best in branch_and_bound(tables.u, tables.b[:, :, 0], *start, PROVEN):
        bound = max(best.bound, -math.inf if found.lower_bound is None else found.lower_bound)
        yield replace(
            found, columns=best.columns, objective=best.objective,
            lower_bound=min(bound, best.objective), iterations=found.iterations + best.nodes,
            proof=best.tree.proof(),
        )  # fmt: skip


def _enumerating(tables: Tables, found: Schedule) -> Iterator[Schedule]:
    """Yield ever better proven schedules, with growing budgets of reduced cost."""
    target = np.asarray(found.multipliers)
    cost = tables.u + 2 * (tables.b @ target)
    least = cost.min(axis=1)
    base = math.fsum(least.tolist()) - float(target @ target)
    evaluate = table_objective(tables.u, tables.b)
    budget = max(1e-9 * abs(found.objective), 1e-6 * (found.objective - base))
    for _ in range(30):
        span = found.objective - base
        if span <= PROVEN * abs(found.objective):
            return
        budget = min(budget, span * (1 + 1e-9))  # no better schedule has a larger reduced cost
        result = best_within(cost - least[:, None], tables.b, target, budget)
        if result is None:
            return
        objective = float(evaluate(result[0][None])[0])
        if objective < found.objective:
            found = replace(found, columns=result[0], objective=objective)
        closed = result[1] <= budget or budget >= span
        bound = found.objective if closed else base + budget
        found = replace(
            found, iterations=found.iterations + 1,
            lower_bound=min(max(bound, found.lower_bound or -math.inf), found.objective),
        )  # fmt: skip
        yield found
        if closed:
            return
        budget *= 4


def _try_all(tables: Tables, capacity: int | None) -> Schedule:
    evaluate = table_objective(tables.u, tables.b)
    best, objective, seen = None, np.inf, 0
    for block in all_schedules(tables.clients, tables.slots, capacity):
        values = evaluate(block)
        seen += len(block)
        place = int(np.argmin(values))
        if values[place] < objective:
            best, objective = block[place], float(values[place])
    if best is None:
        raise InvalidInput(
            "u", "infinite for every schedule", "a schedule of finite cost within the capacity"
        )
    return Schedule(best, objective, objective, seen)


def _scalar(tables: Tables, counts: NDArray[np.int64] | None, start: Array | None) -> Schedule:
    if tables.clients > SAMPLE:
        return _scalar_of_many(tables, counts, start)
    rows = list(tables.blocks())
    u, b = np.concatenate([r[1] for r in rows]), np.concatenate([r[2] for r in rows])
    check_block(0, u, b)
    return _Rows(u, b[:, :, 0], _weights(tables, counts)).solve(counts is not None)


@dataclass(eq=False)
class _Rows:
    """Rows of the tables with how many clients each stands for, small enough to look at often."""

    u: Array
    b: Array
    weight: Array

    def choose(self, at: float) -> NDArray[np.intp]:
        return np.asarray((self.u + (2 * at) * self.b).argmin(axis=1))

    def bias(self, columns: NDArray[np.intp]) -> float:
        return float((self.b[np.arange(len(self.b)), columns] * self.weight).sum())

    def range(self) -> tuple[float, float]:
        """The least and the largest Σ b of any schedule."""
        allowed = np.isfinite(self.u)
        low = np.where(allowed, self.b, np.inf).min(axis=1) * self.weight
        high = np.where(allowed, self.b, -np.inf).max(axis=1) * self.weight
        return float(low.sum()), float(high.sum())

    def crossing(
        self, rest: float, slope: float, near: float | None = None, loose: int = 0
    ) -> tuple[float, float]:
        """Two λ between which Σ b + `rest` falls through `slope`·λ.

        Neighbouring floats, or as soon as at most `loose` rows choose differently at the two.
        `near` is a guess.
        """

        def above(at: float) -> bool:
            return self.bias(self.choose(at)) + rest >= slope * at

        low, high = (x + rest for x in self.range()) if slope else (0.0, 0.0)
        if near is not None or not slope:
            low = high = near or 0.0
            width = 1e-3 * abs(low) + 1e-12
            while not above(low) and width < 1e300:
                low, width = low - width, width * 8
            width = 1e-3 * abs(high) + 1e-12
            while above(high) and width < 1e300:
                high, width = high + width, width * 8
        for step in range(1100):
            middle = (low + high) / 2
            if middle in (low, high) or high - low <= 1e-15 * max(abs(low), abs(high)):
                break
            if loose and step % 3 == 2:
                changed = int((self.choose(low) != self.choose(high)).sum())
                if changed <= loose:
                    break
            low, high = (middle, high) if above(middle) else (low, middle)
        return low, high

    def solve(self, grouped: bool) -> Schedule:
        """Bisect to the last bit, then move tied clients so that Σ b comes closest to λ."""
        low, high = self.crossing(0.0, 1.0)
        values = [self.bound(at) for at in (low, high)]
        at = low if values[0] >= values[1] else high
        share = self.between(low, high, at)
        bias = float((share * self.b).sum())
        cost = float((share * np.where(share > 0, self.u, 0)).sum())
        objective = cost + bias**2
        return Schedule(
            share.argmax(axis=1), objective, min(max(values), objective), 1, np.array([at]),
            allocation=share if grouped else None,
        )  # fmt: skip

    def bound(self, at: float) -> float:
        least = (self.u + (2 * at) * self.b).min(axis=1)
        return math.fsum((least * self.weight).tolist()) - at * at

    def between(self, low: float, high: float, wanted: float) -> NDArray[np.int64]:
        """How many clients of each row take each column, so that Σ b comes closest to `wanted`.

        At two neighbouring λ different columns are best for a few rows; their clients are moved
        from one to the other, largest steps first, as far as that does not overshoot.
        """
        rows = np.arange(len(self.u))
        share = np.zeros(self.u.shape, dtype=np.int64)
        first, second = self.choose(low), self.choose(high)
        share[rows, first] = self.weight.astype(np.int64)
        missing = wanted - self.bias(first)
        step = self.b[rows, second] - self.b[rows, first]
        moving = np.flatnonzero(step != 0)
        for row in moving[np.argsort(-np.abs(step[moving]))]:
            moves = min(int(self.weight[row]), max(0, round(missing / step[row])))
            share[row, first[row]] -= moves
            share[row, second[row]] += moves
            missing -= moves * step[row]
        return share


def _scalar_of_many(
    tables: Tables, counts: NDArray[np.int64] | None, start: Array | None
) -> Schedule:
    """λ from a sample, corrected by a few passes over all rows; a few clients make up the rest.

    Given any λ, letting some rows choose at another one shifts Σ b at a cost of second order, so
    λ need not be met to the last bit: the gap says how much was lost.
    """
    weight = _weights(tables, counts)
    picked, sample = _sample(tables, weight)
    share = sample.weight.sum() / weight.sum()
    scaled = _Rows(sample.u, sample.b, sample.weight / share)
    if start is not None:
        at = float(start[0])
    else:  # a rough guess from a few rows, a better one from more
        few = _Rows(scaled.u[::10], scaled.b[::10], scaled.weight[::10])
        few.weight = few.weight * (scaled.weight.sum() / few.weight.sum())
        rough = float(np.mean(few.crossing(0.0, 1.0, loose=20)))
        at = float(np.mean(scaled.crossing(0.0, 1.0, near=rough, loose=LOOSE)))
    best: Schedule | None = None
    bound, proven_at = -math.inf, np.array([at])
    known: list[tuple[float, float]] = []
    for passes in range(1, PASSES + 1):
        columns, cost, bias, value = _ask(tables, weight, np.array([at]), check=passes == 1)
        if value > bound:
            bound, proven_at = value, np.array([at])
        known.append((at, float(bias[0]) - at))
        if passes < PASSES and known[-1][1] ** 2 > 1e-2 * abs(value):  # too far off to mend
            at = _next_multiplier(scaled, known)
            continue
        found = _make_up(picked, sample, columns, cost, float(bias[0]), at, counts)
        if best is None or found.objective < best.objective:
            best = found
        best = replace(
            best, lower_bound=min(bound, best.objective), multipliers=proven_at, iterations=passes
        )
        if (best.relative_gap or 0.0) <= ENOUGH:
            break
        at = _next_multiplier(scaled, known)
    if best is None:  # PASSES is at least one
        raise InvalidInput("u", "empty", "one or more clients")
    if (best.relative_gap or 0.0) > 1e-3 and tables.in_memory:
        # So many rows tie at λ that a sample cannot make up for them: look at all of them.
        whole_table = _Rows(tables.u, tables.b[:, :, 0], weight).solve(counts is not None)
        if whole_table.objective < best.objective:
            bound = max(best.lower_bound or -math.inf, whole_table.lower_bound or -math.inf)
            best = replace(whole_table, lower_bound=min(bound, whole_table.objective))
    return best


def _sample(tables: Tables, weight: Array) -> tuple[NDArray[np.intp], _Rows]:
    """Evenly spread rows, and which ones."""
    stride = max(1, tables.clients // GUESS)
    if tables.in_memory:
        u, b = tables.u[::stride], tables.b[::stride, :, 0]
    else:
        parts = [
            (u[(-first) % stride :: stride].copy(), b[(-first) % stride :: stride, :, 0].copy())
            for first, u, b in tables.blocks()
        ]
        u, b = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
    check_block(0, u, b[:, :, None])
    picked = np.arange(0, tables.clients, stride)
    return picked, _Rows(np.ascontiguousarray(u), np.ascontiguousarray(b), weight[picked])


def _next_multiplier(scaled: _Rows, known: list[tuple[float, float]]) -> float:
    """Where Σ b − λ vanishes, from its values so far: by the sample's shape, then by secants."""
    at, excess = known[-1]
    if len(known) > 1 and known[-2][1] != excess:
        before, earlier = known[-2]
        return at - excess * (at - before) / (excess - earlier)
    off = excess - (scaled.bias(scaled.choose(at)) - at)  # the sample's own error at this λ
    return float(np.mean(scaled.crossing(off, 1.0, near=at, loose=LOOSE)))


def _make_up(
    picked: NDArray[np.intp],
    sample: _Rows,
    columns: NDArray[np.intp],
    cost: float,
    bias: float,
    at: float,
    counts: NDArray[np.int64] | None,
) -> Schedule:
    """Let the sampled rows choose at another λ, such that Σ b of all comes closest to λ."""
    rows = np.arange(len(picked))
    chosen = columns[picked]
    rest = bias - sample.bias(chosen) - at  # what the sample's Σ b has to cancel
    ends = (at, at)  # near enough as it is
    if (bias - at) ** 2 > 0.1 * ENOUGH * abs(cost + bias**2):
        ends = sample.crossing(rest, 0.0, near=at, loose=64)
    share = sample.between(*ends, -rest)
    spent = float((sample.u[rows, chosen] * sample.weight).sum())
    total = bias - sample.bias(chosen) + float((share * sample.b).sum())
    made = cost - spent + float((share * np.where(share > 0, sample.u, 0)).sum()) + total**2
    allocation = None
    columns = columns.copy()
    columns[picked] = share.argmax(axis=1)
    if counts is not None:
        allocation = np.zeros((len(columns), share.shape[1]), dtype=np.int64)
        allocation[np.arange(len(columns)), columns] = counts
        allocation[picked] = share
    return Schedule(columns, made, None, 0, allocation=allocation)


def _weights(tables: Tables, counts: NDArray[np.int64] | None) -> Array:
    return np.ones(tables.clients) if counts is None else counts.astype(np.float64)


def _vector(
    tables: Tables,
    counts: NDArray[np.int64] | None,
    start: Array | None,
    keep_best: bool,
    progress: Progress | None,
) -> Schedule:
    """Search λ in several dimensions; every step is one pass over the tables."""
    many = _weights(tables, counts)
    best = Schedule(np.empty(0, dtype=np.intp), math.inf, None, 0)
    bound, at, steps = -math.inf, np.zeros(tables.dimensions), 0

    def ask(multipliers: Array) -> tuple[float, Array]:
        nonlocal best, bound, at, steps
        columns, cost, bias, value = _ask(tables, many, multipliers, check=steps == 0)
        steps += 1
        if value > bound:
            bound, at = value, multipliers
        if cost + float(bias @ bias) < best.objective:
            best = Schedule(columns, cost + float(bias @ bias), None, steps)
        if progress is not None:
            progress(steps, STEPS)
        return cost, bias

    complete = True
    try:
        search_multipliers(ask, at if start is None else start)
    except KeyboardInterrupt:
        if not keep_best or not math.isfinite(bound):
            raise
        complete = False
    shares = None
    if counts is not None:
        shares = np.zeros((tables.clients, tables.slots), dtype=np.int64)
        shares[np.arange(tables.clients), best.columns] = counts
    return replace(
        best, lower_bound=min(bound, best.objective), multipliers=at, iterations=steps,
        allocation=shares, complete=complete,
    )  # fmt: skip


def _ask(
    tables: Tables, many: Array, multipliers: Array, *, check: bool
) -> tuple[NDArray[np.intp], float, Array, float]:
    """All clients' choices at λ: columns, Σ u, Σ b and L(λ)."""
    columns = np.empty(tables.clients, dtype=np.intp)

    def work(first: int, u: Array, b: Array) -> tuple[float, Array]:
        # One product at a time: the temporaries of a block stay in the cache.
        value = b[:, :, 0] * (2 * multipliers[0])
        for k in range(1, b.shape[2]):
            value += b[:, :, k] * (2 * multipliers[k])
        value += u
        picked = value.argmin(axis=1)
        rows = np.arange(len(u))
        least = value[rows, picked]
        if check and not (np.isfinite(least).all() and np.isfinite(b.sum())):
            check_block(first, u, b)
        own = many[first : first + len(u)]
        columns[first : first + len(u)] = picked
        return float((u[rows, picked] * own).sum()), own @ b[rows, picked]

    parts = tables.map(work)
    cost = math.fsum(p[0] for p in parts)
    bias = np.sum([p[1] for p in parts], axis=0)
    value = cost + 2 * float(multipliers @ bias) - float(multipliers @ multipliers)
    return columns, cost, bias, value


def _checked_start(start: ArrayLike, dimensions: int) -> Array:
    values = np.atleast_1d(np.asarray(start, dtype=np.float64))
    if values.shape != (dimensions,) or not np.isfinite(values).all():
        raise InvalidInput("start", start, f"{dimensions} finite multipliers")
    return values
