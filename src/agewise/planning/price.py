"""Any schedule as a plan: the noise that each client's slot asks for, and what all that costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from agewise.checks import whole
from agewise.errors import InvalidInput
from agewise.loss.bound import loss_bound
from agewise.loss.gap import CostTables, cost_tables
from agewise.planning.notes import search_notes, warnings
from agewise.planning.plan import Assignment, Plan
from agewise.planning.proof import proof_of, stated_bound
from agewise.problem import Problem
from agewise.scheduling import Certificate, Schedule, table_objective
from agewise.terms import achieved_epsilon

BOUND_CLIENTS = 64
"""Clients beyond which a plan does not evaluate Theorem 1 unless it is the objective."""


def price(problem: Problem, slots: ArrayLike, method: str = "given") -> Plan:
    """Return the plan in which each client collects in the slot given for it, one per client.

    `method` says in a word or two where the slots come from. Nothing is proven about them.

    Guarantees
        Every client's aged ε is at most the problem's, under the assumptions of its `mixing`.
        Slots outside 1 to `aggregate_at`, and more clients in a slot than the capacity, are
        refused.

    >>> from agewise import scenarios
    >>> fresh = price(scenarios.london(), [10, 10, 10])
    >>> fresh.ages, round(fresh.gap, 3), fresh.lower_bound
    ([0, 0, 0], 216.0, None)
    """
    checked = checked_slots(problem, slots)
    if method in ("certified", "exhaustive"):
        raise InvalidInput("method", repr(method), "a name that claims no search", "Use plan().")
    return assemble(problem, Schedule(np.array(checked) - 1, np.nan, None, 0), method)


def checked_slots(problem: Problem, slots: ArrayLike) -> list[int]:
    """One slot per client, from 1 to the aggregation slot, within the capacity; or a refusal."""
    given = np.asarray(slots, dtype=object).ravel().tolist()
    if len(given) != len(problem.clients):
        raise InvalidInput(
            "slots", f"{len(given)} slots", f"{len(problem.clients)} slots, one per client"
        )
    checked = [
        whole(f"collect_at of client {client.name!r}", slot, 1, problem.aggregate_at)
        for client, slot in zip(problem.clients, given, strict=True)
    ]
    slot, crowd = Counter(checked).most_common(1)[0]
    if problem.capacity is not None and crowd > problem.capacity:
        raise InvalidInput(
            "collect_at",
            f"{slot} for {crowd} clients",
            f"at most {problem.capacity} in one slot, the capacity",
            "Spread them over more slots, or raise the capacity.",
        )
    return checked


def assemble(
    problem: Problem,
    schedule: Schedule,
    method: str,
    certificate: Certificate | None = None,
    planned_from: int | None = None,
    collected: Sequence[str] = (),
) -> Plan:
    """Turn the columns that a search chose into a plan; `certificate` is the check of its proof.

    An objective that is NaN is computed: the bound where that was minimised, else the gap.
    """
    tables = cost_tables(problem)
    assignments = _assignments(problem, tables, schedule.columns.tolist())
    bound = None
    few = len(assignments) <= BOUND_CLIENTS and problem.learner.kind == "mean"
    if problem.objective == "bound" or few:
        bound = loss_bound(problem, [a.age for a in assignments])
    gap = float(table_objective(tables.u, tables.b)(schedule.columns[None])[0])
    objective = schedule.objective
    if np.isnan(objective):
        by_bound = problem.objective == "bound" and method != "certified"
        objective = float(bound) if by_bound and bound is not None else gap
    return Plan(
        problem=problem,
        method=method,
        assignments=assignments,
        objective=objective,
        lower_bound=None if certificate is None else stated_bound(schedule, certificate),
        gap=gap,
        bound=None if bound is None else float(bound),
        bound_evaluation=None if bound is None else bound.evaluation,
        notes=(
            *search_notes(problem, method, planned_from, schedule.complete),
            *warnings(problem, assignments),
        ),
        planned_from=planned_from,
        collected=tuple(collected),
        complete=schedule.complete,
        proof=None if certificate is None else proof_of(schedule),
        certificate=certificate,
    )


def _assignments(
    problem: Problem, tables: CostTables, columns: list[int]
) -> tuple[Assignment, ...]:
    return tuple(
        Assignment(
            client=client.name,
            collect_at=column + 1,
            age=problem.aggregate_at - 1 - column,
            delta=float(table.delta[column]),
            sensitivity=float(table.sensitivity[column]),
            classical_epsilon=float(table.classical_epsilon[column]),
            noise_scale=float(table.scale[column]),
            aged_epsilon=achieved_epsilon(client, problem, table, column),
            fingerprint=client.process.fingerprint,
        )
        for client, table, column in zip(problem.clients, tables.slots, columns, strict=True)
    )
