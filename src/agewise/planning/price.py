"""Any schedule as a plan: the noise that each client's slot asks for, and what all that costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from agewise.checks import whole
from agewise.errors import InvalidInput
from agewise.loss.bound import has_bound, loss_bound
from agewise.loss.estimator import estimator_of
from agewise.loss.gap import (
    classical_fresh,
    cost_tables,
    known_tables,
    loss_gap,
    nothing_collected,
)
from agewise.planning.notes import search_notes, warnings
from agewise.planning.plan import Assignment, Plan
from agewise.planning.proof import proof_of, stated_bound
from agewise.problem import Problem
from agewise.scheduling import Certificate, Schedule
from agewise.terms import SlotTable, achieved_epsilon

BOUND_CLIENTS = 64
"""Clients beyond which a plan does not evaluate Theorem 1 unless it is the objective."""


def price(
    problem: Problem, slots: ArrayLike, method: str = "given", unheard: Sequence[str] = ()
) -> Plan:
    """Return the plan in which each client collects in the slot given for it, one per client.

    `method` says in a word or two where the slots come from. Nothing is proven about them.
    Nothing is heard of the clients in `unheard` (estimator `best` only).

    Guarantees
        Every client's aged ε is at most the problem's, under the assumptions of its `mixing`.
        Slots outside 1 to `aggregate_at`, and more clients in a slot than the capacity, are
        refused.

    >>> from agewise import scenarios
    >>> fresh = price(scenarios.london(), [10, 10, 10])
    >>> fresh.ages, round(fresh.gap, 3), fresh.lower_bound
    ([0, 0, 0], 216.0, None)
    """
    checked = checked_slots(problem, slots, unheard)
    if method in ("certified", "exhaustive"):
        raise InvalidInput("method", repr(method), "a name that claims no search", "Use plan().")
    check_unheard(problem, unheard)
    schedule = Schedule(np.array(checked) - 1, np.nan, None, 0)
    return assemble(problem, schedule, method, unheard=unheard)


def check_unheard(problem: Problem, unheard: Sequence[str]) -> None:
    """Refuse clients that are not there, and a weighted mean without some of its clients."""
    names = [client.name for client in problem.clients]
    for name in unheard:
        if name not in names:
            raise InvalidInput("unheard", repr(name), "one of " + ", ".join(names))
    if unheard and problem.estimator != "best":
        raise InvalidInput(
            "unheard",
            repr(list(unheard)),
            f"nobody, with estimator {problem.estimator!r}",
            "Only the estimator best can do without a client.",
        )


def checked_slots(problem: Problem, slots: ArrayLike, unheard: Collection[str] = ()) -> list[int]:
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
    there = [t for c, t in zip(problem.clients, checked, strict=True) if c.name not in unheard]
    slot, crowd = Counter(there or [0]).most_common(1)[0]
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
    unheard: Sequence[str] = (),
) -> Plan:
    """Turn the columns that a search chose into a plan; `certificate` is the check of its proof.

    An objective that is NaN is computed: the bound where that was minimised, else the gap.
    """
    best = problem.estimator == "best"
    slots = known_tables(problem).slots if best else cost_tables(problem).slots
    assignments = _assignments(problem, slots, schedule.columns.tolist())
    ages = [a.age for a in assignments]
    bound = None
    few = len(assignments) <= BOUND_CLIENTS and has_bound(problem)
    if problem.objective == "bound" or few:
        bound = loss_bound(problem, ages)
    if best:
        estimate = estimator_of(problem, (schedule.columns + 1).tolist(), unheard)
        gap, gains, offset = estimate.gap, estimate.gains, estimate.offset
        schedule = replace(schedule, objective=gap)
    else:
        gap = loss_gap(problem, ages)
        gains = np.repeat(problem.weights[:, None], problem.width, axis=1)
        offset = np.zeros(problem.width)
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
        unheard=tuple(unheard),
        nothing_collected=nothing_collected(problem, ages),
        classical_fresh=classical_fresh(problem),
        gains=gains[:, 0].tolist() if gains.shape[1] == 1 else gains.tolist(),
        offset=offset.tolist(),
        proof=None if certificate is None else proof_of(schedule),
        certificate=certificate,
    )


def _assignments(
    problem: Problem, slots: tuple[SlotTable, ...], columns: list[int]
) -> tuple[Assignment, ...]:
    """What each client does; clients that share a table and a column share what that achieves."""
    achieved: dict[tuple[int, int], float] = {}
    found = []
    for client, table, column in zip(problem.clients, slots, columns, strict=True):
        key = id(table), column
        if key not in achieved:
            achieved[key] = achieved_epsilon(client, problem, table, column)
        found.append(
            Assignment(
                client=client.name,
                collect_at=column + 1,
                age=problem.aggregate_at - 1 - column,
                delta=float(table.delta[column]),
                sensitivity=float(table.sensitivity[column]),
                classical_epsilon=float(table.classical_epsilon[column]),
                noise_scale=float(table.scale[column]),
                aged_epsilon=achieved[key],
                fingerprint=client.process.fingerprint,
            )
        )
    return tuple(found)
