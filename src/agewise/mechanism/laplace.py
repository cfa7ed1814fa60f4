"""Laplace noise: OpenDP's for what leaves a client, a seeded imitation for simulation."""

# ruff: noqa: ARG002  (Laplace noise has no use for the δ that the interface offers)
from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from agewise.arrays import Array
from agewise.checks import positive, random_generator
from agewise.errors import InvalidInput, quoted
from agewise.mechanism.mechanism import (
    Noised,
    Value,
    checked_vector,
    draw_in_pieces,
    grid_of,
    imitated_one_by_one,
    is_long,
    opendp,
)

LARGEST_INTEGER = 2**53
LARGEST_SCALE = {float: 1e300, int: 2.0**50}
"""Beyond these, noised values would saturate at the ends of the number format."""
SMALLEST_SCALE = 2.3e-308
"""Smaller scales are subnormal; noise of this one already covers them."""

_ULP = float(np.finfo(float).eps)


class Laplace:
    """Laplace noise of one scale on every coordinate, for ℓ1 sensitivities: ε alone, no δ."""

    kind: Literal["laplace"] = "laplace"
    approximate: Literal[False] = False
    norm: Literal[1] = 1
    words = "Laplace noise, drawn by OpenDP"

    def calibrate(self, sensitivity: Array, epsilon: Array, failure: Array | float = 0.0) -> Array:
        """η = s/ε, rounded up."""
        return np.asarray(sensitivity / epsilon * (1 + 4 * _ULP))

    def spent(self, sensitivity: Array, scale: Array, failure: Array | float = 0.0) -> Array:
        """ε = s/η, rounded down so that s/ε is at least η."""
        with np.errstate(divide="ignore", invalid="ignore"):
            spent = sensitivity / scale * (1 - 2 * _ULP)
        return np.where(sensitivity == 0, 0.0, np.where(scale == 0, np.inf, spent))

    def variance(self, scale: Array, step: float = 0.0) -> Array:
        """2η²; on a grid h, where noise is the discrete Laplace, h²/(2 sinh²(h/2η)): less."""
        if not step:
            return np.asarray(2 * np.square(scale))
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(np.square(step / np.sinh(step / (2 * np.asarray(scale)))) / 2)

    def pairwise(self, release: Array, samples: int, scale: float) -> Array:
        """‖f(x) − f(x′)‖₁ / (n η)."""
        distance = np.abs(release[:, None] - release).sum(axis=-1) / samples
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(distance == 0, 0.0, distance / scale)

    def certified(self, sensitivity: float, scale: float, failure: float = 0.0) -> float:
        """ε by OpenDP's map."""
        return laplace_epsilon(sensitivity, scale)

    def draw(
        self,
        value: Array,
        *,
        sensitivity: float,
        scale: float,
        failure: float = 0.0,
        step: float = 0.0,
    ) -> Noised:
        """Laplace noise from OpenDP of at least this scale; of whole steps, where there are any."""
        if sensitivity == 0 or scale == 0:
            return laplace(np.asarray(value), sensitivity=sensitivity, epsilon=math.inf)
        if step and scale / step < LARGEST_SCALE[int]:
            return self._draw_steps(value, sensitivity, scale, step)
        epsilon = float(self.spent(np.asarray(sensitivity), np.asarray(scale)))
        return laplace(np.asarray(value), sensitivity=sensitivity, epsilon=epsilon)

    def _draw_steps(self, value: Array, sensitivity: float, scale: float, step: float) -> Noised:
        """The discrete Laplace on a vector of whole steps.

        One record moves it by whole steps too: by the largest whole number that the sensitivity
        has room for. What floats round, the ε that is told has room for.
        """
        steps = whole_steps(value, step)
        up = 1 + 4 * _ULP
        moves, wide = math.floor(sensitivity / step * up), scale / step * up
        whole = _counted_laplace(wide, len(steps))
        spent = max(whole.map(moves), laplace_epsilon(sensitivity, scale))
        if is_long(len(steps)):
            drawn = draw_in_pieces(lambda count: _counted_laplace(wide, count), steps)
        else:
            drawn = whole(steps)
        return Noised(np.asarray(drawn, dtype=float) * step, scale, float(spent), private=True)

    def imitate(
        self, value: Array, *, scale: float, rng: np.random.Generator, step: float = 0.0
    ) -> Noised:
        """Reproducible Laplace noise. Not private."""
        checked_vector(value)
        if not (step and 0 < scale / step < LARGEST_SCALE[int]):
            return seeded_laplace(np.asarray(value), scale=scale, rng=rng)
        steps, chance = whole_steps(value, step), -math.expm1(-step / scale)
        both = random_generator(rng).geometric(chance, (2, len(steps)))
        noisy = (np.asarray(steps) + both[0] - both[1]) * step
        return Noised(noisy, float(scale), None, private=False)

    def imitate_each(
        self,
        values: Array,
        *,
        scale: float,
        rngs: Iterable[np.random.Generator],
        step: float = 0.0,
        firsts: Array | None = None,
    ) -> Noised:
        """`imitate` for each row of values `[m, d]`, with a generator of its own."""
        width, on_grid = values.shape[1], step and 0 < scale / step < LARGEST_SCALE[int]
        if scale <= 0 or on_grid or not (math.isfinite(scale) and np.isfinite(values).all()):
            return imitated_one_by_one(self, values, scale, rngs, step)
        if width == 1 and firsts is not None and firsts.all():
            noise = scale * _laplace_of(firsts)[:, None]
        elif width == 1:  # which is much faster than a vector of one
            noise = np.array([rng.laplace(0.0, scale) for rng in rngs])[:, None]
        else:
            noise = np.stack([rng.laplace(0.0, scale, width) for rng in rngs])
        return Noised(values + noise, float(scale), None, private=False)


