"""Thirty rounds of clipped gradient steps, with each client's noise, or with Flower's own."""

from collections.abc import Callable, Sequence

import numpy as np

import agewise as aw
from agewise.arrays import Array
from agewise.mechanism import MECHANISMS

Means = Callable[[int, Array], Sequence[Array]]
"""(number of the round from 0, gradient of each state) → mean gradient of each client's records."""


def trained(
    learner: aw.Logistic,
    rounds: int,
    means: Means,
    scales: Sequence[float],
    rng: np.random.Generator,
) -> Array:
    """The model after some rounds of ours, each client adding Laplace noise of its own scale."""
    for number in range(rounds):
        sent = [
            mean + (rng.laplace(0, scale, mean.shape) if scale else 0.0)
            for mean, scale in zip(
                means(number, learner.clipped(learner.current)), scales, strict=True
            )
        ]
        learner = learner.step(np.mean(sent, axis=0))
    return np.array(learner.model.vector)


def multiplier(rounds: int, epsilon: float, delta: float) -> float:
    """Of the noise that hides one client's whole update in all rounds together.

    Releases of multiplier z are together one of z/√rounds; an update replaced moves by two clips.
    """
    numbers = map(np.asarray, (2 * rounds**0.5, epsilon, delta))
    return float(MECHANISMS["gaussian"].calibrate(*numbers))


def flower_trained(
    learner: aw.Logistic,
    rounds: int,
    means: Means,
    noise: float,
    side: str,
    rng: np.random.Generator,
) -> Array:
    """The model of the same rounds with Flower's own clipping and noise, at clients or server.

    Each client takes the same step as ours and sends its model; one client's whole update is what
    is hidden. The clip is the length of ours; `noise` is a multiplier of it.
    """
    from flwr.supercore import differential_privacy as flower

    current = np.zeros(len(learner.known.feature_names) + 1)
    mean = current.copy()
    for number in range(1, rounds + 1):
        step, sent = learner.rate_in(number), []
        for gradient in means(number - 1, learner.clipped(current)):
            own = [current - step * (gradient + learner.penalty * current)]
            flower.compute_clip_model_update(own, [current], step * learner.clip)
            if side == "client":
                own[0] = own[0] + rng.normal(0, noise * step * learner.clip, current.shape)
            sent.append(own[0])
        current = np.mean(sent, axis=0)
        if side == "server":
            spread = flower.compute_stdv(noise, step * learner.clip, len(sent))
            current = current + rng.normal(0, spread, current.shape)
        mean = mean + (current - mean) * 2 / (number + 1)
    return mean
