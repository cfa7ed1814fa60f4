"""The fingerprint of a plan: the hash of its JSON, in which clients alike are written once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii
from typing import Any

ASSIGNMENTS, CLIENTS = '"assignments": []', '"clients": []'


def fingerprint(document: dict[str, Any]) -> str:
    """SHA-256 of what `json.dumps` writes of a plan's document, with sorted keys."""
    scenario = document["scenario"]
    rows = written(document["assignments"], "client"), written(scenario["clients"], "name")
    without = {**document, "assignments": [], "scenario": {**scenario, "clients": []}}
    text = json.dumps(without, sort_keys=True, allow_nan=False)
    if text.count(ASSIGNMENTS) != 1 or text.count(CLIENTS) != 1:  # of a name in some table
        text = json.dumps(document, sort_keys=True, allow_nan=False)
    else:
        for gap, own in zip((ASSIGNMENTS, CLIENTS), rows, strict=True):
            text = text.replace(gap, f"{gap[:-2]}{own}")
    return hashlib.sha256(text.encode()).hexdigest()


def written(rows: Sequence[dict[str, Any]], name: str) -> str:
    """What `json.dumps` writes of rows that may be alike but for a name, with sorted keys."""
    parts: dict[Any, tuple[str, str]] = {}
    texts = []
    for row in rows:
        kind = tuple([_key(k, v) for k, v in row.items() if k != name])
        if kind not in parts:
            blank = json.dumps({**row, name: ""}, sort_keys=True, allow_nan=False)
            head, gap, tail = blank.partition(f'"{name}": ""')
            parts[kind] = head + gap[:-2], tail
        head, tail = parts[kind]
        texts.append(f"{head}{encode_basestring_ascii(row[name])}{tail}")
    return f"[{', '.join(texts)}]"


def _key(name: str, value: Any) -> tuple[Any, ...]:
    """What a value is told apart by: what is written of it; of a table, which one it is."""
    if isinstance(value, list | dict):
        return name, id(value)
    return name, type(value), value or str(value)  # of a zero its sign, too
