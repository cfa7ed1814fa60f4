"""The rows of a statement: clients alike share one but for name and hash of their upload."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any, overload

from agewise.federation.messages import Upload
from agewise.federation.uploads import Place
from agewise.wording import in_words

if TYPE_CHECKING:
    from agewise.federation.statement import ClientStatement

_NAME, _HASH = '"client": ""', '"upload_sha256": ""'


class Rows(Sequence["ClientStatement"]):
    """What a statement says of each client, made when it is looked at.

    `make` writes the row of one upload, with the hash of its bytes if `hashed`; it is asked once
    for uploads that are the same but for name and value.
    """

    def __init__(
        self,
        places: Iterable[tuple[Place, bool]],
        make: Callable[[Upload, bool], ClientStatement],
        *,
        hashed: bool,
    ) -> None:
        self._hashed = hashed
        self.kinds: list[ClientStatement] = []
        """One row of each kind, without the hash."""
        self._kind: list[int] = []
        self._places: list[Place] = []
        numbers: dict[tuple[int, bool], int] = {}
        for place, in_time in places:
            kind = id(place[0]), in_time
            if kind not in numbers:
                numbers[kind] = len(self.kinds)
                self.kinds.append(make(place[0].first, in_time))
            self._kind.append(numbers[kind])
            self._places.append(place)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> ClientStatement: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[ClientStatement, ...]: ...
    def __getitem__(self, place: int | slice) -> ClientStatement | tuple[ClientStatement, ...]:
        if isinstance(place, slice):
            return tuple(self[one] for one in range(len(self))[place])
        uploads, own = self._places[place]
        name, told = uploads.names[own], uploads.hashes[own] if self._hashed else None
        return replace(self.kinds[self._kind[place]], client=name, upload_sha256=told)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def named(self) -> Iterator[tuple[str, int]]:
        """The name of each client, and which of the `kinds` its row is."""
        for kind, (uploads, own) in zip(self._kind, self._places, strict=True):
            yield uploads.names[own], kind

    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows as plain data."""
        kinds = [in_words(vars(one)) for one in self.kinds]
        return [
            {**kinds[kind], "client": name, "upload_sha256": told}
            for (name, kind), told in zip(self.named(), self._hashes(), strict=True)
        ]

    def to_json(self) -> str:
        """What `json.dumps` writes of all rows, with sorted keys."""
        parts = [self._parts(one) for one in self.kinds]
        rows = []
        for (name, kind), told in zip(self.named(), self._hashes(), strict=True):
            head, middle, tail = parts[kind]
            # Quotes within texts are escaped: both gaps stand where they mean themselves, once.
            own = "null" if told is None else f'"{told}"'
            rows.append(f"{head}{encode_basestring_ascii(name)}{middle}{own}{tail}")
        return f"[{', '.join(rows)}]"

    @staticmethod
    def _parts(one: ClientStatement) -> tuple[str, str, str]:
        blank = {**in_words(vars(one)), "client": "", "upload_sha256": ""}
        head, rest = json.dumps(blank, sort_keys=True).split(_NAME)
        middle, tail = rest.split(_HASH)
        return head + _NAME[:-2], middle + _HASH[:-2], tail

    def _hashes(self) -> Iterator[str | None]:
        for uploads, own in self._places:
            yield uploads.hashes[own] if self._hashed else None
