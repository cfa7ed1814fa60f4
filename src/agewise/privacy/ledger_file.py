"""The file of a ledger: made whole, recognised, checked on opening, one writer at a time.

Between releases the one file holds everything: SQLite keeps a rollback journal beside it only while
it writes, and no write-ahead log, whose loss would forget releases without a trace.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self

from agewise.checks import as_path, truth
from agewise.errors import AgewiseError, InvalidInput
from agewise.privacy.carried import process_of
from agewise.privacy.events import Event
from agewise.privacy.old_rows import READ as OLD
from agewise.privacy.old_rows import old_events
from agewise.privacy.rows import (
    GENESIS,
    NOT_THE_FILE,
    SCHEMA,
    TABLES,
    advice_on,
    connect,
    create_tables,
    file_state,
)
from agewise.privacy.witness import (
    LedgerForked,
    LedgerReplaced,
    LedgerRolledBack,
    Memory,
    Witness,
    forget_remedy,
    refuse_gone,
    refuse_second,
    replay_remedy,
)
from agewise.process import Process

WRITE_AHEAD = b"\x02\x02"
"""Bytes 18 and 19 of an SQLite file that keeps a write-ahead log, as schemas 1 and 2 did."""
Head = tuple[int, str]
"""How many rows there are, and the hash of the last one, which stands for all of them."""
NOTHING: Head = (0, GENESIS)
"""The head of an empty ledger."""
_SEEN: dict[Path, Head] = {}
"""What this process has checked, or has written itself."""


def schema_of(path: Path) -> str | None:
    """The schema that a file says it is of, None if it says none; nothing is left beside it."""
    try:
        with path.open("rb") as file:
            logged = file.read(20)[18:20] == WRITE_AHEAD
        # To look at a write-ahead log is to write beside it.
        where = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if logged else ''}"
        with contextlib.closing(sqlite3.connect(where, uri=True)) as database:
            row = database.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    except (OSError, sqlite3.Error):
        return None  # opening it will say what is wrong
    return None if row is None else str(row[0])


class OtherHistory(Exception):
    """The rows are not those of which this head was seen."""


class LedgerDamaged(AgewiseError):
    """A ledger that is not what was written: nothing can be concluded from it."""

    exit_code = 2
    what = ""
    """What is wrong with it, in short."""


class LedgerFile:
    """A file that holds rows, of one account or of many; what they are is for `Ledger` to say."""

    _kept = True
    """Whether such ledgers are remembered."""

    schema, tables = str(SCHEMA), TABLES
    advice = (
        "nothing is released from it. Set it aside and count its client's budget as spent: an "
        "older copy would forget what was released since."
    )

    unknown: frozenset[str] | set[str] = frozenset()
    """Fingerprints of processes whose accounts could not be made anew when it was last checked."""
    _memory = _reading = False
    _given: Mapping[str, Process] = {}

    _witness: Witness | None = None
    _seen: Memory | None = None
    """What this machine remembered of it when it was opened."""
    _follows = True
    """Whether its rows begin with those that were remembered."""

    def __init__(self, path: Path | str | None, *, witnessed: bool = True) -> None:
        self.path = Path("memory") if path is None else as_path("ledger", path).absolute()
        self._memory = path is None
        if truth("witnessed", witnessed) and self._kept and path is not None:
            self._witness = Witness()
        try:
            if path is None:
                self._database = connect(":memory:")
                create_tables(self._database, self.schema, self.tables)
            else:
                if not self.path.exists():
                    refuse_gone(self.path, self._witness)
                    self._begin()
                self._open(str(self.path))
                self._refuse_unwritable()
                self._recognise()
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
    def read(cls, path: Path | str, processes: Iterable[Process] = ()) -> Self:
        """Open an existing ledger for reading only, and check it.

        `processes` are those that accounts may rest on, where an older ledger holds none itself.
        A ledger of schema 3 to 5 is read as what it would be today.
        """
        self = cls.__new__(cls)
        self._reading = True
        self._given = {process.fingerprint: process for process in processes}
        self.path = as_path("ledger", path).absolute()
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
            schema = schema_of(self.path)
            number = schema if schema in ("1", "2") else "1 or 2"
            raise self._of_schema(number, "What it has released cannot be proven complete.")
        with self._suspecting():
            self._database = connect(where)
        try:
            if self._witness is not None and (name := self._id()) is not None:
                self._seen = self._witness.of(name)  # before the rows: these may only get more
            known = self._seen
            seen = _SEEN.get(self.path, NOTHING) if known is None else (known.number, known.hash)
            if self._reading:
                self._bring_up()
            self._verify(seen)
        except BaseException:
            self._database.close()
            raise

    def _id(self) -> str | None:
        """The id of this ledger and of its copies; None in one that was begun without."""
        with self._suspecting():
            if not self._names():
                return None
            row = self._database.execute("SELECT value FROM meta WHERE key = 'id'").fetchone()
            return None if row is None else str(row[0])

    def _recognise(self) -> None:
        """Refuse a ledger that is not the one that is remembered; remember it as it is now."""
        if self._witness is None:
            return
        if self._id() is None:
            add = "INSERT OR IGNORE INTO meta VALUES ('id', ?)"
            self._database.execute(add, (secrets.token_hex(16),))
        name, place = str(self._id()), self.path.resolve()
        try:
            if self._witness.at(place) not in (None, name):
                raise LedgerReplaced(
                    f"ledger {self.path} is another one than the one that was here. Nothing is "
                    f"released from it. Put the right one back. {forget_remedy(self.path)}"
                )
            self.refuse_forgotten()
            if self._seen is not None and self._seen.location != str(place):
                refuse_second(self.path, Path(self._seen.location), name)
        except BaseException:
            self._database.close()
            raise
        self._witness.note(name, place, self._head())

    def refuse_forgotten(self) -> None:
        """Raise if it has not the rows that this machine remembers of it."""
        name = self._id()
        known = self._seen if self._witness is not None else None
        if name is not None and self._witness is None:
            known = Witness().of(name)
            self._verify(NOTHING if known is None else (known.number, known.hash))
        if known is None or self._follows:
            return
        count = self._head()[0]
        if count < known.number:
            raise LedgerRolledBack(
                f"ledger {self.path} is an old copy: it has {count} events, and had "
                f"{known.number}. Nothing is released from it. {replay_remedy(self.path)} "
                f"{forget_remedy(self.path)}"
            )
        raise LedgerForked(
            f"ledger {self.path} and a copy of it were both written to: its event {known.number} "
            "is another one than the one that was recorded here. Nothing is released from it. "
            f"Count what both hold as spent, and go on with one that holds it all. "
            f"{replay_remedy(self.path)}"
        )

    def remember_again(self) -> int:
        """Believe it as it is, if it has as many events as are remembered here; else how many not.

        For a ledger that was opened without its witness, and got back what can be proven.
        """
        witness, place, name, head = Witness(), self.path.resolve(), str(self._id()), self._head()
        known = [witness.of(one) for one in {name, witness.at(place) or name}]
        most = max((one.number for one in known if one is not None), default=0)
        if most > head[0]:
            return most - head[0]
        if most:
            witness.forget(place)
            witness.note(name, place, head)
        return 0

    def close(self) -> None:
        """Close the file. Everything recorded is on disk already."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def verify(self) -> int:
        """Check version, file, hash chain and accounts; return the number of events.

        Raises `LedgerDamaged`, which says what is wrong. Accounts of the processes in `unknown`,
        which an older ledger does not hold, are not made anew.
        """
        return self._verify(NOTHING)

    def _verify(self, seen: Head) -> int:
        """As `verify`, but accounts up to a head that was `seen` before are believed."""
        with self._suspecting(), self._at_once():
            if not self._names():
                raise self._damaged("it holds no ledger")
            meta = dict(self._database.execute("SELECT key, value FROM meta").fetchall())
            if meta.get("schema") != self.schema:
                raise self._of_schema(str(meta.get("schema")))
            state = file_state(self._database)
            if state != "ok":
                raise self._damaged(str(state))
            try:
                count = self._check_rows(seen)
                self._follows = True
            except OtherHistory:
                count = self._check_rows()
                self._follows = False
            if not (self._memory or self.unknown):
                _SEEN[self.path] = self._head()
            return count

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

    def _processes(self) -> dict[str, Process]:
        """The processes that accounts were reckoned with, by fingerprint."""
        found = dict(self._given)
        kept = "SELECT key, value FROM meta WHERE key LIKE 'process %'"
        for key, text in self._database.execute(kept).fetchall():
            process = process_of(text)
            if process.fingerprint != key.removeprefix("process "):
                raise self._damaged("a process that it holds is not what was written")
            found[process.fingerprint] = process
        return found

    def _bring_up(self) -> None:
        """Copy a ledger of an earlier schema to memory, as what it would be today."""
        with self._suspecting(), self._at_once():
            ask = "SELECT value FROM meta WHERE key = 'schema'"
            row = self._database.execute(ask).fetchone() if self._names() else None
            events = list(old_events(self._database)) if row and row[0] in OLD else None
        if events is not None:
            self._database.close()
            self._database = connect(":memory:")
            create_tables(self._database, self.schema, self.tables)
            self._take(events)

    def _take(self, events: list[Event]) -> None:
        """Write events into an empty file."""
        raise NotImplementedError

    def _check_rows(self, seen: Head = NOTHING) -> int:
        """Hold every row against those before it; return how many there are."""
        raise NotImplementedError

    def _head(self) -> Head:
        head = self._database.execute("SELECT value FROM meta WHERE key = 'head'").fetchone()
        if head is None:
            raise self._damaged("its last events are missing")
        number, last = head[0].split(" ")
        return int(number), last

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
            before = self._head()
            yield
            after = self._head()
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")
        if _SEEN.get(self.path) == before and not self._memory:
            _SEEN[self.path] = after
        if self._witness is not None and after != before:
            with contextlib.suppress(InvalidInput):  # behind the ledger it does no harm
                self._witness.note(str(self._id()), self.path.resolve(), after)

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
        error = LedgerDamaged(
            f"ledger {self.path} is damaged: {what}. It is not repaired, and {self.advice}"
        )
        error.what = what
        return error
