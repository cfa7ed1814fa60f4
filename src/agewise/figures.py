"""Plots of data that were computed elsewhere. Nothing is computed here."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from agewise.errors import InvalidInput

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333")
"""Okabe and Ito's palette: told apart by people with any of the common colour blindnesses."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "svg.hashsalt": "agewise",
}


def prepare_folder(folder: Path) -> Path:
    """Create the output folder, or say clearly why it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".agewise-write-test"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise InvalidInput(
            "--out", str(folder), "a folder that can be written to", f"{error.strerror}."
        ) from None
    return folder


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and SVG, the same bytes every time."""
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    with rc_context(_STYLE):
        figure.savefig(paths[0], dpi=150, metadata={"Software": None})
        figure.savefig(paths[1], metadata={"Date": None})
    return paths


def save_csv(rows: Iterable[dict[str, Any]], folder: Path, name: str) -> Path:
    """Write the numbers behind a figure."""
    listed = list(rows)
    path = folder / f"{name}.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(listed[0]))
        writer.writeheader()
        writer.writerows(listed)
    return path


def label_ends(axes: Axes, labels: Sequence[tuple[float, float, str, str]]) -> None:
    """Write each label beside the end of its line, moved apart where they would overlap."""
    axes.figure.canvas.draw()
    step = 13.0  # display points between two labels
    placed: list[float] = []
    for x, y, text, colour in sorted(labels, key=lambda one: one[1]):
        at = axes.transData.transform((x, y))[1] * 72 / axes.figure.dpi
        shift = max(0.0, (placed[-1] + step - at) if placed else 0.0)
        placed.append(at + shift)
        axes.annotate(
            text,
            (x, y),
            xytext=(7, shift),
            textcoords="offset points",
            va="center",
            color=colour,
            annotation_clip=False,
            fontsize=9,
        )


def ageing_figure(
    clients: Sequence[str], curves: dict[str, list[tuple[Any, Any]]], epsilon: float, unit: str
) -> Figure:
    """Δ and needed noise against age: a column a client, a line a method.

    `curves[method][i]` is (Δ by age, noise scale by age) of client i.
    """
    with rc_context(_STYLE):
        width = 3.3 * len(clients) + 0.9
        figure = Figure(figsize=(width, 5.6), layout="constrained")
        grid = figure.subplots(2, len(clients), sharex=True, sharey="row", squeeze=False)
        for column, name in enumerate(clients):
            top, bottom = grid[0, column], grid[1, column]
            for (method, series), colour, marker in zip(
                curves.items(), COLOURS, MARKERS, strict=False
            ):
                delta, scale = series[column]
                top.plot(range(len(delta)), delta, color=colour, marker=marker, label=method)
                bottom.plot(range(len(scale)), scale, color=colour, marker=marker, label=method)
            top.set_title(name)
            top.set_ylim(0, 1.05)
            bottom.set_ylim(bottom=0)
            bottom.set_xlabel("age of the data (slots)")
            bottom.xaxis.set_major_locator(MaxNLocator(integer=True))
        grid[0, 0].set_ylabel("Δ: what old data still tell")
        grid[1, 0].set_ylabel(f"Laplace scale{f' ({unit})' if unit else ''}")
        grid[0, -1].legend(title="Δ by", loc="upper right", frameon=False, fontsize=9)
        figure.suptitle(f"Older data need less noise for the same privacy (target ε = {epsilon:g})")
    return figure
