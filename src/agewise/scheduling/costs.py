"""What a search asks of a problem, and the problem of fixed costs.

Every problem is: choose a column t_i for each row i (and perhaps gains k_i), to minimise

    F = Σ_i e_i(t_i, k_i) + ‖Σ_i w_i(t_i, k_i)‖² + c·max_i need_i(t_i, k_i)².

For any λ, ‖s‖² ≥ 2λ·s − ‖λ‖², so for a draw of noise of scale B

    L(λ, B) = Σ_i min_t φ_i(t; λ, B) − ‖λ‖² + c·B²,    φ = min over k with need ≤ B of e + 2λ·w

bounds every schedule whose largest need is B; at minimisers F − L = ‖Σw − λ‖² − c(B² − max need²).
An oracle knows φ, how fast it rises at least as the scale falls, and what chosen cells cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from agewise.arrays import Array
from agewise.scheduling.schedule import Draw

Columns = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Chosen:
    """What a column of each row costs, what it adds to the square, and what it needs of a draw."""

    cost: Array  #: `[m]`
    bias: Array  #: `[m, d]`
    need: Array  #: `[m]`


@dataclass(frozen=True, eq=False)
class Settled:
    """Columns with their best gains: the loss, Σw, the scale of the draw."""

    objective: float
    bias: Array
    gains: Array | None = None
    scale: float = math.inf


class Oracle(Protocol):
    """A problem as a search sees it: `rows` × `slots`, `dimensions` d, `power` c (0: no draw)."""

    @property
    def rows(self) -> int: ...

    @property
    def slots(self) -> int: ...

    @property
    def dimensions(self) -> int: ...

    @property
    def power(self) -> float: ...

    def allowed(self) -> NDArray[np.bool_]:
        """Which columns rows may have, `[m, T]`."""

    def values(self, at: Array, scale: float, rows: slice = slice(None)) -> Array:
        """φ `[m, T]`; infinite where a column is forbidden, or needs more than the scale."""

    def slopes(self, at: Array, scale: float) -> Array | None:
        """By how much at least φ rises per unit that the scale falls short; None: not at all."""

    def chosen(
        self, columns: Columns, at: Array, scale: float, rows: slice = slice(None)
    ) -> Chosen:
        """The cells of a column for each row, with the gains of φ."""

    def held(self, at: Array, scale: float) -> tuple[Array, Array]:
        """e `[m, T]` and w `[m, T, d]` of every cell, with the gains of φ: to weigh moves by."""

    def curvature(self, columns: Columns, at: Array, scale: float) -> Array:
        """How L bends while rows keep their columns, `[d, d]`."""

    def settle(self, columns: Columns) -> Settled:
        """The exact loss of columns, with their best gains."""

    def least_scale(self, allowed: NDArray[np.bool_]) -> float:
        """A scale that every schedule in the allowed columns needs."""

    def next_scale(self, scale: float) -> float:
        """The least scale above this one that a schedule can need (or this one)."""


@dataclass(frozen=True, eq=False)
class Costs(Oracle):
    """u `[m, T]` and b `[m, T, d]`, and what cells need of one draw of noise."""

    u: Array
    b: Array
    draw: Draw | None = None

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.u)

    @property
    def slots(self) -> int:
        """How many columns there are."""
        return int(self.u.shape[1])

    @property
    def dimensions(self) -> int:
        """How many biases a cell has."""
        return int(self.b.shape[2])

    @property
    def power(self) -> float:
        """The loss of a draw of scale 1."""
        return 0.0 if self.draw is None else self.draw.power

    @override
    def allowed(self) -> NDArray[np.bool_]:
        return np.isfinite(self.u)

    @override
    def values(self, at: Array, scale: float, rows: slice = slice(None)) -> Array:
        found = self.u[rows].copy()
        for k, one in enumerate(at.tolist()):  # one product at a time keeps temporaries small
            found += self.b[rows, :, k] * (2 * one)
        return self._within(found, scale, rows)

    def _within(self, values: Array, scale: float, rows: slice = slice(None)) -> Array:
        """The values of cells that need no more than a scale."""
        if self.draw is None or scale == math.inf:
            return values
        return np.where(self.draw.scales[rows] <= scale, values, np.inf)

    @override
    def slopes(self, at: Array, scale: float) -> None:
        return None

    @override
    def chosen(
        self, columns: Columns, at: Array, scale: float, rows: slice = slice(None)
    ) -> Chosen:
        place = np.arange(len(columns)), columns
        need = np.zeros(len(columns)) if self.draw is None else self.draw.scales[rows][place]
        return Chosen(self.u[rows][place], self.b[rows][place], need)

    @override
    def held(self, at: Array, scale: float) -> tuple[Array, Array]:
        return self._within(self.u, scale), self.b

    @override
    def curvature(self, columns: Columns, at: Array, scale: float) -> Array:
        return np.eye(self.dimensions)

    @override
    def settle(self, columns: Columns) -> Settled:
        cells = self.chosen(columns, np.empty(0), math.inf)
        bias = np.array([math.fsum(one) for one in cells.bias.T.tolist()])
        scale = float(cells.need.max())
        squares = [*(bias * bias).tolist(), self.power * scale**2]
        return Settled(math.fsum([*cells.cost.tolist(), *squares]), bias, None, scale)

    @override
    def least_scale(self, allowed: NDArray[np.bool_]) -> float:
        if self.draw is None:
            return 0.0
        return float(np.where(allowed, self.draw.scales, np.inf).min(axis=1).max())

    @override
    def next_scale(self, scale: float) -> float:
        if self.draw is None:
            return math.inf
        scales = self.draw.scales[np.isfinite(self.u)]
        return float(scales[scales > scale].min(initial=math.inf))
