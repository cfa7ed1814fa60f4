"""From readings to a scenario: who is a client, which law its records follow, how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from agewise.errors import InvalidInput, one_of
from agewise.fitting.assumptions import Assumptions, check_assumptions
from agewise.fitting.laws import Codes, LagLaw, fit_chain, fit_lag_law, fit_periodic
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
    left_out: tuple[tuple[str, str], ...]
    """Entities that take no part, each with the reason."""

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
            "left_out": [list(one) for one in self.left_out],
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
    left_out: list[tuple[str, str]] = []
    claims = sum(len(m) if adversary == "household" else 1 for m in members.values())
    for client, entities in members.items():
        rows = _rows(client, entities, place)
        moving = [row for row in rows if np.unique(codes[row][codes[row] >= 0]).size > 1]
        left_out += [
            (readings.entities[row], "always in one state") for row in rows if row not in moving
        ]
        process, told, weak = _process(
            client, moving, codes, states.values, readings, first_slot, slots, kind, adversary,
            confidence, claims,
        )  # fmt: skip
        left_out += [(readings.entities[row], "too few days for a limit below 1") for row in weak]
        clients.append(Client(client, process, samples=told.entities))
        found.append(told)
    problem = Problem(clients, slots, epsilon, name=name, unit=unit)
    checked = check_assumptions(codes, states.values, readings.day, starts=readings.first_of_day)
    return Fit(
        problem, kind, adversary, confidence, readings.quality, states, checked, tuple(found),
        tuple(left_out),
    )  # fmt: skip


def _rows(client: str, entities: Sequence[str], place: Mapping[str, int]) -> list[int]:
    if not entities:
        raise InvalidInput(f"group {client!r}", "empty", "one entity or more")
    for entity in entities:
        if entity not in place:
            raise InvalidInput(f"group {client!r}", repr(entity), "entities that were read")
    return [place[entity] for entity in entities]


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
    confidence: float,
    claims: int,
) -> tuple[Process, ClientFit, list[int]]:
    """A client's process, how it was found, and the entities that no limit can be given for."""
    day, starts = readings.day, readings.first_of_day

    def lag_law(which: list[int]) -> LagLaw:
        return fit_lag_law(
            codes[which], values, day, first_slot=first_slot, slots=slots, starts=starts,
            confidence=confidence, claims=claims,
        )  # fmt: skip

    if not rows:
        raise InvalidInput(f"client {client!r}", "no entity that ever changes", "other states")
    if kind != "measured":
        process: Process = (
            fit_chain(codes[rows], values)
            if kind == "chain"
            else fit_periodic(codes[rows], values, day, (starts - first_slot) % day)
        )
        return process, ClientFit(client, len(rows), codes[rows].size, 1.0, (), ()), []
    weak: list[int] = []
    if adversary == "household":
        each = {row: lag_law([row]) for row in rows}
        weak = [row for row, one in each.items() if slots > 1 and one.law.limits[:-1].min() >= 1]
        rows = [row for row in rows if row not in weak]
        if not rows:
            raise InvalidInput(
                f"client {client!r}", f"{len(weak)} entities, none with a limit on Δ below 1",
                "more days, fewer states or a lower confidence",
                "There is no credit for ageing to be had from these readings.",
            )  # fmt: skip
    group = lag_law(rows)
    limits, inflation = group.law.limits, group.inflation
    if adversary == "household":
        widest = np.max([each[row].law.limits for row in rows], axis=0)
        limits = np.maximum(widest, group.estimate)
        inflation = max(each[row].inflation for row in rows)
    law = MeasuredLaw(group.law.joints, limits, values, confidence=confidence, day=day)
    told = ClientFit(
        client, len(rows), group.pairs, inflation, tuple(group.estimate.tolist()),
        tuple(limits.tolist()),
    )  # fmt: skip
    return law, told, weak
