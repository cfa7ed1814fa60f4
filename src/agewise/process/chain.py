"""Homogeneous Markov chains: stationary law, t-step kernels, reversal, spectrum."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array, draw_states, frozen
from agewise.checks import finite_array, random_generator, whole
from agewise.errors import InvalidInput
from agewise.process.joint import (
    JointLaw,
    as_law,
    as_states,
    as_transition,
    fingerprint,
    in_a_line,
)

REVERSIBLE_TOLERANCE = 1e-8
"""Relative difference of the flows x → y and y → x up to which a chain counts as reversible."""


DOUBLINGS = 17
"""Powers up to 2¹⁶ are tried for whether a chain has settled: about as many as there are slots."""


class MarkovChain:
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
    markov = True
    day = 1
    confidence = 1.0
    assumes = ""
    basis = "proven"
    weeks = 0

    def __init__(self, transition: ArrayLike, states: ArrayLike) -> None:
        self.transition = as_transition(transition)
        self.states = as_states(states)
        if self.states.size != self.transition.shape[0]:
            raise InvalidInput(
                "states",
                f"{self.states.size} values",
                f"{self.transition.shape[0]} values, one per row of the transition matrix",
            )

    def __repr__(self) -> str:
        return f"MarkovChain({in_a_line(self.states)})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, MarkovChain)
            and np.array_equal(self.transition, other.transition)
            and np.array_equal(self.states, other.states)
        )

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of the process, equal for equal processes on any machine."""
        return fingerprint(self.transition, self.states)

    def __hash__(self) -> int:
        return hash((self.transition.tobytes(), self.states.tobytes()))

    @property
    def homogeneous(self) -> MarkovChain:
        """The chain itself: all slots are alike."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """The chain as plain data, without its states."""
        return {"kind": self.kind, "transition": self.transition.tolist()}

    def knows(self, collect_at: int, aggregate_at: int) -> bool:  # noqa: ARG002
        """Always: a matrix tells about every two slots."""
        return True

    @cached_property
    def stationary(self) -> Array:
        """The unique law π with πP = π, each entry accurate to a few ulps (GTH elimination).

        Raises `InvalidInput` where it is not unique: two or more closed classes.
        """
        return frozen(stationary_laws(self.transition[None])[0])

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
                "transition", "a reducible chain", "an irreducible chain", _REDUCIBLE_REMEDY
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

    @cached_property
    def second_modulus(self) -> float:
        """γ*: the largest modulus among the eigenvalues other than the one at 1."""
        others = np.delete(self.eigenvalues, np.argmin(np.abs(self.eigenvalues - 1)))
        return float(np.abs(others).max())

    @cached_property
    def reversal(self) -> MarkovChain:
        """The chain run backwards in time under its stationary law: π(y)P(y,x)/π(x)."""
        if not (self.stationary > 0).all():
            raise InvalidInput(
                "transition",
                "a chain with transient states",
                "an irreducible chain",
                _REDUCIBLE_REMEDY,
            )
        flow = self.stationary[:, None] * self.transition
        return MarkovChain((flow / self.stationary).T, self.states)

    @cached_property
    def settled(self) -> int | None:
        """The age from which on kernels are the same to rounding; None where they never are."""
        return settled_power(self.transition)

    def youngest(self, ages: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each age the least one whose kernel is the same to rounding.

        Guarantees
            A release that is private at the younger age is so at the older one, whatever the law at
            collection: the present value has only moved on since (data processing).
        """
        return ages if self.settled is None else np.minimum(ages, self.settled)

    def steps(self, count: int) -> Array:
        """The `count`-step kernel P^count."""
        count = int(self.youngest(np.asarray(whole("steps", count, 0))))
        return np.linalg.matrix_power(self.transition, count)

    def kernel(self, collect_at: int, aggregate_at: int) -> Array:
        """P(value at `aggregate_at` | value at `collect_at`), one row a starting state."""
        return self.steps(elapsed(collect_at, aggregate_at))

    def law(self, slot: int) -> Array:  # noqa: ARG002  (the same in every slot)
        """The stationary law, whatever the slot."""
        return self.stationary

    def joint(self, collect_at: int, aggregate_at: int, law: ArrayLike | None = None) -> JointLaw:
        """The joint law of the two values, `law` (default: stationary) holding at collection."""
        start = self.stationary if law is None else as_law("law", law, self.states.size)
        occurs = self.recurrent if law is None else start > 0
        possible = occurs[:, None] & self.reachable(collect_at, aggregate_at)
        age = int(self.youngest(np.asarray(elapsed(collect_at, aggregate_at))))
        return JointLaw.of(start, self.steps(age), self.states, age, possible)

    def reachable(self, collect_at: int, aggregate_at: int) -> NDArray[np.bool_]:
        """Which states can be reached from which between the two slots, free of underflow."""
        return boolean_power(self.transition > 0, elapsed(collect_at, aggregate_at))

    def sample_paths(
        self, rng: np.random.Generator, slots: int, size: int = 1, law: ArrayLike | None = None
    ) -> Array:
        """Draw `size` independent paths of `slots` values each, the first one from `law`."""
        start = self.stationary if law is None else as_law("law", law, self.states.size)
        cumulative = np.cumsum(self.transition, axis=1)
        return sample(rng, start, [cumulative] * (whole("slots", slots, 1) - 1), size, self.states)


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
        float(finite_array(name, rate, "a probability from 0 to 1").reshape(()))
        for name, rate in (("up", up), ("down", down))
    )
    for name, rate in (("up", up), ("down", down), ("up + down", up + down)):
        if not 0 <= rate <= 1 + 1e-12:
            raise InvalidInput(name, rate, "0 to 1, and up + down at most 1")
    size = values.size
    moves = np.diag(np.full(size - 1, up), 1) + np.diag(np.full(size - 1, down), -1)
    moves[0, 1] = moves[-1, -2] = up + down
    return MarkovChain(moves + np.diag(np.maximum(1 - moves.sum(axis=1), 0)), values)


