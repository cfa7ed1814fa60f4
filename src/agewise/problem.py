"""What is to be planned: clients, target, deadline and the choices, as frozen, checked data."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from agewise.arrays import Array
from agewise.checks import one_of, positive, whole
from agewise.errors import InvalidInput
from agewise.knowledge import Independent, Knowledge, Level, Levels, Measured
from agewise.learning import ESTIMATORS, Estimator, Learner, Mean, Trained
from agewise.mechanism import Kind
from agewise.mixing import Method
from agewise.privacy.calibration import Rule
from agewise.privacy.steady import Promise, check_lasting
from agewise.process import Process
from agewise.process.joint import as_law
from agewise.report.problems import problem_facts, problem_line
from agewise.report.tables import html_facts, text_facts
from agewise.target import Target

__all__ = [
    "LARGEST_SLOT",
    "OBJECTIVES",
    "TRUSTS",
    "Client",
    "Objective",
    "Problem",
    "Target",
    "Trust",
]

Objective = Literal["exact", "bound", "simulated"]
Trust = Literal["client", "server"]
TRUSTS: tuple[str, ...] = get_args(Trust)
LARGEST_SLOT = 100_000
"""Slots beyond which tables by slot make no sense."""

LONGEST_NAME = 200
"""Letters of a client's name."""

OBJECTIVES: tuple[str, ...] = get_args(Objective)


@dataclass(frozen=True)
class Client:
    """One client: how its records change, their law when it collects, how many it collects.

    `law` None means the process's own law (stationary, or periodic). `weight` is its share of
    the aggregate; None means in proportion to `samples`. `epsilon` is its own target; None means
    that of the problem.
    """

    name: str
    process: Process
    law: ArrayLike | None = None
    samples: int = 100
    weight: float | None = None
    epsilon: float | None = None

    def __post_init__(self) -> None:
        if (
            not isinstance(self.name, str)
            or not self.name.strip()
            or not self.name.isprintable()
            or len(self.name) > LONGEST_NAME
        ):
            raise InvalidInput(
                "client name", repr(self.name), f"1 to {LONGEST_NAME} printable letters"
            )
        if not isinstance(self.process, Process):
            raise InvalidInput(
                f"process of client {self.name!r}",
                repr(self.process),
                "a MarkovChain, a PeriodicChain or another Process",
            )
        object.__setattr__(
            self, "samples", whole(f"samples of client {self.name!r}", self.samples, 1)
        )
        if self.law is not None:
            law = as_law(f"law of client {self.name!r}", self.law, self.process.states.size)
            object.__setattr__(self, "law", tuple(law.tolist()))
        if self.weight is not None:
            share = positive(f"weight of client {self.name!r}", self.weight)
            object.__setattr__(self, "weight", share)
        if self.epsilon is not None:
            own = positive(f"epsilon of client {self.name!r}", self.epsilon)
            object.__setattr__(self, "epsilon", own)

    def law_at(self, slot: int) -> Array:
        """The law of a record that is collected in `slot`."""
        return self.process.law(slot) if self.law is None else np.asarray(self.law)


