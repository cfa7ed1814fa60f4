"""What a run did and what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from agewise.arrays import Array
from agewise.learning import Ridge, RidgeModel
from agewise.loss.training import is_trained
from agewise.mechanism import MECHANISMS
from agewise.report.drawing import (
    COLOURS,
    MOST_ROWS,
    STYLE,
    client_rows,
    crowd_figure,
    slot_axis,
    verbatim,
)

if TYPE_CHECKING:
    from agewise.federation.result import RunResult
    from agewise.federation.round_results import RoundsResult


def run_figure(result: RunResult) -> Figure:
    """A run as it went: who uploaded in which slot, who was missing, where it was planned anew."""
    problem = result.plan.problem
    last = problem.aggregate_at
    uploads = {step.client: step.slot for step in result.steps if step.what == "uploaded"}
    missed = [step for step in result.steps if step.what == "missing"]
    names = list(dict.fromkeys([*uploads, *(step.client for step in missed)]))
    with rc_context(STYLE):
        if len(names) > MOST_ROWS:
            figure = crowd_figure(list(uploads.values()), [step.slot for step in missed])
        else:
            figure = Figure(figsize=(9, 1.8 + 0.45 * len(names)), layout="constrained")
            axes = figure.subplots()
            for row, name in enumerate(names):
                lost = [step.slot for step in missed if step.client == name]
                axes.plot(lost, [row] * len(lost), "x", color=COLOURS[1], markersize=9)
                if name in uploads:
                    at = uploads[name]
                    axes.plot([at, last + 0.5], [row, row], color=COLOURS[0], lw=1, alpha=0.6)
                    axes.plot(at, row, "o", color=COLOURS[0], markersize=9)
            ages = {one.client: f"age {one.age}" for one in result.statement.clients}
            client_rows(axes, names, [ages[n] if n in uploads else "left out" for n in names])
            axes.set_xlabel("slot (dot: upload, then the data age; cross: missed)")
        slot_axis(figure, last)
        unit = f" {verbatim(problem.release_unit)}" if problem.release_unit else ""
        figure.suptitle(
            f"{verbatim(problem.name)}: {_model_words(result, unit)} aggregated in slot {last}"
            + ("" if result.private else "\n(stand-in noise: not private)")
        )
    return figure


def _model_words(result: RunResult, unit: str) -> str:
    kind = result.plan.problem.learner.kind
    return f"model {result.model:.5g}{unit}" if kind == "mean" else f"a {kind}"


def model_figure(result: RunResult) -> Figure:
    """The model of a learner of several coordinates, with the error that is expected of each."""
    problem = result.plan.problem
    labels, values, errors = _bars(result)
    with rc_context(STYLE):
        figure = Figure(figsize=(max(5.0, 0.5 * len(labels) + 2.5), 3.6), layout="constrained")
        axes = figure.subplots()
        place = np.arange(len(labels))
        axes.set_axisbelow(True)
        axes.bar(place, values, 0.7, color=COLOURS[0], alpha=0.75)
        axes.errorbar(place, values, 2 * errors, fmt="none", color="0.2", capsize=3)
        axes.axhline(0, color="0.5", lw=0.8)
        axes.set_xticks(place, [verbatim(label) for label in labels])
        unit = f" ({verbatim(problem.unit)})" if problem.unit else ""
        if problem.learner.kind == "histogram":
            axes.set_xlabel(f"state of a record{unit}")
            axes.set_ylabel("share of the records")
        elif problem.learner.kind == "ridge":
            axes.set_xlabel("feature")
            axes.set_ylabel("label per range of the feature")
        axes.set_title(f"{verbatim(problem.name)}: estimate ± 2 standard errors")
    return figure


def _bars(result: RunResult) -> tuple[list[str], Array, Array]:
    """Names, values and errors of the bars: slopes of a ridge regression, else coordinates."""
    problem, model = result.plan.problem, result.model
    if not isinstance(model, RidgeModel) or not isinstance(problem.learner, Ridge):
        labels = problem.learner.labels(problem.clients[0].process.states)
        values, errors = result.coordinates()
        return labels, np.asarray(values), errors
    ranges = np.ptp(problem.learner.known.rows, axis=0)  # slopes of other units side by side
    told = np.asarray(model.standard_errors or np.zeros(len(ranges)))
    return list(model.names), ranges * np.asarray(model.coefficients), ranges * told


def rounds_figure(result: RoundsResult) -> Figure:
    """ε over time beside the classical sum, and what was published in each round."""
    problem, rounds = result.plan.problem, result.rounds
    numbers = [one.number for one in rounds]
    with rc_context(STYLE):
        figure = Figure(figsize=(10, 6.4), layout="constrained")
        spent, told = figure.subplots(2, 1, sharex=True)
        if rounds[-1].epsilon is not None:
            aged = [one.epsilon or 0.0 for one in rounds]
            classical = [one.classical or 0.0 for one in rounds]
            spent.plot(numbers, classical, color=COLOURS[1], label="classical sum, worst")
            spent.plot(numbers, aged, color=COLOURS[0], label=f"ε ({problem.promise}), worst")
            if problem.promise != "every_moment" and not MECHANISMS[problem.mechanism].approximate:
                when, about = zip(*result.moments(), strict=True)
                label = "ε (every moment), as planned"
                spent.plot(when, about, color=COLOURS[2], linestyle="--", label=label)
            spent.axhline(problem.epsilon, color="#333333", linestyle=":", label="target")
            spent.set_yscale("log")
            spent.legend(loc="center right")
        else:
            spent.text(0.5, 0.5, "nothing is private here", transform=spent.transAxes, ha="center")
        spent.set_ylabel("ε of all rounds so far")
        unit = f" ({problem.release_unit})" if problem.release_unit else ""
        if is_trained(problem):
            unit = f": {problem.learner.labels(problem.clients[0].process.states)[0]}"
        value = np.array([one.estimate[0] for one in rounds])
        error = np.sqrt([one.estimate_gap for one in rounds])
        told.fill_between(numbers, value - error, value + error, color=COLOURS[0], alpha=0.2)
        told.plot(
            numbers,
            value,
            color=COLOURS[0],
            label="all rounds heard, ± expected error",
        )
        if all(one.truth is not None for one in rounds):
            truth = [one.truth[0] for one in rounds if one.truth is not None]
            told.plot(numbers, truth, color="#333333", linewidth=1.0, label="truth (simulated)")
        told.legend(loc="upper right")
        told.set_xlabel("round")
        told.set_ylabel(f"estimate{unit}")
        told.xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.suptitle(f"{problem.name}: {len(rounds)} rounds")
    return figure
