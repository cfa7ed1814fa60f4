"""The certified search for schedules with gains where the server draws noise once.

A client that needs noise of scale s, heard with gain k, asks |k|·s of the one draw. For
multipliers λ and a scale B,

    L(λ, B) = Σ_i min_t min over |k| ≤ B/s_i(t) of
              [base + 2λ·common − 2k(cross + λ·heard) + k²·power] − ‖λ‖²

bounds what every schedule loses whose draw has scale B, but for the loss c·B² of the draw itself.
Each term is convex in B and never rises. So on a band [B₁, B₂] it lies above its tangent at B₂, and
the sum of minima of tangents, concave in B, above its chord: c·B² plus that chord is least where a
parabola is. Bands are cut until the best schedule that was found is proven as well as it can be.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.knowledge.estimate import GainTables, gap_of
from agewise.knowledge.one_draw import gains_of_one_draw, least_losses, unknown_factors
from agewise.progress import Progress
from agewise.scheduling.certified import solve_schedule
from agewise.scheduling.exhaustive import all_schedules
from agewise.scheduling.schedule import Band, Bands, Draw, Leaf, Schedule

TRIED = 20_000
"""Schedules up to which all of them are simply tried."""

MOST_TRIED = 200_000
"""Schedules up to which all of them are tried when that is asked for."""

PROVEN = 1e-9
"""Relative gap at which a schedule counts as proven."""

MOST_BANDS = 400
"""Bands after which the search ends with the gap that it has."""

MOST_TUNED = 30
"""Bands for which multipliers are sought anew."""

SCALES = (1.0, 0.5, 0.7, 0.85, 0.95, 1.05, 1.2, 1.5, 2.0)
"""Parts of the best scale at which clients look for better columns."""

MOVED = 300
"""Cells up to which every single move is priced exactly."""


def solve_gains_once(
    tables: GainTables,
    draw: Draw,
    capacity: int | None = None,
    *,
    every: bool = False,
    progress: Progress | None = None,
) -> Schedule:
    """Choose a column and a gain for each client, for one draw of noise by the server.

    `tables` have one coordinate and no noise in their power. `every` tries all schedules. With a
    capacity the bound is that without it.

    Guarantees
        No schedule, with whatever gains, has an objective below `lower_bound` (to rounding).
        `check_gains_once` recomputes it.
    """
    if every or tables.clients * math.log(tables.slots) <= math.log(max(TRIED, 1)):
        return try_all_gains_once(tables, draw, capacity)
    search = _Search(tables, draw, capacity)
    search.look(progress)
    bands = search.prove(progress)
    best = search.best
    return Schedule(
        best.columns,
        best.objective,
        min(best.objective, *(band.bound for band in bands)),
        search.passes,
        proof=Bands(
            tuple(
                Band(one.low, one.high, Leaf(tuple(one.at.tolist())))
                for one in sorted(bands, key=lambda one: one.low)
            )
        ),
        gains=best.gains,
    )


def objective_once(
    tables: GainTables, draw: Draw, columns: NDArray[np.intp], gains: Array
) -> float:
    """The loss at columns and gains, one draw for the largest need included."""
    needed = draw.scales[np.arange(len(columns)), columns]
    largest = float((np.abs(gains[:, 0]) * needed).max())
    return gap_of(tables, columns, gains) + draw.power * largest**2


def try_all_gains_once(tables: GainTables, draw: Draw, capacity: int | None) -> Schedule:
    """The best of all schedules, each with its best gains for one draw.

    Gains are sought only for schedules that might be better than the best so far.
    """
    clients, slots = tables.clients, tables.slots
    search = _Search(tables, draw, capacity)
    search.look(None)
    best, at = search.best, search.cells.at
    for block in all_schedules(clients, slots, capacity, MOST_TRIED):
        least = least_losses(tables, block, draw.scales, draw.power, at)
        for columns in block[least < best.objective]:
            tried = _priced(tables, draw, columns)
            best = tried if tried.objective < best.objective else best
    return Schedule(best.columns, best.objective, best.objective, slots**clients, gains=best.gains)


def _priced(tables: GainTables, draw: Draw, columns: NDArray[np.intp]) -> Schedule:
    """A schedule with its best gains for one draw."""
    needed = draw.scales[np.arange(len(columns)), columns]
    gains = gains_of_one_draw(tables, columns, needed, draw.power)[0][:, None]
    value = objective_once(tables, draw, columns, gains)
    return Schedule(columns, value, None, 0, gains=gains)


class _Cells:
    """What every client loses in every column at λ, as a function of the scale."""

    def __init__(self, tables: GainTables, draw: Draw, at: Array) -> None:
        self.tables, self.draw, self.at = tables, draw, at
        told = tables.cross[:, :, 0] + tables.heard[:, :, 0] @ at
        self.own = tables.power[:, :, 0]
        self.free = told / self.own
        common = 2 * tables.common[:, 0] @ at
        self.least = tables.base + common[:, None] - told * self.free
        self.wanted = np.abs(self.free) * draw.scales
        self.inverse = np.divide(
            1.0, draw.scales, out=np.zeros_like(draw.scales), where=draw.scales > 0
        )

    @property
    def widest(self) -> float:
        """A scale at which no gain is held back."""
        return float(self.wanted[np.isfinite(self.tables.base)].max(initial=0.0))

    def short(self, scale: float) -> Array:
        """By how much each gain is held back."""
        held = self.wanted > scale
        return np.where(held, (self.wanted - scale) * self.inverse, 0.0)

    def costs(self, scale: float) -> Array:
        """What each client loses in each column, the scale being this."""
        return np.asarray(self.least + self.own * self.short(scale) ** 2)

    def value(self, scale: float) -> float:
        """L(λ, B) + c·B²."""
        rest = float(self.costs(scale).min(axis=1).sum() - self.at @ self.at)
        return rest + self.draw.power * scale**2

    def slope(self, scale: float) -> Array:
        """The slope of L in λ."""
        rows = np.arange(self.tables.clients)
        columns = self.costs(scale).argmin(axis=1)
        taken = np.sign(self.free) * (np.abs(self.free) - self.short(scale))
        heard = taken[rows, columns] @ self.tables.heard[rows, columns, 0]
        return np.asarray(2 * (self.tables.common[:, 0].sum(axis=0) - heard - self.at))

    def best_scale(self, low: float = 0.0, high: float = math.inf) -> float:
        """About where L + c·B² is least in a band."""
        from scipy.optimize import minimize_scalar  # noqa: PLC0415  (slow to import)

        top = min(high, self.widest)
        if top <= low:
            return low
        grid = np.unique([low, *np.geomspace(max(low, top * 1e-4), top, 25)])
        values = [self.value(scale) for scale in grid.tolist()]
        place = int(np.argmin(values))
        around = grid[max(place - 1, 0)], grid[min(place + 1, len(grid) - 1)]
        found = minimize_scalar(
            self.value, bounds=around, method="bounded", options={"xatol": 1e-9 * top}
        )
        return float(found.x) if found.fun < values[place] else float(grid[place])

    def bound(self, low: float, high: float) -> float:
        """What no schedule with a scale in [low, high] loses less than."""
        short = self.short(high)
        end = self.least + self.own * short**2
        start = end + 2 * self.own * short * self.inverse * (high - low)
        first, last = float(start.min(axis=1).sum()), float(end.min(axis=1).sum())
        fall = (first - last) / (high - low)
        scale = min(max(fall / (2 * self.draw.power), low), high)
        rest = self.draw.power * scale**2 + first - fall * (scale - low)
        return rest - float(self.at @ self.at)

    def tail(self, low: float) -> float:
        """What no schedule with a scale above `low` loses less than."""
        rest = float(self.least.min(axis=1).sum() - self.at @ self.at)
        return rest + self.draw.power * low**2


@dataclass(frozen=True, order=True)
class _Part:
    """A band of scales, what is proven for it, and with which multipliers."""

    bound: float
    low: float
    high: float
    cells: _Cells = field(compare=False)

    @property
    def at(self) -> Array:
        return self.cells.at


class _Search:
    """The search for columns, and for bands that prove them."""

    def __init__(self, tables: GainTables, draw: Draw, capacity: int | None) -> None:
        self.tables, self.draw = tables, draw
        self.capacity = None if capacity is None or capacity >= tables.clients else capacity
        self.passes = 0
        self.cells = self._at(np.zeros(tables.heard.shape[-1]))
        self.best = _priced(tables, draw, self._columns(self.cells, self.cells.best_scale()))

    def _at(self, at: Array) -> _Cells:
        self.passes += 1
        return _Cells(self.tables, self.draw, at)

    def _columns(self, cells: _Cells, scale: float) -> NDArray[np.intp]:
        costs = cells.costs(scale)
        if self.capacity is None:
            return np.asarray(costs.argmin(axis=1))
        return solve_schedule(costs, np.zeros_like(costs), self.capacity).columns

    def look(self, progress: Progress | None) -> None:
        """Find multipliers and columns, in turns."""
        for step in range(8):
            before = self.best.objective
            cells = self._at(self._unknown())
            self._try(self._columns(cells, cells.best_scale()))
            if progress is not None:
                progress(step, 20)
            if self.best.objective >= before * (1 - 1e-12):
                break
        self.cells = self._tuned(self._at(self._unknown()), 0.0, math.inf)
        scale = self.cells.best_scale()
        for part in SCALES:
            self._try(self._columns(self.cells, part * scale))
        if self.capacity is not None:
            return
        for _ in range(10):
            before = self.best.objective
            for part in SCALES:
                self._try(self._swept(part * self._scale()))
            if self.best.objective >= before * (1 - 1e-12):
                break
        if self.tables.base.size <= MOVED:
            self._move()

    def _unknown(self) -> Array:
        """What of the factors the best schedule leaves unknown: the multipliers of its columns."""
        return unknown_factors(self.tables, self.best.columns, self._gains())

    def _gains(self) -> Array:
        return np.ravel(self.best.gains).copy()  # type: ignore[arg-type]

    def _scale(self) -> float:
        needed = self.draw.scales[np.arange(self.tables.clients), self.best.columns]
        return (
            0.0 if self.best.gains is None else float(np.abs(self.best.gains[:, 0] * needed).max())
        )

    def _tuned(self, start: _Cells, low: float, high: float) -> _Cells:
        """Multipliers with a better bound for scales in a band."""
        if not start.at.size:
            return start
        from scipy.optimize import minimize  # noqa: PLC0415  (slow to import)

        top = start.widest if math.isinf(high) else high
        best, most = start, start.value(start.best_scale(low, top))
        unit = max(math.sqrt(abs(self.best.objective)), 1e-150)
        size = max(abs(self.best.objective), 1e-300)

        def negative(x: Array) -> tuple[float, Array]:
            nonlocal best, most
            cells = self._at(x * unit)
            scale = cells.best_scale(low, top)
            value = cells.value(scale)
            if value > most:
                best, most = cells, value
            return -value / size, -cells.slope(scale) * unit / size

        minimize(negative, start.at / unit, jac=True, method="L-BFGS-B", options={"maxiter": 30})
        return best

    def _swept(self, scale: float) -> NDArray[np.intp]:
        """Columns after every client in turn took its best one, the others and the scale given."""
        tables, columns = self.tables, self.best.columns.copy()
        gains = (
            np.zeros(tables.clients) if self.best.gains is None else self.best.gains[:, 0].copy()
        )
        left = self._unknown()
        with np.errstate(divide="ignore"):
            limits = np.where(self.draw.scales > 0, scale / self.draw.scales, np.inf)
        for i in range(tables.clients):
            heard = tables.heard[i, :, 0]
            rest = left + gains[i] * heard[columns[i]]
            told = tables.cross[i, :, 0] + heard @ rest
            own = tables.power[i, :, 0] + np.square(heard).sum(axis=1)
            gain = np.clip(told / own, -limits[i], limits[i])
            cost = tables.base[i] + gain * (gain * own - 2 * told)
            columns[i] = cost.argmin()
            gains[i] = gain[columns[i]]
            left = rest - gains[i] * heard[columns[i]]
        return columns

    def _move(self) -> None:
        """Price every move of one client exactly, until none helps."""
        moved = True
        while moved:
            before = self.best.objective
            for client, column in np.ndindex(self.tables.base.shape):
                columns = self.best.columns.copy()
                columns[client] = column
                self._try(columns)
            moved = self.best.objective < before * (1 - 1e-12)

    def _try(self, columns: NDArray[np.intp]) -> None:
        if not np.isfinite(self.tables.base[np.arange(len(columns)), columns]).all():
            return
        found = _priced(self.tables, self.draw, columns)
        if found.objective < self.best.objective:
            self.best = found

    def prove(self, progress: Progress | None) -> list[_Part]:
        """Cut the scales into bands, the worst first, until the best is proven or time is up."""
        top = max(self.cells.widest, 1e-290) * (1 + 1e-9)
        queue = [_Part(self.cells.bound(0.0, top), 0.0, top, self.cells)]
        tunings = MOST_TUNED if self.cells.at.size else 0
        for step in range(MOST_BANDS):
            worst, aim = queue[0], self.best.objective * (1 - PROVEN)
            if worst.bound >= aim or worst.high - worst.low <= 1e-12 * worst.high:
                break
            cells = worst.cells
            scale = cells.best_scale(worst.low, worst.high)
            most = cells.value(scale)  # cutting alone cannot prove more than this
            if most < aim and tunings:
                tunings -= 1
                cells = self._tuned(cells, worst.low, worst.high)
                self._try(self._columns(cells, cells.best_scale(worst.low, worst.high)))
            elif most < aim and most - worst.bound < 0.1 * (self.best.objective - worst.bound):
                break
            heapq.heappop(queue)
            middle = (worst.low + worst.high) / 2
            for low, high in ((worst.low, middle), (middle, worst.high)):
                heapq.heappush(queue, _Part(cells.bound(low, high), low, high, cells))
            if progress is not None:
                progress(step + 1, MOST_BANDS)
        return self._with_tail(queue)

    def _with_tail(self, parts: list[_Part]) -> list[_Part]:
        """The same bands, the last one wide enough for what lies above it."""
        last = max(parts, key=lambda one: one.high)
        while (beyond := last.cells.tail(last.high)) < min(one.bound for one in parts):
            if last.high > 1e3 * self.cells.widest:
                break
            last = _Part(0.0, last.high, 2 * last.high, last.cells)
            last = replace(last, bound=last.cells.bound(last.low, last.high))
            parts = [*parts, last]
        return [
            *(one for one in parts if one is not last),
            replace(last, bound=min(last.bound, beyond)),
        ]
