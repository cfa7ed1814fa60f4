"""Rounds and promises in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agewise.calibration import adversary, terms
from agewise.privacy.continual import Promise, continual_epsilon
from agewise.problem import Problem, nameless
from agewise.report.tables import counted

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


def coverage_in_words(problem: Problem) -> list[tuple[str, str]]:
    """What every ε compares, two worlds that differ in one record, and what it says nothing of."""
    if problem.level is None:
        own = "one record: compared with the same day had its value been another"
        shared = "what all records share"
    else:
        own = (
            "a record's own part, the common level known: compared with the same day had that "
            "part been another"
        )
        shared = "the common level"
    told = f"what the release tells of the day, {shared}, and through it of every reading"
    return [("ε covers", own), ("ε does not cover", told)]


def epsilon_after(plan: Plan, rounds: int | None, promise: Promise) -> float:
    """The largest ε of any client after so many rounds as planned, about what is promised."""
    problem, worst = plan.problem, 0.0
    for client, one in zip(problem.clients, plan.assignments, strict=True):
        if one.classical_epsilon == 0:
            continue
        method, _ = adversary(client, problem.mixing)
        own, last = problem.target_of(client), problem.aggregate_at
        table = terms(
            nameless(client), own, problem.learner, problem.estimator, one.collect_at, last
        ).guard
        worst = max(
            worst,
            continual_epsilon(
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
