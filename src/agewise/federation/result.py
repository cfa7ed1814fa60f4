"""What a run ends with: its record, whatever engine carried the messages."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

from agewise.arrays import Array
from agewise.documents import as_json, with_rows
from agewise.federation.happened import Outcome, RunIncomplete, Step
from agewise.federation.journal import RECORD, STATEMENT, RunFolder
from agewise.federation.one_draw import Sum
from agewise.federation.server import Server
from agewise.federation.sources import DataSource, Simulated, SimulatedRecords, present_sum
from agewise.federation.statement import Statement, published
from agewise.federation.training import training_of
from agewise.learning import RidgeModel, judged
from agewise.loss.estimator import accuracy_of, coordinate_gaps
from agewise.loss.training import is_trained, rehearsals
from agewise.planning import Plan
from agewise.planning.plan import RIVALS
from agewise.problem import Problem
from agewise.report.tables import counted, html_facts, shorten, text_facts

Watcher = Callable[[Step, int, int], None]
"""(what happened, slots closed, slots in all)."""


@dataclass(frozen=True)
class RunResult:
    """A finished run: the model, what was expected of it, and what it tells about whom.

    `model` is what the learner makes of the `aggregate`, the weighted mean of the uploads or the
    best estimate from them: a float for a mean, `Shares` for a histogram, an array for statistics,
    a `RidgeModel` for ridge.
    `plan` is the plan as it was carried out: without the missing, each in the slot it collected in.
    `realised_loss` is the squared distance to the mean of the clients' records in the aggregation
    slot, known only where those are simulated. `clipped` counts readings that
    the scenario's model does not explain, by client; it is not noised and therefore not part of the
    record. `odd`: there are some, so the expected loss does not apply.
    """

    run: str  #: its name
    plan: Plan
    model: Any
    aggregate: tuple[float, ...]
    realised_loss: float | None
    private: bool  #: whether all noise came from the real mechanism
    participants: tuple[str, ...]  #: clients that were heard
    missing: Mapping[str, str]  #: clients that were not, each with the reason
    rejected: Mapping[str, int]  #: uploads that were refused, by reason
    statement: Statement  #: what is told about whom
    steps: Sequence[Step]  #: what happened in each slot
    clipped: Mapping[str, int] = field(default_factory=dict)
    odd: bool = False

    def __repr__(self) -> str:
        private = "private" if self.private else "not private: a seeded stand-in"
        name = shorten(self.run, 60)
        return f"RunResult({name!r}, {counted(len(self.participants), 'client')}, {private})"

    def __str__(self) -> str:
        return text_facts(self.facts())

    def _repr_html_(self) -> str:
        return html_facts(self.facts())

    def to_html(self) -> str:
        """Return the run as one self-contained page: model, plan, pictures, statement, limits."""
        # this module is what it is about
        from agewise.federation.handover import run_page, run_pictures  # noqa: PLC0415

        return run_page(self, run_pictures(self))

    def facts(self) -> list[tuple[str, str]]:
        """What there is to say about the run."""
        problem = self.plan.problem
        unit = f" {problem.release_unit}" if problem.release_unit else ""
        labels = problem.learner.labels(problem.clients[0].process.states)
        if problem.learner.kind == "mean":
            model = f"{self.model:.6g}{unit}"
        elif isinstance(self.model, RidgeModel):
            model = ", ".join(f"{name}: {value}" for name, value in self.model.facts())
        else:
            pairs = zip(labels, self.coordinates()[0], strict=True)
            model = ", ".join(f"{label}: {value:.4g}" for label, value in pairs)
        square = f"{unit}²" if unit else ""
        verdict = self.plan.verdict
        facts = [] if verdict is None else [("verdict on the plan", verdict)]
        facts += [
            ("run", self.run),
            ("model", shorten(model, 300)),
            ("clients", counted(len(self.participants), "client")),
            ("private", "yes" if self.private else "no: a seeded stand-in for noise"),
            ("trust", self.statement.trust),
            ("expected loss", ODD_WORDS if self.odd else f"{self.plan.gap:.6g}{square}"),
            ("nothing collected", f"{self.plan.nothing_collected:.6g}{square}, at ε = 0"),
            (RIVALS[problem.noise], dict(self.plan.facts())[RIVALS[problem.noise]]),
        ]
        if self.realised_loss is not None:
            facts.append(("this run's loss", f"{self.realised_loss:.6g}{square}"))
        return [*facts, *self.plan.coverage()]

    def coordinates(self) -> tuple[tuple[float, ...], Array]:
        """What there is to show of the model, coordinate by coordinate, and the standard errors."""
        problem = self.plan.problem
        if is_trained(problem):
            return self.model.vector, np.full(len(self.model.vector), self.model.standard_error)
        return self.aggregate, np.sqrt(coordinate_gaps(problem, self.plan.ages))

    def plot(self, path: Path | str | None = None) -> Figure:
        """Draw the model with error bars, or for a mean who uploaded when; save it to `path`."""
        # matplotlib takes half a second to import
        from agewise.federation.pictures import model_figure, run_figure  # noqa: PLC0415
        from agewise.report.drawing import save_as  # noqa: PLC0415

        figure = model_figure(self) if len(self.aggregate) > 1 else run_figure(self)
        if path is not None:
            save_as(figure, path)
        return figure

    def to_dict(self) -> dict[str, Any]:
        """Return the run record as plain data."""
        return {
            **self._head(),
            "collect_at": self._collected(),
            "participants": list(self.participants),
            "statement": self.statement.to_dict(),
            "steps": [step._asdict() for step in self.steps],
        }

    def _collected(self) -> dict[str, int]:
        silent = set(self.plan.unheard)
        asked = self.plan.assignments
        return {one.client: one.collect_at for one in asked if one.client not in silent}

    def _head(self) -> dict[str, Any]:
        """The record, but for whatever there is of each client."""
        return {
            "version": 1,
            "run": self.run,
            "complete": True,
            "scenario": self.plan.problem.name,
            "model": published(self.plan.problem.learner, self.aggregate),
            **({"fitted": self.model.to_dict()} if isinstance(self.model, RidgeModel) else {}),
            "expected_gap": self.plan.gap,
            **({"readings": NOT_AS_MODELLED} if self.odd else {}),
            "nothing_collected": self.plan.nothing_collected,
            "classical_fresh": self.plan.classical_fresh,
            "collect_at": {},
            "realised_loss": self.realised_loss,
            "private": self.private,
            "participants": [],
            "missing": dict(self.missing),
            "rejected": dict(self.rejected),
            "statement": self.statement.head(),
            "steps": [],
        }

    def to_json(self) -> str:
        """Return the run record as a JSON document."""
        return "".join(self.pieces())

    def pieces(self, **more: Any) -> Iterator[str]:
        """The run record as a JSON document, bit by bit, with `more` entries at its end."""
        collected = self._collected().items()
        steps = (json.dumps(step._asdict()) for step in self.steps)
        return with_rows(
            {**self._head(), **more},
            {
                '"collect_at": {}': (f"{json.dumps(name)}: {slot}" for name, slot in collected),
                '"participants": []': map(json.dumps, self.participants),
                '"clients": []': self.statement.clients.texts(),
                '"steps": []': steps,
            },
        )


NOT_AS_MODELLED = "odd"
"""The word in a record for readings that the scenario's model does not expect."""

