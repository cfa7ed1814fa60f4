"""Any schedule as a plan: the noise that each client's slot asks for, and what all that costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from agewise.checks import whole
from agewise.errors import InvalidInput
from agewise.loss.bound import has_bound, loss_bound
from agewise.loss.estimator import Estimator, estimator_of
from agewise.loss.gap import classical_fresh, nothing_collected
from agewise.loss.tables import cost_tables, known_tables
from agewise.planning.notes import search_notes, warnings
from agewise.planning.plan import Assignment, Plan
from agewise.planning.proof import proof_of, stated_bound
from agewise.problem import Problem
from agewise.scheduling import Certificate, Schedule
from agewise.terms import SlotTable, terms_of

MOST_NOISE = 1e300
"""The largest noise scale that is promised to a client whose gain is all but 0."""

OF_ONE_ROUND = ("in turn", "carried out")
"""Methods of plans whose loss is that of a round by itself, whoever rests in others."""

BOUND_CLIENTS = 64
"""Clients beyond which a plan does not evaluate Theorem 1 unless it is the objective."""


def price(
    problem: Problem,
    slots: ArrayLike,
    method: str = "given",
    unheard: Sequence[str] = (),
    promised: Mapping[str, float] | None = None,
) -> Plan:
    """Return the plan in which each client collects in the slot given for it, one per client.

    `method` says in a word or two where the slots come from. Nothing is proven about them.
    Nothing is heard of the clients in `unheard` (estimator `best` only). `promised` are noise
    scales, by name, that the server's one draw must not fall short of on these clients' means.

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
    if promised:
        _check_promised(problem, promised)
    return assemble(problem, schedule, method, unheard=unheard, promised=promised)


def _check_promised(problem: Problem, promised: Mapping[str, float]) -> None:
    """Refuse promises to clients that are not there, of no scale, or where nobody draws once."""
    if problem.noise != "server":
        raise InvalidInput("promised", "given", "nothing, where each client adds its own noise")
    names = {client.name for client in problem.clients}
    for name, scale in promised.items():
        if name not in names:
            raise InvalidInput("promised", repr(name), "clients of the problem")
        if not 0 <= scale <= MOST_NOISE:
            raise InvalidInput(f"promised: {name}", scale, f"0 to {MOST_NOISE:g}")


def check_unheard(problem: Problem, unheard: Sequence[str]) -> None:
    """Refuse clients that are not there, and a weighted mean without some of its clients."""
    names = [client.name for client in problem.clients]
    for name in unheard:
        if name not in names:
            raise InvalidInput("unheard", repr(name), "one of " + ", ".join(names))
    if set(unheard) == set(names):
        raise InvalidInput("unheard", "all clients", "some clients that can still be heard")
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
    promised: Mapping[str, float] | None = None,
) -> Plan:
    """Turn the columns that a search chose into a plan; `certificate` is the check of its proof.

    An objective that is NaN is computed: the bound where that was minimised, else the gap.
    """
    best = problem.estimator == "best"
    slots = known_tables(problem).slots if best else cost_tables(problem).slots
    told = dict(promised or {})
    estimate = estimator_of(
        problem,
        (schedule.columns + 1).tolist(),
        unheard,
        told,
        alone=method in OF_ONE_ROUND,
    )
    gap, gains, offset = estimate.gap, estimate.gains, estimate.offset
    assignments = _assignments(problem, slots, schedule.columns.tolist(), estimate)
    ages = [a.age for a in assignments]
    bound = None
    few = len(assignments) <= BOUND_CLIENTS and has_bound(problem)
    if problem.objective == "bound" or few:
        bound = loss_bound(problem, ages)
    if best:
        schedule = replace(schedule, objective=gap)
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
        draw_scale=estimate.draw,
        promised=told,
        proof=None if certificate is None else proof_of(schedule),
        certificate=certificate,
    )


def _assignments(
    problem: Problem, slots: tuple[SlotTable, ...], columns: list[int], estimate: Estimator
) -> tuple[Assignment, ...]:
    """What each client does; with one draw by the server, its noise as the client's mean has it.

    Clients that share a table, a column and a noise scale share what that achieves.
    """
    achieved: dict[tuple[int, int, float], tuple[float, float]] = {}
    found = []
    gains = np.abs(estimate.gains[:, 0]).tolist()
    for client, gain, table, column in zip(problem.clients, gains, slots, columns, strict=True):
        scale = float(table.scale[column])
        if estimate.draw is not None and gain > 0:  # a gain of 0 hides it whatever the draw
            scale = min(max(scale, estimate.draw / gain), MOST_NOISE)
        key = id(table), column, scale
        if key not in achieved:
            target = problem.target_of(client)
            own = terms_of(client, target, table, column, problem.aggregate_at)
            spent = own.spent(scale)
            achieved[key] = spent, own.aged_epsilon(scale, spent)
        spent, aged = achieved[key]
        found.append(
            Assignment(
                client=client.name,
                collect_at=column + 1,
                age=problem.aggregate_at - 1 - column,
                delta=float(table.delta[column]),
                sensitivity=float(table.sensitivity[column]),
                classical_epsilon=spent,
                noise_scale=scale,
                aged_epsilon=aged,
                fingerprint=client.process.fingerprint,
            )
        )
    return tuple(found)
