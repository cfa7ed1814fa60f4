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
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array
from agewise.checks import finite_array, whole
from agewise.errors import InvalidInput
from agewise.knowledge.level import Level
from agewise.process import MarkovChain


@dataclass(frozen=True)
class Heard:
    """What was heard of one client: releases, each so many slots ago, with noise of this variance.

    `values` `[S]` is what each state counts for in the target, `release` in a release (None: the
    same). `weight` is the client's share of the target.
    """

    chain: MarkovChain  #: how its records change
    samples: int  #: records in each release
    weight: float
    ago: NDArray[np.int64]  #: slots since each release was collected
    noise: Array  #: variance of the noise of each release
    values: Array | None = None
    release: Array | None = None


@dataclass(frozen=True)
class Filtered:
    """What the server makes of all it has heard, and what it loses.

    `gains` has a row for each client: what its releases are multiplied by, in their order, and
    `expected` the mean of each of them. `mean` is what the server expects of the target. `loss` is
    the expected squared error, in the unit of the records squared; `nothing_collected` is that of a
    server that publishes the mean it knows.
    """

    gains: tuple[Array, ...]
    expected: tuple[float, ...]
    mean: float
    loss: float
    nothing_collected: float

    def of(self, releases: Sequence[Array]) -> float:
        """The estimate from the releases, client by client."""
        return self.mean + sum(
            float(gain @ (np.asarray(heard) - mean))
            for gain, heard, mean in zip(self.gains, releases, self.expected, strict=True)
        )


def filter_rounds(
    chains: Sequence[MarkovChain],
    samples: ArrayLike,
    noise: ArrayLike,
    *,
    rounds: int,
    every: int,
    age: ArrayLike = 0,
    levels: Sequence[Level] = (),
) -> Filtered:
    """Return the best linear estimate of the weighted mean now, from `rounds` rounds heard.

    Client i releases the mean of `samples[i]` records, which follow its chain under its stationary
    law, every so many slots; its newest was collected `age` slots ago (one age, or one per client).
    `noise[i]` is the variance of the noise on a release. `levels` move the records of all clients,
    as in a problem. A client counts by its samples.

    Guarantees
        No other linear estimate from these releases loses less, under the model given; never
        more than `nothing_collected`, nor than with fewer rounds heard.
    """
    count = len(chains)
    sizes, variances, ages = (
        finite_array(name, np.broadcast_to(np.asarray(given), count), "one number per client")
        for name, given in (("samples", samples), ("noise", noise), ("age", age))
    )
    if not (sizes >= 1).all() or not (variances > 0).all():
        raise InvalidInput(
            "samples, noise", [sizes.tolist(), variances.tolist()], "1 or more, and above 0"
        )
    whole("rounds", rounds, 1)
    before = whole("every", every, 1) * np.arange(rounds)
    weights = sizes / sizes.sum()
    return filter_heard(
        [
            Heard(
                chain,
                int(sizes[i]),
                float(weights[i]),
                np.asarray(whole("age", int(ages[i]), 0) + before, dtype=np.int64),
                np.full(rounds, variances[i]),
            )
            for i, chain in enumerate(chains)
        ],
        levels,
    )


def filter_heard(heard: Sequence[Heard], levels: Sequence[Level] = ()) -> Filtered:
    """Return the best linear estimate of the weighted mean now, from whatever was heard of whom.

    Records follow their chains under the stationary law; `levels` move those of all clients. Cost
    grows with the clients times the cube of their releases, and of the slots these are from.

    Guarantees
        No other linear estimate from these releases loses less, under the model given; never more
        than `nothing_collected`.
    """
    times, place = np.unique(
        np.concatenate([[0], *(one.ago for one in heard)]).astype(np.int64), return_inverse=True
    )
    roots = [_root(level, times) for level in levels]
    factors = sum(root.shape[1] for root in roots)
    shared, left = np.eye(factors), np.zeros(factors)
    common, nothing, loss, mean = np.zeros(factors), 0.0, 0.0, 0.0
    alone, moved, expected, start = [], [], [], 1
    for i, one in enumerate(heard):
        rows = place[start : start + len(one.ago)]
        start += len(one.ago)
        moves = [level.loading_of(i) * root for level, root in zip(levels, roots, strict=True)]
        factor = np.concatenate([np.zeros((len(times), 0)), *moves], axis=1)
        variance, between, towards, told, now = _covariances(one)
        power = between / one.samples + np.diag(one.noise)
        cross = one.weight * towards / one.samples
        solved = np.linalg.solve(power, np.column_stack([cross, factor[rows]]))
        alone.append(solved[:, 0])
        moved.append(solved[:, 1:])
        shared += factor[rows].T @ solved[:, 1:]
        left += one.weight * factor[place[0]] - factor[rows].T @ solved[:, 0]
        common += one.weight * factor[place[0]]
        own = one.weight**2 * variance / one.samples
        nothing, loss = nothing + own, loss + own - float(cross @ solved[:, 0])
        expected.append(told)
        mean += one.weight * now
    unknown = np.linalg.solve(shared, left)
    return Filtered(
        tuple(gain + rest @ unknown for gain, rest in zip(alone, moved, strict=True)),
        tuple(expected),
        mean,
        max(0.0, loss + float(left @ unknown)),
        nothing + float(common @ common),
    )


def _covariances(one: Heard) -> tuple[float, Array, Array, float, float]:
    """Of one record: its variance now, covariances of what is released, with now; both means."""
    chain, law = one.chain, one.chain.stationary
    values = chain.states if one.values is None else one.values
    release = values if one.release is None else one.release
    now, told = float(law @ values), float(law @ release)
    lags = np.abs(np.subtract.outer(one.ago, one.ago)).astype(np.int64)
    wanted = np.unique(np.concatenate([lags.ravel(), one.ago.astype(np.int64)]))
    weighted = law * (release - told)
    pairs = np.column_stack([release - told, values - now])
    between, before = {}, 0
    for lag in wanted.tolist():
        pairs = chain.steps(lag - before) @ pairs if lag > before else pairs
        before = lag
        between[lag] = weighted @ pairs
    own = np.array([[between[lag][0] for lag in row] for row in lags.tolist()])
    towards = np.array([between[lag][1] for lag in one.ago.astype(np.int64).tolist()])
    variance = float(law @ (values - now) ** 2)
    return variance, own.reshape(len(lags), len(lags)), towards, told, now


def _root(level: Level, times: NDArray[np.int64]) -> Array:
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
