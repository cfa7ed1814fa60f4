"""The account of what a client has released: durable, append-only, checked on every opening.

One SQLite file on the client's own disk, readable by its owner only. A release is one row: the
event and the exact bytes, committed in one transaction *before* anything leaves the client. A retry
finds the row and sends the stored bytes again; fresh noise would be a second release. Each row
carries the hash of the row before it, so that a changed, missing or reordered row is noticed.

Between releases the one file holds everything: SQLite keeps a rollback journal beside it only while
it writes, and no write-ahead log, whose loss would forget releases without a trace.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path

from numpy.typing import ArrayLike

from agewise.errors import AgewiseError, InvalidInput
from agewise.mixing import Method
from agewise.privacy.account import NUMBERS, Event, Policy, enforce, total_of
from agewise.privacy.composition import Total
from agewise.process import Process

SCHEMA = 5
WRITE_AHEAD = b"\x02\x02"
"""Bytes 18 and 19 of an SQLite file that keeps a write-ahead log, as schemas 1 and 2 did."""
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
  aged_delta REAL NOT NULL, noise TEXT NOT NULL,
  previous TEXT NOT NULL, hash TEXT NOT NULL
) STRICT;
"""


_COLUMNS = (*(field.name for field in fields(Event)), "previous")
_INSERT = f"INSERT INTO events ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM events ORDER BY number"


class LedgerDamaged(AgewiseError):
    """A ledger that is not what was written: nothing can be concluded from it."""

    exit_code = 2


