"""Who adds the noise, and what each one sees: three drawings."""

from __future__ import annotations

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from agewise.report.drawing import COLOURS, STYLE

NOISE, MEAN = COLOURS[0], COLOURS[1]
"""Colours of what is noised, and of means as they are."""

PANELS = (
    ("trust nobody\nnoise = client", ("mean\n+ noise",) * 3, NOISE, "adds up", NOISE),
    ("trust the server\nnoise = server", ("mean",) * 3, MEAN, "adds up\n+ noise, once", MEAN),
    (
        "trust the sum only\nshared (not built)",
        ("mean + share\nof noise",) * 3,
        NOISE,
        "sees the\nnoised sum\nonly",
        NOISE,
    ),
)
"""Title, what clients do, the colour of what they send, what the server does, its colour."""


def trust_figure() -> Figure:
    """Where the noise is added under each kind of trust, and who sees a mean as it is."""
    with rc_context({**STYLE, "axes.grid": False}):
        figure = Figure(figsize=(12, 4.4), layout="constrained")
        for axes, panel in zip(figure.subplots(1, 3), PANELS, strict=True):
            _panel(axes, *panel)
        figure.suptitle("Orange: a mean as it is.  Blue: a mean or sum with noise.", fontsize=11)
    return figure


def _panel(
    axes: Axes, title: str, clients: tuple[str, ...], sent: str, server: str, held: str
) -> None:
    axes.set(xlim=(0, 10), ylim=(0, 7.2))
    axes.axis("off")
    axes.set_title(title)
    for row, text in enumerate(clients):
        height = 5.6 - 2.2 * row
        _box(axes, 0.2, height - 0.7, 2.9, 1.4, f"client {row + 1}\n{text}", MEAN)
        _arrow(axes, (3.15, height), (4.35, 3.4 + 0.35 * (1 - row)), sent)
    _box(axes, 4.4, 2.2, 2.6, 2.4, f"server\n{server}", held)
    _arrow(axes, (7.05, 3.4), (8.05, 3.4), NOISE)
    axes.text(8.15, 3.4, "published", va="center", color=NOISE)


def _box(
    axes: Axes, left: float, low: float, wide: float, high: float, text: str, edge: str
) -> None:
    shape = FancyBboxPatch(
        (left, low), wide, high, boxstyle="round,pad=0.05", facecolor="white", edgecolor=edge, lw=2
    )
    axes.add_patch(shape)
    axes.text(left + wide / 2, low + high / 2, text, ha="center", va="center", fontsize=9)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": colour, "lw": 2})
