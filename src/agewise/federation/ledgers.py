"""Where the clients of this process keep their accounts: a file each, one for all, or memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from agewise.federation.files import ledger_file, probe_folder
from agewise.privacy.accounts import Accounts
from agewise.privacy.ledger import Ledger
from agewise.privacy.witness import Witness, refuse_gone

MANY = 100
"""Clients beyond which a run that keeps their ledgers in its own folder has one file for all."""

FOLDER, FILE = "ledgers", "clients.ledger"


def own_ledgers(folder: Path, clients: int) -> Path:
    """Where a run of so many clients keeps their ledgers if nothing else is said."""
    several = clients <= MANY or (folder / FOLDER).is_dir()
    return folder / (FOLDER if several else FILE)


def is_one_file(where: Path) -> bool:
    """Whether this is one file for all clients: its name ends so, and it is no folder."""
    return where.suffix == ".ledger" and not where.is_dir()


class Ledgers:
    """The ledgers of the clients of a run.

    `where` is a folder with a file for each client, a file for all of them, or None: in memory.
    Without `recording` there are none. Those that are a run's `own`, in its folder, come and go
    with it; of all others this machine remembers the newest state (`agewise.privacy.witness`).
    """

    def __init__(self, where: Path | None, *, recording: bool = True, own: bool = False) -> None:
        self.where, self.recording, self.own = where, recording, own
        self._many: Accounts | None = None

    @property
    def apart(self) -> bool:
        """Whether each client has a file of its own."""
        return self.where is not None and not is_one_file(self.where)

    def probe(self) -> None:
        """Raise if they could not be written; leave nothing behind."""
        if self.where is not None:
            probe_folder("ledgers", self.where if self.apart else self.where.parent)

    def make(self) -> None:
        """Make the folder that they lie in."""
        if self.where is not None:
            folder = self.where if self.apart else self.where.parent
            folder.mkdir(parents=True, exist_ok=True)

    def many(self, *, preparing: bool = False) -> Accounts | None:
        """The accounts of all, where they are in one place; while preparing, if it exists."""
        if not self.recording or self.apart:
            return None
        if self._many is None and not (preparing and not self._exists(self.where)):
            self._many = Accounts(self.where, witnessed=not self.own)
        return self._many

    @contextlib.contextmanager
    def of(self, name: str, *, preparing: bool = False) -> Iterator[Ledger | None]:
        """The ledger of one client; while preparing, only if it has one already."""
        if self.where is None or not self.apart:
            many = self.many(preparing=preparing)
            yield None if many is None else many.of(name)
            return
        path = ledger_file(self.where, name)
        if preparing and not self._exists(path):
            yield None
            return
        with Ledger(path, witnessed=not self.own) as ledger:
            yield ledger

    def close(self) -> None:
        """Close what is open."""
        if self._many is not None:
            self._many.close()
            self._many = None

    def _exists(self, path: Path | None) -> bool:
        """Whether there is a ledger; raises if there was one."""
        if path is not None and not os.path.lexists(path):
            refuse_gone(path, None if self.own else Witness())
            return False
        return path is not None
