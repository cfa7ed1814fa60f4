"""Accounts that hold the same: what is true of one after a release is true of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from agewise.privacy.events import Event


@dataclass
class Histories:
    """Clients whose accounts are the same but for names, payloads and times.

    `known` are the events of the first, and `last` the last one of each.
    """

    known: Sequence[Event]
    last: dict[str, Event] = field(default_factory=dict)


class NeedsHistory(Exception):
    """More of an account was asked for than clients are known to share."""


class LastOnly(Sequence[Event]):
    """A long account of which only the last event is known, which carries on all before it."""

    def __init__(self, last: Event, count: int) -> None:
        self._last, self._count = last, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Event]:
        raise NeedsHistory

    @overload
    def __getitem__(self, place: int) -> Event: ...
    @overload
    def __getitem__(self, place: slice) -> list[Event]: ...
    def __getitem__(self, place: int | slice) -> Event | list[Event]:
        if place not in (-1, self._count - 1):
            raise NeedsHistory
        return self._last


def facts_alike(event: Event) -> tuple[Any, ...]:
    """What accounts alike have in common in an event."""
    apart = ("client", "payload", "hash", "made_at")
    return tuple(value for name, value in vars(event).items() if name not in apart)
