"""Markov chains: one transition matrix, or one for each slot of a day."""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array, draw_states, frozen
from agewise.checks import finite_array, fraction, random_generator, whole
from agewise.errors import InvalidInput
from agewise.process.chains import (
    REDUCIBLE_REMEDY,
    Chains,
    Prior,
    boolean_power,
    closed_class,
    settled_powers,
)
from agewise.process.joint import (
    JointLaw,
    Process,
    as_law,
    as_states,
    as_transition,
    fingerprint,
    in_a_line,
)

REVERSIBLE_TOLERANCE = 1e-8
"""Relative difference of the flows x → y and y → x up to which a chain counts as reversible."""

KEPT = 2**16
"""Entries of its matrices up to which what was worked out for a chain is kept."""


class Chain:
    """A Markov chain with a day of D slots: `transitions` `[D, S, S]`, over and over."""

    kind: str
    transitions: Array
    states: Array
    markov = True
    confidence = 1.0
    assumes = ""
    basis = "proven"
    weeks = 0

    def _over(self, states: ArrayLike, rows: str) -> None:
        """Take states, as many as there are rows in the matrices."""
        self.states = as_states(states)
        size = self.transitions.shape[1]
        if self.states.size != size:
            allowed = f"{size} values, one per row of the transition {rows}"
            raise InvalidInput("states", f"{self.states.size} values", allowed)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Chain)
            and self.kind == other.kind
            and np.array_equal(self.transitions, other.transitions)
            and np.array_equal(self.states, other.states)
        )

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of the process, equal for equal processes on any machine."""
        return fingerprint(self.transitions, self.states)

    @property
    def day(self) -> int:
        """The number of slots until the matrices repeat."""
        return int(self.transitions.shape[0])

    @property
    def homogeneous(self) -> MarkovChain | None:
        """The process as a chain whose slots are all alike; None where it is none."""
        return None

    def knows(self, collect_at: int, aggregate_at: int) -> bool:  # noqa: ARG002
        """Always: the matrices tell about every two slots."""
        return True

    @cached_property
    def laws(self) -> Array:
        """The chain's own law: `laws[k]` holds in slot k+1 of every day, `[D, S]`.

        Raises `InvalidInput` where it is not unique: two or more closed classes.
        """
        chains = arrays_of(self)
        return frozen(np.stack([chains.law(slot)[:, 0] for slot in range(1, self.day + 1)]))

    def law(self, slot: int) -> Array:
        """The chain's own law in `slot`."""
        law: Array = self.laws[(whole("slot", slot, -(2**53)) - 1) % self.day]
        return law

    @cached_property
    def settled(self) -> int | None:
        """The age from which on kernels are the same to rounding; None where they never are."""
        alone = settled_powers(self.transitions) if self.day == 1 else arrays_of(self).settled
        age = int(alone[0])
        return None if age == np.iinfo(np.int64).max else age

    def youngest(self, ages: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each age the least one, whole days younger, whose kernel is the same to rounding.

        Guarantees
            A release that is private at the younger age is so at the older one, whatever the law at
            collection: the present value has only moved on since (data processing).
        """
        if self.settled is None:
            return ages
        return np.where(ages < self.settled, ages, self.settled + (ages - self.settled) % self.day)

    def _youngest(self, collect_at: int, aggregate_at: int) -> int:
        return int(self.youngest(np.asarray(elapsed(collect_at, aggregate_at))))

    def kernel(self, collect_at: int, aggregate_at: int) -> Array:
        """P(value at `aggregate_at` | value at `collect_at`), one row a starting state."""
        first = aggregate_at - self._youngest(collect_at, aggregate_at)
        return arrays_of(self).kernel(first, aggregate_at)[..., 0].copy()

    def reachable(self, collect_at: int, aggregate_at: int) -> NDArray[np.bool_]:
        """Which states can be reached from which between the two slots, free of underflow."""
        age = self._youngest(collect_at, aggregate_at)
        return arrays_of(self).pattern(0, aggregate_at - age, age)

    def joint(self, collect_at: int, aggregate_at: int, law: ArrayLike | None = None) -> JointLaw:
        """The joint law of the two values, `law` (default: the chain's own) at collection."""
        start = None if law is None else as_law("law", law, self.states.size)
        chains = arrays_of(self, start, "own" if law is None else "stated")
        first = aggregate_at - self._youngest(collect_at, aggregate_at)
        return chains.between(first, aggregate_at).joint_law(0, self.states)

    def sample_paths(
        self,
        rng: np.random.Generator,
        slots: int,
        size: int = 1,
        law: ArrayLike | None = None,
        first_slot: int = 1,
    ) -> Array:
        """Draw `size` paths of `slots` values each, starting in `first_slot` from `law`."""
        random_generator(rng)
        start = self.law(first_slot) if law is None else as_law("law", law, self.states.size)
        count, size = whole("slots", slots, 1), whole("size", size, 1)
        cumulative = np.cumsum(self.transitions, axis=2)
        path = np.empty((size, count), dtype=np.intp)
        path[:, 0] = draw_states(np.broadcast_to(np.cumsum(start), (size, start.size)), rng)
        for slot in range(count - 1):
            rows = cumulative[(first_slot - 1 + slot) % self.day]
            path[:, slot + 1] = draw_states(rows[path[:, slot]], rng)
        return self.states[path]


class MarkovChain(Chain):
    """A homogeneous Markov chain over numeric states; immutable, its properties cached.

    `transition[x, y]` is the probability of moving from `states[x]` to `states[y]` in one slot.
    Rows must sum to one within 1e-9 and are then rescaled to do so to rounding.

    >>> chain = MarkovChain([[0.9, 0.1], [0.3, 0.7]], states=[0, 1])
    >>> chain.stationary
    array([0.75, 0.25])
    >>> chain.is_ergodic, chain.is_reversible
    (True, True)
    """

    kind = "chain"

    def __init__(self, transition: ArrayLike, states: ArrayLike) -> None:
        self.transition = as_transition(transition)
        self.transitions = self.transition[None]
        self._over(states, "matrix")

    def __repr__(self) -> str:
        return f"MarkovChain({in_a_line(self.states)})"

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of the process, equal for equal processes on any machine."""
        return fingerprint(self.transition, self.states)

    @property
    def homogeneous(self) -> MarkovChain:
        """The chain itself: all slots are alike."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """The chain as plain data, without its states."""
        return {"kind": self.kind, "transition": self.transition.tolist()}

    @property
    def stationary(self) -> Array:
        """The unique law π with πP = π, each entry accurate to a few ulps (GTH elimination).

        Raises `InvalidInput` where it is not unique: two or more closed classes.
        """
        law: Array = self.laws[0]
        return law

    @cached_property
    def recurrent(self) -> NDArray[np.bool_]:
        """Which states have a positive stationary probability, whether or not a float holds it."""
        return closed_class(self.transition)

    @cached_property
    def is_irreducible(self) -> bool:
        """Whether every state can be reached from every other."""
        size = self.states.size
        edges = (self.transition > 0) | np.eye(size, dtype=bool)
        return bool(boolean_power(edges, size - 1).all())

    @cached_property
    def period(self) -> int:
        """The greatest common divisor of the lengths of all cycles of an irreducible chain."""
        if not self.is_irreducible:
            raise InvalidInput(
                "transition", "a reducible chain", "an irreducible chain", REDUCIBLE_REMEDY
            )
        edges = self.transition > 0
        from scipy.sparse.csgraph import shortest_path  # noqa: PLC0415  (0.2 s to import)

        level = shortest_path(edges, unweighted=True, indices=0).astype(np.int64)
        start, end = np.nonzero(edges)
        return math.gcd(*(level[start] + 1 - level[end]).tolist())

    @cached_property
    def is_ergodic(self) -> bool:
        """Whether the chain is irreducible and aperiodic, so that it forgets its start."""
        most = (self.states.size - 1) ** 2 + 1  # Wielandt: by then every move is possible, or never
        return bool(boolean_power(self.transition > 0, most).all())

    @cached_property
    def is_reversible(self) -> bool:
        """Whether π(x)P(x,y) = π(y)P(y,x) for all x, y, to a relative 1e-8."""
        flow = self.stationary[:, None] * self.transition
        return bool(np.allclose(flow, flow.T, rtol=REVERSIBLE_TOLERANCE, atol=0))

    @cached_property
    def eigenvalues(self) -> NDArray[np.complex128]:
        """The spectrum of the transition matrix, largest modulus first."""
        values = np.linalg.eigvals(self.transition).astype(np.complex128)
        values = values[np.argsort(-np.abs(values), kind="stable")]
        values.setflags(write=False)
        return values

    def steps(self, count: int) -> Array:
        """The `count`-step kernel P^count."""
        return self.kernel(0, whole("steps", count, 0))


class PeriodicChain(Chain):
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

    def __init__(self, transitions: ArrayLike, states: ArrayLike) -> None:
        matrices = finite_array("transitions", transitions, "one square matrix a slot of the day")
        if matrices.ndim != 3:
            raise InvalidInput(
                "transitions", f"of shape {matrices.shape}", "shape (slots of the day, S, S)"
            )
        self.transitions = frozen(
            np.stack([as_transition(m, f"transitions[{k}]") for k, m in enumerate(matrices)])
        )
        self._over(states, "matrices")

    def __repr__(self) -> str:
        return f"PeriodicChain({self.slots_per_day} slots per day, {in_a_line(self.states)})"

    @property
    def slots_per_day(self) -> int:
        """How many slots until the matrices repeat."""
        return self.day

    def to_dict(self) -> dict[str, Any]:
        """The chain as plain data, without its states."""
        return {"kind": self.kind, "transitions": self.transitions.tolist()}


def chain_of(process: Process) -> Chain | None:
    """A process as a chain; None where it is none."""
    return process if isinstance(process, Chain) else process.homogeneous


def arrays_of(chain: Chain, stated: Array | None = None, prior: Prior = "own") -> Chains:
    """A chain as arrays of two: over one alone NumPy would sum in another order."""
    if chain.transitions.size > KEPT:
        return Chains(chain.transitions[None].repeat(2, axis=0), [stated, stated], prior)
    return _kept(chain, None if stated is None else tuple(stated.tolist()), prior)


@lru_cache(maxsize=32)
def _kept(chain: Chain, stated: tuple[float, ...] | None, prior: Prior) -> Chains:
    law = None if stated is None else np.array(stated)
    return Chains(chain.transitions[None].repeat(2, axis=0), [law, law], prior)


def birth_death(up: float, down: float, states: ArrayLike) -> MarkovChain:
    """Return the chain of the paper's section IV-A: one state up with `up`, down with `down`.

    The end states move inward with `up + down`.

    >>> birth_death(up=0.1, down=0.2, states=[20, 50, 100]).transition
    array([[0.7, 0.3, 0. ],
           [0.2, 0.7, 0.1],
           [0. , 0.3, 0.7]])
    """
    values = as_states(states)
    up, down = (
        fraction(name, rate, with_zero=True, with_one=True)
        for name, rate in (("up", up), ("down", down))
    )
    for name, rate in (("up", up), ("down", down), ("up + down", up + down)):
        if not 0 <= rate <= 1 + 1e-12:
            raise InvalidInput(name, rate, "0 to 1, and up + down at most 1")
    size = values.size
    moves = np.diag(np.full(size - 1, up), 1) + np.diag(np.full(size - 1, down), -1)
    moves[0, 1] = moves[-1, -2] = up + down
    return MarkovChain(moves + np.diag(np.maximum(1 - moves.sum(axis=1), 0)), values)


def elapsed(collect_at: int, aggregate_at: int) -> int:
    """The age of what was collected in one slot when it is aggregated in the other."""
    later = whole("aggregate_at", aggregate_at, -(2**53))
    return later - whole(
        "collect_at", collect_at, -(2**53), later, "Collection cannot come after aggregation."
    )
