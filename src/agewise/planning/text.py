"""The text of a plan: its JSON, and the hash of that. Clients alike are worked out once."""

from __future__ import annotations

import hashlib
import json
import marshal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from typing import Any

ASSIGNMENTS, CLIENTS = '"assignments": []', '"clients": []'


@dataclass(frozen=True)
class Alike:
    """Rows of a table that may be alike but for a name: `kinds` says which of the `rows` each is.

    In the rows themselves, one for each kind, the name is that of any.
    """

    names: list[str]
    kinds: list[int]
    rows: list[dict[str, Any]]

    @classmethod
    def of(cls, rows: Sequence[dict[str, Any]], name: str) -> Alike:
        """Rows that each stand for themselves, by what is written of them.

        1 and 1.0 differ, as zeros of two signs do. Of tables only those that are the same one are
        taken to be alike.
        """
        written = [
            [id(one) if isinstance(one, list | dict) else one for one in row.values()]
            for row in rows
        ]
        for row, told in zip(rows, written, strict=True):
            told[list(row).index(name)] = None
        kinds, first = numbered([*row, *told] for row, told in zip(rows, written, strict=True))
        return cls([row[name] for row in rows], kinds, [rows[place] for place in first])

    def expanded(self, name: str) -> list[dict[str, Any]]:
        """Every row by itself."""
        both = zip(self.names, self.kinds, strict=True)
        return [{**self.rows[kind], name: own} for own, kind in both]


def numbered(written: Iterable[Any]) -> tuple[list[int], list[int]]:
    """Number what is written alike: the number of each, and the place of the first of each."""
    numbers: dict[bytes, int] = {}
    kinds: list[int] = []
    first: list[int] = []
    for place, one in enumerate(written):
        kind = numbers.setdefault(marshal.dumps(one, 2), len(first))
        if kind == len(first):
            first.append(place)
        kinds.append(kind)
    return kinds, first


def plan_json(document: dict[str, Any]) -> str:
    """JSON of a plan's document for people and programs: a client on each line."""
    from agewise.documents import as_json  # noqa: PLC0415  (pydantic is slow to import)

    return "".join(_pieces(document, as_json, "\n      ", sort=False))


def fingerprint(document: dict[str, Any]) -> str:
    """SHA-256 of what `json.dumps` writes of a plan's document, with sorted keys."""

    def dumps(one: dict[str, Any]) -> str:
        return json.dumps(one, sort_keys=True, allow_nan=False)

    digest = hashlib.sha256()
    for piece in _pieces(document, dumps, "", sort=True):
        digest.update(piece.encode())
    return digest.hexdigest()


def _pieces(
    document: dict[str, Any], dumps: Callable[[dict[str, Any]], str], line: str, *, sort: bool
) -> Iterator[str]:
    """What `dumps` writes, bit by bit; but clients each in a line that begins with `line`."""
    scenario = document["scenario"]
    tables = (
        (ASSIGNMENTS, _alike(document["assignments"], "client"), "client"),
        (CLIENTS, _alike(scenario["clients"], "name"), "name"),
    )
    text = dumps({**document, "assignments": [], "scenario": {**scenario, "clients": []}})
    if text.count(ASSIGNMENTS) != 1 or text.count(CLIENTS) != 1:  # of a name in some table
        own, clients = [rows.expanded(name) for _, rows, name in tables]
        yield dumps({**document, "assignments": own, "scenario": {**scenario, "clients": clients}})
        return
    for gap, rows, name in sorted(tables, key=lambda table: text.index(table[0])):
        begin, text = text.split(gap)
        yield f"{begin}{gap[:-1]}{line}"
        between = ""
        for row in _rows(rows, name, sort):
            yield f"{between}{row}"
            between = f",{line or ' '}"
        yield "]"
    yield text


def _alike(rows: Alike | Sequence[dict[str, Any]], name: str) -> Alike:
    return rows if isinstance(rows, Alike) else Alike.of(rows, name)


def _rows(alike: Alike, name: str, sort: bool) -> Iterator[str]:
    """What `json.dumps` writes of each row."""
    parts = []
    for row in alike.rows:
        blank = json.dumps({**row, name: ""}, sort_keys=sort, allow_nan=False)
        head, gap, tail = blank.partition(f'"{name}": ""')
        parts.append((head + gap[:-2], tail))
    for own, kind in zip(alike.names, alike.kinds, strict=True):
        yield f"{parts[kind][0]}{encode_basestring_ascii(own)}{parts[kind][1]}"
