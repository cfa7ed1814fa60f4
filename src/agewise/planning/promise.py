"""Rounds and promises in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agewise.learning import guard_table
from agewise.mechanism import MECHANISMS
from agewise.privacy.steady import Promise, steady_epsilon
from agewise.problem import Problem
from agewise.report.tables import counted
from agewise.terms import adversary

if TYPE_CHECKING:
    from agewise.planning.plan import Plan


def rounds_in_words(problem: Problem) -> str:
    """How often, and for how long."""
    if problem.rounds == 1:
        return "once"
    often = f"every {counted(problem.every or 1, 'slot')}"
    return f"{often} for ever" if problem.rounds is None else f"{often}, {problem.rounds:,} rounds"


def promise_in_words(problem: Problem) -> str:
    """What the ε of a plan is about, and what it counts."""
    counts = "the release" if problem.rounds == 1 else "all releases"
    if problem.promise == "present":
        return f"each record's value at every publication, {counts} up to then counted"
    if problem.promise == "every_moment":
        return f"each record's value at any time, {counts} before and after it counted"
    last = counted(int(problem.promise), "slot")
    return (
        f"each record's values in the last {last} at every publication, {counts} up to then counted"
    )


def epsilon_after(plan: Plan, rounds: int | None, promise: Promise) -> float:
    """The largest ε of any client after so many rounds as planned, about what is promised."""
    problem, worst = plan.problem, 0.0
    for client, one in zip(problem.clients, plan.assignments, strict=True):
        if one.classical_epsilon == 0:
            continue
        table = guard_table(
            problem.learner,
            client.process,
            one.collect_at,
            problem.aggregate_at,
            problem.estimator,
            MECHANISMS[problem.mechanism].norm,
        )
        method, _ = adversary(client, problem.mixing)
        own = problem.target_of(client)
        worst = max(
            worst,
            steady_epsilon(
                client.process,
                own.every or 1,
                min(one.classical_epsilon, 1e6),
                one.age,
                promise,
                table,
                method,
                None if rounds is None else -(-rounds // client.turn),
            ),
        )
    return worst
