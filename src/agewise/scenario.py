"""Scenario files: a problem as TOML, checked on the way in, without loss on the way out."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import tomli_w
from pydantic import Field

from agewise.checks import as_path
from agewise.errors import InvalidInput, InvalidInputs, quoted
from agewise.problem import FOREVER, Client, Problem, as_problem
from agewise.process import (
    LiftedChain,
    MarkovChain,
    MeasuredLaw,
    PeriodicChain,
    Process,
    birth_death,
)
from agewise.process.joint import as_states
from agewise.process.measured import Basis
from agewise.records import (
    UNKNOWN,
    WHOLE,
    Count,
    Numbers,
    OneLine,
    Read,
    Rows,
    Share,
    Tables,
    arguments,
    every,
    inside,
    list_of,
    missing,
    parts,
    read_tagged,
    record,
    schema,
    tagged_schema,
    unknown,
)
from agewise.scenarios import BUILT_IN
from agewise.wording import did_you_mean

VERSION = 1

_NUMBER = r"[-+0-9.e]+"
_ROWS = re.compile(rf"\[\n(?:\s*{_NUMBER},\n)+\s*\]")
"""Lists of numbers, one per line as TOML writers have them: rows are a third of the size."""
TEMPLATE = (files("agewise") / "template.toml").read_text(encoding="utf-8")
"""What `agewise init` writes."""


@record
class _BirthDeath:
    """A chain that moves by one state at most."""

    up: Share
    """Probability of one state up."""
    down: Share
    """Probability of one state down."""

    def build(self, states: list[float]) -> Process:
        return birth_death(self.up, self.down, states)


@record
class _Chain:
    """Any Markov chain."""

    transition: Rows
    """Row = from, column = to; each row sums to 1."""

    def build(self, states: list[float]) -> Process:
        return MarkovChain(self.transition, states)


@record
class _Periodic:
    """A chain whose matrix depends on the slot of the day."""

    transitions: Tables
    """One matrix for each slot of the day, the first for the step from slot 1 to 2."""

    def build(self, states: list[float]) -> Process:
        return PeriodicChain(self.transitions, states)


@record
class _Measured:
    """Joint laws measured lag by lag, as `agewise fit` writes them."""

    joints: Tables
    """Joint law of collection and aggregation, one per slot."""
    limits: Numbers
    """Upper limit on Δ, one per slot."""
    confidence: Annotated[float, Field(gt=0, lt=1)]
    """With which all limits hold together."""
    day: Count
    """Slots of a day."""
    assumes: OneLine = ""
    """What the limits take for granted, in one line."""
    basis: Basis = "proven"
    """Whether the limits are proven or hold asymptotically."""
    weeks: Annotated[int, Field(ge=0, le=2**53), WHOLE] = 0
    """Weeks of readings behind the limits."""
    targets: Numbers | None = None
    """Values of ε for which `sticks` are given."""
    sticks: Rows | None = None
    """Upper limits on the hockey-stick divergence, by target and slot."""

    def build(self, states: list[float]) -> Process:
        given = {name: value for name, value in vars(self).items() if value is not None}
        return MeasuredLaw(**given, states=states)


_CHAINS: dict[str, Any] = {"chain": _Chain, "periodic": _Periodic}


def _chain(table: Any) -> Any:
    return read_tagged("chain", table, _CHAINS)


def _chain_schema() -> dict[str, Any]:
    return tagged_schema(_CHAINS, {kind: make.__doc__ for kind, make in _CHAINS.items()})


@record
class _Lifted:
    """A chain on enlarged states, such as (class, state), of which states show."""

    chain: Annotated[Any, Read(_chain, _chain_schema)]
    """The chain, of kind chain or periodic, with one row per enlarged state."""
    groups: Numbers
    """The state of each enlarged one, as a number from 0."""

    def build(self, states: list[float]) -> Process:
        groups: Any = self.groups
        inner = self.chain.build([float(label) for label in range(len(groups))])
        return LiftedChain(inner, groups, states)


PROCESSES: dict[str, Any] = {
    "birth_death": _BirthDeath,
    "chain": _Chain,
    "periodic": _Periodic,
    "measured": _Measured,
    "lifted": _Lifted,
}
"""How a file says how records change, by kind."""

HEAD: dict[str, dict[str, Any]] = {
    "version": {"const": VERSION, "description": "The version of this format."},
    "states": {
        **list_of(1),
        "minItems": 2,
        "description": "The values that a record can take, distinct.",
    },
}
"""What stands at the head of a file beside the choices of a problem."""
_FIRST = ["name", "unit", "origin"]
_CHOICES = [*_FIRST, *(one.name for one in fields(Problem) if one.name not in ("clients", *_FIRST))]
_KEYS = ["version", *_CHOICES, "states", "clients"]
_CLIENT_KEYS = [*(one.name for one in fields(Client)), "states"]


class InvalidScenario(InvalidInputs):
    """Everything that is wrong with a scenario."""


def load_scenario(source: str | Path) -> Problem:
    """Return the built-in scenario of that name, or the one in that TOML file.

    >>> load_scenario("london").epsilon
    0.1
    """
    path = as_path("scenario", source)
    if str(source) in BUILT_IN:
        return BUILT_IN[str(source)]()
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
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise InvalidInput("scenario", f"{str(source)!r} ({reason})", "a valid TOML file") from None
    try:
        return problem_from_dict(document)
    except InvalidScenario as error:
        raise InvalidScenario(error.problems, str(path)) from None


def problem_from_dict(document: dict[str, Any]) -> Problem:
    """Return the problem that a parsed scenario describes; refuse it with all that is wrong."""
    if not isinstance(document, dict):
        raise InvalidScenario([InvalidInput("scenario", quoted(document), "keys and tables")])
    found = [unknown(name, name, _KEYS) for name in document if name not in _KEYS]
    given = {"name": "scenario", **{k: v for k, v in document.items() if k in _KEYS}}
    version, states = given.pop("version", VERSION), given.pop("states", None)
    if version != VERSION or isinstance(version, bool):
        found.append(InvalidInput("version", quoted(version), str(VERSION)))
    if states is not None:
        try:
            as_states(states)
        except InvalidInput as bad:
            states, found = (), [*found, bad]
    rows = given.get("clients")
    if not isinstance(rows, list) or not rows:
        found += parts(Problem, given)[1]
    else:
        clients = [
            _client(row, f"clients[{index}]", states, found) for index, row in enumerate(rows)
        ]
        if not found:
            try:
                return Problem(**{**given, "clients": clients})
            except InvalidInput as bad:
                raise InvalidScenario(every(bad)) from None
        right, wrong = parts(Problem, given)
        found += [one for one in wrong if one.field != "clients"]
        found += Problem.excluded(SimpleNamespace(**{**right, "clients": clients}))
    raise InvalidScenario(sorted(found, key=lambda one: not str(one.value).startswith(UNKNOWN)))


def _client(row: Any, where: str, common: Any, found: list[InvalidInput]) -> Any:
    """A client, or what there is of one; what is wrong with it joins what was found.

    `common` are the states of all: None if there are none, empty if they are wrong.
    """
    if not isinstance(row, dict):
        found.append(InvalidInput(where, quoted(row), "a table [[clients]]"))
        return SimpleNamespace()
    remedy = "It belongs at the top, before the first table."
    wrong = [
        unknown(name, name, _CLIENT_KEYS, remedy if name in _KEYS else "")
        for name in row
        if name not in _CLIENT_KEYS
    ]
    given = {name: value for name, value in row.items() if name in _CLIENT_KEYS}
    states = given.pop("states", common)
    if states is None:
        allowed = "state values, here or for all at the top"
        wrong.append(InvalidInput("states", "missing", allowed))
    if "samples" not in given:
        wrong.append(missing("samples", arguments(Client)["samples"]))
    if "process" in given:
        try:
            entry = read_tagged("process", given.pop("process"), PROCESSES)
            if states is not None and len(states):
                given["process"] = entry.build(states)
        except InvalidInput as bad:
            wrong += every(bad)
    if not wrong and "process" in given:
        try:
            return Client(**given)
        except InvalidInput as bad:
            wrong = every(bad)
            right = parts(Client, given)[0]
    else:
        right, more = parts(Client, given)
        wrong += [one for one in more if one.field != "process" or "process" not in row]
    for one in wrong:
        found += inside(where, one)
    return SimpleNamespace(**right)


def problem_to_dict(problem: Problem) -> dict[str, Any]:
    """Return a problem as the plain data of a scenario file; floats are kept exactly."""
    head = scenario_head(problem)
    return {**head, "clients": clients_to_dicts(problem.clients, "states" in head)}


_UNSAID = {
    "origin": "",
    "learner": {"kind": "mean"},
    "mechanism": "laplace",
    "noise": "client",
    "rounds": 1,
    "promise": "present",
}
"""What a file does not say where it is as usual."""


def scenario_head(problem: Problem) -> dict[str, Any]:
    """What a scenario file says but for its clients."""
    common = {tuple(c.process.states.tolist()) for c in problem.clients}
    document = {
        "version": VERSION,
        **{name: getattr(problem, name) for name in _CHOICES},
        "learner": problem.learner.to_dict(),
        "rounds": FOREVER if problem.rounds is None else problem.rounds,
        "level": [one.to_dict() for one in problem.level or ()] or None,  # type: ignore[union-attr]
        "knowledge": None if problem.knowledge is None else problem.knowledge.to_dict(),
        "states": list(common.pop()) if len(common) == 1 else None,
    }
    return {
        name: value
        for name, value in document.items()
        if value is not None and _UNSAID.get(name) != value
    }


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
    text = tomli_w.dumps(problem_to_dict(as_problem(problem)))
    return _ROWS.sub(lambda row: f"[{', '.join(re.findall(_NUMBER, row[0]))}]", text)


def _process_to_dict(client: Client) -> dict[str, Any]:
    if client.process.kind in PROCESSES:
        return client.process.to_dict()
    raise InvalidInput(
        f"process of client {client.name!r}",
        type(client.process).__name__,
        "a MarkovChain, a PeriodicChain, a LiftedChain or a MeasuredLaw in a scenario file",
    )


def scenario_schema() -> dict[str, Any]:
    """Return the JSON schema of scenario files (draft 2020-12).

    An editor that knows it completes keys, explains them and marks what cannot be right. It cannot
    see what only the whole shows (rows that do not sum to 1, say): `agewise check` does.
    """
    made = deepcopy(schema(Problem))
    client = made["properties"]["clients"]["items"]
    words = {kind: make.__doc__ for kind, make in PROCESSES.items()}
    client["properties"]["process"] |= tagged_schema(PROCESSES, words)
    client["properties"]["states"] = {
        **HEAD["states"],
        "description": "Its own states. Left out: those at the top.",
    }
    client["required"].append("samples")
    made["properties"]["name"]["default"] = "scenario"
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Agewise scenario",
        "description": "A federation to plan for: clients, a privacy target and a deadline.",
        **made,
        "properties": {**HEAD, **made["properties"]},
    }


def schema_text() -> str:
    """Return the schema as the text of a file."""
    return json.dumps(scenario_schema(), indent=2, ensure_ascii=False) + "\n"
