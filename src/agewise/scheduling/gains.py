"""Best estimates as a search sees them: columns and gains, with or without one draw of noise.

With s = cross + λ·heard, the best gain at λ is s/power, and where the draw has scale B it is held
to |gain|·need ≤ B. What it is held back by costs power·short², convex in B.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from agewise.arrays import Array
from agewise.knowledge.estimate import GainTables, best_gains, gap_of
from agewise.knowledge.one_draw import gains_of_one_draw
from agewise.scheduling.costs import Chosen, Columns, Oracle, Settled
from agewise.scheduling.schedule import Draw

SAMPLE = 20_000
"""Rows that the curvature of many is worked out from: it guides the search, and proves nothing."""


@dataclass(frozen=True, eq=False)
class Gains(Oracle):
    """Covariances as in `GainTables`; with a draw they have one coordinate."""

    tables: GainTables
    draw: Draw | None = None

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.tables.clients

    @property
    def slots(self) -> int:
        """How many columns there are."""
        return self.tables.slots

    @property
    def dimensions(self) -> int:
        """Factors of all coordinates."""
        return math.prod(self.tables.common.shape[1:])

    @property
    def power(self) -> float:
        """The loss of a draw of scale 1."""
        return 0.0 if self.draw is None else self.draw.power

    def _shares(self, at: Array, rows: slice = slice(None)) -> Array:
        """cross + λ·heard of every cell, `[m, T, C]`."""
        factors = at.reshape(self.tables.common.shape[1:])
        found = self.tables.cross[rows].copy()
        for c, f in np.ndindex(factors.shape):  # one product at a time keeps temporaries small
            found[:, :, c] += self.tables.heard[rows, :, c, f] * factors[c, f]
        return found

    def _short(self, gains: Array, scale: float, rows: slice = slice(None)) -> Array:
        """By how much free gains `[m, T, C]` are held back."""
        if self.draw is None or scale == math.inf:
            return np.zeros(gains.shape[:2])
        need = self.draw.scales[rows]
        over = np.abs(gains[:, :, 0]) * need - scale
        return np.where(over > 0, over / np.where(need > 0, need, 1.0), 0.0)

    @override
    def allowed(self) -> NDArray[np.bool_]:
        return np.isfinite(self.tables.base)

    @override
    def values(self, at: Array, scale: float, rows: slice = slice(None)) -> Array:
        shares, power = self._shares(at, rows), self.tables.power[rows]
        free = shares / power
        common = self.tables.common[rows].reshape(len(free), self.dimensions) @ (2 * at)
        found = self.tables.base[rows] + common[:, None]
        for c in range(free.shape[2]):
            found -= shares[:, :, c] * free[:, :, c]
        if self.draw is not None and scale < math.inf:
            found += power[:, :, 0] * self._short(free, scale, rows) ** 2
        return np.asarray(found)

    @override
    def slopes(self, at: Array, scale: float) -> Array | None:
        if self.draw is None or scale == math.inf:
            return None
        free = self._shares(at) / self.tables.power
        need = np.where(self.draw.scales > 0, self.draw.scales, 1.0)
        return np.asarray(2 * self.tables.power[:, :, 0] * self._short(free, scale) / need)

    @override
    def chosen(
        self, columns: Columns, at: Array, scale: float, rows: slice = slice(None)
    ) -> Chosen:
        base, cross, power, heard, need = self._picked(columns, rows)
        gains = cross / power
        for f in range(heard.shape[2]):
            gains += heard[:, :, f] * (at.reshape(heard.shape[1:])[:, f] / power)
        if self.draw is not None and scale < math.inf:
            limit = np.divide(scale, need, out=np.full(need.shape, np.inf), where=need > 0)
            gains = np.clip(gains, -limit[:, None], limit[:, None])
        cost = base + (gains * (gains * power - 2 * cross)).sum(axis=1)
        bias = self.tables.common[rows] - gains[:, :, None] * heard
        need = np.abs(gains[:, 0]) * need
        return Chosen(cost, bias.reshape(len(columns), self.dimensions), need)

    def _picked(self, columns: Columns, rows: slice) -> list[Array]:
        """The tables at a column for each row; each is looked up once, since that is slow."""
        held, flat = self.tables, np.arange(len(columns)) * self.slots + columns
        tables = [held.base, held.cross, held.power, held.heard]
        tables += [] if self.draw is None else [self.draw.scales]
        cells = (one[rows].reshape(len(flat) * self.slots, *one.shape[2:]) for one in tables)
        found = [one.take(flat, axis=0) for one in cells]
        return found if self.draw is not None else [*found, np.zeros(len(columns))]

    @override
    def held(self, at: Array, scale: float) -> tuple[Array, Array]:
        each = [self.chosen(np.full(self.rows, t), at, scale) for t in range(self.slots)]
        return np.stack([x.cost for x in each], axis=1), np.stack([x.bias for x in each], axis=1)

    @override
    def curvature(self, columns: Columns, at: Array, scale: float) -> Array:
        """I + Σ heard·heardᵀ/power of the free gains; of many rows, by a sample."""
        some = np.arange(0, self.rows, max(1, self.rows // SAMPLE))
        place = some, columns[some]
        heard, free = self.tables.heard[place], self.rows / len(some) / self.tables.power[place]
        if self.draw is not None and scale < math.inf:
            need = self.chosen(columns, at, scale).need[some]
            free = np.where((need < scale * (1 - 1e-12))[:, None], free, 0.0)
        count, factors = self.tables.common.shape[1:]
        found = np.eye(count * factors)
        for c in range(count):
            part = slice(c * factors, (c + 1) * factors)
            found[part, part] += (heard[:, c] * free[:, c, None]).T @ heard[:, c]
        return found

    @override
    def settle(self, columns: Columns) -> Settled:
        if self.draw is None:
            gains, scale = best_gains(self.tables, columns), math.inf
        else:
            need = self.draw.scales[np.arange(self.rows), columns]
            single, _ = gains_of_one_draw(self.tables, columns, need, self.draw.power)
            gains = single[:, None]
            scale = float((np.abs(single) * need).max())
        heard = self.tables.heard[np.arange(self.rows), columns]
        bias = (self.tables.common - gains[:, :, None] * heard).sum(axis=0).ravel()
        value = gap_of(self.tables, columns, gains)
        if self.draw is not None:
            value += self.draw.power * scale**2
        return Settled(value, bias, gains, scale)

    @override
    def least_scale(self, allowed: NDArray[np.bool_]) -> float:
        return 0.0  # with gains of nearly 0 next to no noise is needed

    @override
    def next_scale(self, scale: float) -> float:
        return scale