ODD_WORDS = "does not apply: readings are not as the scenario's model has them"

ODD_NOTE = (
    "The expected loss does not apply: readings of some clients are neither states nor states "
    "that one common level has moved, as the scenario's model expects. No ε rests on that."
)


def unexpected(problem: Problem, clipped: Mapping[str, int]) -> bool:
    """Whether clients have readings that their scenario's model does not explain.

    States of measured laws and measured knowledge stand for ranges of readings.
    """
    if problem.knowledge is not None:
        return False
    kinds = {client.name: client.process.kind for client in problem.clients}
    return any(count and kinds[name] != "measured" for name, count in clipped.items())


def conclude(
    server: Server,
    place: RunFolder | None,
    source: Callable[[str], DataSource] | None,
    clipped: Mapping[str, int],
    draw: Callable[[Sum], tuple[float, ...]] | None,
    *,
    odd: bool = False,
) -> RunResult:
    """Aggregate, write record and statement, and return the result; raise if there is none.

    `odd`, or `clipped` readings: the expected loss does not apply, and the record gets a word.
    `source` gives a client's records, for the realised loss; None where they are not to be had.
    `draw` adds the noise, where the server does that.
    """
    if place is not None and server.first_plan.problem.server_adds_noise:
        place.sync()
    try:
        outcome = server.finish(draw)
    except RunIncomplete as failure:
        if place is not None:
            statement = server.state(None)
            place.write(STATEMENT, statement.to_markdown())
            record = failed_record(server, statement, str(failure))
            place.write(RECORD, as_json({**record, **_earlier(place)}))
        raise
    odd = odd or unexpected(server.first_plan.problem, clipped)
    statement = outcome.statement
    if odd:
        statement = replace(statement, notes=(*statement.notes, ODD_NOTE))
    result = RunResult(
        run=server.run,
        plan=outcome.plan,
        model=_model(server.first_plan, outcome, server.missing),
        aggregate=outcome.aggregate,
        realised_loss=None if source is None else _realised(server, outcome, source),
        private=server.private,
        participants=outcome.participants,
        missing=dict(server.missing),
        rejected=dict(server.rejected),
        statement=statement,
        steps=server.steps,
        clipped=dict(clipped),
        odd=odd,
    )
    if place is not None:
        place.write(STATEMENT, result.statement.to_markdown())
        place.write(RECORD, result.pieces(**_earlier(place)))
    return result


