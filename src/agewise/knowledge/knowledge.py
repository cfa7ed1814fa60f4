"""What it is to know something of the clients: moments of what they would tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.knowledge.moments import Moments


@dataclass(frozen=True)
class Asked:
    """What moments are wanted of: `release` `[T, S, C]` in each of the `slots` `[T]`, from 1 on.

    `table` `[S, C]` is φ, what the target is the mean of in slot `aggregate_at`.
    """

    slots: NDArray[np.int64]
    aggregate_at: int
    release: Array
    table: Array


class Knowledge(Protocol):
    """What the server knows of means and covariances. Accuracy rests on it; privacy never does."""

    @property
    def kind(self) -> str:
        """Its name in scenarios."""
        ...

    @property
    def shared(self) -> bool:
        """Whether it says that clients have something in common."""
        ...

    @property
    def drawable(self) -> bool:
        """Whether records can be drawn from it: not where only moments of them are known."""
        ...

    def __hash__(self) -> int: ...

    def check(self, clients: Sequence[str], aggregate_at: int, states: Array, width: int) -> None:
        """Refuse clients, slots, states or a number of coordinates that it says nothing about."""
        ...

    def moments(self, client: int, own: Moments, asked: Asked) -> Moments:
        """What is known of a client, by its place, given its moments were it independent."""
        ...

    def subset(self, kept: Sequence[int]) -> Knowledge:
        """The same for some of the clients, by their places."""
        ...

    def words(self) -> str:
        """What it takes to be true, for statements."""
        ...


@dataclass(frozen=True)
class Independent:
    """Records are independent and follow the clients' known laws; nothing is shared."""

    kind: Literal["independent"] = "independent"  #: its name in scenarios
    shared: ClassVar[bool] = False
    drawable: ClassVar[bool] = True

    def check(self, clients: Sequence[str], aggregate_at: int, states: Array, width: int) -> None:
        """Nothing can be wrong with it."""

    def moments(self, client: int, own: Moments, asked: Asked) -> Moments:  # noqa: ARG002
        return own

    def subset(self, kept: Sequence[int]) -> Independent:  # noqa: ARG002
        return self

    def words(self) -> str:
        return "records are independent of each other and follow the clients' stated laws"
