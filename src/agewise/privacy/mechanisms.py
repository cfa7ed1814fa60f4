"""Noise: OpenDP's Laplace for what leaves a client, a seeded stand-in for simulation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agewise.checks import positive
from agewise.errors import InvalidInput

LARGEST_INTEGER = 2**53
LARGEST_SCALE = {float: 1e300, int: 2.0**50}
"""Beyond these, noised values would saturate at the ends of the number format."""
SMALLEST_SCALE = 2.3e-308
"""Smaller scales are subnormal; noise of this one already covers them."""

Value = float | int | NDArray[np.float64] | NDArray[np.int64]


@dataclass(frozen=True)
class Noised:
    """A noised value and what is true of it.

    `private` says that the noise came from the real mechanism. It is false for what the seeded
    stand-in made, and `epsilon` is then None: a seed can be replayed, so nothing may be claimed
    for it. An infinite `epsilon` is a release without noise. Vectors come back as float64 or
    int64.
    """

    value: Value
    scale: float
    epsilon: float | None
    private: bool


def laplace(value: Value, *, sensitivity: float, epsilon: float) -> Noised:
    """Add Laplace noise to a number or a vector so that it is `epsilon`-DP.

    Floats get noise from OpenDP's exact sampler on the finest float grid, integers the discrete
    Laplace. `sensitivity` is the ℓ1 distance by which one record can move `value`. An infinite
    `epsilon` asks for no noise, and a sensitivity of 0 needs none.

    Guarantees
        The scale used is at least sensitivity/epsilon and OpenDP's own privacy map of the
        mechanism used is at most `epsilon`; `Noised.epsilon` is what that map says. NaN and
        infinities are refused before any mechanism sees them. Takes no seed.

    >>> noised = laplace(100.0, sensitivity=1.8, epsilon=0.5)
    >>> noised.private, noised.epsilon <= 0.5, noised.scale >= 1.8 / 0.5
    (True, True, True)
    """
    kind, payload = _checked_value(value)
    distance = _checked_sensitivity(sensitivity, kind)
    asked = positive("epsilon", epsilon) if epsilon != math.inf else math.inf
    if distance == 0 or math.isinf(asked):
        return Noised(_like(payload, kind), 0.0, 0.0 if distance == 0 else math.inf, private=True)
    scale = max(distance / asked, SMALLEST_SCALE)
    if not scale <= LARGEST_SCALE[kind]:
        raise InvalidInput(
            "epsilon", epsilon, f"at least {distance / LARGEST_SCALE[kind]:g} at this sensitivity"
        )
    vector = isinstance(payload, list)
    mechanism = _opendp_laplace(kind, vector, scale)
    while mechanism.map(distance) > asked:
        scale = math.nextafter(scale, math.inf)
        mechanism = _opendp_laplace(kind, vector, scale)
    made = _like(mechanism(payload), kind)
    return Noised(made, scale, float(mechanism.map(distance)), private=True)


def laplace_epsilon(sensitivity: float, scale: float) -> float:
    """Return the ε of float noise of this scale, by OpenDP's own privacy map of the mechanism."""
    if sensitivity == 0 or scale == 0:
        return 0.0 if sensitivity == 0 else math.inf
    return float(_opendp_laplace(float, False, scale).map(sensitivity))


def seeded_laplace(value: Value, *, scale: float, rng: np.random.Generator) -> Noised:
    """Add reproducible Laplace noise for simulation. What it makes is **not** private.

    >>> made = seeded_laplace(100.0, scale=3.6, rng=np.random.default_rng(7))
    >>> made.private, made.epsilon
    (False, None)
    """
    kind, _ = _checked_value(value)
    if not isinstance(rng, np.random.Generator):
        raise InvalidInput(
            "rng", repr(rng), "a numpy.random.Generator", "Use numpy.random.default_rng(seed)."
        )
    if not (math.isfinite(scale) and scale >= 0):
        raise InvalidInput("scale", scale, "a finite number, 0 or more")
    noise = rng.laplace(0.0, scale, np.shape(value)) if scale > 0 else np.zeros(np.shape(value))
    noisy = np.asarray(value) + (np.rint(noise).astype(np.int64) if kind is int else noise)
    return Noised(_like(noisy.tolist(), kind), float(scale), None, private=False)


def _checked_value(value: Any) -> tuple[type, Any]:
    array = np.asarray(value)
    if array.dtype.kind not in "fiu" or array.ndim > 1 or array.size == 0:
        raise InvalidInput("value", repr(value), "a number or a vector of numbers")
    if not np.isfinite(array).all():
        raise InvalidInput("value", repr(value), "finite numbers", "Clip or drop what is not.")
    if array.dtype.kind == "f":
        return float, array.astype(np.float64).tolist()
    if (np.abs(array.astype(np.float64)) > LARGEST_INTEGER).any():
        raise InvalidInput("value", repr(value), f"integers of size {LARGEST_INTEGER} at most")
    return int, array.astype(np.int64).tolist()


def _checked_sensitivity(sensitivity: float, kind: type) -> Any:
    numeric = isinstance(sensitivity, int | float | np.integer | np.floating)
    fits = numeric and not isinstance(sensitivity, bool) and 0 <= sensitivity <= LARGEST_INTEGER
    if not fits:
        raise InvalidInput("sensitivity", sensitivity, f"a number from 0 to {LARGEST_INTEGER}")
    return float(sensitivity) if kind is float else math.ceil(sensitivity)


def _like(noisy: Any, kind: type) -> Value:
    if not isinstance(noisy, list):
        return noisy  # type: ignore[no-any-return]
    if kind is float:
        return np.asarray(noisy, dtype=np.float64)
    return np.asarray(noisy, dtype=np.int64)


@cache
def _opendp() -> Any:
    import opendp.prelude as dp  # noqa: PLC0415  (a third of a second to import)

    dp.enable_features("contrib")
    return dp


@lru_cache(maxsize=4096)
def _opendp_laplace(kind: type, vector: bool, scale: float) -> Any:
    dp = _opendp()
    name = "f64" if kind is float else "i64"
    domain = dp.atom_domain(T=name, nan=False) if kind is float else dp.atom_domain(T=name)
    if vector:
        return dp.m.make_laplace(dp.vector_domain(domain), dp.l1_distance(T=name), scale=scale)
    return dp.m.make_laplace(domain, dp.absolute_distance(T=name), scale=scale)
