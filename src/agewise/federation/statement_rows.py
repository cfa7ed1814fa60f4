"""The rows of a statement: clients alike share one but for name and hash of their upload."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from agewise.federation.messages import Upload
from agewise.federation.uploads import Received, Uploads
from agewise.wording import in_words

if TYPE_CHECKING:
    from agewise.federation.statement import ClientStatement

_NAME, _HASH = '"client": ""', '"upload_sha256": ""'


class Rows(Sequence["ClientStatement"]):
    """What a statement says of each client, made when it is looked at.

    Of each part, `names` of those received and whether that was in time. `make` writes the row of
    one upload, without the hash of its bytes; it is asked once for uploads that are the same but
    for name and value. The hash is told if `hashed`.
    """

    def __init__(
        self,
        parts: Iterable[tuple[Received, Sequence[str], bool]],
        make: Callable[[Upload, bool], ClientStatement],
        *,
        hashed: bool,
    ) -> None:
        self.kinds: list[ClientStatement] = []
        """One row of each kind, without the hash."""
        self._groups: list[Uploads] = []
        """The uploads of each kind."""
        self._hashed = hashed
        self.names: list[str] = []
        kinds, places = [np.empty(0, dtype=np.intp)], [np.empty(0, dtype=np.intp)]
        for received, names, in_time in parts:
            numbers = received.numbers_of(names)
            used, own = np.unique(received.groups_of(numbers), return_inverse=True)
            kinds.append(own + len(self.kinds))
            places.append(numbers - np.asarray(received.starts, dtype=np.intp)[used][own])
            self._groups += [received.groups[group] for group in used]
            self.kinds += [make(received.groups[group].first, in_time) for group in used]
            self.names += names
        self.kind: list[int] = np.concatenate(kinds).tolist()
        """Which of the `kinds` each row is."""
        self._place: list[int] = np.concatenate(places).tolist()

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, place: int) -> ClientStatement: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[ClientStatement, ...]: ...
    def __getitem__(self, place: int | slice) -> ClientStatement | tuple[ClientStatement, ...]:
        if isinstance(place, slice):
            return tuple(self[one] for one in range(len(self))[place])
        kind = self.kind[place]
        told = self._groups[kind].hashes[self._place[place]] if self._hashed else None
        return replace(self.kinds[kind], client=self.names[place], upload_sha256=told)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows as plain data."""
        kinds = [in_words(vars(one)) for one in self.kinds]
        return [
            {**kinds[kind], "client": name, "upload_sha256": told}
            for name, kind, told in zip(self.names, self.kind, self._hashes(), strict=True)
        ]

    def texts(self, *, sort: bool = False) -> Iterator[str]:
        """What `json.dumps` writes of each row, with its keys sorted or not."""
        parts = [self._parts(one, sort) for one in self.kinds]
        for name, kind, told in zip(self.names, self.kind, self._hashes(), strict=True):
            head, middle, tail = parts[kind]
            # Quotes within texts are escaped: both gaps stand where they mean themselves, once.
            own = "null" if told is None else f'"{told}"'
            yield f"{head}{encode_basestring_ascii(name)}{middle}{own}{tail}"

    @staticmethod
    def _parts(one: ClientStatement, sort: bool) -> tuple[str, str, str]:
        blank = {**in_words(vars(one)), "client": "", "upload_sha256": ""}
        head, rest = json.dumps(blank, sort_keys=sort, allow_nan=False).split(_NAME)
        middle, tail = rest.split(_HASH)
        return head + _NAME[:-2], middle + _HASH[:-2], tail

    def _hashes(self) -> Iterator[str | None]:
        for kind, place in zip(self.kind, self._place, strict=True):
            yield self._groups[kind].hashes[place] if self._hashed else None
