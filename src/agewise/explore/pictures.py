"""The pictures of the page: numbers in, SVG with alt text and a table of the same numbers out."""

from __future__ import annotations

import math
from dataclasses import dataclass

from agewise.explore.model import Curve, Spent
from agewise.planning import Plan
from agewise.report.svg import Axis, Line, bar_chart, line_chart, timeline_chart
from agewise.report.tables import counted

MOST_LINES = 7
"""Clients whose Δ is drawn; of more, those with the least, the middle and the largest Δ."""
WIDE, PHONE = 640, 350
"""Widths that pictures are drawn for, so that letters keep their size on narrow screens."""


@dataclass(frozen=True)
class Picture:
    """A picture of the page, what is to be seen in it, and its numbers."""

    key: str
    title: str
    caption: str
    svg: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    legend: tuple[str, ...] = ()


def said(value: float) -> str:
    """A number with four digits, or whole, and without powers of ten where people can do without.

    >>> said(69.2949), said(13951.2)
    ('69.29', '13,951')
    """
    return f"{value:,.0f}" if 1000 <= value < 1e9 else f"{value:.4g}"


def loss_picture(curve: Curve, epsilon: float, plan: Plan, planned: bool, width: int) -> Picture:
    """Loss against ε, with its rivals."""
    unit = f" ({plan.problem.release_unit}²)" if plan.problem.release_unit else ""
    name = "plan" if planned else "this age for all"
    lines = [
        Line(name, [(one.epsilon, one.gap) for one in curve.losses]),
        Line("classical, fresh", [(one.epsilon, one.classical_fresh) for one in curve.losses]),
        Line("nothing collected", [(one.epsilon, one.nothing_collected) for one in curve.losses]),
    ]
    title = "Loss against the privacy target"
    text = (
        f"Expected squared error{unit} against ε, smaller is better. At ε = {epsilon:g}: "
        f"{name} {said(plan.gap)}, fresh data with classical noise and the server's knowledge "
        f"{said(plan.classical_fresh)}, nothing collected {said(plan.nothing_collected)}."
    )
    ends = [one for one in curve.losses if math.isfinite(one.gap)]
    if len(ends) > 1:
        text += (
            f" The loss of the {name} goes from {said(ends[0].gap)} at ε = {ends[0].epsilon:g} to "
            f"{said(ends[-1].gap)} at ε = {ends[-1].epsilon:g}."
        )
    svg = line_chart(
        "loss",
        title,
        text,
        lines,
        Axis("privacy target ε (smaller is more private)", log=True, low=0.01, high=5.0),
        Axis(f"expected squared error{unit}", log=True),
        (epsilon, f"ε = {epsilon:g}"),
        width,
    )
    caption = (
        "Expected squared error of what is published. Nothing collected: the server publishes the "
        "mean that it knows. Classical, fresh: no ageing, each client's noise for ε, and the "
        "server makes the best estimate from that and what it knows."
    )
    if plan.problem.server_adds_noise:
        caption = caption.replace("each client's noise for ε", "noise drawn once for ε")
    rows = tuple(
        (f"{o.epsilon:g}", f"{o.gap:.6g}", f"{o.classical_fresh:.6g}", f"{o.nothing_collected:.6g}")
        for o in curve.losses
    )
    headings = ("ε", f"{name}{unit}", f"classical, fresh{unit}", f"nothing collected{unit}")
    legend = tuple(line.name for line in lines)
    return Picture("loss", title, caption, svg, headings, rows, legend)


