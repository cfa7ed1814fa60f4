"""From readings to a scenario: who is a client, which law its records follow, how sure that is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np

from agewise.arrays import Array
from agewise.checks import one_of, positive, whole
from agewise.errors import InvalidInput
from agewise.fitting import defaults
from agewise.fitting.assumptions import check_assumptions
from agewise.fitting.defaults import ADVERSARIES, SAMPLED, Adversary, Sampled
from agewise.fitting.laws import (
    FEWEST_DAYS,
    Codes,
    CountNoise,
    LagLaw,
    fit_chain,
    fit_lag_law,
    fit_periodic,
)
from agewise.fitting.report import ClientFit, Fit, Forgone, origin
from agewise.fitting.states import States
from agewise.planning import plan
from agewise.problem import Client, Problem
from agewise.process import MeasuredLaw, Process
from agewise.progress import Progress
from agewise.readings import Readings
from agewise.readings.plausibility import find_outliers

Kind = Literal["measured", "periodic", "chain"]
KINDS: tuple[str, ...] = get_args(Kind)
KNOWS = {
    "household": "an adversary who knows each entity's own law, but nothing of the others or of "
    "what sort of day it is",
    "population": "an adversary who knows the law of a client's entities together, but not which "
    "of them has which habits, nor what sort of day it is",
}
DRAWN = {
    "pairs": "every day of every entity is independent of every other",
    "days": "days are independent of each other but for readings that their windows share",
    "weeks": "weeks are independent of each other but for readings that their windows share",
    "entities": "entities are independent of each other, nothing moving them all together",
}
"""What limits rest on, in words: they go with the law into statements."""
STILL = "always in one state"
UNUSABLE = "readings that cannot be used"


def fit(
    readings: Readings,
    states: States,
    *,
    epsilon: float = defaults.EPSILON,
    first_slot: int = 0,
    slots: int | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
    kind: Kind = "measured",
    adversary: Adversary = defaults.ADVERSARY,
    sampled: Sampled = defaults.DRAWN_BY,
    calendar: bool = False,
    confidence: float = defaults.CONFIDENCE,
    worst_limit: float = defaults.WORST_LIMIT,
    most_left_out: float = defaults.MOST_LEFT_OUT,
    count_epsilon: float | None = None,
    name: str = "fitted",
    unit: str = "",
    progress: Progress | None = None,
) -> Fit:
    """Turn readings into a problem: slot 1 is `first_slot` of the day (from 0), `slots` in all.

    Without `slots`, those of one day and the aggregation. `groups` names the clients and their
    entities (None: all entities are one client). A record is one entity's reading. `kind` measured
    takes the joint law at each lag and time of day as the readings have it; chain and periodic
    assume what `assumptions` may speak against.

    For measured laws, `adversary` says what is granted to them: `household` knows the law of each
    entity by itself, so that Δ is the largest of their limits; `population` knows only the law
    of the whole group. `sampled` says what the readings are independent draws of: `pairs`
    (everything), `days` or `weeks` (entities may move together), or `entities`, for laws that
    will be used for entities that were not read (see `fit_lag_law`). With `household`, entities
    whose limit is above `worst_limit` in the slot where fewest are take no part. With
    `calendar`, they also know whether the aggregation is on a weekend. If more than
    `most_left_out` of the entities take no part, for whatever reason, the fit is refused.

    With `count_epsilon`, the counts that the laws are made of get noise of their own: the
    scenario is then that-much private about any 24 hours of each entity (classically), for measured
    laws, `population` and given states. The report about assumptions is not, and is for the
    fitter's eyes only. The limits are then wider, for all but `pairs` much wider: how days or
    entities differ would have to be looked up in the counts themselves.

    Guarantees
        Under the stated adversary, and if the readings are sampled as stated, then with
        probability `confidence` no client's Δ is below the truth in any slot.
    """
    if slots is None:
        slots = defaults.whole_day(readings.day)
    _refuse_senseless(readings, first_slot, slots, kind, adversary, sampled)
    if not 0 < worst_limit <= 1:
        raise InvalidInput("worst_limit", worst_limit, "above 0 and at most 1")
    if not 0 <= most_left_out <= 1:
        raise InvalidInput("most_left_out", most_left_out, "from 0 to 1")
    noise = None
    if count_epsilon is not None:
        if calendar:
            raise InvalidInput("calendar", "with count_epsilon", "one of them")
        noise = _count_noise(count_epsilon, kind, adversary, states, slots, readings.day)
    codes = states.index(readings.values)
    unusable = dict(readings.quality.left_out)
    members = {"all": [*readings.entities, *unusable]} if groups is None else dict(groups)
    elsewhere = _in_no_group(members, readings.entities)
    listed = sum(e not in unusable for entities in members.values() for e in entities)
    measure = _Measure(
        readings, codes, states.values, first_slot, slots, adversary, sampled, calendar,
        confidence, listed if adversary == "household" else len(members), worst_limit, noise,
        progress,
    )  # fmt: skip
    parts = [measure.part(client, entities, kind) for client, entities in members.items()]
    _refuse_few(parts, worst_limit, most_left_out)
    clients, found = [], []
    for part in parts:
        if not part.rows:
            continue  # all of its entities are left out, by name
        process, told = measure.process(part.client, part.rows, kind)
        clients.append(Client(part.client, process, samples=len(part.rows)))
        found.append(told)
    problem = Problem(clients, slots, epsilon, name=name, unit=unit)
    made = Fit(
        problem, kind, adversary, sampled, confidence, readings.quality, states,
        check_assumptions(codes, states.values, readings.day, starts=readings.first_of_day),
        tuple(found), tuple(elsewhere + _left_out(parts, readings.entities, worst_limit)), noise,
        find_outliers(readings.entities, readings.values, readings.day, readings.first),
        _forgone(problem, parts, measure),
    )  # fmt: skip
    return replace(made, problem=problem.replace(origin=origin(made)))


@dataclass(frozen=True)
class _Part:
    """A client's entities: rows that take part, those that do not, and how many cannot be used."""

    client: str
    rows: list[int]
    weak: list[int]
    """Their limit is too high."""
    still: list[int]
    """They are always in one state."""
    unusable: int


