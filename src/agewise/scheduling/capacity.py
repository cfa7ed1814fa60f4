"""At most so many clients in one slot: prices for slots on top of the multipliers for bias.

    L(λ, π) = Σ_i min_t [u_i(t) + 2λ·b_i(t) + π_t] − ‖λ‖² − c·Σ_t π_t,   π ≥ 0,

is a lower bound for capacity c. For a fixed λ the best prices are those of an assignment problem.
Few enough clients: `assignment` solves it exactly. Many: `prices` finds good ones.
"""

from __future__ import annotations

import numpy as np

from agewise.arrays import Array
from agewise.progress import Progress
from agewise.scheduling.assignment import by_assignment
from agewise.scheduling.prices import by_prices
from agewise.scheduling.schedule import Schedule
from agewise.scheduling.tables import Tables

ASSIGNMENT_CELLS = 600_000
"""Clients × places up to which the assignment is solved exactly."""


def solve_with_capacity(
    tables: Tables, capacity: int, start: Array | None, keep_best: bool, progress: Progress | None
) -> Schedule:
    """Return a schedule with at most `capacity` clients a slot, and a bound for it."""
    at = np.zeros(tables.dimensions) if start is None else start
    if tables.clients * capacity * tables.slots <= ASSIGNMENT_CELLS:
        return by_assignment(tables, capacity, at, keep_best, progress)
    return by_prices(tables, capacity, at, keep_best, progress)
