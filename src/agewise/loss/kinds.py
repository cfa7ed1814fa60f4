"""What clients must do and would tell in each slot, worked out once for those alike.

Kinds whose records follow chains of one size are worked out together, as arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array, frozen
from agewise.chain_terms import Wanted, size_and_target, tabulate_alike, tabulates
from agewise.knowledge import Moments, independent_moments
from agewise.problem import Client, Problem
from agewise.slot_tables import SlotTable
from agewise.terms import slot_table


@dataclass(frozen=True)
class Kinds:
    """The kinds of clients of a problem: `kind` `[m]` says which each client is.

    By kind: one of its `clients`, its `tables`, and the `moments` `[K, T, C]` of what it releases
    by slot and coordinate, were all records independent. `apart` `[K, T, C]` is the variance of
    how far that is from the fresh mean.
    """

    kind: NDArray[np.intp]
    clients: tuple[Client, ...]
    tables: tuple[SlotTable, ...]
    moments: Moments
    apart: Array

    def slots(self) -> tuple[SlotTable, ...]:
        """The table of each client."""
        return tuple([self.tables[kind] for kind in self.kind.tolist()])

    def moments_of(self, kind: int) -> Moments:
        """The moments of one kind."""
        return Moments(*(getattr(self.moments, one.name)[kind] for one in fields(Moments)))


@lru_cache(maxsize=8)
def kinds_of(problem: Problem, slots: tuple[int, ...] | None = None) -> Kinds:
    """Return the kinds of clients, with their terms in every slot or in some."""
    kind, first = (
        np.array(problem.kinds, dtype=np.intp),
        np.unique(problem.kinds, return_index=True)[1],
    )
    clients = [problem.clients[place] for place in first.tolist()]
    last = problem.aggregate_at
    chosen = np.arange(1, last + 1) if slots is None else np.asarray(slots, dtype=np.int64)
    wanted = Wanted(problem.learner, problem.estimator, last - chosen, last)
    groups: dict[Any, list[int]] = {}
    for number, client in enumerate(clients):
        target = problem.target_of(client)
        fits = len(clients) > 1 and tabulates(client, target, wanted)
        groups.setdefault(size_and_target(client, target) if fits else None, []).append(number)
    tables: list[Any] = [None] * len(clients)
    told = np.empty((6, len(clients), len(chosen), problem.width))
    for number in groups.pop(None, []):
        tables[number] = slot_table(clients[number], problem, slots)
        told[:, number] = _told(clients[number], problem, tables[number])
    for group in groups.values():
        _fill(problem, wanted, clients, group, tables, told)
    target_mean, mean, target_variance, covariance, variance, apart = (frozen(one) for one in told)
    moments = Moments(
        target_mean,
        mean,
        target_variance,
        covariance,
        variance,
        target_factors=np.zeros((*told.shape[1::2], 0)),
        factors=np.zeros((*apart.shape, 0)),
    )
    return Kinds(kind, tuple(clients), tuple(tables), moments, apart)


def _fill(
    problem: Problem,
    wanted: Wanted,
    clients: Sequence[Client],
    group: list[int],
    tables: list[Any],
    told: Array,
) -> None:
    """Work out clients of one size together."""
    members = [clients[number] for number in group]
    begun = 0
    for found, numbers in tabulate_alike(members, [problem.target_of(c) for c in members], wanted):
        here = group[begun : begun + len(found)]
        begun += len(found)
        told[:, here] = numbers
        for number, table in zip(here, found, strict=True):
            tables[number] = table


def _told(client: Client, problem: Problem, table: SlotTable) -> Array:
    """Moments and what is apart of one client, `[6, T, C]`."""
    values, row = problem.learner.table(client.process.states), table.row
    release, kernels = table.release_rows, table.kernel_rows
    own = independent_moments(table.law_rows, kernels, release, values, client.records, row)
    joint = table.law_rows[:, :, None] * kernels
    apart = np.empty((len(joint), values.shape[1]))
    for k in range(values.shape[1]):  # one at a time keeps memory small
        error = release[:, :, None, k] - values[:, k]
        mean = (joint * error).sum(axis=(1, 2))
        apart[:, k] = (joint * (error - mean[:, None, None]) ** 2).sum(axis=(1, 2))
    moments = [getattr(own, one.name) for one in fields(Moments)[:5]]
    return np.stack([*moments, apart[row] / client.records])
