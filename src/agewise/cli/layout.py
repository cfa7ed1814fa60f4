"""Tables and lists of facts that never cut a number, however narrow the terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from agewise.cli.streams import spell

NARROWEST = 10
"""Letters to which a column of words may shrink before a table changes its form."""

Rows = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Column:
    """A column of numbers, or of `words`, which may wrap; a `spare` one may be left out."""

    heading: str
    words: bool = False
    spare: bool = False


def print_table(
    screen: Console,
    title: str,
    columns: Sequence[Column],
    rows: Rows,
    ends: Collection[int] = (),
) -> None:
    """Print a table; `ends` are the rows that end a section.

    Where it does not fit, headings take several lines; then spare columns are left out; then each
    row becomes a list.
    """
    if screen.options.ascii_only:  # before anything is aligned
        title = spell(title)
        columns = [Column(spell(one.heading), one.words, one.spare) for one in columns]
        rows = [[spell(cell) for cell in row] for row in rows]
    everything = range(len(columns))
    needed = [place for place in everything if not columns[place].spare]
    for places, tall in ((everything, False), (everything, True), (needed, True)):
        chosen = [columns[place] for place in places]
        cells = [[row[place] for place in places] for row in rows]
        least = _table("", chosen, cells, (), tall, NARROWEST)
        room = screen.options.update(max_width=10_000)
        if screen.measure(least, options=room).maximum <= screen.width:
            screen.print(_table(title, chosen, cells, ends, tall, None))
            break
    else:
        _print_stacked(screen, title, columns, rows)
        return
    missed = [columns[place].heading for place in everything if place not in places]
    if missed:
        screen.print(f"Left out for want of room: {', '.join(missed)}.", highlight=False)


def print_facts(screen: Console, facts: Iterable[tuple[str, str]]) -> None:
    """Print names, each with what there is to say, which may take several lines."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts:
        plain = screen.options.ascii_only
        grid.add_row(f"[bold]{spell(name) if plain else name}[/]", spell(value) if plain else value)
    screen.print(grid)


def _table(
    title: str,
    columns: Sequence[Column],
    rows: Rows,
    ends: Collection[int],
    tall: bool,
    narrowest: int | None,
) -> Table:
    table = Table(
        title=title or None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=tall,
    )
    for one in columns:
        table.add_column(
            one.heading.replace(" ", "\n") if tall and not one.words else one.heading,
            justify="left" if one.words else "right",
            no_wrap=not one.words,
            overflow="fold",
            max_width=narrowest if one.words else None,
        )
    for number, row in enumerate(rows):
        table.add_row(*row, end_section=number in ends)
    return table


def _print_stacked(screen: Console, title: str, columns: Sequence[Column], rows: Rows) -> None:
    screen.print(title, style="italic", highlight=False)
    width = max(len(one.heading) for one in columns)
    for row in rows:
        screen.print()
        for one, cell in zip(columns, row, strict=True):
            screen.print(f"{one.heading:<{width}}  {cell}", soft_wrap=True, highlight=False)
    screen.print()
