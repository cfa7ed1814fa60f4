"""Files and folders: written whole or not at all, probed before anything is released."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from agewise.errors import InvalidInput

LONGEST_NAME = 150
"""Letters of a client that go into the name of its ledger."""


def owners_only(path: str, flags: int) -> int:
    """Open a file that, if it is new, nobody else can read: it may hold means without noise."""
    return os.open(path, flags, 0o600)


def write_whole(path: Path, text: str | Iterable[str], *, private: bool = False) -> Path:
    """Write a file whole or not at all, even if the machine stops meanwhile.

    One that is `private` can be read by its owner only. A long text may come in pieces.
    """
    draft = path.with_name(f".{path.name}.part")
    pieces = iter([text] if isinstance(text, str) else text)
    first = next(pieces, "")  # what cannot be written at all leaves nothing behind
    with open(draft, "w", encoding="utf-8", opener=owners_only if private else None) as file:
        file.write(first)
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
    return draft.replace(path)


def probe_folder(field: str, path: Path) -> None:
    """Raise if a folder could not be made or written to; leave nothing behind."""
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise InvalidInput(
            field,
            str(path),
            "a folder that can be written to",
            f"{error.strerror}. Nothing was released.",
        ) from None


def ledger_file(folder: Path, client: str) -> Path:
    """The ledger of a client in a folder of ledgers."""
    name = quote(client, safe=" ")
    if len(name) > LONGEST_NAME:
        name = f"{name[:LONGEST_NAME]}-{hashlib.sha256(client.encode()).hexdigest()[:16]}"
    return folder / f"{name}.ledger"
