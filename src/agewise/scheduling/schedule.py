"""What a scheduler returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array


@dataclass(frozen=True)
class Leaf:
    """A part of the search space that its multipliers (and prices) bound from below."""

    multipliers: tuple[float, ...]
    prices: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Split:
    """The search space cut in two: client's (first) bias up to the threshold, or above it."""

    client: int
    threshold: float
    below: Leaf | Split
    above: Leaf | Split


@dataclass(frozen=True, eq=False)
class Schedule:
    """A column of the tables for each client, its objective, and what is proven about it.

    `lower_bound` is a value that no schedule can beat (None: nothing is proven). `proof` is what
    it can be checked with: multipliers (one for each dimension of b) and prices (one a column,
    with a capacity), for the whole search space or for parts that make it up; None where every
    schedule was looked at. `multipliers` and `prices` are those of the whole. For rows that stand
    for several clients, `allocation` `[m, T]` says how many of them take each column, and
    `columns` the column that most of them take. `complete` is false after an interruption.
    """

    columns: NDArray[np.intp]
    objective: float
    lower_bound: float | None
    iterations: int
    multipliers: Array | None = None
    prices: Array | None = None
    allocation: NDArray[np.int64] | None = None
    proof: Leaf | Split | None = None
    complete: bool = True

    @property
    def schedule(self) -> NDArray[np.intp]:
        """The columns, under another name."""
        return self.columns

    @property
    def relative_gap(self) -> float | None:
        """(objective − lower bound)/|objective|: how far from the best it can be at most."""
        if self.lower_bound is None:
            return None
        if self.objective <= self.lower_bound:
            return 0.0
        scale = max(abs(self.objective), abs(self.lower_bound))
        return float((self.objective - self.lower_bound) / scale)
