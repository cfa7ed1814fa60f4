"""The account of what a client has released: durable, append-only, checked on every opening.

One SQLite file on the client's own disk. A release is one row: the event and the exact noised
bytes, committed in one transaction *before* anything leaves the client. A retry finds the row and
sends the stored bytes again; fresh noise would be a second release. Each row carries the hash of
the row before it, so that a changed, missing or reordered row is noticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from agewise.errors import AgewiseError, InvalidInput, positive
from agewise.mixing import Method
from agewise.privacy.composition import Release, Total, composed_epsilon
from agewise.process import Process

SCHEMA = 2
GENESIS = "0" * 64
ROOM = 1e-9
"""Limits hold to nine digits: what is long past never vanishes entirely from a float."""
PATIENCE = 30.0
"""Seconds to wait for another process that writes to the same ledger."""

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE events (
  number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, client TEXT NOT NULL,
  collect_at INTEGER NOT NULL, aggregate_at INTEGER NOT NULL, epsilon REAL NOT NULL,
  aged_epsilon REAL NOT NULL, sensitivity REAL NOT NULL, scale REAL NOT NULL,
  private INTEGER NOT NULL, mixing TEXT NOT NULL, fingerprint TEXT NOT NULL,
  made_at TEXT NOT NULL, payload BLOB NOT NULL,
  previous TEXT NOT NULL, hash TEXT NOT NULL
) STRICT;
"""


class BudgetExceeded(AgewiseError):
    """A release that the client's own policy does not allow. Nothing was released."""

    exit_code = 3


class LedgerDamaged(AgewiseError):
    """A ledger that is not what was written: nothing can be concluded from it."""

    exit_code = 2


@dataclass(frozen=True)
class Policy:
    """What a client allows itself to spend, at most; None is no limit.

    `window` limits what is collected in any so many slots in a row (None: all there ever was).
    """

    max_aged_epsilon: float | None = None
    max_classical_epsilon: float | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_aged_epsilon", "max_classical_epsilon"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        if self.window is not None and not (isinstance(self.window, int) and self.window >= 1):
            raise InvalidInput("window", self.window, "a whole number of slots, 1 or more")


@dataclass(frozen=True)
class Event:
    """One release, as it stands in the ledger. Slots are counted over all runs of the client.

    `epsilon` is classical; `aged_epsilon` is what this release alone guarantees about the records
    in slot `aggregate_at`. Both are only what the noise would give where `private` is false.
    """

    key: str
    client: str
    collect_at: int
    aggregate_at: int
    epsilon: float
    aged_epsilon: float
    sensitivity: float
    scale: float
    private: bool
    mixing: str
    fingerprint: str
    made_at: str
    payload: bytes
    number: int = 0
    hash: str = ""

    def __post_init__(self) -> None:
        if not self.collect_at <= self.aggregate_at:
            raise InvalidInput("collect_at", self.collect_at, f"up to {self.aggregate_at}")
        for name in ("epsilon", "aged_epsilon", "sensitivity", "scale"):
            if not getattr(self, name) >= 0:
                raise InvalidInput(name, getattr(self, name), "0 or more")
        if not isinstance(self.payload, bytes) or not isinstance(self.private, bool):
            raise InvalidInput("payload, private", repr(self.payload), "bytes, and true or false")
        if not self.key.isprintable() or not self.key:
            raise InvalidInput("key", repr(self.key), "printable letters")

    def facts(self) -> dict[str, Any]:
        """Everything but the payload, for people and programs."""
        return {k: v for k, v in vars(self).items() if k != "payload"}


