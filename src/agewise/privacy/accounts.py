"""The accounts of many clients in one file: a gateway with its meters.

The same rows as in ledgers of one client each, with the same hash chain for every client, and over
all of them one seal that each row in turn is folded into: neither a row nor a whole account can be
changed, missing or reordered without notice. What many clients release together is one transaction.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agewise.errors import InvalidInput
from agewise.privacy.carried import Carried, History
from agewise.privacy.events import Event
from agewise.privacy.histories import Histories, LastOnly, facts_alike
from agewise.privacy.ledger import Ledger
from agewise.privacy.ledger_file import NOTHING, Head, OtherHistory, schema_of
from agewise.privacy.rows import COLUMNS, GENESIS, INSERT, SCHEMA, TABLES, folded, rows_alike
from agewise.process import Process

_HASH, _CLIENT = COLUMNS.index("hash"), COLUMNS.index("client")
_MANY = TABLES.replace(
    "number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE,",
    "place INTEGER PRIMARY KEY, number INTEGER NOT NULL, key TEXT NOT NULL,",
).replace(
    "hash TEXT NOT NULL\n", "hash TEXT NOT NULL,\n  UNIQUE (client, number), UNIQUE (key, client)\n"
)
_HEADS = """
CREATE TABLE heads (
  client TEXT PRIMARY KEY, number INTEGER NOT NULL, hash TEXT NOT NULL
) STRICT, WITHOUT ROWID;
"""
Alike = tuple[Event, Mapping[str, bytes]]
"""Events that are the same but for client and payload, and the payload of each client."""

FEW = 8
"""Events up to which all of an account are compared with those of others."""

ASKED = 500
"""Clients that are looked for at a time."""

CACHE = 64
"""Mebibytes of the file kept in memory: what is added lies anywhere in its indices."""


class Accounts(Ledger):
    """A file with the accounts of many clients; `of(client)` is the ledger of one of them.

    Guarantees
        Those of `Ledger`, for every client. What is recorded within `together` is on disk as a
        whole, or not at all.
    """

    schema, tables = f"{SCHEMA} of many", _MANY.rstrip() + _HEADS
    advice = (
        "nothing is released from it. Set it aside and count its clients' budgets as spent: an "
        "older copy would forget what was released since."
    )

    _waiting: tuple[Alike, ...] = ()
    """Accounts begun in memory: nobody else can see it, so they are written when looked at."""
    _waiting_clients: set[str] = set()  # noqa: RUF012  (replaced where anything is added)
    _begin_at: int | None = None
    """Within `together` in memory, how many of them were waiting; None once that has begun."""

    def __init__(self, path: Path | str | None, *, witnessed: bool = True) -> None:
        super().__init__(path, witnessed=witnessed)
        self._waiting_clients: set[str] = set()
        self._database.execute(f"PRAGMA cache_size=-{CACHE * 1024}")

    @property
    def _database(self) -> sqlite3.Connection:
        if self._begin_at is not None:
            before, self._begin_at = self._begin_at, None
            waiting, self._waiting = self._waiting, self._waiting[:before]
            self._write_waiting()
            self._connection.execute("BEGIN IMMEDIATE")
            self._waiting = waiting[before:]
        self._write_waiting()
        return self._connection

    @_database.setter
    def _database(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def _write_waiting(self) -> None:
        waiting, self._waiting = self._waiting, ()
        for alike in waiting:
            self._write(*alike)

    def close(self) -> None:
        """Close the file. Everything recorded is on disk already, or was only in memory."""
        self._connection.close()

    def of(self, client: str) -> Account:
        """The account of one client, empty if it has none yet."""
        return Account(self, client)

    def clients(self) -> list[str]:
        """Who has an account."""
        with self._suspecting():
            rows = self._database.execute("SELECT client FROM heads ORDER BY client")
            return [row[0] for row in rows]

    def events(self) -> list[Event]:
        """All events of all clients, in the order in which they were recorded."""
        with self._suspecting():
            return [event for event, _ in self._rows("ORDER BY place")]

    def recorded(self, key: str) -> dict[str, Event]:
        """The events with this key, by client."""
        with self._suspecting():
            return {event.client: event for event, _ in self._rows("WHERE key = ?", key)}

    def sent(self, key: str, clients: Iterable[str]) -> dict[str, bytes]:
        """What these clients have released under a key, by client."""
        names, found = list(clients), dict[str, bytes]()
        with self._suspecting():
            for start in range(0, len(names), ASKED):
                some = names[start : start + ASKED]
                ask = f"SELECT client, payload FROM events {_among(some)} AND key = ?"
                found.update(self._database.execute(ask, [*some, key]))
        return found

    def begun(self, clients: Iterable[str]) -> set[str]:
        """Who of these has an account already."""
        names = list(clients)
        found = self._waiting_clients.intersection(names)
        with self._suspecting():
            if self._connection.execute("SELECT 1 FROM heads LIMIT 1").fetchone() is None:
                return found
            for start in range(0, len(names), ASKED):
                some = names[start : start + ASKED]
                rows = self._connection.execute(f"SELECT client FROM heads {_among(some)}", some)
                found.update(row[0] for row in rows)
        return found

    def keep(self, process: Process) -> None:
        """Keep a process; in memory nothing is opened again, and none is kept."""
        if not self._memory:
            super().keep(process)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """One transaction for whatever is recorded inside."""
        if self._memory:
            with self._when_needed():
                yield
            return
        try:
            with self._exclusively():
                yield
        except sqlite3.OperationalError as error:
            raise self._unwritable(error) from None
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from None

    @contextlib.contextmanager
    def _when_needed(self) -> Iterator[None]:
        """A transaction that begins when the database is asked for, if ever."""
        before = self._begin_at = len(self._waiting)
        try:
            yield
        except BaseException:
            if self._begin_at is None:
                self._waiting = ()
                self._connection.execute("ROLLBACK")
            else:
                self._waiting = self._waiting[:before]
            self._waiting_clients = {name for _, begun in self._waiting for name in begun}
            raise
        else:
            if self._begin_at is None:
                self._database.execute("COMMIT")
        finally:
            self._begin_at = None

    def begin_with(self, event: Event, payloads: Mapping[str, bytes]) -> None:
        """Begin accounts, each with the same event but for its client and what that sends.

        Within `together`; refused where a client has an account.
        """
        if self._memory and self._begin_at is not None:
            self._waiting = (*self._waiting, (event, payloads))
            self._waiting_clients.update(payloads)
            return
        if not self._database.in_transaction:  # it was taken back when something failed
            raise self._unwritable(sqlite3.OperationalError("no transaction"))
        self._write(event, payloads)

    def _write(self, event: Event, payloads: Mapping[str, bytes]) -> None:
        rows = list(rows_alike(replace(event, number=1), payloads, {}))
        self._database.executemany(INSERT, rows)
        heads = [(row[_CLIENT], 1, row[_HASH]) for row in rows]
        self._database.executemany("INSERT INTO heads VALUES (?, ?, ?)", heads)
        self._seal(row[_HASH] for row in rows)

    def go_on_with(
        self, event: Event, payloads: Mapping[str, bytes], previous: Mapping[str, Event]
    ) -> None:
        """Go on with accounts that are alike, each with the same event but for client and payload.

        Within `together`. `previous` is the last event of each.
        """
        if not self._database.in_transaction:
            raise self._unwritable(sqlite3.OperationalError("no transaction"))
        before = {client: previous[client].hash for client in payloads}
        number = previous[event.client].number + 1
        rows = list(rows_alike(replace(event, number=number), payloads, before))
        self._database.executemany(INSERT, rows)
        heads = [(number, row[_HASH], row[_CLIENT]) for row in rows]
        self._database.executemany("UPDATE heads SET number = ?, hash = ? WHERE client = ?", heads)
        self._seal(row[_HASH] for row in rows)

    def alike(self, clients: Iterable[str], key: str) -> tuple[list[Histories], list[str]]:
        """Group clients by what their accounts hold; also who is to be looked at by itself.

        The latter have no account, an event with this key, or a long account that is not carried
        on.
        """
        names, groups = list(clients), dict[Any, Histories]()
        rest: list[str] = []
        with self._suspecting():
            for start in range(0, len(names), ASKED):
                for name, events, count in self._histories(names[start : start + ASKED], key):
                    if not events or not (count == len(events) or events[-1].account):
                        rest.append(name)
                        continue
                    kind = count, *(facts_alike(event) for event in events)
                    if kind not in groups:
                        known = events if count == len(events) else LastOnly(events[-1], count)
                        groups[kind] = Histories(known)
                    groups[kind].last[name] = events[-1]
        return list(groups.values()), rest

    def _histories(self, clients: list[str], key: str) -> Iterator[tuple[str, list[Event], int]]:
        """Each client with its events, if they are few, or the last one, and how many there are."""
        ask, these = self._database.execute, _among(clients)
        rows = ask(f"SELECT client, number, hash FROM heads {these}", clients)
        heads = {client: (int(number), last) for client, number, last in rows}
        rows = ask(f"SELECT client, max(number) FROM events {these} GROUP BY client", clients)
        ends = dict(rows.fetchall())
        rows = ask(f"SELECT client FROM events {these} AND key = ?", [*clients, key])
        answered = {row[0] for row in rows}
        wanted = [name for name in clients if name in heads and name not in answered]
        last_of = "(SELECT number FROM heads WHERE heads.client = events.client)"
        which = f"{_among(wanted)} AND (number <= {FEW} OR number = {last_of}) ORDER BY number"
        events: dict[str, list[Event]] = {name: [] for name in clients}
        for event, _ in self._rows(which, *wanted):
            events[event.client].append(event)
        for name in clients:
            count, last = heads.get(name, (0, GENESIS))
            told = events[name]
            if count != ends.get(name, 0) or (told and told[-1].hash != last):
                raise self._damaged("its last events are missing")
            yield name, told if count <= FEW else told[-1:], count

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        with super()._exclusively():
            if self._end() != self._head()[0]:
                raise self._damaged("its last events are missing")
            yield

    def _end(self) -> int:
        return int(self._database.execute("SELECT max(place) FROM events").fetchone()[0] or 0)

    def _seal(self, hashes: Iterable[str]) -> None:
        """Fold further events into the seal over all of them."""
        count, seal = self._head()
        for one in hashes:
            count, seal = count + 1, folded(seal, one)
        self._database.execute(
            "INSERT OR REPLACE INTO meta VALUES ('head', ?)", (f"{count} {seal}",)
        )

    def _check_rows(self, seen: Head = NOTHING) -> int:
        count, seal, carried = 0, GENESIS, Carried(self._processes())
        last: dict[str, Head] = {}
        histories: dict[str, History] = {}
        for event, before in self._rows("ORDER BY place"):
            number, previous = last.get(event.client, (0, GENESIS))
            who = f"event {number + 1} of client {event.client!r}"
            if event.number != number + 1:
                raise self._damaged(f"{who} is missing")
            if before != previous:
                raise self._damaged(f"{who} is not what was written")
            last[event.client] = (event.number, event.hash)
            count, seal = count + 1, folded(seal, event.hash)
            history = histories.get(event.client, carried.start)
            histories[event.client] = carried.take(history, event, known=count <= seen[0])
            if count == seen[0] and seal != seen[1]:
                raise OtherHistory
        if self._head() != (count, seal) or self._end() != count:
            raise self._damaged("some of its events are missing")
        heads = self._database.execute("SELECT client, number, hash FROM heads")
        if {client: (number, end) for client, number, end in heads} != last:
            raise self._damaged("some of its accounts are not what was written")
        if count < seen[0]:
            raise OtherHistory
        self.unknown = carried.unknown
        return count


def _among(clients: Sequence[str]) -> str:
    return f"WHERE client IN ({', '.join('?' * len(clients))})"


class Account(Ledger):
    """The account of one client in a file of many: what a ledger of its own would be."""

    def __init__(self, file: Accounts, client: str) -> None:
        self.path, self.client = file.path, client
        self._file, self._database = file, file._database

    def close(self) -> None:
        """Nothing: the file stays open for the others."""

    def verify(self) -> int:
        """Check the whole file; return the number of this client's events."""
        self._file.verify()
        return self._end()

    def refuse_stranger(self, new: Event) -> None:
        """Raise if this is another client's account."""
        if new.client != self.client:
            raise InvalidInput("ledger", f"of client {self.client!r}", f"that of {new.client!r}")

    def _rows(self, which: str, *values: str | int) -> Iterator[tuple[Event, str]]:
        own = which.replace("WHERE", "WHERE client = ? AND")
        own = own if "WHERE" in own else f"WHERE client = ? {own}"
        return super()._rows(own, self.client, *values)

    def _end(self) -> int:
        rows = self._database.execute(
            "SELECT max(number) FROM events WHERE client = ?", (self.client,)
        )
        return int(rows.fetchone()[0] or 0)

    def keep(self, process: Process) -> None:
        """Keep the process in the file, for all accounts."""
        self._file.keep(process)

    def _head(self) -> Head:
        row = self._database.execute(
            "SELECT number, hash FROM heads WHERE client = ?", (self.client,)
        ).fetchone()
        return (0, GENESIS) if row is None else (int(row[0]), str(row[1]))

    def _note_head(self, event: Event) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO heads VALUES (?, ?, ?)",
            (event.client, event.number, event.hash),
        )
        self._file._seal([event.hash])

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        """A transaction; within one of many clients, a part of it."""
        if not self._database.in_transaction:
            with self._file._exclusively():
                yield
            return
        self._database.execute("SAVEPOINT one")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK TO one")
            self._database.execute("RELEASE one")
            raise
        self._database.execute("RELEASE one")


def read_ledger(path: Path | str, processes: Iterable[Process] = ()) -> Ledger:
    """Open the ledger of one client, or of many, for reading only, and check it."""
    kind = Accounts if holds_many(Path(path)) else Ledger
    return kind.read(path, processes)


def holds_many(path: Path) -> bool:
    """Whether a file says that it holds the accounts of many clients."""
    return path.is_file() and schema_of(path) == Accounts.schema
