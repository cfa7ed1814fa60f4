"""Plans and what they assign to each client: frozen data that travels as JSON."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agewise.arrays import Array
from agewise.checks import instance
from agewise.knowledge import Levels
from agewise.learning import Learner
from agewise.loss.estimator import known_mean, levels_left
from agewise.loss.tables import noise_counts, noise_power
from agewise.loss.training import is_trained
from agewise.mechanism import MECHANISMS
from agewise.planning.objectives import bound_of
from agewise.planning.promise import (
    coverage_in_words,
    promise_in_words,
    rounds_in_words,
)
from agewise.planning.proof import Proof, proof_to_data
from agewise.planning.text import Alike, fingerprint, numbered, plan_json
from agewise.problem import Problem
from agewise.report.tables import (
    MOST_SHOWN,
    counted,
    html_facts,
    html_table,
    left_out,
    shorten,
    text_facts,
    text_table,
)
from agewise.scheduling import Certificate
from agewise.scheduling.schedule import relative_gap
from agewise.wording import in_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VERSION = 4

EARLIER = ("bound", "bound_evaluation")
"""What plans of that version carried until this was left to `aw.loss_bound`."""


@dataclass(frozen=True)
class Assignment:
    """What one client does: when it collects, what it adds, and what that guarantees."""

    client: str  #: its name
    collect_at: int  #: the slot in which it collects
    age: int  #: of its data at aggregation, in slots
    delta: float  #: Δ: how much its data still say by then
    sensitivity: float  #: how far one record can move its release
    classical_epsilon: float  #: privacy of the release itself, ageing not counted
    noise_scale: float  #: of the noise it adds, in the unit of the release
    aged_epsilon: float  #: privacy about its records at aggregation
    fingerprint: str  #: of its process, by which both sides know that they mean the same

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data; infinities become the word "inf"."""
        finite = math.isfinite(self.classical_epsilon) and math.isfinite(self.aged_epsilon)
        return dict(vars(self)) if finite else dict(in_words(vars(self)))


