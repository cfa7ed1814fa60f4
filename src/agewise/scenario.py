"""Scenario files: a problem as TOML, checked on the way in, without loss on the way out."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tomli_w
from pydantic import Field, ValidationError

from agewise.documents import Entry, faults
from agewise.errors import InvalidInput
from agewise.knowledge import level_of, measured_of
from agewise.learning import Estimator, learner_of
from agewise.mechanism import Kind
from agewise.mixing import Method
from agewise.privacy.calibration import Rule
from agewise.problem import Client, Objective, Problem, Trust
from agewise.process import MarkovChain, MeasuredLaw, PeriodicChain, Process, birth_death
from agewise.process.joint import as_states
from agewise.process.measured import Basis
from agewise.scenarios import BUILT_IN
from agewise.wording import did_you_mean

VERSION = 1

MOST_LINES = 100
"""Problems of one file beyond which they are counted only."""
_NUMBER = r"[-+0-9.e]+"
_ROWS = re.compile(rf"\[\n(?:\s*{_NUMBER},\n)+\s*\]")
"""Lists of numbers, one per line as TOML writers have them: rows are a third of the size."""
TEMPLATE = (files("agewise") / "template.toml").read_text(encoding="utf-8")
"""What `agewise init` writes."""


class _BirthDeath(Entry):
    kind: Literal["birth_death"]
    up: float
    down: float

    def build(self, states: list[float]) -> Process:
        return birth_death(self.up, self.down, states)


class _Chain(Entry):
    kind: Literal["chain"]
    transition: list[list[float]]

    def build(self, states: list[float]) -> Process:
        return MarkovChain(self.transition, states)


class _Periodic(Entry):
    kind: Literal["periodic"]
    transitions: list[list[list[float]]]

    def build(self, states: list[float]) -> Process:
        return PeriodicChain(self.transitions, states)


class _Measured(Entry):
    kind: Literal["measured"]
    joints: list[list[list[float]]]
    limits: list[float]
    confidence: float
    day: int
    assumes: str = ""
    basis: Basis = "proven"
    weeks: int = 0
    targets: list[float] = Field([])
    sticks: list[list[float]] | None = None

    def build(self, states: list[float]) -> Process:
        return MeasuredLaw(
            self.joints,
            self.limits,
            states,
            confidence=self.confidence,
            day=self.day,
            assumes=self.assumes,
            basis=self.basis,
            weeks=self.weeks,
            targets=self.targets,
            sticks=self.sticks,
        )


_KINDS = ("chain", "periodic", "measured")
_COUNT = "a whole number of 1 or more"
_NUMBERS = "a list of numbers"


class _ClientEntry(Entry):
    name: str
    samples: int = Field(description=_COUNT)
    process: _BirthDeath | _Chain | _Periodic | _Measured = Field(
        discriminator="kind", description='a table such as { kind = "birth_death", ... }'
    )
    law: list[float] | None = Field(None, description=_NUMBERS)
    states: list[float] | None = Field(None, description=_NUMBERS)
    weight: float | None = Field(None, description="a finite number above 0")
    epsilon: float | None = Field(None, description="a finite number above 0")
    turn: int = Field(1, description="1 or more: takes part in every so-many-th round")
    members: int = Field(1, description="1 or more: clients alike behind one gateway")


class ScenarioEntry(Entry):
    """A scenario file as it is parsed; `agewise.schema` explains its keys to editors."""

    version: Literal[1] = 1
    name: str = "scenario"
    unit: str = ""
    origin: str = ""
    aggregate_at: int = Field(description=_COUNT)
    epsilon: float = Field(description="a finite number above 0")
    mixing: Method = "exact"
    estimator: Estimator = "best"
    calibration: Rule = "sharp"
    objective: Objective = "exact"
    capacity: int | None = Field(None, description=_COUNT)
    learner: dict[str, Any] = Field({"kind": "mean"}, description='{ kind = "mean" }, or another')
    mechanism: Kind = "laplace"
    delta: float | None = Field(None, description="a number above 0 and below 1")
    noise: Trust = "client"
    level: list[dict[str, Any]] = Field([], description="tables [[level]]")
    knowledge: dict[str, Any] | None = Field(None, description='{ kind = "measured", ... }')
    rounds: int | Literal["forever"] = Field(1, description='a whole number, or "forever"')
    every: int | None = Field(None, description=_COUNT)
    promise: Literal["present", "every_moment"] | int = Field(
        "present", description="present, every_moment or a number of slots"
    )
    states: list[float] | None = Field(None, description=_NUMBERS)
    clients: list[_ClientEntry] = Field(description="one or more tables [[clients]]")


FOREVER = "forever"
"""The word for rounds without end, where None would be absent."""

_TABLES = ("learner", "level", "knowledge")
_CHOICES = set(ScenarioEntry.model_fields) - {"version", "clients", "states", *_TABLES}


class InvalidScenario(InvalidInput):
    """Everything that is wrong with a scenario: one line for each problem, in `problems`."""

    def __init__(self, problems: Sequence[InvalidInput], source: str = "") -> None:
        first = problems[0]
        super().__init__(first.field, first.value, first.allowed, first.remedy)
        self.problems = tuple(problems)
        prefix = f"{source}: " if source else ""
        lines = [f"{prefix}{one}" for one in problems[:MOST_LINES]]
        if len(problems) > MOST_LINES:
            lines.append(f"{prefix}{len(problems) - MOST_LINES} more problems like these.")
        self.args = ("\n".join(lines),)


def load_scenario(source: str | Path) -> Problem:
    """Return the built-in scenario of that name, or the one in that TOML file.

    >>> load_scenario("london").epsilon
    0.1
    """
    if str(source) in BUILT_IN:
        return BUILT_IN[str(source)]()
    path = Path(source)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise InvalidInput(
            "scenario",
            repr(str(source)),
            "a TOML file, or one of " + ", ".join(BUILT_IN),
            did_you_mean(str(source), BUILT_IN) or "Write one with: agewise init NAME",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise InvalidInput("scenario", f"{str(source)!r} ({reason})", "a readable file") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput("scenario", f"{str(source)!r} ({error})", "a valid TOML file") from None
    try:
        return problem_from_dict(document)
    except InvalidScenario as error:
        raise InvalidScenario(error.problems, str(path)) from None


def problem_from_dict(document: dict[str, Any]) -> Problem:
    """Return the problem that a parsed scenario describes; refuse it with all that is wrong."""
    try:
        entry = ScenarioEntry.model_validate(document)
    except ValidationError as error:
        problems = faults(error, ScenarioEntry)
        if isinstance(document, dict):
            problems += _deeper_problems(document, {one["loc"][0] for one in error.errors()})
        raise InvalidScenario(problems) from None
    try:
        clients = [
            Client(
                one.name,
                one.process.build(_states(index, one, entry.states)),
                one.law,
                one.samples,
                one.weight,
                one.epsilon,
                one.turn,
                one.members,
            )
            for index, one in enumerate(entry.clients)
        ]
        tables = _built({name: getattr(entry, name) for name in _TABLES})
        choices = entry.model_dump(include=_CHOICES)
        choices["rounds"] = rounds_of(entry.rounds)
        return Problem(clients, **tables, **choices)
    except InvalidInput as error:
        raise InvalidScenario(_deeper_problems(document, ()) or [error]) from None


def rounds_of(given: int | str) -> int | None:
    """How many rounds there are, from a number or the word forever."""
    return None if given == FOREVER else given  # type: ignore[return-value]


def _built(tables: dict[str, Any]) -> dict[str, Any]:
    """The learner and what is known, from their tables."""
    built: dict[str, Any] = {}
    if "learner" in tables:
        built["learner"] = learner_of(tables["learner"])
    if tables.get("level"):
        built["level"] = tuple(level_of(one) for one in tables["level"])
    if tables.get("knowledge") is not None:
        built["knowledge"] = measured_of(tables["knowledge"])
    return built


def _states(index: int, one: _ClientEntry, common: list[float] | None) -> list[float]:
    states = common if one.states is None else one.states
    if states is None:
        raise InvalidInput(
            f"clients[{index}].states", "missing", "state values, here or for all at the top"
        )
    return states


@contextmanager
def _collecting(problems: dict[str, InvalidInput], where: str = "") -> Iterator[None]:
    """Add what is refused to the problems by message, each once, and go on."""
    try:
        yield
    except InvalidInput as bad:
        place = bad.field if bad.field.startswith("clients[") else f"{where}{bad.field}"
        one = InvalidInput(place, bad.value, bad.allowed, bad.remedy)
        problems.setdefault(str(one), one)


def _deeper_problems(document: dict[str, Any], misshapen: Collection[Any]) -> list[InvalidInput]:
    """Return what is wrong beyond the shape, in every part that can be looked at by itself."""
    problems: dict[str, InvalidInput] = {}
    common = None if "states" in misshapen else document.get("states")
    if common is not None:
        with _collecting(problems):
            as_states(common)
    without_states = bool(problems) or "states" in misshapen
    entries = document.get("clients")
    clients: list[Client | None] = []
    for index, raw in enumerate(entries if isinstance(entries, list) else ()):
        client = None
        with suppress(ValidationError):  # told already
            one = _ClientEntry.model_validate(raw)
            if one.states is not None or not without_states:
                client = _inspect_client(index, one, common, problems)
        clients.append(client)
    someone = Client("someone", birth_death(0.3, 0.3, (0, 1)))
    choices: dict[str, Any] = {"aggregate_at": 1, "epsilon": 1.0}
    given = {k: v for k, v in document.items() if k in _CHOICES and k not in misshapen}
    if "rounds" in given:
        given["rounds"] = rounds_of(given["rounds"])
    noise: dict[str, Any] = {k: v for k, v in given.items() if k in ("mechanism", "delta")}
    lasting = {k: v for k, v in given.items() if k in ("rounds", "every", "promise")}
    parts = [{k: v} for k, v in given.items() if k not in noise and k not in lasting]
    parts += [noise, lasting]
    for part in parts:
        with _collecting(problems):
            Problem([someone], **{**choices, **part})
            choices.update(part)
    for name in _TABLES:
        if name in document and name not in misshapen:
            with _collecting(problems):
                choices |= _built({name: document[name]})
    whole = [one for one in clients if one is not None]
    if len(whole) == len(clients) and "clients" not in misshapen:
        numbered = [replace(one, name=str(index)) for index, one in enumerate(whole)]
        for members in (whole, numbered):  # by number, so that equal names hide nothing else
            with _collecting(problems):
                Problem(members, **choices)
    return list(problems.values())


def _inspect_client(
    index: int, one: _ClientEntry, common: list[float] | None, problems: dict[str, InvalidInput]
) -> Client | None:
    """Note all that is wrong with a client; return it if that can be had at all."""
    where = f"clients[{index}]: "
    with _collecting(problems, where):
        states = _states(index, one, common)
        process: Process | None = None
        with _collecting(problems, where):
            process = one.process.build(states)
        if process is None:  # law, samples and weight can be looked at all the same
            process = MarkovChain(np.eye(len(states)), states)
        for name in ("law", "samples", "weight", "epsilon", "turn", "members"):
            with _collecting(problems, where):
                Client(one.name, process, **{name: getattr(one, name)})
        with suppress(InvalidInput):
            rest = one.samples, one.weight, one.epsilon, one.turn, one.members
            return Client(one.name, process, one.law, *rest)
    return None


def problem_to_dict(problem: Problem) -> dict[str, Any]:
    """Return a problem as the plain data of a scenario file; floats are kept exactly."""
    head = scenario_head(problem)
    return {**head, "clients": clients_to_dicts(problem.clients, "states" in head)}


def scenario_head(problem: Problem) -> dict[str, Any]:
    """What a scenario file says but for its clients."""
    common = {tuple(c.process.states.tolist()) for c in problem.clients}
    document = {
        "version": VERSION,
        "name": problem.name,
        "unit": problem.unit,
        "origin": problem.origin or None,
        "aggregate_at": problem.aggregate_at,
        "epsilon": float(problem.epsilon),
        "mixing": problem.mixing,
        "estimator": problem.estimator,
        "calibration": problem.calibration,
        "learner": None if problem.learner.kind == "mean" else problem.learner.to_dict(),
        "mechanism": None if problem.mechanism == "laplace" else problem.mechanism,
        "delta": problem.delta,
        "noise": None if problem.noise == "client" else problem.noise,
        "rounds": {1: None, None: FOREVER}.get(problem.rounds, problem.rounds),
        "every": problem.every,
        "promise": None if problem.promise == "present" else problem.promise,
        "objective": problem.objective,
        "capacity": problem.capacity,
        "level": [one.to_dict() for one in problem.level or ()] or None,  # type: ignore[union-attr]
        "knowledge": None if problem.knowledge is None else problem.knowledge.to_dict(),
        "states": list(common.pop()) if len(common) == 1 else None,
    }
    return {k: v for k, v in document.items() if v is not None}


def clients_to_dicts(clients: Iterable[Client], shared: bool) -> list[dict[str, Any]]:
    """What a scenario file says of clients; `shared`: their states stand at the head.

    What is said of a process that many share is one table.
    """
    processes: dict[int, dict[str, Any]] = {}
    rows = []
    for client in clients:
        if id(client.process) not in processes:
            processes[id(client.process)] = _process_to_dict(client)
        entry = {
            "name": client.name,
            "samples": client.samples,
            "weight": client.weight,
            "epsilon": client.epsilon,
            "turn": client.turn if client.turn > 1 else None,
            "members": client.members if client.members > 1 else None,
            "law": None if client.law is None else list(client.law),  # type: ignore[arg-type]
            "states": None if shared else client.process.states.tolist(),
            "process": processes[id(client.process)],
        }
        rows.append({k: v for k, v in entry.items() if v is not None})
    return rows


def dump_scenario(problem: Problem) -> str:
    """Return a problem as the text of a scenario file, which loads to an equal problem."""
    text = tomli_w.dumps(problem_to_dict(problem))
    return _ROWS.sub(lambda row: f"[{', '.join(re.findall(_NUMBER, row[0]))}]", text)


def _process_to_dict(client: Client) -> dict[str, Any]:
    if client.process.kind in _KINDS:
        return client.process.to_dict()
    raise InvalidInput(
        f"process of client {client.name!r}",
        type(client.process).__name__,
        "a MarkovChain, a PeriodicChain or a MeasuredLaw in a scenario file",
    )
