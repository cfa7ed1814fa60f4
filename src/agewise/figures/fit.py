"""What a fit found in the readings."""

from __future__ import annotations

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from agewise.fitting.report import Fit
from agewise.report.drawing import COLOURS, STYLE, verbatim


def fit_figure(fitted: Fit) -> Figure:
    """What the readings say beside what a fitted chain would promise, and the limits used."""
    measured = fitted.kind == "measured"
    with rc_context(STYLE):
        figure = Figure(figsize=(12.5 if measured else 6.5, 4.3), layout="constrained")
        grid = figure.subplots(1, 2 if measured else 1, sharey=True, squeeze=False)[0]
        lags = [one.lag for one in fitted.assumptions.lags]
        axes = grid[0]
        for label, values, colour, marker in (
            ("measured", [one.measured for one in fitted.assumptions.lags], COLOURS[1], "s"),
            (
                "powers of the fitted chain",
                [one.chain for one in fitted.assumptions.lags],
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
            for place, client in enumerate(fitted.clients[: len(COLOURS)]):
                ages = range(len(client.limits) - 1, -1, -1)
                name = verbatim(client.name)
                axes.plot(ages, client.limits, color=COLOURS[place], label=name)
                axes.plot(ages, client.estimates, color=COLOURS[place], linestyle=":")
            axes.set_xlabel("age at aggregation (slots)")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.set_title(
                f"Limits at {fitted.confidence:.0%} (solid) and measured (dotted)\n"
                f"adversary: {fitted.adversary}, sampled: {fitted.sampled}"
            )
            more = len(fitted.clients) - len(COLOURS)
            axes.legend(
                frameon=False,
                fontsize=9,
                loc="upper left",
                bbox_to_anchor=(1, 1),
                title=f"{len(COLOURS)} of {len(fitted.clients)} clients" if more > 0 else None,
            )
    return figure
