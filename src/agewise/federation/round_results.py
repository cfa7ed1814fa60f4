"""What rounds end with: each of them, and all together."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agewise.checks import parse_json
from agewise.errors import InvalidInput
from agewise.federation.journal import RECORD
from agewise.federation.statement import refuse_earlier
from agewise.federation.training import training_of
from agewise.learning import judged
from agewise.loss.estimator import accuracy_of
from agewise.planning import Plan
from agewise.planning.plan import RIVALS
from agewise.planning.promise import epsilon_after, promise_in_words, rounds_in_words
from agewise.report.tables import counted, html_facts, shorten, text_facts
from agewise.wording import in_words, out_of_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VERSION = 1
ROUND = "round.json"


@dataclass(frozen=True)
class Round:
    """What came of one round.

    `published_at` counts slots from the first round's slot 1. `aggregate` is what this round tells
    by itself, `estimate` what all rounds heard tell together; the gaps are their expected squared
    errors. Of a model in training, `estimate` are the coefficients after the round, and the gap is
    the squared standard error of each. The ε's are the largest of any
    client, all rounds so far counted: `epsilon` about what is promised, `classical` the plain sum.
    None where nothing is private. `realised_loss` and the `truth` that was estimated are known for
    simulated records only.
    """

    number: int  #: from 1
    run: str  #: the run of this round
    published_at: int
    aggregate: tuple[float, ...]
    expected_gap: float  #: of `aggregate`
    estimate: tuple[float, ...]
    estimate_gap: float  #: of `estimate`
    realised_loss: float | None
    truth: tuple[float, ...] | None
    epsilon: float | None
    classical: float | None
    participants: int  #: clients that were heard
    missing: tuple[str, ...]  #: clients that were not


Heard = Callable[[Round, int], None]
"""(what came of a round, rounds in all)."""


@dataclass(frozen=True)
class RoundsResult:
    """The rounds that were carried out, in order."""

    run: str  #: its name
    plan: Plan  #: of each round
    rounds: tuple[Round, ...]  #: what came of each
    private: bool  #: whether all noise came from the real mechanism

    @property
    def model(self) -> Any:
        """What the learner makes of the last round's estimate."""
        return self.models[-1]

    @property
    def models(self) -> list[Any]:
        """What the learner makes of each round's estimate, or has learnt by then."""
        training = training_of(self.plan)
        if training is not None:
            found = []
            for one in self.rounds:
                training.add(one.aggregate, one.missing)
                found.append(training.learner.model)
            return found
        problem = self.plan.problem
        learner, states = problem.learner, problem.clients[0].process.states
        planned = accuracy_of(problem, self.plan.ages, self.plan.unheard)
        return [learner.decode(np.asarray(one.estimate), states, planned) for one in self.rounds]

    def moments(self, most: int = 16) -> list[tuple[int, float]]:
        """(round, ε) about any time, if every round so far had gone as planned; `most` rounds."""
        last = len(self.rounds)
        numbers = np.unique(np.geomspace(1, last, most).round().astype(int)).tolist()
        return [(n, epsilon_after(self.plan, n, "every_moment")) for n in numbers]

    @property
    def mean_loss(self) -> float | None:
        """The mean squared error of the estimates over the rounds, where the truth is known."""
        problem = self.plan.problem
        states = problem.clients[0].process.states
        off = [np.subtract(r.estimate, r.truth) for r in self.rounds if r.truth is not None]
        if len(off) < len(self.rounds):
            return None
        errors = np.square(judged(problem.learner, states, np.array(off))).sum(axis=1)
        return math.fsum(errors) / len(errors)

    def facts(self) -> list[tuple[str, str]]:
        """What there is to say about all rounds together."""
        last, plan = self.rounds[-1], self.plan
        unit = f" {plan.problem.release_unit}²" if plan.problem.release_unit else ""
        facts = [
            ("run", self.run),
            ("rounds", f"{len(self.rounds):,} of {rounds_in_words(plan.problem)}"),
            ("private", "yes" if self.private else "no: a seeded stand-in for noise"),
            ("ε is about", promise_in_words(plan.problem)),
        ]
        if last.epsilon is not None and last.classical is not None:
            most = max(one.epsilon or 0.0 for one in self.rounds)
            facts += [
                ("ε", f"{most:.6g} at most so far, any client; target {_target(plan)}"),
                ("classical ε", f"{last.classical:.6g} in all, the plain sum"),
            ]
        if training_of(plan) is not None:
            facts += [
                ("expected loss", f"{plan.gap:.6g} nats of log loss, in all rounds as planned"),
                ("standard error", f"{last.estimate_gap**0.5:.6g} of each coefficient, by noise"),
            ]
        else:
            heard = f"{last.estimate_gap:.6g}{unit} expected of the last estimate"
            facts += [
                ("expected loss", f"{plan.gap:.6g}{unit} {self._alone}"),
                ("all rounds heard", heard),
            ]
        if self.mean_loss is not None:
            facts.append(("mean loss", f"{self.mean_loss:.6g}{unit} of the estimates"))
        facts += [
            ("nothing collected", f"{plan.nothing_collected:.6g}{unit}, at ε = 0"),
            (RIVALS[plan.problem.noise], f"{plan.classical_fresh:.6g}{unit}, the target shared"),
            *plan.coverage(),
        ]
        absent = sum(len(one.missing) for one in self.rounds)
        if absent:
            facts.append(("missing", f"{counted(absent, 'upload')} in all"))
        return facts

    @property
    def _alone(self) -> str:
        taking_turns = any(client.turn > 1 for client in self.plan.problem.clients)
        return "from each client's last release alone" if taking_turns else "of a round by itself"

    def to_dict(self) -> dict[str, Any]:
        """Return the record of all rounds as plain data."""
        problem = self.plan.problem
        trained = {} if training_of(self.plan) is None else {"model": self.model.to_dict()}
        return {
            "version": VERSION,
            "run": self.run,
            "scenario": problem.name,
            "rounds_planned": problem.rounds,
            "every": problem.every,
            "promise": problem.promise,
            "target_epsilon": problem.epsilon,
            "private": self.private,
            "expected_gap": self.plan.gap,
            "mean_loss": self.mean_loss,
            **trained,
            "rounds": [in_words(asdict(one)) for one in self.rounds],
        }

    def to_json(self) -> str:
        """Return the record of all rounds as a JSON document."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def plot(self, path: Path | str | None = None) -> Figure:
        """Draw ε over time beside the classical sum, and the estimates; save it to `path`."""
        from agewise.federation.pictures import rounds_figure  # noqa: PLC0415  (matplotlib)
        from agewise.report.drawing import save_as  # noqa: PLC0415

        figure = rounds_figure(self)
        if path is not None:
            save_as(figure, path)
        return figure

    def __repr__(self) -> str:
        private = "private" if self.private else "not private: a seeded stand-in"
        return f"RoundsResult({shorten(self.run, 60)!r}, {len(self.rounds)} rounds, {private})"

    def __str__(self) -> str:
        return text_facts(self.facts())

    def _repr_html_(self) -> str:
        return html_facts(self.facts())


def _target(plan: Plan) -> str:
    """The target of a plan, with its δ if it has one."""
    failing = f" at δ = {plan.problem.delta:g}" if plan.problem.delta else ""
    return f"{plan.problem.epsilon:g}{failing}"


def finished_round(folder: Path) -> Round | None:
    """What came of a round that is done, from its folder."""
    try:
        document = parse_json((folder / ROUND).read_text(encoding="utf-8"))
        document = {name: out_of_words(value) for name, value in document.items()}
        for name in ("aggregate", "estimate", "truth"):
            if document[name] is not None:
                document[name] = tuple(float(value) for value in document[name])
        for name in ("expected_gap", "estimate_gap"):
            document[name] = float(document[name])
        for name in ("epsilon", "classical", "realised_loss"):
            document[name] = None if document[name] is None else float(document[name])
        document["missing"] = tuple(map(str, document["missing"]))
        return Round(**document)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(
            "run folder", f"{folder / ROUND} ({error})", "what the round wrote", "Remove the file."
        ) from None


def complete_record(folder: Path) -> dict[str, Any] | None:
    """The record of a round that has a model, from its folder; None if there is none yet."""
    try:
        record = parse_json((folder / RECORD).read_text(encoding="utf-8"))
        refuse_earlier(folder / RECORD, record["statement"])
        if not record["complete"]:
            return None
        for name in ("run", "model", "expected_gap", "realised_loss", "participants", "missing"):
            record[name]  # a KeyError says which is missing
        for client in record["statement"]["clients"]:
            client["total_aged_epsilon"], client["total_classical_epsilon"], client["client"]
    except FileNotFoundError:
        return None
    except InvalidInput:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(
            "run folder", f"{folder / RECORD} ({error!r})", "the record that the round wrote"
        ) from None
    return dict(record)


def aggregate_of(record: dict[str, Any]) -> tuple[float, ...]:
    """What a round published by itself."""
    model = record["model"]
    return tuple(float(x) for x in model) if isinstance(model, list) else (float(model),)


def latest(before: dict[str, Any] | None, statement: dict[str, Any]) -> dict[str, Any]:
    """A round's statement, with the rows of those who were in an earlier round only."""
    rows = {} if before is None else {one["client"]: one for one in before["clients"]}
    rows |= {one["client"]: one for one in statement["clients"]}
    return {**statement, "clients": list(rows.values())}


