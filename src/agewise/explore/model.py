"""From choices to numbers: everything that the page computes, remembered, without a page."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from agewise.calibration import adversary, slot_table
from agewise.errors import InvalidInput
from agewise.explore.choices import Choices
from agewise.federation import run, run_rounds
from agewise.federation.journal import STATEMENT
from agewise.fitting.report import Fit
from agewise.mechanism import MECHANISMS
from agewise.planning import Plan, evaluate, plan
from agewise.planning.promise import epsilon_after
from agewise.privacy import Ageing
from agewise.problem import Problem
from agewise.scenario import dump_scenario, load_scenario
from agewise.scenarios import BUILT_IN

GRID = (0.01, 0.1, 1.0, 5.0, 0.03, 0.3, 3.0, 0.02, 0.05, 0.2, 0.5, 2.0)
"""Target ε's of the picture of losses, the coarse ones first."""
LATER = (0, 1, 2, 3, 5, 7, 10, 14, 20, 28, 40)
"""Slots after the publication at which ε about the present is shown, of one release."""
SHOWN_ROUNDS = 100
"""Rounds that are shown of a plan without end."""
CARRIED_OUT = 10
"""Rounds that are carried out for a statement, at most."""
REMEMBERED = 512
KEPT_UPLOADS = 8


@dataclass(frozen=True)
class Source:
    """A scenario to start from: its name on the page, what commands call it, and its fit."""

    key: str
    label: str
    problem: Problem
    argument: str | None
    """What commands take for it; None: only a file that has to be saved first."""
    fit: Fit | None = None
    recipe: tuple[str, str] | None = None
    """Python and command that made the fit."""


@dataclass(frozen=True)
class Loss:
    """The loss of a plan at one target, beside what a sensible person would get without it."""

    epsilon: float
    gap: float
    nothing_collected: float
    classical_fresh: float


@dataclass(frozen=True)
class Curve:
    """Losses by target ε, as far as they are known; `open` is how many are still to come."""

    losses: tuple[Loss, ...]
    open: int


@dataclass(frozen=True)
class Spent:
    """ε over time: the largest of any client, about the present and about every moment.

    `at` counts rounds, or slots after the publication of a single release. `classical` is the plain
    sum of what was released by then.
    """

    over: str
    at: tuple[int, ...]
    present: tuple[float, ...]
    every_moment: tuple[float, ...]
    classical: tuple[float, ...]


