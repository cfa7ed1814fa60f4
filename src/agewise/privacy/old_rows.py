"""Ledgers of earlier schemas, to be read only: each by the rules that it was written by.

A number says less than the columns do: schemas 3 and 5 were written with two sets of columns each.
What a row was hashed over are its own columns, whichever there are.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from typing import Any

from agewise.privacy.events import NUMBERS, Event
from agewise.privacy.rows import GENESIS

READ = ("3", "4", "5")
"""Earlier ones kept a write-ahead log, so that they cannot be proven complete."""
_RENAMED = {"epsilon": "classical_epsilon"}


def old_events(database: sqlite3.Connection) -> Iterator[Event]:
    """The events of such a ledger, each held against its hash, without the account it carries.

    Raises `ValueError` where something is not what was written.
    """
    columns = [row[1] for row in database.execute("PRAGMA table_info(events)")]
    previous, number = GENESIS, 0
    for values in database.execute("SELECT * FROM events ORDER BY number"):
        row: dict[str, Any] = dict(zip(columns, values, strict=True))
        number += 1
        own, before, payload = (row.pop(name) for name in ("hash", "previous", "payload"))
        row["private"] = bool(row["private"])
        row |= {"metric": json.loads(row["metric"])} if "metric" in row else {}
        reals = {name: float(row[name]).hex() for name in (*NUMBERS, "epsilon") if name in row}
        text = json.dumps(row | reals, sort_keys=True)
        body = f"{previous}\n{text}\n".encode() + payload
        if (row["number"], before) != (number, previous):
            raise ValueError(f"event {number} is missing")
        if hashlib.sha256(body).hexdigest() != own:
            raise ValueError(f"event {number} is not what was written")
        previous = own
        facts = {_RENAMED.get(name, name): value for name, value in row.items()}
        if facts.get("metric") is not None:
            facts["metric"] = tuple(tuple(line) for line in facts["metric"])
        yield Event(**facts | {"payload": payload, "account": ""})
    head = database.execute("SELECT value FROM meta WHERE key = 'head'").fetchone()
    if head is None or head[0] != f"{number} {previous}":
        raise ValueError("its last events are missing")
