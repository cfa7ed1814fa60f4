"""The best λ for one bias over rows that are few enough to look at often: bisection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.scheduling.crossing import Columns, Meeting, meeting
from agewise.scheduling.schedule import Schedule

Side = tuple[float, Columns, float]


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

    def of(self, rows: NDArray[np.intp], columns: Columns) -> tuple[Array, Array]:
        """u and b of some rows, each in its column."""
        return self.u[rows, columns], self.b[rows, columns]

    def only(self, which: NDArray[np.bool_]) -> Rows:
        """Some of the rows."""
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

    def meeting(self, low: Side, high: Side, slope: float = 1.0) -> Meeting:
        """Where Σ b = `slope`·λ, between two λ with the choices there, and Σ b of all."""
        (at, first, above), (other, last, below) = low, high
        ends, chosen, bias = (at, other), (first, last), (above, below)
        return meeting(self.u, self.b, self.weight, ends, chosen, bias, slope)

    def crossing(self) -> tuple[float, float]:
        """Two neighbouring floats between which Σ b falls through λ."""
        low, high = self.range()
        for _ in range(1100):
            middle = (low + high) / 2
            if middle in (low, high) or high - low <= 1e-15 * max(abs(low), abs(high)):
                break
            above = self.bias(self.choose(middle)) >= middle
            low, high = (middle, high) if above else (low, middle)
        return low, high

    def solve(self, grouped: bool) -> Schedule:
        """Bisect to the last bit, then move tied clients so that Σ b comes closest to λ."""
        low, high = self.crossing()
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
        """Which clients choose as at one λ, and which as at another: Σ b closest to `wanted`."""
        rows, both = np.arange(len(self.u)), (self.choose(low), self.choose(high))
        return split(both, [self.of(rows, one) for one in both], self.weight, wanted)


def split(
    columns: tuple[Columns, Columns],
    values: Sequence[tuple[Array, Array]],
    weight: Array,
    wanted: float,
) -> Split:
    """Which clients of each row take which of two columns: Σ b comes closest to `wanted`.

    `values` are u and b of each row in the first column, and in the second.
    """
    (u, b), (other_u, other_b) = values
    moved = _moved(other_b - b, weight, wanted - float((b * weight).sum()))
    stay = weight - moved
    cost = float((u * stay + np.where(moved > 0, other_u, 0.0) * moved).sum())
    bias = float((b * stay + other_b * moved).sum())
    return Split(*columns, stay.astype(np.int64), moved, cost, bias)


def _moved(step: Array, weight: Array, missing: float) -> NDArray[np.int64]:
    """How many clients of each row to move, each by its row's step, to make up what is missing.

    Row by row, largest steps first, to the nearest whole number of clients. All clients of the
    next few rows move as long as what is left is more than half a step beyond them: found at once.
    """
    moved = np.zeros(len(step), dtype=np.int64)
    sides = {}
    for sign in (1.0, -1.0):
        rows = np.flatnonzero(sign * step > 0)
        rows = rows[np.argsort(-sign * step[rows], kind="stable")]
        size, many = sign * step[rows], weight[rows]
        so_far = np.concatenate([[0.0], np.cumsum(size * many)])
        sides[sign] = rows, size, many, so_far, so_far[:-1] + (many - 0.5) * size
    turn, largest = {1.0: 0, -1.0: 0}, np.inf  # rows with larger steps had their turn
    while missing:
        sign, left = math.copysign(1.0, missing), abs(missing)
        rows, size, many, so_far, whole = sides[sign]
        start = int(np.searchsorted(-size, -min(2 * left, largest)))
        start = max(start, turn[sign])
        if start >= rows.size:
            break
        stop = max(start, int(np.searchsorted(whole, so_far[start] + left, "right")))
        moved[rows[start:stop]] = many[start:stop]
        left -= float(so_far[stop] - so_far[start])
        if stop < rows.size and left > 0:
            own = min(int(many[stop]), round(left / size[stop]))
            moved[rows[stop]] = own
            left -= own * float(size[stop])
            stop += 1
        turn[sign], largest = stop, float(size[stop - 1])
        missing = sign * left
    return moved
