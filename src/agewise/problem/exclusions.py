"""Choices that do not go together: one table, of which everything that fails is told at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from agewise.checks import refuse_size
from agewise.errors import InvalidInput, named
from agewise.knowledge import Independent, Levels, Measured
from agewise.learning import Trained, counts_together
from agewise.mechanism import MECHANISMS
from agewise.mixing import MIXINGS
from agewise.privacy.continual import check_lasting


@dataclass(frozen=True)
class Trait:
    """Something that a problem has, and what it is called beside what does not go with it."""

    words: str
    holds: Callable[[Any], Any]


def _in_words(p: Any) -> str:
    """What is promised, where that is more than the present after one release."""
    return "many rounds" if p.rounds != 1 else f"the promise {p.promise}"


def _width(p: Any) -> int:
    """How many numbers are learnt of each record; 1 where the learner does not fit the states."""
    with suppress(InvalidInput):
        return int(p.learner.table(p.clients[0].process.states).shape[1])
    return 1


def _distinct(clients: Sequence[Any], by: Callable[[Any], Any]) -> list[Any]:
    """The first of all clients that are the same in some way."""
    first: dict[Any, Any] = {}
    for client in clients:
        first.setdefault(by(client), client)
    return list(first.values())


def _states(p: Any) -> set[tuple[float, ...]]:
    some = _distinct(p.clients, lambda c: id(c.process))
    return {tuple(one.process.states.tolist()) for one in some}


LASTING = Trait("{lasting}", lambda p: p.rounds != 1 or p.promise != "present")
APPROXIMATE = Trait("Gaussian noise", lambda p: MECHANISMS[p.mechanism].approximate)
LOOSE = Trait("mixing {p.mixing!r}", lambda p: not MIXINGS[p.mixing].allows_tight)
LEVEL = Trait("a level", lambda p: p.level)
MEASURED = Trait("measured knowledge", lambda p: p.knowledge is not None)
BEST = Trait("the server's knowledge used", lambda p: p.estimator == "best")
SERVER = Trait("noise by the server", lambda p: p.noise == "server")
GATEWAY = Trait("a gateway of several members", lambda p: any(c.members > 1 for c in p.clients))
WIDE = Trait("a {p.learner.kind}", lambda p: _width(p) > 1)
OTHER = Trait("a {p.learner.kind}", lambda p: p.learner.kind != "mean")
TRAINED = Trait("a {p.learner.kind} model", lambda p: isinstance(p.learner, Trained))
MIXED = Trait("clients of other states than each other", lambda p: len(_states(p)) > 1)
MIXED_WIDE = Trait(MIXED.words, lambda p: WIDE.holds(p) and MIXED.holds(p))


@dataclass(frozen=True)
class Exclusion:
    """What cannot be chosen for a field beside some traits; `chosen` empty: anything at all."""

    field: str
    chosen: tuple[Any, ...]
    beside: tuple[Trait, ...]
    allowed: str
    remedy: str = ""

    def of(self, p: Any) -> Iterator[InvalidInput]:
        """What is refused of a problem."""
        value = getattr(p, self.field)
        if value not in self.chosen if self.chosen else value is None:
            return
        shown = repr(value) if isinstance(value, str) else getattr(value, "kind", "given")
        shown = "without an end" if value is None else shown
        for trait in self.beside:
            if trait.holds(p):
                words = trait.words.format(p=p, lasting=_in_words(p))
                yield InvalidInput(self.field, f"{shown} with {words}", self.allowed, self.remedy)


TARGETS = (
    Exclusion(
        "calibration",
        ("tight",),
        (LOOSE,),
        "tight with mixing exact or own_law",
        "Use calibration sharp or formula, or another mixing.",
    ),
    Exclusion(
        "calibration",
        ("tight",),
        (LEVEL, APPROXIMATE),
        "sharp or formula",
        "Tight noise is for Laplace noise on states that everybody knows as they are.",
    ),
    Exclusion("calibration", ("tight", "formula"), (LASTING,), "sharp"),
    Exclusion("rounds", (None,), (APPROXIMATE,), "a number of them"),
)
"""What does not go together in the target of a client, and so in that of a problem."""

EXCLUSIONS = (
    Exclusion(
        "estimator",
        ("best",),
        (TRAINED,),
        "plain or propagated",
        "A server that knows the law of the records needs none of them to train.",
    ),
    Exclusion(
        "calibration",
        ("tight",),
        (WIDE,),
        "sharp or formula",
        "Tight noise is worked out for one number per record only.",
    ),
    Exclusion(
        "objective",
        ("bound", "simulated"),
        (LASTING, GATEWAY, WIDE, BEST, LEVEL, MEASURED, SERVER),
        "exact",
        "Theorem 1 and its simulation know weighted means of independent records, and noise by "
        "each client.",
    ),
    Exclusion(
        "noise",
        ("server",),
        (GATEWAY,),
        "client",
        "A gateway that adds no noise is one client: give it all samples, and no members.",
    ),
    Exclusion("learner", (), (MIXED_WIDE,), "the same states for every client"),
    Exclusion(
        "level",
        (),
        (MEASURED,),
        "one of the two",
        "Measured knowledge holds what clients share already.",
    ),
    Exclusion(
        "level",
        (),
        (OTHER,),
        "none, but with the learner mean",
        "A level moves readings, and other learners know states only. Measure what is known "
        "instead: agewise fit.",
    ),
    Exclusion(
        "estimator",
        ("propagated",),
        (LEVEL,),
        "best or plain",
        "Moving records forward shrinks what they share; gains do not.",
    ),
    Exclusion("knowledge", (), (GATEWAY, TRAINED, MIXED), "none"),
)
"""What does not go together in a problem: each row a choice, and what it does not go with."""


def _what_there_is(p: Any) -> AbstractContextManager[None]:
    """Of a problem in parts, what is about other parts is passed over."""
    return suppress(AttributeError) if isinstance(p, SimpleNamespace) else nullcontext()


def _target(p: Any) -> Iterator[InvalidInput]:
    """What does not go together in a target, or in a problem's part of it."""
    yield from _rows(TARGETS, p)
    if APPROXIMATE.holds(p) and not p.delta:
        remedy = "Far below one over the number of records, 1e-6 say."
        allowed = "above 0 and below 1, with Gaussian noise"
        yield InvalidInput("delta", "missing", allowed, remedy)
    if p.delta and not APPROXIMATE.holds(p):
        yield InvalidInput("delta", p.delta, "none with Laplace noise, which needs no δ")
    if p.promise != "present" and APPROXIMATE.holds(p):
        remedy = "What several (ε, δ) releases tell about earlier values is not worked out."
        yield InvalidInput("promise", f"{p.promise!r} with Gaussian noise", "present", remedy)