@dataclass(frozen=True)
class Plan:
    """A schedule with its noise, what it costs, and what is proven about it.

    Certified search minimises the closed form whatever the problem's objective; `objective` and
    `lower_bound` refer to that. `nothing_collected` and `classical_fresh` are its rivals.
    """

    problem: Problem  #: what was planned for
    method: str  #: how the schedule was found
    assignments: tuple[Assignment, ...]  #: what each client does, in the problem's order
    objective: float  #: the value that was minimised, see `Problem.objective`
    lower_bound: float | None  #: an objective that no schedule can beat; None: nothing proven
    gap: float  #: the expected loss gap in closed form, in the unit squared
    notes: tuple[str, ...] = ()  #: what a reader should know: assumptions and warnings
    planned_from: int | None = None  #: the slot in which it was made anew; None: from the start
    collected: tuple[str, ...] = ()  #: clients that had collected already by then
    complete: bool = True  #: false if the search was interrupted
    unheard: tuple[str, ...] = ()  #: clients of whom nothing is heard
    #: loss of a server that publishes the mean it knows, whatever the ages of this plan
    nothing_collected: float = math.nan
    #: loss of fresh data with classical noise and the best use of what the server knows
    classical_fresh: float = math.nan
    #: what the server multiplies each release by: one number per client, or a list of one per
    #: coordinate; the weights, but for the estimator `best`
    gains: list[Any] = field(default_factory=list)
    #: what the server adds to that; 0, but for the estimator `best`
    offset: list[float] = field(default_factory=list)
    #: noise scale of the server's one draw (None: clients add their own); the clients' noise
    #: scales are then what that is for their own means
    draw_scale: float | None = None
    #: noise scales that clients were ordered before the plan was made anew
    promised: dict[str, float] = field(default_factory=dict)
    #: what earlier versions wrote besides: Theorem 1's bound, and how it was evaluated
    earlier: dict[str, Any] = field(default_factory=dict, compare=False)
    #: what shows the lower bound
    proof: Proof | None = field(default=None, compare=False)
    #: what checking the proof gave
    certificate: Certificate | None = field(default=None, compare=False)

    def at(self, learner: Learner) -> Plan:
        """The same plan for another round of a training, at the model so far."""
        return replace(self, problem=self.problem.replace(learner=learner))

    def as_written_with(self, other: Plan) -> Plan:
        """The same plan, as the version that wrote another one would write it."""
        if not other.earlier or self.earlier:
            return self
        bound = bound_of(self.problem, self.ages)
        told = (None, None) if bound is None else (float(bound), bound.evaluation)
        return replace(self, earlier=dict(zip(EARLIER, told, strict=True)))

    @property
    def bound(self) -> float | None:
        """Theorem 1's bound, evaluated anew: use `aw.loss_bound(problem, plan.ages)` instead."""
        told = "Plan.bound will go: use aw.loss_bound(problem, plan.ages)"
        warnings.warn(told, DeprecationWarning, stacklevel=2)
        return bound_of(self.problem, self.ages)

    @property
    def relative_gap(self) -> float | None:
        """How far from the best it can be at most, as a share of the objective."""
        return relative_gap(self.objective, self.lower_bound)

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
        """The noise scale of each client."""
        return [a.noise_scale for a in self.assignments]

    @property
    def trust(self) -> str:
        """Who adds the noise, and who is trusted with what."""
        if self.draw_scale is None:
            return "each client adds its own: nobody is trusted"
        unit = f" {self.problem.release_unit}" if self.problem.release_unit else ""
        return (
            f"the server adds it once, of scale {self.draw_scale:.6g}{unit}: it is trusted with "
            "every client's mean as it is"
        )

    @property
    def verdict(self) -> str | None:
        """What to do instead, where something simpler is as good; None where nothing is."""
        capacity = self.problem.capacity
        free = capacity is None or capacity >= len(self.assignments)
        fresh = self.classical_fresh if free else math.inf  # not all can collect at once
        return verdict(self.gap, self.nothing_collected, fresh, self._loss_unit)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data; infinities become the word "inf".

        Clients alike share their tables (process, law): copy it before changing one.
        """
        document = self._document()
        scenario, own = document["scenario"], document["assignments"]
        clients = scenario["clients"].expanded("name")
        return {
            **document,
            "scenario": {**scenario, "clients": clients},
            "assignments": own.expanded("client"),
        }

    @cached_property
    def kinds(self) -> list[int]:
        """Which kind each client is: those alike in all but names and weights, who do the same."""
        return self._numbered[0]

    @cached_property
    def _numbered(self) -> tuple[list[int], list[int]]:
        own = [[*vars(one).values()] for one in self.assignments]
        for told, kind in zip(own, self.problem.kinds, strict=True):
            told[0] = kind  # in the place of the name
        return numbered(own)

    def _document(self) -> dict[str, Any]:
        """Plain data, but for rows of clients: those alike once."""
        # pydantic is slow to import
        from agewise.scenario import clients_to_dicts, scenario_head  # noqa: PLC0415

        head, members = scenario_head(self.problem), self.problem.clients
        names, (kinds, first) = [one.name for one in members], self._numbered
        assigned = [self.assignments[place].to_dict() for place in first]
        processes, weights = [id(one.process) for one in members], [one.weight for one in members]
        alike, some = numbered(zip(self.problem.kinds, processes, weights, strict=True))
        told = clients_to_dicts([members[place] for place in some], "states" in head)
        return {
            "version": VERSION,
            "scenario": {**head, "clients": Alike(names, alike, told)},
            "method": self.method,
            "epsilon": self.problem.epsilon,
            "planned_from": self.planned_from,
            "collected": list(self.collected),
            "ages": self.ages,
            "collect_at": self.collect_at,
            "classical_epsilons": in_words(self.classical_epsilons),
            "noise_scales": self.noise_scales,
            "objective": self.objective,
            "lower_bound": self.lower_bound,
            "relative_gap": self.relative_gap,
            "gap": self.gap,
            "nothing_collected": self.nothing_collected,
            "classical_fresh": self.classical_fresh,
            "gains": self.gains,
            "offset": self.offset,
            "unheard": list(self.unheard),
            "draw_scale": self.draw_scale,
            "promised": self.promised,
            **self.earlier,
            "complete": self.complete,
            "notes": list(self.notes),
            "assignments": Alike([a.client for a in self.assignments], kinds, assigned),
            "proof": proof_to_data(self.proof),
        }

    def to_json(self) -> str:
        """Return the plan as a JSON document, which `from_json` reads back to an equal plan."""
        return plan_json(self._document())

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read a plan; refuse one of another version, or that its scenario or proof contradicts.

        Guarantees
            Slots, choices and proof are read; noise, privacy, gap, bounds and notes are computed
            anew from them, the lower bound by `check_schedule`. A document that says anything
            else is refused. Only an objective that was estimated by simulation is taken as told.
        """
        from agewise.planning.document import read_plan  # noqa: PLC0415  (it makes plans itself)

        return read_plan(text)

    @cached_property
    def digest(self) -> str:
        """A fingerprint of the whole plan, by which messages refer to it."""
        return fingerprint(self._document())

    def plot(self, path: Path | str | None = None) -> Figure:
        """Draw who collects in which slot; with `path` (PNG, SVG or PDF), also write it there."""
        from agewise.planning.timeline import timeline_figure  # noqa: PLC0415  (matplotlib is slow)
        from agewise.report.drawing import save_as  # noqa: PLC0415

        figure = timeline_figure(self)
        if path is not None:
            save_as(figure, path)
        return figure

    @property
    def title(self) -> str:
        """What the plan is for, in a line."""
        problem = self.problem
        again = "" if problem.rounds == 1 else f", {rounds_in_words(problem)}"
        return (
            f"{problem.name}: aggregate in slot {problem.aggregate_at}{again}, ε = "
            f"{problem.epsilon:g}"
        )

    def table(self, most: int | None = None) -> tuple[list[str], list[list[str]]]:
        """Headings, and a row for each client (of the first `most`)."""
        unit = self.problem.release_unit
        headings = ["client", "collect in slot", "age", "Δ", "classical ε", "aged ε"]
        rows = [
            [
                one.client,
                str(one.collect_at),
                str(one.age),
                f"{one.delta:.4f}",
                f"{one.classical_epsilon:.4g}",
                f"{one.aged_epsilon:.4g}",
                f"{one.noise_scale:.4g}",
            ]
            for one in self.assignments[:most]
        ]
        headings.append(f"noise scale ({unit})" if unit else "noise scale")
        turns = [client.turn for client in self.problem.clients]
        if max(turns) > 1:
            headings.append("one round in")
            rows = [[*row, str(turn)] for row, turn in zip(rows, turns, strict=False)]
        return headings, rows

    @property
    def _loss_unit(self) -> str:
        return f" {self.problem.release_unit}²" if self.problem.release_unit else ""

    @property
    def noise_gap(self) -> float:
        """How much of the loss is noise: of every client, or of the server's one draw."""
        problem = self.problem
        variance = MECHANISMS[problem.mechanism].variance
        if self.draw_scale is not None:
            return float(variance(np.asarray(self.draw_scale))) * noise_counts(problem)
        if is_trained(problem):
            power = variance(self._scales() * problem.weights).sum()
            return float(power) * noise_counts(problem)
        counts = problem.learner.weights(problem.clients[0].process.states)
        gains = np.asarray(self.gains, float).reshape(len(self.assignments), -1)
        each = zip(problem.clients, self.assignments, strict=True)
        power = np.array([noise_power(problem, one, own.noise_scale) for one, own in each])
        return float((np.square(gains) * counts * power[:, None]).sum())

    def _scales(self) -> Array:
        return np.array([one.noise_scale for one in self.assignments])

    def _noise_words(self) -> str:
        noise = self.noise_gap
        share = 100 * noise / self.gap if self.gap > 0 else 0.0
        return f"{noise:.6g} of it noise ({share:.2g} %)"

    def coverage(self) -> list[tuple[str, str]]:
        """What an ε is about and what not, and how well a release tells a level."""
        return [*coverage_in_words(self.problem), *self._level_fact()]

    def _level_fact(self) -> list[tuple[str, str]]:
        """How well a release tells the level, beside what a fresh one would."""
        if not isinstance(self.problem.known, Levels) or self.unheard:
            return []
        before, after = levels_left(self.problem, self.ages)
        _, fresh = levels_left(self.problem, [0] * len(self.ages))
        unit = f" {self.problem.release_unit}" if self.problem.release_unit else ""
        return [
            (
                "the level",
                f"standard deviation {before:.4g}{unit} before a release, {after:.4g}{unit} after "
                f"it ({fresh:.4g}{unit} after one of fresh data)",
            )
        ]

    @property
    def known_mean(self) -> list[float]:
        """What a server publishes that collects nothing: the mean that it knows."""
        return known_mean(self.problem, [0] * len(self.ages)).tolist()  # type: ignore[no-any-return]

    @property
    def next_step(self) -> str | None:
        """What to do about the verdict: a command, SCENARIO standing for the scenario planned."""
        if self.verdict is None:
            return None
        if self.verdict.startswith("Collect nothing"):
            mean = self.known_mean
            unit = f" {self.problem.release_unit}" if self.problem.release_unit else ""
            what = f"{mean[0]:.6g}{unit}" if len(mean) == 1 else "plan.known_mean"
            return f"Publish {what}, the mean that is known already; there is nothing to run."
        if self.problem.rounds != 1:
            return (
                'In Python: aw.run_rounds(aw.evaluate(problem.replace(estimator="best"), '
                "[problem.aggregate_at] * len(problem.clients)))"
            )
        return (
            "agewise plan SCENARIO --estimator best --ages 0 --out fresh && "
            "agewise run --plan fresh/plan.json"
        )

    def _searched_words(self, square: str) -> str:
        """What the bound is about, where a search followed the largest factors of levels only."""
        return (
            f"with the largest factors of the level only: {self.objective:.6g}{square}, which the "
            f"bound is about; with all of them the loss is {self.gap:.6g}{square}"
        )

    def _heard_fact(self) -> list[tuple[str, str]]:
        """What the estimate loses once many rounds have been heard."""
        from agewise.planning.heard import heard_gap  # noqa: PLC0415  (it is about plans)

        loss = heard_gap(self)
        told = f"{{:.6g}}{self._loss_unit}, the estimate from many rounds"
        return [] if loss is None else [("all rounds heard", told.format(loss))]

    def facts(self) -> list[tuple[str, str]]:
        """What there is to say besides the clients: loss, bounds, proof and notes."""
        square = self._loss_unit
        facts = [] if self.verdict is None else [("verdict", self.verdict)]
        facts.append(("noise", self.trust))
        if self.problem.rounds != 1 or self.problem.promise != "present":
            facts.append(("ε is about", promise_in_words(self.problem)))
        facts += self.coverage()
        capacity = self.problem.capacity
        crowded = capacity is not None and capacity < len(self.assignments)
        fresh = f"{self.classical_fresh:.6g}{square}, "
        fresh += "noise alone" if is_trained(self.problem) else "server's knowledge used"
        facts += [
            ("loss gap", f"{self.gap:.6g}{square}, {self._noise_words()}"),
            *self._heard_fact(),
            ("nothing collected", f"{self.nothing_collected:.6g}{square}, at ε = 0"),
            (RIVALS[self.problem.noise], fresh + ", whatever the capacity" * crowded),
        ]
        if self.earlier.get("bound") is not None:  # as reports of that time say
            bound, evaluation = self.earlier.values()
            facts.append(("Theorem 1 bound", f"{bound:.6g}{square} ({evaluation})"))
        if self.lower_bound is None:
            facts.append(("optimality", "nothing proven for this search"))
        else:
            which = "no schedule" if self.planned_from is None else "no schedule still open then"
            least = f"{which} has an objective below {self.lower_bound:.6g}{square}"
            facts.append(("optimality", f"{least} (relative gap {self.relative_gap:.2g})"))
            if isinstance(self.problem.known, Levels) and self.objective != self.gap:
                facts.append(("searched", self._searched_words(square)))
        if self.certificate is not None:
            facts.append(("proof", self.certificate.reason))
        return facts

    def __repr__(self) -> str:
        return (
            f"Plan({shorten(self.problem.name, 40)!r}, {counted(len(self.assignments), 'client')}, "
            f"{shorten(self.method, 20)}, ε = {self.problem.epsilon:g}, gap = {self.gap:.6g})"
        )

    def __str__(self) -> str:
        headings, rows = self.table(MOST_SHOWN)
        more = left_out(len(self.assignments))
        facts = [*self.facts(), *(("note", note) for note in self.notes)]
        return "\n".join([self.title, text_table(headings, rows, more), text_facts(facts)])

    def _repr_html_(self) -> str:
        more = left_out(len(self.assignments))
        facts = [*self.facts(), *(("note", note) for note in self.notes)]
        return html_table(self.title, *self.table(MOST_SHOWN), more) + html_facts(facts)


RIVALS = {"client": "classical, fresh, each client", "server": "classical, fresh, once"}
"""What anyone gets without ageing, by who adds the noise; the server uses what it knows."""

WORTH = 0.01
"""How much of the loss a plan must save over something simpler to be worth its while."""


def verdict(gap: float, nothing: float, fresh: float, unit: str) -> str | None:
    """Say what is as good as a plan of this loss and simpler: nothing collected, or fresh data."""
    if gap >= (1 - WORTH) * nothing and nothing * (1 - WORTH) <= fresh:
        known = f"{nothing:.6g}{unit}"
        return f"Collect nothing: what the server knows already loses {known}, at ε = 0."
    if gap > (1 - WORTH) * fresh:
        return (
            "Collect fresh data, and let the server use what it knows: that loses "
            f"{fresh:.6g}{unit} with classical noise (estimator best)."
        )
    return None


def as_plan(plan: Plan, field: str = "plan") -> Plan:
    """Return a plan, or refuse anything else."""
    return instance(field, plan, Plan, "a Plan", "Make one with aw.plan(problem).")
