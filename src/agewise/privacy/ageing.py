"""What a mechanism's privacy becomes as the data age, and the inverse: how much noise is needed."""

from __future__ import annotations

from typing import overload

import numpy as np
from numpy.typing import ArrayLike

from agewise.arrays import Array
from agewise.errors import InvalidInput

_SHRINK = 1 - 8 * np.finfo(float).eps
"""More than the rounding of the inverse, so that its forward image stays below the target.

ε(a, ε_c) is convex in ε_c and 0 at 0: what is taken from ε_c, its image loses in proportion.
"""


@overload
def aged_epsilon(epsilon: float, delta: float) -> float: ...
@overload
def aged_epsilon(epsilon: ArrayLike, delta: ArrayLike) -> float | Array: ...
def aged_epsilon(epsilon: ArrayLike, delta: ArrayLike) -> float | Array:
    """Return ε(a, ε_c) = ln(1 + Δ(e^{ε_c} − 1)): the age-dependent privacy of an ε_c-DP mechanism.

    The paper's Proposition 1. `epsilon` is the classical ε_c of the mechanism (infinite: no noise
    at all), `delta` the Δ of `agewise.delta`. Arrays broadcast.

    >>> round(aged_epsilon(1.0, delta=0.4), 4)
    0.5231
    >>> aged_epsilon(1.0, delta=1.0)
    1.0
    """
    return _plain(_forward(_checked_epsilon(epsilon, infinite=True), checked_delta(delta)))


@overload
def classical_epsilon(epsilon: float, delta: float) -> float: ...
@overload
def classical_epsilon(epsilon: ArrayLike, delta: ArrayLike) -> float | Array: ...
def classical_epsilon(epsilon: ArrayLike, delta: ArrayLike) -> float | Array:
    """Return ε_c = ln(1 + (e^{ε̄} − 1)/Δ): the classical ε that suffices for the aged target ε̄.

    Guarantees
        `aged_epsilon(classical_epsilon(e, d), d) <= e`, both as computed and in exact arithmetic,
        and short of `e` by a few ulps only. Δ = 1 returns the target itself. Δ = 0 returns
        infinity: the collected data say nothing about the present, so no noise is needed.

    >>> round(classical_epsilon(0.5, delta=0.4), 4)
    0.9639
    """
    target = _checked_epsilon(epsilon, infinite=False)
    deltas = checked_delta(delta)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        odds = np.expm1(target) / deltas
        needed = np.log1p(odds)
        if (~np.isfinite(odds) & (deltas > 0)).any():
            # Beyond the range of floats the 1 does not count: ln(e^ε̄ − 1) − ln Δ.
            beyond = target + np.log(-np.expm1(-target)) - np.log(deltas)
            needed = np.where(np.isfinite(odds), needed, beyond)
    return _plain(np.where(deltas == 1, target, needed * _SHRINK))


def aged_approximate(epsilon: float, failure: float, delta: float) -> tuple[float, float]:
    """Return the aged (ε, δ) of an (ε_c, δ_c)-DP mechanism: δ becomes Δ·δ_c, ε as before.

    By the joint convexity of the hockey-stick divergence (Balle, Barthe and Gaboardi 2018,
    Theorem 2): the two laws of the collected record share all but a part Δ of their mass.
    `failure` is δ_c, from 0 to below 1.

    >>> aged_approximate(1.0, 1e-6, delta=0.5)[1]
    5e-07
    """
    if not 0 <= failure < 1:
        raise InvalidInput("failure", failure, "0 or more and below 1")
    aged = float(checked_delta(delta) * failure)
    if aged == 0 and failure > 0 and delta > 0:  # underflow must not turn δ into none
        aged = 5e-324
    return aged_epsilon(epsilon, delta), aged


def _forward(epsilon: Array, delta: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        half = np.exp(epsilon / 2)  # two factors, since e^ε_c may overflow where Δe^ε_c does not
        odds = np.where(epsilon < 700, delta * np.expm1(epsilon), delta * half * half)
        aged = np.where(np.isfinite(odds), np.log1p(odds), epsilon + np.log(delta))
    aged = np.where(delta == 1, epsilon, aged)
    return np.where(delta == 0, 0.0, aged)


def _checked_epsilon(epsilon: ArrayLike, *, infinite: bool) -> Array:
    values = _numbers("epsilon", epsilon, "numbers above 0")
    wrong = ~(values > 0) | (False if infinite else np.isinf(values))
    if wrong.any():
        raise InvalidInput(
            "epsilon",
            float(values[wrong].flat[0]),
            "a number above 0" if infinite else "a finite number above 0",
        )
    return values


def checked_delta(delta: ArrayLike) -> Array:
    """Return Δ as an array, refusing anything outside [0, 1]."""
    values = _numbers("delta", delta, "numbers from 0 to 1")
    wrong = ~((values >= 0) & (values <= 1))
    if wrong.any():
        raise InvalidInput("delta", float(values[wrong].flat[0]), "0 to 1")
    return values


def _numbers(field: str, value: ArrayLike, allowed: str) -> Array:
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(field, repr(value), allowed) from None


def _plain(values: Array) -> float | Array:
    return float(values) if np.ndim(values) == 0 else values