def excluded(p: Any) -> list[InvalidInput]:
    """Everything that does not go together in a problem, or in what there is of one."""
    return _told(p, _CHECKS)


def excluded_from_target(p: Any) -> list[InvalidInput]:
    """The same of a target."""
    return _told(p, [_target])


def _told(p: Any, checks: Sequence[Callable[[Any], Iterator[InvalidInput]]]) -> list[InvalidInput]:
    first: dict[tuple[str, str], InvalidInput] = {}
    for check in checks:
        try:
            with _what_there_is(p):
                for one in check(p):  # what is mended at once is told once
                    first.setdefault((one.field, one.allowed), one)
        except InvalidInput as bad:
            first.setdefault((bad.field, bad.allowed), bad)
    return list(first.values())


def _rows(table: Sequence[Exclusion], p: Any) -> Iterator[InvalidInput]:
    for row in table:
        with _what_there_is(p):
            yield from row.of(p)


def _pairs(p: Any) -> Iterator[InvalidInput]:
    return _rows(EXCLUSIONS, p)


def _rounds(p: Any) -> Iterator[InvalidInput]:
    """Rounds, and how often they are."""
    if p.rounds == 1:
        if p.every is not None:
            yield InvalidInput("every", p.every, "nothing for one round", "Give rounds too.")
    elif p.every is None:
        yield InvalidInput("every", "missing", "a number of slots", "How often is a round?")
    elif p.aggregate_at > p.every:
        allowed = f"1 to {p.every}, the slots from one round to the next"
        remedy = "A round collects between the publication before it and its own."
        yield InvalidInput("aggregate_at", p.aggregate_at, allowed, remedy)


