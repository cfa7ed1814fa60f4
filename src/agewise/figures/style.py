"""How all figures look, and how they are written."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agewise.errors import InvalidInput

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333")
"""Okabe and Ito's palette: told apart by people with any of the common colour blindnesses."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

LONGEST_LABEL = 32
MOST_ROWS = 40
"""Clients up to which each has a row of a timeline, or panels of its own."""

STYLE: dict[Any, Any] = {
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


def prepare_folder(folder: Path, option: str = "--out") -> Path:
    """Create the output folder, or say clearly why it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".agewise-write-test"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise InvalidInput(
            option, str(folder), "a folder that can be written to", f"{error.strerror}."
        ) from None
    return folder


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and SVG, the same bytes every time."""
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    with rc_context(STYLE):
        figure.savefig(paths[0], dpi=150, metadata={"Software": None})
        figure.savefig(paths[1], metadata={"Date": None})
    return paths


def save_csv(rows: Iterable[dict[str, Any]], folder: Path, name: str) -> Path:
    """Write the numbers behind a figure."""
    listed = list(rows)
    path = folder / f"{name}.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
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


def verbatim(text: str) -> str:
    """A name is a name, not mathematics, whatever letters it has; and it has to fit."""
    half = LONGEST_LABEL // 2
    shown = text if len(text) <= LONGEST_LABEL else f"{text[: half - 1]}…{text[-half:]}"
    return shown.replace("$", r"\$")
