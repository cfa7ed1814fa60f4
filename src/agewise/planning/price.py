"""Any schedule as a plan: the noise that each client's slot asks for, and what all that costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from agewise.chain_terms import Cell, Wanted, aged_epsilons, size_and_target, tabulates
from agewise.checks import whole
from agewise.errors import InvalidInput
from agewise.loss.bound import has_bound, loss_bound
from agewise.loss.estimator import Estimator, estimator_of
from agewise.loss.gap import classical_fresh, nothing_collected
from agewise.loss.tables import cost_tables, known_tables
from agewise.mechanism import MECHANISMS
from agewise.planning.notes import search_notes, warnings
from agewise.planning.plan import Assignment, Plan
from agewise.planning.proof import proof_of, stated_bound
from agewise.problem import Client, Problem, nameless
from agewise.scheduling import Certificate, Schedule
from agewise.slot_tables import SlotTable
from agewise.target import Target
from agewise.terms import terms, terms_of

MOST_NOISE = 1e300
"""The largest noise scale that is promised to a client whose gain is all but 0."""

OF_ONE_ROUND = ("in turn", "carried out")
"""Methods of plans whose loss is that of a round by itself, whoever rests in others."""

DELICATE = 1e-4
"""Δ, and ranges of released values as a share of the records', below which rounding is seen."""

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
    own: dict[Any, _Own] = {}
    keys = []
    gains = np.abs(estimate.gains[:, 0]).tolist()
    for client, gain, table, column in zip(problem.clients, gains, slots, columns, strict=True):
        least = 0.0
        if estimate.draw is not None and gain > 0:  # a gain of 0 hides it whatever the draw
            least = min(estimate.draw / gain, MOST_NOISE)
        key = id(table), column, least
        if key not in own:
            own[key] = _Own.of(problem, client, table, column, least)
        keys.append(key)
    achieved = dict(zip(own, _achieved(problem, list(own.values())), strict=True))
    return tuple(
        Assignment(
            client=client.name,
            collect_at=column + 1,
            age=problem.aggregate_at - 1 - column,
            delta=one.delta,
            sensitivity=one.sensitivity,
            classical_epsilon=one.spent,
            noise_scale=one.scale,
            aged_epsilon=achieved[key],
            fingerprint=client.process.fingerprint,
        )
        for client, column, key in zip(problem.clients, columns, keys, strict=True)
        for one in (own[key],)
    )


@dataclass(frozen=True)
class _Own:
    """What a client has to do in its slot: the noise that it needs, or more."""

    client: Client
    target: Target
    table: SlotTable
    column: int
    delta: float
    sensitivity: float
    classical_epsilon: float
    scale: float
    spent: float

    @classmethod
    def of(
        cls, problem: Problem, client: Client, table: SlotTable, column: int, least: float
    ) -> _Own:
        target, last = problem.target_of(client), problem.aggregate_at
        names = ("delta", "sensitivity", "classical_epsilon", "classical_delta", "scale")
        numbers = {name: float(getattr(table, name)[column]) for name in names}
        if _is_delicate(numbers["delta"], table, column):
            learner = problem.untrained().learner
            alone = terms(nameless(client), target, learner, problem.estimator, column + 1, last)
            numbers = {name: getattr(alone, name) for name in names}
        failure, scale = numbers.pop("classical_delta"), numbers.pop("scale")
        spent = numbers["classical_epsilon"]
        if least > scale:
            reach = map(np.asarray, (numbers["sensitivity"], least, failure))
            spent = float(MECHANISMS[target.mechanism].spent(*reach))
        return cls(client, target, table, column, **numbers, scale=max(scale, least), spent=spent)


def _is_delicate(delta: float, table: SlotTable, column: int) -> bool:
    """Whether rounding may be seen in the noise, so that it must be the client's own arithmetic.

    Tables of many slots and many clients are worked out in another order than a client does.
    """
    rows = table.rows
    if 0 < delta < DELICATE:
        return True
    if rows.estimator != "propagated":
        return False
    fresh = rows.learner.table(rows.client.process.states)
    return bool(
        table.sensitivity[column] * rows.client.samples < DELICATE * np.ptp(fresh, axis=0).max()
    )


def _achieved(problem: Problem, cells: list[_Own]) -> list[float]:
    """The aged ε of each."""
    last = problem.aggregate_at
    wanted = Wanted(problem.learner, problem.estimator, np.zeros(1, dtype=np.int64), last)
    groups: dict[Any, list[int]] = {}
    for place, one in enumerate(cells):
        fits = tabulates(one.client, one.target, wanted)
        kind = size_and_target(one.client, one.target) if fits else None
        groups.setdefault(kind, []).append(place)
    aged = [0.0] * len(cells)
    for place in groups.pop(None, []):
        one = cells[place]
        alone = terms_of(one.client, one.target, one.table, one.column, last)
        aged[place] = alone.aged_epsilon(one.scale, one.spent)
    for places in groups.values():
        asked = [
            Cell(
                one.client,
                one.target,
                int(one.table.rows.young[one.column]),
                one.delta,
                one.classical_epsilon,
                one.spent,
            )
            for one in map(cells.__getitem__, places)
        ]
        for place, value in zip(places, aged_epsilons(asked), strict=True):
            aged[place] = value
    return aged
