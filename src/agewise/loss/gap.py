"""The loss gap in closed form, and that of those who do without ageing."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from agewise.calibration import terms
from agewise.knowledge import Levels
from agewise.knowledge.estimate import nothing_heard
from agewise.loss.estimator import best_of, estimator_of
from agewise.loss.tables import (
    cost_tables,
    known_at,
    noise_counts,
    picked,
    schedule_cells,
    shared_tables,
)
from agewise.loss.training import is_trained, training_tables
from agewise.mechanism import MECHANISMS
from agewise.problem import Problem


class Estimate(float):
    """A mean over trials, with its standard error."""

    standard_error: float
    trials: int

    def __new__(cls, mean: float, standard_error: float, trials: int) -> Self:
        self = super().__new__(cls, mean)
        self.standard_error, self.trials = standard_error, trials
        return self

    def __getnewargs__(self) -> tuple[float, float, int]:  # type: ignore[override]
        return float(self), self.standard_error, self.trials


def loss_gap(problem: Problem, ages: ArrayLike) -> float:
    """Return the expected loss gap E[‖W̃ − W^A‖²] of a schedule, exactly.

    The paper's closed form for means (its Theorem 2), for either estimator and any learner:
    Σ p_i²(noise_i + Var[f(X) − φ(Y)]/n_i) + ‖Σ p_i E[f(X) − φ(Y)]‖². `ages` has one age per client.

    >>> from agewise import scenarios
    >>> round(loss_gap(scenarios.london(), ages=[0, 9, 9]), 2)
    127.07
    """
    _, columns = schedule_cells(problem, ages)
    return estimator_of(problem, (columns + 1).tolist()).gap


def nothing_collected(problem: Problem, ages: ArrayLike | None = None) -> float:
    """Return the loss of a server that collects nothing and publishes the mean that it knows.

    One value for one problem: that of laws which hold now (ages 0). A client's stated law holds at
    collection, so records of other ages have another law by now: `ages` asks for the value then.

    >>> from agewise import scenarios
    >>> round(nothing_collected(scenarios.london()), 4)
    4.7089
    >>> round(nothing_collected(scenarios.london(), ages=[9, 9, 9]), 4)
    9.6682
    """
    fresh = np.zeros(len(problem.clients), dtype=np.intp)
    _, columns = schedule_cells(problem, fresh if ages is None else ages)
    if is_trained(problem):
        own = training_tables(problem, cost_tables(problem).slots).own
        return float(own[np.arange(len(columns)), columns].sum())
    known = known_at(problem, columns)
    return nothing_heard(known.gains, known.places(columns))


def classical_fresh(problem: Problem) -> float:
    """Return the loss of fresh data with classical noise, the server's knowledge used.

    What anyone gets without ageing, with the same trust: every client (or once the server) adds
    noise for the target in the aggregation slot itself, and the server makes the best linear
    estimate of what it hears. Several rounds share the target; for ever, there is nothing to share.
    """
    if problem.rounds is None:  # no share of a budget is left for a release without end
        return nothing_collected(problem)
    if is_trained(problem):
        return _classical_training(problem)
    share, changed = float(problem.rounds), {}
    if share > 1:
        own = [
            one.epsilon if one.epsilon is None else one.epsilon / share for one in problem.clients
        ]
        pairs = zip(problem.clients, own, strict=True)
        changed["clients"] = [replace(one, turn=1, epsilon=epsilon) for one, epsilon in pairs]
    alone = problem.replace(
        **changed,
        epsilon=problem.epsilon / share,
        delta=None if problem.delta is None else problem.delta / share,
        estimator="best",
        capacity=None,
        objective="exact",
        rounds=1,
        every=None,
        promise="present",
    )
    if isinstance(alone.known, Levels):
        return loss_gap(alone, [0] * len(alone.clients))
    known, fresh = (
        shared_tables(alone, (problem.aggregate_at,)),
        np.zeros(len(problem.clients), np.intp),
    )
    known = known if known.rows.own else picked(known, fresh)
    return best_of(alone, known, fresh, (), {}).gap


def _classical_training(problem: Problem) -> float:
    """The loss of a training on fresh records whose rounds share the target: noise alone."""
    mechanism, last = MECHANISMS[problem.mechanism], problem.aggregate_at
    needs = []
    for client in problem.clients:
        target = problem.target_of(client)
        share = replace(
            target,
            epsilon=target.epsilon / (problem.rounds or 1),
            delta=target.delta / (problem.rounds or 1),
            rounds=1,
            every=None,
            promise="present",
        )
        needs.append(terms(client, share, problem.learner, "plain", last, last).scale)
    scales = problem.weights * np.array(needs)
    if problem.server_adds_noise:
        scales = scales.max(keepdims=True)
    return noise_counts(problem) * float(mechanism.variance(scales).sum())
