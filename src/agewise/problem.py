"""What is to be planned: clients, target, deadline and the choices, as frozen, checked data."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from agewise.arrays import Array
from agewise.checks import one_of, positive, whole
from agewise.clients import LARGEST_SLOT, Client, likeness, nameless
from agewise.errors import InvalidInput
from agewise.knowledge import Independent, Knowledge, Level, Levels, Measured
from agewise.learning import ESTIMATORS, Estimator, Learner, Mean, Trained, counts_together
from agewise.mechanism import Kind
from agewise.mixing import Method
from agewise.privacy.calibration import Rule
from agewise.privacy.steady import Promise, check_lasting
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
    "likeness",
    "nameless",
]

Objective = Literal["exact", "bound", "simulated"]
Trust = Literal["client", "server"]
TRUSTS: tuple[str, ...] = get_args(Trust)
OBJECTIVES: tuple[str, ...] = get_args(Objective)


@dataclass(frozen=True)
class Problem:
    """Clients, an aggregation slot, a privacy target, and the choices how to meet it.

    `docs/notation.md` explains the choices. `level` and `knowledge` are about accuracy only: no
    privacy rests on them.
    """

    clients: Sequence[Client]  #: one or more, with distinct names
    aggregate_at: int  #: the slot in which the server aggregates; slots run from 1 to it
    epsilon: float  #: target ε of every client without one of its own
    mixing: Method = "exact"  #: whose prior knowledge Δ is computed for
    estimator: Estimator = "best"  #: what is averaged, and whether the server uses what it knows
    calibration: Rule = "sharp"  #: how the noise is set
    objective: Objective = "exact"  #: what a schedule is judged by
    capacity: int | None = None  #: clients that may collect in one slot; None: any number
    #: what the clients learn
    learner: Learner = field(default_factory=Mean)
    mechanism: Kind = "laplace"  #: the noise they add
    delta: float | None = None  #: δ of the target (ε, δ), with Gaussian noise
    #: who adds it: each client (nobody is trusted), or once the server, which then sees the
    #: clients' means as they are
    noise: Trust = "client"
    #: one or more: what all clients' records share and nobody knows
    level: Level | Sequence[Level] | None = None
    knowledge: Measured | None = None  #: means and covariances that were measured, in its place
    rounds: int | None = 1  #: how often all this is done; None: for ever
    every: int | None = None  #: slots from one round to the next
    #: what the target is about over all rounds: the record's value at each publication
    #: ("present"), at any time ("every_moment"), or in the last so many slots (a number)
    promise: Promise = "present"
    #: what plans, runs and figures call it
    name: str = field(default="problem", compare=False)
    #: of the records, for labels only
    unit: str = field(default="", compare=False)
    #: where the laws come from, in words, for plans and statements
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
        if any(member.members > 1 for member in members):
            self._check_members()
        if any(member.turn > 1 for member in members):
            self._check_turns(members)
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

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        """Without its hash, which is another one in another process."""
        return {name: value for name, value in vars(self).items() if name != "_hash"}

    @cached_property
    def _hash(self) -> int:
        """Worked out once: that of very many clients takes its time."""
        return hash((self.clients, self.aggregate_at, self.epsilon, self.mixing, self.estimator))

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

    def _check_members(self) -> None:
        """Gateways: where each of their members adds its own noise, and the loss is exact."""
        if self.noise == "server":
            raise InvalidInput(
                "noise",
                "server with a gateway of several members",
                "client",
                "A gateway that adds no noise is one client: give it all samples, and no members.",
            )
        if self.objective != "exact":
            raise InvalidInput("objective", f"{self.objective!r} with several members", "exact")
        if self.knowledge is not None:
            raise InvalidInput("knowledge", "measured, with several members", "none, or levels")

    def _check_turns(self, members: tuple[Client, ...]) -> None:
        """What clients that rest in some rounds need: an estimate that goes on without them."""
        allowed = {
            "rounds": (self.rounds != 1, "more than one"),
            "estimator": (self.estimator == "best", "best"),
            "noise": (self.noise == "client", "client"),
            "level": (self.known.kind == "independent", "none"),
            "learner": (not counts_together(self.learner), "judged coordinate by coordinate"),
            "process": (all(m.process.homogeneous is not None for m in members), "MarkovChain"),
        }
        for name, (fits, words) in allowed.items():
            if not fits:
                raise InvalidInput(
                    "turn",
                    max(member.turn for member in members),
                    f"1, unless {name} is {words}",
                    "Between its turns a client's last release is all there is to go by.",
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
