"""From readings to a scenario: who is a client, which law its records follow, how sure that is."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from agewise.errors import InvalidInput, one_of, positive, whole
from agewise.federation.journal import ledger_file, probe_folder
from agewise.fitting.assumptions import TOGETHER, Assumptions, check_assumptions
from agewise.fitting.laws import (
    FEWEST_DAYS,
    SAMPLED,
    Codes,
    CountNoise,
    LagLaw,
    Sampled,
    fit_chain,
    fit_lag_law,
    fit_periodic,
)
from agewise.fitting.readings import Quality, Readings
from agewise.fitting.states import States
from agewise.privacy.account import Event, Policy, now
from agewise.privacy.ledger import Ledger
from agewise.problem import Client, Problem
from agewise.process import MeasuredLaw, Process
from agewise.process.joint import Array

Kind = Literal["measured", "periodic", "chain"]
KINDS: tuple[str, ...] = get_args(Kind)
Adversary = Literal["household", "population"]
ADVERSARIES: tuple[str, ...] = get_args(Adversary)
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
SHOWN = 100
"""Names of entities that are spelt out in statements."""
NO_LIMIT = (
    "Δ is that of the fitted matrices, with no allowance for their error, and is true only as far "
    "as the readings are such a chain: for comparison, not for a privacy claim."
)


@dataclass(frozen=True)
class ClientFit:
    """How one client's law was found. `limits` and `estimates` are Δ by slot, where measured."""

    name: str
    members: tuple[str, ...]
    pairs: int
    inflation: float
    estimates: tuple[float, ...]
    limits: tuple[float, ...]

    @property
    def entities(self) -> int:
        """How many entities take part."""
        return len(self.members)


