"""What the ledgers below a folder hold."""

from __future__ import annotations

from pathlib import Path

from agewise.privacy import Event
from agewise.privacy.accounts import read_ledger


def releases(place: Path | str) -> dict[str, list[Event]]:
    """Return each client's releases, oldest first, from all ledgers below a folder, or from one.

    They are opened for reading only, and checked. A folder that is not there holds none.
    """
    top, found = Path(place), dict[str, list[Event]]()
    for path in [top] if top.is_file() else sorted(top.rglob("*.ledger")):
        with read_ledger(path) as ledger:
            for event in ledger.events():
                found.setdefault(event.client, []).append(event)
    return found
