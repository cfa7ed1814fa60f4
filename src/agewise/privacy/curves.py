"""Privacy curves: δ at every ε, of releases that are (ε, δ)-private, carried from round to round.

For the laws of the outputs given two values of a record, D_α = ∫ (μ − αμ′)₊ is δ at ε = ln α. It is
convex in α, and falls. A curve is a bound on it for every two values, in both orders, at the nodes
α = e^{kh}; between two nodes the chord is a bound too, below the first one the chord from D₀ = 1,
and beyond the last one what it is there. So a curve is Σ q (node − α)₊ + what is never credited,
with weights q ≥ 0 of the nodes: a discrete privacy loss distribution, rounded outward.

*Ageing* is Theorem R: E δ(1 + (α − 1)/E), E the hockey-stick divergence of order α of the rows.
*One release more* with a curve D′ of its own, which may depend on all that was published, adds up
to Σ q·node·D′(α/node) + what is never credited. Proofs: docs/theory.md, section 6. Only sums of
products that are 0 or more, and each result is raised by more than they can be off.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from agewise.arrays import Array
from agewise.mechanism.gaussian import failure_of
from agewise.privacy.ageing import hockey_sticks
from agewise.privacy.pairwise import Rows

NODES = 1500
"""Nodes of a curve at ε > 0, and as many below."""
NEEDED = 1.5
"""Nodes reach so many times as far as the ε that is asked for: what lies beyond is not credited."""
SPARED = 5e-3
"""The share of δ that is not spent, so that curves of other nodes say no more than the target."""
LADDER = 2e-3
"""Logarithms of the μ's that are tried are multiples of this: those of one age serve others."""
Sticks = Callable[[Array], Array]
"""E at each of several ε's."""
_ULP = float(np.finfo(float).eps)
_RAISED = 1 + 1e-9
"""By more than rounding: curves have digits to spare beside the width of a step."""


@dataclass(frozen=True)
class Curve:
    """δ `[k]` at ε = 0, h, 2h, ... of `step` h; symmetric: for every two values in both orders."""

    step: float
    failures: Array

    @classmethod
    def of_gaussian(cls, mu: float, step: float) -> Curve:
        """Of one release of Gaussian noise that one record moves by `mu` deviations."""
        return cls(step, _gaussian(mu, step * np.arange(float(NODES))) * _RAISED)

    @cached_property
    def epsilons(self) -> Array:
        """The ε of each node."""
        return np.asarray(self.step * np.arange(float(len(self.failures))))

    def at(self, orders: Array) -> Array:
        """δ at any orders α ≥ 1, by chords."""
        return np.interp(orders, np.exp(self.epsilons), self.failures) * (1 + 8 * _ULP)

    def aged(self, sticks: Array) -> Curve:
        """About a later value; E `[k]` at each node's ε is that of the rows in between."""
        most = np.maximum(sticks, 1e-300)
        with np.errstate(over="ignore"):
            orders = 1 + np.expm1(self.epsilons) / most * (1 - 8 * _ULP)
        return Curve(self.step, np.where(sticks > 0, most * self.at(orders), 0.0) * _RAISED)

    def with_gaussian(self, mu: float) -> Curve:
        """With one release more, of Gaussian noise that one record moves by `mu` deviations."""
        weights, never = self._losses
        apart = self.step * np.arange(len(self.failures) + len(weights) - 1.0)
        apart -= self.epsilons[-1]  # from node to node: each difference is a number of steps
        added = np.convolve(_gaussian(mu, apart), weights, mode="valid") + never
        return Curve(self.step, np.minimum(added * _RAISED, 1.0))

    def raised(self, share: float) -> Curve:
        """Every δ raised by this share of itself."""
        return Curve(self.step, self.failures * (1 + share))

    def about(self, epsilon: float, sticks: Sticks) -> float:
        """δ at this ε about a later value, by E at this very ε."""
        stick = float(sticks(np.array([epsilon]))[0])
        if stick == 0:  # nothing of the record is left, whatever was released
            return 0.0
        return stick * float(self.at(np.array([1 + math.expm1(epsilon) / stick]))[0]) * _RAISED

    def epsilon(self, failure: float, sticks: Sticks, most: float) -> float:
        """The least ε about a later value at which δ is no more than this; `most` if none below."""
        low, high = 0.0, most
        for _ in range(50):
            middle = (low + high) / 2
            if self.about(middle, sticks) <= failure:
                high = middle
            else:
                low = middle
        return high

    @cached_property
    def _losses(self) -> tuple[Array, float]:
        """The weights of the nodes from −kh to kh, times e^ε, and what is never credited."""
        below = -self.epsilons[:0:-1]
        # D at 1/α of one order is 1 − 1/α + D at α of the other over α.
        mirrored = -np.expm1(below) + np.exp(below) * self.failures[:0:-1]
        places = np.concatenate([below, self.epsilons])
        heights = np.concatenate([[1.0], mirrored, self.failures])
        nodes = np.concatenate([[0.0], np.exp(places)])
        slopes = np.append(np.diff(heights) / np.diff(nodes), 0.0)
        weights = np.maximum(np.diff(slopes), 0.0) * nodes[1:]  # less would not be a bound
        # What the differences lost: some ulps of the heights on both sides of a node.
        off = np.append(8 * _ULP * (heights[:-1] + heights[1:]) / np.diff(nodes), 0.0)
        return weights + (off[:-1] + off[1:]) * nodes[1:], float(heights[-1])


