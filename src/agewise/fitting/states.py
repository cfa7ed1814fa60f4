"""Which values a record can take: given levels, quantiles, or the least quantisation error.

Outliers (see `plausibility.fence`) have no say in it: they count as the highest state, as readings
above it do in a run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array, nearest_states
from agewise.checks import finite_array, numbers, whole
from agewise.errors import InvalidInput
from agewise.process.joint import as_states, in_a_line
from agewise.readings.plausibility import fence

MOST_STATES = 100
MOST_VALUES = 5_000
"""Distinct values up to which the least error is found exactly; above, values are rounded."""


@dataclass(frozen=True)
class States:
    """State values, and how far readings are from the nearest one (root mean square, same unit).

    Outliers are not counted in `error`.
    """

    values: Array  #: in rising order
    error: float
    how: str  #: how they were chosen, in words

    def __repr__(self) -> str:
        return f"States({in_a_line(self.values)}; {self.how}, error {self.error:.4g})"

    def index(self, readings: Array) -> NDArray[np.int8]:
        """The nearest state of each reading, −1 where there is none."""
        nearest = nearest_states(readings, self.values).astype(np.int8)
        return np.where(np.isnan(readings), np.int8(-1), nearest)


def given_states(levels: ArrayLike, readings: Array) -> States:
    """Return the levels given, in rising order."""
    values = np.sort(as_states(levels))
    if values.size > MOST_STATES:
        raise InvalidInput("states", f"{values.size} levels", f"{MOST_STATES} at most")
    return States(values, _error(values, _seen(readings)), "given")


def quantile_states(count: int, readings: Array) -> States:
    """Return the means of `count` groups of readings that are equally large."""
    wanted = whole("quantiles", count, 2, 100)
    seen = _seen(readings)
    edges = np.unique(np.quantile(seen, np.linspace(0, 1, wanted + 1)[1:-1]))
    group = np.searchsorted(edges, seen, side="left")
    values = np.array([seen[group == g].mean() for g in np.unique(group)])
    if values.size < 2:
        raise _too_few(values.size, wanted)
    return States(values, _error(values, seen), f"{values.size} quantile groups")


def least_error_states(count: int, readings: Array) -> States:
    """Return the `count` values with the least mean squared distance (k-means in one dimension).

    Exact, by dynamic programming over the distinct values: the best groups are intervals. Cost
    O(count · U²) for U distinct values, vectorised over one of them.
    """
    wanted = whole("least_error", count, 2, 100)
    all_seen = _seen(readings)
    seen, times = np.unique(all_seen, return_counts=True)
    how = "least error"
    if seen.size > MOST_VALUES:
        grid = (seen[-1] - seen[0]) / MOST_VALUES
        seen, times = np.unique(np.round(all_seen / grid) * grid, return_counts=True)
        how = f"least error, readings rounded to {grid:.3g}"
    if seen.size < wanted:
        raise _too_few(seen.size, wanted)
    weight = np.concatenate([[0], np.cumsum(times)]).astype(float)
    first = np.concatenate([[0], np.cumsum(times * seen)])
    second = np.concatenate([[0], np.cumsum(times * seen**2)])

    def cost(start: NDArray[np.intp], end: int) -> Array:
        """The squared error of one group of the values from `start` to `end`, exclusive."""
        count_, sum_ = weight[end] - weight[start], first[end] - first[start]
        return np.asarray(np.maximum(second[end] - second[start] - sum_**2 / count_, 0))

    size = seen.size
    best = np.full((wanted + 1, size + 1), np.inf)
    best[0, 0] = 0.0
    cut = np.zeros((wanted + 1, size + 1), dtype=np.intp)
    for groups in range(1, wanted + 1):
        for end in range(groups, size + 1):
            starts = np.arange(groups - 1, end)
            total = best[groups - 1, starts] + cost(starts, end)
            chosen = int(total.argmin())
            best[groups, end], cut[groups, end] = total[chosen], starts[chosen]
    values, end = [], size
    for groups in range(wanted, 0, -1):
        start = int(cut[groups, end])
        values.append((first[end] - first[start]) / (weight[end] - weight[start]))
        end = start
    levels = np.array(values[::-1])
    return States(levels, _error(levels, all_seen), how)


def _seen(readings: Array) -> Array:
    """Readings that there are, outliers left out."""
    readings = numbers("readings", readings, "numbers, NaN where there are none")
    return finite_array("readings", readings[readings <= fence(readings)], "one number or more")


def _error(values: Array, seen: Array) -> float:
    return float(np.sqrt(((values[nearest_states(seen, values)] - seen) ** 2).mean()))


def _too_few(possible: int, wanted: int) -> InvalidInput:
    return InvalidInput(
        "readings",
        f"{possible} distinct values",
        f"{wanted} or more for {wanted} states",
        "Ask for fewer states.",
    )
