"""Scenario files: a problem as TOML, checked on the way in, without loss on the way out."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agewise.errors import InvalidInput
from agewise.learning import Estimator
from agewise.mixing import Method
from agewise.privacy.calibration import Rule
from agewise.problem import Client, Objective, Problem
from agewise.process import MarkovChain, MeasuredLaw, PeriodicChain, Process, birth_death
from agewise.scenarios import BUILT_IN

VERSION = 1

TEMPLATE = """\
# A federation to plan for. Every key is explained; delete what you do not need.
# Plan it with: agewise plan my_federation.toml
version = 1
name = "my_federation"
unit = "Wh"                  # for labels only

aggregate_at = 10            # the slot in which the server aggregates; slots are 1, 2, ...
epsilon = 0.1                # privacy target of every client about its records in that slot
# capacity = 1               # how many clients may collect in one slot; leave out for any number

mixing = "exact"             # whose knowledge is assumed: exact, own_law, any_prior or spectral
estimator = "propagated"     # plain: average as collected; propagated: move records forward first
calibration = "formula"      # formula, or tight (less noise; with mixing exact or own_law)
objective = "exact"          # exact: closed form; bound: Theorem 1; simulated: Monte Carlo

states = [20, 50, 100, 200]  # the values that a record can take; a client may have its own

[[clients]]
name = "north"
samples = 100                # records it collects; its weight in proportion
law = [0.8, 0.2, 0.0, 0.0]   # of a record at collection; leave out for the process's own law
process = { kind = "birth_death", up = 0.1, down = 0.2 }

[[clients]]
name = "south"
samples = 250
# Any chain: row = from, column = to, each row sums to 1.
process = { kind = "chain", transition = [
  [0.7, 0.3, 0.0, 0.0],
  [0.1, 0.6, 0.3, 0.0],
  [0.0, 0.2, 0.6, 0.2],
  [0.0, 0.0, 0.4, 0.6],
] }

# A day profile has one matrix for each slot of the day, the first for the step from slot 1 to 2:
# process = { kind = "periodic", transitions = [[[...]], [[...]]] }
"""
"""What `agewise init` writes."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _BirthDeath(_Entry):
    kind: Literal["birth_death"]
    up: float
    down: float

    def build(self, states: list[float]) -> Process:
        return birth_death(self.up, self.down, states)


class _Chain(_Entry):
    kind: Literal["chain"]
    transition: list[list[float]]

    def build(self, states: list[float]) -> Process:
        return MarkovChain(self.transition, states)


class _Periodic(_Entry):
    kind: Literal["periodic"]
    transitions: list[list[list[float]]]

    def build(self, states: list[float]) -> Process:
        return PeriodicChain(self.transitions, states)


class _Measured(_Entry):
    kind: Literal["measured"]
    joints: list[list[list[float]]]
    limits: list[float]
    confidence: float
    day: int
    assumes: str = ""

    def build(self, states: list[float]) -> Process:
        return MeasuredLaw(
            self.joints, self.limits, states, confidence=self.confidence, day=self.day,
            assumes=self.assumes,
        )  # fmt: skip


class _ClientEntry(_Entry):
    name: str
    samples: int
    process: Annotated[_BirthDeath | _Chain | _Periodic | _Measured, Field(discriminator="kind")]
    law: list[float] | None = None
    states: list[float] | None = None
    weight: float | None = None


class _Scenario(_Entry):
    version: Literal[1] = 1
    name: str = "scenario"
    unit: str = ""
    origin: str = ""
    aggregate_at: int
    epsilon: float
    mixing: Method = "exact"
    estimator: Estimator = "propagated"
    calibration: Rule = "formula"
    objective: Objective = "exact"
    capacity: int | None = None
    states: list[float] | None = None
    clients: list[_ClientEntry]