def _lasting(p: Any) -> Iterator[InvalidInput]:
    """Many releases, or more than the present, need processes that are known and forget."""
    if not LASTING.holds(p):
        return
    for client in _distinct(p.clients, lambda c: (id(c.process), c.law is None)):
        with named(process=f"process of client {client.name!r}"):
            check_lasting(client.process, p.rounds)
        if p.rounds != 1 and p.every is not None and p.every % client.process.day:
            allowed = f"a multiple of {client.process.day} slots: whole days of the process"
            yield InvalidInput("every", p.every, allowed)
        if client.law is not None and (p.rounds != 1 or MIXINGS[p.mixing].takes_stated_law):
            yield InvalidInput(
                f"law of client {client.name!r}",
                "stated",
                f"none, with {_in_words(p)}",
                "From slot to slot records follow their process: leave the law out.",
            )


def _turns(p: Any) -> Iterator[InvalidInput]:
    """Clients that rest in some rounds need an estimate that goes on without them."""
    longest = max(c.turn for c in p.clients)
    needed = {
        "rounds is more than one": p.rounds != 1,
        "estimator is best": BEST.holds(p),
        "noise is client": not SERVER.holds(p),
        "level is none": not LEVEL.holds(p) and not MEASURED.holds(p),
        "learner is judged coordinate by coordinate": not counts_together(p.learner),
        "process is MarkovChain": all(c.process.homogeneous is not None for c in p.clients),
    }
    for words, fits in needed.items():
        if longest > 1 and not fits:
            remedy = "Where it rests, a client's last release is all there is to go by."
            yield InvalidInput("turn", longest, f"1, unless {words}", remedy)


def _names(p: Any) -> Iterator[InvalidInput]:
    name, times = Counter(c.name for c in p.clients).most_common(1)[0]
    if times > 1:
        yield InvalidInput("clients", f"{times} named {name!r}", "distinct names")


def _room(p: Any) -> Iterator[InvalidInput]:
    if p.capacity is not None and len(p.clients) > p.capacity * p.aggregate_at:
        yield InvalidInput(
            "capacity",
            p.capacity,
            f"at least {-(-len(p.clients) // p.aggregate_at)} for {len(p.clients)} clients in "
            f"{p.aggregate_at} slots",
            "Raise the capacity or aggregate later.",
        )


def _weights(p: Any) -> Iterator[InvalidInput]:
    given = [c.weight for c in p.clients if c.weight is not None]
    if given and (len(given) < len(p.clients) or abs(sum(given) - 1) > 1e-9):
        yield InvalidInput(
            "weight",
            f"given for {len(given)} of {len(p.clients)} clients, sum {sum(given):.9g}",
            "a weight for every client, summing to 1, or for none (then samples decide)",
        )


def _known(p: Any) -> Iterator[InvalidInput]:
    """The learner knows these states, and what is known is about these clients and slots."""
    yield from ()
    for client in _distinct(p.clients, lambda c: id(c.process)):
        p.learner.table(client.process.states)
    if p.level:
        held = 4 * 8.0 * p.aggregate_at**2  # correlations of each two slots, and their roots
        remedy = "Use longer slots, so that there are fewer; or leave the level out."
        refuse_size("aggregate_at", p.aggregate_at, held, remedy)
    names, states = [c.name for c in p.clients], p.clients[0].process.states
    known_of(p).check(names, p.aggregate_at, states, _width(p))


_CHECKS = (_names, _rounds, _lasting, _target, _pairs, _turns, _room, _weights, _known)


def known_of(p: Any) -> Independent | Measured | Levels:
    """What the server knows of means and covariances."""
    if p.knowledge is not None:
        known: Measured = p.knowledge
        return known
    return Levels(p.level) if p.level else Independent()
