"""The loss gap in closed form, and the tables that a scheduler works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array, frozen
from agewise.checks import whole
from agewise.errors import InvalidInput
from agewise.learning import Learner
from agewise.mechanism import MECHANISMS
from agewise.problem import Client, Problem
from agewise.terms import SlotTable, slot_table


@dataclass(frozen=True)
class CostTables:
    """What each client adds to the gap in each collection slot, `[m, A]`, column t-1 for slot t.

    gap = Σ_i u[i, t_i] + ‖Σ_i b[i, t_i]‖², with u = p²(noise + Var[f(X) − φ(Y)]/n) and
    b = p·E[f(X) − φ(Y)], where noise and variance are summed over the coordinates of the learner
    with its weights; b is `[m, A]` for one coordinate and `[m, A, d]` for several, each scaled by
    the root of its weight. `spread` is p²·Var[f(X) − φ(Y)]/n, what of u noise leaves alone.
    """

    u: Array
    b: Array
    spread: Array
    slots: tuple[SlotTable, ...]


@lru_cache(maxsize=16)
def cost_tables(problem: Problem) -> CostTables:
    """Return u and b of every client and slot, with the noise that meets the target there."""
    alike = [(c.process.fingerprint, c.law, c.samples, c.epsilon) for c in problem.clients]
    kinds = dict(zip(alike, problem.clients, strict=True))  # clients alike share their tables
    known = {key: slot_table(client, problem) for key, client in kinds.items()}
    learner, variance = problem.learner, MECHANISMS[problem.mechanism].variance
    moments = {key: _moments(client, learner, known[key]) for key, client in kinds.items()}
    slots = tuple(known[key] for key in alike)
    weights = problem.weights
    counts = float(learner.weights(problem.clients[0].process.states).sum())
    bias = np.stack([moments[key][0] for key in alike]) * weights[:, None, None]
    spread = np.stack([moments[key][1] for key in alike]) * weights[:, None] ** 2
    with np.errstate(over="ignore"):
        noise = np.stack([variance(table.scale) for table in slots]) * counts
        noise = noise * weights[:, None] ** 2
    if not np.isfinite(noise).all():
        raise InvalidInput(
            "epsilon", problem.epsilon, "a target that finite noise can meet", "Raise epsilon."
        )
    bias = bias[..., 0] if bias.shape[2] == 1 else bias
    return CostTables(frozen(spread + noise), frozen(bias), frozen(spread), slots)


def _moments(client: Client, learner: Learner, table: SlotTable) -> tuple[Array, Array]:
    """Mean `[A, d]` of f(X) − φ(Y), and the variance of its mean over n records `[A]`, weighted."""
    counts = learner.weights(client.process.states)
    means, variances = _coordinates(client, learner, table)
    total = np.zeros(len(means))
    for k, count in enumerate(counts.tolist()):
        total += count * variances[:, k]
    return (np.sqrt(counts) * means)[table.row], total[table.row] / client.samples


def _coordinates(client: Client, learner: Learner, table: SlotTable) -> tuple[Array, Array]:
    """Mean and variance `[R, d]` of f(X) − φ(Y) for one record, coordinate by coordinate."""
    joint = table.law_rows[:, :, None] * table.kernel_rows
    present = learner.table(client.process.states)
    means, variances = [], []
    for k in range(present.shape[1]):  # one at a time keeps memory small
        error = table.release_rows[:, :, None, k] - present[:, k]
        mean = (joint * error).sum(axis=(1, 2))
        means.append(mean)
        variances.append((joint * (error - mean[:, None, None]) ** 2).sum(axis=(1, 2)))
    return np.stack(means, axis=1), np.stack(variances, axis=1)


def coordinate_gaps(problem: Problem, ages: ArrayLike) -> Array:
    """Return the expected squared error of each coordinate of the model, `[d]`.

    Summed with the learner's weights they are `loss_gap`; their roots are error bars.
    """
    tables, learner = cost_tables(problem), problem.learner
    variance = MECHANISMS[problem.mechanism].variance
    spread, bias = 0.0, 0.0
    cells = zip(problem.clients, problem.weights, tables.slots, strict=True)
    _, columns = schedule_cells(problem, ages)
    for (client, weight, table), column in zip(cells, columns.tolist(), strict=True):
        means, variances = _coordinates(client, learner, table)
        row = table.row[column]
        noise = float(variance(table.scale[column]))
        spread = spread + weight**2 * (noise + variances[row] / client.samples)
        bias = bias + weight * means[row]
    return np.asarray(spread + np.square(bias))


def loss_gap(problem: Problem, ages: ArrayLike) -> float:
    """Return the expected loss gap E[‖W̃ − W^A‖²] of a schedule, exactly.

    The paper's closed form for means (its Theorem 2), for either estimator and any learner:
    Σ p_i²(noise_i + Var[f(X) − φ(Y)]/n_i) + ‖Σ p_i E[f(X) − φ(Y)]‖². `ages` has one age per client.

    >>> from agewise import scenarios
    >>> round(loss_gap(scenarios.london(), ages=[0, 9, 9]), 2)
    127.07
    """
    tables = cost_tables(problem)
    rows, columns = schedule_cells(problem, ages)
    bias = tables.b[rows, columns].sum(axis=0)
    return float(tables.u[rows, columns].sum() + np.square(bias).sum())


def schedule_cells(problem: Problem, ages: ArrayLike) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Check one age a client and return the cells of the tables that they select."""
    given: Sequence[int] = np.asarray(ages).ravel().tolist()
    if len(given) != len(problem.clients):
        raise InvalidInput(
            "ages", f"{len(given)} ages", f"{len(problem.clients)} ages, one per client"
        )
    last = problem.aggregate_at - 1
    checked = [
        whole(f"age of client {client.name!r}", age, 0, last)
        for client, age in zip(problem.clients, given, strict=True)
    ]
    return np.arange(len(checked)), last - np.array(checked, dtype=np.intp)
