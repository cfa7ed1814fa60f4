"""Choosing an event: which outputs to count, and of which two present values.

Everything here looks at runs that are not used for the bound, so that any choice is a fair one.
Events are tails of a score (a coordinate, a difference of two, their lowest bits, a combination
that tells the values apart), or the bins of a score in which one value is much likelier than the
other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from agewise.arrays import Array
from agewise.auditing.bounding import expected_bound

MOST_COORDINATES = 8
"""Coordinates up to which each, and each difference of two, is a score of its own."""
STEPS = 200
"""Thresholds of a score that are looked at."""
BINS = 40
"""Bins of a score whose unions are looked at."""
NEAR = 0.25
"""Which part of the outputs counts as near 0."""
FAR = 2000.0
"""In place of the lowest bit of those that are not."""
LIKELIEST = 0.75
"""Events that are likelier than this at both values could show no loss worth the name."""
LUCK = 0.026
"""Error of each of two limits, so that an event is not merely the luckiest of many."""

Score = Callable[[Array], Array]
"""Outputs `[runs, d]` → one number per run."""


@dataclass(frozen=True)
class Tail:
    """Outputs whose score, times `sign`, is at least `threshold`."""

    name: str
    score: Score
    sign: int
    threshold: float

    def hits(self, outputs: Array) -> int:
        """How many of the outputs belong to it."""
        return int(np.count_nonzero(self.sign * self.score(outputs) >= self.threshold))

    def __str__(self) -> str:
        return f"{self.name} {'≥' if self.sign > 0 else '≤'} {self.sign * self.threshold:.6g}"


@dataclass(frozen=True)
class Union:
    """Outputs whose score lies in some of the bins between `edges`."""

    name: str
    score: Score
    edges: Array
    chosen: NDArray[np.bool_]

    def hits(self, outputs: Array) -> int:
        """How many of the outputs belong to it."""
        return int(np.count_nonzero(self.chosen[np.searchsorted(self.edges, self.score(outputs))]))

    def __str__(self) -> str:
        parts = [
            f"{low:.6g} to {high:.6g}"
            for low, high, inside in zip(
                [-math.inf, *self.edges], [*self.edges, math.inf], self.chosen, strict=True
            )
            if inside
        ]
        more = f" and {len(parts) - 3} more intervals" if len(parts) > 3 else ""
        return f"{self.name} in {', '.join(parts[:3])}{more}"


@dataclass(frozen=True)
class Choice:
    """An event, the two present values (by place) it tells apart, and what it will surely tell."""

    event: Tail | Union
    likely: int
    rare: int
    p: float
    q: float
    sure: float


def choose(
    outputs: list[Array],
    runs: int,
    error: float,
    delta: float = 0.0,
    extra: Score | None = None,
    *,
    only: bool = False,
) -> Choice:
    """The event that promises the largest bound, from outputs `[runs, d]` at each present value.

    `runs` is how often the mechanism will be run at either value for the bound. `extra` is one more
    score, or with `only` the one that counts.
    """
    best: tuple[float, Choice] | None = None
    scores = _scores(outputs, extra)
    for name, score in itertools.islice(scores, 1) if only else scores:
        scored = [np.asarray(score(one), float) for one in outputs]
        for event, hits, counted in (*_tails(name, score, scored), _unions(name, score, scored)):
            sure, choice = _best_pair(event, hits, counted, runs, error, delta)
            if best is None or sure > best[0]:
                best = sure, choice
    if best is None:
        raise RuntimeError("there is always a score")
    return best[1]


Candidates = tuple[Callable[[int, int, int], "Tail | Union"], Array, list[int]]
"""An event for two values and a place; hits at either value `[2, values, values, places]`; runs."""


def _tails(name: str, score: Score, scored: list[Array]) -> Iterator[Candidates]:
    pooled = np.sort(np.concatenate(scored))
    cuts = np.unique(pooled[np.linspace(0, len(pooled) - 1, STEPS).astype(int)])
    for sign in (1, -1):
        thresholds = np.sort(sign * cuts)
        counts = np.array(
            [len(one) - np.searchsorted(np.sort(sign * one), thresholds) for one in scored]
        )
        hits = np.repeat(counts[:, None], len(scored), axis=1)

        def event(_y: int, _other: int, place: int, s: int = sign, t: Array = thresholds) -> Tail:
            return Tail(name, score, s, float(t[place]))

        yield event, np.stack([hits, np.swapaxes(hits, 0, 1)]), [len(one) for one in scored]


def _unions(name: str, score: Score, scored: list[Array]) -> Candidates:
    """Bins in the order of what they tell by half of the runs, counted in the other half."""
    pooled = np.sort(np.concatenate(scored))
    bins = min(BINS, max(len(pooled) // 200, 4))
    edges = np.unique(pooled[np.linspace(0, len(pooled) - 1, bins + 1).astype(int)[1:-1]])
    bins = len(edges) + 1
    table, counted = (
        np.array([np.bincount(np.searchsorted(edges, one[k::2]), minlength=bins) for one in scored])
        for k in (0, 1)
    )
    chances = (table + 0.5) / (table.sum(axis=1, keepdims=True) + 0.5 * bins)
    values = len(scored)
    orders = np.zeros((values, values, bins), int)
    hits = np.zeros((2, values, values, bins))
    for y, other in itertools.permutations(range(values), 2):
        order = np.argsort(-chances[y] / chances[other])
        orders[y, other] = order
        hits[0, y, other] = np.cumsum(counted[y][order])
        hits[1, y, other] = np.cumsum(counted[other][order])

    def event(y: int, other: int, place: int) -> Union:
        chosen = np.zeros(bins, bool)
        chosen[orders[y, other][: place + 1]] = True
        return Union(name, score, edges, chosen)

    return event, hits, counted.sum(axis=1).tolist()


def _best_pair(
    event: Callable[[int, int, int], Tail | Union],
    hits: Array,
    pilots: list[int],
    runs: int,
    error: float,
    delta: float,
) -> tuple[float, Choice]:
    """The pair and event of which most is sure, and how much that is."""
    count = np.array(pilots, float)
    p, p_low, _ = _chances(hits[0], count[:, None, None])
    q, _, q_high = _chances(hits[1], count[None, :, None])
    # The best of many events was lucky in the runs that chose it.
    value = expected_bound(p_low, q_high, runs, error, delta)
    value = np.where(q <= LIKELIEST, value, value - 1e3)
    same = np.arange(len(pilots))
    value[same, same] = -np.inf
    y, other, place = np.unravel_index(int(np.argmax(value)), value.shape)
    choice = Choice(
        event(int(y), int(other), int(place)),
        int(y),
        int(other),
        float(p[y, other, place]),
        float(q[y, other, place]),
        max(float(value[y, other, place]), 0.0),
    )
    return float(value[y, other, place]), choice


def _chances(hits: Array, runs: Array) -> tuple[Array, Array, Array]:
    """Estimates of probabilities, and limits that most of them keep to (Clopper and Pearson)."""
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), runs - hits + 1, LUCK), 0.0)
    high = np.where(hits < runs, betaincinv(hits + 1, np.maximum(runs - hits, 1), 1 - LUCK), 1.0)
    return (hits + 0.5) / (runs + 1), low, high


def _scores(outputs: list[Array], extra: Score | None) -> Iterator[tuple[str, Score]]:
    width = outputs[0].shape[1]
    if extra is not None:
        yield "the score given", lambda one: np.asarray(extra(one), float)
    if width == 1:
        yield "output", partial(_coordinate, 0)
        yield "lowest bit of the output", partial(_bit_of, 0)
        near = float(np.quantile(np.abs(np.concatenate(outputs)), NEAR))
        yield f"lowest bit of an output within {near:.4g} of 0", partial(_bit_near, near)
        return
    yield "combination of outputs", _direction(outputs)
    shift = _aligned(outputs)
    yield "least output, each in its direction", lambda one: (one * shift).min(axis=1)
    yield "largest output, each in its direction", lambda one: (one * shift).max(axis=1)
    if width > MOST_COORDINATES:
        return
    for k in range(width):
        yield f"output {k + 1}", partial(_coordinate, k)
        yield f"lowest bit of output {k + 1}", partial(_bit_of, k)
    for k, other in itertools.combinations(range(width), 2):
        yield f"output {k + 1} minus output {other + 1}", partial(_difference, k, other)


def _coordinate(k: int, outputs: Array) -> Array:
    return outputs[:, k]


def _bit_of(k: int, outputs: Array) -> Array:
    return lowest_bit(outputs[:, k])


def _bit_near(near: float, outputs: Array) -> Array:
    """Floats are finest around 0, where a sum shows best how coarse its parts were."""
    return np.where(np.abs(outputs[:, 0]) <= near, lowest_bit(outputs[:, 0]), FAR)


def _difference(k: int, other: int, outputs: Array) -> Array:
    return np.asarray(outputs[:, k] - outputs[:, other])


def _direction(outputs: list[Array]) -> Score:
    """Fisher's discriminant between the two values whose means are furthest apart."""
    means = np.array([one.mean(axis=0) for one in outputs])
    within = sum(np.atleast_2d(np.cov(one.T)) for one in outputs) / len(outputs)
    inverse = np.linalg.pinv(within)
    apart = means[:, None] - means[None]
    far = np.einsum("abi,ij,abj->ab", apart, inverse, apart)
    y, other = np.unravel_index(int(np.argmax(far)), far.shape)
    weights = inverse @ apart[y, other]
    return lambda one: np.asarray(one @ weights)


def _aligned(outputs: list[Array]) -> Array:
    """One over the spread of each coordinate, with the sign in which it tells values apart."""
    means = np.array([one.mean(axis=0) for one in outputs])
    spread = np.mean([one.std(axis=0) for one in outputs], axis=0)
    order = np.argsort(means.sum(axis=1))
    sign = np.where(means[order[-1]] >= means[order[0]], 1.0, -1.0)
    return np.asarray(sign / np.where(spread > 0, spread, 1.0))


def lowest_bit(values: Array) -> Array:
    """The exponent of the lowest bit that is set in each float; −1100 for zero."""
    mantissa, exponent = np.frexp(values)
    whole = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
    lowest = whole & -whole
    bits = np.frexp(lowest.astype(float))[1] - 1
    return np.where(whole == 0, -1100.0, exponent - 53.0 + bits)
