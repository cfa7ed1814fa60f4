"""The best λ for one bias over rows that are few enough to look at often: bisection."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.scheduling.schedule import Schedule

WIDER = 24
"""How often a bracket is made eight times as wide."""


@dataclass(frozen=True)
class Split:
    """Clients of each row in one column or another: how many `stay` in the first, or have `moved`.

    `cost` and `bias` are Σ u and Σ b of all of them.
    """

    first: NDArray[np.intp]
    second: NDArray[np.intp]
    stay: NDArray[np.int64]
    moved: NDArray[np.int64]
    cost: float
    bias: float

    @property
    def columns(self) -> NDArray[np.intp]:
        """The column that most clients of each row take; of two, the first in the tables."""
        ahead = (self.moved > self.stay) | ((self.moved == self.stay) & (self.second < self.first))
        return np.where(ahead, self.second, self.first)

    def allocation(self, slots: int) -> NDArray[np.int64]:
        """How many clients of each row take each column, `[m, T]`."""
        share = np.zeros((len(self.first), slots), dtype=np.int64)
        rows = np.arange(len(self.first))
        share[rows, self.first] += self.stay
        share[rows, self.second] += self.moved
        return share


@dataclass(eq=False)
class Rows:
    """Rows of the tables with how many clients each stands for, small enough to look at often."""

    u: Array
    b: Array
    weight: Array

    def of(self, which: NDArray[np.bool_]) -> Rows:
        return Rows(self.u[which], self.b[which], self.weight[which])

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
            widths = [(1e-3 * abs(low) + 1e-12) * 8.0**step for step in range(WIDER)]
            for width in widths:
                if above(low):
                    break
                low -= width
            for width in widths:
                if not above(high):
                    break
                high += width
        for step in range(1100 if slope else 50):
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
        split = self.between(low, high, at)
        objective = split.cost + split.bias**2
        return Schedule(
            split.columns,
            objective,
            min(max(values), objective),
            1,
            np.array([at]),
            allocation=split.allocation(self.u.shape[1]) if grouped else None,
        )

    def bound(self, at: float) -> float:
        least = (self.u + (2 * at) * self.b).min(axis=1)
        return math.fsum((least * self.weight).tolist()) - at * at

    def between(self, low: float, high: float, wanted: float) -> Split:
        """Which clients of each row take which column, so that Σ b comes closest to `wanted`.

        At two neighbouring λ different columns are best for a few rows; their clients are moved
        from one to the other, largest steps first, as far as that does not overshoot.
        """
        rows = np.arange(len(self.u))
        first, second = self.choose(low), self.choose(high)
        moved = np.zeros(len(rows), dtype=np.int64)
        missing = wanted - self.bias(first)
        step = self.b[rows, second] - self.b[rows, first]
        moving = np.flatnonzero(step != 0)
        moving = moving[np.lexsort((step[moving], -np.abs(step[moving])))]
        alike = np.flatnonzero(np.diff(step[moving])) + 1  # rows that tie are many
        for those in np.split(moving, alike) if moving.size else []:
            by = step[those[0]]
            moves = max(0, round(missing / by))
            if moves == 0:
                continue
            before = np.cumsum(self.weight[those]) - self.weight[those]
            own = np.clip(moves - before, 0, self.weight[those]).astype(np.int64)
            moved[those] = own
            missing -= int(own.sum()) * by
        stay = self.weight - moved
        bias = self.b[rows, first] * stay + self.b[rows, second] * moved
        cost = self.u[rows, first] * stay + np.where(moved > 0, self.u[rows, second], 0.0) * moved
        return Split(
            first, second, stay.astype(np.int64), moved, float(cost.sum()), float(bias.sum())
        )
