"""The figures of the paper, and ours beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from agewise.report.drawing import COLOURS, MARKERS, STYLE, label_ends
from agewise.schemes import SchemeRow


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
