"""The certified search for schedules with gains.

For any λ, ‖s‖² ≥ 2λ·s − ‖λ‖², and each client's gain then minimises in closed form:

    L(λ) = Σ_i min_t [base + 2λ·common − (cross + λ·heard)²/power] − ‖λ‖²

is a lower bound over columns *and* gains, concave in λ (`docs/theory.md`). With a capacity c,
prices π ≥ 0 are added to the columns and c·Σπ is taken off. The columns that minimise at the
best λ are then improved one client at a time, gains chosen exactly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array
from agewise.checks import whole
from agewise.errors import InvalidInput
from agewise.knowledge.estimate import GainTables, best_gains, gain_objective, gap_of
from agewise.progress import Progress
from agewise.scheduling.certified import solve_schedule
from agewise.scheduling.exhaustive import exhaustive
from agewise.scheduling.gain_moves import improve_gains, improve_pairs
from agewise.scheduling.schedule import Leaf, Schedule
from agewise.scheduling.tables import checked_counts

BLOCK_CELLS = 2**18
"""Numbers of a block: its temporaries stay in the cache, and two threads share the work."""

TRIED = 50_000
"""Schedules up to which all of them are simply tried."""

ENOUGH = 1e-10
"""Relative gap of the dual at which its search stops."""

MOVED = 50_000
"""Clients up to which the schedule is improved one client at a time."""

PAIRS = 16
"""Clients up to which two of them are moved at a time."""

SMOOTHED = 20_000
"""Clients up to which minima are smoothed on the way; more of them are smooth by themselves."""

GainStream = Callable[[], Iterable[GainTables]]


def solve_gains(
    tables: GainTables,
    capacity: int | None = None,
    *,
    counts: ArrayLike | None = None,
    start: Array | None = None,
    progress: Progress | None = None,
) -> Schedule:
    """Choose a column and gains for each client: minimise what the server does not know.

    At most `capacity` clients may share a column. `counts[i]` clients, alike in column and gain,
    share row i (without capacity). `start` is a first guess of the multipliers.

    Guarantees
        No schedule that keeps to the capacity, with whatever gains, has an objective below
        `lower_bound` (to rounding). Small problems end at gap 0. `check_gains` recomputes it.
    """
    many = checked_counts(counts, tables.clients)
    if many is not None:
        if capacity is not None:
            raise InvalidInput("counts", "given with a capacity", "one of the two")
        tables = tables.times(many)
    clients, slots = tables.clients, tables.slots
    limit = None if capacity is None else whole("capacity", capacity, 1)
    if limit is not None and clients > limit * slots:
        raise InvalidInput(
            "capacity", limit, f"at least {-(-clients // slots)} for {clients} clients"
        )
    limit = None if limit is None or limit >= clients else limit
    if 0 < clients * math.log(slots) <= math.log(max(TRIED, 1)) or slots == 1:
        return try_all_gains(tables, limit)
    dual = _Dual([tables], limit)
    at, prices = dual.maximise(start, progress)
    columns = dual.columns(at, prices) if limit is None else _packed(tables, at, limit)
    best = _finished(tables, columns, limit)
    if clients <= SMOOTHED and limit is None:
        for other in (np.zeros_like(at), at / 2):
            tried = _finished(tables, dual.columns(other, prices), None)
            best = tried if tried.objective < best.objective else best
    return _proven(best, dual)


def try_all_gains(tables: GainTables, capacity: int | None) -> Schedule:
    """The best of all schedules, each with its best gains."""
    found = exhaustive(gain_objective(tables), tables.clients, tables.slots, capacity)
    gains = best_gains(tables, found.columns)
    value = gap_of(tables, found.columns, gains)  # the same, but for rounding
    return replace(found, objective=value, lower_bound=value, gains=gains)


def solve_gain_stream(
    blocks: GainStream, *, start: Array | None = None, progress: Progress | None = None
) -> Schedule:
    """`solve_gains` for tables that do not fit in memory, without capacity.

    `blocks()` starts a new pass and yields tables for one block of clients after the other, the
    same each time. Schedules are not improved one client at a time.
    """
    dual = _Dual(blocks, None)
    at, prices = dual.maximise(start, progress)
    picked = [_picked(block, at, prices) for block in dual.blocks()]
    held = GainTables(
        *(
            np.concatenate([getattr(cell, name) for _, cell in picked])
            for name in ("base", "cross", "power", "common", "heard")
        )
    )
    first = np.zeros(held.clients, dtype=np.intp)
    gains = best_gains(held, first)
    columns = np.concatenate([columns for columns, _ in picked])
    return _proven(Schedule(columns, gap_of(held, first, gains), None, 0, gains=gains), dual)


def _picked(block: GainTables, at: Array, prices: Array) -> tuple[NDArray[np.intp], GainTables]:
    """What a block's clients choose at λ, and the cells chosen as tables of one column."""
    columns = _cells(block, at, prices).argmin(axis=1)
    rows = np.arange(block.clients)
    base, cross, power, heard = (
        x[rows, columns][:, None] for x in (block.base, block.cross, block.power, block.heard)
    )
    return columns, GainTables(base, cross, power, block.common, heard)


