"""From readings to a scenario: who is a client, which law its records follow, how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from agewise.errors import InvalidInput, one_of
from agewise.fitting.assumptions import Assumptions, check_assumptions
from agewise.fitting.laws import Codes, fit_chain, fit_lag_law, fit_periodic
from agewise.fitting.readings import Quality, Readings
from agewise.fitting.states import States
from agewise.problem import Client, Problem
from agewise.process import MeasuredLaw, Process
from agewise.process.joint import Array

Kind = Literal["measured", "periodic", "chain"]
KINDS: tuple[str, ...] = get_args(Kind)
Adversary = Literal["household", "population"]
ADVERSARIES: tuple[str, ...] = get_args(Adversary)


@dataclass(frozen=True)
class ClientFit:
    """How one client's law was found. `limits` and `estimates` are Δ by slot, where measured."""

    name: str
    entities: int
    pairs: int
    inflation: float
    estimates: tuple[float, ...]
    limits: tuple[float, ...]


@dataclass(frozen=True)
class Fit:
    """A scenario from readings, and everything that someone who defends it should know."""

    problem: Problem
    kind: str
    adversary: str
    confidence: float
    quality: Quality
    states: States
    assumptions: Assumptions
    clients: tuple[ClientFit, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, without the scenario."""
        return {
            "kind": self.kind,
            "adversary": self.adversary,
            "confidence": self.confidence,
            "quality": self.quality.to_dict(),
            "states": self.states.values.tolist(),
            "quantisation_error": self.states.error,
            "states_by": self.states.how,
            "assumptions": self.assumptions.to_dict(),
            "clients": [asdict(one) for one in self.clients],
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
    confidence: float = 0.95,
    name: str = "fitted",
    unit: str = "",
) -> Fit:
    """Turn readings into a problem: slot 1 is `first_slot` of the day (from 0), `slots` in all.

    `groups` names the clients and their entities (None: all entities are one client). A record
    is one entity's reading. `kind` measured takes the joint law at each lag and time of day as
    the readings have it; chain and periodic assume what `assumptions` may speak against.

    For measured laws, `adversary` says what is granted to him: `household` knows the law of each
    entity by itself, so that Δ is the largest of their limits; `population` knows only the law
    of the whole group.

    Guarantees
        With probability `confidence`, under the stated adversary and for days (household) or
        entities (population) that are alike and independent, no client's Δ is below the truth
        in any slot.
    """
    one_of("kind", kind, KINDS)
    one_of("adversary", adversary, ADVERSARIES)
    codes = states.index(readings.values)
    members = {"all": list(readings.entities)} if groups is None else dict(groups)
    place = {entity: row for row, entity in enumerate(readings.entities)}
    clients, found = [], []
    claims = sum(len(m) if adversary == "household" else 1 for m in members.values())
    for client, entities in members.items():
        rows = _rows(client, entities, place)
        one = codes[rows]
        _refuse_constant(client, entities, one)
        process, told = _process(
            client, one, states.values, readings, first_slot, slots, kind, adversary, confidence,
            claims,
        )  # fmt: skip
        clients.append(Client(client, process, samples=len(rows)))
        found.append(told)
    problem = Problem(clients, slots, epsilon, name=name, unit=unit)
    checked = check_assumptions(codes, states.values, readings.day, starts=readings.first_of_day)
    return Fit(
        problem, kind, adversary, confidence, readings.quality, states, checked, tuple(found)
    )


def _rows(client: str, entities: Sequence[str], place: Mapping[str, int]) -> list[int]:
    if not entities:
        raise InvalidInput(f"group {client!r}", "empty", "one entity or more")
    for entity in entities:
        if entity not in place:
            raise InvalidInput(f"group {client!r}", repr(entity), "entities that were read")
    return [place[entity] for entity in entities]


def _refuse_constant(client: str, entities: Sequence[str], codes: Codes) -> None:
    """An entity that is always in one state tells nothing about how it moves."""
    for entity, row in zip(entities, codes, strict=True):
        if np.unique(row[row >= 0]).size < 2:
            raise InvalidInput(
                f"entity {entity!r} of client {client!r}", "always in one state",
                "readings in two states or more", "Choose other states, or leave it out.",
            )  # fmt: skip


def _process(
    client: str,
    codes: Codes,
    values: Array,
    readings: Readings,
    first_slot: int,
    slots: int,
    kind: Kind,
    adversary: Adversary,
    confidence: float,
    claims: int,
) -> tuple[Process, ClientFit]:
    count, day, starts = len(codes), readings.day, readings.first_of_day
    if kind == "chain":
        return fit_chain(codes, values), ClientFit(client, count, codes.size, 1.0, (), ())
    if kind == "periodic":
        periodic = fit_periodic(codes, values, day, (starts - first_slot) % day)
        return periodic, ClientFit(client, count, codes.size, 1.0, (), ())
    choices = {
        "first_slot": first_slot, "slots": slots, "starts": starts, "confidence": confidence,
        "claims": claims,
    }  # fmt: skip
    group = fit_lag_law(codes, values, day, **choices)  # type: ignore[arg-type]
    limits, inflation = group.law.limits, group.inflation
    if adversary == "household":
        each = [fit_lag_law(one[None], values, day, **choices) for one in codes]  # type: ignore[arg-type]
        widest = np.max([one.law.limits for one in each], axis=0)
        limits = np.maximum(widest, group.estimate)
        inflation = max(one.inflation for one in each)
    law = MeasuredLaw(group.law.joints, limits, values, confidence=confidence, day=day)
    told = ClientFit(
        client, count, group.pairs, inflation, tuple(group.estimate.tolist()),
        tuple(limits.tolist()),
    )  # fmt: skip
    return law, told
