"""The text of a plan: its JSON, and the hash of that. Clients alike are worked out once."""

from __future__ import annotations

import hashlib
import json
import marshal
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any

ASSIGNMENTS, CLIENTS = '"assignments": []', '"clients": []'


def plan_json(document: dict[str, Any]) -> str:
    """JSON of a plan's document for people and programs: a client on each line."""
    from agewise.documents import as_json  # noqa: PLC0415  (pydantic is slow to import)

    return _text(document, as_json, "\n      ", sort=False)


def fingerprint(document: dict[str, Any]) -> str:
    """SHA-256 of what `json.dumps` writes of a plan's document, with sorted keys."""

    def dumps(one: dict[str, Any]) -> str:
        return json.dumps(one, sort_keys=True, allow_nan=False)

    return hashlib.sha256(_text(document, dumps, "", sort=True).encode()).hexdigest()


def _text(
    document: dict[str, Any], dumps: Callable[[dict[str, Any]], str], line: str, *, sort: bool
) -> str:
    """What `dumps` writes, but for clients: each in a line that begins with `line`."""
    scenario = document["scenario"]
    text = dumps({**document, "assignments": [], "scenario": {**scenario, "clients": []}})
    if text.count(ASSIGNMENTS) != 1 or text.count(CLIENTS) != 1:  # of a name in some table
        return dumps(document)
    for gap, rows, name in (
        (ASSIGNMENTS, document["assignments"], "client"),
        (CLIENTS, scenario["clients"], "name"),
    ):
        begin, end = text.split(gap)
        told = f",{line or ' '}".join(_rows(rows, name, sort))
        text = f"{begin}{gap[:-1]}{line}{told}]{end}"
    return text


def _rows(rows: Sequence[dict[str, Any]], name: str, sort: bool) -> list[str]:
    """What `json.dumps` writes of each of many rows that may be alike but for a name."""
    parts: dict[Any, tuple[str, str]] = {}
    texts = []
    for row in rows:
        # Told apart by what is written: 1 and 1.0 differ, as zeros of two signs do. Of tables
        # only those that are the same one are taken to be alike.
        told = [id(one) if isinstance(one, list | dict) else one for one in row.values()]
        told[list(row).index(name)] = None
        kind = marshal.dumps([*row, *told], 2)
        if kind not in parts:
            blank = json.dumps({**row, name: ""}, sort_keys=sort, allow_nan=False)
            head, gap, tail = blank.partition(f'"{name}": ""')
            parts[kind] = head + gap[:-2], tail
        head, tail = parts[kind]
        texts.append(f"{head}{encode_basestring_ascii(row[name])}{tail}")
    return texts
