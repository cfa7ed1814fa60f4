"""Δ and noise against the age of data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from agewise.report.drawing import COLOURS, MARKERS, MOST_ROWS, STYLE, verbatim


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
