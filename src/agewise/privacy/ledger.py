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
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from numpy.typing import ArrayLike

from agewise.errors import AgewiseError, InvalidInput
from agewise.mixing import Method
from agewise.privacy.account import enforce, total_of
from agewise.privacy.composition import Total
from agewise.privacy.events import Event, Policy
from agewise.privacy.rows import (
    GENESIS,
    INSERT,
    NOT_THE_FILE,
    NUMBER,
    SCHEMA,
    SELECT,
    TABLES,
    Known,
    advice_on,
    connect,
    create_tables,
    event_of,
    file_state,
    hash_of,
    row_of,
)
from agewise.privacy.standing import Standing, standing_after
from agewise.process import Process

WRITE_AHEAD = b"\x02\x02"
"""Bytes 18 and 19 of an SQLite file that keeps a write-ahead log, as schemas 1 and 2 did."""


def account_after(
    policy: Policy,
    known: Sequence[Event],
    new: Event,
    process: Process,
    method: Method,
    law: ArrayLike | None,
) -> str:
    """Refuse an event that the policy does not allow; return the account that it carries on."""
    enforce(policy, known, new, process, method, law)
    carried = policy.promise is not None and law is None
    after = standing_after(known, new, process, method) if carried else None
    return "" if after is None else after.write()


class LedgerDamaged(AgewiseError):
    """A ledger that is not what was written: nothing can be concluded from it."""

    exit_code = 2