def stationary_laws(transitions: Array) -> Array:
    """Return the stationary law of each chain of a batch `[m, S, S]`, as `[m, S]`.

    Grassmann, Taksar and Heyman (1985): Gaussian elimination without a subtraction, so every
    entry keeps its relative accuracy however close the chain is to falling apart. O(m S³).
    """
    size = transitions.shape[-1]
    work = np.moveaxis(transitions, 0, -1).copy()  # batch last: long contiguous inner loops
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for state in range(size - 1, 0, -1):
            work[:state, state] /= work[state, :state].sum(axis=0)
            work[:state, :state] += work[:state, state, None] * work[state, :state]
        laws = np.empty(work.shape[1:])
        laws[0] = 1
        for state in range(1, size):
            laws[state] = np.einsum("xm,xm->m", laws[:state], work[:state, state])
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
            _REDUCIBLE_REMEDY,
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


_REDUCIBLE_REMEDY = "Link the classes, drop the states never visited, or state a law."


def elapsed(collect_at: int, aggregate_at: int) -> int:
    """The age of what was collected in one slot when it is aggregated in the other."""
    later = whole("aggregate_at", aggregate_at, -(2**53))
    return later - whole(
        "collect_at", collect_at, -(2**53), later, "Collection cannot come after aggregation."
    )


def settled_power(kernel: Array) -> int | None:
    """Return the least power of two from which on powers are the same to rounding, if any.

    There the rows are alike to S ulps, and those of every later power are mixtures of them.
    """
    alike = 1 + kernel.shape[0] * np.finfo(float).eps
    for exponent in range(DOUBLINGS):
        if (kernel.max(axis=0) <= alike * kernel.min(axis=0)).all():
            return int(2**exponent)
        kernel = kernel @ kernel
    return None


def settled_powers(chains: Array) -> NDArray[np.int64]:
    """`settled_power` of each chain of a batch `[m, S, S]`; where there is none, a huge number."""
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


def sample(
    rng: np.random.Generator, start: Array, cumulative: list[Array], size: int, states: Array
) -> Array:
    """Draw paths by inverting the cumulative rows, all paths at once, slot by slot."""
    random_generator(rng)
    size = whole("size", size, 1)
    path = np.empty((size, len(cumulative) + 1), dtype=np.intp)
    path[:, 0] = draw_states(np.broadcast_to(np.cumsum(start), (size, states.size)), rng)
    for slot, rows in enumerate(cumulative):
        path[:, slot + 1] = draw_states(rows[path[:, slot]], rng)
    return states[path]
