"""The tables that a scheduler works on: what each client adds to the loss in each slot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array, frozen
from agewise.checks import whole
from agewise.errors import InvalidInput
from agewise.knowledge import Asked, Moments, independent_moments
from agewise.knowledge.estimate import GainTables
from agewise.learning import Learner
from agewise.loss.training import is_trained, rehearsals, training_tables
from agewise.mechanism import MECHANISMS
from agewise.problem import Client, Problem
from agewise.terms import SlotTable, slot_table


@dataclass(frozen=True)
class CostTables:
    """What each client adds to the gap in each collection slot, `[m, A]`, column t-1 for slot t.

    gap = Σ_i u[i, t_i] + ‖Σ_i b[i, t_i]‖², with u = p²(noise + Var[f(X) − φ(Y)]/n) and
    b = p·E[f(X) − φ(Y)], where noise and variance are summed over the coordinates of the learner
    with its weights; b is `[m, A]` for one coordinate and `[m, A, d]` for several, each scaled by
    the root of its weight. What clients share is further coordinates of b: how far their release
    moves with each factor, less how far their fresh mean does. `spread` is p²·Var[f(X) − φ(Y)]/n,
    what of u noise leaves alone. Where the server draws noise once, u is the spread alone.
    """

    u: Array
    b: Array
    spread: Array
    slots: tuple[SlotTable, ...]


def cost_tables(problem: Problem) -> CostTables:
    """Return u and b of every client and slot, with the noise that meets the target there.

    Those of a training are for the whole of it, wherever it stands.
    """
    return _cost_tables(problem.untrained())


@lru_cache(maxsize=16)
def _cost_tables(problem: Problem) -> CostTables:
    alike = [(c.process.fingerprint, c.law, c.samples, c.epsilon) for c in problem.clients]
    kinds = dict(zip(alike, problem.clients, strict=True))  # clients alike share their tables
    known = {key: slot_table(client, problem) for key, client in kinds.items()}
    learner, variance = problem.learner, MECHANISMS[problem.mechanism].variance
    slots = tuple(known[key] for key in alike)
    weights = problem.weights
    if is_trained(problem):
        training = training_tables(problem, slots)
        bias, spread, counts = training.bias, training.spread, training.power
    else:
        moments = {key: _moments(client, learner, known[key]) for key, client in kinds.items()}
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
    if problem.known.kind != "independent":
        bias, spread = _with_knowledge(problem, bias, spread)
    bias = bias[..., 0] if bias.shape[2] == 1 else bias
    u = spread.copy() if problem.noise == "server" else spread + noise
    return CostTables(frozen(u), frozen(bias), frozen(spread), slots)


def one_draw_of(problem: Problem) -> float:
    """The loss of one draw of noise of scale 1, added to every coordinate of the model."""
    return float(MECHANISMS[problem.mechanism].variance(np.asarray(1.0))) * noise_counts(problem)


def noise_counts(problem: Problem) -> float:
    """What noise of variance 1 on every coordinate of what is aggregated costs."""
    if is_trained(problem):
        several = rehearsals(problem)
        return math.fsum(one.power for one in several) / len(several)
    return float(problem.learner.weights(problem.clients[0].process.states).sum())


def all_moments(
    problem: Problem,
    slots: tuple[int, ...] | None = None,
    tables: Sequence[SlotTable] | None = None,
) -> Iterator[tuple[SlotTable, Moments]]:
    """Yield, client by client, its terms and what the server knows of it, in every slot or some.

    `tables` are the clients' terms where they are known already.
    """
    known: dict[Any, tuple[SlotTable, Moments, Asked]] = {}  # clients alike share what they can
    for place, client in enumerate(problem.clients):
        key = (client.process.fingerprint, client.law, client.samples, client.epsilon)
        if key not in known:
            table = slot_table(client, problem, slots) if tables is None else tables[place]
            values = problem.learner.table(client.process.states)
            own = independent_moments(
                table.law_rows,
                table.kernel_rows,
                table.release_rows,
                values,
                client.samples,
                table.row,
            )
            release = table.release_rows[table.row]
            last = problem.aggregate_at
            known[key] = table, own, Asked(last - table.ages, last, release, values)
        table, own, asked = known[key]
        yield table, problem.known.moments(place, own, asked)


def _with_knowledge(problem: Problem, bias: Array, spread: Array) -> tuple[Array, Array]:
    """The tables of clients that share something: measured moments, and factors as biases."""
    states = problem.clients[0].process.states
    counts = problem.learner.weights(states)
    root, measured = np.sqrt(counts), problem.known.kind == "measured"
    shared = []
    bias, spread = bias.copy(), spread.copy()
    for i, (_, known) in enumerate(all_moments(problem)):
        weight = problem.weights[i]
        apart = weight * root[:, None] * (known.factors - known.target_factors)
        shared.append(apart.reshape(len(apart), -1))
        if measured:
            off = known.target_variance - 2 * known.covariance + known.variance
            spread[i] = weight**2 * np.maximum(off, 0.0) @ counts
            bias[i] = weight * root * (known.mean - known.target_mean)
    return np.concatenate([bias, np.stack(shared)], axis=2), spread


@dataclass(frozen=True)
class KnownTables:
    """The tables of the best estimate, and the means that it starts from.

    `gains` has one row per client and one column per slot; `target_mean` and `mean` `[m, A, C]` are
    those of each client's fresh mean and of its release, not weighted.
    """

    gains: GainTables
    target_mean: Array
    mean: Array
    slots: tuple[SlotTable, ...]


@lru_cache(maxsize=16)
def known_tables(problem: Problem, slots: tuple[int, ...] | None = None) -> KnownTables:
    """Return what the server knows of every client in every slot (or those given).

    Clients release as their problem's estimator says; noise is what meets the target there, and
    none where the server adds it.
    """
    states = problem.clients[0].process.states
    counts, root = problem.learner.weights(states), np.sqrt(problem.learner.weights(states))
    variance = MECHANISMS[problem.mechanism].variance
    base, cross, power, common, heard, means, targets, tables = ([] for _ in range(8))
    for weight, (table, moments) in zip(problem.weights, all_moments(problem, slots), strict=True):
        noise = np.zeros((len(table.scale), 1))
        if problem.noise == "client":
            with np.errstate(over="ignore"):
                noise = np.asarray(variance(table.scale))[:, None]
        loud = counts * (moments.variance + noise)
        factors = root[:, None] * moments.factors
        base.append(weight**2 * moments.target_variance @ counts)
        cross.append(weight * counts * moments.covariance)
        # A release without noise or variance of its own tells its factors but for rounding.
        power.append(np.maximum(loud, 1e-13 * (factors**2).sum(axis=-1) + 1e-290))
        common.append(weight * root[:, None] * moments.target_factors)
        heard.append(factors)
        means.append(moments.mean)
        targets.append(moments.target_mean)
        tables.append(table)
    stacked = [np.stack(one) for one in (base, cross, power, common, heard)]
    if not np.isfinite(stacked[2]).all():
        raise InvalidInput(
            "epsilon", problem.epsilon, "a target that finite noise can meet", "Raise epsilon."
        )
    return KnownTables(GainTables(*stacked), np.stack(targets), np.stack(means), tuple(tables))


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
