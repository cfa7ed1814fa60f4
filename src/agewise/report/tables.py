"""Tables and facts as plain text and as HTML, for `str` and for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

MOST_SHOWN = 20
"""Rows that are shown; the others are counted."""

Facts = Iterable[tuple[str, str]]
Rows = Sequence[Sequence[str]]


def shorten(text: str, most: int) -> str:
    """Cut a text in the middle to at most so many letters, all of them printable."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    if len(shown) <= most:
        return shown
    kept = most - 1
    return f"{shown[: kept - kept // 2]}…{shown[len(shown) - kept // 2 :]}"


def text_table(headings: Sequence[str], rows: Rows, more: str = "") -> str:
    """A table in fixed-width letters: words to the left, numbers to the right.

    `more` says what was left out, below the rows.
    """
    words = [any(not _is_number(row[place]) for row in rows) for place in range(len(headings))]
    widths = [
        max(len(heading), *(len(row[place]) for row in rows)) if rows else len(heading)
        for place, heading in enumerate(headings)
    ]
    lines = []
    for row in (headings, *rows):
        cells = [
            cell.ljust(width) if left else cell.rjust(width)
            for cell, width, left in zip(row, widths, words, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([*lines, *([more] if more else [])])


def text_facts(facts: Facts) -> str:
    """Names, each with what there is to say, one per line."""
    listed = list(facts)
    width = max((len(name) for name, _ in listed), default=0)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in listed)


def html_table(title: str, headings: Sequence[str], rows: Rows, more: str = "") -> str:
    """The same table for a notebook; whatever letters names have, they are only letters."""
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    after = f"<p>{html.escape(more)}</p>" if more else ""
    return (
        f"<table><caption>{html.escape(title)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>{after}"
    )


def html_facts(facts: Facts) -> str:
    """The same facts for a notebook."""
    items = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in facts
    )
    return f"<table><tbody>{items}</tbody></table>"


def counted(number: int, what: str) -> str:
    """So many of something: one client, two clients."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def left_out(total: int) -> str:
    """Say how many clients are not shown; nothing if all are."""
    return f"... and {counted(total - MOST_SHOWN, 'more client')}" if total > MOST_SHOWN else ""


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return not cell
    return True
