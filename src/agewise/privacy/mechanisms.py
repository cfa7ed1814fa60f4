"""Noise: OpenDP's Laplace for what leaves a client, a seeded stand-in for simulation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agewise.errors import InvalidInput

Value = float | int | NDArray[np.float64] | NDArray[np.int64]


@dataclass(frozen=True)
class Noised:
    """A noised value and what is true of it.

    `private` is false for what the seeded stand-in made, and `epsilon` is then None: a seed can
    be replayed, so nothing may be claimed for it.
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
    if not epsilon > 0:
        raise InvalidInput("epsilon", epsilon, "a number above 0")
    if distance == 0 or math.isinf(epsilon):
        return Noised(value, 0.0, 0.0 if distance == 0 else math.inf, private=True)
    scale = distance / epsilon
    if not math.isfinite(scale) or scale > 1e300:
        raise InvalidInput("epsilon", epsilon, f"at least {distance / 1e300:g} here")
    vector = isinstance(payload, list)
    mechanism = _opendp_laplace(kind, vector, scale)
    while mechanism.map(distance) > epsilon:
        scale *= 1 + np.finfo(float).eps
        mechanism = _opendp_laplace(kind, vector, scale)
    noisy = mechanism(payload)
    return Noised(_like(value, noisy), scale, float(mechanism.map(distance)), private=True)


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
    return Noised(_like(value, noisy.tolist()), float(scale), None, private=False)


def _checked_value(value: Any) -> tuple[type, Any]:
    array = np.asarray(value)
    if array.dtype.kind not in "fiu" or array.ndim > 1 or array.size == 0:
        raise InvalidInput("value", repr(value), "a number or a vector of numbers")
    if not np.isfinite(array).all():
        raise InvalidInput("value", repr(value), "finite numbers", "Clip or drop what is not.")
    return (float if array.dtype.kind == "f" else int), array.tolist()


def _checked_sensitivity(sensitivity: float, kind: type) -> Any:
    if isinstance(sensitivity, bool) or not (math.isfinite(sensitivity) and sensitivity >= 0):
        raise InvalidInput("sensitivity", sensitivity, "a finite number, 0 or more")
    return float(sensitivity) if kind is float else math.ceil(sensitivity)


def _like(value: Any, noisy: Any) -> Value:
    if np.ndim(value) == 0:
        return noisy  # type: ignore[no-any-return]
    return np.asarray(noisy, dtype=np.asarray(value).dtype)


@cache
def _opendp() -> Any:
    import opendp.prelude as dp  # noqa: PLC0415  (a third of a second to import)

    dp.enable_features("contrib")
    return dp


def _opendp_laplace(kind: type, vector: bool, scale: float) -> Any:
    dp = _opendp()
    domain = dp.atom_domain(T=float, nan=False) if kind is float else dp.atom_domain(T=int)
    if vector:
        return dp.m.make_laplace(dp.vector_domain(domain), dp.l1_distance(T=kind), scale=scale)
    return dp.m.make_laplace(domain, dp.absolute_distance(T=kind), scale=scale)
