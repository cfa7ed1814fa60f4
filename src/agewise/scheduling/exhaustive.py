"""The paper's search: every schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.errors import InvalidInput
from agewise.scheduling.schedule import Draw, Schedule

LIMIT = 5_000_000
"""Schedules beyond which exhaustive search refuses."""

BLOCK = 200_000

Evaluate = Callable[[NDArray[np.intp]], Array]


def exhaustive(
    evaluate: Evaluate, clients: int, slots: int, capacity: int | None = None, limit: int = LIMIT
) -> Schedule:
    """Return the best of all slots^clients schedules; `evaluate` maps `[k, m]` columns to `[k]`.

    Guarantees
        The schedule returned is a global minimum, so its objective is its own lower bound. Of
        equal ones the first in order wins: the oldest data first.
    """
    best, value, seen = None, np.inf, 0
    for block in all_schedules(clients, slots, capacity, limit):
        values = evaluate(block)
        seen += len(block)
        place = int(np.argmin(values))
        if values[place] < value:
            best, value = block[place], float(values[place])
    if best is None:
        raise InvalidInput(
            "objective", "infinite for every schedule", "a schedule of finite cost in the capacity"
        )
    return Schedule(best, value, value, seen)


def all_schedules(
    clients: int, slots: int, capacity: int | None = None, limit: int = LIMIT
) -> Iterator[NDArray[np.intp]]:
    """Yield every schedule that keeps to the capacity, in blocks `[k, m]`."""
    if clients * math.log(slots) > math.log(limit) + 1e-9:
        raise InvalidInput(
            "method",
            f"exhaustive for {slots}^{clients} schedules",
            f"at most {limit:,} schedules",
            "Use method certified, which takes time linear in clients and slots.",
        )
    if slots == 1:
        if capacity is None or clients <= capacity:
            yield np.zeros((1, clients), dtype=np.intp)
        return
    for start in range(0, slots**clients, BLOCK):
        flat = np.arange(start, min(start + BLOCK, slots**clients))
        block = np.stack(np.unravel_index(flat, (slots,) * clients), axis=1)
        if capacity is not None and capacity < clients:
            ordered = np.sort(block, axis=1)
            block = block[(ordered[:, capacity:] != ordered[:, :-capacity]).all(axis=1)]
        if len(block):
            yield block


def table_objective(u: Array, b: Array, draw: Draw | None = None) -> Evaluate:
    """Return the evaluation Σu + ‖Σb‖² of tables `[m, T]` and `[m, T]` or `[m, T, d]`.

    With a draw, what its largest scale loses is added.
    """
    clients = np.arange(u.shape[0])

    def evaluate(schedules: NDArray[np.intp]) -> Array:
        if b.ndim == 2:
            square = b[clients, schedules].sum(axis=1) ** 2
        else:  # client by client: all their vectors at once would not fit in memory
            bias = np.zeros((len(schedules), b.shape[2]))
            for client in clients:
                bias += b[client, schedules[:, client]]
            square = (bias**2).sum(axis=1)
        found = u[clients, schedules].sum(axis=1) + square
        if draw is not None:
            found += draw.power * draw.scales[clients, schedules].max(axis=1) ** 2
        return np.asarray(found)

    return evaluate
