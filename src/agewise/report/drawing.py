"""What all figures share: style, palette, files, and the rows and slots of a timeline."""

from __future__ import annotations

import csv
import html
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from io import StringIO
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
"""Of lines, in their order."""

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


def save_as(figure: Figure, path: Path | str) -> None:
    """Write a figure to one file, in the format that its name ends with."""
    place = Path(path)
    formats = ("png", "svg", "pdf")
    if place.suffix.lower().removeprefix(".") not in formats:
        raise InvalidInput("path", str(path), "a name that ends in .png, .svg or .pdf")
    try:
        with rc_context(STYLE):
            figure.savefig(place, dpi=150)
    except OSError as error:
        raise InvalidInput(
            "path", str(path), "a file that can be written", f"{error.strerror}."
        ) from None


def svg_text(figure: Figure, key: str, title: str, description: str) -> str:
    """A figure as SVG that stands in a page: with alt text, and ids that begin with `key`."""
    file = StringIO()
    with rc_context(STYLE):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    drawn = file.getvalue()
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn[drawn.index("<svg") :], flags=re.DOTALL)
    drawn = re.sub(r'\bid="', f'id="{key}-', drawn)
    drawn = drawn.replace("url(#", f"url(#{key}-").replace('href="#', f'href="#{key}-')
    named = f'<svg role="img" aria-labelledby="{key}-title {key}-text"'
    told = (
        f'<title id="{key}-title">{html.escape(title)}</title>'
        f'<desc id="{key}-text">{html.escape(description)}</desc>'
    )
    opening, _, rest = drawn.partition(">")
    return f"{opening.replace('<svg', named, 1)}>{told}{rest.strip()}"


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


def client_rows(axes: Axes, names: Sequence[str], texts: Sequence[str]) -> None:
    """Give each row its client's name on the left and a text on the right, with room for both."""
    axes.set_yticks(range(len(names)), [verbatim(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.7)
    axes.grid(axis="y", visible=False)
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(names)), texts)
    right.tick_params(length=0, labelsize=9)
    right.spines["right"].set_visible(False)


def slot_axis(figure: Figure, last: int) -> None:
    """Show the slots 1 to `last`, and where the server aggregates."""
    axes = figure.axes[0]
    axes.set_xlim(0.4, last + 0.5 + 0.03 * last)
    axes.axvline(last + 0.5, color="#333333", linewidth=1.4)
    axes.annotate(
        "server aggregates",
        (last + 0.5, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 4),
        textcoords="offset points",
        ha="right",
        fontsize=9,
    )
    if last <= 12:
        axes.set_xticks(range(1, last + 1))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_axisbelow(True)


def crowd_figure(uploads: list[int], missed: list[int]) -> Figure:
    """Uploads and misses by slot, for more clients than can be told apart."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    done, lost = Counter(uploads), Counter(missed)
    axes.bar(list(done), list(done.values()), color=COLOURS[0], ec=COLOURS[0], label="uploaded")
    if lost:
        below = [done[slot] for slot in lost]
        axes.bar(
            list(lost),
            list(lost.values()),
            bottom=below,
            color=COLOURS[1],
            ec=COLOURS[1],
            label="missed",
        )
        axes.legend(frameon=False)
    axes.set_ylabel("clients")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("slot")
    return figure
