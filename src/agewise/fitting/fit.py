"""From readings to a scenario: who is a client, which law its records follow, how sure that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from agewise.checks import as_names, fraction, instance, one_of, positive, truth, whole
from agewise.errors import InvalidInput
from agewise.fitting import defaults
from agewise.fitting.assumptions import check_assumptions
from agewise.fitting.defaults import (
    ADVERSARIES,
    DAY_KINDS,
    LIMITS,
    SAMPLED,
    Adversary,
    DayKind,
    Limits,
    Sampled,
)
from agewise.fitting.given import Classes, find_classes
from agewise.fitting.laws import FEWEST_DAYS, Codes, CountNoise, checked_ages, window_starts
from agewise.fitting.left_out import find_forgone, left_out, refuse_few
from agewise.fitting.measure import Measure, Part
from agewise.fitting.report import Fit, origin
from agewise.fitting.states import States, given_states, least_error_states
from agewise.problem import Client, Problem
from agewise.progress import Progress
from agewise.readings import Readings
from agewise.readings.plausibility import find_outliers

Kind = Literal["measured", "periodic", "chain"]
KINDS: tuple[str, ...] = get_args(Kind)

LARGEST_EPSILON = 700
"""Targets beyond which e^ε is no float; nothing is private there."""


def fit(
    readings: Readings,
    states: States | ArrayLike | None = None,
    *,
    epsilon: float = defaults.EPSILON,
    first_slot: int = 0,
    slots: int | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
    kind: Kind = "measured",
    adversary: Adversary = defaults.ADVERSARY,
    sampled: Sampled = defaults.DRAWN_BY,
    limits: Limits = defaults.LIMITS_ARE,
    ages: Sequence[int] | None = None,
    given: str | None = None,
    calendar: bool = False,
    confidence: float = defaults.CONFIDENCE,
    worst_limit: float = defaults.WORST_LIMIT,
    most_left_out: float = defaults.MOST_LEFT_OUT,
    count_epsilon: float | None = None,
    knowledge: bool = True,
    known_days: DayKind = "all",
    factors: int | None = None,
    name: str = "fitted",
    unit: str = "",
    progress: Progress | None = None,
) -> Fit:
    """Turn readings into a problem: slot 1 is `first_slot` of the day (from 0), `slots` in all.

    `states` are levels, or what `agewise.fitting.states` chose; without, the two with the least
    quantisation error. Without `slots`, those of one day and the aggregation. `groups` names the
    clients and their entities (None: all entities are one client). A record is one entity's
    reading. `kind` measured takes the joint law at each lag and time of day as the readings have
    it; chain and periodic assume what `assumptions` may speak against.

    For measured laws, `adversary` says what is granted to them: `household` knows the law of each
    entity by itself, so that Δ is the largest of their limits; `population` knows only the law
    of the whole group. `sampled` says what the readings are independent draws of: `pairs`
    (everything), `days` or `weeks` (entities may move together), or `entities`, for laws that
    will be used for entities that were not read (see `fit_lag_law`). With `household`, entities
    whose limit is above `worst_limit` in the slot where fewest are take no part. If more
    than `most_left_out` of the entities take no part, for whatever reason, the fit is refused.

    `limits` are proven, or asymptotic: over weeks that are taken to be independent, narrower, right
    as weeks grow many (`agewise.process.asymptotic`). They hold together for `ages` (in slots;
    None: at most twelve, evenly spaced), of which fewer are tighter; other ages get no credit.
    `given` is what an adversary also knows of the day of the aggregation: `weekend` or not (which
    `calendar` says too), `weekday`, `month`, the `level` of the other entities in thirds, or a
    column of the file (`read_readings(..., covariate=NAME)`). Δ is the largest over its classes.

    With `count_epsilon`, the counts that the laws are made of get noise of their own: the
    scenario is then that-much private about any 24 hours of each entity (classically), for measured
    laws, `population` and given states. The report about assumptions is not, and is for the
    fitter's eyes only. The limits are then wider, for all but `pairs` much wider: how days or
    entities differ would have to be looked up in the counts themselves.

    With `knowledge`, means and covariances of the clients' shares in each state are measured too
    (`agewise.fitting.knowledge`), with so many common `factors` (None: chosen by the readings), and
    the estimator is `best`. With `count_epsilon` that is left out: it has no noise. `known_days`
    measures them on `workdays` or `weekends` only, for a scenario of such days; an adversary then
    knows that too (`given` weekend).

    Guarantees
        Under the stated adversary, with proven limits, and if the readings are sampled as stated,
        then with probability `confidence` no client's Δ is below the truth in any slot.
    """
    _refuse_kinds(readings, given, calendar=calendar, knowledge=knowledge)
    _refuse_numbers(epsilon, worst_limit, most_left_out)
    if states is None:
        states = least_error_states(defaults.STATES, readings.values)
    elif not isinstance(states, States):
        states = given_states(states, readings.values)
    if slots is None:
        slots = defaults.whole_day(readings.day)
    _refuse_senseless(readings, first_slot, slots, kind, adversary, sampled)
    offered = defaults.offered_ages(slots) if ages is None else checked_ages(ages, slots)
    if calendar and given not in (None, "weekend"):
        raise InvalidInput("calendar", f"with given {given}", "one of them")
    given = "weekend" if calendar else given
    given = _known_given(known_days, given, knowledge=knowledge and count_epsilon is None)
    one_of("limits", limits, LIMITS)
    if limits == "asymptotic":
        sampled = _weekly(sampled, count_epsilon)
    if kind != "measured" and (limits, given, ages) != (defaults.LIMITS_ARE, None, None):
        raise InvalidInput(
            "limits, given, ages", f"given with kind {kind}", "kind measured, which has limits"
        )
    noise = None
    if count_epsilon is not None:
        if given is not None:
            name = "calendar" if calendar else "given"
            raise InvalidInput(name, "with count_epsilon", "one of them")
        noise = _count_noise(count_epsilon, kind, adversary, states, slots, readings.day)
    codes = states.index(readings.values)
    unusable = dict(readings.quality.left_out)
    members = {"all": (*readings.entities, *unusable)} if groups is None else _groups(groups)
    elsewhere = _in_no_group(members, readings.entities)
    listed = sum(e not in unusable for entities in members.values() for e in entities)
    measure = Measure(
        readings=readings,
        codes=codes,
        values=states.values,
        first_slot=first_slot,
        slots=slots,
        adversary=adversary,
        sampled=sampled,
        limits=limits,
        ages=offered,
        classes=_classes(given, readings, states, codes, first_slot, slots, limits),
        targets=tuple(sorted({*defaults.TARGETS, epsilon})),
        confidence=confidence,
        claims=listed if adversary == "household" else len(members),
        worst_limit=worst_limit,
        noise=noise,
        known_days=known_days,
        progress=progress,
    )
    parts = [measure.part(client, entities) for client, entities in members.items()]
    if kind == "measured":
        measure = measure.for_all(parts)
        parts = [measure.fit_for_a_limit(part) for part in parts]
    refuse_few(parts, worst_limit, most_left_out)
    clients, laws = [], []
    for part in parts:
        if not part.rows:
            continue  # all of its entities are left out, by name
        process, law = measure.process(part.client, part.rows, kind)
        clients.append(Client(part.client, process, samples=len(part.rows)))
        laws.append(law)
    problem = Problem(clients, slots, epsilon, name=name, unit=unit)
    problem = _with_knowledge(problem, measure, parts, knowledge=knowledge, factors=factors)
    fitted = Fit(
        problem=problem,
        kind=kind,
        adversary=adversary,
        sampled=sampled,
        limits=limits,
        ages=offered,
        given=given,
        confidence=confidence,
        quality=readings.quality,
        states=states,
        assumptions=check_assumptions(
            codes, states.values, readings.day, starts=readings.first_of_day
        ),
        clients=tuple(laws),
        left_out=tuple(elsewhere + left_out(parts, readings.entities, worst_limit)),
        noise=noise,
        outliers=find_outliers(readings.entities, readings.values, readings.day, readings.first),
        forgone=find_forgone(problem, parts, measure, factors),
    )
    return replace(fitted, problem=problem.replace(origin=origin(fitted)))


def _refuse_kinds(
    readings: Readings, given: str | None, *, calendar: bool, knowledge: bool
) -> None:
    instance("readings", readings, Readings, "Readings", "Read a file with aw.read_readings.")
    if given is not None:
        instance("given", given, str, "the name of a column or of kinds of days")
    truth("calendar", calendar)
    truth("knowledge", knowledge)


def _refuse_numbers(epsilon: float, worst_limit: float, most_left_out: float) -> None:
    if positive("epsilon", epsilon) > LARGEST_EPSILON:
        raise InvalidInput("epsilon", epsilon, f"up to {LARGEST_EPSILON}")
    fraction("worst_limit", worst_limit, with_one=True)
    fraction("most_left_out", most_left_out, with_zero=True, with_one=True)


def _refuse_senseless(
    readings: Readings, first_slot: int, slots: int, kind: str, adversary: str, sampled: str
) -> None:
    one_of("kind", kind, KINDS)
    one_of("adversary", adversary, ADVERSARIES)
    one_of("sampled", sampled, SAMPLED)
    if sampled == "entities" and adversary == "household":
        raise InvalidInput(
            "sampled",
            "entities, with adversary household",
            "adversary population",
            "Readings of some households say nothing about the habits of each other one.",
        )
    whole("first_slot", first_slot, 0, readings.day - 1)
    days = readings.values.shape[1] // readings.day
    if days <= FEWEST_DAYS:
        raise InvalidInput("readings", f"of {days} days", f"more than {FEWEST_DAYS} days")
    whole("slots", slots, 2, readings.values.shape[1] - FEWEST_DAYS * readings.day)


def _known_given(known_days: DayKind, given: str | None, *, knowledge: bool) -> str | None:
    """What the adversary knows of the day, if the scenario is for one kind of days only."""
    one_of("known_days", known_days, DAY_KINDS)
    if known_days == "all":
        return given
    if not knowledge:
        raise InvalidInput("known_days", known_days, "all, without knowledge or with count_epsilon")
    if given not in (None, "weekend", "weekday"):
        raise InvalidInput(
            "given",
            given,
            f"weekend or weekday, with known_days {known_days}",
            "Everybody knows then what sort of day it is.",
        )
    return given or "weekend"


def _with_knowledge(
    problem: Problem,
    measure: Measure,
    parts: list[Part],
    *,
    knowledge: bool,
    factors: int | None,
) -> Problem:
    """The problem with what the readings say of the clients together, if that may be told."""
    if not knowledge or measure.noise is not None:
        if factors is not None:
            raise InvalidInput("factors", factors, "none without knowledge, or with count_epsilon")
        return problem
    rows = [part.rows for part in parts if part.rows]
    measured = measure.knowledge(problem, rows, factors)
    return problem.replace(knowledge=measured, estimator="best")


def _weekly(sampled: Sampled, count_epsilon: float | None) -> Sampled:
    """Asymptotic limits take weeks for independent, and look at each."""
    if sampled in ("pairs", "entities"):
        raise InvalidInput(
            "sampled",
            f"{sampled}, with asymptotic limits",
            "days or weeks",
            "They are limits over weeks, which are then taken to be independent.",
        )
    if count_epsilon is not None:
        raise InvalidInput(
            "limits",
            "asymptotic, with count_epsilon",
            "proven",
            "Noisy counts do not show how weeks differ.",
        )
    return "weeks"


def _classes(
    given: str | None,
    readings: Readings,
    states: States,
    codes: Codes,
    first_slot: int,
    slots: int,
    limits: Limits,
) -> Classes | None:
    """What an adversary knows of each day."""
    if given is None:
        return None
    begin = window_starts(
        codes.shape[1],
        readings.day,
        first_slot=first_slot,
        slots=slots,
        starts=readings.first_of_day,
    )
    values = np.where(codes >= 0, states.values[codes], np.nan)
    at = begin + slots - 1
    return find_classes(given, readings, values, at, asymptotic=limits == "asymptotic")


def _groups(groups: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Entities by client, as they were given."""
    instance("groups", groups, Mapping, "lists of entities by name of client")
    return {name: as_names("groups", entities) for name, entities in groups.items()}


def _in_no_group(
    members: Mapping[str, Sequence[str]], entities: Sequence[str]
) -> list[tuple[str, str]]:
    listed = Counter(entity for group in members.values() for entity in group)
    for name, times in listed.items():
        if times > 1:
            raise InvalidInput(
                "groups", f"{name!r} more than once", "each entity in one client, once"
            )
    return [(name, "in none of the groups") for name in entities if name not in listed]


def _count_noise(
    epsilon: float, kind: str, adversary: str, states: States, slots: int, day: int
) -> CountNoise:
    """Noise for counts, where nothing else of the readings goes into the scenario."""
    positive("count_epsilon", epsilon)
    if kind != "measured" or adversary != "population":
        raise InvalidInput(
            "count_epsilon",
            f"given with {kind}, {adversary}",
            "measured and population",
            "Other fits look at the readings in ways that this noise does not cover.",
        )
    if states.how != "given":
        raise InvalidInput(
            "count_epsilon",
            f"with states by {states.how}",
            "states that are given",
            "States chosen from the readings tell about them, without noise.",
        )
    return CountNoise(epsilon, slots, -(-(slots - 1) // day) + 1)