def _left_out(
    parts: list[_Part], entities: Sequence[str], worst_limit: float
) -> list[tuple[str, str]]:
    return [
        (entities[row], reason)
        for part in parts
        for rows, reason in ((part.still, STILL), (part.weak, f"limit above {worst_limit:g}"))
        for row in rows
    ]


def _refuse_few(parts: list[_Part], worst_limit: float, most_left_out: float) -> None:
    """Refuse if nobody takes part, or if more are left out than may be."""
    kept = sum(len(part.rows) for part in parts)
    reasons = {
        UNUSABLE: (sum(part.unusable for part in parts), "Complete the readings."),
        STILL: (sum(len(part.still) for part in parts), "Choose other states, or look for another "
                "unit among the readings."),
        f"limit above {worst_limit:g}": (
            sum(len(part.weak) for part in parts), "Fewer states, more days, adversary population "
            "or worst_limit (--worst-limit) 1 would keep them."),
    }  # fmt: skip
    gone = sum(count for count, _ in reasons.values())
    why = "; ".join(f"{reason}: {count}" for reason, (count, _) in reasons.items() if count)
    if not kept:
        raise InvalidInput(
            "readings", f"no entity that can take part ({why})", "one or more",
            "There is no credit for ageing to be had from them: more days, fewer or other states, "
            "or a lower confidence may help.",
        )  # fmt: skip
    if gone > most_left_out * (kept + gone):
        _, remedy = max(reasons.values())
        raise InvalidInput(
            "readings", f"{gone} of {kept + gone} entities left out ({why})",
            f"{most_left_out:.0%} left out at most",
            f"{remedy} Or, if the others will do, say most_left_out (--most-left-out) "
            f"{gone / (kept + gone) + 0.005:.2f}.",
        )  # fmt: skip


def _forgone(problem: Problem, parts: list[_Part], measure: _Measure) -> tuple[Forgone, ...]:
    """What those left out would be worth, where they would make the plan better."""
    mine = {client.name: client for client in problem.clients}
    weak = {part.client: part.rows + part.weak for part in parts if part.weak}
    with_weak = dict(mine)
    for name, rows in weak.items():
        with_weak[name] = Client(name, measure.law(name, rows)[0], samples=len(rows))
    more = {part.client: part.unusable + len(part.still) for part in parts}
    missing = [f"with {UNUSABLE}"] if any(part.unusable for part in parts) else []
    missing += [STILL] if any(part.still for part in parts) else []
    fuller = {
        name: replace(client, samples=client.samples + more[name]) for name, client in mine.items()
    }
    cases = (
        (sum(len(part.weak) for part in parts), f"whose limit is above {measure.worst_limit:g}",
         "worst_limit (--worst-limit) 1 keeps them", with_weak),
        (sum(more[name] for name in mine), " or ".join(missing),
         "if they could be used, and followed the same law", fuller),
    )  # fmt: skip
    found = []
    for entities, whose, how, clients in cases:
        if entities:
            now, then = _worth(problem), _worth(problem.replace(clients=tuple(clients.values())))
            if then[2] < now[2]:
                pairs = (now[0], then[0]), (now[1], then[1]), (now[2], then[2])
                found.append(Forgone(entities, whose, how, *pairs))
    return tuple(found)


def _worth(problem: Problem) -> tuple[int, float, float]:
    """Records, standard deviation of the noise in the aggregate, and loss of the best plan."""
    best = plan(problem)
    noise = math.sqrt(2) * np.linalg.norm(problem.weights * best.noise_scales)
    return sum(client.samples for client in problem.clients), float(noise), best.gap


