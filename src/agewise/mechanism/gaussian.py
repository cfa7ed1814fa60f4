"""Gaussian noise for ℓ2 sensitivities: an (ε, δ) guarantee, through OpenDP."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from agewise.arrays import Array
from agewise.checks import random_generator
from agewise.errors import InvalidInput
from agewise.mechanism.mechanism import (
    Noised,
    checked_vector,
    draw_in_pieces,
    grid_of,
    imitated_one_by_one,
    is_long,
    opendp,
)

LARGEST_SCALE = 1e150
"""Beyond this, variances overflow."""
ROOM = 1e-9
"""Relative room between the closed form here and OpenDP's own search for the same minimum."""


class Gaussian:
    """Gaussian noise of one scale σ on every coordinate, for ℓ2 sensitivities.

    A release of sensitivity s is ρ-zCDP with ρ = (s/σ)²/2, and for every α > 1 it is (ε, δ)-private
    with ε = ρα + ln(1/(αδ))/(α − 1) + ln(1 − 1/α) (Canonne, Kamath and Steinke 2020, Proposition
    12): the conversion that OpenDP uses, whose own map has the last word on what is drawn.
    """

    kind: Literal["gaussian"] = "gaussian"
    norm: Literal[2] = 2
    words = "Gaussian noise, drawn by OpenDP"

    def calibrate(self, sensitivity: Array, epsilon: Array, failure: Array) -> Array:
        """σ = s/√(2ρ), ρ the largest that is still (ε, δ)-private; 0 for ε = ∞."""
        shape = np.broadcast(sensitivity, epsilon, failure).shape
        rho = largest_rho(np.broadcast_to(epsilon, shape), np.broadcast_to(failure, shape))
        with np.errstate(divide="ignore"):
            return np.asarray(sensitivity / np.sqrt(2 * rho))

    def spent(self, sensitivity: Array, scale: Array, failure: Array) -> Array:
        """The ε of this scale at this δ."""
        with np.errstate(divide="ignore", invalid="ignore"):
            rho = np.square(sensitivity / scale) / 2
        shape = np.broadcast(rho, failure).shape
        spent = smallest_epsilon(np.broadcast_to(rho, shape), np.broadcast_to(failure, shape))
        return np.where(sensitivity == 0, 0.0, np.where(scale == 0, np.inf, spent))

    def variance(self, scale: Array, step: float = 0.0) -> Array:  # noqa: ARG002
        """σ²."""
        return np.square(np.asarray(scale))

    def pairwise(self, release: Array, samples: int, scale: float) -> Array | None:  # noqa: ARG002
        """None: no ε bounds what an extreme output tells, if δ is not counted."""
        return None

    def draw(
        self,
        value: Array,
        *,
        sensitivity: float,
        scale: float,
        failure: float = 0.0,
        step: float = 0.0,  # noqa: ARG002
    ) -> Noised:
        """Gaussian noise from OpenDP of at least this scale."""
        payload = checked_vector(value)
        if sensitivity == 0 or scale == 0:
            spent = 0.0 if sensitivity == 0 else math.inf
            return Noised(np.asarray(payload), 0.0, spent, private=True)
        if not 0 < failure < 1:
            raise InvalidInput("delta", failure, "above 0 and below 1, with Gaussian noise")
        if not scale <= LARGEST_SCALE:
            raise InvalidInput("scale", scale, f"up to {LARGEST_SCALE:g}")
        if is_long(len(payload)):
            return _long_gaussian(payload, sensitivity, scale, failure)
        spent = self.certified(sensitivity, scale, failure)
        drawn = np.asarray(_opendp_gaussian(scale)(payload))
        return Noised(drawn, scale, spent, private=True, failure=failure)

    def certified(self, sensitivity: float, scale: float, failure: float = 0.0) -> float:
        """ε at this δ by OpenDP's map."""
        if sensitivity == 0 or scale == 0:
            return 0.0 if sensitivity == 0 else math.inf
        return float(_approximate(scale).map(sensitivity).epsilon(failure))

    def imitate(
        self,
        value: Array,
        *,
        scale: float,
        rng: np.random.Generator,
        step: float = 0.0,  # noqa: ARG002
    ) -> Noised:
        """Reproducible Gaussian noise. Not private."""
        payload = np.asarray(checked_vector(value))
        noise = random_generator(rng).normal(0.0, scale, payload.shape)
        return Noised(payload + noise, float(scale), None, private=False)

    def imitate_each(
        self,
        values: Array,
        *,
        scale: float,
        rngs: Iterable[np.random.Generator],
        step: float = 0.0,
        firsts: Array | None = None,  # noqa: ARG002  (of no use to the normal law)
    ) -> Noised:
        """`imitate` for each row of values `[m, d]`, with a generator of its own."""
        return imitated_one_by_one(self, values, scale, rngs, step)