def load_scenario(source: str | Path) -> Problem:
    """Return the built-in scenario of that name, or the one in that TOML file.

    >>> load_scenario("london").epsilon
    0.1
    """
    if str(source) in BUILT_IN:
        return BUILT_IN[str(source)]()
    path = Path(source)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInput(
            "scenario",
            repr(str(source)),
            "a TOML file, or one of " + ", ".join(BUILT_IN),
            "Write one with: agewise init NAME",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise InvalidInput("scenario", f"{str(source)!r} ({reason})", "a readable file") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput("scenario", f"{str(source)!r} ({error})", "a valid TOML file") from None
    try:
        return problem_from_dict(document)
    except InvalidInput as error:
        raise InvalidInput(
            f"{path}: {error.field}", error.value, error.allowed, error.remedy
        ) from None


def problem_from_dict(document: dict[str, Any]) -> Problem:
    """Return the problem that a parsed scenario describes."""
    try:
        entry = _Scenario.model_validate(document)
    except ValidationError as error:
        raise first_complaint(error) from None
    clients = []
    for index, one in enumerate(entry.clients):
        states = entry.states if one.states is None else one.states
        if states is None:
            raise InvalidInput(
                f"clients[{index}].states", "missing", "state values, here or for all at the top"
            )
        try:
            process = one.process.build(states)
            clients.append(Client(one.name, process, one.law, one.samples, one.weight))
        except InvalidInput as bad:
            raise InvalidInput(
                f"clients[{index}]: {bad.field}", bad.value, bad.allowed, bad.remedy
            ) from None
    choices = entry.model_dump(exclude={"version", "clients", "states"})
    return Problem(clients, **choices)


def problem_to_dict(problem: Problem) -> dict[str, Any]:
    """Return a problem as the plain data of a scenario file; floats are kept exactly."""
    common = {tuple(c.process.states.tolist()) for c in problem.clients}
    document: dict[str, Any] = {
        "version": VERSION,
        "name": problem.name,
        "unit": problem.unit,
        "origin": problem.origin or None,
        "aggregate_at": problem.aggregate_at,
        "epsilon": float(problem.epsilon),
        "mixing": problem.mixing,
        "estimator": problem.estimator,
        "calibration": problem.calibration,
        "objective": problem.objective,
        "capacity": problem.capacity,
        "states": list(common.pop()) if len(common) == 1 else None,
        "clients": [],
    }
    for client in problem.clients:
        own = client.process.states.tolist() if document["states"] is None else None
        entry = {
            "name": client.name,
            "samples": client.samples,
            "weight": client.weight,
            "law": None if client.law is None else list(client.law),  # type: ignore[arg-type]
            "states": own,
            "process": _process_to_dict(client),
        }
        document["clients"].append({k: v for k, v in entry.items() if v is not None})
    return {k: v for k, v in document.items() if v is not None}


def dump_scenario(problem: Problem) -> str:
    """Return a problem as the text of a scenario file, which loads to an equal problem."""
    return tomli_w.dumps(problem_to_dict(problem))


def _process_to_dict(client: Client) -> dict[str, Any]:
    if isinstance(client.process, MarkovChain):
        return {"kind": "chain", "transition": client.process.transition.tolist()}
    if isinstance(client.process, PeriodicChain):
        return {"kind": "periodic", "transitions": client.process.transitions.tolist()}
    if isinstance(client.process, MeasuredLaw):
        law = client.process
        return {
            "kind": "measured", "joints": law.joints.tolist(), "limits": law.limits.tolist(),
            "confidence": law.confidence, "day": law.day, "assumes": law.assumes,
        }  # fmt: skip
    raise InvalidInput(
        f"process of client {client.name!r}", type(client.process).__name__,
        "a MarkovChain, a PeriodicChain or a MeasuredLaw in a scenario file",
    )  # fmt: skip


def first_complaint(error: ValidationError) -> InvalidInput:
    """Turn pydantic's list of complaints into one message about the first of them."""
    first, count = error.errors()[0], error.error_count()
    path = ""
    for part in first["loc"]:
        if part in ("birth_death", "chain", "measured", "periodic"):
            continue  # the tag of a union, not a key of the file
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    value: Any = first.get("input")
    value = repr(value) if isinstance(value, str) else value
    allowed = first["msg"][0].lower() + first["msg"][1:]
    if first["type"] == "missing":
        value, allowed = "missing", "a value"
    elif first["type"].startswith("union_tag"):
        path, allowed = f"{path}.kind", "'birth_death', 'chain', 'measured' or 'periodic'"
        value = value.get("kind", "missing") if isinstance(value, dict) else value
    elif first["type"] == "extra_forbidden":
        value, allowed = "not a known key", "the keys that agewise init explains"
    more = f"{count - 1} more problem{'s' * (count > 2)} in this file." if count > 1 else ""
    return InvalidInput(path, value, allowed, more)