def _refuse_senseless(
    readings: Readings, first_slot: int, slots: int, kind: str, adversary: str, sampled: str
) -> None:
    one_of("kind", kind, KINDS)
    one_of("adversary", adversary, ADVERSARIES)
    one_of("sampled", sampled, SAMPLED)
    if sampled == "entities" and adversary == "household":
        raise InvalidInput(
            "sampled", "entities, with adversary household", "adversary population",
            "Readings of some households say nothing about the habits of each other one.",
        )  # fmt: skip
    whole("first_slot", first_slot, 0, readings.day - 1)
    days = readings.values.shape[1] // readings.day
    if days <= FEWEST_DAYS:
        raise InvalidInput("readings", f"of {days} days", f"more than {FEWEST_DAYS} days")
    whole("slots", slots, 2, readings.values.shape[1] - FEWEST_DAYS * readings.day)


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
            "count_epsilon", f"given with {kind}, {adversary}", "measured and population",
            "Other fits look at the readings in ways that this noise does not cover.",
        )  # fmt: skip
    if states.how != "given":
        raise InvalidInput(
            "count_epsilon", f"with states by {states.how}", "states that are given",
            "States chosen from the readings tell about them, without noise.",
        )  # fmt: skip
    return CountNoise(epsilon, slots, -(-(slots - 1) // day) + 1)


@dataclass(frozen=True)
class _Measure:
    """How measured laws are found, the same for all clients."""

    readings: Readings
    codes: Codes
    values: Array
    first_slot: int
    slots: int
    adversary: str
    sampled: Sampled
    calendar: bool
    confidence: float
    claims: int
    worst_limit: float
    noise: CountNoise | None
    progress: Progress | None
    alone: dict[int, LagLaw] = field(default_factory=dict)
    """The laws of entities by themselves, as far as they were needed."""

    def _lag_law(self, rows: list[int]) -> LagLaw:
        return fit_lag_law(
            self.codes[rows], self.values, self.readings.day, first_slot=self.first_slot,
            slots=self.slots, starts=self.readings.first_of_day, confidence=self.confidence,
            claims=self.claims, sampled=self.sampled, noise=self.noise,
            first_weekday=self.readings.first.weekday() if self.calendar else None,
        )  # fmt: skip

    def part(self, client: str, entities: Sequence[str], kind: str) -> _Part:
        """Who of a client's entities takes part."""
        unusable = dict(self.readings.quality.left_out)
        usable = [entity for entity in entities if entity not in unusable]
        rows = self.readings.rows(client, usable) if usable or not entities else []
        still, weak = list[int](), list[int]()
        if self.noise is None:  # with noise, whom to leave out would be told without
            seen = {row: self.codes[row][self.codes[row] >= 0] for row in rows}
            still = [row for row in rows if np.unique(seen[row]).size < 2]
            rows = [row for row in rows if row not in still]
        if kind == "measured":
            rows, weak = self.fit_for_a_limit(rows)
        return _Part(client, rows, weak, still, len(entities) - len(usable))

    def fit_for_a_limit(self, rows: list[int]) -> tuple[list[int], list[int]]:
        """Part entities by whether their limit will do, in the slot where most do.

        All limits hold together, so that choosing among them costs no confidence.
        """
        if self.adversary != "household" or not rows:
            return rows, []
        for row in rows:
            self.alone[row] = self._lag_law([row])
            if self.progress is not None:
                self.progress(len(self.alone), self.claims)
        will_do = np.array([self.alone[r].law.limits[:-1] <= self.worst_limit for r in rows])
        best = int(will_do.sum(axis=0).argmax())
        kept = [row for row, good in zip(rows, will_do[:, best], strict=True) if good]
        return kept, [row for row in rows if row not in kept]

    def names(self, rows: list[int]) -> tuple[str, ...]:
        return tuple(self.readings.entities[row] for row in rows)

    def process(self, client: str, rows: list[int], kind: str) -> tuple[Process, ClientFit]:
        """A client's law or chain, and how it was found."""
        if kind == "measured":
            return self.law(client, rows)
        codes, day = self.codes[rows], self.readings.day
        shift = (self.readings.first_of_day - self.first_slot) % day
        chain = (
            fit_chain(codes, self.values)
            if kind == "chain"
            else fit_periodic(codes, self.values, day, shift)
        )
        return chain, ClientFit(client, self.names(rows), codes.size, 1.0, (), ())

    def law(self, client: str, rows: list[int]) -> tuple[MeasuredLaw, ClientFit]:
        """A client's law, and how it was found."""
        group = self._lag_law(rows)
        limits, inflation = group.law.limits, group.inflation
        if self.adversary == "household":
            each = [self.alone[row] for row in rows]
            limits = np.maximum(np.max([one.law.limits for one in each], axis=0), group.estimate)
            inflation = max(one.inflation for one in each)
        weekend = ", but for whether it is a weekend" if self.calendar else ""
        widened = ""
        if self.sampled == "days" and self.noise is None:
            widened = " (the limits were widened as far as weeks vary more than that)"
        law = MeasuredLaw(
            group.law.joints, limits, self.values, confidence=self.confidence,
            day=self.readings.day,
            assumes=f"{KNOWS[self.adversary]}{weekend}; that {DRAWN[self.sampled]}{widened}; that "
            "gaps do not depend on what would have been read; and that the days to come are like "
            "those measured",
        )  # fmt: skip
        told = ClientFit(
            client, self.names(rows), group.pairs, inflation, tuple(group.estimate.tolist()),
            tuple(limits.tolist()),
        )  # fmt: skip
        return law, told
