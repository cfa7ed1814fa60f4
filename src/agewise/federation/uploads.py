"""Uploads of clients alike: the same message but for the name and the value, held as arrays.

What a client alike would send by itself and what it sends in here are the same bytes; nobody has to
write or read them one by one for that.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from agewise.arrays import Array
from agewise.checks import parse_json
from agewise.federation.messages import BadMessage, Upload

_NAME, _VALUE = b'"client":""', b'"value":[]'


ALIKE = "received alike"
"""What a journal calls uploads that are the same but for name and value."""


HEADS = "heads"
"""What it calls the newest releases that were known when a run began."""


class Uploads(Mapping[str, bytes]):
    """What clients sent: `first` with its name and value replaced by those of each.

    `names` `[m]` are distinct, `rows` `[m, d]` are their values, finite. As a mapping, each one's
    bytes by its name.
    """

    def __init__(self, first: Upload, names: Sequence[str], rows: Array) -> None:
        self.first, self.names, self.rows = first, list(names), rows
        self.came_as: list[bytes] = []
        """The bytes of a single one, which may be spelt otherwise."""

    @classmethod
    def single(cls, upload: Upload, payload: bytes) -> Uploads:
        """One upload, with the bytes that it came in."""
        self = cls(upload, [upload.client], np.array([upload.value]))
        self.came_as = [payload]
        return self

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, name: str) -> bytes:
        return self.payload(self.names.index(name))

    def items(self) -> ItemsView[str, bytes]:
        """Each client with its bytes."""
        return dict(zip(self.names, self.payloads, strict=True)).items()

    def upload(self, place: int) -> Upload:
        """One of them as a message."""
        if len(self.names) == 1:
            return self.first
        told = {"client": self.names[place], "value": self.rows[place].tolist()}
        return self.first.model_copy(update=told)

    @property
    def payloads(self) -> list[bytes]:
        """The bytes of each: what `Upload.encode` gives. Made anew each time; hashes are kept."""
        made = self.came_as or self._encoded()
        if "hashes" not in vars(self):
            self.hashes = _hashes(made)
        return made

    def payload(self, place: int) -> bytes:
        """The bytes of one of them."""
        return self.came_as[place] if self.came_as else self.upload(place).encode()

    def _encoded(self) -> list[bytes]:
        blank = self.first.model_copy(update={"client": "", "value": []}).encode()
        # Quotes within texts are escaped, so each of these stands where it means itself, once.
        head, rest = blank.split(_NAME)
        middle, tail = rest.split(_VALUE)
        head, middle = head + b'"client":', middle + b'"value":'
        pairs = zip(self.names, self._values(), strict=True)
        return [head + to_json(name) + middle + row + tail for name, row in pairs]

    def _values(self) -> list[bytes]:
        """Each one's value as its bytes have it."""
        told = to_json(self.rows.tolist())[2:-2].split(b"],[")
        return [b"[" + one + b"]" for one in told]

    def to_entry(self) -> dict[str, Any]:
        """What a journal keeps of them: the first as it is, and names and values of all."""
        values = [one.decode() for one in self._values()]
        first = self.upload(0).encode().decode()
        return {"first": first, "clients": self.names, "values": values}

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Uploads:
        """The uploads that a journal has kept; the first such journals held plain numbers."""
        first, rows = Upload.decode(entry["first"].encode()), entry["values"]
        if not rows or isinstance(rows[0], str):
            rows = parse_json(f"[{','.join(rows)}]")
        return cls(first, entry["clients"], np.asarray(rows, dtype=np.float64))

    @cached_property
    def hashes(self) -> list[str]:
        """SHA-256 of each one's bytes."""
        return _hashes(self.came_as or self._encoded())


def uploads_of(entry: Mapping[str, Any]) -> Uploads | None:
    """The uploads in an entry of a journal, however many; None if it has none that can be read."""
    if entry.get("input") == ALIKE:
        return Uploads.from_entry(entry)
    if entry.get("input") != "received":
        return None
    payload = str(entry["payload"]).encode()
    try:
        return Uploads.single(Upload.decode(payload), payload)
    except BadMessage:
        return None


def _hashes(payloads: list[bytes]) -> list[str]:
    return [hashlib.sha256(one).hexdigest() for one in payloads]


class Received(Mapping[str, tuple[Upload, bytes]]):
    """Uploads by client, with their bytes: made when they are looked at.

    Each has a number, by which of all that was added it is; `groups` holds what was added, and
    `starts` the number of the first of each.
    """

    def __init__(self) -> None:
        self.groups: list[Uploads] = []
        self.starts: list[int] = []
        self.numbers: dict[str, int] = {}
        self._end = 0

    def add(self, uploads: Uploads) -> None:
        """Take uploads, in the place of earlier ones of the same clients."""
        self.groups.append(uploads)
        self.starts.append(self._end)
        self._end += len(uploads)
        self.numbers.update(zip(uploads.names, range(self.starts[-1], self._end), strict=True))

    def drop(self, names: Iterable[str]) -> None:
        """Forget the uploads of clients, where there are any."""
        if self.numbers:
            for name in names:
                self.numbers.pop(name, None)

    def __getitem__(self, name: str) -> tuple[Upload, bytes]:
        number = self.numbers[name]
        group = bisect_right(self.starts, number) - 1
        uploads, place = self.groups[group], number - self.starts[group]
        upload = uploads.upload(place)
        return upload, uploads.came_as[place] if uploads.came_as else upload.encode()

    def __contains__(self, name: object) -> bool:
        return name in self.numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def heads(self, run: str) -> dict[str, str]:
        """Each client's newest release as orders name it: SHA-256 of its bytes, and the run."""
        told = ((name, payload) for name, (_, payload) in self.items())
        return {name: f"{hashlib.sha256(payload).hexdigest()} {run}" for name, payload in told}

    def numbers_of(self, names: Iterable[str]) -> NDArray[np.intp]:
        """The number of each client's upload."""
        return np.fromiter(map(self.numbers.__getitem__, names), dtype=np.intp)

    def groups_of(self, numbers: NDArray[np.intp]) -> NDArray[np.intp]:
        """Which of the `groups` uploads are in."""
        return np.searchsorted(self.starts, numbers, side="right") - 1

    def collected(self) -> dict[str, int]:
        """The slot in which each client collected."""
        slots = np.array([uploads.first.collect_at for uploads in self.groups], dtype=np.intp)
        each = slots[self.groups_of(self.numbers_of(self.numbers))]
        return dict(zip(self.numbers, each.tolist(), strict=True))

    def values_of(self, names: Iterable[str]) -> Array:
        """What clients sent, `[m, d]`."""
        return np.concatenate([one.rows for one in self.groups])[self.numbers_of(names)]
