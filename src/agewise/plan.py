"""Plans: who collects when and adds how much noise, as frozen data that travels as JSON."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from agewise.checks import whole
from agewise.errors import InvalidInput
from agewise.loss.bound import Evaluation, loss_bound
from agewise.loss.gap import CostTables, cost_tables
from agewise.noise import achieved_epsilon
from agewise.problem import Problem
from agewise.process import MeasuredLaw
from agewise.scenario import problem_from_dict, problem_to_dict
from agewise.scheduling import (
    Schedule,
    table_objective,
)

VERSION = 1

BARE = 10.0
"""ε beyond which a release protects hardly anything of what that ε is about."""

WEAK = 3.0
"""Target ε beyond which a plan says how far one release can change anyone's odds."""

BOUND_CLIENTS = 64
"""Clients beyond which a plan does not evaluate Theorem 1 unless it is the objective."""


@dataclass(frozen=True)
class Assignment:
    """What one client does: when it collects, what it adds, and what that guarantees."""

    client: str
    collect_at: int
    age: int
    delta: float
    sensitivity: float
    classical_epsilon: float
    noise_scale: float
    aged_epsilon: float
    fingerprint: str


@dataclass(frozen=True)
class Plan:
    """A schedule with its noise, what it costs, and what is proven about it.

    `objective` is the value that was minimised (see `Problem.objective`), `gap` the expected loss
    gap in closed form, `bound` Theorem 1 (None where it was not evaluated), `lower_bound` a value
    of `objective` that no schedule can beat (None: nothing proven). Certified search minimises
    the closed form whatever the problem's objective, and both refer to that.
    """

    problem: Problem
    method: str
    assignments: tuple[Assignment, ...]
    objective: float
    lower_bound: float | None
    relative_gap: float | None
    gap: float
    bound: float | None
    bound_evaluation: Evaluation | None
    notes: tuple[str, ...] = ()

    @property
    def ages(self) -> list[int]:
        """The age of each client's data at aggregation."""
        return [a.age for a in self.assignments]

    @property
    def collect_at(self) -> list[int]:
        """The slot in which each client collects."""
        return [a.collect_at for a in self.assignments]

    @property
    def classical_epsilons(self) -> list[float]:
        """The privacy of each client's release itself, ageing not counted."""
        return [a.classical_epsilon for a in self.assignments]

    @property
    def noise_scales(self) -> list[float]:
        """The Laplace scale of each client."""
        return [a.noise_scale for a in self.assignments]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data; infinities become the word "inf"."""
        return {
            "version": VERSION,
            "scenario": problem_to_dict(self.problem),
            "method": self.method,
            "epsilon": self.problem.epsilon,
            "ages": self.ages,
            "collect_at": self.collect_at,
            "classical_epsilons": _words(self.classical_epsilons),
            "noise_scales": self.noise_scales,
            "objective": self.objective,
            "lower_bound": self.lower_bound,
            "relative_gap": self.relative_gap,
            "gap": self.gap,
            "bound": self.bound,
            "bound_evaluation": self.bound_evaluation,
            "notes": list(self.notes),
            "assignments": [_words(vars(a).copy()) for a in self.assignments],
        }

    def to_json(self) -> str:
        """Return the plan as a JSON document, which `from_json` reads back to an equal plan."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    @property
    def digest(self) -> str:
        """A fingerprint of the whole plan, by which messages refer to it."""
        text = json.dumps(self.to_dict(), sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read a plan; refuse one of another version, or that its own scenario contradicts.

        Slots, noise, privacy and gap are computed anew. The lower bound is taken as told: to be
        sure of it, make the plan again.
        """
        try:
            document = json.loads(text, parse_constant=_no_constant)
        except ValueError as error:
            raise InvalidInput("plan", f"not JSON ({error})", "the output of to_json") from None
        version = document.get("version") if isinstance(document, dict) else None
        if version != VERSION:
            raise InvalidInput(
                "plan version", version, f"{VERSION}", "Make the plan again with this release."
            )
        try:
            assignments = tuple(Assignment(**_numbers(a)) for a in document["assignments"])
            made = cls(
                problem=problem_from_dict(document["scenario"]),
                assignments=assignments,
                notes=tuple(document["notes"]),
                **{
                    name: document[name]
                    for name in (
                        "method", "objective", "lower_bound", "relative_gap", "gap", "bound",
                        "bound_evaluation",
                    )
                },
            )  # fmt: skip
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidInput("plan", f"incomplete ({error})", "the output of to_json") from None
        if [a.client for a in assignments] != [c.name for c in made.problem.clients]:
            raise InvalidInput("assignments", "other clients", "one for each client, in order")
        for name in ("objective", "lower_bound", "relative_gap", "gap", "bound"):
            value = getattr(made, name)
            if not isinstance(value, int | float) and (
                value is not None or name in ("objective", "gap")
            ):
                raise InvalidInput(f"plan: {name}", value, "a number")
        made._refuse_contradictions(document)
        return made

    def _refuse_contradictions(self, document: dict[str, Any]) -> None:
        """Compute anew what the scenario and the slots imply, and compare."""
        last = self.problem.aggregate_at
        slots = [whole("collect_at", a.collect_at, 1, last) for a in self.assignments]
        found = Schedule(np.array(slots) - 1, 0.0, None, 0)
        fresh = assemble(self.problem, cost_tables(self.problem), found, self.method)
        for told, true in zip(self.assignments, fresh.assignments, strict=True):
            for name, value in asdict(true).items():
                _same(f"{name} of client {told.client!r}", getattr(told, name), value)
        for note in fresh.notes:
            if note not in self.notes:
                raise InvalidInput(
                    "plan: notes", f"without {note!r}", "all that its scenario implies",
                    "Make the plan again.",
                )  # fmt: skip
        _same("gap", self.gap, fresh.gap)
        if self.bound is not None:
            _same("bound", self.bound, fresh.bound)
        if self.problem.objective == "exact" or self.method == "certified":
            _same("objective", self.objective, fresh.gap)
        if self.lower_bound is not None and not self.lower_bound <= self.objective:
            raise InvalidInput("lower_bound", self.lower_bound, f"at most {self.objective}")
        crowd = max(slots.count(t) for t in slots)
        if self.problem.capacity is not None and crowd > self.problem.capacity:
            raise InvalidInput("collect_at", f"{crowd} clients in one slot", "the capacity")
        summary = json.loads(self.to_json())
        for name in set(document) | set(summary):
            if name not in ("assignments", "scenario"):
                _same(name, document.get(name, "missing"), summary.get(name, "unknown"))


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not a number of JSON")


def _same(name: str, told: Any, true: Any) -> None:
    """Refuse a value of a plan that differs from what its own scenario implies."""
    if isinstance(true, list) and isinstance(told, list) and len(true) == len(told):
        for one, other in zip(told, true, strict=True):
            _same(name, one, other)
        return
    numbers = isinstance(true, float) and isinstance(told, int | float)
    if told == true or (numbers and math.isclose(told, true, rel_tol=1e-9, abs_tol=1e-300)):
        return
    raise InvalidInput(
        f"plan: {name}", told, f"{true}, which its scenario implies", "Make the plan again."
    )


def assemble(
    problem: Problem, tables: CostTables, found: Schedule, method: str, notes: tuple[str, ...] = ()
) -> Plan:
    """Turn the columns that a search chose into a plan."""
    assignments: list[Assignment] = []
    for client, table, column in zip(
        problem.clients, tables.slots, found.columns.tolist(), strict=True
    ):
        age = problem.aggregate_at - 1 - column
        assignments.append(
            Assignment(
                client=client.name,
                collect_at=column + 1,
                age=age,
                delta=float(table.delta[column]),
                sensitivity=float(table.sensitivity[column]),
                classical_epsilon=float(table.classical_epsilon[column]),
                noise_scale=float(table.scale[column]),
                aged_epsilon=achieved_epsilon(client, problem, table, column),
                fingerprint=client.process.fingerprint,
            )
        )
    ages = [a.age for a in assignments]
    bound = None
    if problem.objective == "bound" or len(ages) <= BOUND_CLIENTS:
        bound = loss_bound(problem, ages)
    gap = float(table_objective(tables.u, tables.b)(found.columns[None])[0])
    notes = (*notes, *_warnings(problem, assignments))
    return Plan(
        problem=problem,
        method=method,
        assignments=tuple(assignments),
        objective=found.objective,
        lower_bound=found.lower_bound,
        relative_gap=found.relative_gap,
        gap=gap,
        bound=None if bound is None else float(bound),
        bound_evaluation=None if bound is None else bound.evaluation,
        notes=notes,
    )


def _warnings(problem: Problem, assignments: list[Assignment]) -> list[str]:
    """What someone who defends the plan's ε should know."""
    notes = [problem.origin] if problem.origin else []
    if problem.mixing in ("exact", "spectral"):
        other = [
            c.name
            for c, a in zip(problem.clients, assignments, strict=True)
            if c.law is not None
            and not np.allclose(c.law, c.process.law(a.collect_at), rtol=1e-6, atol=1e-9)
        ]
        if other:
            notes.append(
                f"Mixing {problem.mixing} takes the stationary law as the adversary's prior, but "
                f"{_listed(other)} start from another stated law: if the adversary knows that "
                "law, use own_law, or any_prior if you cannot say what they know."
            )
    measured = {
        (c.process.confidence, c.process.assumes)
        for c in problem.clients
        if isinstance(c.process, MeasuredLaw)
    }
    for confidence, assumes in sorted(measured):
        notes.append(
            f"Δ of measured laws is an upper limit at confidence {confidence:g}; it assumes "
            f"{assumes or 'what whoever measured them can tell: the scenario does not say'}."
        )
    if problem.epsilon > WEAK:
        notes.append(
            f"The target ε = {problem.epsilon:g} is weak: a release may change anyone's odds about "
            f"a record's present value by a factor of {_odds(problem.epsilon)} (e^ε)."
        )
    told = [a.client for a in assignments if a.aged_epsilon > BARE]
    if told:
        notes.append(
            f"Nothing of {_listed(told)} is protected: records as collected and their present "
            f"values are all but told outright (classical and aged ε above {BARE:g})."
        )
    bare = [a.client for a in assignments if a.classical_epsilon > BARE >= a.aged_epsilon]
    if bare:
        notes.append(
            f"Records collected by {_listed(bare)} are all but told outright (classical ε "
            f"above {BARE:g}): only their present values are protected."
        )
    return notes


def _odds(epsilon: float) -> str:
    """e^ε in words."""
    if epsilon > 15 * math.log(10):
        return "more than a thousand trillion"
    factor = math.exp(epsilon)
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if factor >= size:
            return f"about {factor / size:,.0f} {word}"
    return f"{factor:,.0f}"


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return (
        f"client {shown}"
        if len(names) == 1
        else (f"clients {shown}" + (f" and {len(names) - 3} more" if len(names) > 3 else ""))
    )


def _words(value: Any) -> Any:
    """JSON has no word for infinity: write one."""
    if isinstance(value, dict):
        return {k: _words(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_words(v) for v in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def _numbers(entry: dict[str, Any]) -> dict[str, Any]:
    return {k: math.inf if v == "inf" else v for k, v in entry.items()}
