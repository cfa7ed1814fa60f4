"""What a learner is: a vector for each state, the clip that enforces it, and the model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, get_args, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array, nearest_states
from agewise.checks import finite_array, one_of, whole
from agewise.errors import InvalidInput
from agewise.process import Process

Estimator = Literal["plain", "propagated", "best"]
"""What is averaged, and whether the server uses what it knows: see `docs/notation.md`."""
ESTIMATORS: tuple[str, ...] = get_args(Estimator)
"""The names of all estimators."""


def moves_records(estimator: str) -> bool:
    """Whether clients move their records forward to the aggregation slot, each by its process."""
    return estimator == "propagated"


_ULP = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Accuracy:
    """What is known of the error of an aggregate: `noise` `[d]` is the variance of what was added.

    `error` `[d, d]` are the expected products of all its errors, noise, age and bias together.
    """

    noise: Array
    error: Array


@runtime_checkable
class Learner(Protocol):
    """Maps each state of a record to a vector φ; clients release the mean of it over their records.

    Every record is moved to its nearest state first, so that whatever a record says, it moves the
    mean by at most the sensitivity of the table: clip, norm and sensitivity go together.

    A learner whose coordinates count together has one more method, `metric(states)`: the matrix
    L `[r, d]` by which an error e of the aggregate loses ‖L e‖². Its weights are the diagonal of
    LᵀL, and its `decode` is told how accurate the aggregate is. One whose table has whole numbers
    only says so by `whole = True`; noise on its sums may then be whole numbers too.
    """

    @property
    def kind(self) -> str:
        """Its name in scenarios and messages."""
        ...

    def __hash__(self) -> int: ...

    def table(self, states: Array) -> Array:
        """φ: one row per state, `[S, d]`; raises `InvalidInput` if it does not fit the states."""
        ...

    def weights(self, states: Array) -> Array:
        """What the squared error of each coordinate counts, `[d]`."""
        ...

    def decode(self, aggregate: Array, states: Array, accuracy: Accuracy | None = None) -> Any:
        """Make the model of the aggregate vector `[d]`."""
        ...

    def labels(self, states: Array) -> list[str]:
        """A name for each coordinate."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """The learner as plain data."""
        ...


def counts_together(learner: Learner) -> bool:
    """Whether the loss is not a sum over the coordinates of the learner, each by its weight."""
    return hasattr(learner, "metric")


def judged(learner: Learner, states: Array, vectors: Array) -> Array:
    """Return vectors `[..., d]` in coordinates of which the loss is the plain sum of squares."""
    if counts_together(learner):
        return np.asarray(vectors @ learner.metric(states).T)  # type: ignore[attr-defined]
    return np.asarray(vectors * np.sqrt(learner.weights(states)))


def release_step(learner: Learner, estimator: Estimator, samples: int) -> float:
    """The distance of the grid that a released mean lies on: of whole numbers, over `samples`.

    0 where there is none: records that are moved forward in time are no longer whole.
    """
    return 1 / samples if getattr(learner, "whole", False) and not moves_records(estimator) else 0.0


@runtime_checkable
class Trained(Learner, Protocol):
    """A learner whose table depends on the model so far: each round is a step of its training.

    Noise is set for every model, so that it does not depend on what a server sends.
    """

    def reach(self, norm: Literal[1, 2]) -> float:
        """No two rows of any model's table are further apart in this norm."""
        ...

    def step(self, aggregate: ArrayLike, variance: float = 0.0) -> Self:
        """The learner of the next round; `variance` is that of the noise on each coordinate."""
        ...

    def untrained(self) -> Self:
        """The same but for the state of training."""
        ...

    @property
    def model(self) -> Any:
        """What has been learnt so far."""
        ...


def release_table(
    learner: Learner, process: Process, collect_at: int, aggregate_at: int, estimator: Estimator
) -> Array:
    """Return f `[S, d]`: what each state of a collected record contributes to the released mean.

    `plain` releases φ of the value as collected (the paper). `propagated` releases
    E[φ at aggregation | value at collection]: the client moves its records forward with its own
    known process, so that ageing leaves no bias and the range of f, and with it the noise, shrinks.
    `best` releases what `plain` does: the server's gains do the rest.
    """
    one_of("estimator", estimator, ESTIMATORS)
    table = learner.table(process.states)
    if moves_records(estimator):
        return process.kernel(collect_at, aggregate_at) @ table
    return table


