"""Gaussian noise for ℓ2 sensitivities: an (ε, δ) guarantee, exactly, drawn through OpenDP."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
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
SPARED = 1e-4
"""The share of δ that is not spent: for rounding, for the grid that OpenDP draws on, and so that
others who integrate find less than is allowed. It costs some millionths of σ."""
ROOM = 1e-9
"""Relative room between σ as it is calibrated and the ε that it is said to spend."""
UNDERFLOW = 1e-300
"""Less than this is no δ: floats have lost its digits."""
LEAST = 1e-12
"""What is released spends so much ε at least."""
_ULP = float(np.finfo(float).eps)


class Gaussian:
    """Gaussian noise of one scale σ on every coordinate, for ℓ2 sensitivities.

    With μ = s/σ a release of sensitivity s is (ε, δ)-private if and only if
    δ ≥ Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) (Balle and Wang 2018, Theorem 8). What is drawn has the μ
    that OpenDP's own map says, ρ = μ²/2; that it draws on a grid is in the room that is left.
    """

    kind: Literal["gaussian"] = "gaussian"
    approximate: Literal[True] = True
    norm: Literal[2] = 2
    words = "Gaussian noise, drawn by OpenDP"

    def calibrate(self, sensitivity: Array, epsilon: Array, failure: Array) -> Array:
        """σ = s/μ, μ the largest that is still (ε, δ)-private; 0 for ε = ∞."""
        reach, spent, fails = np.broadcast_arrays(sensitivity, epsilon, failure)
        scale = np.where(fails > 0, np.zeros(reach.shape), np.inf)
        some = (reach > 0) & np.isfinite(spent) & (fails > 0)
        scale[some] = reach[some] / largest_mu(spent[some], fails[some])
        return np.where((reach == 0) | np.isinf(spent), 0.0, scale)

    def spent(self, sensitivity: Array, scale: Array, failure: Array) -> Array:
        """The ε of this scale at this δ."""
        reach, noise, fails = np.broadcast_arrays(sensitivity, scale, failure)
        spent = np.where(reach > 0, np.full(reach.shape, np.inf), 0.0)
        some = (reach > 0) & (noise > 0) & (fails > 0)
        mu = reach[some] / noise[some] * (1 + ROOM / 2)  # no less than `certified` finds
        spent[some] = smallest_epsilon(mu, fails[some])
        return spent

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
        """ε at this δ, of the μ that OpenDP's map says."""
        if sensitivity == 0 or scale == 0:
            return 0.0 if sensitivity == 0 else math.inf
        return _spent(_opendp_gaussian(scale), sensitivity, failure)

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


def failure_of(mu: Array, epsilon: Array) -> Array:
    """δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), without the difference of nearly equal numbers.

    With t = ε/μ ∓ μ/2 both terms are e^{−t₁²/2}/2 times a scaled error function, for t₁ ≥ 0. What
    rounding takes from their difference is added again, and what lies below the range of floats.
    """
    from scipy.special import erfcx, ndtr  # noqa: PLC0415  (loaded when it is first needed)

    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    with np.errstate(over="ignore"):  # e^{−∞} = 0
        common = np.exp(-np.square(near) / 2) / 2
    first = np.where(near < 0, ndtr(-near), common * erfcx(np.maximum(near, 0.0) / math.sqrt(2)))
    second = common * erfcx(far / math.sqrt(2))
    return np.asarray(np.maximum(first - second, 0.0) + 8 * _ULP * (first + second) + UNDERFLOW)


def largest_mu(epsilon: Array, failure: Array) -> Array:
    """The largest μ = s/σ that is (ε, δ)-private, rounded down; δ(ε) grows with μ."""
    asked = failure * (1 - SPARED)
    far = np.sqrt(-2 * np.log(asked))
    low = 2 * epsilon / (far + np.sqrt(np.square(far) + 2 * epsilon))  # δ(ε) ≤ e^{−t₁²/2} there
    high = 2 * low + 1e-300
    while (holds := failure_of(high, epsilon) <= asked).any():
        low, high = np.where(holds, high, low), np.where(holds, 2 * high, high)
    return halved(lambda mu: failure_of(mu, epsilon) <= asked, low, high)[0] * (1 - 4 * ROOM)


def smallest_epsilon(mu: Array, failure: Array) -> Array:
    """The least ε that μ is private by at this δ, rounded up; δ(ε) falls as ε grows."""
    asked = failure * (1 - SPARED)
    high = mu * (np.sqrt(-2 * np.log(asked)) + mu / 2)
    low = np.zeros_like(high)
    found = halved(lambda epsilon: failure_of(mu, epsilon) > asked, low, high)[1]
    return np.maximum(found * (1 + ROOM), LEAST)


def halved(holds: Callable[[Array], Any], low: Array, high: Array) -> tuple[Array, Array]:
    """The largest arguments found to hold, and the least found not to, element by element."""
    for _ in range(60):
        middle = low + (high - low) / 2
        still = holds(middle)
        low, high = np.where(still, middle, low), np.where(still, high, middle)
    return low, high


def _long_gaussian(
    payload: list[float], sensitivity: float, scale: float, failure: float
) -> Noised:
    """Noise for many coordinates: on a coarser grid, which costs a little sensitivity."""
    grid = grid_of(scale)
    spent = _spent(_gridded_gaussian(scale, grid, len(payload)), sensitivity, failure)
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


def _spent(drawn: Any, sensitivity: float, failure: float) -> float:
    """ε at this δ of one of OpenDP's measurements, which says that it is ρ-zCDP with ρ = μ²/2."""
    mu = math.sqrt(2 * float(drawn.map(sensitivity))) * (1 + ROOM / 10)
    return float(smallest_epsilon(np.array(mu), np.array(failure)))
