"""How the events of a ledger are written: the tables, the columns, the hash of each row."""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, overload

from agewise.checks import parse_json
from agewise.privacy.events import NUMBERS, Event

SCHEMA = 6
GENESIS = "0" * 64
PATIENCE = 30.0
"""Seconds to wait for another process that writes to the same ledger."""

TABLES = """
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


def advice_on(schema: str) -> str:
    """What to do about a file of another schema."""
    if schema.startswith(f"{SCHEMA}"):
        return "One holds the account of one client, the other those of many."
    return (
        "Keep the file as it is, and use the release of Agewise that wrote it, or begin "
        "another and count what this one holds as spent: agewise ledger show reads schemas 3 to 5."
    )


def create_tables(
    database: sqlite3.Connection, schema: str = str(SCHEMA), tables: str = TABLES
) -> None:
    """Write the tables of an empty ledger."""
    database.execute("BEGIN IMMEDIATE")
    for statement in tables.strip().split(";\n"):
        database.execute(statement)
    database.executemany(
        "INSERT INTO meta VALUES (?, ?)",
        [("schema", schema), ("head", f"0 {GENESIS}"), ("id", secrets.token_hex(16))],
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
    previous, metric = row.pop("previous"), parse_json(row["metric"])
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
    body = json.dumps(_hashed(event), sort_keys=True).encode() + b"\n" + event.payload
    return hashlib.sha256(previous.encode() + b"\n" + body).hexdigest()


def _hashed(event: Event) -> dict[str, Any]:
    """What of an event its hash is made of, but for the payload."""
    facts = {k: v for k, v in vars(event).items() if k not in ("hash", "payload")}
    for name in NUMBERS:
        facts[name] = float(facts[name]).hex()
    return facts


def folded(seal: str, one: str) -> str:
    """A seal over many hashes, with one more."""
    return hashlib.sha256(f"{seal}\n{one}".encode()).hexdigest()


def rows_alike(
    event: Event, payloads: Mapping[str, bytes], previous: Mapping[str, str]
) -> Iterator[list[Any]]:
    """The rows of events that are alike but for the client and its payload.

    Each is what `row_of` gives for the event with that client, payload and `hash_of` it, after the
    row whose hash is in `previous` (where there is none, the first).
    """
    row = row_of(event, GENESIS)
    places = [COLUMNS.index(name) for name in ("client", "payload", "hash", "previous")]
    facts = _hashed(event)
    before = json.dumps({k: v for k, v in facts.items() if k < "client"}, sort_keys=True)
    after = json.dumps({k: v for k, v in facts.items() if k > "client"}, sort_keys=True)
    head = f'\n{before[:-1]}, "client": '.encode()
    tail = f", {after[1:]}\n".encode()
    for client, payload in payloads.items():
        last = previous.get(client, GENESIS)
        body = last.encode() + head + json.dumps(client).encode() + tail + payload
        own = client, payload, hashlib.sha256(body).hexdigest(), last
        for place, value in zip(places, own, strict=True):
            row[place] = value
        yield row.copy()


class Known(Sequence[Event]):
    """The events of a ledger, oldest first: each is read when it is asked for."""

    def __init__(
        self, count: int, at: Callable[[int], Event], events: Callable[[], list[Event]]
    ) -> None:
        self._count, self._at, self._events = count, at, events

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events())

    @overload
    def __getitem__(self, place: int) -> Event: ...
    @overload
    def __getitem__(self, place: slice) -> list[Event]: ...
    def __getitem__(self, place: int | slice) -> Event | list[Event]:
        numbers = range(1, self._count + 1)[place]
        return self._at(numbers) if isinstance(numbers, int) else list(self)[place]


def file_state(database: sqlite3.Connection) -> str:
    """What is wrong with a file, "ok" if nothing is. A trigger could forget what is written."""
    odd = database.execute("SELECT type FROM sqlite_master WHERE type IN ('trigger', 'view')")
    if (found := odd.fetchone()) is not None:
        return f"it holds a {found[0]}, which no ledger has"
    return str(database.execute("PRAGMA integrity_check").fetchone()[0])
