"""Who collects and uploads in which slot: as planned, and as it went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from agewise.federation import RunResult
from agewise.figures.style import COLOURS, MOST_ROWS, STYLE, verbatim
from agewise.plan import Plan


def timeline_figure(plan: Plan) -> Figure:
    """Figure 1: who collects and trains in which slot, and uploads at its end, up to t_agg."""
    clients = plan.assignments
    last = plan.problem.aggregate_at
    unit = f" {verbatim(plan.problem.unit)}" if plan.problem.unit else ""
    with rc_context(STYLE):
        if len(clients) > MOST_ROWS:
            figure = _crowd_figure(plan.collect_at, [])
        else:
            figure = Figure(figsize=(10, 1.8 + 0.45 * len(clients)), layout="constrained")
            axes = figure.subplots()
            for row, one in enumerate(clients):
                colour = COLOURS[row % len(COLOURS)]
                axes.barh(  # the edge shows where a slot is narrower than a dot
                    row,
                    1,
                    left=one.collect_at - 0.5,
                    height=0.6,
                    color=colour,
                    edgecolor=colour,
                    linewidth=1.5,
                )
                axes.annotate(
                    "",
                    (one.collect_at + 0.5, row - 0.42),
                    (one.collect_at + 0.5, row + 0.05),
                    arrowprops={"arrowstyle": "-|>", "color": "#333333", "linewidth": 1.6},
                )
            texts = [f"age {a.age}, noise scale {a.noise_scale:.3g}{unit}" for a in clients]
            _rows(axes, [one.client for one in clients], texts)
            axes.set_xlabel("slot (bar: collect, train, add noise; arrow: upload)")
        _slots(figure, last)
        square = f"{unit}²" if unit else ""
        figure.suptitle(
            f"{verbatim(plan.problem.name)}: a plan for ε = {plan.problem.epsilon:g}, "
            f"loss gap {plan.gap:.4g}{square}"
        )
    return figure


def _rows(axes: Axes, names: Sequence[str], texts: Sequence[str]) -> None:
    """Give each row its client's name on the left and a text on the right, with room for both."""
    axes.set_yticks(range(len(names)), [verbatim(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.7)
    axes.grid(axis="y", visible=False)
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(names)), texts)
    right.tick_params(length=0, labelsize=9)
    right.spines["right"].set_visible(False)


def _slots(figure: Figure, last: int) -> None:
    """Show the slots 1 to `last`, and where the server aggregates."""
    axes = figure.axes[0]
    axes.set_xlim(0.4, last + 0.5 + 0.03 * last)
    axes.axvline(last + 0.5, color="#333333", linewidth=1.4)
    axes.annotate(
        "server aggregates",
        (last + 0.5, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 4),
        textcoords="offset points",
        ha="right",
        fontsize=9,
    )
    if last <= 12:
        axes.set_xticks(range(1, last + 1))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_axisbelow(True)


def run_figure(result: RunResult) -> Figure:
    """A run as it went: who uploaded in which slot, who was missing, where it was planned anew."""
    problem = result.plan.problem
    last = problem.aggregate_at
    uploads = {step.client: step.slot for step in result.steps if step.what == "uploaded"}
    missed = [step for step in result.steps if step.what == "missing"]
    names = list(dict.fromkeys([*uploads, *(step.client for step in missed)]))
    with rc_context(STYLE):
        if len(names) > MOST_ROWS:
            figure = _crowd_figure(list(uploads.values()), [step.slot for step in missed])
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
            _rows(axes, names, [ages[n] if n in uploads else "left out" for n in names])
            axes.set_xlabel("slot (dot: upload, then the data age; cross: missed)")
        _slots(figure, last)
        unit = f" {verbatim(problem.unit)}" if problem.unit else ""
        figure.suptitle(
            f"{verbatim(problem.name)}: model {result.model:.5g}{unit} aggregated in slot {last}"
            + ("" if result.private else "\n(stand-in noise: not private)")
        )
    return figure


def _crowd_figure(uploads: list[int], missed: list[int]) -> Figure:
    """Uploads and misses by slot, for more clients than can be told apart."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    done, lost = Counter(uploads), Counter(missed)
    axes.bar(list(done), list(done.values()), color=COLOURS[0], ec=COLOURS[0], label="uploaded")
    if lost:
        below = [done[slot] for slot in lost]
        axes.bar(
            list(lost),
            list(lost.values()),
            bottom=below,
            color=COLOURS[1],
            ec=COLOURS[1],
            label="missed",
        )
        axes.legend(frameon=False)
    axes.set_ylabel("clients")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("slot")
    return figure