def largest_rho(epsilon: Array, failure: Array) -> Array:
    """The largest ρ that is (ε, δ)-private by some α: max of (ε − ln(1−1/α) + ln(αδ)/(α−1))/α.

    Every α gives a ρ that is safe, so a search that stops short of the best one errs on that side.
    """

    def value(t: Array) -> Array:
        alpha = 1 + np.exp(t)
        return np.asarray(
            (epsilon - np.log1p(-1 / alpha) + np.log(alpha * failure) / (alpha - 1)) / alpha
        )

    with np.errstate(divide="ignore", invalid="ignore"):
        best = value(_maximiser(value, np.shape(epsilon))) * (1 - 4 * ROOM)
    return np.where(np.isinf(epsilon), np.inf, np.maximum(best, 0.0))


def smallest_epsilon(rho: Array, failure: Array) -> Array:
    """The least ε over α, rounded up."""

    def value(t: Array) -> Array:
        alpha = 1 + np.exp(t)
        bound = rho * alpha - np.log(alpha * failure) / (alpha - 1) + np.log1p(-1 / alpha)
        return -np.asarray(bound)

    with np.errstate(divide="ignore", invalid="ignore"):
        return np.maximum(-value(_maximiser(value, np.shape(rho))), 0.0) * (1 + ROOM)


def _maximiser(value: Any, shape: tuple[int, ...]) -> Array:
    """Where a function of ln(α − 1) is largest, element by element: a grid, then thirds."""
    grid = np.linspace(-12.0, 30.0, 85)
    values = np.stack([np.broadcast_to(value(np.full(shape, t)), shape) for t in grid])
    best = np.argmax(np.nan_to_num(values, nan=-np.inf), axis=0)
    low, high = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, len(grid) - 1)]
    for _ in range(60):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        up = value(left) < value(right)
        low, high = np.where(up, left, low), np.where(up, high, right)
    return np.asarray((low + high) / 2)


def _long_gaussian(
    payload: list[float], sensitivity: float, scale: float, failure: float
) -> Noised:
    """Noise for many coordinates: on a coarser grid, which costs a little sensitivity."""
    grid = grid_of(scale)
    whole = opendp().c.make_zCDP_to_approxDP(_gridded_gaussian(scale, grid, len(payload)))
    spent = float(whole.map(sensitivity).epsilon(failure))
    drawn = draw_in_pieces(lambda count: _gridded_gaussian(scale, grid, count), payload)
    return Noised(np.asarray(drawn), scale, spent, private=True, failure=failure)


@lru_cache(maxsize=64)
def _gridded_gaussian(scale: float, grid: int, size: int) -> Any:
    dp = opendp()
    domain = dp.vector_domain(dp.atom_domain(T="f64", nan=False), size=size)
    return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale, k=grid)


@lru_cache(maxsize=4096)
def _opendp_gaussian(scale: float) -> Any:
    dp = opendp()
    domain = dp.vector_domain(dp.atom_domain(T="f64", nan=False))
    return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)


@lru_cache(maxsize=4096)
def _approximate(scale: float) -> Any:
    return opendp().c.make_zCDP_to_approxDP(_opendp_gaussian(scale))