def guard_table(
    learner: Learner,
    process: Process,
    collect_at: int,
    aggregate_at: int,
    estimator: Estimator,
    norm: Literal[1, 2],
) -> Array:
    """Return the vectors `[S, d]` whose distances are what a release can tell two states apart by.

    Those released, as a rule. Of a learner in training only `reach` is known, whatever the model:
    any two states may be that far apart in ℓ1, and mixtures of them as far as the mixtures differ.
    """
    if not isinstance(learner, Trained):
        return release_table(learner, process, collect_at, aggregate_at, estimator)
    half, mixed = learner.reach(norm) / 2, np.eye(process.states.size)
    if moves_records(estimator):
        mixed = process.kernel(collect_at, aggregate_at)
    return np.asarray(half * mixed)


def guarded_sensitivities(
    guard: Array, samples: Array, learner: Learner, states: Array, norm: Literal[1, 2]
) -> Array:
    """`sensitivities`, from the vectors that `guard_table` gives; for every model in training.

    The guard is exact but the released vectors are rounded: each coordinate of a mixture of S rows
    by S + 2 ulps, of a mean by two more, twice.
    """
    if not isinstance(learner, Trained):
        return sensitivities(guard, samples, norm)
    width = learner.table(states).shape[1]
    rounded = 4 * (states.size + 4) * width * np.spacing(learner.reach(norm))
    return np.asarray(sensitivities(guard, samples, 1) + rounded)


def reports(readings: Array, states: Array, release: Array, *, as_read: bool = False) -> Array:
    """Return what each reading counts for `[k, d]`: `release` `[S, d]` of its nearest state.

    `as_read`: the reading itself, within the range of the states.

    Guarantees
        Whatever a reading says, its row is within the range of the rows of `release`.
    """
    if as_read:
        return np.asarray(np.clip(readings, states.min(), states.max())[:, None])
    return np.asarray(release[nearest_states(readings, states)])


def under_levels(states: Array, release: Array) -> Array:
    """Return what states may count for `[G, S, d]` once a level has moved records between them.

    One table for each way in which a common shift takes states to nearest states. Two states can be
    further apart there than by themselves: 20 and 50 of (20, 50, 100, 200) are reported as 100 and
    200 where the shift is 100.

    Guarantees
        Every table that some shift makes is among them, but for shifts at which two records reach
        a border at once up to rounding: those have probability 0.
    """
    order = np.sort(states)
    borders = (order[1:] + order[:-1]) / 2
    turning = np.unique(np.subtract.outer(borders, states))
    if turning.size == 0:
        return release[None]
    edges = np.concatenate([[turning[0] - 1], turning, [turning[-1] + 1]])
    shifts = (edges[1:] + edges[:-1]) / 2
    places = nearest_states(np.add.outer(shifts, states), states)
    return np.asarray(release[np.unique(places, axis=0)])


FARTHEST = 5.0
"""Standard deviations of a level that a client still takes for one."""


def unexplained(records: ArrayLike, states: Array, spread: float = 0.0) -> int:
    """Count the records that are not as modelled: a state plus what they all share.

    What they share is one number, within five times `spread`, its standard deviation; the one that
    explains most records is taken. Where nothing is shared, records that are not states count. The
    model expects none of these, so one is enough to say that its losses do not apply. Takes
    O(n·S·log(n·S)).
    """
    values = np.sort(np.asarray(records, dtype=float).ravel())
    states = np.unique(states)
    room = 1e-9 * (np.abs(states).max() + FARTHEST * spread)
    if not spread:
        return int((np.abs(values - states[nearest_states(values, states)]) > room).sum())
    shifts = np.sort(np.subtract.outer(values, states), axis=None)
    shifts = shifts[np.abs(shifts) <= FARTHEST * spread + room]
    together = np.searchsorted(shifts, shifts + 2 * room, "right") - np.arange(shifts.size)
    return int(values.size - min(values.size, together.max(initial=0)))


