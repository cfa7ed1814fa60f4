"""Plots of data that were computed elsewhere. Nothing is computed here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from agewise.federation import RunResult
from agewise.fitting.report import Fit
from agewise.planning.timeline import timeline_figure
from agewise.report.drawing import (
    COLOURS,
    MARKERS,
    MOST_ROWS,
    STYLE,
    client_rows,
    crowd_figure,
    label_ends,
    prepare_folder,
    save,
    save_csv,
    slot_axis,
    verbatim,
)
from agewise.schemes import SchemeRow

__all__ = [
    "ageing_figure",
    "figure_2_figure",
    "fit_figure",
    "gains_figure",
    "prepare_folder",
    "run_figure",
    "save",
    "save_csv",
    "schemes_figure",
    "timeline_figure",
]


def ageing_figure(
    clients: Sequence[str], curves: dict[str, list[tuple[Any, Any]]], epsilon: float, unit: str
) -> Figure:
    """Δ and needed noise against age: two panels for each client, a line for each method.

    `curves[method][i]` is (Δ by age, noise scale by age) of client i. Noise differs by orders of
    magnitude between clients of different size, so each client has its own axis for it.
    """
    shown = clients[:MOST_ROWS]
    columns = min(len(shown), max(4, math.ceil(math.sqrt(2 * len(shown)))))
    bands = math.ceil(len(shown) / columns)
    with rc_context(STYLE):
        width = max(7.0, 2.9 * columns + 1.6)  # room for title and legend over one panel, too
        figure = Figure(figsize=(width, 4.6 * bands + 1), layout="constrained")
        grid = figure.subplots(2 * bands, columns, squeeze=False)
        for panel in grid.flat[2 * columns * (bands - 1) :]:
            panel.set_visible(False)  # until a client takes it: the last band may have gaps
        for place, name in enumerate(shown):
            band, column = divmod(place, columns)
            top, bottom = grid[2 * band, column], grid[2 * band + 1, column]
            for (method, series), colour, marker in zip(
                curves.items(), COLOURS, MARKERS, strict=False
            ):
                delta, scale = series[place]
                every = math.ceil(len(delta) / 24)
                for panel, values in ((top, delta), (bottom, scale)):
                    panel.plot(values, color=colour, marker=marker, markevery=every, label=method)
            top.set_title(verbatim(name), fontsize=9)
            top.set_ylim(0, 1.05)
            bottom.set_ylim(bottom=0)
            bottom.set_xlabel("age of the data (slots)")
            for panel in (top, bottom):
                panel.set_visible(True)
                panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
            if column == 0:
                top.set_ylabel("Δ: what old data still tell")
                bottom.set_ylabel(f"noise scale{f' ({verbatim(unit)})' if unit else ''}")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, title="Δ by", loc="outside right upper", frameon=False)
        more = "" if len(shown) == len(clients) else f"; {len(shown)} of {len(clients)} clients"
        figure.suptitle(
            f"Older data need less noise for the same privacy\n(target ε = {epsilon:g}{more})"
        )
    return figure


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
        unit = f" {verbatim(problem.unit)}" if problem.unit else ""
        figure.suptitle(
            f"{verbatim(problem.name)}: {_model_words(result, unit)} aggregated in slot {last}"
            + ("" if result.private else "\n(stand-in noise: not private)")
        )
    return figure


def _model_words(result: RunResult, unit: str) -> str:
    kind = result.plan.problem.learner.kind
    return f"model {result.model:.5g}{unit}" if kind == "mean" else f"a {kind}"


def fit_figure(made: Fit) -> Figure:
    """What the readings say beside what a fitted chain would promise, and the limits used."""
    measured = made.kind == "measured"
    with rc_context(STYLE):
        figure = Figure(figsize=(12.5 if measured else 6.5, 4.3), layout="constrained")
        grid = figure.subplots(1, 2 if measured else 1, sharey=True, squeeze=False)[0]
        lags = [one.lag for one in made.assumptions.lags]
        axes = grid[0]
        for label, values, colour, marker in (
            ("measured", [one.measured for one in made.assumptions.lags], COLOURS[1], "s"),
            (
                "powers of the fitted chain",
                [one.chain for one in made.assumptions.lags],
                COLOURS[0],
                "o",
            ),
        ):
            axes.plot(
                range(len(lags)),
                values,
                color=colour,
                marker=marker,
                label=label,
                linestyle=(0, (1, 3)),
                linewidth=1,
            )
        axes.set_xticks(range(len(lags)), [str(lag) for lag in lags])
        axes.set_xlabel("lag (slots, not to scale)")
        axes.set_ylabel("Δ: what old readings still tell")
        axes.set_ylim(0, 1.05)
        axes.legend(frameon=False, fontsize=9)
        axes.set_title("Median over entities, all times of day")
        if measured:
            axes = grid[1]
            for place, client in enumerate(made.clients[: len(COLOURS)]):
                ages = range(len(client.limits) - 1, -1, -1)
                name = verbatim(client.name)
                axes.plot(ages, client.limits, color=COLOURS[place], label=name)
                axes.plot(ages, client.estimates, color=COLOURS[place], linestyle=":")
            axes.set_xlabel("age at aggregation (slots)")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.set_title(
                f"Limits at {made.confidence:.0%} (solid) and measured (dotted)\n"
                f"adversary: {made.adversary}, sampled: {made.sampled}"
            )
            more = len(made.clients) - len(COLOURS)
            axes.legend(
                frameon=False,
                fontsize=9,
                loc="upper left",
                bbox_to_anchor=(1, 1),
                title=f"{len(COLOURS)} of {len(made.clients)} clients" if more > 0 else None,
            )
    return figure


def figure_2_figure(rows: list[dict[str, Any]], targets: dict[str, float]) -> Figure:
    """Figure 2: loss gap against one client's collection slot, the other two fresh."""
    names = list(dict.fromkeys(row["client"] for row in rows))
    series = {
        "printed": ("printed in the paper", "#888888", "x", "none"),
        "as_stated": (f"as stated, spectral Δ, ε = {targets['matched']:.4f}", COLOURS[1], "s", "-"),
        "exact_delta": (f"exact Δ, ε = {targets['found']:.4f}", COLOURS[0], "o", "-"),
    }
    with rc_context(STYLE):
        figure = Figure(figsize=(11, 4.1), layout="constrained")
        grid = figure.subplots(1, len(names), sharey=True)
        for axes, name in zip(grid, names, strict=True):
            points = [row for row in rows if row["client"] == name]
            slots = [row["collect_at"] for row in points]
            for key, (label, colour, marker, line) in series.items():
                values = [row[key] for row in points]
                axes.plot(slots, values, color=colour, marker=marker, linestyle=line, label=label)
                if key != "printed":
                    low = min(range(len(values)), key=values.__getitem__)
                    axes.plot(
                        slots[low],
                        values[low],
                        "o",
                        markersize=12,
                        markeredgecolor=colour,
                        markerfacecolor="none",
                        markeredgewidth=1.6,
                    )
            axes.set_title(name)
            axes.set_yscale("log")
            axes.set_xlabel("collection slot (10 = fresh)")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        grid[0].set_ylabel("loss gap (Wh²)")
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
        figure.suptitle("One client's collection slot varied (ring: its best slot)")
    return figure


