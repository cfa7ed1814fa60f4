"""What a learner is: a vector for each state, the clip that enforces it, and the model."""

from __future__ import annotations

import math
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import ArrayLike

from agewise.arrays import Array, nearest_states
from agewise.checks import finite_array, one_of, whole
from agewise.errors import InvalidInput
from agewise.process import Process

Estimator = Literal["plain", "propagated", "best"]
ESTIMATORS: tuple[str, ...] = get_args(Estimator)

_ULP = float(np.finfo(float).eps)


class Learner(Protocol):
    """Maps each state of a record to a vector φ; clients release the mean of it over their records.

    Every record is moved to its nearest state first, so that whatever a record says, it moves the
    mean by at most the sensitivity of the table: clip, norm and sensitivity go together.
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

    def decode(self, aggregate: Array, states: Array) -> Any:
        """Make the model of the aggregate vector `[d]`."""
        ...

    def labels(self, states: Array) -> list[str]:
        """A name for each coordinate."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """The learner as plain data."""
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
    if estimator == "propagated":
        return process.kernel(collect_at, aggregate_at) @ table
    return table


def average(records: ArrayLike, states: Array, release: Array, samples: int) -> tuple[Array, int]:
    """Return the mean `[d]` of `release` `[S, d]` over records, and how many were moved to a state.

    `samples` is the number of records that the noise was set for; any other number is refused,
    since a shorter batch would let each record count for more.

    Guarantees
        Every record counts as the nearest state (the lower of two equally near), so whatever a
        record says, it moves the result by at most `sensitivities(release, samples)`. The sums are
        exact and rounded once.
    """
    values = finite_array("records", records, "one or more finite numbers").ravel()
    if values.size != whole("samples", samples, 1):
        raise InvalidInput("records", f"{values.size} records", f"{samples}, as planned")
    if release.shape[:1] != states.shape:
        raise InvalidInput("release", f"of shape {release.shape}", f"{states.size} rows")
    place = nearest_states(values, states)
    moved = int((states[place] != values).sum())
    sums = [math.fsum(column) for column in release[place].T.tolist()]
    return np.array(sums) / values.size, moved


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
