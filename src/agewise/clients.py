"""The clients of a problem, as frozen, checked data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from agewise.arrays import Array
from agewise.checks import positive, whole
from agewise.errors import InvalidInput
from agewise.process import Process
from agewise.process.joint import as_law, is_process
from agewise.report.tables import shorten

LARGEST_SLOT = 100_000
"""Slots beyond which tables by slot make no sense."""


MOST_MEMBERS = 10**8
"""Clients alike behind one gateway."""


LONGEST_NAME = 200
"""Letters of a client's name."""


@dataclass(frozen=True)
class Client:
    """One client: how its records change, their law when it collects, how many it collects."""

    name: str  #: distinct from the others'
    process: Process  #: how one of its records changes from slot to slot
    law: ArrayLike | None = None  #: of a record at collection; None: the process's own law
    samples: int = 100  #: how many records it collects
    weight: float | None = None  #: its share of the aggregate; None: in proportion to `samples`
    epsilon: float | None = None  #: its own target; None: that of the problem
    turn: int = 1  #: of many rounds it takes part in the first and every so-many-th after it
    #: so many clients alike behind one gateway: each has `samples` records, its own noise and its
    #: own account, and the gateway sends the mean of what they release
    members: int = 1

    def __post_init__(self) -> None:
        if (
            not isinstance(self.name, str)
            or not self.name.strip()
            or not self.name.isprintable()
            or len(self.name) > LONGEST_NAME
        ):
            raise InvalidInput(
                "client name", repr(self.name), f"1 to {LONGEST_NAME} printable letters"
            )
        if not is_process(self.process):
            raise InvalidInput(
                f"process of client {self.name!r}",
                repr(self.process),
                "a MarkovChain, a PeriodicChain or another Process",
            )
        object.__setattr__(
            self, "samples", whole(f"samples of client {self.name!r}", self.samples, 1)
        )
        if self.law is not None:
            law = as_law(f"law of client {self.name!r}", self.law, self.process.states.size)
            object.__setattr__(self, "law", tuple(law.tolist()))
        if self.weight is not None:
            share = positive(f"weight of client {self.name!r}", self.weight)
            object.__setattr__(self, "weight", share)
        if self.epsilon is not None:
            own = positive(f"epsilon of client {self.name!r}", self.epsilon)
            object.__setattr__(self, "epsilon", own)
        turn = whole(f"turn of client {self.name!r}", self.turn, 1, LARGEST_SLOT)
        object.__setattr__(self, "turn", turn)
        many = whole(f"members of client {self.name!r}", self.members, 1, MOST_MEMBERS)
        object.__setattr__(self, "members", many)

    def __repr__(self) -> str:
        many = f"{self.members:,} × " if self.members > 1 else ""
        own = ["law stated"] if self.law is not None else []
        for key, value in (("weight", self.weight), ("epsilon", self.epsilon)):
            own += [] if value is None else [f"{key}={value:g}"]
        name, records = shorten(self.name, 40), f"{many}{self.samples:,} records"
        return f"Client({', '.join([repr(name), repr(self.process), records, *own])})"

    @property
    def records(self) -> int:
        """How many records there are, of all members."""
        return self.samples * self.members

    def law_at(self, slot: int) -> Array:
        """The law of a record that is collected in `slot`."""
        return self.process.law(slot) if self.law is None else np.asarray(self.law)


def likeness(client: Client) -> tuple[Any, ...]:
    """What clients alike have in common: all but their names and weights."""
    own = (client.law, client.samples, client.epsilon, client.turn, client.members)
    return client.process.fingerprint, *own


def nameless(client: Client) -> Client:
    """What a client has in common with those alike: all but its name and its weight."""
    return replace(client, name="alike", weight=None)