def spent_of(statement: dict[str, Any], told: dict[str, Any]) -> tuple[float | None, float | None]:
    """The largest ε of those in a round, and the largest classical sum of anybody so far."""
    aged = [one["total_aged_epsilon"] for one in statement["clients"]]
    sums = [one["total_classical_epsilon"] for one in told["clients"]]
    return (
        max((float(out_of_words(x)) for x in aged if x is not None), default=None),
        max((float(out_of_words(x)) for x in sums if x is not None), default=None),
    )


def rounds_statement(result: RoundsResult, last: dict[str, Any] | None) -> str:
    """The privacy statement of all rounds together; `last` is that of the last one, as data.

    It has a row for everybody who was ever in a round, as of the last one they were in.
    """
    if last is None:
        raise InvalidInput("rounds", 0, "one or more that are done")
    problem, rounds = result.plan.problem, result.rounds
    lines = [f"# Privacy statement of {len(rounds):,} rounds of run {result.run}", ""]
    lines += [f"**{last['trust']}**", ""]
    if not result.private:
        lines += ["**A seeded stand-in for noise was used. Nothing is private.**", ""]
    lines += [
        f"Planned: {rounds_in_words(problem)}; done: {len(rounds):,}. Target ε = "
        f"{_target(result.plan)}, about {promise_in_words(problem)}.",
        "",
        "| client | releases | ε of all of them | classical ε, the plain sum | each release, "
        "classical ε | noise scale |",
        "|---|---|---|---|---|---|",
    ]
    for one in last["clients"]:
        name = html.escape(one["client"], quote=False).replace("|", "\\|")
        numbers = [
            one[key]
            for key in ("total_aged_epsilon", "total_classical_epsilon", "classical_epsilon")
        ]
        told = ["none" if value is None else f"{float(value):.6g}" for value in numbers]
        failing = one["total_aged_delta"], one["total_classical_delta"], one["classical_delta"]
        told = [
            f"{said}, δ {float(failure):.3g}" if failure else said
            for said, failure in zip(told, failing, strict=True)
        ]
        scale = f"{one['noise_scale']:.6g}"
        lines.append(f"| {name} | {one['releases']} | {' | '.join(told)} | {scale} |")
    absent = sum(len(one.missing) for one in rounds)
    if absent:
        lines += ["", f"{counted(absent, 'upload')} missing in all; the rounds say of whom."]
    lines += ["", "What these numbers rest on:", ""]
    lines += [f"- {html.escape(note, quote=False)}" for note in last["notes"]]
    lines += [f"- {limit}" for limit in last["limits"]]
    lines += ["", f"Plan {result.plan.digest}", f"Last round {last['digest']}", ""]
    return "\n".join(lines)
