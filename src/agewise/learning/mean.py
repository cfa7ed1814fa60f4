"""Mean estimation (ERM for squared loss): the release of a record, its bounds, its sensitivity."""

from __future__ import annotations

import math
from typing import Literal, get_args

from numpy.typing import ArrayLike

from agewise.arrays import Array, nearest_states
from agewise.checks import finite_array, one_of, whole
from agewise.errors import InvalidInput
from agewise.process import Process

Estimator = Literal["plain", "propagated"]
ESTIMATORS: tuple[str, ...] = get_args(Estimator)


def release_values(
    process: Process, collect_at: int, aggregate_at: int, estimator: Estimator
) -> Array:
    """Return f: what each state of a collected record contributes to the released mean.

    `plain` releases the value as collected (the paper). `propagated` releases
    E[value at aggregation | value at collection]: the client moves its records forward with its
    own known process, so that ageing leaves no bias and the range of f, and with it the noise,
    shrinks.

    >>> from agewise import birth_death
    >>> chain = birth_death(up=0.4, down=0.4, states=[20, 50, 100, 200])
    >>> release_values(chain, 1, 10, "propagated").round(1)
    array([86. , 86.1, 87.2, 87.3])
    """
    one_of("estimator", estimator, ESTIMATORS)
    if estimator == "plain":
        return process.states
    return process.kernel(collect_at, aggregate_at) @ process.states


def estimate_mean(
    records: ArrayLike, states: Array, release: Array, samples: int
) -> tuple[float, int]:
    """Return the mean of `release` over `records`, and how many records were moved to a state.

    `samples` is the number of records that the noise was set for; any other number is refused,
    since a shorter batch would let each record count for more.

    Guarantees
        Every record counts as the nearest state (the lower of two equally near), so whatever a
        record says, it moves the result by at most the sensitivity that
        `agewise.privacy.calibration.sensitivity` derives from `release`. The sum is exact and
        rounded once.
    """
    values = finite_array("records", records, "one or more finite numbers").ravel()
    if values.size != whole("samples", samples, 1):
        raise InvalidInput("records", f"{values.size} records", f"{samples}, as planned")
    if release.shape != states.shape:
        raise InvalidInput("release", f"of shape {release.shape}", f"shape {states.shape}")
    nearest = nearest_states(values, states)
    moved = int((states[nearest] != values).sum())
    return math.fsum(release[nearest].tolist()) / values.size, moved
