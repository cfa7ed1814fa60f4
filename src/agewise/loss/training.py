"""What noise and age cost a model that is trained over rounds, by rehearsing its training.

An error e_k of the mean gradient of round k moves the mean of the iterates, to first order, by
B_k e_k: the steps after it carry it on. The log loss at the end then rises by ½‖Σ_k B_k e_k‖² in
the Hessian H there, beyond that of a run with the clients' fresh records and no noise. With
M_k = √(H/2) B_k and φ_k the gradients of the states in round k, noise adds Σ_k ‖M_k‖² times its
variance, and the tables M_k φ_k add as those of any learner do: spreads of each round by itself,
since records drawn anew are independent, biases all together, since they are the same every time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from agewise.arrays import Array, frozen
from agewise.calibration import SlotTable
from agewise.errors import InvalidInput
from agewise.learning import Logistic, Trained, moves_records
from agewise.learning.logistic import average_share
from agewise.problem import Client, Problem

SEEDS = 5
"""Rehearsals of which a table is the mean."""
MOST_ROUNDS = 100
"""Rounds that are rehearsed; of more of them, or of rounds for ever, so many."""
_NUDGE = 1e-5
"""By how much a coefficient is moved to see how gradients change."""


@dataclass(frozen=True)
class Rehearsal:
    """One rehearsal of a training: what errors of its gradients cost at its end.

    `power` is Σ_k ‖M_k‖², `gram` `[S, S]` is Σ_k (M_k φ_k)(M_k φ_k)ᵀ, one row per state, `bias`
    `[S, d]` is Σ_k M_k φ_k, and `first` `[d, d]` is M_1.
    """

    power: float
    gram: Array
    bias: Array
    first: Array


def rehearsals(problem: Problem) -> tuple[Rehearsal, ...]:
    """Return rehearsals with records drawn from the clients' own processes, without noise."""
    learner = problem.learner
    if not isinstance(learner, Logistic):
        raise InvalidInput("learner", learner.kind, "one that is trained over rounds")
    rounds = MOST_ROUNDS if problem.rounds is None else min(problem.rounds, MOST_ROUNDS)
    clients, weights = tuple(problem.clients), tuple(problem.weights.tolist())
    return _rehearsals(learner.untrained(), clients, weights, rounds, problem.aggregate_at)


@lru_cache(maxsize=16)
def _rehearsals(
    learner: Logistic,
    clients: tuple[Client, ...],
    weights: tuple[float, ...],
    rounds: int,
    aggregate_at: int,
) -> tuple[Rehearsal, ...]:
    laws = [client.law_at(aggregate_at) for client in clients]
    found = []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        shares = np.zeros((rounds, learner.known.rows.shape[0]))
        for client, weight, law in zip(clients, weights, laws, strict=True):
            counts = rng.multinomial(client.records, law / law.sum(), size=rounds)
            shares += weight * counts / client.records
        found.append(_rehearse(learner, shares))
    return tuple(found)


def _rehearse(learner: Logistic, shares: Array) -> Rehearsal:
    """Train on records whose share in each state in each round is `[rounds, S]`."""
    path, slopes, clipped = [], [], learner.clipped
    for share in shares:
        at = learner.current
        path.append(at)
        slopes.append(_slopes(clipped, share, at))
        learner = learner.step(share @ clipped(at))
    end, mean = np.asarray(learner.model.vector), shares.mean(axis=0)
    curved = _slopes(learner.gradients, mean, end)
    curved = (curved + curved.T) / 2 + learner.penalty * np.eye(end.size)
    sizes, axes = np.linalg.eigh(curved)
    root = np.sqrt(np.maximum(sizes, 0.0) / 2)[:, None] * axes.T
    eye = np.eye(end.size)
    power, gram, bias = 0.0, np.zeros((shares.shape[1],) * 2), np.zeros((shares.shape[1], end.size))
    moved, kept = np.zeros_like(eye), 1.0  # how the mean at the end follows an iterate, and a mean
    first = root
    for number in range(len(path), 0, -1):
        share, rate = average_share(number), learner.rate_in(number)
        moved = moved + kept * share * eye
        first = -rate * root @ moved
        told = learner.clipped(path[number - 1]) @ first.T
        power += float(np.square(first).sum())
        gram += told @ told.T
        bias += told
        moved = moved @ (eye - rate * (slopes[number - 1] + learner.penalty * eye))
        kept *= 1 - share
    return Rehearsal(power, frozen(gram), frozen(bias), frozen(first))


def _slopes(gradients: Callable[[Array], Array], share: Array, at: Array) -> Array:
    """How the mean of the states' gradients changes with the coefficients, `[d, d]`."""
    nudges = _NUDGE * np.maximum(1.0, np.abs(at))
    columns = [
        share @ (gradients(at + nudge) - gradients(at - nudge)) / (2 * step)
        for nudge, step in zip(np.diag(nudges), nudges, strict=True)
    ]
    return np.stack(columns, axis=1)


@dataclass(frozen=True)
class TrainingTables:
    """What clients' releases add in each slot: biases `[m, A, C]` and spreads `[m, A]`.

    `power` is what noise of variance 1 on every coordinate costs; `own` `[m, A]` the spread of the
    fresh mean itself, which is lost where nothing is collected.
    """

    bias: Array
    spread: Array
    own: Array
    power: float


def training_tables(
    problem: Problem, slots: Sequence[SlotTable], known: Sequence[Rehearsal] | None = None
) -> TrainingTables:
    """Return the tables of a training, averaged over rehearsals (default: all of them)."""
    several = rehearsals(problem) if known is None else known
    gram = np.mean([one.gram for one in several], axis=0)
    bias = np.concatenate([one.bias for one in several], axis=1) / math.sqrt(len(several))
    moved = moves_records(problem.estimator)
    rows: dict[int, tuple[Array, Array, Array]] = {}
    for table in slots:
        if id(table) not in rows:
            rows[id(table)] = _moments(table, gram, bias, moved)
    scale = problem.weights[:, None] ** 2 / np.array([c.records for c in problem.clients])[:, None]
    return TrainingTables(
        bias=np.stack([rows[id(t)][0][t.row] for t in slots]) * problem.weights[:, None, None],
        spread=np.stack([rows[id(t)][1][t.row] for t in slots]) * scale,
        own=np.stack([rows[id(t)][2][t.row] for t in slots]) * scale,
        power=float(np.mean([one.power for one in several])),
    )


def _moments(table: SlotTable, gram: Array, bias: Array, moved: bool) -> tuple[Array, Array, Array]:
    """Mean `[R, C]` and variance `[R]` of M(f(X) − φ(Y)) of a record, and that of M φ(Y)."""
    means, spreads, own = [], [], []
    for law, kernel in zip(table.law_rows, table.kernel_rows, strict=True):
        released = kernel if moved else np.eye(len(law))
        present = law @ kernel
        apart = law @ released - present
        length = np.einsum("xs,st,xt->x", released, gram, released)
        both = np.einsum("x,xy,xs,sy->", law, kernel, released, gram)
        total = law @ length + present @ np.diag(gram) - 2 * both
        means.append(apart @ bias)
        spreads.append(max(0.0, float(total - apart @ gram @ apart)))
        own.append(max(0.0, float(present @ np.diag(gram) - present @ gram @ present)))
    return np.stack(means), np.array(spreads), np.array(own)


def is_trained(problem: Problem) -> bool:
    """Whether the loss is that of a model trained over rounds."""
    return isinstance(problem.learner, Trained)