def _laplace_of(chances: Array) -> Array:
    """What NumPy's generators make of a first chance above 0, at scale 1."""
    upper = chances >= 0.5
    # Python's logarithm is theirs, to the last bit; NumPy's own of arrays need not be.
    logs = np.array([*map(math.log, np.where(upper, 2.0 - chances - chances, 2 * chances))])
    return np.where(upper, -logs, logs)


def laplace(value: Value, *, sensitivity: float, epsilon: float) -> Noised:
    """Add Laplace noise to a number or a vector so that it is `epsilon`-DP.

    Floats get noise from OpenDP's exact sampler on the finest float grid, or for vectors of more
    than 64 on one 2⁶⁰ times as fine as the noise; integers get the discrete Laplace.
    `sensitivity` is the ℓ1 distance by which one record can move `value`. An infinite `epsilon`
    asks for no noise, and a sensitivity of 0 needs none.

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
    asked = positive("epsilon", epsilon) if not _infinite(epsilon) else math.inf
    if distance == 0 or math.isinf(asked):
        return Noised(_like(payload, kind), 0.0, 0.0 if distance == 0 else math.inf, private=True)
    scale = max(distance / asked, SMALLEST_SCALE)
    if not scale <= LARGEST_SCALE[kind]:
        raise InvalidInput(
            "epsilon", epsilon, f"at least {distance / LARGEST_SCALE[kind]:g} at this sensitivity"
        )
    vector = isinstance(payload, list)
    if vector and kind is float and is_long(len(payload)):
        return _long_laplace(payload, distance, asked, scale)
    mechanism = _opendp_laplace(kind, vector, scale)
    while mechanism.map(distance) > asked:
        scale = math.nextafter(scale, math.inf)
        mechanism = _opendp_laplace(kind, vector, scale)
    noised = _like(mechanism(payload), kind)
    return Noised(noised, scale, float(mechanism.map(distance)), private=True)


def whole_steps(value: Array, step: float) -> list[int]:
    """Numbers on a grid, as numbers of its steps; refuses what lies elsewhere."""
    numbers = np.asarray(checked_vector(value)) / step
    steps = np.rint(numbers)
    if (np.abs(numbers - steps) > 1e-3).any() or np.abs(steps).max() > LARGEST_INTEGER:
        raise InvalidInput("value", quoted(value), f"whole steps of {step:g}")
    return steps.astype(np.int64).tolist()  # type: ignore[no-any-return]


def _long_laplace(payload: list[float], distance: float, asked: float, least: float) -> Noised:
    """Noise for many coordinates: on a coarser grid, which costs a little sensitivity."""
    size, grid = len(payload), grid_of(least)
    scale = (distance + size * 2.0**grid) / asked * (1 + 4 * _ULP)
    while (spent := _gridded_laplace(scale, grid, size).map(distance)) > asked:
        scale = math.nextafter(scale, math.inf)
    drawn = draw_in_pieces(lambda count: _gridded_laplace(scale, grid, count), payload)
    return Noised(np.asarray(drawn), scale, float(spent), private=True)


def laplace_epsilon(sensitivity: float, scale: float) -> float:
    """Return the ε of float noise of this scale, by OpenDP's own privacy map of the mechanism."""
    if sensitivity == 0 or scale == 0:
        return 0.0 if sensitivity == 0 else math.inf
    return float(_opendp_laplace(float, False, scale).map(sensitivity))


