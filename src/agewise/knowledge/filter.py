"""The best linear estimate from all rounds heard: what earlier releases still tell about now.

A server may use everything that was released (post-processing), and a level that moves slowly is
known the better the more rounds there were. The estimate is

    θ̂ = E θ + Σ_i Σ_r k_i(r) (y_i(r) − E y_i),

y_i(r) being client i's release r rounds ago, with the gains k = Cov(y)⁻¹ Cov(y, θ) of the whole
covariance matrix. Own parts of different clients are independent of each other, so that no matrix
is larger than the number of rounds (times that of levels). Where everything is linear this is what
a Kalman filter computes; records need not be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from agewise.arrays import Array
from agewise.checks import finite_array, whole
from agewise.errors import InvalidInput
from agewise.knowledge.level import Level
from agewise.process import MarkovChain


@dataclass(frozen=True)
class Filtered:
    """What the server makes of all it has heard, and what it loses.

    `gains` `[client, round]` multiply the releases, the newest first. `loss` is the expected
    squared error, in the unit of the records squared; `nothing_collected` is that of a server that
    publishes the mean it knows.
    """

    gains: Array
    loss: float
    nothing_collected: float


def filter_rounds(
    chains: Sequence[MarkovChain],
    samples: ArrayLike,
    noise: ArrayLike,
    *,
    rounds: int,
    every: int,
    age: int = 0,
    levels: Sequence[Level] = (),
) -> Filtered:
    """Return the best linear estimate of the weighted mean now, from `rounds` rounds heard.

    Client i releases the mean of `samples[i]` records, which follow its chain under its stationary
    law, every so many slots; the newest was collected `age` slots ago. `noise[i]` is the variance
    of the noise on a release. `levels` move the records of all clients, as in a problem. A client
    counts by its samples.

    Guarantees
        No other linear estimate from these releases loses less, under the model given; never
        more than `nothing_collected`, nor than with fewer rounds heard.
    """
    count = len(chains)
    sizes, variances = (
        finite_array(name, np.broadcast_to(np.asarray(given), count), "one number per client")
        for name, given in (("samples", samples), ("noise", noise))
    )
    if not (sizes >= 1).all() or not (variances > 0).all():
        raise InvalidInput(
            "samples, noise", [sizes.tolist(), variances.tolist()], "1 or more, and above 0"
        )
    whole("rounds", rounds, 1)
    ago = whole("age", age, 0) + whole("every", every, 1) * np.arange(rounds)
    weights = sizes / sizes.sum()
    roots = [_root(level, np.concatenate([[0], ago])) for level in levels]
    factors = sum(root.shape[1] for root in roots)
    apart = np.abs(np.subtract.outer(np.arange(rounds), np.arange(rounds)))
    shared, left, gains, heard = np.eye(factors), np.zeros(factors), [], []
    nothing = loss = 0.0
    common = np.zeros(factors)
    for i, chain in enumerate(chains):
        between, towards = _covariances(chain, rounds, every, age)
        power = between[apart] / sizes[i] + variances[i] * np.eye(rounds)
        cross = weights[i] * towards / sizes[i]
        moves = [level.loading_of(i) * root for level, root in zip(levels, roots, strict=True)]
        factor = np.concatenate([np.zeros((rounds + 1, 0)), *moves], axis=1)  # now, then each round
        solved = np.linalg.solve(power, np.column_stack([cross, factor[1:]]))
        gains.append(solved[:, 0])
        heard.append(solved[:, 1:])
        shared += factor[1:].T @ solved[:, 1:]
        left += weights[i] * factor[0] - factor[1:].T @ solved[:, 0]
        common += weights[i] * factor[0]
        variance = float(weights[i] ** 2 * between[0] / sizes[i])
        nothing, loss = nothing + variance, loss + variance - float(cross @ solved[:, 0])
    unknown = np.linalg.solve(shared, left)
    return Filtered(
        np.array(gains) + np.array(heard) @ unknown,
        loss + float(left @ unknown),
        nothing + float(common @ common),
    )


def _covariances(chain: MarkovChain, rounds: int, every: int, age: int) -> tuple[Array, Array]:
    """Covariances of one record with itself so many rounds earlier, and of a release with now."""
    off = chain.states - chain.stationary @ chain.states
    step, weighted = chain.steps(every), chain.stationary * off
    between = np.empty((rounds, off.size))
    between[0] = off
    for number in range(1, rounds):
        between[number] = step @ between[number - 1]
    return between @ weighted, between @ chain.steps(age).T @ weighted


def _root(level: Level, times: Array) -> Array:
    """A root of the correlations of a level between moments so many slots ago."""
    apart = np.abs(np.subtract.outer(times, times))
    if isinstance(level.correlation, tuple):
        if apart.max() >= len(level.correlation):
            raise InvalidInput(
                "level.correlation",
                f"{len(level.correlation)} lags",
                f"one number, or {apart.max() + 1}: one per lag up to the first round",
            )
        matrix = np.array(level.correlation)[apart]
    else:
        matrix = np.power(level.correlation, apart)
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0)))