class Model:
    """The scenarios of one explorer, and what was computed for choices of them."""

    def __init__(self, scenario: str) -> None:
        self.sources = {name: Source(name, name, make(), name) for name, make in BUILT_IN.items()}
        self.first = scenario
        if scenario not in BUILT_IN:
            base = load_scenario(scenario)
            self.first = "scenario"
            self.sources["scenario"] = Source("scenario", base.name, base, scenario)
        self.plan = lru_cache(REMEMBERED)(self._plan)
        self.spent = lru_cache(REMEMBERED)(self._spent)
        self.statement = lru_cache(REMEMBERED)(self._statement)
        self._losses = lru_cache(REMEMBERED)(lambda _: dict[float, Loss]())

    def source(self, key: str | None) -> Source:
        """The scenario of that name; refuse one that is not here."""
        if key is None or key == "":
            key = self.first
        if key not in self.sources:
            raise InvalidInput(
                "source",
                repr(key),
                "one of " + ", ".join(self.sources),
                "Readings are forgotten when the explorer ends: give them again.",
            )
        return self.sources[key]

    def add(self, source: Source) -> None:
        """Offer another scenario; of many uploads the last ones are kept."""
        self.sources[source.key] = source
        uploaded = [key for key, one in self.sources.items() if one.fit is not None]
        for key in uploaded[:-KEPT_UPLOADS]:
            del self.sources[key]

    def read(self, query: Mapping[str, str]) -> Choices:
        """The choices of a query."""
        source = self.source(query.get("source"))
        return Choices.read(query, source.key, source.problem)

    def problem(self, choices: Choices) -> Problem:
        """The problem that was chosen."""
        return choices.problem(self.source(choices.source).problem)

    def scenario(self, choices: Choices) -> str:
        """The problem that was chosen, as a scenario file."""
        return dump_scenario(self.problem(choices))

    def _plan(self, choices: Choices) -> Plan:
        problem = self.problem(choices)
        slots = choices.slots(problem)
        return plan(problem) if slots is None else evaluate(problem, slots)

    def deltas(self, choices: Choices) -> dict[str, tuple[float, ...]]:
        """Δ of each client's records by age, from 0 on."""
        problem = self.problem(choices)
        return {
            client.name: tuple(slot_table(client, problem).delta[::-1].tolist())
            for client in problem.clients
        }

    def curve(self, choices: Choices, seconds: float = math.inf) -> Curve:
        """Losses over the grid and at the chosen ε, as many as the time allows; at least one."""
        found = self._losses(replace(choices, epsilon=1.0))
        until, wanted = time.monotonic() + seconds, [choices.epsilon, *GRID]
        for epsilon in wanted:
            if epsilon not in found:
                one = self.plan(replace(choices, epsilon=epsilon))
                found[epsilon] = Loss(epsilon, one.gap, one.nothing_collected, one.classical_fresh)
                if time.monotonic() > until:
                    break
        known = sorted({*wanted} & {*found})
        return Curve(tuple(found[one] for one in known), len({*wanted}) - len(known))

    def _spent(self, choices: Choices) -> Spent:
        """ε over time of the chosen plan; refuse it where that is not worked out."""
        made = self.plan(choices)
        problem = made.problem
        if MECHANISMS[problem.mechanism].approximate:
            raise InvalidInput(
                "mechanism", problem.mechanism, "laplace, for ε over time of both promises"
            )
        if problem.rounds == 1:
            return self._after_one(made)
        last = SHOWN_ROUNDS if problem.rounds is None else problem.rounds
        numbers = np.unique(np.geomspace(1, last, 10).round().astype(int)).tolist()
        return Spent(
            "rounds",
            tuple(numbers),
            tuple(epsilon_after(made, n, "present") for n in numbers),
            tuple(epsilon_after(made, n, "every_moment") for n in numbers),
            tuple(_plain_sum(made, n) for n in numbers),
        )

    @staticmethod
    def _after_one(made: Plan) -> Spent:
        """ε of a single release as time goes on: about the present it falls, ever about the past.

        Where slots differ, or Δ is known for some ages only, nothing is said of later slots.
        """
        problem = made.problem
        lasting = all(client.process.homogeneous is not None for client in problem.clients)
        at = LATER if lasting else (0,)
        present = np.zeros(len(at))
        for client, one in zip(problem.clients, made.assignments, strict=True):
            method, law = adversary(client, problem.mixing)
            aged = [one.aged_epsilon]
            for later in at[1:]:
                ageing = Ageing(client.process, one.age + later, method, law)
                spent = one.classical_epsilon
                # for a Markov process it never grows with time, whatever the calibration was
                aged.append(min(aged[-1], ageing.aged_epsilon(spent) if spent > 0 else 0.0))
            present = np.maximum(present, aged)
        classical = max(one.classical_epsilon for one in made.assignments)
        flat = (classical,) * len(at)
        return Spent("slots", at, tuple(present.tolist()), flat, flat)

    def _statement(self, choices: Choices) -> str:
        """The statement (Markdown) of a run of this plan on simulated records, with real noise."""
        made = self.plan(choices)
        if made.problem.rounds == 1:
            return run(made).statement.to_markdown()
        count = CARRIED_OUT if made.problem.rounds is None else made.problem.rounds
        with tempfile.TemporaryDirectory(prefix="agewise-") as folder:
            run_rounds(made, rounds=min(count, CARRIED_OUT), folder=Path(folder) / "run")
            return (Path(folder) / "run" / STATEMENT).read_text(encoding="utf-8")


def _plain_sum(made: Plan, rounds: int) -> float:
    """The largest classical sum of any client, over the rounds that it takes part in."""
    return max(
        one.classical_epsilon * -(-rounds // client.turn)
        for client, one in zip(made.problem.clients, made.assignments, strict=True)
    )
