"""Check a schedule and a claimed bound from the tables alone. Shares no code with the searches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array
from agewise.checks import instance, numbers
from agewise.errors import InvalidInput
from agewise.knowledge.estimate import GainTables
from agewise.knowledge.one_draw import gains_of_one_draw, least_losses
from agewise.report.tables import html_facts, shorten, text_facts
from agewise.scheduling.schedule import Draw, Halved, Leaf, Proof, Schedule, Split

ENUMERABLE = 5_000_000
"""Schedules up to which all of them are tried where there is no other proof."""

BLOCK = 100_000

ROUNDING = 1e-9

CANCELLED = 1e-13
"""What rounding leaves of terms that cancel, relative to them: where there is hardly any noise."""

MOST_SOUGHT = 200_000
"""Schedules whose gains for one draw of noise are sought where there is no other proof."""

ROWS = 10_000
"""Rows whose tables are looked at together: all at once might not fit in memory."""


@dataclass(frozen=True)
class Certificate:
    """What was recomputed. `holds` is the verdict, `reason` says why not, or how it was checked."""

    objective: float  #: the loss, recomputed
    lower_bound: float  #: that no schedule can beat
    relative_gap: float  #: how far from the best it can be at most
    parts: int  #: of the search space that were bounded one by one
    holds: bool
    reason: str

    def __repr__(self) -> str:
        verdict = "holds" if self.holds else "does not hold"
        numbers = f"objective {self.objective:.6g}, lower bound {self.lower_bound:.6g}"
        return f"Certificate({verdict}, {numbers}: {shorten(self.reason, 80)})"

    def __str__(self) -> str:
        return text_facts(self._facts())

    def _repr_html_(self) -> str:
        return html_facts(self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("holds", "yes" if self.holds else "no"),
            ("objective", f"{self.objective:.6g}"),
            ("lower bound", f"{self.lower_bound:.6g}"),
            ("relative gap", f"{self.relative_gap:.2g}"),
            ("how", self.reason),
        ]


def check_schedule(
    schedule: Schedule,
    u: ArrayLike,
    b: ArrayLike,
    capacity: int | None = None,
    counts: ArrayLike | None = None,
    draw: Draw | None = None,
) -> Certificate:
    """Recompute the objective and the bound of a schedule, and compare them with what it claims.

    The objective is summed afresh. The bound follows from the proof: for each part of the search
    space, Σ_i min_t [u + 2λ·b + π_t] − ‖λ‖² − c·Σπ over the columns that the part allows; the
    least of these holds for all schedules. Where there is no proof, all schedules are tried, or
    the claim is not confirmed. `counts` are those the rows stand for, `draw` what cells ask of one
    draw of noise.
    """
    costs, biases = numbers("u", u, "costs [clients, slots]"), numbers("b", b, "biases")
    instance("schedule", schedule, Schedule, "a Schedule")
    biases = biases[..., None] if biases.ndim == 2 else biases
    columns, shares = np.asarray(schedule.columns), schedule.allocation
    _refuse_nonsense(costs, biases, columns, shares)
    clients = len(costs)
    problems = []
    members = None if counts is None else np.asarray(counts)
    if shares is not None and (members is None or not np.array_equal(shares.sum(axis=1), members)):
        problems.append("the allocation does not add up to the counts of the rows")
    if shares is not None and capacity is not None:
        problems.append("an allocation cannot be checked against a capacity")
    objective = _objective(costs, biases, columns, shares, draw)
    size = 0.0
    if shares is None and math.isfinite(objective):  # sums may be small and their terms large
        place = np.arange(clients), columns
        terms = np.abs(costs[place]).sum() + float(np.abs(biases[place]).sum()) ** 2
        size = 8 * clients * float(np.finfo(float).eps) * float(terms)
    count = np.ones(clients) if shares is None else shares.sum(axis=1).astype(float)

    def cells(rows: slice, at: Array, scale: float) -> tuple[Array, Array | None]:
        value = costs[rows].copy()
        for k, multiplier in enumerate(at.tolist()):
            value += 2.0 * multiplier * biases[rows, :, k]
        if draw is not None:
            value[draw.scales[rows] > scale] = math.inf
        return value, None

    def tried() -> float:
        return _best_of_all(costs, biases, capacity, draw)

    space = _Space(costs, count, biases.shape[2], cells, capacity, draw, draw is not None)
    return _judged(
        schedule, objective, size, space, problems, None if shares is not None else tried
    )


def check_gains(
    found: Schedule, tables: GainTables, capacity: int | None = None, draw: Draw | None = None
) -> Certificate:
    """Recompute objective and bound of a schedule with gains, and compare them with its claims.

    The objective is that of the gains that the schedule gives, so gains that are not the best only
    make it larger. What a client adds is least, at λ, where its gain is (cross + λ·heard)/power, or
    as near to that as a draw of noise allows; it is convex in the scale of the draw, hence above
    its tangent at the upper end of a part. Where there is no proof, all schedules are tried.
    """
    clients, slots = tables.base.shape
    columns, gains = np.asarray(found.columns), found.gains
    if columns.shape != (clients,) or not ((columns >= 0) & (columns < slots)).all():
        raise InvalidInput(
            "columns", "no column for each client", f"{clients} from 0 to {slots - 1}"
        )
    if gains is None or np.shape(gains) != (clients, tables.cross.shape[2]):
        raise InvalidInput("gains", "missing or of another shape", "one per client and coordinate")
    shape = tables.common.shape[1:]

    def cells(rows: slice, at: Array, scale: float) -> tuple[Array, Array | None]:
        factors = at.reshape(shape)
        with np.errstate(over="ignore", invalid="ignore"):  # multipliers may be anything
            share = np.abs(tables.cross[rows] + (tables.heard[rows] * factors).sum(axis=3))
            power = tables.power[rows]
            gain, slope = share / power, None
            if draw is not None and scale < math.inf:
                need = draw.scales[rows][:, :, None]
                limit = np.divide(scale, need, out=np.full(need.shape, math.inf), where=need > 0)
                held, gain = gain > limit, np.minimum(gain, limit)
                slope = np.zeros_like(gain)
                np.divide(2 * (share - gain * power), need, out=slope, where=held)
                slope = slope.sum(axis=2)
            common = 2 * (factors * tables.common[rows]).sum(axis=(1, 2))
            alone = (gain * (gain * power - 2 * share)).sum(axis=2)
            return tables.base[rows] + common[:, None] + alone, slope

    objective, terms = _with_gains(tables, columns.tolist(), np.asarray(gains, float), draw)

    def tried() -> float:
        return _best_gains_of_all(tables, capacity, draw, objective)

    space = _Space(tables.base, np.ones(clients), math.prod(shape), cells, capacity, draw, False)
    return _judged(found, objective, CANCELLED * terms, space, [], tried)


Cells = Callable[[slice, Array, float], tuple[Array, Array | None]]


@dataclass(frozen=True)
class _Space:
    """What a proof is about: finite costs are columns that may be taken."""

    costs: Array  #: `[m, T]`, infinite where a column is forbidden
    count: Array  #: how many clients each row stands for
    dimensions: int
    cells: Cells  #: the least of each cell at λ and a scale, and its slope where that falls
    capacity: int | None
    draw: Draw | None
    fixed: bool  #: whether a cell needs its scale of the draw, whatever its gain


def _judged(
    found: Schedule,
    objective: float,
    size: float,
    space: _Space,
    problems: list[str],
    tried: Callable[[], float] | None,
) -> Certificate:
    """The verdict on a schedule, from its objective, recomputed, and its proof."""
    clients, slots = space.costs.shape
    columns = np.asarray(found.columns)
    crowd = 0 if found.allocation is not None else np.unique(columns, return_counts=True)[1].max()
    if space.capacity is not None and crowd > space.capacity:
        problems.append("more clients in a slot than the capacity allows")
    if not math.isfinite(objective):
        problems.append("a client is in a slot that is forbidden to it")
    room = max(ROUNDING * max(abs(objective), abs(found.objective), 1e-300), size)
    if not abs(objective - found.objective) <= room:
        problems.append(f"the objective is {objective!r}, not {found.objective!r}")
    sought = space.draw is not None and not space.fixed
    most = MOST_SOUGHT if sought else ENUMERABLE
    if isinstance(found.proof, Leaf | Split | Halved):
        bound, parts = _bound(found.proof, space)
        how = f"bound recomputed from {parts} set{'s' * (parts > 1)} of multipliers"
    elif found.proof is None and clients * math.log(slots) <= math.log(most) and tried is not None:
        bound, parts = tried(), slots**clients
        how = f"all {parts} schedules tried"
    else:
        bound, parts, how = -math.inf, 0, ""
        problems.append("there is no proof to check")
    return verdict(found, objective, bound, parts, room, problems, how)


def verdict(
    schedule: Schedule,
    objective: float,
    bound: float,
    parts: int,
    room: float,
    problems: list[str],
    how: str,
) -> Certificate:
    """Judge a claimed bound by what was recomputed; `problems` are those found before."""
    wrong = list(problems)
    if schedule.lower_bound is None or not schedule.lower_bound <= bound + room:
        wrong.append(f"the bound is {bound!r}, not {schedule.lower_bound!r}")
    size = max(abs(objective), abs(bound))
    gap = max(0.0, objective - bound) / size if 0 < size < math.inf else 0.0
    return Certificate(objective, bound, gap, parts, not wrong, "; ".join(wrong) or how)


def _refuse_nonsense(
    u: Array,
    b: Array,
    columns: NDArray[np.intp],
    shares: NDArray[np.int64] | None,
) -> None:
    """Refuse tables and schedules that nothing can be said about."""
    if u.ndim != 2 or b.shape[:2] != u.shape:
        raise InvalidInput("b", f"of shape {b.shape}", f"a table that goes with {u.shape}")
    if np.isnan(u).any() or np.isneginf(u).any() or not np.isfinite(b).all():
        raise InvalidInput("u, b", "tables with NaN or infinite entries", "numbers (u may be inf)")
    if columns.dtype.kind not in "iu":
        raise InvalidInput("columns", f"of type {columns.dtype}", "whole numbers")
    if shares is not None:
        if shares.shape != u.shape or shares.dtype.kind not in "iu" or (shares < 0).any():
            raise InvalidInput(
                "allocation", f"of shape {shares.shape}", f"whole numbers, shape {u.shape}"
            )
    elif columns.shape != u.shape[:1] or columns.min() < 0 or columns.max() >= u.shape[1]:
        raise InvalidInput(
            "columns", f"of shape {columns.shape}", f"{u.shape[0]} columns below {u.shape[1]}"
        )


def _objective(
    u: Array,
    b: Array,
    columns: NDArray[np.intp],
    shares: NDArray[np.int64] | None,
    draw: Draw | None = None,
) -> float:
    if shares is None:
        every = range(u.shape[0])
        cost = math.fsum(u[i, columns[i]] for i in every)
        sums = [math.fsum(b[i, columns[i], k] for i in every) for k in range(b.shape[2])]
    else:
        used = np.argwhere(shares > 0)
        cost = math.fsum(shares[i, t] * u[i, t] for i, t in used)
        sums = [math.fsum(shares[i, t] * b[i, t, k] for i, t in used) for k in range(b.shape[2])]
    if draw is not None:
        cost += draw.power * max(draw.scales[i, t] for i, t in enumerate(columns.tolist())) ** 2
    return cost + math.fsum(s * s for s in sums)


def _with_gains(
    tables: GainTables, columns: list[int], gains: Array, draw: Draw | None
) -> tuple[float, float]:
    """The loss with gains, term by term as it is defined, and the size of its terms."""
    taken = np.arange(len(columns)), columns
    alone = gains * (gains * tables.power[taken] - 2 * tables.cross[taken])
    own = [*tables.base[taken].tolist(), *alone.ravel().tolist()]
    left = (tables.common - gains[:, :, None] * tables.heard[taken]).sum(axis=0)
    total = math.fsum(own) + float((left**2).sum())
    if draw is not None:
        total += draw.power * float((np.abs(gains[:, 0]) * draw.scales[taken]).max()) ** 2
    return total, math.fsum(map(abs, own))


def _bound(proof: Proof, space: _Space) -> tuple[float, int]:
    """The least bound over all leaves, and how many there are. Walks the cuts with a stack."""
    lowest, leaves = math.inf, 0
    clients, slots = space.costs.shape
    stack: list[tuple[Proof, NDArray[np.bool_], float, float]]
    stack = [(proof, np.isfinite(space.costs), 0.0, math.inf)]
    while stack:
        part, allowed, low, high = stack.pop()
        if isinstance(part, Split):
            if not 0 <= part.client < clients or not all(0 <= t < slots for t in part.columns):
                return -math.inf, leaves
            inside = np.isin(np.arange(slots), sorted(part.columns))
            one, two = allowed.copy(), allowed.copy()
            one[part.client] &= inside
            two[part.client] &= ~inside
            stack += [(part.inside, one, low, high), (part.outside, two, low, high)]
        elif isinstance(part, Halved):
            if space.draw is None or not math.isfinite(part.scale):
                return -math.inf, leaves
            above = part.scale
            if space.fixed:  # the next scale that a schedule can need
                scales = space.draw.scales[allowed]
                above = float(scales[scales > part.scale].min(initial=math.inf))
            stack += [
                (part.below, allowed, low, min(high, part.scale)),
                (part.above, allowed, max(low, above), high),
            ]
        else:
            leaves += 1
            lowest = min(lowest, _leaf(part, space, allowed, low, high))
    return lowest, leaves


def _leaf(leaf: Leaf, space: _Space, allowed: NDArray[np.bool_], low: float, high: float) -> float:
    """What multipliers and prices show for some columns and a band of scales.

    Infinite where no schedule is there, minus infinity where they prove nothing.
    """
    if space.fixed and space.draw is not None:
        allowed = allowed & (space.draw.scales <= high)
        low = max(low, float(np.where(allowed, space.draw.scales, math.inf).min(axis=1).max()))
    if low > high or not allowed.any(axis=1).all():
        return math.inf
    if not leaf.multipliers and leaf.prices is None and _infeasible(allowed, space.capacity):
        return math.inf
    numbers = (*leaf.multipliers, *(leaf.prices or ()))
    if len(leaf.multipliers) != space.dimensions or not all(map(math.isfinite, numbers)):
        return -math.inf
    square = math.fsum(x * x for x in leaf.multipliers)
    ends = np.zeros((2, allowed.shape[1]))  # prices at the upper and the lower end of the band
    if leaf.prices is not None:
        paid = np.array(leaf.prices)
        if space.capacity is None or paid.size not in (ends.shape[1], ends.size) or min(paid) < 0:
            return -math.inf  # a negative price would prove nothing
        ends[:] = paid.reshape(-1, ends.shape[1])
    wide, at = high - low, np.array(leaf.multipliers)
    tops: list[float] = []
    bottoms: list[float] = []
    for start in range(0, len(allowed), ROWS):
        rows = slice(start, start + ROWS)
        value, slope = space.cells(rows, at, high)
        value = np.where(allowed[rows], value, math.inf)
        tops += ((value + ends[0]).min(axis=1) * space.count[rows]).tolist()
        if slope is not None and wide > 0:
            steep = value + ends[1] + slope * wide
            bottoms += (steep.min(axis=1) * space.count[rows]).tolist()
    if not all(map(math.isfinite, tops)):
        return -math.inf
    taken = [(space.capacity or 0) * math.fsum(end.tolist()) for end in ends]
    top = math.fsum([*tops, -taken[0]])
    total = top - square
    if space.draw is not None:
        c, scale = space.draw.power, low
        if bottoms:  # above the chord between the ends of the band; c·B² and it are least at one B
            fall = max(0.0, (math.fsum([*bottoms, -taken[1]]) - top) / wide)
            scale = min(max(fall / (2 * c), low), high) if c > 0 else high
            total += fall * (high - scale)
        total += c * scale**2
    return total if not math.isnan(total) else -math.inf


def _infeasible(allowed: NDArray[np.bool_], capacity: int | None) -> bool:
    """Whether no schedule exists within the capacity, by augmenting paths (Kuhn)."""
    if capacity is None:
        return False
    places: list[list[int]] = [[] for _ in range(allowed.shape[1])]

    def seat(client: int, tried: set[int]) -> bool:
        for slot in np.flatnonzero(allowed[client]).tolist():
            if slot in tried:
                continue
            tried.add(slot)
            if len(places[slot]) < capacity:
                places[slot].append(client)
                return True
            for other in list(places[slot]):
                if seat(other, tried):
                    places[slot].remove(other)
                    places[slot].append(client)
                    return True
        return False

    return not all(seat(client, set()) for client in range(allowed.shape[0]))


def _best_of_all(u: Array, b: Array, capacity: int | None, draw: Draw | None = None) -> float:
    """The least objective: the choices of the last clients are one block, the first a loop."""
    clients, slots = u.shape
    needs = np.zeros(u.shape) if draw is None else draw.scales
    power = 0.0 if draw is None else draw.power
    if slots == 1:
        return _objective(u, b, np.zeros(clients, dtype=np.intp), None, draw)
    block = max(1, min(clients, int(math.log(max(BLOCK // b.shape[2], 1), slots))))
    first = clients - block
    flat = np.arange(slots**block)
    cost, bias, need = np.zeros(flat.size), np.zeros((flat.size, b.shape[2])), np.zeros(flat.size)
    most = clients if capacity is None else capacity
    crowd = np.zeros((flat.size, slots), dtype=np.int16) if most < clients else None
    for client, columns in enumerate(np.unravel_index(flat, (slots,) * block), start=first):
        cost += u[client, columns]
        bias += b[client, columns]
        need = np.maximum(need, needs[client, columns])
        if crowd is not None:
            crowd[flat, columns] += 1
    best = math.inf
    for begun in itertools.product(range(slots), repeat=first):
        total = bias + sum((b[i, t] for i, t in enumerate(begun)), start=np.zeros(b.shape[2]))
        values = cost + math.fsum(u[i, t] for i, t in enumerate(begun)) + (total**2).sum(axis=1)
        values += (
            power
            * np.maximum(need, max((needs[i, t] for i, t in enumerate(begun)), default=0)) ** 2
        )
        if crowd is not None:
            taken = np.bincount(np.array(begun, dtype=np.intp), minlength=slots)
            values[(crowd + taken > most).any(axis=1)] = math.inf
        best = min(best, float(values.min()))
    return best


def _best_gains_of_all(
    tables: GainTables, capacity: int | None, draw: Draw | None, known: float
) -> float:
    """The least objective of all schedules, each with its best gains, one after the other.

    With a draw gains are sought where a schedule might be better than what is `known`.
    """
    clients, slots = tables.base.shape
    rows = np.arange(clients)
    total = tables.common.sum(axis=0)
    best = math.inf if draw is None else known
    for columns in itertools.product(range(slots), repeat=clients):
        if capacity is not None and max(map(columns.count, columns)) > capacity:
            continue
        picked = list(columns)
        if not np.isfinite(tables.base[rows, picked]).all():
            continue
        if draw is not None:
            at = np.zeros(tables.heard.shape[-1])
            least = least_losses(tables, np.array([picked]), draw.scales, draw.power, at)
            if least[0] >= best:
                continue
            needed = draw.scales[rows, picked]
            gains = gains_of_one_draw(tables, np.array(picked), needed, draw.power)[0][:, None]
        else:
            gains = np.empty((clients, tables.cross.shape[2]))
            for c in range(tables.cross.shape[2]):
                heard = tables.heard[rows, picked, c]
                told = tables.cross[rows, picked, c] + heard @ total[c]
                law = np.diag(tables.power[rows, picked, c]) + heard @ heard.T
                gains[:, c] = np.linalg.solve(law, told)
        best = min(best, _with_gains(tables, picked, gains, draw)[0])
    return best