def schemes_figure(rows: Sequence[SchemeRow], quantity: str, label: str) -> Figure:
    """Figures 3a and 3b: a quantity of the six schemes against the target."""
    with rc_context(STYLE):
        figure = Figure(figsize=(8.2, 5), layout="constrained")
        axes = figure.subplots()
        for place, scheme in enumerate(sorted({row.scheme for row in rows})):
            chosen = [row for row in rows if row.scheme == scheme]
            axes.plot(
                [row.epsilon for row in chosen],
                [row[quantity] for row in chosen],
                color=COLOURS[place],
                marker=MARKERS[place],
                linestyle="--" if scheme % 2 else "-",
                linewidth=5.5 - 0.7 * scheme,  # thick ones first, so that those behind still show
                markersize=9 - 0.7 * scheme,
                label=f"{scheme}) {chosen[0].name}",
            )
        axes.set_xscale("log")
        if all(row[quantity] > 0 for row in rows):  # a zero has no place on a log axis
            axes.set_yscale("log")
        axes.set_xlabel("privacy target ε of every client")
        axes.set_ylabel(label)
        axes.legend(frameon=False, fontsize=9)
        axes.set_title(f"{label} of the six schemes")
    return figure


def gains_figure(rows: list[dict[str, Any]], unit: str) -> Figure:
    """Gap of the best schedule against the target, for each way of setting the noise."""
    names = [name for name in rows[0] if name != "epsilon"]
    with rc_context(STYLE):
        figure = Figure(figsize=(8.6, 5), layout="constrained")
        axes = figure.subplots()
        targets = [row["epsilon"] for row in rows]
        ends = []
        for place, name in enumerate(names):
            colour = "#777777" if place == 0 else COLOURS[(place - 1) % len(COLOURS)]
            values = [row[name] for row in rows]
            axes.plot(
                targets,
                values,
                color=colour,
                linestyle="--" if place == 0 else "-",
                marker=None if place == 0 else MARKERS[(place - 1) % len(MARKERS)],
                markevery=4,
                markersize=4,
            )
            ends.append((targets[0], values[0], name, colour))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("privacy target ε of every client (smaller is more private)")
        axes.set_ylabel(f"loss gap of the best schedule{f' ({unit}²)' if unit else ''}")
        axes.invert_xaxis()
        axes.set_title("Less loss at the same privacy target")
        axes.margins(x=0.02)
        label_ends(axes, ends)
    return figure