class Ledger:
    """A client's ledger. `Ledger(path)` opens or creates it; `Ledger.read(path)` never writes.

    `Ledger(None)` lives in memory: for simulated records only, since it forgets.
    """

    advice = (
        "nothing is released from it. Set it aside and count its client's budget as spent: an "
        "older copy would forget what was released since."
    )

    def __init__(self, path: Path | str | None) -> None:
        self.path = Path("memory") if path is None else Path(path).absolute()
        try:
            if path is None:
                self._database = _connect(":memory:")
                _create_tables(self._database)
            else:
                if not self.path.exists():
                    self._begin()
                self._open(str(self.path))
                self._refuse_unwritable()
        except sqlite3.OperationalError as error:
            raise self._unwritable(error) from None

    def _begin(self) -> None:
        """Make an empty ledger beside its place and link it there: whole, or not at all."""
        draft = self.path.with_name(f".{self.path.name[:200]}.{secrets.token_hex(8)}.new")
        try:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL, 0o600))
            database = _connect(str(draft))
            _create_tables(database)
            database.close()
            with contextlib.suppress(FileExistsError):  # another process was faster
                os.link(draft, self.path)
            place = os.open(self.path.parent, os.O_RDONLY)
            os.fsync(place)
            os.close(place)
        except OSError as error:
            raise self._unwritable(error) from None
        finally:
            draft.unlink(missing_ok=True)

    def _refuse_unwritable(self) -> None:
        """Try to write now, and take it back, rather than fail when a release is due."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            self._database.execute("UPDATE meta SET value = value")
        finally:
            self._database.execute("ROLLBACK")

    @classmethod
    def read(cls, path: Path | str) -> Ledger:
        """Open an existing ledger for reading only, and check it."""
        self = cls.__new__(cls)
        self.path = Path(path).absolute()
        if not self.path.is_file():
            raise InvalidInput("ledger", str(path), "an existing ledger file")
        try:
            self._open(f"{self.path.as_uri()}?mode=ro")
        except sqlite3.OperationalError as error:
            raise InvalidInput(
                "ledger",
                f"{self.path} ({error})",
                "a file that can be read",
                "After an interrupted release its client must open it first, to take that back.",
            ) from None
        return self

    def _open(self, where: str) -> None:
        """Connect to an existing file and check it; close it again if that fails."""
        try:
            with self.path.open("rb") as file:
                header = file.read(20)
        except OSError as error:
            raise sqlite3.OperationalError(error.strerror) from None
        if not header:
            raise self._damaged("the file is empty")
        if header[18:20] == WRITE_AHEAD:
            raise self._of_schema("1 or 2", "What it has released cannot be proven complete.")
        with self._suspecting():
            self._database = _connect(where)
        try:
            self.verify()
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        """Close the file. Everything recorded is on disk already."""
        self._database.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def events(self) -> list[Event]:
        """All events, oldest first."""
        with self._suspecting():
            return [event for event, _ in self._rows()]

    def find(self, key: str) -> Event | None:
        """The event with this key, if it was ever recorded."""
        return next((event for event in self.events() if event.key == key), None)

    def total(
        self,
        process: Process,
        aggregate_at: int,
        method: Method = "exact",
        law: ArrayLike | None = None,
        window: int | None = None,
    ) -> Total:
        """What the private releases add up to, as seen in slot `aggregate_at`."""
        return total_of(self.events(), process, aggregate_at, method, law, window)

    def release(
        self,
        key: str,
        make: Callable[[list[Event]], Event],
        policy: Policy,
        process: Process,
        method: Method = "exact",
        law: ArrayLike | None = None,
    ) -> Event:
        """Record a release and return it; if `key` was released before, return that one.

        `make` draws the noise and is called, with the events so far, only if the key is new,
        inside the transaction that also checks the policy and stores the bytes.

        Guarantees
            After this returns, the event and its bytes are on disk. Whatever crashes, the same
            key never yields two different payloads, and the ledger never shows less than what
            was returned. However many processes share the file, the total never exceeds the
            policy. Raises `BudgetExceeded` with nothing recorded.
        """
        return self.record(
            key, make, lambda known, new: enforce(policy, known, new, process, method, law)
        )

    def record(
        self,
        key: str,
        make: Callable[[list[Event]], Event],
        check: Callable[[list[Event], Event], None] | None = None,
    ) -> Event:
        """Record what `make` returns, or return what `key` has recorded: as `release`, in one go.

        `check` raises if the new event must not follow those so far.
        """
        try:
            with self._exclusively():
                with self._suspecting():
                    known = self._check_rows()
                for event in known:
                    if event.key == key:
                        return event
                new = make(known)
                if new.key != key:
                    raise InvalidInput("key", new.key, key)
                self.refuse_stranger(new)
                if check is not None:
                    check(known, new)
                return self._append(new, known)
        except sqlite3.OperationalError as error:
            raise self._unwritable(error) from None
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from None

    def verify(self) -> int:
        """Check version, file and hash chain; return the number of events, or say what is wrong."""
        with self._suspecting(), self._at_once():
            if not self._names():
                raise self._damaged("it holds no ledger")
            meta = dict(self._database.execute("SELECT key, value FROM meta").fetchall())
            if meta.get("schema") != str(SCHEMA):
                raise self._of_schema(str(meta.get("schema")))
            state = self._database.execute("PRAGMA integrity_check").fetchone()[0]
            if state != "ok":
                raise self._damaged(str(state))
            return len(self._check_rows())

    @contextlib.contextmanager
    def _suspecting(self) -> Iterator[None]:
        """Whatever reading a changed file may end in is one answer: damaged."""
        try:
            yield
        except AgewiseError:
            raise
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorname", "") in _NOT_THE_FILE:
                raise
            raise self._damaged(str(error)) from None
        except (sqlite3.Error, ArithmeticError, TypeError, ValueError) as error:
            raise self._damaged(str(error)) from None

    def _check_rows(self) -> list[Event]:
        previous, number, events = GENESIS, 0, []
        for event, before in self._rows():
            number += 1
            if event.number != number:
                raise self._damaged(f"event {number} is missing")
            if before != previous or _hash(event, previous) != event.hash:
                raise self._damaged(f"event {number} is not what was written")
            previous = event.hash
            events.append(event)
        head = self._database.execute("SELECT value FROM meta WHERE key = 'head'").fetchone()
        if head is None or head[0] != f"{number} {previous}":
            raise self._damaged("its last events are missing")
        return events

    def refuse_stranger(self, new: Event) -> None:
        """Raise if the ledger holds another client's account."""
        row = self._database.execute("SELECT client FROM events WHERE number = 1").fetchone()
        if row is not None and row[0] != new.client:
            raise InvalidInput(
                "ledger",
                f"{self.path} of client {row[0]!r}",
                f"the ledger of client {new.client!r}",
                "A ledger holds one client's account.",
            )

    def _append(self, new: Event, known: list[Event]) -> Event:
        previous = known[-1].hash if known else GENESIS
        numbered = replace(new, number=len(known) + 1, hash="")
        event = replace(numbered, hash=_hash(numbered, previous))
        columns = {**vars(event), "private": int(event.private), "previous": previous}
        self._database.execute(_INSERT, [columns[name] for name in _COLUMNS])
        self._database.execute(
            "INSERT OR REPLACE INTO meta VALUES ('head', ?)", (f"{event.number} {event.hash}",)
        )
        return event

    def _rows(self) -> Iterator[tuple[Event, str]]:
        for values in self._database.execute(_SELECT):
            row = dict(zip(_COLUMNS, values, strict=True))
            number, previous = row["number"], row.pop("previous")
            if row["private"] not in (0, 1):
                raise self._damaged(f"event {number} is not what was written")
            try:
                event = Event(**{**row, "private": bool(row["private"])})
            except InvalidInput:
                raise self._damaged(f"event {number} is not what was written") from None
            yield event, previous

    def _names(self) -> list[str]:
        rows = self._database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return [row[0] for row in rows]

    @contextlib.contextmanager
    def _at_once(self) -> Iterator[None]:
        """Everything read in here is of one moment, whoever else is writing."""
        self._database.execute("BEGIN")
        try:
            yield
        finally:
            self._database.execute("ROLLBACK")

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def _unwritable(self, error: Exception) -> InvalidInput:
        return InvalidInput(
            "ledger",
            f"{self.path} ({error})",
            "a file that can be written to",
            "Nothing was released.",
        )

    def _of_schema(self, schema: str, why: str = "") -> InvalidInput:
        return InvalidInput(
            "ledger",
            f"{self.path} of schema {schema}",
            f"schema {SCHEMA}",
            f"{why} Keep the file as it is, and use the release of Agewise that wrote it, or begin "
            "another and count what this one holds as spent.".lstrip(),
        )

    def _damaged(self, what: str) -> LedgerDamaged:
        return LedgerDamaged(
            f"ledger {self.path} is damaged: {what}. It is not repaired, and {self.advice}"
        )


_NOT_THE_FILE = (
    "SQLITE_BUSY",
    "SQLITE_CANTOPEN",
    "SQLITE_FULL",
    "SQLITE_PERM",
    "SQLITE_READONLY",
    "SQLITE_READONLY_DIRECTORY",
    "SQLITE_READONLY_ROLLBACK",
)
"""Errors that say nothing about what a ledger holds."""


def _connect(where: str) -> sqlite3.Connection:
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


def _create_tables(database: sqlite3.Connection) -> None:
    """Write the tables of an empty ledger."""
    database.execute("BEGIN IMMEDIATE")
    for statement in _TABLES.strip().split(";\n"):
        database.execute(statement)
    database.executemany(
        "INSERT INTO meta VALUES (?, ?)",
        [("schema", str(SCHEMA)), ("head", f"0 {GENESIS}")],
    )
    database.execute("COMMIT")


def _hash(event: Event, previous: str) -> str:
    facts = {k: v for k, v in event.facts().items() if k != "hash"}
    for name in NUMBERS:
        facts[name] = float(facts[name]).hex()
    body = json.dumps(facts, sort_keys=True).encode() + b"\n" + event.payload
    return hashlib.sha256(previous.encode() + b"\n" + body).hexdigest()
