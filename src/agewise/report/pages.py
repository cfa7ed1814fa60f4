"""Self-contained HTML pages: style and pictures inside, nothing loaded from anywhere.

Whatever letters texts have, they are only letters: everything is escaped here.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files

from agewise.report.tables import Facts, Rows

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What a browser may do with a report: show it."""
MANY = 8
"""Columns beyond which a table is printed smaller."""

LOOKS = re.compile(r"<(svg|style)\b.*?</\1>", re.DOTALL)
"""A picture in a page, or its style."""


@cache
def style() -> str:
    """The style of all pages."""
    return (files("agewise.report") / "style.css").read_text(encoding="utf-8")


def document(title: str, *parts: str) -> str:
    """A whole page that can be sent by mail, opened without a network, and printed."""
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{style()}</style>\n</head>\n"
        f'<body>\n<main class="report">\n<h1>{html.escape(title)}</h1>\n{body}\n</main>\n'
        "</body>\n</html>\n"
    )


def heading(text: str) -> str:
    """The heading of a section."""
    return f"<h2>{html.escape(text)}</h2>"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph; `kind` is verdict or warning."""
    named = f' class="{kind}"' if kind else ""
    return f"<p{named}>{html.escape(text)}</p>"


def bullets(items: Iterable[str]) -> str:
    """A list of sentences."""
    return "<ul>\n" + "\n".join(f"<li>{html.escape(one)}</li>" for one in items) + "\n</ul>"


def facts_table(facts: Facts) -> str:
    """Names, each with what there is to say."""
    rows = "\n".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td>{html.escape(value)}</td></tr>'
        for name, value in facts
    )
    return f'<table class="facts"><tbody>\n{rows}\n</tbody></table>'


def table(caption: str, headings: Sequence[str], rows: Rows) -> str:
    """A table, numbers to the right."""
    right = [bool(rows) and all(_is_number(row[k]) for row in rows) for k in range(len(headings))]
    kinds = [' class="number"' if one else "" for one in right]
    top = "".join(
        f'<th scope="col"{kind}>{html.escape(name)}</th>'
        for name, kind in zip(headings, kinds, strict=True)
    )
    body = "\n".join(
        "<tr>"
        + "".join(
            f"<td{kind}>{html.escape(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    said = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    wide = " wide" if len(headings) > MANY else ""
    return (
        f'<div class="scroll{wide}" tabindex="0" role="group" '
        f'aria-label="{html.escape(caption or "table")}"><table>{said}'
        f"<thead><tr>{top}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


def picture(svg: str, caption: str) -> str:
    """A picture with what is to be seen in it; `svg` has its own alt text."""
    drawn = "" if 'class="chart"' in svg[:200] else ' class="drawn"'
    return (
        f"<figure><div{drawn}>{svg}</div><figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def from_markdown(text: str) -> str:
    """The Markdown of our own documents as HTML: headings, paragraphs, tables, lists, bold, code.

    Names in it are escaped already; they are taken back to letters and escaped here again.

    >>> from_markdown("**Nobody** is trusted with `<b>`.")
    '<p><strong>Nobody</strong> is trusted with <code>&lt;b&gt;</code>.</p>'
    """
    parts = []
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = block.splitlines()
        if lines[0].startswith("#"):
            parts.append(f"<h3>{_inline(lines[0].lstrip('# '))}</h3>")
        elif lines[0].startswith("|"):
            cells = [_cells(line) for line in lines]
            parts.append(table("", cells[0], cells[2:]))
        elif all(line.startswith("- ") for line in lines):
            items = "\n".join(f"<li>{_inline(line[2:])}</li>" for line in lines)
            parts.append(f"<ul>\n{items}\n</ul>")
        else:
            parts.append(f"<p>{'<br>'.join(_inline(line) for line in lines)}</p>")
    return "\n".join(parts)


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    cells = re.split(r"(?<!\\)\|", inner)
    return [html.unescape(cell.replace("\\|", "|").strip()) for cell in cells]


def _inline(text: str) -> str:
    escaped = html.escape(html.unescape(text))
    escaped = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", escaped)
    return re.sub(r"`(.+?)`", r"<code>\1</code>", escaped)


def without_looks(page: str) -> str:
    """A page with nothing in its pictures and its style, to compare what two of them say.

    That there is a picture is still seen, so that nothing hides in one too many.
    """
    return LOOKS.sub(r"<\1/>", page)


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", ""))
    except ValueError:
        return False
    return True
