"""Better schedules with gains by moving one client at a time, or two."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agewise.knowledge.estimate import GainTables, gain_objective

ROUNDS = 20
"""Rounds of all clients at most."""


def improve_gains(
    tables: GainTables, columns: NDArray[np.intp], capacity: int | None
) -> NDArray[np.intp]:
    """Move one client after the other to its best column, until nobody gains by moving."""
    total = tables.common.sum(axis=0)
    identity = np.eye(total.shape[1])
    own = tables.base - (tables.cross**2 / tables.power).sum(axis=2)  # [m, T]
    told = tables.heard * (tables.cross / tables.power)[..., None]  # [m, T, C, F]
    load = np.bincount(columns, minlength=tables.slots)
    rows = np.arange(tables.clients)
    for _ in range(ROUNDS):
        heard, power = tables.heard[rows, columns], tables.power[rows, columns]
        shared = identity + np.einsum("icf,icg,ic->cfg", heard, heard, 1 / power)
        unknown = total - told[rows, columns].sum(axis=0)
        moved = 0
        order = np.argsort(-(own[rows, columns] - own.min(axis=1)), kind="stable")
        for i in order.tolist():
            now = columns[i]
            outer = np.einsum(
                "tcf,tcg,tc->tcfg", tables.heard[i], tables.heard[i], 1 / tables.power[i]
            )
            rest, left = shared - outer[now], unknown + told[i, now]
            value = own[i].copy()
            if total.shape[1]:
                vector = left - told[i]
                solved = np.linalg.solve(rest + outer, vector[..., None])[..., 0]
                value += (vector * solved).sum(axis=(1, 2))
            if capacity is not None:
                value = np.where(
                    (load >= capacity) & (np.arange(tables.slots) != now), np.inf, value
                )
            best = int(value.argmin())
            if value[best] < value[now] - 1e-13 * abs(value[now]):
                columns[i], moved = best, moved + 1
                load[now] -= 1
                load[best] += 1
                shared, unknown = rest + outer[best], left - told[i, best]
        if not moved or (tables.clients > 1000 and moved < 1e-3 * tables.clients):
            break
    return columns


def improve_pairs(tables: GainTables, columns: NDArray[np.intp]) -> NDArray[np.intp]:
    """Move two clients at a time, where that helps; for few clients."""
    evaluate, slots = gain_objective(tables), tables.slots
    best = float(evaluate(columns[None])[0])
    pairs = [(i, j) for i in range(tables.clients) for j in range(i)]
    grid = np.indices((slots, slots)).reshape(2, -1)
    for _ in range(5):
        before = best
        for i, j in pairs:
            tried = np.repeat(columns[None], grid.shape[1], axis=0)
            tried[:, i], tried[:, j] = grid
            values = evaluate(tried)
            place = int(values.argmin())
            if values[place] < best - 1e-13 * abs(best):
                best, columns = float(values[place]), tried[place]
        if best == before:
            break
    return columns
