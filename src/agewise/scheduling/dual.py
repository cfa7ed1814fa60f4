"""The best multipliers: a proximal bundle.

What all rows choose at λ_j costs E_j and adds up to W_j, and E_j + 2λ·W_j − ‖λ‖² is nowhere below
L. With M the curvature at the best point c so far, P = M − I and M = RᵀR, the next λ is where the
least of these cuts, less (λ − c)ᵀP(λ − c), is largest: M⁻¹(Σ w_j W_j + P·c) at the weights w ≥ 0,
Σw = 1, that minimise Σ w_j E_j + ‖R⁻ᵀ(Σ w_j W_j + P·c)‖². Where gains are fixed M is I, and λ the
Σw of the best mixture of answers; with gains this is Newton's method with a safeguard.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agewise.arrays import Array
from agewise.scheduling.costs import Columns

STEPS = 200
"""Questions about one part of the search space at most."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What all rows choose at λ, and the bound that this shows."""

    at: Array
    bound: float
    cost: float  #: E: the sum of what the rows' cells cost
    bias: Array  #: W: the sum of what they add to the square
    columns: Columns
    scale: float = math.inf  #: of the draw of noise
    prices: Array | None = None  #: of the columns, with a capacity

    @property
    def alone(self) -> float:
        """L at λ without the draw."""
        return self.cost + 2 * float(self.at @ self.bias) - float(self.at @ self.at)


@dataclass(frozen=True, eq=False)
class Dual:
    """The best answer, and the mixture of answers that shows why no other λ is much better."""

    best: Answer
    answers: list[Answer]
    weights: Array


Ask = Callable[[Array], Answer]
Curvature = Callable[[Answer], Array]


def maximise(ask: Ask, curvature: Curvature, start: Array, enough: float, steps: int) -> Dual:
    """Close in on the λ with the largest bound; stop early where one is `enough`."""
    at, eye = start, np.eye(start.size)
    answers: list[Answer] = []
    weights = np.empty(0)
    best = centre = None
    bend = eye
    for _ in range(steps):
        answer = ask(at)
        if best is None or answer.bound > best.bound:
            best = answer
        known = any(answer.cost == one.cost and (answer.bias == one.bias).all() for one in answers)
        if best.bound >= enough or not at.size or known or not math.isfinite(answer.bound):
            break
        if centre is None or answer.alone > centre.alone:
            centre, bend = answer, curvature(answer)
        kept = np.flatnonzero(weights > 0)
        answers = [*(answers[place] for place in kept), answer]
        weights = np.append(weights[kept], 0.0) if kept.size else np.ones(1)
        root = np.linalg.cholesky(bend).T
        shift = (bend - eye) @ centre.at
        costs = np.array([one.cost for one in answers])
        vectors = np.linalg.solve(root.T, np.stack([one.bias + shift for one in answers], axis=1))
        weights = mixture_weights(costs, vectors.T, weights)
        peak = vectors @ weights
        upper = float(costs @ weights + peak @ peak - centre.at @ shift)
        if upper - centre.alone <= 1e-12 * abs(upper):
            break
        at = np.linalg.solve(root, peak)
    if best is None:
        raise ValueError("no step was allowed")
    return Dual(best, answers, weights)


def mixture_weights(costs: Array, vectors: Array, weights: Array) -> Array:
    """Weights w ≥ 0, Σw = 1, that minimise Σ w·cost + ‖Σ w·vector‖², from given ones.

    An active-set method (Wolfe): to the best weights of the active points, without those that
    would be negative, until no other point lowers the sum.
    """
    gram, weights = 2 * vectors @ vectors.T, weights.copy()
    size = float(np.abs(costs).max() + np.abs(gram).max())
    gram[np.diag_indices(len(weights))] += 1e-12 * size + 1e-300  # a little convexity: no ties
    active = weights > 0
    for _ in range(6 * len(weights) + 20):
        slope = gram @ weights + costs
        enter = int(slope.argmin())
        if slope[enter] >= slope @ weights - 1e-13 * size:
            break
        active[enter] = True
        for _ in range(len(weights)):
            some = np.flatnonzero(active)
            right = np.stack([np.ones(some.size), -costs[some]], axis=1)
            ones, own = np.linalg.solve(gram[np.ix_(some, some)], right).T
            aim = own + ones * (1 - own.sum()) / ones.sum()
            if (aim >= 0).all():
                weights[some] = aim
                break
            falls = (aim < 0) & (aim < weights[some])
            shares = weights[some][falls] / (weights[some] - aim)[falls]
            weights[some] = np.maximum(weights[some] + shares.min() * (aim - weights[some]), 0.0)
            drop = some[falls][int(shares.argmin())]
            weights[drop], active[drop] = 0.0, False
    return np.asarray(weights / weights.sum())
