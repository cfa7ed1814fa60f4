"""A plan as a picture: figure 1 of the paper."""

from __future__ import annotations

from matplotlib import rc_context
from matplotlib.figure import Figure

from agewise.planning.plan import Plan
from agewise.report.drawing import (
    COLOURS,
    MOST_ROWS,
    STYLE,
    client_rows,
    crowd_figure,
    slot_axis,
    verbatim,
)


def timeline_figure(plan: Plan) -> Figure:
    """Figure 1: who collects and trains in which slot, and uploads at its end, up to t_agg."""
    clients = plan.assignments
    last = plan.problem.aggregate_at
    unit = f" {verbatim(plan.problem.release_unit)}" if plan.problem.release_unit else ""
    with rc_context(STYLE):
        if len(clients) > MOST_ROWS:
            figure = crowd_figure(plan.collect_at, [])
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
            client_rows(axes, [one.client for one in clients], texts)
            axes.set_xlabel("slot (bar: collect, train, add noise; arrow: upload)")
        slot_axis(figure, last)
        square = f"{unit}²" if unit else ""
        figure.suptitle(
            f"{verbatim(plan.problem.name)}: a plan for ε = {plan.problem.epsilon:g}, "
            f"loss gap {plan.gap:.4g}{square}"
        )
    return figure
