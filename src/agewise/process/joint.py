"""The joint law of a record at collection and at aggregation: what everything is computed from."""

from __future__ import annotations

import hashlib
import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array, frozen
from agewise.checks import finite_array
from agewise.errors import InvalidInput, quoted

if TYPE_CHECKING:
    from agewise.process.markov import MarkovChain

SHOWN = 6
"""States that are shown in a line."""

SUM_TOLERANCE = 1e-9
"""How far a law or a row may be from summing to one before it is refused; within it, rescaled."""

LARGEST_STATE = 1e100
"""State values are squared; beyond this floats overflow."""

SMALLEST_CHANCE = 1e-280
"""Smallest transition probability other than zero; smaller ones lose digits to underflow."""

TINY = 1e-290
"""Products of probabilities below this may have lost digits to underflow."""


@runtime_checkable
class Process(Protocol):
    """Anything that knows how a record moves between two slots, and says what it can vouch for.

    `markov` says whether what happens after a slot depends on the past only through the
    record's value in that slot. Ageing is credited to several releases of one client only
    where it does.
    """

    @property
    def kind(self) -> str:
        """Its name in scenario files."""
        ...

    @property
    def states(self) -> Array:
        """The numeric values a record can take."""
        ...

    @property
    def fingerprint(self) -> str:
        """A short hash of the process, equal for equal processes on any machine."""
        ...

    @property
    def markov(self) -> bool:
        """Whether the process is Markov (of first order)."""
        ...

    @property
    def homogeneous(self) -> MarkovChain | None:
        """The process as a chain with one matrix for all slots; None where it is none."""
        ...

    @property
    def day(self) -> int:
        """The number of slots after which everything repeats: 1 where all slots are alike."""
        ...

    @property
    def confidence(self) -> float:
        """How sure its Δ is an upper limit, if it is right in what it assumes; 1: it is given."""
        ...

    @property
    def assumes(self) -> str:
        """What that confidence rests on, in words; empty where nobody says."""
        ...

    @property
    def basis(self) -> str:
        """What kind of limit its Δ is: proven, or asymptotic."""
        ...

    @property
    def weeks(self) -> int:
        """How many weeks of readings it comes from; 0: none, or nobody says."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """The process as plain data, with its kind and without its states."""
        ...

    def knows(self, collect_at: int, aggregate_at: int) -> bool:
        """Whether it can tell how records move between these two slots."""
        ...

    def kernel(self, collect_at: int, aggregate_at: int) -> Array:
        """P(value at `aggregate_at` | value at `collect_at`), one row a starting state."""
        ...

    def reachable(self, collect_at: int, aggregate_at: int) -> NDArray[np.bool_]:
        """Which moves between the two slots are possible at all, free of underflow."""
        ...

    def law(self, slot: int) -> Array:
        """The process's own law of a record in `slot`."""
        ...

    def joint(self, collect_at: int, aggregate_at: int, law: ArrayLike | None = None) -> JointLaw:
        """The joint law of a record's values in the two slots, `law` holding at collection."""
        ...


_KNOWN: set[type] = set()
"""Classes that were found to be processes: looking takes as long as making ten clients."""


def is_process(value: object) -> bool:
    """Whether something is a `Process`."""
    if type(value) not in _KNOWN:
        if not isinstance(value, Process):
            return False
        _KNOWN.add(type(value))
    return True


def as_process(process: object, field: str = "process") -> Process:
    """Return a process, or refuse anything else."""
    if not is_process(process):
        raise InvalidInput(
            field, quoted(process), "a MarkovChain, a PeriodicChain or another Process"
        )
    return process  # type: ignore[return-value]


