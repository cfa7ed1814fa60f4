"""Any schedule as a plan: the noise that each client's slot asks for, and what all that costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.checks import as_names, instance, positive, whole
from agewise.errors import InvalidInput, quoted
from agewise.knowledge import Levels
from agewise.loss.estimator import Estimator, estimator_of, searched_estimate
from agewise.loss.gap import classical_fresh, nothing_collected
from agewise.loss.kinds import kinds_of
from agewise.planning.given import problem_of
from agewise.planning.notes import search_notes, warnings
from agewise.planning.objectives import bound_of
from agewise.planning.plan import Assignment, Plan
from agewise.planning.proof import proof_of, stated_bound
from agewise.problem import Problem
from agewise.scheduling import Certificate, Schedule

SEARCHES = ("certified", "exhaustive")
"""Methods that prove something."""

MOST_NOISE = 1e300
"""The largest noise scale that is promised to a client whose gain is all but 0."""

OF_ONE_ROUND = ("in turn", "carried out")
"""Methods of plans whose loss is that of a round by itself, whoever rests in others."""


def evaluate(
    problem: Problem | str | Path,
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
    >>> fresh = evaluate(scenarios.london(), [10, 10, 10])
    >>> fresh.ages, round(fresh.gap, 3), fresh.lower_bound
    ([0, 0, 0], 216.0, None)
    """
    problem, unheard = problem_of(problem), as_names("unheard", unheard)
    checked = checked_slots(problem, slots, unheard)
    if not isinstance(method, str) or method in SEARCHES:
        raise InvalidInput("method", quoted(method), "a name that claims no search", "Use plan().")
    check_unheard(problem, unheard)
    schedule = Schedule(np.array(checked) - 1, np.nan, None, 0)
    if promised is not None and instance("promised", promised, Mapping, "noise scales by name"):
        _check_promised(problem, promised)
    return assemble(problem, schedule, method, unheard=unheard, promised=promised)


def _check_promised(problem: Problem, promised: Mapping[str, float]) -> None:
    """Refuse promises to clients that are not there, of no scale, or where nobody draws once."""
    if not problem.server_adds_noise:
        raise InvalidInput("promised", "given", "nothing, where each client adds its own noise")
    names = {client.name for client in problem.clients}
    for name, scale in promised.items():
        if name not in names:
            raise InvalidInput("promised", repr(name), "clients of the problem")
        if not positive(f"promised: {name}", scale, with_zero=True) <= MOST_NOISE:
            raise InvalidInput(f"promised: {name}", scale, f"0 to {MOST_NOISE:g}")


def check_unheard(problem: Problem, unheard: Sequence[str]) -> None:
    """Refuse clients that are not there, and a weighted mean without some of its clients."""
    names = [client.name for client in problem.clients]
    for name in unheard:
        if name not in names:
            raise InvalidInput("unheard", repr(name), "one of " + ", ".join(names))
    if set(unheard) == set(names):
        raise InvalidInput("unheard", "all clients", "clients of which some still send")
    if unheard and not problem.uses_knowledge:
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
    best = problem.uses_knowledge
    told = dict(promised or {})
    estimate = estimator_of(
        problem,
        (schedule.columns + 1).tolist(),
        unheard,
        told,
        alone=method in OF_ONE_ROUND,
    )
    gap, gains, offset = estimate.gap, estimate.gains, estimate.offset
    searched = gap
    if best and method in SEARCHES and isinstance(problem.known, Levels):
        found = searched_estimate(problem, schedule.columns, unheard, told).gap
        searched = gap if math.isclose(found, gap, rel_tol=1e-9) else found
    assignments = _assignments(problem, schedule.columns, estimate)
    if best:
        schedule = replace(schedule, objective=searched)
    objective = schedule.objective
    if np.isnan(objective):
        by_bound = problem.objective == "bound" and method != "certified"
        bound = bound_of(problem, [a.age for a in assignments]) if by_bound else None
        objective = gap if bound is None else float(bound)
    return Plan(
        problem=problem,
        method=method,
        assignments=assignments,
        objective=objective,
        lower_bound=None if certificate is None else stated_bound(schedule, certificate),
        gap=gap,
        notes=(
            *search_notes(problem, method, planned_from, schedule.complete),
            *warnings(problem, assignments),
        ),
        planned_from=planned_from,
        collected=tuple(collected),
        complete=schedule.complete,
        unheard=tuple(unheard),
        nothing_collected=nothing_collected(problem),
        classical_fresh=classical_fresh(problem),
        gains=gains[:, 0].tolist() if gains.shape[1] == 1 else gains.tolist(),
        offset=offset.tolist(),
        draw_scale=estimate.draw,
        promised=told,
        proof=None if certificate is None else proof_of(schedule),
        certificate=certificate,
    )


def _assignments(
    problem: Problem, columns: NDArray[np.intp], estimate: Estimator
) -> tuple[Assignment, ...]:
    """What each client does; with one draw by the server, its noise as the client's mean has it.

    Clients of a kind that share a column and a noise scale share what that achieves.
    """
    kinds = kinds_of(problem.untrained(), None)
    found, scale = kinds.calibration, kinds.calibration.scale[kinds.kind, columns]
    if estimate.draw is not None:
        gains = np.abs(estimate.gains[:, 0])
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            least = np.minimum(estimate.draw / gains, MOST_NOISE)
        scale = np.where(gains > 0, np.maximum(scale, least), scale)  # 0 hides it whatever the draw
    known: dict[tuple[int, int, float], int] = {}
    keys = zip(kinds.kind.tolist(), columns.tolist(), scale.tolist(), strict=True)
    numbers = [known.setdefault(key, len(known)) for key in keys]
    kind, column, scales = (np.array(one) for one in zip(*known, strict=True))
    spent = found.spent(kind, column, scales).tolist()
    achieved = found.aged_epsilon(kind, column, scales).tolist()
    delta, reach = found.delta[kind, column].tolist(), found.sensitivity[kind, column].tolist()
    last = problem.aggregate_at
    return tuple(
        Assignment(
            client=client.name,
            collect_at=column + 1,
            age=last - 1 - column,
            delta=delta[own],
            sensitivity=reach[own],
            classical_epsilon=spent[own],
            noise_scale=least,
            aged_epsilon=achieved[own],
            fingerprint=client.process.fingerprint,
        )
        for client, column, least, own in zip(
            problem.clients, columns.tolist(), scale.tolist(), numbers, strict=True
        )
    )
