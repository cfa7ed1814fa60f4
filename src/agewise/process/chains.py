"""Markov chains with a day of D slots, many at once: their kernels, their own laws, joint laws.

Every number of a chain is the same to the last bit whichever others are there: chains are the last
axis of every array, and sums run over the axes before it. Over one chain alone NumPy would sum in
another order, so that it is worked out as two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.errors import InvalidInput
from agewise.process.joint import TINY, JointLaw, rounding

MANY_STATES = 16
"""With more states BLAS multiplies matrices one by one faster than NumPy does all of them."""

RADIX = 4
"""Powers are taken digit by digit, in this base: so many are kept for each digit."""

DOUBLINGS = 17
"""Powers up to 2¹⁶ are tried for whether a chain has settled: about as many as there are slots."""

Prior = Literal["own", "stated", "any"]
"""What an adversary takes for the law at collection: the process's own, that stated, or none."""

REDUCIBLE_REMEDY = "Link the classes, drop the states never visited, or state a law."


def product(left: Array, right: Array) -> Array:
    """The products of matrices `[x, z, G]` and `[z, y, G]`, each the same whatever the others."""
    if len(left) > MANY_STATES:
        first, second = (np.ascontiguousarray(np.moveaxis(one, -1, 0)) for one in (left, right))
        return np.ascontiguousarray(np.moveaxis(first @ second, 0, -1))
    if left.shape[2] == 1:  # which NumPy would sum in another order
        return product(left.repeat(2, axis=2), right.repeat(2, axis=2))[..., :1]
    return np.asarray(np.einsum("xzg,zyg->xyg", left, right))


class Powers:
    """Powers of matrices `[S, S, G]` by age: one age by itself is what a table of all has.

    P^a is (P^4)^h · P^l, a = 4h + l: one product for each age of a table, few for one age.
    """

    def __init__(self, step: Array) -> None:
        self._low = {1: step}
        self._lead: tuple[int, Array] = (1, step)

    def __getitem__(self, age: int) -> Array:
        if age < RADIX:
            return self._small(age)
        high, low = divmod(age, RADIX)
        known, lead = self._lead
        if known != high or high == 1:
            lead = self._higher[high]
            self._lead = high, lead
        return product(lead, self._small(low)) if low else lead

    @cached_property
    def _higher(self) -> Powers:
        return Powers(product(self._small(RADIX - 1), self._low[1]))

    def _small(self, age: int) -> Array:
        if age == 0:
            return identity(self._low[1])
        for one in range(2, age + 1):
            if one not in self._low:
                self._low[one] = product(self._low[one - 1], self._low[1])
        return self._low[age]


def identity(like: Array) -> Array:
    """Identity matrices `[S, S, G]`."""
    same = np.zeros_like(like)
    same[np.arange(len(like)), np.arange(len(like))] = 1
    return same


@dataclass(frozen=True)
class Laws:
    """What is known of records between two slots, `age` apart.

    `kernel` `[x, y, G]` says how they move, and `joint` `[x, y, G]` is the joint law that an
    adversary knows (None: any prior), its entries off by `off` `[G]` relatively at most. `lost`:
    something possible got a probability too small for a float to hold. `uncertain`: by how much Δ
    may be larger than these laws say, where they were measured, as `joints`. `redrawn`: each slot
    by one law, so that exactly nothing is left.
    """

    age: int
    kernel: Array
    joint: Array | None
    off: Array
    lost: NDArray[np.bool_]
    uncertain: Array
    redrawn: NDArray[np.bool_]
    joints: tuple[JointLaw, ...] = ()

    def joint_law(self, group: int, states: Array) -> JointLaw:
        """The joint law of one group."""
        matrix, off = self.joint[..., group].copy(), float(self.off[group])  # type: ignore[index]
        return JointLaw.of(matrix, states, off, bool(self.lost[group]))


