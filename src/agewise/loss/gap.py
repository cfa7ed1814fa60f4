"""The loss gap in closed form, and the tables that a scheduler works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array
from agewise.checks import whole
from agewise.errors import InvalidInput
from agewise.noise import SlotTable, slot_table
from agewise.problem import Client, Problem


@dataclass(frozen=True)
class CostTables:
    """What each client adds to the gap in each collection slot, `[m, A]`, column t-1 for slot t.

    gap = Σ_i u[i, t_i] + (Σ_i b[i, t_i])², with u = p²(2η² + Var[f(X) − z_Y]/n) and
    b = p·E[f(X) − z_Y]. `spread` is p²·Var[f(X) − z_Y]/n, the part of u that noise leaves alone.
    """

    u: Array
    b: Array
    spread: Array
    slots: tuple[SlotTable, ...]


@lru_cache(maxsize=16)
def cost_tables(problem: Problem) -> CostTables:
    """Return u and b of every client and slot, with the noise that meets the target there."""
    alike = [(c.process.fingerprint, c.law, c.samples) for c in problem.clients]
    kinds = dict(zip(alike, problem.clients, strict=True))  # clients alike share their tables
    known = {key: slot_table(client, problem) for key, client in kinds.items()}
    moments = {key: _moments(client, known[key]) for key, client in kinds.items()}
    slots = tuple(known[key] for key in alike)
    weights = problem.weights
    bias = np.stack([moments[key][0] for key in alike]) * weights[:, None]
    spread = np.stack([moments[key][1] for key in alike]) * weights[:, None] ** 2
    with np.errstate(over="ignore"):
        noise = np.stack([2 * table.scale**2 for table in slots]) * weights[:, None] ** 2
    if not np.isfinite(noise).all():
        raise InvalidInput(
            "epsilon", problem.epsilon, "a target that finite noise can meet", "Raise epsilon."
        )
    return CostTables(_frozen(spread + noise), _frozen(bias), _frozen(spread), slots)


def _moments(client: Client, table: SlotTable) -> tuple[Array, Array]:
    """Mean of f(X) − z_Y, and the variance of its mean over n records, by slot."""
    joint = table.law_rows[:, :, None] * table.kernel_rows
    error = table.release_rows[:, :, None] - client.process.states
    mean = (joint * error).sum(axis=(1, 2))
    variance = (joint * (error - mean[:, None, None]) ** 2).sum(axis=(1, 2))
    return mean[table.row], variance[table.row] / client.samples


def loss_gap(problem: Problem, ages: ArrayLike) -> float:
    """Return the expected loss gap E[(W̃ − W^A)²] of a schedule, exactly.

    The paper's closed form for means (its Theorem 2), for either estimator:
    Σ p_i²(2η_i² + Var[f(X) − z_Y]/n_i) + (Σ p_i E[f(X) − z_Y])². `ages` has one age a client.

    >>> from agewise import scenarios
    >>> round(loss_gap(scenarios.london(), ages=[0, 9, 9]), 2)
    127.07
    """
    tables = cost_tables(problem)
    rows, columns = schedule_cells(problem, ages)
    return float(tables.u[rows, columns].sum() + tables.b[rows, columns].sum() ** 2)


def schedule_cells(problem: Problem, ages: ArrayLike) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Check one age a client and return the cells of the tables that they select."""
    given: Sequence[int] = np.asarray(ages).ravel().tolist()
    if len(given) != len(problem.clients):
        raise InvalidInput(
            "ages", f"{len(given)} ages", f"{len(problem.clients)} ages, one a client"
        )
    last = problem.aggregate_at - 1
    checked = [
        whole(f"age of client {client.name!r}", age, 0, last)
        for client, age in zip(problem.clients, given, strict=True)
    ]
    return np.arange(len(checked)), last - np.array(checked, dtype=np.intp)


def _frozen(array: Array) -> Array:
    array.setflags(write=False)
    return array