@dataclass(frozen=True)
class Fit:
    """A scenario from readings, and everything that someone who defends it should know."""

    problem: Problem
    kind: str
    adversary: str
    sampled: str
    confidence: float
    quality: Quality
    states: States
    assumptions: Assumptions
    clients: tuple[ClientFit, ...]
    left_out: tuple[tuple[str, str], ...]
    """Entities that take no part, each with the reason."""
    noise: CountNoise | None = None
    """The noise of the counts, private about 24 hours of one entity; None: they have none."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What whoever uses the scenario must know, beside the verdict on its assumptions."""
        if self.kind != "measured":
            return (NO_LIMIT,)
        said = []
        for one in self.clients:
            least = min(one.limits)
            if least > 0.95:
                worse = ", a lower worst_limit" if self.adversary == "household" else ""
                said.append(
                    f"The least limit of client {one.name!r} is {least:.3g}: there is next to no "
                    f"credit for ageing at this confidence. Fewer states, more days{worse} or "
                    "sampling that assumes more would help."
                )
        if self.sampled in ("pairs", "entities") and self.assumptions.together > TOGETHER:
            said.append(
                f"Entities move together ({self.assumptions.together:.1f} times the variance of "
                f"independent ones), which sampled {self.sampled} takes them not to."
            )
        return tuple(said)

    @property
    def count_epsilon(self) -> float | None:
        """The classical ε of the counts; None: they have no noise."""
        return None if self.noise is None else self.noise.epsilon

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, without the scenario."""
        return {
            "kind": self.kind,
            "adversary": self.adversary,
            "sampled": self.sampled,
            "confidence": self.confidence,
            "quality": self.quality.to_dict(),
            "states": self.states.values.tolist(),
            "quantisation_error": self.states.error,
            "states_by": self.states.how,
            "assumptions": self.assumptions.to_dict(),
            "clients": [{"entities": one.entities, **asdict(one)} for one in self.clients],
            "left_out": [list(one) for one in self.left_out],
            "count_epsilon": self.count_epsilon,
            "warnings": list(self.warnings),
        }


def fit(
    readings: Readings,
    states: States,
    *,
    epsilon: float,
    first_slot: int = 0,
    slots: int = 48,
    groups: Mapping[str, Sequence[str]] | None = None,
    kind: Kind = "measured",
    adversary: Adversary = "household",
    sampled: Sampled = "days",
    calendar: bool = False,
    confidence: float = 0.95,
    worst_limit: float = 0.9,
    count_epsilon: float | None = None,
    name: str = "fitted",
    unit: str = "",
) -> Fit:
    """Turn readings into a problem: slot 1 is `first_slot` of the day (from 0), `slots` in all.

    `groups` names the clients and their entities (None: all entities are one client). A record
    is one entity's reading. `kind` measured takes the joint law at each lag and time of day as
    the readings have it; chain and periodic assume what `assumptions` may speak against.

    For measured laws, `adversary` says what is granted to him: `household` knows the law of each
    entity by itself, so that Δ is the largest of their limits; `population` knows only the law
    of the whole group. `sampled` says what the readings are independent draws of: `pairs`
    (everything), `days` or `weeks` (entities may move together), or `entities`, for laws that
    will be used for entities that were not read (see `fit_lag_law`). With `household`, entities
    whose limit is above `worst_limit` in the slot where fewest are take no part. With
    `calendar`, he also knows whether the aggregation is on a weekend.

    With `count_epsilon`, the counts that the laws are made of get noise of their own: the
    scenario is then that-much private about any 24 hours of each entity (classically), for measured
    laws, `population` and given states. The report about assumptions is not, and is for the
    fitter's eyes only. The limits are then wider, for all but `pairs` much wider: how days or
    entities differ would have to be looked up in the counts themselves.

    Guarantees
        Under the stated adversary, and if the readings are sampled as stated, then with
        probability `confidence` no client's Δ is below the truth in any slot.
    """
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
    if not 0 < worst_limit <= 1:
        raise InvalidInput("worst_limit", worst_limit, "above 0 and at most 1")
    noise = None
    if count_epsilon is not None:
        noise = _count_noise(count_epsilon, kind, adversary, states, slots, readings.day)
        if calendar:
            raise InvalidInput("calendar", "with count_epsilon", "one of them")
    codes = states.index(readings.values)
    members = {"all": list(readings.entities)} if groups is None else dict(groups)
    left_out = _in_no_group(members, readings.entities)
    claims = sum(len(m) if adversary == "household" else 1 for m in members.values())
    measure = _Measure(
        readings, codes, states.values, first_slot, slots, adversary, sampled, calendar,
        confidence, claims, worst_limit, noise,
    )  # fmt: skip
    clients, found = [], []
    for client, entities in members.items():
        rows = readings.rows(client, entities)
        if noise is None:  # with noise, whom to leave out would be told without
            still = [row for row in rows if np.unique(codes[row][codes[row] >= 0]).size < 2]
            left_out += [(readings.entities[row], "always in one state") for row in still]
            rows = [row for row in rows if row not in still]
        if kind == "measured":
            rows, weak = measure.fit_for_a_limit(rows)
            left_out += [(readings.entities[row], f"limit above {worst_limit:g}") for row in weak]
        if not rows:
            continue  # all of its entities are left out, by name
        names = tuple(readings.entities[row] for row in rows)
        if kind == "measured":
            law, told = measure.law(client, names, rows)
            process: Process = law
        else:
            shift = (readings.first_of_day - first_slot) % readings.day
            process = (
                fit_chain(codes[rows], states.values)
                if kind == "chain"
                else fit_periodic(codes[rows], states.values, readings.day, shift)
            )
            told = ClientFit(client, names, codes[rows].size, 1.0, (), ())
        clients.append(Client(client, process, samples=len(names)))
        found.append(told)
    if not clients:
        why = "; ".join(sorted({reason for _, reason in left_out}))
        raise InvalidInput(
            "readings", f"no entity that can take part ({why})", "one or more",
            "There is no credit for ageing to be had from them: more days, fewer or other states, "
            "or a lower confidence may help.",
        )  # fmt: skip
    checked = check_assumptions(codes, states.values, readings.day, starts=readings.first_of_day)
    made = Fit(
        Problem(clients, slots, epsilon, name=name, unit=unit), kind, adversary, sampled,
        confidence, readings.quality, states, checked, tuple(found), tuple(left_out), noise,
    )  # fmt: skip
    return replace(made, problem=made.problem.replace(origin=_origin(made)))


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
    alone: dict[int, LagLaw] = field(default_factory=dict)
    """The laws of entities by themselves, as far as they were needed."""

    def _lag_law(self, rows: list[int]) -> LagLaw:
        return fit_lag_law(
            self.codes[rows], self.values, self.readings.day, first_slot=self.first_slot,
            slots=self.slots, starts=self.readings.first_of_day, confidence=self.confidence,
            claims=self.claims, sampled=self.sampled, noise=self.noise,
            first_weekday=self.readings.first.weekday() if self.calendar else None,
        )  # fmt: skip

    def fit_for_a_limit(self, rows: list[int]) -> tuple[list[int], list[int]]:
        """Part entities by whether their limit will do, in the slot where most do.

        All limits hold together, so that choosing among them costs no confidence.
        """
        if self.adversary != "household" or not rows:
            return rows, []
        self.alone.update((row, self._lag_law([row])) for row in rows)
        will_do = np.array([self.alone[r].law.limits[:-1] <= self.worst_limit for r in rows])
        best = int(will_do.sum(axis=0).argmax())
        kept = [row for row, good in zip(rows, will_do[:, best], strict=True) if good]
        return kept, [row for row in rows if row not in kept]

    def law(
        self, client: str, names: tuple[str, ...], rows: list[int]
    ) -> tuple[MeasuredLaw, ClientFit]:
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
            client, names, group.pairs, inflation, tuple(group.estimate.tolist()),
            tuple(limits.tolist()),
        )  # fmt: skip
        return law, told


def _origin(made: Fit) -> str:
    """Where the laws come from, for statements."""
    quality, states = made.quality, made.states
    entities = sum(one.entities for one in made.clients)
    levels = ", ".join(f"{value:.6g}" for value in states.values)
    said = [
        f"Laws ({made.kind}) from readings of {entities} entities, {quality.first[:10]} to "
        f"{quality.last[:10]}, states {levels} ({states.how})."
    ]
    if states.how != "given" and made.kind == "measured":
        said.append("The states were chosen from the same readings, not allowed for in limits.")
    by_reason: dict[str, list[str]] = {}
    for name, reason in (*quality.left_out, *made.left_out):
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        said.append(
            f"Not covered, and not to be among the records: {', '.join(names[:SHOWN])}{more} "
            f"({reason})."
        )
    if made.kind != "measured":
        said += [NO_LIMIT, *made.assumptions.verdict]
    elif made.noise is not None:
        said.append(
            f"The counts have noise, classical ε {made.noise.epsilon:g} about any 24 hours of an "
            "entity; how far entities move together is therefore not told."
        )
    elif made.assumptions.together > TOGETHER:
        against = made.sampled in ("pairs", "entities")
        said.append(
            f"The entities' mean varies {made.assumptions.together:.1f} times as much from day to "
            "day as that of independent ones: who knows the others learns what sort of day it is"
            + (f", and the limits, sampled by {made.sampled}, take it not to." if against else ".")
        )
    return printable(" ".join(said))


def printable(text: str) -> str:
    """The text in one line, with what cannot be printed spelt out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def record_fit(made: Fit, folder: Path) -> None:
    """Enter what noisy counts have spent into the clients' ledgers, before anything is written.

    It counts as collected in slot 0 of the clients' time: before every slot of a run.
    """
    if made.noise is None:
        raise InvalidInput("ledgers", str(folder), "with count_epsilon, which is what is recorded")
    probe_folder("ledgers", folder)
    folder.mkdir(parents=True, exist_ok=True)
    key = f"fit {made.problem.name}"
    for path in sorted(folder.glob("*.ledger")):  # all or none, whatever the clients are called
        with Ledger.read(path) as ledger:
            _refuse_again(made, ledger, key)
    for client in made.problem.clients:
        law = client.process
        payload = json.dumps(law.joints.tolist() if isinstance(law, MeasuredLaw) else []).encode()
        event = Event(
            key=key, client=client.name, collect_at=0, aggregate_at=0, epsilon=made.noise.epsilon,
            aged_epsilon=made.noise.epsilon, sensitivity=float(made.noise.sensitivity),
            scale=made.noise.scale, private=True,
            mixing="exact", fingerprint=law.fingerprint, made_at=now(), payload=payload,
        )  # fmt: skip
        with Ledger(ledger_file(folder, client.name)) as ledger:
            _refuse_again(made, ledger, key)
            ledger.release(key, _always(event), Policy(), law)


def _refuse_again(made: Fit, ledger: Ledger, key: str) -> None:
    if ledger.find(key) is not None:
        raise InvalidInput(
            "name", repr(made.problem.name), "a name that was not fitted before",
            "Its counts were released already; fitting again is another release, by another name "
            "(--out).",
        )  # fmt: skip


def _always(event: Event) -> Callable[[list[Event]], Event]:
    return lambda _: event