class Ledger:
    """A client's ledger. `Ledger(path)` opens or creates it; `Ledger.read(path)` never writes.

    `Ledger(None)` lives in memory: for simulated records only, since it forgets.
    """

    def __init__(self, path: Path | str | None) -> None:
        self.path = Path("memory") if path is None else Path(path).absolute()
        try:
            if path is None:
                self._database = _connect(":memory:")
                _found(self._database)
            else:
                if not self.path.exists():
                    self._begin()
                if self.path.is_file() and self.path.stat().st_size == 0:
                    raise self._damaged("the file is empty")
                self._database = _connect(str(self.path))
                if not self._names():
                    raise self._damaged("it holds no ledger")
                self._refuse_unwritable()
        except sqlite3.OperationalError as error:
            raise self._unwritable(error) from None
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from None
        self.verify()

    def _begin(self) -> None:
        """Make an empty ledger beside its place and link it there: whole, or not at all."""
        draft = self.path.with_name(f".{self.path.name[:200]}.{secrets.token_hex(8)}.new")
        try:
            database = _connect(str(draft))
            _found(database)
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
        self.path = Path(path)
        if not self.path.is_file():
            raise InvalidInput("ledger", str(path), "an existing ledger file")
        log = self.path.with_name(self.path.name + "-wal")
        # Without a log nobody is writing, and the file can be read without touching its folder.
        modes = ["mode=ro"] if log.exists() else ["mode=ro&immutable=1", "mode=ro"]
        for mode in modes:
            try:
                self._open(mode)
                return self
            except LedgerDamaged:
                if mode == modes[-1]:
                    raise
        return self

    def _open(self, mode: str) -> None:
        uri = f"{self.path.absolute().as_uri()}?{mode}"
        try:
            self._database = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
            if not self._names():
                raise self._damaged("it holds no ledger")
        except sqlite3.OperationalError as error:
            raise InvalidInput(
                "ledger", f"{self.path} ({error})", "a file that can be read",
                "While another process writes to it, its folder must be writable for readers too.",
            ) from None  # fmt: skip
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from None
        self.verify()

    def close(self) -> None:
        """Close the file. Everything recorded is on disk already."""
        self._database.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def events(self) -> list[Event]:
        """All events, oldest first."""
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
        try:
            with self._exclusively():
                known = self._check_rows()
                for event in known:
                    if event.key == key:
                        return event
                made = make(known)
                if made.key != key:
                    raise InvalidInput("key", made.key, key)
                self.refuse_stranger(made)
                keep_to(policy, known, made, process, method, law)
                return self._append(made, known)
        except sqlite3.OperationalError as error:
            raise self._unwritable(error) from None
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from None

    def verify(self) -> int:
        """Check version, file and hash chain; return the number of events, or say what is wrong."""
        try:
            found = dict(self._database.execute("SELECT key, value FROM meta").fetchall())
            if found.get("schema") != str(SCHEMA):
                raise InvalidInput(
                    "ledger", f"{self.path} of schema {found.get('schema')}", f"schema {SCHEMA}",
                    "Use the release of Agewise that wrote it; keep the file as it is.",
                )  # fmt: skip
            state = self._database.execute("PRAGMA integrity_check").fetchone()[0]
            if state != "ok":
                raise self._damaged(str(state))
            return len(self._check_rows())
        except sqlite3.DatabaseError as error:
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

    def refuse_stranger(self, made: Event) -> None:
        """Raise if the ledger holds another client's account."""
        row = self._database.execute("SELECT client FROM events WHERE number = 1").fetchone()
        if row is not None and row[0] != made.client:
            raise InvalidInput(
                "ledger", f"{self.path} of client {row[0]!r}",
                f"the ledger of client {made.client!r}", "A ledger holds one client's account.",
            )  # fmt: skip

    def _append(self, made: Event, known: list[Event]) -> Event:
        previous = known[-1].hash if known else GENESIS
        numbered = replace(made, number=len(known) + 1, hash="")
        event = replace(numbered, hash=_hash(numbered, previous))
        self._database.execute(
            "INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (event.number, event.key, event.client, event.collect_at, event.aggregate_at,
             event.epsilon, event.aged_epsilon, event.sensitivity, event.scale,
             int(event.private), event.mixing, event.fingerprint, event.made_at, event.payload,
             previous, event.hash),
        )  # fmt: skip
        self._database.execute(
            "INSERT OR REPLACE INTO meta VALUES ('head', ?)", (f"{event.number} {event.hash}",)
        )
        return event

    def _rows(self) -> Iterator[tuple[Event, str]]:
        for row in self._database.execute("SELECT * FROM events ORDER BY number"):
            number, key, client, collected, aggregated, epsilon, aged, reach, scale = row[:9]
            private, mixing, fingerprint, made_at, payload, previous, digest = row[9:]
            if private not in (0, 1):
                raise self._damaged(f"event {number} is not what was written")
            try:
                event = Event(
                    key, client, collected, aggregated, epsilon, aged, reach, scale,
                    bool(private), mixing, fingerprint, made_at, payload, number, digest,
                )  # fmt: skip
            except InvalidInput:
                raise self._damaged(f"event {number} is not what was written") from None
            yield event, previous

    def _names(self) -> list[str]:
        rows = self._database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return [row[0] for row in rows]

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
            "ledger", f"{self.path} ({error})", "a file that can be written to",
            "Nothing was released.",
        )  # fmt: skip

    def _damaged(self, what: str) -> LedgerDamaged:
        return LedgerDamaged(
            f"ledger {self.path} is damaged: {what}. It is not repaired, and nothing is released "
            "from it. Restore a backup, or set it aside and count its client's budget as spent."
        )


