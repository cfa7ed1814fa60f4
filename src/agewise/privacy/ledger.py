"""The account of what a client has released: durable, append-only, checked on every opening.

One SQLite file on the client's own disk, readable by its owner only. A release is one row: the
event and the exact bytes, committed in one transaction *before* anything leaves the client. A retry
finds the row and sends the stored bytes again; fresh noise would be a second release. Each row
carries the hash of the row before it, so that a changed, missing or reordered row is noticed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from numpy.typing import ArrayLike

from agewise.errors import InvalidInput
from agewise.mixing import MIXINGS, Method
from agewise.privacy.account import enforce, total_of
from agewise.privacy.carried import Carried, text_of
from agewise.privacy.composition import Total
from agewise.privacy.events import Event, Policy
from agewise.privacy.ledger_file import NOTHING, Head, LedgerDamaged, LedgerFile, OtherHistory
from agewise.privacy.rows import (
    GENESIS,
    INSERT,
    NUMBER,
    SELECT,
    Known,
    event_of,
    hash_of,
    row_of,
)
from agewise.privacy.standing import Standing, standing_after
from agewise.process import Process

__all__ = ["Ledger", "LedgerDamaged", "account_after", "carries"]


def carries(policy: Policy, process: Process, method: Method, law: ArrayLike | None) -> bool:
    """Whether rows carry their account on: with a promise, where the process gives credit."""
    lasts = process.markov and not MIXINGS[method].takes_stated_law
    return policy.promise is not None and law is None and lasts


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
    carried = carries(policy, process, method, law)
    after = standing_after(known, new, process, method) if carried else None
    return "" if after is None else after.write()


class Ledger(LedgerFile):
    """A client's ledger. `Ledger(path)` opens or creates it; `Ledger.read(path)` never writes.

    `Ledger(None)` lives in memory: for simulated records only, since it forgets.

    Guarantees
        What is opened to be written has the newest rows that were written on this machine, unless
        its witness was taken back too (`agewise.privacy.witness`): an old copy, another ledger in
        its place, none, or a second copy in use is refused. Not `witnessed`: none of that.
    """

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
            if carries(policy, process, method, law):
                self.keep(process)
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

    def _check_rows(self, seen: Head = NOTHING) -> int:
        """Hold every row against the one before it, and its account against all of them.

        Return how many there are. Up to a head that was `seen`, accounts were made anew before.
        """
        previous, number, carried = GENESIS, 0, Carried(self._processes())
        history = carried.start
        for event, before in self._rows("ORDER BY number"):
            number += 1
            if event.number != number:
                raise self._damaged(f"event {number} is missing")
            if before != previous:
                raise self._damaged(f"event {number} is not what was written")
            previous = event.hash
            history = carried.take(history, event, known=number <= seen[0])
            if number == seen[0] and previous != seen[1]:
                raise OtherHistory
        if self._head() != (number, previous):
            raise self._damaged("its last events are missing")
        if number < seen[0]:
            raise OtherHistory
        self.unknown = carried.unknown
        return number

    def keep(self, process: Process) -> None:
        """Keep the process that accounts are about to be reckoned with; within a transaction.

        If it was not there, accounts that rest on it are made anew now.
        """
        key, text = f"process {process.fingerprint}", text_of(process)
        known = "SELECT 1 FROM meta WHERE key = ?"
        if text is None or self._database.execute(known, (key,)).fetchone() is not None:
            return
        self._database.execute("INSERT INTO meta VALUES (?, ?)", (key, text))
        if self._end():
            with self._suspecting():
                self._check_rows()

    def _end(self) -> int:
        """The number of the last event that is there."""
        return int(self._database.execute("SELECT max(number) FROM events").fetchone()[0] or 0)

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

    def _take(self, events: list[Event]) -> None:
        taken: list[Event] = []
        for event in events:
            taken.append(self._append(event, taken))

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
