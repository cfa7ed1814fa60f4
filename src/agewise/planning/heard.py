"""What a plan's estimates lose once many rounds have been heard."""

from __future__ import annotations

import numpy as np

from agewise.knowledge import Heard, Level, filter_heard
from agewise.learning import counts_together
from agewise.loss.tables import noise_power
from agewise.planning.plan import Plan
from agewise.problem import Problem

ROUNDS_HEARD = 30
"""Rounds that a plan's estimate is taken to have heard: what is older tells next to nothing."""

MOST_CLIENTS = 200
"""Clients up to which a plan says what all rounds heard are worth."""


def can_listen(problem: Problem) -> bool:
    """Whether earlier rounds are used: by the best estimate, of noised means, of Markov chains.

    Where the server adds the noise it must not use the means it was sent a second time. A learner
    whose coordinates count together has one gain per client, which a filter of each does not keep.
    """
    if counts_together(problem.learner):
        return False
    markov = all(client.process.homogeneous is not None for client in problem.clients)
    known = problem.known.drawable
    return problem.uses_knowledge and not problem.server_adds_noise and markov and known


def heard_gap(plan: Plan) -> float | None:
    """Return the loss of the best linear estimate from all rounds heard, when there were many.

    None for one round, where earlier rounds cannot be used, or for more than 200 clients.
    """
    problem = plan.problem
    if problem.rounds == 1 or not can_listen(problem) or len(problem.clients) > MOST_CLIENTS:
        return None
    count = ROUNDS_HEARD if problem.rounds is None else min(problem.rounds, ROUNDS_HEARD)
    if any(client.turn > 1 for client in problem.clients):
        return sum(_in_turn(plan, place, count) for place in range(len(problem.clients)))
    levels: tuple[Level, ...] = tuple(problem.level or ())  # type: ignore[arg-type]
    counts = problem.learner.weights(problem.clients[0].process.states)
    before = np.asarray((problem.every or 1) * np.arange(count), dtype=np.int64)
    total = 0.0
    for k in range(problem.width):
        members = [
            Heard(
                client.process.homogeneous,  # type: ignore[arg-type]
                client.records,
                float(weight),
                one.age + before,
                np.full(count, float(noise_power(problem, client, one.noise_scale))),
                problem.learner.table(client.process.states)[:, k],
                fresh=np.full(count, one.age == 0),
            )
            for client, weight, one in zip(
                problem.clients, problem.weights, plan.assignments, strict=True
            )
            if one.client not in plan.unheard
        ]
        total += float(counts[k]) * filter_heard(members, levels).loss
    return total


def _in_turn(plan: Plan, place: int, count: int) -> float:
    """What one client adds to the mean loss over its turn, when many rounds were heard."""
    problem, one = plan.problem, plan.assignments[place]
    client, weight = problem.clients[place], float(problem.weights[place])
    every, states = problem.every or 1, client.process.states
    counts, table = problem.learner.weights(states), problem.learner.table(states)
    loud = float(noise_power(problem, client, one.noise_scale))
    total = 0.0
    for since in range(client.turn):
        ages = one.age + every * np.arange(since, max(count, since + 1), client.turn)
        for k in range(problem.width):
            member = Heard(
                client.process.homogeneous,  # type: ignore[arg-type]
                client.records,
                weight,
                np.asarray(ages, dtype=np.int64),
                np.full(len(ages), loud),
                table[:, k],
            )
            total += float(counts[k]) * filter_heard([member], ()).loss
    return total / client.turn
