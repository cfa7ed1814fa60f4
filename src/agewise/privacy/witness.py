"""What this machine remembers of ledgers, apart from them: by which an old copy is known as one.

A ledger proves that its rows are as they were written; it cannot prove that there were no more. So
for each ledger that is written to here, a small file in another folder remembers its newest head:
the model is Borg's `SecurityManager`. The folder is `agewise/ledgers` in the user's state folder
(`XDG_STATE_HOME`, else `~/.local/state`), or `ledgers` in the folder that `AGEWISE_STATE` names.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shlex
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from agewise.errors import AgewiseError, InvalidInput

STATE = "AGEWISE_STATE"
"""The variable that names another folder."""
DIGITS = 15
"""Room for the number of rows."""


class LedgerDisputed(AgewiseError):
    """A ledger that is whole, but not the one that this machine remembers. Nothing is released."""


class LedgerRolledBack(LedgerDisputed):
    """An old copy of a ledger: it has forgotten releases."""

    exit_code = 6


class LedgerForked(LedgerDisputed):
    """Two ledgers of one id: each has, or may soon have, releases that the other does not know."""

    exit_code = 7


class LedgerReplaced(LedgerDisputed):
    """No ledger, or another one, where there was one."""

    exit_code = 8


@dataclass(frozen=True)
class Memory:
    """What is remembered of a ledger: where it lay, how many rows it had, and its newest hash."""

    location: str
    number: int
    hash: str

    def write(self) -> str:
        """The same length for the same location, and what changes from time to time first."""
        number, rest = f"{self.number:>{DIGITS}}", json.dumps(self.location)
        return f'{{"number": {number}, "hash": {json.dumps(self.hash)}, "location": {rest}}}'


class Witness:
    """The memory of this machine, or of whoever shares the folder.

    Guarantees
        A ledger may be ahead of it (the machine stopped between the two), and never behind: that
        is an old copy. Whoever takes ledger and witness back together is not noticed.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = (state_folder() if folder is None else folder) / "ledgers"

    def of(self, name: str) -> Memory | None:
        """What is remembered of the ledger with this id."""
        text = self._read(f"{name}.json")
        try:
            return None if text is None else Memory(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise InvalidInput(
                "witness", f"{self.folder / name}.json ({error})", "what was written", _REMOVE
            ) from None

    def at(self, location: Path) -> str | None:
        """The id of the ledger that is remembered to lie here."""
        return self._read(_place(location))

    def note(self, name: str, location: Path, head: tuple[int, str]) -> None:
        """Remember the newest head of a ledger."""
        known, where = self.of(name), str(location)
        now = Memory(where, *head)
        if known is not None and (known == now or known.number > now.number):
            return
        if known is not None and known.location == where:
            self._overwrite(f"{name}.json", now.write())
            return
        self._write(f"{name}.json", now.write())
        self._write(_place(location), name)
        if known is not None and self.at(Path(known.location)) == name:
            (self.folder / _place(Path(known.location))).unlink(missing_ok=True)

    def forget(self, location: Path) -> bool:
        """Forget the ledger that lies or lay here; whether one was remembered."""
        name = self.at(location)
        if name is None:
            return False
        for one in (f"{name}.json", _place(location)):
            (self.folder / one).unlink(missing_ok=True)
        return True

    def _read(self, name: str) -> str | None:
        try:
            return (self.folder / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise self._unusable(error) from None

    def _write(self, name: str, text: str) -> None:
        """Whole or not at all, and on disk."""
        draft = self.folder / f".{name}.{secrets.token_hex(4)}"
        try:
            self.folder.mkdir(0o700, parents=True, exist_ok=True)
            with draft.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.folder / name)
        except OSError as error:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise self._unusable(error) from None

    def _overwrite(self, name: str, text: str) -> None:
        """In place, within one sector, and without waiting for the disk: it may lag behind."""
        try:
            with (self.folder / name).open("r+b", buffering=0) as file:
                file.write(text.encode())
        except OSError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> InvalidInput:
        return InvalidInput(
            "witness",
            f"{self.folder} ({error})",
            "a folder that can be read and written to",
            f"Name another one with {STATE}. Nothing was released.",
        )


def forget_remedy(path: Path | str) -> str:
    """What to type where a ledger is gone for good."""
    command = shlex.join(["agewise", "ledger", "forget", str(path)])
    return f"If this is meant, count what is lost as spent and say so: {command}"


def replay_remedy(path: Path | str) -> str:
    """What to type where a ledger has forgotten releases."""
    command = shlex.join(["agewise", "ledger", "restore", str(path)])
    return (
        "Put the newest one back, or play in again what the folders of runs prove: "
        f"{command} RUN ..."
    )


_REMOVE = "Compare the ledger with its newest backup; then remove the file."


def state_folder() -> Path:
    """Where what this machine remembers is kept."""
    if own := os.environ.get(STATE):
        return Path(own).absolute()
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path("~/.local/state").expanduser()) / "agewise"


def _place(location: Path) -> str:
    return f"place-{hashlib.sha256(str(location).encode()).hexdigest()[:32]}"


def refuse_gone(path: Path, witness: Witness | None) -> None:
    """Raise if a ledger that is not there was there before."""
    if witness is None or witness.at(path.resolve()) is None or path.exists():
        return
    raise LedgerReplaced(
        f"ledger {path} is gone: what it held was released. Put it back, or its newest copy. "
        f"{forget_remedy(path)}"
    )


def refuse_second(path: Path, other: Path, name: str) -> None:
    """Raise if a ledger of the same id still lies where it lay before."""
    if not other.is_file() or other.samefile(path):
        return
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"{other.as_uri()}?mode=ro", uri=True)) as database,
    ):
        row = database.execute("SELECT value FROM meta WHERE key = 'id'").fetchone()
        if row is not None and row[0] == name:
            raise LedgerForked(
                f"ledger {path} is a copy of {other}, which is in use. Nothing is released from "
                "it: neither would know what the other has released. Go on with that one, or "
                "move it here and leave no copy."
            )