@dataclass(frozen=True)
class Problem:
    """Clients, an aggregation slot, a privacy target, and the choices how to meet it.

    Slots run from 1 to `aggregate_at`; `capacity` is how many clients may collect in one slot
    (None: any number). `learner` says what the clients learn, `mechanism` the noise they add; with
    `gaussian`, `delta` is the δ of the target (ε, δ). See `docs/notation.md` for the choices.
    `noise` says who adds it: each client (nobody is trusted), or once the server, which then sees
    the clients' means as they are. `level` (one or more) is what all clients' records share and
    nobody knows; `knowledge` is what was measured of their means and covariances instead. Both are
    about accuracy only. `rounds` is how often all this is done (None: for ever), `every` so many
    slots anew, and `promise` what the target is about over all of them: the record's value at each
    publication (`present`), at any time (`every_moment`), or in the last so many slots (a number).
    `origin` says in words where the laws come from, for plans and statements.
    """

    clients: Sequence[Client]
    aggregate_at: int
    epsilon: float
    mixing: Method = "exact"
    estimator: Estimator = "best"
    calibration: Rule = "sharp"
    objective: Objective = "exact"
    capacity: int | None = None
    learner: Learner = field(default_factory=Mean)
    mechanism: Kind = "laplace"
    delta: float | None = None
    noise: Trust = "client"
    level: Level | Sequence[Level] | None = None
    knowledge: Measured | None = None
    rounds: int | None = 1
    every: int | None = None
    promise: Promise = "present"
    name: str = field(default="problem", compare=False)
    unit: str = field(default="", compare=False)
    origin: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        members = tuple(self.clients) if isinstance(self.clients, Iterable) else ()
        if not members or not all(isinstance(c, Client) for c in members):
            raise InvalidInput("clients", repr(self.clients), "one or more Client objects")
        object.__setattr__(self, "clients", members)
        name, times = Counter(c.name for c in members).most_common(1)[0]
        if times > 1:
            raise InvalidInput("clients", f"{times} named {name!r}", "distinct names")
        for name in ("unit", "origin"):
            text = getattr(self, name)
            if not isinstance(text, str) or len(text.splitlines()) > 1:
                raise InvalidInput(name, repr(text), "one line of text")
        last = whole("aggregate_at", self.aggregate_at, 1, LARGEST_SLOT)
        object.__setattr__(self, "aggregate_at", last)
        object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon))
        one_of("estimator", self.estimator, ESTIMATORS)
        one_of("objective", self.objective, OBJECTIVES)
        one_of("noise", self.noise, TRUSTS)
        self._check_rounds(members)
        for member in members:
            self.target_of(member)
        self._check_learner(members)
        self._check_knowledge(members)
        if self.capacity is not None:
            object.__setattr__(self, "capacity", whole("capacity", self.capacity, 1))
            if len(members) > self.capacity * self.aggregate_at:
                raise InvalidInput(
                    "capacity",
                    self.capacity,
                    f"at least {-(-len(members) // self.aggregate_at)} for {len(members)} clients "
                    f"in {self.aggregate_at} slots",
                    "Raise the capacity or aggregate later.",
                )
        given = [c.weight for c in members if c.weight is not None]
        if given and (len(given) < len(members) or abs(sum(given) - 1) > 1e-9):
            raise InvalidInput(
                "weight",
                f"given for {len(given)} of {len(members)} clients, sum {sum(given):.9g}",
                "a weight for every client, summing to 1, or for none (then samples decide)",
            )

    def _check_rounds(self, members: tuple[Client, ...]) -> None:
        if self.rounds is not None:
            object.__setattr__(self, "rounds", whole("rounds", self.rounds, 1, LARGEST_SLOT))
        if self.rounds == 1:
            if self.every is not None:
                raise InvalidInput("every", self.every, "nothing for one round", "Give rounds too.")
            return
        if self.every is None:
            raise InvalidInput("every", None, "a number of slots", "How often is a round?")
        object.__setattr__(self, "every", whole("every", self.every, 1, LARGEST_SLOT))
        if self.aggregate_at > self.every:
            raise InvalidInput(
                "aggregate_at",
                self.aggregate_at,
                f"1 to {self.every}, the slots from one round to the next",
                "A round collects between the publication before it and its own.",
            )
        if self.objective != "exact":
            raise InvalidInput("objective", f"{self.objective!r} with many rounds", "exact")
        for member in members:
            check_lasting(member.process)
            if self.every % member.process.day:
                raise InvalidInput(
                    "every",
                    self.every,
                    f"a multiple of {member.process.day} slots: whole days of the process",
                )
            if member.law is not None:
                raise InvalidInput(
                    f"law of client {member.name!r}",
                    "stated",
                    "none, with many rounds",
                    "From round to round records follow their process: leave the law out.",
                )

    def _check_learner(self, members: tuple[Client, ...]) -> None:
        for member in members:
            table = self.learner.table(member.process.states)
        if isinstance(self.learner, Trained):
            self._check_training()
        if table.shape[1] == 1:
            return
        if len({tuple(member.process.states.tolist()) for member in members}) > 1:
            raise InvalidInput(
                "learner",
                f"{self.learner.kind} for clients with other states than each other",
                "the same states for every client",
            )
        if self.calibration == "tight":
            raise InvalidInput(
                "calibration",
                f"'tight' with a {self.learner.kind}",
                "sharp or formula",
                "Tight noise is worked out for one number per record only.",
            )
        if self.objective != "exact":
            raise InvalidInput(
                "objective",
                f"{self.objective!r} with a {self.learner.kind}",
                "exact",
                "Theorem 1 and its simulation are for one number per record.",
            )

    def _check_training(self) -> None:
        """Refuse what the server would know of a model that it could then train by itself."""
        kind = self.learner.kind
        if self.estimator == "best":
            raise InvalidInput(
                "estimator",
                f"'best' with a {kind} model",
                "plain or propagated",
                "A server that knows the law of the records needs none of them to train.",
            )
        for name in ("level", "knowledge"):
            if getattr(self, name) is not None:
                raise InvalidInput(name, f"given with a {kind} model", "none")

    def _check_knowledge(self, members: tuple[Client, ...]) -> None:
        given: Any = () if self.level is None else self.level
        levels = (given,) if isinstance(given, Level) else given
        levels = tuple(levels) if isinstance(levels, Iterable) else (levels,)
        if not all(isinstance(one, Level) for one in levels):
            raise InvalidInput("level", repr(self.level), "a Level, or several")
        object.__setattr__(self, "level", levels or None)
        if self.knowledge is not None and not isinstance(self.knowledge, Measured):
            raise InvalidInput("knowledge", repr(self.knowledge), "measured knowledge, or none")
        if levels and self.knowledge is not None:
            raise InvalidInput(
                "level",
                "given with measured knowledge",
                "one of the two",
                "Measured knowledge holds what clients share already.",
            )
        if levels and self.estimator == "propagated":
            raise InvalidInput(
                "estimator",
                "'propagated' with a level",
                "best or plain",
                "Moving records forward shrinks what they share; gains do not.",
            )
        if self.objective != "exact" and (levels or self.knowledge or self.estimator == "best"):
            raise InvalidInput(
                "objective",
                f"{self.objective!r} with the server's knowledge used",
                "exact",
                "Theorem 1 and its simulation know weighted means of independent records only.",
            )
        if self.objective != "exact" and self.noise == "server":
            raise InvalidInput(
                "objective",
                f"{self.objective!r} with noise by the server",
                "exact",
                "Theorem 1 and its simulation are for noise by each client.",
            )
        states = members[0].process.states
        width = self.learner.table(states).shape[1]
        if self.knowledge is not None and len({tuple(c.process.states) for c in members}) > 1:
            raise InvalidInput(
                "knowledge", "for clients with other states than each other", "one set of states"
            )
        self.known.check([c.name for c in members], self.aggregate_at, states, width)

    @cached_property
    def known(self) -> Knowledge:
        """What the server knows of means and covariances."""
        if self.knowledge is not None:
            return self.knowledge
        return Levels(self.level) if self.level else Independent()  # type: ignore[arg-type]

    def target_of(self, client: Client) -> Target:
        """What a client's release must guarantee."""
        return Target(
            self.epsilon if client.epsilon is None else client.epsilon,
            self.mixing,
            self.calibration,
            self.mechanism,
            self.delta or 0.0,
            self.rounds,
            self.every,
            self.promise,
        )

    def untrained(self) -> Problem:
        """The same problem before the first round of its training; without one, itself."""
        if not isinstance(self.learner, Trained) or self.learner == self.learner.untrained():
            return self
        return self.replace(learner=self.learner.untrained())

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
            [c.samples if c.weight is None else c.weight for c in self.clients], float
        )
        return np.asarray(shares / shares.sum())

    def replace(self, **changes: Any) -> Problem:
        """Return a copy with some fields changed, checked again."""
        known = {f.name for f in dataclasses.fields(self)}
        for name in changes:
            if name not in known:
                raise InvalidInput("field", repr(name), "one of " + ", ".join(sorted(known)))
        return dataclasses.replace(self, **changes)

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
