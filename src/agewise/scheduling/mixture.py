"""The multipliers of several biases: conditional gradients with a small quadratic master."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from agewise.arrays import Array

STEPS = 200

Ask = Callable[[Array], tuple[float, Array]]


def search_multipliers(ask: Ask, start: Array) -> None:
    """Ask for all clients' best choices (Σu, Σb) at one λ after the other, closing in on the best.

    λ is the Σb of the best mixture of the answers so far; when the answer at λ no longer improves
    the mixture, L(λ) is at its maximum. `ask` keeps what it learns.
    """
    at, weights = start, np.ones(1)
    points: list[tuple[float, Array]] = []
    for step in range(STEPS):
        cost, bias = ask(at)
        value = cost + 2 * float(at @ bias) - float(at @ at)
        if step:
            mixed = float(np.array([p[0] for p in points]) @ weights + at @ at)
            if mixed - value <= 1e-12 * max(abs(mixed), 1e-300):
                return
            weights = np.append(weights, 0.0)
        points.append((cost, bias))
        weights = mixture_weights(points, weights)
        at = np.stack([p[1] for p in points], axis=1) @ weights


def mixture_weights(points: list[tuple[float, Array]], weights: Array) -> Array:
    """Weights w ≥ 0, Σw = 1, that minimise Σ w·cost + ‖Σ w·bias‖², from given ones.

    Moves weight between the two points that gain most by it, exactly as far as it pays.
    """
    weights = weights.copy()
    cost = np.array([p[0] for p in points])
    bias = np.stack([p[1] for p in points], axis=1)
    gram = bias.T @ bias
    slope = 2 * (gram @ weights) + cost
    for _ in range(40 * len(points) + 400):
        to = int(np.argmin(slope))
        since = int(np.argmax(np.where(weights > 0, slope, -np.inf)))
        gain = slope[since] - slope[to]
        if gain <= 1e-14 * (abs(slope[to]) + 1e-300):
            break
        curve = 2 * (gram[since, since] + gram[to, to] - 2 * gram[since, to])
        step = weights[since] if curve <= 0 else min(weights[since], gain / curve)
        weights[since] -= step
        weights[to] += step
        slope += 2 * step * (gram[:, to] - gram[:, since])
    return weights
