"""At most so many clients in one slot: how columns are chosen within a capacity.

Prices π ≥ 0 of the columns prove what a choice costs at least: for any values v,

    Σ_i v_i(t_i) ≥ Σ_i min_t [v_i(t) + π_t] − c·Σ_t π_t

whatever keeps to the capacity c. For few clients the best prices are those of an assignment problem
(SciPy's shortest augmenting paths); for many, `prices` finds good ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.errors import InvalidInput
from agewise.scheduling.costs import Columns
from agewise.scheduling.prices import by_prices
from agewise.scheduling.tables import Tables

ASSIGNMENT_CELLS = 600_000
"""Clients × places up to which the assignment is solved exactly."""


@dataclass(frozen=True, eq=False)
class Picked:
    """A column for each row, and what no choice costs less than (infinite: there is none)."""

    columns: Columns
    least: float
    prices: Array | None = None


Chooser = Callable[[Array], Picked]


def least_of_each(values: Array) -> Picked:
    """The least value of each row."""
    columns = values.argmin(axis=1)
    return Picked(columns, float(values[np.arange(len(values)), columns].sum()))


def assignable(capacity: int, rows: int, slots: int) -> bool:
    """Whether there are few enough clients for an exact assignment."""
    cells = slots * max(rows * capacity, slots // 8)  # what moves between slots cost is a table too
    return cells <= ASSIGNMENT_CELLS


def within(capacity: int, rows: int, slots: int) -> Chooser:
    """The chooser of a capacity: exact for few clients."""

    def assigned(values: Array) -> Picked:
        from scipy.optimize import linear_sum_assignment  # noqa: PLC0415  (slow to import)

        finite = np.isfinite(values)
        nothing = Picked(np.zeros(rows, dtype=np.intp), math.inf)
        if not finite.any(axis=1).all():
            return nothing
        ceiling = (np.abs(values[finite]).max() + 1e-300) * 4 * rows  # more than any assignment
        places = np.repeat(np.where(finite, values, ceiling), capacity, axis=1)
        columns = linear_sum_assignment(places)[1] // capacity
        if not finite[np.arange(rows), columns].all():
            return nothing
        return _shown(values, columns, _prices_of(values, columns, capacity), capacity)

    def priced(values: Array) -> Picked:
        tables = Tables(values, np.zeros_like(values))
        try:
            found = by_prices(tables, capacity, np.zeros(1), False, None)
        except InvalidInput:  # no schedule in the capacity
            return Picked(np.zeros(rows, dtype=np.intp), math.inf)
        prices = np.zeros(slots) if found.prices is None else found.prices
        return _shown(values, found.columns, prices, capacity)

    return assigned if assignable(capacity, rows, slots) else priced


def _shown(values: Array, columns: Columns, prices: Array, capacity: int) -> Picked:
    """Columns, and what their prices show."""
    least = math.fsum((values + prices).min(axis=1).tolist())
    return Picked(columns, least - capacity * math.fsum(prices.tolist()), prices)


def _prices_of(cost: Array, columns: NDArray[np.intp], capacity: int) -> Array:
    """Prices at which every client is content with its slot of an optimal assignment.

    π_s is the least that it costs to move someone from s, directly or along a chain, to a slot
    with room: shortest paths (Bellman and Ford).
    """
    slots = cost.shape[1]
    move = np.full((slots, slots), np.inf)
    np.minimum.at(move, columns, cost - cost[np.arange(len(cost)), columns][:, None])
    longest = slots * float(np.abs(move[np.isfinite(move)]).max())
    move = np.where(np.isfinite(move), move, longest)  # forbidden: farther than any other way
    room = np.bincount(columns, minlength=slots) < capacity
    full = not room.any()
    if full:
        room[0] = True
    prices = np.where(room, 0.0, np.inf)
    for _ in range(slots):
        shorter = np.minimum(prices, (move + prices[None, :]).min(axis=1))
        if not full:
            shorter[room] = 0
        if np.array_equal(shorter, prices):
            break
        prices = shorter
    if full:
        prices = prices - prices[np.isfinite(prices)].min()
    return np.where(np.isfinite(prices), np.maximum(prices, 0), 0.0)