def step_for(epsilon: float, stick: float) -> float:
    """The step of curves that are asked for this ε after ageing, of which E is `stick`, or less.

    One of few, so that the totals of releases are reckoned with the nodes their noise was.
    """
    needed = NEEDED * math.log1p(math.expm1(epsilon) / max(stick, 1e-9)) / NODES
    return float(2.0 ** (math.ceil(4 * math.log2(needed)) / 4))


def _gaussian(mu: float, epsilons: Array) -> Array:
    """δ at any ε: below 0 that of −ε, with both laws in each other's place."""
    above = np.abs(epsilons)
    failing = failure_of(np.asarray(mu), above)
    return np.where(epsilons >= 0, failing, -np.expm1(-above) + np.exp(-above) * failing)


@dataclass(frozen=True)
class GaussianRounds:
    """So many releases of Gaussian noise, one every so many slots, about the present after them.

    `target` is the (ε, δ) that is asked for, by which the nodes are chosen; `sticks` tells E at
    some ε's for what is between two releases, and `total_variation` is Δ there: after each of the
    rounds no more of δ is spent than totals say then, δ_c(1 + Δ + Δ² + ...).
    """

    sticks: Sticks
    total_variation: float
    rounds: int
    target: tuple[float, float]
    _told: dict[tuple[float, float], list[Curve]] = field(default_factory=dict)

    def holds(self, mu: float, stick: float) -> bool:
        """Whether `mu` keeps to the target at an age of which E is `stick`, at the target's ε."""
        epsilon, failure = self.target
        shares = np.cumsum(self.total_variation ** np.arange(self.rounds))
        allowed = failure * (1 - SPARED) * shares / shares[-1]
        told = [
            curve.about(epsilon, lambda _: np.array([stick]))
            for curve in self.told(mu, step_for(epsilon, stick))
        ]
        return all(one <= most for one, most in zip(told, allowed.tolist(), strict=False))

    def largest_mu(self, stick: float, known: float) -> float:
        """The largest μ of a ladder that is found to hold; `known` is known to."""
        if math.isinf(known):
            return math.inf
        low = math.floor(math.log(known) / LADDER)
        high = low + math.ceil(math.log(4) / LADDER)
        best = known
        while low < high:
            middle = (low + high + 1) // 2
            if self.holds(math.exp(middle * LADDER), stick):
                low, best = middle, max(best, math.exp(middle * LADDER))
            else:
                high = middle - 1
        return best

    def told(self, mu: float, step: float) -> list[Curve]:
        """The curve at each release, but for those that the last one bounds as well."""
        key = (round(math.log(mu) / LADDER, 6), step)
        if key not in self._told:
            self._told[key] = self._tell(mu, step)
        return self._told[key]

    def _tell(self, mu: float, step: float) -> list[Curve]:
        told = [Curve.of_gaussian(mu, step)]
        sticks = self.sticks(told[0].epsilons)
        for _ in range(self.rounds - 1):
            more = told[-1].raised(1e-6)
            following = more.aged(sticks).with_gaussian(mu)
            if (following.failures <= more.failures).all():
                return [*told, more]  # for any number of releases: each curve grows with the last
            told.append(told[-1].aged(sticks).with_gaussian(mu))
        return told


def sticks_between(rows: Rows | None, total_variation: float) -> Sticks:
    """E at each ε, for the worst of several tables of rows; Δ where none are known."""

    def sticks(epsilons: Array) -> Array:
        if rows is None:
            return np.full(len(epsilons), total_variation)
        worst = np.zeros(len(epsilons))
        for table, off in zip(rows.table, rows.rounding, strict=True):
            each = np.broadcast_to(table, (len(epsilons), *table.shape))
            room = np.full(len(epsilons), off)
            worst = np.maximum(worst, hockey_sticks(each, epsilons, room))
        return np.minimum(worst, total_variation)

    return sticks