def _connect(where: str) -> sqlite3.Connection:
    database = sqlite3.connect(where, timeout=PATIENCE, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    return database


def _found(database: sqlite3.Connection) -> None:
    """Write the tables of an empty ledger."""
    database.execute("BEGIN IMMEDIATE")
    for statement in _TABLES.strip().split(";\n"):
        database.execute(statement)
    database.executemany(
        "INSERT INTO meta VALUES (?, ?)",
        [("schema", str(SCHEMA)), ("head", f"0 {GENESIS}")],
    )
    database.execute("COMMIT")


def now() -> str:
    """The time of an event, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _hash(event: Event, previous: str) -> str:
    facts = {k: v for k, v in event.facts().items() if k != "hash"}
    for name in ("epsilon", "aged_epsilon", "sensitivity", "scale"):
        facts[name] = float(facts[name]).hex()
    body = json.dumps(facts, sort_keys=True).encode() + b"\n" + event.payload
    return hashlib.sha256(previous.encode() + b"\n" + body).hexdigest()


def total_of(
    events: list[Event],
    process: Process,
    aggregate_at: int,
    method: Method = "exact",
    law: ArrayLike | None = None,
    window: int | None = None,
) -> Total:
    """Return what the private releases among `events` add up to, as seen in slot `aggregate_at`.

    A single release that was reckoned for that very slot, by this method and process, keeps the
    aged ε proven for its own mechanism; several compose by `composed_epsilon`, which knows only
    their classical ε's. What was collected after `aggregate_at` counts in full. With `own_law`,
    the law is stated for each collection by itself, so that several compose by `any_prior`.
    """
    counted = _counted(events, aggregate_at, window)
    before = [event for event in counted if event.collect_at <= aggregate_at]
    after = math.fsum(event.epsilon for event in counted if event.collect_at > aggregate_at)
    if method == "own_law" and len(counted) > 1:
        method, law = "any_prior", None
    releases = [Release(event.collect_at, event.epsilon) for event in before]
    total = composed_epsilon(releases, process, aggregate_at, method, law)
    aged, alone = total.aged, before[0] if len(before) == 1 else None
    if (
        alone is not None
        and alone.aggregate_at == aggregate_at
        and (alone.mixing, alone.fingerprint) == (method, process.fingerprint)
    ):
        aged = min(aged, alone.aged_epsilon)
    if not process.markov and after:
        aged = total.classical
    return Total(aged + after, total.classical + after)


def _counted(events: list[Event], aggregate_at: int, window: int | None) -> list[Event]:
    """The private releases that count: those with noise, or without any, in the window."""
    return [
        event
        for event in events
        if event.private
        and event.epsilon > 0
        and (window is None or event.collect_at > aggregate_at - window)
    ]


def keep_to(
    policy: Policy,
    known: list[Event],
    made: Event,
    process: Process,
    method: Method,
    law: ArrayLike | None,
) -> None:
    """Refuse an event that would take the total over the policy; say what remains.

    The total must keep to the policy in every slot in which some release is reckoned, and with a
    window, for the releases collected in any so many slots in a row.
    """
    if not made.private or (
        policy.max_aged_epsilon is None and policy.max_classical_epsilon is None
    ):
        return
    for group in _groups(known, made, policy.window):
        with_it = [*group, made]
        for at in sorted({e.aggregate_at for e in with_it if e.aggregate_at >= made.collect_at}):
            before = total_of(group, process, at, method, law)
            after = total_of(with_it, process, at, method, law)
            _refuse_over(policy, made, before, after)


def _groups(known: list[Event], made: Event, window: int | None) -> list[list[Event]]:
    """The earlier events that count together with a new one, for each window that holds it."""
    if window is None:
        return [known]
    ends = {made.collect_at} | {
        e.collect_at for e in known if made.collect_at < e.collect_at < made.collect_at + window
    }
    return [[e for e in known if end - window < e.collect_at <= end] for end in sorted(ends)]


def _refuse_over(policy: Policy, made: Event, before: Total, after: Total) -> None:
    for name, limit, spent, wanted in (
        ("aged ε", policy.max_aged_epsilon, before.aged, after.aged),
        ("classical ε", policy.max_classical_epsilon, before.classical, after.classical),
    ):
        if limit is not None and not wanted <= limit * (1 + ROOM):
            left = limit - spent if spent < limit * (1 - ROOM) else 0.0
            raise BudgetExceeded(
                f"client {made.client!r} would reach {name} {wanted:.6g}, its policy allows "
                f"{limit:.6g}: {left:.6g} remains. Nothing was released. Wait until earlier "
                "releases have aged, or raise the policy on the client."
            )