class Ledger:
    """A client's ledger. `Ledger(path)` opens or creates it; `Ledger.read(path)` never writes.

    `Ledger(None)` lives in memory: for simulated records only, since it forgets.
    """

    schema, tables = str(SCHEMA), TABLES
    advice = (
        "nothing is released from it. Set it aside and count its client's budget as spent: an "
        "older copy would forget what was released since."
    )

    def __init__(self, path: Path | str | None) -> None:
        self.path = Path("memory") if path is None else Path(path).absolute()
        try:
            if path is None:
                self._database = connect(":memory:")
                create_tables(self._database, self.schema, self.tables)
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
            database = connect(str(draft))
            create_tables(database, self.schema, self.tables)
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
    def read(cls, path: Path | str) -> Self:
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
            self._database = connect(where)
        try:
            self.verify()
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        """Close the file. Everything recorded is on disk already."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def events(self) -> list[Event]:
        """All events, oldest first."""
        with self._suspecting():
            return [event for event, _ in self._rows("ORDER BY number")]

    def known(self) -> Sequence[Event]:
        """The events, each read when it is asked for, and held against its hash."""
        with self._suspecting():
            count, last = self._head()
            end = self._end()
        if end != count or (count and self.at(count).hash != last):
            raise self._damaged("its last events are missing")
        return Known(count, self.at, self.events)

    def find(self, key: str) -> Event | None:
        """The event with this key, if it was ever recorded."""
        with self._suspecting():
            return next((event for event, _ in self._rows("WHERE key = ?", key)), None)

    def at(self, number: int) -> Event:
        """The event with this number."""
        with self._suspecting():
            for event, _ in self._rows("WHERE number = ?", number):
                return event
        raise self._damaged(f"event {number} is missing")

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

    def check_account(self, process: Process, method: Method = "exact") -> None:
        """Raise if the account that the last event carries is less than all events add up to."""
        events = self.events()
        stored = Standing.read(events[-1].account) if events else None
        if stored is None or not stored.is_of(process, method):
            return
        folded = Standing.of(events, process, method)
        if folded is None or not stored.covers(folded):
            raise self._damaged("the account that it carries on is not that of its events")

    def release(
        self,
        key: str,
        make: Callable[[Sequence[Event]], Event],
        policy: Policy,
        process: Process,
        method: Method = "exact",
        law: ArrayLike | None = None,
    ) -> Event:
        """Record a release and return it; if `key` was released before, return that one.

        `make` draws the noise and is called, with the events so far, only if the key is new,
        inside the transaction that also checks the policy and stores the bytes. Where the policy
        makes a promise, the row also carries the account on, and the next release costs the same
        however many there were.

        Guarantees
            After this returns, the event and its bytes are on disk. Whatever crashes, the same
            key never yields two different payloads, and the ledger never shows less than what
            was returned. However many processes share the file, the total never exceeds the
            policy. Raises `BudgetExceeded` with nothing recorded.
        """

        def check(known: Sequence[Event], new: Event) -> str:
            return account_after(policy, known, new, process, method, law)

        return self.record(key, make, check)

    def record(
        self,
        key: str,
        make: Callable[[Sequence[Event]], Event],
        check: Callable[[Sequence[Event], Event], str] | None = None,
    ) -> Event:
        """Record what `make` returns, or return what `key` has recorded: as `release`, in one go.

        `check` raises if the new event must not follow those so far, and returns the account.
        """
        try:
            with self._exclusively():
                known = self.known()
                stored = self.find(key)
                if stored is not None:
                    return stored
                new = make(known)
                if new.key != key:
                    raise InvalidInput("key", new.key, key)
                self.refuse_stranger(new)
                account = "" if check is None else check(known, new)
                return self._append(replace(new, account=account), known)
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
            if meta.get("schema") != self.schema:
                raise self._of_schema(str(meta.get("schema")))
            state = file_state(self._database)
            if state != "ok":
                raise self._damaged(str(state))
            return self._check_rows()

    @contextlib.contextmanager
    def _suspecting(self) -> Iterator[None]:
        """Whatever reading a changed file may end in is one answer: damaged."""
        try:
            yield
        except AgewiseError:
            raise
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorname", "") in NOT_THE_FILE:
                raise
            raise self._damaged(str(error)) from None
        except (sqlite3.Error, ArithmeticError, TypeError, ValueError) as error:
            raise self._damaged(str(error)) from None

    def _check_rows(self) -> int:
        """Hold every row against the one before it; return how many there are."""
        previous, number = GENESIS, 0
        for event, before in self._rows("ORDER BY number"):
            number += 1
            if event.number != number:
                raise self._damaged(f"event {number} is missing")
            if before != previous:
                raise self._damaged(f"event {number} is not what was written")
            previous = event.hash
        if self._head() != (number, previous):
            raise self._damaged("its last events are missing")
        return number

    def _end(self) -> int:
        """The number of the last event that is there."""
        return int(self._database.execute("SELECT max(number) FROM events").fetchone()[0] or 0)

    def _head(self) -> tuple[int, str]:
        head = self._database.execute("SELECT value FROM meta WHERE key = 'head'").fetchone()
        if head is None:
            raise self._damaged("its last events are missing")
        number, last = head[0].split(" ")
        return int(number), last

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

    def _append(self, new: Event, known: Sequence[Event]) -> Event:
        previous = known[-1].hash if len(known) else GENESIS
        numbered = replace(new, number=len(known) + 1, hash="")
        event = replace(numbered, hash=hash_of(numbered, previous))
        self._database.execute(INSERT, row_of(event, previous))
        self._note_head(event)
        return event

    def _note_head(self, event: Event) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO meta VALUES ('head', ?)", (f"{event.number} {event.hash}",)
        )

    def _rows(self, which: str, *values: str | int) -> Iterator[tuple[Event, str]]:
        for row in self._database.execute(f"{SELECT} {which}", values):
            try:
                yield event_of(row)
            except (InvalidInput, ValueError, TypeError):
                raise self._damaged(f"event {row[NUMBER]} is not what was written") from None

    def _names(self) -> list[str]:
        return [row[0] for row in self._database.execute("SELECT name FROM sqlite_master")]

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
            f"schema {self.schema}",
            f"{why} {advice_on(schema)}".lstrip(),
        )

    def _damaged(self, what: str) -> LedgerDamaged:
        return LedgerDamaged(
            f"ledger {self.path} is damaged: {what}. It is not repaired, and {self.advice}"
        )
