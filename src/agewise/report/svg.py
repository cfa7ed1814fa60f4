"""Small charts as SVG text: drawn in no time, coloured by the page they stand in, with alt text.

Colours are classes (`c0`, `c1` ...) that a style sheet fills in for light, dark and print; lines
also differ by their dashes. `agewise.report.drawing` draws figures for files instead.
"""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

DASHES = ("", "7 4", "2 3", "10 3 2 3", "4 2", "1 2", "12 4")
LETTER = 7.0
"""Width of a letter, in the unit of the drawing."""
NARROW = 500
"""Width below which labels stand in the legend only."""


@dataclass(frozen=True)
class Axis:
    """What an axis shows; `log` for a logarithmic one, `low` a value that it must reach down to."""

    label: str
    log: bool = False
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Line:
    """A line of a chart, by its points; those that are not finite are left out.

    With `dots` only the points: nothing is known between them.
    """

    name: str
    points: Sequence[tuple[float, float]]
    dots: bool = False


class _Scale:
    def __init__(self, axis: Axis, values: Sequence[float], start: float, end: float) -> None:
        self.log = axis.log
        known = [v for v in values if math.isfinite(v) and (v > 0 or not axis.log)]
        low = min(known, default=0.1 if axis.log else 0.0)
        high = max(known, default=1.0)
        if axis.log and axis.high is None:
            high *= 1.2  # room above the highest line
        low = low if axis.low is None else min(axis.low, low)
        high = high if axis.high is None else max(axis.high, high)
        if high <= low:
            low, high = (low / 2, high * 2) if axis.log else (low - 0.5, low + 0.5)
        self.low, self.high, self.start, self.end = low, high, start, end

    def __call__(self, value: float) -> float:
        low, high, here = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, here = math.log(low), math.log(high), math.log(here)
        return self.start + (here - low) / (high - low) * (self.end - self.start)

    def ticks(self, most: int) -> list[float]:
        """Round numbers within the scale, about so many."""
        if not self.log:
            return _round_steps(self.low, self.high, most)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for within in ((1, 2, 5), (1, 3), (1,)):
            found = [m * 10.0**d for d in range(first, last + 1) for m in within]
            found = [v for v in found if self.low <= v * (1 + 1e-9) and v <= self.high * (1 + 1e-9)]
            if len(found) <= most:
                break
        if len(found) > most:
            found = found[:: -(-len(found) // most)]
        return found if len(found) >= 2 else _round_steps(self.low, self.high, most)


def _round_steps(low: float, high: float, most: int) -> list[float]:
    raw = (high - low) / most
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * m for m in (1, 2, 5, 10) if size * m >= raw)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def line_chart(
    key: str,
    title: str,
    description: str,
    lines: Sequence[Line],
    across: Axis,
    up: Axis,
    mark: tuple[float, str] | None = None,
    width: int = 640,
) -> str:
    """Lines over one axis. `key` makes ids unique; `mark` is a value of the axis to point out."""
    height = 340 if width >= NARROW else 300
    direct = width >= NARROW
    longest = max((len(line.name) for line in lines), default=0)
    right = min(width * 0.4, 14 + LETTER * longest) if direct else 12
    left, top, bottom = 64, 14 if mark is None else 30, 46
    xs = [x for line in lines for x, _ in line.points] + ([] if mark is None else [mark[0]])
    ys = [y for line in lines for _, y in line.points]
    x, y = _Scale(across, xs, left, width - right), _Scale(up, ys, height - bottom, top)
    parts = [_frame(x, y, across.label, up.label, int((width - left - right) // 62) or 1)]
    if mark is not None:
        at = x(mark[0])
        anchor = "end" if at > (left + width - right) / 2 else "start"
        parts.append(f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{y.start}"/>')
        parts.append(_text(at, top - 10, mark[1], anchor, "strong"))
    labels = []
    for place, line in enumerate(lines):
        points = [(a, b) for a, b in line.points if math.isfinite(a) and math.isfinite(b)]
        if not points:
            continue
        if line.dots or len(points) == 1:
            parts += [
                f'<circle class="f{place % 7}" r="4" cx="{x(a):.1f}" cy="{y(b):.1f}"/>'
                for a, b in points
            ]
        else:
            path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
            dash = DASHES[place % len(DASHES)]
            dashed = f' stroke-dasharray="{dash}"' if dash else ""
            parts.append(f'<polyline class="line c{place % 7}" points="{path}"{dashed}/>')
        labels.append((y(points[-1][1]), x(points[-1][0]), line.name, place))
    if direct:
        parts += _labels(labels, top, height - bottom)
    return _svg(key, title, description, width, height, parts)


def _labels(labels: list[tuple[float, float, str, int]], top: float, bottom: float) -> list[str]:
    """Names at the ends of their lines, moved apart where they would overlap."""
    step, placed = 15.0, list[float]()
    ordered = sorted(labels)
    for at, *_ in ordered:
        placed.append(max(at, placed[-1] + step) if placed else max(at, top + 4))
    limit = bottom
    for place in reversed(range(len(placed))):
        placed[place] = min(placed[place], limit)
        limit = placed[place] - step
    return [
        _text(x + 7, at + 4, name, "start", f"t{place % 7}")
        for (_, x, name, place), at in zip(ordered, placed, strict=True)
    ]


def bar_chart(
    key: str,
    title: str,
    description: str,
    bars: Sequence[tuple[str, float]],
    label: str,
    width: int = 640,
) -> str:
    """A bar for each of a few numbers, from 0 on; what is infinite has no end."""
    left = 14 + LETTER * max(len(name) for name, _ in bars)
    height, right = 30 * len(bars) + 40, 70
    known = [value for _, value in bars if math.isfinite(value)]
    x = _Scale(Axis("", low=0.0), known or [1.0], left, width - right)
    parts = []
    for row, (name, value) in enumerate(bars):
        middle, end = 24 + 30 * row, x(value)
        parts.append(_text(left - 8, middle + 4, name, "end"))
        parts.append(
            f'<rect class="f{row % 7}" x="{left:.1f}" y="{middle - 9}" '
            f'width="{end - left:.1f}" height="18" rx="2"/>'
        )
        parts.append(_text(end + 7, middle + 4, f"{value:.4g}", "start"))
    parts.append(_text((left + width - right) / 2, height - 8, label, "middle"))
    return _svg(key, title, description, width, height, parts)


def timeline_chart(
    key: str,
    title: str,
    description: str,
    rows: Sequence[tuple[str, int, str]],
    last: int,
    width: int = 640,
    most: int = 40,
) -> str:
    """Who collects in which slot: a bar per client, a text beside it; of many, counts by slot."""
    if len(rows) > most:
        counts = sorted(Counter(slot for _, slot, _ in rows).items())
        return _counts_chart(key, title, description, counts, last, width)
    names = [_cut(name, 24 if width >= NARROW else 14) for name, _, _ in rows]
    left = 14 + LETTER * max(len(name) for name in names)
    right = 14 + LETTER * max(len(text) for _, _, text in rows) if width >= NARROW else 16
    height = 44 + 30 * len(rows) + 40
    x = _Scale(Axis("", low=0.5, high=last + 0.5), [], left, width - right)
    parts = []
    for slot in _slot_ticks(last, (width - left - right) // 34):
        at = x(slot)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="26" y2="{height - 44}"/>')
        parts.append(_text(at, height - 28, str(slot), "middle"))
    for row, (name, (_, slot, text)) in enumerate(zip(names, rows, strict=True)):
        middle = 44 + 30 * row
        wide = max(x(slot + 0.5) - x(slot - 0.5), 3.0)
        begin, end = x(slot) - wide / 2, x(last + 0.5)
        parts.append(_text(left - 8, middle + 4, name, "end"))
        parts.append(
            f'<line class="ageing c{row % 7}" x1="{begin:.1f}" x2="{end:.1f}" '
            f'y1="{middle}" y2="{middle}"/>'
        )
        parts.append(
            f'<rect class="f{row % 7}" x="{begin:.1f}" y="{middle - 9}" '
            f'width="{wide:.1f}" height="18" rx="2"/>'
        )
        if width >= NARROW:
            parts.append(_text(width - right + 8, middle + 4, text, "start"))
    end = x(last + 0.5)
    parts.append(f'<line class="axis" x1="{end:.1f}" x2="{end:.1f}" y1="20" y2="{height - 44}"/>')
    parts.append(_text(end, 14, "server aggregates", "end"))
    parts.append(_text((left + end) / 2, height - 8, "slot", "middle"))
    return _svg(key, title, description, width, height, parts)


def _counts_chart(
    key: str,
    title: str,
    description: str,
    counts: Sequence[tuple[int, int]],
    last: int,
    width: int,
) -> str:
    height, left, right, top, bottom = 300, 64, 16, 14, 46
    x = _Scale(Axis("", low=0.5, high=last + 0.5), [], left, width - right)
    y = _Scale(Axis("", low=0), [n for _, n in counts], height - bottom, top)
    parts = [_frame(x, y, "slot", "clients that collect", int((width - left) // 62))]
    wide = max(x(1.5) - x(0.5), 2.0)
    parts += [
        f'<rect class="f0" x="{x(slot) - wide / 2:.1f}" y="{y(n):.1f}" width="{wide:.1f}" '
        f'height="{y.start - y(n):.1f}"/>'
        for slot, n in counts
    ]
    return _svg(key, title, description, width, height, parts)


def _slot_ticks(last: int, most: float) -> list[int]:
    steps = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
    step = next((s for s in steps if last / s <= max(most, 2)), last)
    return [slot for slot in range(1, last + 1) if slot % step == 0 or (slot == 1 and step > 3)]


def _frame(x: _Scale, y: _Scale, across: str, up: str, most: int) -> str:
    """Grid, ticks and names of both axes."""
    parts = []
    for value in x.ticks(max(most, 2)):
        at = x(value)
        parts.append(
            f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{y.end}" y2="{y.start}"/>'
        )
        parts.append(_text(at, y.start + 17, f"{value:g}", "middle"))
    for value in y.ticks(6):
        at = y(value)
        parts.append(
            f'<line class="grid" x1="{x.start}" x2="{x.end:.1f}" y1="{at:.1f}" y2="{at:.1f}"/>'
        )
        parts.append(_text(x.start - 7, at + 4, f"{value:g}", "end"))
    parts.append(
        f'<polyline class="axis" points="{x.start},{y.end} {x.start},{y.start} '
        f'{x.end:.1f},{y.start}"/>'
    )
    parts.append(_text((x.start + x.end) / 2, y.start + 38, across, "middle"))
    middle = (y.start + y.end) / 2
    parts.append(
        f'<text transform="translate(14 {middle:.1f}) rotate(-90)" '
        f'text-anchor="middle">{html.escape(up)}</text>'
    )
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _svg(
    key: str, title: str, description: str, width: float, height: float, parts: Sequence[str]
) -> str:
    return (
        f'<svg class="chart" role="img" aria-labelledby="{key}-title {key}-text" '
        f'viewBox="0 0 {width:g} {height:g}" xmlns="http://www.w3.org/2000/svg">'
        f'<title id="{key}-title">{html.escape(title)}</title>'
        f'<desc id="{key}-text">{html.escape(description)}</desc>{"".join(parts)}</svg>'
    )
