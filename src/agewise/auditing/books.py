"""What the ledgers of a run hold, read once for all its rounds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path as File

from agewise.federation.checking import ledger_files
from agewise.privacy.account import Event
from agewise.privacy.accounts import read_ledger
from agewise.privacy.ledger import LedgerDamaged


@dataclass(frozen=True)
class Books:
    """What ledgers hold, all of them read once."""

    events: dict[str, tuple[Event, ...]]
    files: dict[str, File]
    damaged: tuple[str, ...]
    """Why some of them cannot be believed."""


def read_books(top: File) -> Books:
    """All ledgers in a folder, or the one of many clients that is named."""
    found: dict[str, dict[str, Event]] = {}
    files: dict[str, File] = {}
    damaged: list[str] = []
    for file in ledger_files(top):
        try:
            with read_ledger(file) as ledger:
                for event in ledger.events():
                    found.setdefault(event.client, {})[event.key] = event
                    files[f"{event.key} {event.client}"] = file
        except LedgerDamaged as error:
            damaged.append(str(error))
    ordered = {
        name: tuple(sorted(events.values(), key=lambda e: (e.collect_at, e.key)))
        for name, events in found.items()
    }
    return Books(ordered, files, tuple(damaged))
