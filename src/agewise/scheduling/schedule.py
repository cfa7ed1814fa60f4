"""What a scheduler returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Schedule:
    """A column of the tables for each client, its objective, and what is proven about it.

    `lower_bound` is a value that no schedule can beat (None: nothing is proven), and
    `relative_gap` = (objective − lower_bound)/objective.
    """

    columns: NDArray[np.intp]
    objective: float
    lower_bound: float | None
    iterations: int

    @property
    def relative_gap(self) -> float | None:
        """How far the objective may be above the best possible, relative to the objective."""
        if self.lower_bound is None:
            return None
        if self.objective <= self.lower_bound:
            return 0.0
        return (self.objective - self.lower_bound) / abs(self.objective)
