"""Whether collecting is worth its while, and whether waiting is."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agewise.planning.plan import WORTH
from agewise.report.drawing import COLOURS, STYLE

REGIONS = (
    ("collect nothing", "#bbbbbb"),
    ("collect fresh", COLOURS[4]),
    ("let data age", COLOURS[0]),
)


def worth_figure(rows: list[dict[str, Any]], unit: str) -> Figure:
    """What to do at each target and for each level: nothing, fresh, or aged."""
    panels = {
        "loading": (
            f"size of the common level: standard deviation ({unit})",
            "98 % of the level remains per slot",
        ),
        "half_life": (
            "memory of the common level: half-life (slots)",
            f"a common level of 20 {unit}",
        ),
    }
    with rc_context(STYLE):
        figure = Figure(figsize=(12, 5), layout="constrained")
        for axes, (varied, (label, title)) in zip(
            figure.subplots(1, 2), panels.items(), strict=True
        ):
            _regions(axes, [row for row in rows if row["varied"] == varied])
            axes.set_xlabel("privacy target ε of every client (smaller is more private)")
            axes.set_ylabel(label)
            axes.set_title(title)
        figure.suptitle(
            "What to do (on the lines: loss of the best plan, as a share of the least that\n"
            "nothing collected or fresh data with classical noise would lose)",
        )
    return figure


def _regions(axes: Axes, rows: list[dict[str, Any]]) -> None:
    targets = sorted({row["epsilon"] for row in rows})
    sizes = sorted({row["size"] for row in rows})
    shape = (len(sizes), len(targets))
    ordered = sorted(rows, key=lambda row: (row["size"], row["epsilon"]))
    gap, nothing, fresh = (
        np.reshape([row[name] for row in ordered], shape)
        for name in ("gap", "nothing_collected", "classical_fresh")
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_facecolor((REGIONS[2][1], 0.35))
    limit = [1 - WORTH, 2.0]
    axes.contourf(targets, sizes, gap / fresh, limit, colors=["white"])
    axes.contourf(targets, sizes, gap / fresh, limit, colors=[REGIONS[1][1]], alpha=0.45)
    axes.contourf(targets, sizes, gap / nothing, limit, colors=[REGIONS[0][1]])
    share = gap / np.minimum(nothing, fresh)
    levels = [0.25, 0.5, 0.75, 0.9]
    saved = axes.contour(targets, sizes, share, levels, colors="#333333", linewidths=1)
    axes.clabel(saved, fmt="%g", fontsize=9)
    idle = gap > (1 - WORTH) * nothing
    soon = ~idle & (gap > (1 - WORTH) * fresh)
    aged = ~idle & ~soon
    deep = aged & (share <= np.median(share[aged])) if aged.any() else aged  # off the lines
    for (name, _), where in zip(REGIONS, (idle, soon, deep), strict=True):
        if where.any():
            down, across = (int(np.ceil(np.median(places))) for places in np.nonzero(where))
            x, y = targets[max(across, 2)], sizes[max(down, 1)]  # off the corner
            clear = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 2}
            axes.text(x, y, name, ha="center", va="center", weight="bold", bbox=clear)
    axes.grid(visible=False)
