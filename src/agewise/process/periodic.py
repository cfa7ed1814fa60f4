"""A chain whose transition matrix depends on the slot of the day."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array, frozen
from agewise.checks import finite_array, whole
from agewise.errors import InvalidInput
from agewise.process.chain import (
    closed_class,
    elapsed,
    sample,
    settled_power,
    stationary_laws,
)
from agewise.process.joint import (
    JointLaw,
    as_law,
    as_states,
    as_transition,
    fingerprint,
    in_a_line,
)


class PeriodicChain:
    """A Markov chain with one transition matrix for each slot of a repeating day.

    `transitions[k]` moves a record from slot k+1 of the day to the next slot, so slot `t`
    (counted from 1, running on over the days) uses `transitions[(t - 1) % slots_per_day]`.

    >>> calm, busy = [[0.9, 0.1], [0.1, 0.9]], [[0.5, 0.5], [0.5, 0.5]]
    >>> day = PeriodicChain([calm, calm, busy], states=[0, 1])
    >>> day.kernel(1, 3)
    array([[0.82, 0.18],
           [0.18, 0.82]])
    """

    kind = "periodic"
    markov = True
    homogeneous = None
    confidence = 1.0
    assumes = ""
    basis = "proven"
    weeks = 0

    def __init__(self, transitions: ArrayLike, states: ArrayLike) -> None:
        matrices = finite_array("transitions", transitions, "one square matrix a slot of the day")
        if matrices.ndim != 3:
            raise InvalidInput(
                "transitions", f"of shape {matrices.shape}", "shape (slots of the day, S, S)"
            )
        self.transitions = frozen(
            np.stack([as_transition(m, f"transitions[{k}]") for k, m in enumerate(matrices)])
        )
        self.states = as_states(states)
        if self.states.size != self.transitions.shape[1]:
            raise InvalidInput(
                "states",
                f"{self.states.size} values",
                f"{self.transitions.shape[1]} values, one per row of the transition matrices",
            )

    def __repr__(self) -> str:
        return f"PeriodicChain({self.slots_per_day} slots per day, {in_a_line(self.states)})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PeriodicChain)
            and np.array_equal(self.transitions, other.transitions)
            and np.array_equal(self.states, other.states)
        )

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of the process, equal for equal processes on any machine."""
        return fingerprint(self.transitions, self.states)

    def __hash__(self) -> int:
        return hash((self.transitions.tobytes(), self.states.tobytes()))

    @property
    def slots_per_day(self) -> int:
        """How many slots until the matrices repeat."""
        return int(self.transitions.shape[0])

    @property
    def day(self) -> int:
        """The same by the name that every process has for it."""
        return self.slots_per_day

    def to_dict(self) -> dict[str, Any]:
        """The chain as plain data, without its states."""
        return {"kind": self.kind, "transitions": self.transitions.tolist()}

    def knows(self, collect_at: int, aggregate_at: int) -> bool:  # noqa: ARG002
        """Always: the matrices tell about every two slots."""
        return True

    @cached_property
    def laws(self) -> Array:
        """The periodic law: `laws[k]` holds in slot k+1 of every day, `[slots_per_day, S]`.

        Raises `InvalidInput` where it is not unique.
        """
        laws = [stationary_laws(self._day[None])[0]]
        for matrix in self.transitions[:-1]:
            following = laws[-1] @ matrix
            laws.append(following / following.sum())
        return frozen(np.stack(laws))

    @cached_property
    def settled(self) -> int | None:
        """The age from which on kernels are the same to rounding; None where they never are."""
        days = settled_power(self._day)
        return None if days is None else (days + 1) * self.slots_per_day  # they begin in slot 1

    def youngest(self, ages: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each age the least one, whole days younger, whose kernel is the same to rounding.

        It guarantees what `MarkovChain.youngest` does.
        """
        if self.settled is None:
            return ages
        return np.where(
            ages < self.settled, ages, self.settled + (ages - self.settled) % self.slots_per_day
        )

    def law(self, slot: int) -> Array:
        """The periodic law in `slot`."""
        law: Array = self.laws[(whole("slot", slot, -(2**53)) - 1) % self.slots_per_day]
        return law

    def kernel(self, collect_at: int, aggregate_at: int) -> Array:
        """P(value at `aggregate_at` | value at `collect_at`), one row a starting state.

        O(age · S³), up to the age at which nothing changes any more.
        """
        age = elapsed(collect_at, aggregate_at)
        first = aggregate_at - int(self.youngest(np.asarray(age)))
        return self._product(first, aggregate_at)

    def reachable(self, collect_at: int, aggregate_at: int) -> NDArray[np.bool_]:
        """Which states can be reached from which between the two slots, free of underflow."""
        result = np.eye(self.states.size)
        age = elapsed(collect_at, aggregate_at)
        first = aggregate_at - int(self.youngest(np.asarray(age)))
        for matrix in self._moves(first, aggregate_at):
            result = np.minimum(result @ (matrix > 0), 1)
        return result > 0

    def joint(self, collect_at: int, aggregate_at: int, law: ArrayLike | None = None) -> JointLaw:
        """The joint law of the two values, `law` (default: periodic) holding at collection."""
        start = self.law(collect_at) if law is None else as_law("law", law, self.states.size)
        occurs = start > 0
        if law is None:  # whether or not a float holds its probability
            pattern = self.reachable(collect_at, collect_at + self.slots_per_day)
            occurs = closed_class(pattern / pattern.sum(axis=1, keepdims=True))
        possible = occurs[:, None] & self.reachable(collect_at, aggregate_at)
        steps = int(self.youngest(np.asarray(elapsed(collect_at, aggregate_at))))
        if law is None:  # a day's products count 2(S − 1) times in its stationary law, once after
            steps += (2 * self.states.size - 1) * self.slots_per_day
        kernel = self.kernel(collect_at, aggregate_at)
        return JointLaw.of(start, kernel, self.states, steps, possible)

    def sample_paths(
        self,
        rng: np.random.Generator,
        slots: int,
        size: int = 1,
        law: ArrayLike | None = None,
        first_slot: int = 1,
    ) -> Array:
        """Draw `size` paths of `slots` values each, starting in `first_slot` from `law`."""
        start = self.law(first_slot) if law is None else as_law("law", law, self.states.size)
        moves = self._moves(first_slot, first_slot + whole("slots", slots, 1) - 1)
        return sample(rng, start, [np.cumsum(m, axis=1) for m in moves], size, self.states)

    @cached_property
    def _day(self) -> Array:
        return self._product(1, 1 + self.slots_per_day)

    def _product(self, first: int, last: int) -> Array:
        result = np.eye(self.states.size)
        for matrix in self._moves(first, last):
            result = result @ matrix
        return result

    def _moves(self, first: int, last: int) -> Array:
        """The matrices of all steps from slot `first` to slot `last`."""
        steps = np.arange(elapsed(first, last))
        return self.transitions[(first - 1 + steps) % self.slots_per_day]
