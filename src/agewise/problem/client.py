"""The clients of a problem, as records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from agewise.arrays import Array
from agewise.checks import numbers
from agewise.errors import InvalidInput, quoted
from agewise.process import Process
from agewise.process.joint import as_law, as_process
from agewise.records import WHOLE, Count, Positive, Read, list_of, record
from agewise.report.tables import shorten

LARGEST_SLOT = 100_000
"""Slots beyond which tables by slot make no sense."""


MOST_MEMBERS = 10**8
"""Clients alike behind one gateway."""


LONGEST_NAME = 200
"""Letters of a client's name."""


def _name(given: Any) -> str:
    text = isinstance(given, str) and given.isprintable() and len(given) <= LONGEST_NAME
    if not text or not given.strip():
        raise InvalidInput("", quoted(given), f"1 to {LONGEST_NAME} printable letters")
    return str(given)


def _law(given: Any) -> tuple[float, ...]:
    values = numbers("", given, "probabilities that sum to 1")
    return tuple(as_law("", values, values.size).tolist())


def _process(given: Any) -> Process:
    return as_process(given, "")


def _name_schema() -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME}


Slot = Annotated[int, Field(ge=1, le=LARGEST_SLOT), WHOLE]
Members = Annotated[int, Field(ge=1, le=MOST_MEMBERS), WHOLE]
Name = Annotated[str, Read(_name, _name_schema)]
AnyProcess = Annotated[Process, Read(_process, lambda: {"type": "object"})]
Law = Annotated[ArrayLike, Read(_law, lambda: list_of(1))]


@record(slots=True)
class Client:
    """One client: how its records change, their law when it collects, how many it collects."""

    name: Name
    """Its name, distinct from the others'."""
    process: AnyProcess
    """How one of its records changes from slot to slot."""
    law: Law | None = None
    """Law of a record at collection. Left out: the process's own law."""
    samples: Count = 100
    """How many records it collects."""
    weight: Positive | None = None
    """Its share of the aggregate: for every client, summing to 1, or for none, where it is in
    proportion to the records."""
    epsilon: Positive | None = None
    """Its own target. Left out: that of the problem."""
    turn: Slot = 1
    """It takes part in every round (1), every second one (2), and so on."""
    members: Members = 1
    """How many clients alike a gateway stands for: each has `samples` records, its own noise and
    its own account, and the gateway sends the mean of what they release."""

    def __post_init__(self) -> None:
        if self.law is not None:
            as_law(f"law of client {self.name!r}", self.law, self.process.states.size)

    @staticmethod
    def called(field: str, given: Mapping[str, Any]) -> str:
        """What messages call a field."""
        return "client name" if field == "name" else f"{field} of client {given.get('name')!r}"

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