def _model(plan: Plan, outcome: Outcome, missing: Collection[str]) -> Any:
    """What the learner makes of an aggregate, or has learnt by a step against it."""
    training = training_of(plan)
    if training is None:
        states, followed = plan.problem.clients[0].process.states, outcome.plan
        accuracy = accuracy_of(followed.problem, followed.ages, followed.unheard)
        return plan.problem.learner.decode(np.asarray(outcome.aggregate), states, accuracy)
    training.add(outcome.aggregate, missing)
    return training.learner.model


def _earlier(place: RunFolder) -> dict[str, Any]:
    return {"earlier_failures": place.failures} if place.failures else {}


def failed_record(server: Server, statement: Statement, why: str) -> dict[str, Any]:
    """Return the record of a run that ended without a model, as plain data."""
    return {
        "version": 1,
        "run": server.run,
        "complete": False,
        "failure": why,
        "rejected": dict(server.rejected),
        "steps": [step._asdict() for step in server.steps],
        "statement": statement.to_dict(),
    }


def _realised(
    server: Server, outcome: Outcome, source: Callable[[str], DataSource]
) -> float | None:
    """The squared distance of the model to what it estimates, where that is known."""
    problem = server.first_plan.problem
    if not problem.known.drawable:
        return None  # of measured knowledge there are no records to draw
    trained = is_trained(problem)
    if trained and problem.rounds != 1:
        return None  # no round of a training has a loss of its own
    records = map(source, outcome.weights)
    simulated = isinstance(source, Simulated)
    if not simulated and not all(isinstance(one, SimulatedRecords) for one in records):
        return None  # what real records are now is nobody's business
    truth = present_sum(problem, source, outcome.weights, outcome.collected)  # type: ignore[arg-type]
    off = np.asarray(outcome.aggregate) - truth
    if trained:
        errors = [np.square(one.first @ off).sum() for one in rehearsals(problem)]
        return math.fsum(errors) / len(errors)
    states = problem.clients[0].process.states
    return float(np.square(judged(problem.learner, states, off)).sum())
