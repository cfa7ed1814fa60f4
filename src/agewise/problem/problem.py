"""What is to be planned: clients, target, deadline and the choices, as a record."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import BeforeValidator, Field

from agewise.arrays import Array
from agewise.checks import instance
from agewise.errors import InvalidInput, quoted
from agewise.knowledge import (
    KINDS,
    Independent,
    Level,
    Levels,
    Measured,
    level_of,
    measured_of,
)
from agewise.learning import Estimator, Learner, Mean, Trained, learner_of, learner_schema
from agewise.mechanism import Kind
from agewise.mixing import Method
from agewise.privacy.calibration import Rule
from agewise.problem.client import LARGEST_SLOT, Client, Slot, likeness
from agewise.problem.exclusions import excluded, known_of
from agewise.problem.target import Promised, Target
from agewise.records import (
    Count,
    Failure,
    OneLine,
    Positive,
    Read,
    record,
    schema,
    tagged_schema,
)
from agewise.report.problems import problem_facts, problem_line
from agewise.report.tables import html_facts, text_facts

Objective = Literal["exact", "bound", "simulated"]
Trust = Literal["client", "server"]
TRUSTS: tuple[str, ...] = get_args(Trust)
OBJECTIVES: tuple[str, ...] = get_args(Objective)

FOREVER = "forever"
"""The word of files for rounds without end, where None would be absent."""
Rounds = Annotated[
    Slot | None,
    BeforeValidator(lambda given: None if isinstance(given, str) and given == FOREVER else given),
    Field(
        json_schema_extra={
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": LARGEST_SLOT},
                {"type": "string", "const": FOREVER},
            ]
        }
    ),
]


def _clients(given: Any) -> tuple[Client, ...]:
    members = tuple(given) if isinstance(given, Iterable) else ()
    if not members or not all(isinstance(one, Client) for one in members):
        raise InvalidInput("", quoted(given), "one or more Client objects")
    return members


def _learner(given: Any) -> Learner:
    if isinstance(given, dict):
        return learner_of(given)
    learner: Learner = instance("", given, Learner, "a Mean, a Histogram or another Learner")
    return learner


def _levels(given: Any) -> tuple[Level, ...] | None:
    """One level or several, of which each may be a table; none of them is as good as nothing."""
    several = given if isinstance(given, Iterable) else [given]
    levels = tuple(level_of(one) if isinstance(one, dict) else one for one in several)
    if isinstance(given, dict) or not all(isinstance(one, Level) for one in levels):
        raise InvalidInput("", quoted(given), "a Level, or several")
    return levels or None


def _measured(given: Any) -> Measured:
    if isinstance(given, dict):
        return measured_of(given)
    known: Measured = instance("", given, Measured, "measured knowledge, or none")
    return known


def _rows_of(model: type) -> Callable[[], dict[str, Any]]:
    return lambda: {"type": "array", "items": schema(model), "minItems": 1}


def _known_schema() -> dict[str, Any]:
    return tagged_schema(KINDS, {"measured": "Means and covariances by client and slot."})


Clients = Annotated[Sequence[Client], Read(_clients, _rows_of(Client))]
AnyLearner = Annotated[Learner, Read(_learner, learner_schema)]
OneOrMoreLevels = Annotated[Level | Sequence[Level], Read(_levels, _rows_of(Level))]
MeasuredKnowledge = Annotated[Measured, Read(_measured, _known_schema)]


@record
class Problem:
    """Clients, an aggregation slot, a privacy target, and the choices how to meet it.

    `docs/notation.md` explains the choices. `level` and `knowledge` are about accuracy only: no
    privacy rests on them.
    """

    clients: Clients
    """One or more, with distinct names."""
    aggregate_at: Slot
    """The slot in which the server aggregates; slots are 1, 2, ..."""
    epsilon: Positive
    """Privacy target ε of every client without one of its own, about its records in that slot."""
    mixing: Method = "exact"
    """Whose prior knowledge Δ is computed for: exact (the stationary law), own_law (the stated
    law), any_prior (anything), spectral (the paper's upper bound)."""
    estimator: Estimator = "best"
    """best: the server weighs what it hears against what it knows. plain: the weighted mean of
    what was collected. propagated: records are moved forward to the aggregation slot first."""
    calibration: Rule = "sharp"
    """How the noise is set: sharp (exact for the worst mechanism), formula (the paper's, more
    noise), tight (exact for the Laplace mechanism, means only)."""
    objective: Objective = "exact"
    """What a schedule is judged by: exact (closed form), bound (Theorem 1), simulated."""
    capacity: Count | None = None
    """How many clients may collect in one slot. Left out: any number."""
    learner: AnyLearner = Field(default_factory=Mean)
    """What is learnt. Left out: the mean."""
    mechanism: Kind = "laplace"
    """The noise: laplace, or gaussian, which needs delta too."""
    delta: Failure | None = None
    """The δ of the target (ε, δ), with gaussian noise only."""
    noise: Trust = "client"
    """Who adds the noise: each client (nobody is trusted), or once the server, which then sees the
    clients' means as they are."""
    level: OneOrMoreLevels | None = None
    """What all records share and nobody knows. Accuracy rests on it, privacy never."""
    knowledge: MeasuredKnowledge | None = None
    """Means and covariances measured on earlier days, instead of levels."""
    rounds: Rounds = 1
    """How often all this is done: a number, or "forever"."""
    every: Slot | None = None
    """Slots from one round to the next; with rounds only."""
    promise: Promised = "present"
    """What ε is about over all rounds: the value at each publication (present), at any time
    (every_moment), or in this number of last slots."""
    name: str = dataclasses.field(default="problem", compare=False)
    """What plans, runs and figures call it."""
    unit: OneLine = dataclasses.field(default="", compare=False)
    """The unit of the records, for labels only: Wh, say."""
    origin: OneLine = dataclasses.field(default="", compare=False)
    """Where the laws come from, in one line, for plans and statements."""

    excluded = staticmethod(excluded)

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        """Without its hash, which is another one in another process."""
        return {name: value for name, value in vars(self).items() if name != "_hash"}

    @cached_property
    def _hash(self) -> int:
        """Of the first and last client only: that of very many would take its time."""
        some = len(self.clients), self.clients[0], self.clients[-1]
        return hash((some, self.aggregate_at, self.epsilon, self.mixing, self.estimator))

    @cached_property
    def known(self) -> Independent | Measured | Levels:
        """What the server knows of means and covariances."""
        return known_of(self)

    def target_of(self, client: Client) -> Target:
        """What a client's release must guarantee, over the rounds that it takes part in."""
        own = client.epsilon, client.turn
        if own not in self._targets:
            self._targets[own] = self._target_of(client)
        return self._targets[own]

    @cached_property
    def _targets(self) -> dict[tuple[float | None, int], Target]:
        return {}

    def _target_of(self, client: Client) -> Target:
        rounds, every = self.rounds, self.every
        if client.turn > 1 and every is not None:
            rounds = None if rounds is None else -(-rounds // client.turn)
            every *= client.turn
        return Target(
            self.epsilon if client.epsilon is None else client.epsilon,
            self.mixing,
            self.calibration,
            self.mechanism,
            self.delta or 0.0,
            rounds,
            every,
            self.promise,
            self.level is not None,
        )

    def untrained(self) -> Problem:
        """The same problem before the first round of its training; without one, itself."""
        if not isinstance(self.learner, Trained) or self.learner == self.learner.untrained():
            return self
        return self.replace(learner=self.learner.untrained())

    @cached_property
    def kinds(self) -> list[int]:
        """Which kind each client is: those alike in all but name and weight have one number."""
        numbers: dict[Any, int] = {}
        return [numbers.setdefault(likeness(client), len(numbers)) for client in self.clients]

    @property
    def server_adds_noise(self) -> bool:
        """Whether noise is added once, by the server, to means that it sees as they are."""
        return self.noise == "server"

    @property
    def uses_knowledge(self) -> bool:
        """Whether the server weighs what it receives against what it knows."""
        return self.estimator == "best"

    @cached_property
    def width(self) -> int:
        """How many numbers a release has."""
        return int(self.learner.table(self.clients[0].process.states).shape[1])

    @property
    def release_unit(self) -> str:
        """The unit of what is released: that of the records for a mean; shares have none."""
        return self.unit if self.learner.kind == "mean" else ""

    @cached_property
    def weights(self) -> Array:
        """p_i: each client's share of the aggregate."""
        shares = np.array(
            [c.records if c.weight is None else c.weight for c in self.clients], float
        )
        return np.asarray(shares / shares.sum())

    def replace(self, **changes: Any) -> Problem:
        """Return a copy with some fields changed, checked again."""
        known = {f.name for f in dataclasses.fields(self)}
        for name in changes:
            if name not in known:
                raise InvalidInput("field", repr(name), "one of " + ", ".join(sorted(known)))
        changed = dataclasses.replace(self, **changes)
        if "clients" not in changes and "kinds" in vars(self):  # of very many they take their time
            vars(changed)["kinds"] = self.kinds
        return changed

    def keep(self, clients: Sequence[Client], **changes: Any) -> Problem:
        """Return a copy with some of the clients, and what is known of them."""
        places = {client.name: place for place, client in enumerate(self.clients)}
        known = self.known.subset([places[client.name] for client in clients])
        level = known.levels if isinstance(known, Levels) else None
        measured = known if isinstance(known, Measured) else None
        return self.replace(clients=clients, level=level, knowledge=measured, **changes)

    def __repr__(self) -> str:
        return problem_line(self)

    def __str__(self) -> str:
        return text_facts(problem_facts(self))

    def _repr_html_(self) -> str:
        return html_facts(problem_facts(self))


def as_problem(problem: Problem) -> Problem:
    """Return a problem, or refuse anything else."""
    return instance(
        "problem", problem, Problem, "a Problem", "Read a scenario with aw.load_scenario."
    )
