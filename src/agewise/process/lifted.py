"""A chain on (class, state): what a record's state alone does not make a Markov chain, both do.

A household with a habit forgets its reading soon and its habit slowly. The pair (class of its
habit, state) is a Markov chain; the record that is released, and asked about, is the state only.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array, frozen
from agewise.errors import InvalidInput, quoted
from agewise.process.joint import JointLaw, as_law, as_states, fingerprint, in_a_line
from agewise.process.markov import MarkovChain, PeriodicChain


class LiftedChain:
    """The states of a Markov chain on enlarged states, such as pairs (class, state).

    `chain` is homogeneous or by slot of day; its own state numbers are mere labels. `groups` names
    the state of each enlarged one as a number from 0, and `states` are the values of these. Where
    all states have as many enlarged ones, the n-th of each is taken for that of class n.

    By itself this is a process known between any two slots, and no Markov chain: several releases
    get credit for ageing through `chain`, where the account of them is kept.

    >>> pairs = MarkovChain([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8]], states=[0, 1, 2])
    >>> meter = LiftedChain(pairs, groups=[0, 1, 1], states=[20, 50])
    >>> meter.law(1).round(3), meter.kernel(1, 2).round(3)
    (array([0.417, 0.583]), array([[0.8  , 0.2  ],
           [0.143, 0.857]]))
    """

    kind = "lifted"
    markov = False
    homogeneous = None
    confidence = 1.0
    assumes = ""
    basis = "proven"
    weeks = 0

    def __init__(
        self,
        chain: MarkovChain | PeriodicChain,
        groups: Sequence[int] | NDArray[np.intp],
        states: ArrayLike,
    ) -> None:
        if not isinstance(chain, MarkovChain | PeriodicChain):
            refused = getattr(chain, "kind", None)
            raise InvalidInput(
                "chain",
                quoted(chain) if refused is None else f"a {refused} law, known lag by lag only",
                "a MarkovChain or a PeriodicChain",
                "Any other law gets no credit over rounds: the ε's of all releases add up.",
            )
        labels = np.arange(float(chain.states.size))
        self.chain: MarkovChain | PeriodicChain = (
            MarkovChain(chain.transition, labels)
            if isinstance(chain, MarkovChain)
            else PeriodicChain(chain.transitions, labels)
        )
        self.groups = _checked_groups(groups, labels.size)
        self.states = as_states(states)
        if self.states.size != self.groups.max() + 1:
            raise InvalidInput(
                "states", f"{self.states.size} values", f"{self.groups.max() + 1}, one per group"
            )

    def __repr__(self) -> str:
        return f"LiftedChain({in_a_line(self.states)}, of {self.groups.size} enlarged ones)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LiftedChain) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of the process, equal for equal processes on any machine."""
        inner = np.array([*bytes.fromhex(self.chain.fingerprint)], dtype=float)
        return fingerprint(inner, self.groups.astype(float), self.states)

    @property
    def day(self) -> int:
        """The number of slots after which everything repeats."""
        return int(self.chain.day)

    def to_dict(self) -> dict[str, Any]:
        """The process as plain data, without its states."""
        inner = self.chain.to_dict()
        return {"kind": self.kind, "chain": inner, "groups": self.groups.tolist()}

    def knows(self, collect_at: int, aggregate_at: int) -> bool:  # noqa: ARG002
        """Always: the chain tells about every two slots."""
        return True

    def youngest(self, ages: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each age the least one that stands for it, as the chain says."""
        return np.asarray(self.chain.youngest(ages))

    def law(self, slot: int) -> Array:
        """The law of the state in `slot`, the chain being stationary (periodic)."""
        return frozen(self._sums @ self.chain.law(slot))

    def shares(self, slot: int) -> Array:
        """P(enlarged state | state) in `slot` `[Y, S]`, a row for each state that can occur."""
        share = self._sums * self.chain.law(slot)
        share = share[share.sum(axis=1) > 0]
        return np.asarray(share / share.sum(axis=1, keepdims=True))

    def spread(self, table: Array) -> Array:
        """A table `[states, states]` as one of enlarged states `[S, S]`."""
        return np.asarray(table[np.ix_(self.groups, self.groups)])

    def asked(self, slot: int) -> list[Array]:
        """Laws `[Y, S]` of the enlarged state that a claim about the state compares, in `slot`.

        Of somebody who does not know the class, and of somebody who knows which habit it is.
        """
        each = np.eye(self.groups.size)
        return [self.shares(slot), *(each[members] for members in self.habits)]

    @cached_property
    def habits(self) -> list[NDArray[np.intp]]:
        """For each habit its enlarged states: the n-th of each group.

        Where groups differ in size nobody says which belong together: any two of two groups do.
        None where every state has one habit only: nothing is left to know.
        """
        members = [np.flatnonzero(one) for one in self._sums]
        sizes = {len(one) for one in members}
        if sizes == {1}:
            return []
        if len(sizes) == 1:
            return list(np.stack(members, axis=1))
        pairs = itertools.combinations(members, 2)
        return [np.array(two) for one, other in pairs for two in itertools.product(one, other)]

    def kernel(self, collect_at: int, aggregate_at: int) -> Array:
        """P(state at `aggregate_at` | state at `collect_at`), the chain being stationary.

        A state that cannot occur at collection has the row of its enlarged states in equal parts.
        """
        if collect_at == aggregate_at:
            return np.eye(self.states.size)
        law = self.chain.law(collect_at)
        inside = self._sums * law
        never = inside.sum(axis=1) == 0
        inside[never] = self._sums[never]
        inside /= inside.sum(axis=1, keepdims=True)
        moved: Array = inside @ self.chain.kernel(collect_at, aggregate_at) @ self._sums.T
        return moved

    def reachable(self, collect_at: int, aggregate_at: int) -> NDArray[np.bool_]:
        """Which moves between the two slots are possible at all, free of underflow."""
        moves = self.chain.reachable(collect_at, aggregate_at).astype(float)
        return np.asarray(self._sums @ moves @ self._sums.T > 0)

    def joint(self, collect_at: int, aggregate_at: int, law: ArrayLike | None = None) -> JointLaw:
        """The joint law of the states in the two slots.

        `law` (default: the chain's own) holds for the state at collection; the class given the
        state is as in the chain.
        """
        whole = self.chain.joint(collect_at, aggregate_at)
        matrix = self._sums @ whole.matrix @ self._sums.T
        if law is not None:
            before = matrix.sum(axis=1)
            wanted = as_law("law", law, self.states.size)
            if (wanted[before == 0] > 0).any():
                raise InvalidInput("law", law, "0 for states that never occur at collection")
            matrix = matrix * (wanted / np.where(before > 0, before, 1.0))[:, None]
        joint = JointLaw(matrix, self.states)
        # Sums over groups add their sizes to the roundings, for two sums and a quotient.
        joint.rounding = 2 * whole.rounding + 4 * self.groups.size * float(np.finfo(float).eps)
        joint.underflowed = whole.underflowed
        joint.enlarged = whole
        return joint

    @cached_property
    def _sums(self) -> Array:
        """Which enlarged states make up each state, `[states, enlarged]`."""
        return np.asarray(self.groups == np.arange(self.groups.max() + 1)[:, None], dtype=float)


def _checked_groups(groups: Sequence[int] | NDArray[np.intp], size: int) -> NDArray[np.intp]:
    try:
        group = np.asarray(groups)
    except ValueError:  # rows of several lengths
        group = np.asarray(None)
    if group.shape != (size,):
        raise InvalidInput("groups", f"{group.size} numbers", f"{size}, one per enlarged state")
    if group.dtype.kind not in "iu" or not np.array_equal(
        np.unique(group), np.arange(group.max() + 1)
    ):
        raise InvalidInput("groups", group.tolist(), "whole numbers from 0, none left out")
    if group.max() < 1:
        raise InvalidInput("groups", "one", "two or more, to be told apart")
    return group.astype(np.intp)
