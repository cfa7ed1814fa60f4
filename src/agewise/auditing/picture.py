"""Claims and what was found of them, in one picture."""

from __future__ import annotations

import math

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agewise.auditing.findings import Audit, Finding
from agewise.report.drawing import COLOURS, MOST_ROWS, STYLE, verbatim

FURTHEST = 4.0
"""Shares of a claim beyond which a picture is cut off."""
COLOUR = {
    "refuted": COLOURS[1],
    "proven": COLOURS[2],
    "not refuted": COLOURS[0],
    "undecided": COLOURS[4],
}


def audit_figure(audit: Audit) -> Figure:
    """Where the truth of every claim about an ε was found to lie, as a share of the claim."""
    shown = [one for one in audit.findings if _drawn(one)]
    shown = sorted(shown, key=lambda one: not one.refuted)[:MOST_ROWS]
    with rc_context(STYLE):
        figure = Figure(figsize=(9.5, 1.4 + 0.42 * max(len(shown), 1)), layout="constrained")
        axes = figure.subplots()
        if not shown:
            axes.text(0.5, 0.5, audit.verdict, ha="center", transform=axes.transAxes)
            axes.axis("off")
            return figure
        right = _right_end(shown)
        for row, one in enumerate(shown):
            _row(axes, row, one, right)
        axes.axvline(1.0, color="#111111", lw=1.6)
        labels = [f"{verbatim(one.subject)}\n{one.claim}, {one.tier}" for one in shown]
        axes.set_yticks(range(len(shown)), labels, fontsize=8)
        axes.set_ylim(len(shown) - 0.4, -0.7)
        axes.set_xlim(0, right)
        axes.set_xlabel("true ε over claimed ε: right of the line at 1, a claim is false")
        axes.grid(axis="y", visible=False)
        beside = axes.secondary_yaxis("right")
        beside.set_yticks(range(len(shown)), [_words(one) for one in shown], fontsize=8)
        beside.tick_params(length=0)
        beside.spines["right"].set_visible(False)
        for label, one in zip(beside.get_yticklabels(), shown, strict=True):
            label.set_color(COLOUR.get(one.verdict, COLOURS[6]))
        axes.set_title(
            f"{verbatim(audit.subject)}: {audit.verdict}\n"
            "dot: at least so much.  arrow: nothing known beyond.  tick: would have been found",
            fontsize=9,
            loc="left",
        )
    return figure


def _drawn(one: Finding) -> bool:
    numbers = one.claimed, one.at_least
    return "ε" in one.claim and all(x is not None and math.isfinite(x) for x in numbers)


def _words(one: Finding) -> str:
    return f"{one.verdict}\n{one.at_least:.4g} for {one.claimed:.4g}"


def _share(one: Finding, value: float | None) -> float:
    return math.inf if value is None else value / (one.claimed or 1.0)


def _right_end(shown: list[Finding]) -> float:
    known = [
        _share(one, x)
        for one in shown
        for x in (one.claimed, one.at_least, one.at_most, one.would_find)
    ]
    largest = max((x for x in known if math.isfinite(x)), default=1.0)
    return min(1.1 * max(largest, 1.2), FURTHEST)


def _row(axes: Axes, row: int, one: Finding, right: float) -> None:
    low, high = min(_share(one, one.at_least), right), min(_share(one, one.at_most), right)
    colour = COLOUR.get(one.verdict, COLOURS[6])
    if high >= right:
        style = {"arrowstyle": "->", "color": colour, "lw": 2}
        axes.annotate("", (right, row), (low, row), arrowprops=style)
    else:
        axes.plot([low, high], [row, row], color=colour, lw=5, solid_capstyle="butt")
    axes.plot(low, row, "o", color=colour, ms=6, clip_on=False)
    if one.would_find is not None:
        axes.plot(_share(one, one.would_find), row, marker="|", color=colour, ms=12, mew=2)
