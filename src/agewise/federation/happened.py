"""What happens in a run, and what comes of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args, overload

from agewise.errors import AgewiseError
from agewise.federation.statement import Statement
from agewise.planning import Plan

OnMissing = Literal["fail", "renormalise", "replan"]
ON_MISSING: tuple[str, ...] = get_args(OnMissing)


class RunIncomplete(AgewiseError):
    """A run that ended without a model. What was released stays in the clients' ledgers."""

    exit_code = 4


class Step(NamedTuple):
    """Something that happened: in which slot, to whom, what, and why."""

    slot: int
    client: str
    what: str
    why: str = ""


class Steps(Sequence[Step]):
    """What happened, in order: the same to many clients at once, and steps when looked at."""

    def __init__(self) -> None:
        self._same: list[tuple[int, Sequence[str], str, str]] = []
        self._starts: list[int] = []
        self._count = 0

    def append(self, step: Step) -> None:
        """Add what happened to one client."""
        self.extend(step.slot, [step.client], step.what, step.why)

    def extend(self, slot: int, clients: Sequence[str], what: str, why: str = "") -> None:
        """Add what happened to several clients, in their order."""
        self._same.append((slot, clients, what, why))
        self._starts.append(self._count)
        self._count += len(clients)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Step]:
        for slot, clients, what, why in self._same:
            for client in clients:
                yield Step(slot, client, what, why)

    @overload
    def __getitem__(self, place: int) -> Step: ...
    @overload
    def __getitem__(self, place: slice) -> list[Step]: ...
    def __getitem__(self, place: int | slice) -> Step | list[Step]:
        if isinstance(place, slice):
            return [self[one] for one in range(self._count)[place]]
        number = range(self._count)[place]
        group = bisect_right(self._starts, number) - 1
        slot, clients, what, why = self._same[group]
        return Step(slot, clients[number - self._starts[group]], what, why)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # it grows

    def __repr__(self) -> str:
        return repr(tuple(self))


@dataclass(frozen=True)
class Outcome:
    """What a finished run published, and about whom.

    The model estimates the mean of all clients' records by these `weights`; `collected` is the slot
    in which each collects.
    """

    model: float | list[float]
    aggregate: tuple[float, ...]
    plan: Plan
    participants: tuple[str, ...]
    weights: dict[str, float]
    collected: dict[str, int]
    statement: Statement
