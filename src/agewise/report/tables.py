"""Tables and facts as plain text and as HTML, for `str` and for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

MOST_SHOWN = 20
"""Rows that are shown; the others are counted."""

WHOLE = 16
"""Letters up to which a cell is kept in one line in a notebook."""

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
    words = _words(headings, rows)
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
    sides = ["left" if left else "right" for left in _words(headings, rows)]
    lines = [
        "".join(_cell(tag, cell, side) for cell, side in zip(row, sides, strict=True))
        for tag, some in (("th", [headings]), ("td", rows))
        for row in some
    ]
    head, body = lines[0], "".join(f"<tr>{line}</tr>" for line in lines[1:])
    after = f"<p>{html.escape(more)}</p>" if more else ""
    return (
        f"<table {_PLAIN}><caption {_LEFT}>{html.escape(title)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{after}"
    )


def html_facts(facts: Facts) -> str:
    """The same facts for a notebook."""
    items = "".join(
        f"<tr>{_cell('th', name, 'left')}{_cell('td', value, 'left')}</tr>" for name, value in facts
    )
    return f"<table {_PLAIN}><tbody>{items}</tbody></table>"


_PLAIN = 'style="border-collapse: collapse; margin: 0.5em 0"'
_LEFT = 'style="text-align: left; padding: 0.2em 0.8em 0.2em 0"'


def _cell(tag: str, text: str, side: str) -> str:
    """A cell with its style beside it: notebooks, mails and pages have none in common."""
    style = f"text-align: {side}; vertical-align: top; padding: 0.2em 0.8em 0.2em 0"
    style += "; white-space: nowrap" * (len(text) <= WHOLE)
    return f'<{tag} style="{style}">{html.escape(text)}</{tag}>'


def _words(headings: Sequence[str], rows: Rows) -> list[bool]:
    """Which columns hold words, and go to the left; numbers go to the right."""
    return [any(not _is_number(row[place]) for row in rows) for place in range(len(headings))]


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
