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

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array
from agewise.checks import finite_array, whole
from agewise.errors import InvalidInput
from agewise.knowledge.level import Level, Levels, Rows
from agewise.knowledge.passed import Report, covariances
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
    #: which of them were fresh when they were published: readings as they are, with levels
    fresh: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Filtered:
    """What the server makes of all it has heard, and what it loses.

    `gains` has a row for each client: what its releases are multiplied by, in their order, and
    `expected` their means. `mean` is what the server expects of the target. `loss` is
    the expected squared error, in the unit of the records squared; `nothing_collected` is that of a
    server that publishes the mean it knows.
    """

    gains: tuple[Array, ...]
    expected: tuple[Array, ...]
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
                fresh=np.full(rounds, ages[i] == 0),
            )
            for i, chain in enumerate(chains)
        ],
        levels,
    )


def filter_heard(heard: Sequence[Heard], levels: Sequence[Level] = ()) -> Filtered:
    """Return the best linear estimate of the weighted mean now, from whatever was heard of whom.

    Records follow their chains under the stationary law; `levels` move those of all clients, and
    are reported as far as the clip lets them pass. Cost grows with the clients times the cube of
    their releases, and of the slots these are from.

    Guarantees
        No other linear estimate from these releases loses less, under the model given; never more
        than `nothing_collected`.
    """
    shared = _Shared.of(heard, levels)
    size = len(shared.covariance)
    held, left = np.eye(size), shared.target.copy()
    nothing, loss, mean = 0.0, 0.0, 0.0
    alone, moved = [], []
    expected: list[Array] = []
    for place, one in enumerate(heard):
        variance, between, towards, told, now = _covariances(one, shared.reports(place))
        factor = shared.factor(place, one.chain.stationary)
        power = between / one.samples + np.diag(one.noise)
        cross = one.weight * towards / one.samples
        solved = np.linalg.solve(power, np.column_stack([cross, factor]))
        alone.append(solved[:, 0])
        moved.append(solved[:, 1:])
        held += factor.T @ solved[:, 1:] @ shared.covariance
        left -= factor.T @ solved[:, 0]
        own = one.weight**2 * variance / one.samples
        nothing, loss = nothing + own, loss + own - float(cross @ solved[:, 0])
        expected.append(told)
        mean += one.weight * now
    unknown = shared.covariance @ np.linalg.solve(held, left)
    return Filtered(
        tuple(gain + rest @ unknown for gain, rest in zip(alone, moved, strict=True)),
        tuple(expected),
        mean,
        max(0.0, loss + float(left @ unknown)),
        nothing + float(shared.target @ shared.covariance @ shared.target),
    )


@dataclass(frozen=True)
class _Shared:
    """What clients share: covariances `[R, R]` of the rows of all reports.

    `target` `[R]` is how the weighted mean moves with each of them, and `starts` where each
    client's releases begin among the entries of `rows`.
    """

    rows: Rows | None
    covariance: Array
    target: Array
    starts: NDArray[np.int64]

    @staticmethod
    def of(heard: Sequence[Heard], levels: Sequence[Level]) -> _Shared:
        counts = [len(one.ago) for one in heard]
        starts = np.cumsum([0, *counts])
        if not levels or not sum(counts):
            loads = _loadings(heard, levels)
            target = np.array([one.weight for one in heard]) @ loads
            return _Shared(None, np.eye(len(levels)), target, starts)
        loads = _loadings(heard, levels)
        for one in heard:
            if one.values is not None and not np.array_equal(one.values, one.chain.states):
                raise InvalidInput("values", "others than the states", "the states, with levels")
        who = np.repeat(np.arange(len(heard)), counts)
        fresh = [np.zeros(len(one.ago), bool) if one.fresh is None else one.fresh for one in heard]
        states = [tuple(one.chain.states.tolist()) for one in heard]
        rows = Rows.of(
            Levels(tuple(levels)),
            [states[place] for place in who.tolist()],
            loads[who],
            np.concatenate([one.ago for one in heard]),
            np.concatenate(fresh),
        )
        covariance = rows.covariance()
        target = np.zeros(len(covariance))
        target[: len(levels)] = np.array([one.weight for one in heard]) @ loads
        return _Shared(rows, covariance, target, starts)

    def _which(self, client: int) -> list[int]:
        """The reports of a client's releases."""
        if self.rows is None:
            return []
        own: list[int] = self.rows.which[self.starts[client] : self.starts[client + 1]].tolist()
        return own

    def factor(self, client: int, law: Array) -> Array:
        """How each release of a client moves with the rows, `[releases, R]`."""
        count = int(self.starts[client + 1] - self.starts[client])
        result = np.zeros((count, len(self.covariance)))
        if self.rows is not None:
            for release, place in enumerate(self._which(client)):
                result[release, self.rows.places[place]] = law
        return result

    def reports(self, client: int) -> _Reports:
        """What a client reports in its releases, and how these move together, own states given."""
        rows, which = self.rows, self._which(client)

        def together(one: int, other: int) -> Array | float:
            if rows is None:
                return 0.0
            first, second = which[one], which[other]
            among = rows.correlation(first, second)
            return covariances(rows.reports[first], rows.reports[second], among)

        return [] if rows is None else [rows.reports[place] for place in which], together


_Reports = tuple[list[Report], Callable[[int, int], Array | float]]


def _loadings(heard: Sequence[Heard], levels: Sequence[Level]) -> Array:
    each = [[level.loading_of(place) for level in levels] for place in range(len(heard))]
    return np.array(each, float).reshape(len(heard), len(levels))


def _covariances(one: Heard, given: _Reports) -> tuple[float, Array, Array, Array, float]:
    """Of one record, but for what is shared: its variance now, covariances of releases, with now.

    And the means of both.
    """
    reports, together = given
    chain, law = one.chain, one.chain.stationary
    values = chain.states if one.values is None else one.values
    release = values if one.release is None else one.release
    shown = [report.mean for report in reports] or [release] * len(one.ago)
    now = float(law @ values)
    told: Array = np.array([law @ each for each in shown])
    lags = np.abs(np.subtract.outer(one.ago, one.ago)).astype(np.int64)
    kernels, kernel, before = {}, np.eye(law.size), 0
    for lag in np.unique(np.concatenate([lags.ravel(), one.ago])).tolist():
        kernel = kernel @ chain.steps(lag - before) if lag > before else kernel
        before, kernels[lag] = lag, law[:, None] * (kernel - law)
    known: dict[Any, float] = {}
    own = np.empty(lags.shape)
    for i, j in itertools.combinations_with_replacement(range(len(lags)), 2):
        first, then = (i, j) if one.ago[i] >= one.ago[j] else (j, i)
        lag = int(lags[i, j])
        key = lag, bool(reports) and (reports[first].fresh, reports[then].fresh)
        if key not in known:
            both = np.outer(shown[first], shown[then]) + together(first, then)
            known[key] = float((kernels[lag] * both).sum())
        own[i, j] = own[j, i] = known[key]
    towards: Array = np.array(
        [each @ kernels[int(ago)] @ values for each, ago in zip(shown, one.ago, strict=True)]
    )
    variance = float(law @ (values - now) ** 2)
    return variance, own, towards, told, now