def _cells(block: GainTables, at: Array, prices: Array) -> Array:
    """What each client adds to L(λ) in each column, prices included, `[m, T]`."""
    cost = block.base + prices
    for c in range(block.cross.shape[2]):
        told = block.cross[:, :, c].copy()
        for f in range(at.shape[1]):  # one product at a time keeps temporaries small
            told += block.heard[:, :, c, f] * at[c, f]
        told *= told
        told /= block.power[:, :, c]
        cost -= told
    return np.asarray(cost + 2 * np.einsum("icf,cf->i", block.common, at)[:, None])


@dataclass
class _Dual:
    """L(λ, π) of blocks of clients, and the best of it so far."""

    source: Any
    capacity: int | None
    bound: float = -math.inf
    at: Array | None = None
    prices: Array | None = None
    passes: int = 0
    pool: ThreadPoolExecutor | None = None

    def blocks(self) -> Iterator[GainTables]:
        """Yield the clients in blocks that fit the cache, or as the stream gives them."""
        for tables in self.source if isinstance(self.source, list) else self.source():
            size = tables.slots * tables.cross.shape[2] * max(1, tables.heard.shape[-1])
            rows = max(1, BLOCK_CELLS // size)
            for start in range(0, tables.clients, rows):
                part = slice(start, start + rows)
                yield _part(tables, part)

    def columns(self, at: Array, prices: Array) -> NDArray[np.intp]:
        """What every client chooses at λ."""
        return np.concatenate([_cells(block, at, prices).argmin(axis=1) for block in self.blocks()])

    def ask(self, at: Array, prices: Array, heat: float = 0.0) -> tuple[float, Array, Array]:
        """L, and its slopes in λ and π; minima are smoothed by `heat`."""

        def work(block: GainTables) -> tuple[float, Array, Array]:
            cost = _cells(block, at, prices)
            rows = np.arange(len(cost))
            if heat == 0.0:
                columns = cost.argmin(axis=1)
                power, cross = block.power[rows, columns], block.cross[rows, columns]
                heard = block.heard[rows, columns]
                gain = (cross + np.einsum("icf,cf->ic", heard, at)) / power
                slope = 2 * (block.common - gain[..., None] * heard).sum(axis=0)
                load = np.bincount(columns, minlength=len(prices)).astype(float)
                return float(cost[rows, columns].sum()), slope, load
            least = cost.min(axis=1, keepdims=True)
            chance = np.exp((least - cost) / heat)
            mass = chance.sum(axis=1, keepdims=True)
            chance /= mass
            gain = (block.cross + np.einsum("itcf,cf->itc", block.heard, at)) / block.power
            told = np.einsum("it,itc,itcf->cf", chance, gain, block.heard, optimize=True)
            slope = 2 * (block.common.sum(axis=0) - told)
            return float((least - heat * np.log(mass)).sum()), slope, chance.sum(axis=0)

        blocks = self.blocks()
        if self.pool is None:
            parts = [work(block) for block in blocks]
        else:
            parts = list(self.pool.map(work, blocks))
        self.passes += 1
        value = math.fsum(part[0] for part in parts) - float((at**2).sum())
        slope = np.sum([part[1] for part in parts], axis=0) - 2 * at
        load = np.sum([part[2] for part in parts], axis=0)
        if self.capacity is not None:
            value -= self.capacity * float(prices.sum())
            load = load - self.capacity
        if heat == 0.0 and value > self.bound:
            self.bound, self.at, self.prices = value, at.copy(), prices.copy()
        return value, slope, load

    def maximise(self, start: Array | None, progress: Progress | None) -> tuple[Array, Array]:
        """Find the best λ and prices; `start` is a guess of λ."""
        first, *more = itertools.islice(self.blocks(), 2)
        self.pool = ThreadPoolExecutor(max_workers=2) if more else None
        shape, slots = (first.cross.shape[2], first.heard.shape[-1]), first.slots
        at = np.zeros(shape) if start is None else np.asarray(start, float).reshape(shape)
        prices = np.zeros(slots)
        self.ask(at, prices)
        if at.size == 1 and self.capacity is None:
            self._one_factor(at, prices, progress)
        elif at.size or self.capacity is not None:
            self._several(first, at, prices, progress)
        if self.at is None or self.prices is None:
            raise InvalidInput("tables", "without a finite bound", "finite numbers")
        return self.at, self.prices

    def _one_factor(self, at: Array, prices: Array, progress: Progress | None) -> None:
        """Find where the slope is 0: it falls at least by 2 where λ rises by 1."""
        near = float(at[0, 0])
        value, slope, _ = self.ask(at, prices)
        high = float(slope[0, 0])
        far, low = near + high / 2, high
        for step in range(60):
            if low * low / 4 <= ENOUGH * abs(value) or far == near:
                return
            value, steep, _ = self.ask(np.full((1, 1), far), prices)
            low = float(steep[0, 0])
            if progress is not None:
                progress(step + 1, 60)
            if low * high > 0:  # not yet past it: the bracket is behind
                near, high, far = far, low, far + low / 2
                continue
            break
        for step in range(60):  # the zero is between near and far
            middle = near + (far - near) * min(max(high / (high - low), 0.02), 0.98)
            if step % 3 == 2:
                middle = (near + far) / 2
            if middle in (near, far):
                return
            value, steep, _ = self.ask(np.full((1, 1), middle), prices)
            here = float(steep[0, 0])
            if progress is not None:
                progress(step + 1, 60)
            if here * here / 4 <= ENOUGH * abs(value):
                return
            if here * high > 0:
                near, high = middle, here
            else:
                far, low = middle, here

    def _several(
        self, first: GainTables, at: Array, prices: Array, progress: Progress | None
    ) -> None:
        from scipy.optimize import minimize  # noqa: PLC0415

        shape, count = at.shape, at.size
        cost = _cells(first, at, prices)
        finite = np.where(np.isfinite(cost), cost, cost.min(axis=1, keepdims=True))
        spread = float(np.median(np.ptp(finite, axis=1))) or float(np.abs(finite).max()) or 1.0
        unit = np.concatenate(
            [np.full(count, max(math.sqrt(abs(self.bound)), 1e-150)), np.full(len(prices), spread)]
        )
        free = count + (len(prices) if self.capacity is not None else 0)
        unit = unit[:free]
        point = np.concatenate([at.ravel(), prices])[:free] / unit
        size = max(abs(self.bound), 1e-300)
        clients = sum(block.clients for block in self.blocks())
        smoothing = (0.1, 0.01, 0.001, 0.0001, 0.0) if clients <= SMOOTHED else (0.0,)

        def negative(x: Array, heat: float) -> tuple[float, Array]:
            multipliers = (x * unit)[:count].reshape(shape)
            now = np.zeros(len(prices)) if self.capacity is None else (x * unit)[count:]
            value, slope, load = self.ask(multipliers, now, heat)
            if progress is not None:
                progress(self.passes, self.passes + 50)
            whole_slope = np.concatenate([slope.ravel(), load])[:free]
            return -value / size, -whole_slope * unit / size

        bounds = [(None, None)] * count + [(0, None)] * (free - count)
        for cooling in smoothing:
            result = minimize(
                negative,
                point,
                args=(cooling * spread,),
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                options={"maxiter": 200, "ftol": 1e-15, "gtol": 1e-13},
            )
            point = np.asarray(result.x)
            self._ask_plainly(point * unit, shape, count, len(prices))

    def _ask_plainly(self, x: Array, shape: tuple[int, ...], count: int, slots: int) -> None:
        now = np.zeros(slots) if self.capacity is None else np.maximum(x[count:], 0)
        self.ask(x[:count].reshape(shape), now)


def _part(tables: GainTables, rows: slice) -> GainTables:
    """Some rows of tables that were checked as a whole."""
    part = object.__new__(GainTables)
    for name in ("base", "cross", "power", "common", "heard"):
        object.__setattr__(part, name, getattr(tables, name)[rows])
    return part


def _proven(found: Schedule, dual: _Dual) -> Schedule:
    at = np.ravel(dual.at) if dual.at is not None else np.empty(0)
    prices = None if dual.capacity is None or dual.prices is None else dual.prices
    return replace(
        found,
        lower_bound=min(dual.bound, found.objective),
        multipliers=at,
        prices=prices,
        iterations=dual.passes,
        proof=Leaf(tuple(at.tolist()), None if prices is None else tuple(prices.tolist())),
    )


def _packed(tables: GainTables, at: Array, capacity: int) -> NDArray[np.intp]:
    """Columns in the capacity: the ordinary search, with gains held at those of λ."""
    gain = (tables.cross + np.einsum("itcf,cf->itc", tables.heard, at)) / tables.power
    u = tables.base + (gain**2 * tables.power - 2 * gain * tables.cross).sum(axis=2)
    b = tables.common[:, None] - gain[..., None] * tables.heard
    b = b.reshape(*u.shape, -1)
    start = at.ravel() if at.size else np.zeros(1)
    b = b if at.size else np.zeros((*u.shape, 1))
    return solve_schedule(u, b, capacity, start=start).columns


def _finished(tables: GainTables, columns: NDArray[np.intp], capacity: int | None) -> Schedule:
    """Improve columns, one client at a time, and give them their gains."""
    if tables.clients <= MOVED:
        columns = improve_gains(tables, columns.copy(), capacity)
    if tables.clients <= PAIRS and capacity is None:
        columns = improve_pairs(tables, columns)
    gains = best_gains(tables, columns)
    return Schedule(columns, gap_of(tables, columns, gains), None, 0, gains=gains)
