"""The figures of the paper, and ours beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from agewise.paper.schemes import SchemeRow
from agewise.planning.compare import FRESH, NOTHING
from agewise.report.drawing import COLOURS, MARKERS, STYLE, label_ends

RIVALS: dict[str, dict[str, Any]] = {
    NOTHING: {"color": "#000000", "linestyle": ":", "linewidth": 2.2},
    FRESH: {"color": "#000000", "linestyle": (0, (6, 2)), "linewidth": 1.4},
}
"""How the lines of what one gets without us are drawn, in every figure of losses."""


def figure_2_figure(rows: list[dict[str, Any]], targets: dict[str, float]) -> Figure:
    """Figure 2: loss gap against one client's collection slot, the other two fresh."""
    names = list(dict.fromkeys(row["client"] for row in rows))
    series = {
        "printed": ("printed in the paper", "#888888", "x", "none"),
        "as_stated": (f"as stated, spectral Δ, ε = {targets['matched']:.4f}", COLOURS[1], "s", "-"),
        "exact_delta": (f"exact Δ, ε = {targets['found']:.4f}", COLOURS[0], "o", "-"),
    }
    rivals = {
        "nothing_collected": (f"{NOTHING}, ε = 0", RIVALS[NOTHING]),
        "classical_fresh": (f"{FRESH}, ε = {targets['found']:.4f}", RIVALS[FRESH]),
    }
    with rc_context(STYLE):
        figure = Figure(figsize=(11, 4.9), layout="constrained")
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
            for key, (label, drawn) in rivals.items():
                axes.plot(slots, [row[key] for row in points], label=label, **drawn)
            axes.set_title(name)
            axes.set_yscale("log")
            axes.set_xlabel("collection slot (10 = fresh)")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        grid[0].set_ylabel("loss gap (Wh²)")
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
        figure.suptitle("One client's collection slot varied (ring: its best slot)")
    return figure


def schemes_figure(rows: Sequence[SchemeRow], quantity: str, label: str) -> Figure:
    """Figures 3a and 3b: a quantity of the six schemes against the target, by uploads per slot.

    Losses stand beside what nothing collected loses, and fresh data with classical noise and the
    server's knowledge used, whatever the capacity.
    """
    readings = list(dict.fromkeys(row.reading for row in rows))
    with rc_context(STYLE):
        figure = Figure(figsize=(5.4 + 4.4 * len(readings), 5), layout="constrained")
        panels = figure.subplots(1, len(readings), sharey=True, squeeze=False)[0]
        for axes, reading in zip(panels, readings, strict=True):
            _draw_schemes(axes, [row for row in rows if row.reading == reading], quantity)
            axes.set_title(reading)
        if all(row[quantity] > 0 for row in rows):  # a zero has no place on a log axis
            panels[0].set_yscale("log")
        panels[0].set_ylabel(label)
        panels[-1].legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))
        figure.suptitle(f"{label} of the six schemes")
    return figure


def _draw_schemes(axes: Axes, rows: Sequence[SchemeRow], quantity: str) -> None:
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
    if quantity == "gap":
        once = [row for row in rows if row.scheme == rows[0].scheme]  # they are the same for all
        targets = [row.epsilon for row in once]
        known = [row.nothing_collected for row in once]
        axes.plot(targets, known, label=NOTHING, **RIVALS[NOTHING])
        fresh = [row.classical_fresh for row in once]
        whatever = "" if rows[0].capacity is None else ", whatever the capacity"
        axes.plot(targets, fresh, label=FRESH + whatever, **RIVALS[FRESH])
    axes.set_xscale("log")
    axes.set_xlabel("privacy target ε of every client")


def gains_figure(
    rows: list[dict[str, Any]], unit: str, title: str = "Less loss at the same privacy target"
) -> Figure:
    """Losses of best schedules against the target: a line for each column, rivals in black."""
    names = [name for name in rows[0] if name != "epsilon"]
    with rc_context(STYLE):
        figure = Figure(figsize=(9.6, 5.6), layout="constrained")
        axes = figure.subplots()
        targets = [row["epsilon"] for row in rows]
        ends = []
        for place, name in enumerate(names):
            drawn: dict[str, Any] = {
                "color": "#777777" if place == 0 else COLOURS[(place - 1) % len(COLOURS)],
                "linestyle": "--" if place == 0 else "-",
                "marker": None if place == 0 else MARKERS[(place - 1) % len(MARKERS)],
            }
            if name.startswith(NOTHING) or name == FRESH:
                drawn = RIVALS[FRESH if name == FRESH else NOTHING]
            values = [row[name] for row in rows]
            axes.plot(targets, values, markevery=4, markersize=4, **drawn)
            ends.append((targets[0], values[0], name, drawn["color"]))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("privacy target ε of every client (smaller is more private)")
        axes.set_ylabel(f"loss gap of the best schedule{f' ({unit}²)' if unit else ''}")
        axes.invert_xaxis()
        axes.set_title(title)
        axes.margins(x=0.02)
        label_ends(axes, ends)
    return figure
