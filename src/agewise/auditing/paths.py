"""The laws along a process, with both ends of what rounding leaves open.

Nothing is taken from the code that calibrates: one-step matrices (or a measured table) and stated
laws are the data, and powers, stationary laws and backward laws are worked out here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.auditing.outward import Between, backward, power, product, stationary
from agewise.errors import InvalidInput
from agewise.process import Process


class Path:
    """A record on its way through the slots: its kernels, laws, and which values can occur.

    `law` is the record's law in slot `since`; None: the process's own (stationary or periodic).
    """

    def __init__(self, process: Process, law: Array | None = None, since: int = 1) -> None:
        self.process, self.since = process, since
        self.size = process.states.size
        if self.size < 2:
            raise InvalidInput(
                "process",
                "one state",
                "two states or more",
                "A record with one value has nothing to hide.",
            )
        self._stated = None if law is None else Between.exactly(np.asarray(law, float))
        self._kernels: dict[tuple[int, int], Between] = {}
        self._laws: dict[int, Between] = {}

    def kernel(self, start: int, end: int) -> Between:
        """P(value in slot `end` | value in slot `start`), one row per value in `start`."""
        day = self.process.day
        key = ((start - 1) % day, end - start) if self.process.markov else (start, end)
        if key not in self._kernels:
            self._kernels[key] = self._kernel(start, end)
        return self._kernels[key]

    def _kernel(self, start: int, end: int) -> Between:
        if start == end:
            return Between.exactly(np.eye(self.size))
        if not self.process.markov:
            return Between.exactly(self.process.kernel(start, end))
        day = self.process.day
        first = (start - 1) % day + 1
        if day == 1:
            return power(self._step(1), end - start)
        days, rest = divmod(end - start, day)
        whole = product([self._step(first + k) for k in range(day)], self.size)
        part = product([self._step(first + k) for k in range(rest)], self.size)
        return power(whole, days) @ part

    def _step(self, slot: int) -> Between:
        return Between.exactly(self.process.kernel(slot, slot + 1))

    def law(self, slot: int) -> Between:
        """The law of a record in a slot."""
        if slot not in self._laws:
            self._laws[slot] = self._law(slot)
        return self._laws[slot]

    def _law(self, slot: int) -> Between:
        if self._stated is not None:
            if slot < self.since:
                raise InvalidInput("slot", slot, f"{self.since} or later, where the law is stated")
            return (self._stated[None] @ self.kernel(self.since, slot))[0]
        if not self.process.markov:
            return Between.exactly(self.process.law(slot))
        return stationary(self.kernel(slot, slot + self.process.day))

    def support(self, slot: int) -> NDArray[np.intp]:
        """Which values can occur in a slot."""
        return np.flatnonzero(self.law(slot).high > 0)

    def backward(self, start: int, end: int) -> Between:
        """P(value in `start` | value in `end`), for values that can occur; later ones in rows."""
        if self.process.markov or start == end:
            rows = backward(self.law(start), self.kernel(start, end))
        else:  # a table measured for these two slots
            table = Between.exactly(self.process.joint(start, end).matrix)
            rows = (table / table.transposed.total()[None]).transposed
        return rows[np.ix_(self.support(end), self.support(start))]

    def forward(self, start: int, end: int) -> Between:
        """P(value in `end` | value in `start`), for values that can occur."""
        return self.kernel(start, end)[np.ix_(self.support(start), self.support(end))]


class EveryValue(Path):
    """The same for claims that hold whatever the law of a record: every value can occur."""

    def support(self, slot: int) -> NDArray[np.intp]:  # noqa: ARG002  (in every slot)
        """Which values can occur in a slot: all."""
        return np.arange(self.size)
