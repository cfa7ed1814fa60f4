"""From readings to a scenario: who is a client, which law its records follow, how sure that is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from agewise.errors import InvalidInput, one_of, positive
from agewise.federation.journal import ledger_file
from agewise.fitting.assumptions import Assumptions, check_assumptions
from agewise.fitting.laws import (
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
NO_CREDIT = 0.95
"""An entity without any limit up to this takes no part: ageing would be worth next to nothing."""
KNOWS = {
    "household": "an adversary who knows each entity's own law, not what sort of day it is",
    "population": "an adversary who knows the law of a client's entities together, not which "
    "of them has which habits, nor what sort of day it is",
}
DRAWN = {
    "pairs": "that every reading day of every entity is independent of every other",
    "days": "that days are independent of each other",
    "entities": "that entities are drawn independently of each other",
}
"""What limits rest on, in words: they go with the law into statements."""


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
    """The noise of the counts, private about one day of one entity; None: they have none."""

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
    confidence: float = 0.95,
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
    (everything), `days` (entities may move together), or `entities`, for laws that will be used
    for entities that were not read (see `fit_lag_law`).

    With `count_epsilon`, the counts that the laws are made of get noise of their own: the
    scenario is then that-much private about each day of each entity (classically), for measured
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
    noise = None
    if count_epsilon is not None:
        positive("count_epsilon", count_epsilon)
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
        inside = first_slot + slots <= readings.day
        windows = 1 if inside else -(-(slots - 1) // readings.day) + 1
        noise = CountNoise(count_epsilon, slots, windows)
    codes = states.index(readings.values)
    members = {"all": list(readings.entities)} if groups is None else dict(groups)
    clients, found = [], []
    listed = [entity for entities in members.values() for entity in entities]
    left_out = [(e, "in none of the groups") for e in readings.entities if e not in set(listed)]
    if len(listed) != len(set(listed)):
        twice = next(entity for entity in listed if listed.count(entity) > 1)
        raise InvalidInput("groups", f"{twice!r} more than once", "each entity in one client, once")
    claims = sum(len(m) if adversary == "household" else 1 for m in members.values())
    for client, entities in members.items():
        rows = readings.rows(client, entities)
        moving = [row for row in rows if np.unique(codes[row][codes[row] >= 0]).size > 1]
        if noise is not None:
            moving = rows  # whom to leave out would be told without noise
        left_out += [
            (readings.entities[row], "always in one state") for row in rows if row not in moving
        ]
        process, told, weak = _process(
            client, moving, codes, states.values, readings, first_slot, slots, kind, adversary,
            sampled, confidence, claims, noise,
        )  # fmt: skip
        left_out += [
            (readings.entities[row], f"too few days for a limit up to {NO_CREDIT:g}")
            for row in weak
        ]
        clients.append(Client(client, process, samples=told.entities))
        found.append(told)
    problem = Problem(clients, slots, epsilon, name=name, unit=unit)
    checked = check_assumptions(codes, states.values, readings.day, starts=readings.first_of_day)
    return Fit(
        problem, kind, adversary, sampled, confidence, readings.quality, states, checked,
        tuple(found), tuple(left_out), noise,
    )  # fmt: skip


def _process(
    client: str,
    rows: list[int],
    codes: Codes,
    values: Array,
    readings: Readings,
    first_slot: int,
    slots: int,
    kind: Kind,
    adversary: Adversary,
    sampled: Sampled,
    confidence: float,
    claims: int,
    noise: CountNoise | None,
) -> tuple[Process, ClientFit, list[int]]:
    """A client's process, how it was found, and the entities that no limit can be given for."""
    day, starts = readings.day, readings.first_of_day

    def lag_law(which: list[int]) -> LagLaw:
        return fit_lag_law(
            codes[which], values, day, first_slot=first_slot, slots=slots, starts=starts,
            confidence=confidence, claims=claims, sampled=sampled, noise=noise,
        )  # fmt: skip

    def names(which: list[int]) -> tuple[str, ...]:
        return tuple(readings.entities[row] for row in which)

    if not rows:
        raise InvalidInput(f"client {client!r}", "no entity that ever changes", "other states")
    if kind != "measured":
        process: Process = (
            fit_chain(codes[rows], values)
            if kind == "chain"
            else fit_periodic(codes[rows], values, day, (starts - first_slot) % day)
        )
        return process, ClientFit(client, names(rows), codes[rows].size, 1.0, (), ()), []
    weak: list[int] = []
    if adversary == "household":
        each = {row: lag_law([row]) for row in rows}
        weak = [
            row for row, one in each.items() if slots > 1 and one.law.limits[:-1].min() > NO_CREDIT
        ]
        rows = [row for row in rows if row not in weak]
        if not rows:
            raise InvalidInput(
                f"client {client!r}",
                f"{len(weak)} entities, none with a limit on Δ up to {NO_CREDIT:g}",
                "more days, fewer states or a lower confidence",
                "There is no credit for ageing to be had from these readings.",
            )  # fmt: skip
    group = lag_law(rows)
    limits, inflation = group.law.limits, group.inflation
    if adversary == "household":
        widest = np.max([each[row].law.limits for row in rows], axis=0)
        limits = np.maximum(widest, group.estimate)
        inflation = max(each[row].inflation for row in rows)
    widened = ""
    if sampled == "days" and noise is None:
        widened = " (where they are not, the limits were widened by an estimate)"
    law = MeasuredLaw(
        group.law.joints, limits, values, confidence=confidence, day=day,
        assumes=f"{KNOWS[adversary]}, {DRAWN[sampled]}{widened}, and that the days to come are "
        "like those measured",
    )  # fmt: skip
    told = ClientFit(
        client, names(rows), group.pairs, inflation, tuple(group.estimate.tolist()),
        tuple(limits.tolist()),
    )  # fmt: skip
    return law, told, weak


def record_fit(made: Fit, folder: Path) -> None:
    """Enter what noisy counts have spent into the clients' ledgers, before anything is written.

    It counts as collected in slot 0 of the clients' time: before every slot of a run.
    """
    if made.noise is None:
        raise InvalidInput("ledgers", str(folder), "with count_epsilon, which is what is recorded")
    folder.mkdir(parents=True, exist_ok=True)
    key = f"fit {made.problem.name}"
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
            if ledger.find(key) is not None:
                raise InvalidInput(
                    "name", repr(made.problem.name), "a name that was not fitted before",
                    "Its counts were released already; fitting again is another release.",
                )  # fmt: skip
            ledger.release(key, _always(event), Policy(), law)


def _always(event: Event) -> Callable[[list[Event]], Event]:
    return lambda _: event