def average(
    records: ArrayLike, states: Array, release: Array, samples: int, *, as_read: bool = False
) -> Array:
    """Return the mean `[d]` of `reports` over records.

    `samples` is the number of records that the noise was set for; any other number is refused,
    since a shorter batch would let each record count for more.

    Guarantees
        Every record counts as the nearest state (the lower of two equally near), or `as_read` for
        itself within the range of the states, so whatever a record says, it moves the result by at
        most `sensitivities(release, samples)`. The sums are exact and rounded once.
    """
    values = finite_array("records", records, "one or more finite numbers").ravel()
    if values.size != whole("samples", samples, 1):
        raise InvalidInput("records", f"{values.size} records", f"{samples}, as planned")
    if release.shape[:1] != states.shape:
        raise InvalidInput("release", f"of shape {release.shape}", f"{states.size} rows")
    rows = reports(values, states, release, as_read=as_read)
    return np.array([math.fsum(column) for column in rows.T.tolist()]) / values.size


def averages(counts: NDArray[np.int64], release: Array) -> Array:
    """Return the mean `[m, d]` of `release` `[S, d]` for each row of counts by state `[m, S]`.

    Each as `average` would return it, to the last bit: summed to twice the digits, rounded once.
    """
    whole_part, rest = _halves(release)
    number = counts.sum(axis=1, keepdims=True).astype(float)
    total, error = np.zeros((len(counts), release.shape[1])), 0.0
    for part in (whole_part, rest):
        for count, row in zip(counts.T.astype(float), part, strict=True):
            term = count[:, None] * row  # exact: half the digits times a count
            added = total + term
            back = added - total
            error = error + ((total - (added - back)) + (term - back))
            total = added
    return np.asarray((total + error) / number)


def _halves(values: Array) -> tuple[Array, Array]:
    """Numbers as sums of two with half the digits each."""
    mantissa, exponent = np.frexp(values)
    upper = np.ldexp(np.rint(np.ldexp(mantissa, 26)), exponent - 26)
    return upper, values - upper


def mean_rounding(values: Array) -> Array:
    """How far a mean that is summed exactly, rounded, divided and rounded again can be off.

    Over the last axis: the values that one coordinate can have.
    """
    return np.asarray(2 * np.spacing(np.abs(values).max(axis=-1)))


def sensitivities(release: Array, samples: Array, norm: Literal[1, 2] = 1) -> Array:
    """How far the mean over `samples` records can move if one record changes, in a norm.

    `release` is `[..., S, d]`, and *every* state counts, whatever its probability: the largest
    distance between two rows over n, plus what rounding of exactly summed means can add.
    """
    columns = np.moveaxis(release, -1, 0)  # a coordinate at a time: few at most, and many cells
    if len(columns) == 1 and norm == 1:
        values = columns[0]
        spread = (values.max(axis=-1) - values.min(axis=-1)) / samples
        return np.asarray(spread * (1 + 2 * _ULP) + 2 * mean_rounding(values))
    if norm == 1:
        distance = sum(np.abs(c[..., :, None] - c[..., None, :]) for c in columns)
        rounded = sum(mean_rounding(c) for c in columns)
    else:
        distance = np.sqrt(sum(np.square(c[..., :, None] - c[..., None, :]) for c in columns))
        distance = distance * (1 + (len(columns) + 2) * _ULP)
        rounded = np.sqrt(sum(np.square(mean_rounding(c)) for c in columns))
    spread = np.asarray(distance).max(axis=(-1, -2)) / samples
    more = len(columns) if norm == 1 else 0  # a sum of so many rounds again
    return np.asarray(spread * (1 + (2 + more) * _ULP) + 2 * np.asarray(rounded))


def checked_table(table: ArrayLike, size: int) -> Array:
    """Check a vector for each state: finite numbers, one row per state."""
    rows = finite_array("table", table, "one row of finite numbers per state")
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or len(rows) != size:
        raise InvalidInput(
            "table", f"of shape {rows.shape}", f"{size} rows, one per state of every client"
        )
    return rows