def seeded_laplace(value: Value, *, scale: float, rng: np.random.Generator) -> Noised:
    """Add reproducible Laplace noise for simulation. What it makes is **not** private.

    >>> noised = seeded_laplace(100.0, scale=3.6, rng=np.random.default_rng(7))
    >>> noised.private, noised.epsilon
    (False, None)
    """
    kind, _ = _checked_value(value)
    random_generator(rng)
    positive("scale", scale, with_zero=True)
    noise = rng.laplace(0.0, scale, np.shape(value)) if scale > 0 else np.zeros(np.shape(value))
    noisy = np.asarray(value) + (np.rint(noise).astype(np.int64) if kind is int else noise)
    return Noised(_like(noisy.tolist(), kind), float(scale), None, private=False)


def _infinite(epsilon: float) -> bool:
    return isinstance(epsilon, float) and epsilon == math.inf


def _checked_value(value: Any) -> tuple[type, Any]:
    try:
        array = np.asarray(value)
    except ValueError:  # rows of several lengths
        array = np.asarray(None)
    if array.dtype.kind not in "fiu" or array.ndim > 1 or array.size == 0:
        raise InvalidInput("value", quoted(value), "a number or a vector of numbers")
    if not np.isfinite(array).all():
        raise InvalidInput("value", quoted(value), "finite numbers", "Clip or drop what is not.")
    if array.dtype.kind == "f":
        return float, array.astype(np.float64).tolist()
    if (np.abs(array.astype(np.float64)) > LARGEST_INTEGER).any():
        raise InvalidInput("value", quoted(value), f"integers of size {LARGEST_INTEGER} at most")
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


@lru_cache(maxsize=4096)
def _opendp_laplace(kind: type, vector: bool, scale: float) -> Any:
    dp = opendp()
    name = "f64" if kind is float else "i64"
    domain = dp.atom_domain(T=name, nan=False) if kind is float else dp.atom_domain(T=name)
    if vector:
        return dp.m.make_laplace(dp.vector_domain(domain), dp.l1_distance(T=name), scale=scale)
    return dp.m.make_laplace(domain, dp.absolute_distance(T=name), scale=scale)


@lru_cache(maxsize=4096)
def _counted_laplace(scale: float, size: int) -> Any:
    dp = opendp()
    domain = dp.vector_domain(dp.atom_domain(T="i64"), size=size)
    return dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)


@lru_cache(maxsize=64)
def _gridded_laplace(scale: float, grid: int, size: int) -> Any:
    dp = opendp()
    domain = dp.vector_domain(dp.atom_domain(T="f64", nan=False), size=size)
    return dp.m.make_laplace(domain, dp.l1_distance(T="f64"), scale=scale, k=grid)