def ages_picture(deltas: dict[str, tuple[float, ...]], measured: bool, width: int) -> Picture:
    """Δ by age: what old data still tell; of `measured` laws, at the ages that have a limit."""
    names = sorted(deltas, key=lambda name: sum(deltas[name]))
    if len(names) > MOST_LINES:
        step = (len(names) - 1) / (MOST_LINES - 1)
        names = [names[round(k * step)] for k in range(MOST_LINES)]
    else:
        names = list(deltas)
    title = "What old data still tell: Δ by age"
    oldest = max(len(values) for values in deltas.values()) - 1
    text = f"Δ of {counted(len(deltas), 'client')} against the age of data in slots. " + " ".join(
        f"{name}: 1 when fresh, {said(deltas[name][-1])} at age {len(deltas[name]) - 1}."
        for name in names
    )
    svg = line_chart(
        "ages",
        title,
        text,
        [
            Line(
                name,
                [(a, d) for a, d in enumerate(deltas[name]) if d < 1 or not measured],
                measured,
            )
            for name in names
        ],
        Axis("age of the data (slots)", low=0, high=max(oldest, 1)),
        Axis("Δ: what old data still tell", low=0.0, high=1.0),
        width=width,
    )
    more = f" {len(names)} of {len(deltas)} clients are drawn." if len(names) < len(deltas) else ""
    caption = (
        "Δ = 1: what was collected tells all about the record now that it ever did. Δ = 0: "
        f"nothing. The less Δ, the less noise the same ε needs.{more}"
    )
    if measured:
        caption += " Ages without a dot have no limit of their own, and get no credit."
    rows = tuple(
        (str(age), *(f"{deltas[name][age]:.6g}" for name in names)) for age in range(oldest + 1)
    )
    return Picture("ages", title, caption, svg, ("age (slots)", *names), rows, tuple(names))


def timeline_picture(plan: Plan, width: int) -> Picture:
    """Who collects in which slot."""
    unit = f" {plan.problem.release_unit}" if plan.problem.release_unit else ""
    last = plan.problem.aggregate_at
    rows = [
        (one.client, one.collect_at, f"age {one.age}, noise scale {one.noise_scale:.3g}{unit}")
        for one in plan.assignments
    ]
    title = "Who collects when"
    text = f"The server aggregates in slot {last}. " + " ".join(
        f"{name} collects in slot {slot}: {told}." for name, slot, told in rows[:20]
    )
    if len(rows) > 20:
        text += f" And {len(rows) - 20} more clients."
    svg = timeline_chart("timeline", title, text, rows, last, width)
    caption = "Bar: the client collects, adds noise and uploads. After that the data age."
    headings, table = plan.table(200)
    return Picture(
        "timeline", title, caption, svg, tuple(headings), tuple(tuple(row) for row in table)
    )


def spent_picture(spent: Spent, plan: Plan, width: int) -> Picture:
    """ε over time, for both promises."""
    target = plan.problem.epsilon
    title = "ε over time, for both promises"
    rounds = spent.over == "rounds"
    where = "after round" if rounds else "slots after the publication"
    last = spent.at[-1]
    text = (
        f"The largest ε of any client. About the present: {said(spent.present[0])} at first, "
        f"{said(spent.present[-1])} {f'after {last} rounds' if rounds else f'{last} slots later'}."
        f" About every moment: {said(spent.every_moment[-1])}. "
        f"The plain sum of the releases: {said(spent.classical[-1])}. Target: {target:g}."
    )
    lines = [
        Line("about the present", list(zip(spent.at, spent.present, strict=True))),
        Line("about every moment", list(zip(spent.at, spent.every_moment, strict=True))),
    ]
    if rounds:
        lines.append(Line("plain sum", list(zip(spent.at, spent.classical, strict=True))))
    if len(spent.at) > 1:
        svg = line_chart(
            "spent",
            title,
            text,
            lines,
            Axis("round" if rounds else where, log=rounds, low=1 if rounds else 0),
            Axis("ε, the largest of any client", log=True),
            width=width,
        )
    else:
        bars = [(line.name, line.points[0][1]) for line in lines]
        svg = bar_chart("spent", title, text, bars, "ε, the largest of any client", width)
    if rounds:
        caption = (
            "Present: about the value at each publication, all releases so far counted. Every "
            "moment: about the value at any time, releases before and after it counted."
        )
    elif len(spent.at) > 1:
        caption = (
            "One release, and nothing after it. About the present ε falls as time goes on; about "
            "every moment it stays the classical ε, since the value that was collected is one."
        )
    else:
        caption = (
            "One release. What later slots would bring is not known for these laws. About every "
            "moment ε is the classical one, since the value that was collected is one."
        )
    rows = tuple(
        (str(n), f"{a:.6g}", f"{b:.6g}", f"{c:.6g}")
        for n, a, b, c in zip(
            spent.at, spent.present, spent.every_moment, spent.classical, strict=True
        )
    )
    headings = (where, "ε about the present", "ε about every moment", "plain sum")
    legend = tuple(line.name for line in lines) if len(spent.at) > 1 else ()
    return Picture("spent", title, caption, svg, headings, rows, legend)
