"""How the events of a ledger are written: the tables, the columns, the hash of each row."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from agewise.privacy.events import NUMBERS, Event

SCHEMA = 6
GENESIS = "0" * 64
PATIENCE = 30.0
"""Seconds to wait for another process that writes to the same ledger."""

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE events (
  number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, client TEXT NOT NULL,
  collect_at INTEGER NOT NULL, aggregate_at INTEGER NOT NULL,
  classical_epsilon REAL NOT NULL, aged_epsilon REAL NOT NULL,
  sensitivity REAL NOT NULL, scale REAL NOT NULL,
  private INTEGER NOT NULL, mixing TEXT NOT NULL, fingerprint TEXT NOT NULL,
  made_at TEXT NOT NULL, payload BLOB NOT NULL, kind TEXT NOT NULL, delta REAL NOT NULL,
  aged_delta REAL NOT NULL, noise TEXT NOT NULL, metric TEXT NOT NULL, members INTEGER NOT NULL,
  account TEXT NOT NULL,
  previous TEXT NOT NULL, hash TEXT NOT NULL
) STRICT;
"""


COLUMNS = (*(field.name for field in fields(Event)), "previous")
NUMBER = COLUMNS.index("number")
INSERT = f"INSERT INTO events ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
SELECT = f"SELECT {', '.join(COLUMNS)} FROM events"


NOT_THE_FILE = (
    "SQLITE_BUSY",
    "SQLITE_CANTOPEN",
    "SQLITE_FULL",
    "SQLITE_PERM",
    "SQLITE_READONLY",
    "SQLITE_READONLY_DIRECTORY",
    "SQLITE_READONLY_ROLLBACK",
)
"""Errors that say nothing about what a ledger holds."""


def connect(where: str) -> sqlite3.Connection:
    """Open a ledger's file."""
    database = sqlite3.connect(
        where, timeout=PATIENCE, isolation_level=None, uri=where.startswith("file:")
    )
    try:
        # The folder is synced too, or a power cut could bring a journal back and undo a release.
        database.execute("PRAGMA synchronous=EXTRA")
    except BaseException:
        database.close()
        raise
    return database


def create_tables(database: sqlite3.Connection) -> None:
    """Write the tables of an empty ledger."""
    database.execute("BEGIN IMMEDIATE")
    for statement in _TABLES.strip().split(";\n"):
        database.execute(statement)
    database.executemany(
        "INSERT INTO meta VALUES (?, ?)",
        [("schema", str(SCHEMA)), ("head", f"0 {GENESIS}")],
    )
    database.execute("COMMIT")


def row_of(event: Event, previous: str) -> list[Any]:
    """The columns of an event, after the row whose hash is `previous`."""
    changed = {"private": int(event.private), "metric": json.dumps(event.metric)}
    columns = {**vars(event), **changed, "previous": previous}
    return [columns[name] for name in COLUMNS]


def event_of(values: Sequence[Any]) -> tuple[Event, str]:
    """The event of a row and the hash before it; raises if the row is not what was written."""
    row = dict(zip(COLUMNS, values, strict=True))
    previous, metric = row.pop("previous"), json.loads(row["metric"])
    if row["private"] not in (0, 1):
        raise ValueError("private is neither 0 nor 1")
    row["private"] = bool(row["private"])
    row["metric"] = None if metric is None else tuple(tuple(line) for line in metric)
    event = Event(**row)
    if hash_of(event, previous) != event.hash:
        raise ValueError("its hash is another")
    return event, previous


def hash_of(event: Event, previous: str) -> str:
    """The hash of an event that follows another."""
    facts = {k: v for k, v in vars(event).items() if k not in ("hash", "payload")}
    for name in NUMBERS:
        facts[name] = float(facts[name]).hex()
    body = json.dumps(facts, sort_keys=True).encode() + b"\n" + event.payload
    return hashlib.sha256(previous.encode() + b"\n" + body).hexdigest()