def youngest(process: Process, ages: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each age the least one that stands for it; see `MarkovChain.youngest`.

    A process that does not say has every age stand for itself.
    """
    say = getattr(process, "youngest", None)
    return ages if say is None else np.asarray(say(ages), dtype=np.int64)


class JointLaw:
    """P(record is `states[x]` at collection and `states[y]` at aggregation), as `matrix[x, y]`.

    `rounding` bounds the relative error of its entries, unless `underflowed` says that something
    possible got a probability too small for a float to hold. `uncertainty` is by how much Δ may
    be larger than this table says, where it was measured; `stick_limits` are then rising target
    ε's from 0 on, and upper limits on E (the hockey-stick divergence) at each.

    >>> pair = JointLaw([[0.4, 0.1], [0.1, 0.4]], states=[0, 1])
    >>> pair.backward
    array([[0.8, 0.2],
           [0.2, 0.8]])
    """

    uncertainty = 0.0
    enlarged: JointLaw | None = None  #: of a lifted chain: that of its enlarged states
    stick_limits: tuple[Array, Array] | None = None

    def __init__(self, matrix: ArrayLike, states: ArrayLike) -> None:
        self.states = as_states(states)
        size = self.states.size
        joint = finite_array("joint", matrix, f"a {size} x {size} table of probabilities")
        if joint.shape != (size, size):
            raise InvalidInput("joint", f"of shape {joint.shape}", f"shape ({size}, {size})")
        refuse_negative("joint", joint)
        if abs(joint.sum() - 1) > SUM_TOLERANCE:
            raise InvalidInput("joint", f"a table that sums to {joint.sum():.9g}", "a sum of 1")
        self.matrix = frozen(joint / joint.sum())
        self.rounding = rounding(0, size)
        self.underflowed = False

    @classmethod
    def of(cls, matrix: Array, states: Array, rounding: float, underflowed: bool) -> JointLaw:
        """Build from what is known to be one, without checking."""
        self = cls.__new__(cls)
        self.states, self.matrix = states, frozen(matrix)
        self.rounding, self.underflowed = rounding, underflowed
        return self

    @cached_property
    def law(self) -> Array:
        """The law at collection, μ."""
        return frozen(self.matrix.sum(axis=1))

    @cached_property
    def aggregation_law(self) -> Array:
        """The law at aggregation, ν."""
        return frozen(self.matrix.sum(axis=0))

    @cached_property
    def possible(self) -> NDArray[np.bool_]:
        """Which values can occur at aggregation."""
        return self.aggregation_law > 0

    @cached_property
    def backward(self) -> Array:
        """K[y, x] = P(x at collection | y at aggregation), one row for each *possible* y."""
        columns = self.matrix[:, self.possible]
        return frozen((columns / columns.sum(axis=0)).T)

    def stick_limit(self, target: float) -> float:
        """An upper limit on E at a target ε, where it was measured; 1 where nothing is known.

        E is convex and falls in e^ε: a chord between two limits is above it, and so is the last
        limit beyond it.
        """
        if self.stick_limits is None:
            return 1.0
        known, limits = self.stick_limits
        with np.errstate(over="ignore"):
            between = np.interp(np.exp(target), np.exp(known), limits)
        return min(1.0, max(float(between) * (1 + 1e-14), 1e-15))  # measured is never certain

    def __repr__(self) -> str:
        return f"JointLaw({in_a_line(self.states)})"


def in_a_line(states: Array) -> str:
    """How many states there are, and the first of them.

    >>> in_a_line(np.array([20.0, 50.0]))
    '2 states: 20, 50'
    """
    shown = ", ".join(f"{one:g}" for one in states[:SHOWN])
    return f"{states.size} states: {shown}{', ...' if states.size > SHOWN else ''}"


def fingerprint(*arrays: Array) -> str:
    """Hash the shapes and the exact values of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(repr(array.shape).encode())
        digest.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
    return digest.hexdigest()[:16]


def backward_rows(joint: Array) -> Array:
    """Return K `[y, x, m]` of joint laws `[x, y, m]`: the collected value given the later one.

    A later value that cannot occur is given the row of one that can, so that it adds nothing to
    a maximum over pairs of rows.
    """
    later = joint.sum(axis=0)
    if (later > 0).all():
        return np.asarray(np.divide(joint.swapaxes(0, 1), later[:, None], order="C"))
    stand_in = np.take_along_axis(joint, later.argmax(axis=0)[None, None], axis=1)
    columns = np.where(later > 0, joint, stand_in)
    return np.asarray((columns / columns.sum(axis=0)).swapaxes(0, 1))


def rounding(steps: int, size: int) -> float:
    """Bound the relative error of a joint law's entries after `steps` products of S × S matrices.

    Products and sums of nonnegative numbers add at most half an ulp each: S/2 ulps a step of the
    kernel, and S/2 + 1 since its rows sum to one only up to that (`_rescaled`); two steps more
    for what is made of the law. The elimination that finds the stationary law leaves S³/3 + S²/2
    ulps and what it makes of the rows' sums S², by the Markov chain tree theorem: a relative
    change of all moves among s states changes their stationary law by at most 2(s − 1) times it.
    """
    return float(np.finfo(float).eps * ((steps + 2) * (size + 1) + size**3 / 3 + 1.5 * size**2))


def as_states(states: ArrayLike) -> Array:
    """Check state values: two or more, finite, distinct."""
    values = finite_array("states", states, "two or more distinct numbers")
    if values.ndim != 1 or values.size < 2:
        shown = f"of shape {values.shape}" if values.ndim != 1 else f"{values.tolist()}"
        raise InvalidInput("states", shown, "two or more distinct numbers in one row")
    if np.abs(values).max() > LARGEST_STATE:
        raise InvalidInput("states", values.tolist(), f"values of size {LARGEST_STATE:g} at most")
    if np.unique(values).size < values.size:
        twice = [v for v in np.unique(values) if (values == v).sum() > 1]
        raise InvalidInput("states", values.tolist(), f"distinct values (repeated: {twice[0]:g})")
    return frozen(values)


def as_law(field: str, law: ArrayLike, size: int) -> Array:
    """Check a probability vector of `size` entries and rescale it to sum to one."""
    values = finite_array(field, law, f"{size} probabilities that sum to 1")
    if values.shape != (size,):
        raise InvalidInput(
            field,
            f"of shape {values.shape}",
            f"{size} probabilities, one per state",
            "Give one probability for each state.",
        )
    refuse_negative(field, values)
    if abs(values.sum() - 1) > SUM_TOLERANCE:
        raise InvalidInput(
            field, f"a law that sums to {values.sum():.9g}", "probabilities that sum to 1"
        )
    return frozen(_rescaled(values))


def as_transition(transition: ArrayLike, field: str = "transition") -> Array:
    """Check a row-stochastic matrix and rescale its rows to sum to one."""
    matrix = finite_array(field, transition, "a square matrix whose rows sum to 1")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InvalidInput(
            field, f"of shape {matrix.shape}", "a square matrix, one row and column a state"
        )
    if matrix.shape[0] < 2:
        raise InvalidInput(field, "a matrix of one state", "two or more states")
    refuse_negative(field, matrix)
    if ((matrix > 0) & (matrix < SMALLEST_CHANCE)).any():
        where = [int(i) for i in np.argwhere((matrix > 0) & (matrix < SMALLEST_CHANCE))[0]]
        raise InvalidInput(
            f"{field}{where}", float(matrix[tuple(where)]), f"0, or at least {SMALLEST_CHANCE:g}"
        )
    sums = matrix.sum(axis=1)
    bad = np.flatnonzero(np.abs(sums - 1) > SUM_TOLERANCE)
    if bad.size:
        row = int(bad[0])
        raise InvalidInput(
            f"{field} row {row}",
            f"{matrix[row].tolist()}, which sums to {sums[row]:.9g}",
            "a row of probabilities that sums to 1",
            "Rows are 'from', columns 'to': a matrix given the other way round wants transposing.",
        )
    return frozen(_rescaled(matrix))


def _rescaled(rows: Array) -> Array:
    """Rescale rows unless they sum to one within (S + 1)/2 ulps, so that they read back unchanged.

    What a rescaled row sums to is off by S/2 ulps at most.
    """
    each = [math.fsum(row) for row in rows.reshape(-1, rows.shape[-1]).tolist()]
    sums = np.reshape(each, (*rows.shape[:-1], 1))
    near = (rows.shape[-1] + 1) / 2 * np.finfo(float).eps
    return np.where(np.abs(sums - 1) <= near, rows, rows / sums)


def refuse_negative(field: str, values: Array) -> None:
    """Raise if a probability is negative."""
    if (values < 0).any():
        where = [int(i) for i in np.argwhere(values < 0)[0]]
        raise InvalidInput(f"{field}{where}", float(values[tuple(where)]), "0 or more")