class Chains:
    """Markov chains `[G, D, S, S]` with a day of D slots, and laws where they are stated."""

    def __init__(
        self, transitions: Array, stated: Sequence[Array | None] | Array | None, prior: Prior
    ) -> None:
        self.transitions, self.stated, self.prior = transitions, stated, prior
        if isinstance(stated, np.ndarray):
            self._unstated, self._stated = np.zeros(len(transitions), dtype=bool), stated.T
        else:
            laws = [None] * len(transitions) if stated is None else stated
            self._unstated = np.array([one is None for one in laws])
            self._stated = np.array([one for one in laws if one is not None]).T
        self._day, size = int(transitions.shape[1]), int(transitions.shape[2])
        self._steps = np.ascontiguousarray(np.moveaxis(transitions, 0, -1))
        self._powers = Powers(self._steps[0])
        self._priors: dict[int, tuple[Array | None, Array, NDArray[np.bool_]]] = {}
        self._reached: tuple[int, int, Array] = (0, np.iinfo(int).max, transitions[:, 0])
        self._smallest = np.log(np.where(self._steps > 0, self._steps, 1).min(axis=(0, 1, 2)))
        self._redrawn = (self._steps[0] == self._steps[0, :1]).all(axis=(0, 1)) & (self._day == 1)
        # A day's products count 2(S - 1) times in its stationary law, once after.
        self._in_law = 0 if self._day == 1 else (2 * size - 1) * self._day

    def only(self, which: NDArray[np.bool_]) -> Chains:
        """Some of the chains."""
        stated = self.stated
        if isinstance(stated, np.ndarray):
            stated = stated[which]
        elif stated is not None:
            stated = [stated[group] for group in np.flatnonzero(which).tolist()]
        return Chains(self.transitions[which], stated, self.prior)

    def youngest(self, ages: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each group and age the least age that stands for it, `[G, T]`."""
        settled = self.settled[:, None]
        return np.where(ages < settled, ages, settled + (ages - settled) % self._day)

    @cached_property
    def settled(self) -> NDArray[np.int64]:
        """The age from which on kernels are the same to rounding; where they never are, huge."""
        found, never = settled_powers(self._around), np.iinfo(np.int64).max
        if self._day > 1:  # they begin in slot 1
            found = np.where(found == never, never, (np.minimum(found, 2**40) + 1) * self._day)
        return found

    @cached_property
    def _around(self) -> Array:
        """What a day does, `[G, S, S]`."""
        if self._day == 1:
            return self.transitions[:, 0]
        return np.ascontiguousarray(np.moveaxis(self.kernel(1, 1 + self._day), -1, 0))

    def kernel(self, collect_at: int, aggregate_at: int) -> Array:
        """How records move between the slots, `[x, y, G]`: slots as they come, the last first."""
        age = aggregate_at - collect_at
        if self._day == 1:
            return self._powers[age]
        last, reached, kernel = self._reached
        if last != aggregate_at or reached > age:
            size = self.transitions.shape[2]
            reached, kernel = 0, np.broadcast_to(np.eye(size), (len(self.transitions), size, size))
        for slot in range(aggregate_at - reached - 1, collect_at - 1, -1):
            kernel = self.transitions[:, (slot - 1) % self._day] @ kernel
        self._reached = aggregate_at, age, kernel
        return np.ascontiguousarray(np.moveaxis(kernel, 0, -1))

    def law(self, slot: int) -> Array:
        """The law of records that are collected in a slot, `[x, G]`: stated, or the chain's own."""
        if self._unstated.all():
            return self._own[(slot - 1) % self._day]
        law: Array = np.empty(self._steps.shape[2:])
        law[:, ~self._unstated] = self._stated
        if self._unstated.any():
            law[:, self._unstated] = self._own[(slot - 1) % self._day][:, self._unstated]
        return law

    @cached_property
    def _own(self) -> list[Array]:
        """The chains' own laws by slot of the day, of those without one where none is asked for."""
        some = np.ones_like(self._unstated) if self.prior == "own" else self._unstated
        law = np.full(self._steps.shape[2:], np.nan)
        law[:, some] = stationary_laws(self._around[some]).T
        laws = [law]
        for step in self._steps[:-1]:
            following = product(laws[-1][None], step)[0]
            laws.append(following / following.sum(axis=0))
        return laws

    def between(self, collect_at: int, aggregate_at: int) -> Laws:
        """What is known between the slots."""
        age, kernel = aggregate_at - collect_at, self.kernel(collect_at, aggregate_at)
        size, count = kernel.shape[1:]
        prior, rarest, tiny = self._prior(collect_at)
        doubtful = (self._smallest * age + rarest < np.log(TINY)) | tiny
        lost = np.zeros(count, dtype=bool)
        for group in np.flatnonzero(doubtful).tolist():
            start = None if prior is None else prior[:, group]
            lost[group] = self._underflows(group, kernel[..., group], collect_at, age, start)
        own_law = self._unstated if self.prior == "stated" else np.full(count, prior is not None)
        off = np.where(own_law, rounding(age + self._in_law, size), rounding(age, size))
        return Laws(
            age,
            kernel,
            None if prior is None else prior[:, None] * kernel,
            off,
            lost,
            np.zeros(count),
            self._redrawn & (age > 0),
        )

    def _prior(self, slot: int) -> tuple[Array | None, Array, NDArray[np.bool_]]:
        """The law that an adversary takes as known (None: any).

        With the logarithm of its least positive chance, and whether a float hardly holds some.
        """
        where = (slot - 1) % self._day
        if where not in self._priors:
            law = None
            if self.prior != "any":
                law = self._own[where] if self.prior == "own" else self.law(slot)
            sure = np.ones((1, len(self.transitions))) if law is None else law
            rarest = np.log(np.where(sure > 0, sure, 1).min(axis=0))
            self._priors[where] = law, rarest, np.asarray((sure < TINY).any(axis=0))
        return self._priors[where]

    def _underflows(
        self, group: int, kernel: Array, slot: int, age: int, prior: Array | None
    ) -> bool:
        """Whether something possible got a probability too small for a float to hold well."""
        possible = self.pattern(group, slot, age)
        if prior is None:
            return bool((kernel[possible] < TINY).any())
        occurs = prior > 0
        if self.prior == "own" or self._unstated[group]:  # whether or not a float holds it
            occurs = occurs | closed_class(self.pattern(group, slot, self._day).astype(float))
        possible &= occurs[:, None]
        return bool(((prior[:, None] * kernel)[possible] < TINY).any())

    def pattern(self, group: int, slot: int, age: int) -> NDArray[np.bool_]:
        """Which moves are possible at all."""
        moves = self.transitions[group] > 0
        if self._day == 1:
            return boolean_power(moves[0], age)
        result = np.eye(moves.shape[1])
        for one in range(slot, slot + age):
            result = np.minimum(result @ moves[(one - 1) % self._day], 1)
        return result > 0


def stationary_laws(transitions: Array) -> Array:
    """Return the stationary law of each chain of a batch `[m, S, S]`, as `[m, S]`.

    Grassmann, Taksar and Heyman (1985): Gaussian elimination without a subtraction, so every
    entry keeps its relative accuracy however close the chain is to falling apart. O(m S³).
    """
    if len(transitions) == 1:  # over one chain alone NumPy would sum in another order
        return stationary_laws(np.repeat(transitions, 2, axis=0))[:1]
    size = transitions.shape[-1]
    work = np.moveaxis(transitions, 0, -1).copy()  # batch last: long contiguous inner loops
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for state in range(size - 1, 0, -1):
            work[:state, state] /= work[state, :state].sum(axis=0)
            work[:state, :state] += work[:state, state, None] * work[state, :state]
        laws = np.empty(work.shape[1:])
        laws[0] = 1
        for state in range(1, size):
            laws[state] = (laws[:state] * work[:state, state]).sum(axis=0)
            laws[: state + 1] /= np.maximum(laws[state], 1)
        laws /= laws.sum(axis=0)
    for index in np.flatnonzero(~np.isfinite(laws).all(axis=0)):  # some state cannot go lower
        laws[:, index] = _stationary_of_closed_class(transitions[index], int(index))
    return np.ascontiguousarray(laws.T)


def closed_class(transition: Array, index: int = 0) -> NDArray[np.bool_]:
    """Which states make up the one closed class; refuses a chain that has several."""
    size = transition.shape[0]
    reach = boolean_power((transition > 0) | np.eye(size, dtype=bool), size - 1)
    there_and_back = reach & reach.T
    stays = (reach == there_and_back).all(axis=1)  # it comes back from wherever it goes
    rows = np.unique(there_and_back[stays], axis=0)[::-1]  # the class of the first state first
    closed = [np.flatnonzero(row) for row in rows]
    if len(closed) > 1:
        raise InvalidInput(
            "transition" if index == 0 else f"transition of chain {index}",
            f"a reducible chain with {len(closed)} closed classes (states "
            + " and ".join(str(c.tolist()) for c in closed[:3])
            + ")",
            "a chain with one closed class, so that its stationary law is unique",
            REDUCIBLE_REMEDY,
        )
    return np.asarray(rows[0])


def _stationary_of_closed_class(transition: Array, index: int) -> Array:
    """The law of a chain with transient states, or of one too badly scaled for the elimination."""
    inside = np.flatnonzero(closed_class(transition, index))
    law = np.zeros(transition.shape[0])
    law[inside] = 1.0
    if inside.size == transition.shape[0]:
        raise InvalidInput(
            "transition", "a chain whose stationary law overflows", "probabilities of like size"
        )
    if inside.size > 1:
        law[inside] = stationary_laws(transition[np.ix_(inside, inside)][None])[0]
    return law


def settled_powers(chains: Array) -> NDArray[np.int64]:
    """The least powers of two from which on powers of chains `[m, S, S]` are the same to rounding.

    There the rows are alike to S ulps, and those of every later power are mixtures of them. Where
    there is none, a huge number.
    """
    alike = 1 + chains.shape[1] * np.finfo(float).eps
    found = np.full(len(chains), np.iinfo(np.int64).max)
    still, kernels = np.arange(len(chains)), chains
    for exponent in range(DOUBLINGS):
        done = (kernels.max(axis=1) <= alike * kernels.min(axis=1)).all(axis=1)
        found[still[done]] = 2**exponent
        still, kernels = still[~done], kernels[~done]
        if not still.size:
            break
        kernels = kernels @ kernels
    return found


def boolean_power(edges: NDArray[np.bool_], count: int) -> NDArray[np.bool_]:
    """Return the pattern of nonzeros of the `count`-th power, by repeated squaring."""
    result = np.eye(edges.shape[0])
    square = edges.astype(np.float64)
    while count:
        if count & 1:
            result = np.minimum(result @ square, 1)
        square = np.minimum(square @ square, 1)
        count >>= 1
    return result > 0
