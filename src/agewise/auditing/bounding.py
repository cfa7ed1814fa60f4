"""A lower confidence bound on ε from how often an event was seen, exact for any number of runs.

An event has probability p when the present value is y, and q when it is y′. A mechanism that is
(ε, δ)-private has p ≤ e^ε q + δ. Of n₁ and n₀ runs, K₁ and K₀ show the event: two independent
binomial counts. The statistic is K₁ − w K₀, with a weight w that was fixed before these runs. Its
upper tail grows with p and falls with q, so that

    π(ε) = sup over q of P(K₁ − w K₀ ≥ observed), with p = min(1, e^ε q + δ),

is a p-value of "p ≤ e^ε q + δ" and never falls as ε grows: the ε's that are rejected are all those
below one number, and that number is the bound. q is looked for in a confidence interval of its own,
whose small error is added (Berger and Boos 1994). Between two values a < b of q the tail is at most
that at (p(b), a): whole intervals of q are decided at once, and split where that does not suffice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, bdtrc, betaincinv
from scipy.stats import norm

from agewise.arrays import Array

OWN_SHARE = 0.02
"""Which part of the error goes to the interval of q."""
PLAIN_SHARE = 0.1
"""Which part of the error goes to the test whose weight trusts no guess."""
BLOCKS = 200
"""Blocks of counts over which a tail is summed."""
PARTS = 24
"""Into how many intervals q is divided at first."""
SPLITS = (6, 6)
"""Into how many parts those are divided again that do not suffice."""
FINE = 0.02
"""How closely a bound is worked out, in standard deviations of its estimate."""
LARGEST = 50.0
"""Losses beyond which nothing is told apart any more."""
_TAIL = 1e-12
"""Probability left out at either end of a sum, which is then added."""


@dataclass(frozen=True)
class Counts:
    """How often an event was seen: `hits` of `runs` at one present value, and at the other."""

    hits: int
    runs: int
    other_hits: int
    other_runs: int


def lower_bound(counts: Counts, error: float, delta: float = 0.0, guess: float = 0.0) -> float:
    """The largest ε that the counts refute at this error; 0 where they refute none.

    `guess` is where the bound was expected before these runs: it decides the weight w, and nothing
    else. A weight that is too large leaves K₁ without a say, so that part of the error goes to a
    test with w = n₁/n₀, which is never far off; the larger of both bounds counts.

    Guarantees
        If the runs are independent and the mechanism is (ε, δ)-private about the two values, the
        bound exceeds ε with a probability of at most `error`, whatever ε, the event and the number
        of runs, provided that event and guess were chosen without these runs.
    """
    return max(_bound(test, counts) for test in _tests(counts, error, delta, guess))


def refutes(
    counts: Counts, epsilon: float, error: float, delta: float = 0.0, guess: float = 0.0
) -> bool:
    """Whether the counts refute (ε, δ) at this error: whether `lower_bound` would exceed ε."""
    return any(test.rejects(epsilon) for test in _tests(counts, error, delta, guess))


def _tests(counts: Counts, error: float, delta: float, guess: float) -> list[_Test]:
    plain = PLAIN_SHARE * error
    return [
        _Test(counts, error - plain, delta, guess),
        _Test(counts, plain, delta, 0.0),
    ]


def _bound(test: _Test, counts: Counts) -> float:
    """The largest ε that a test rejects, to a small part of its standard deviation."""
    p = np.asarray((counts.hits + 0.5) / (counts.runs + 1))
    q = np.asarray((counts.other_hits + 0.5) / (counts.other_runs + 1))
    runs = min(counts.runs, counts.other_runs)
    near = float(expected_bound(p, q, runs, test.level, test.delta))
    margin = float(_spread(p, q, runs, test.delta)) if p > test.delta else 1.0
    low, high, step = -1.0, min(max(near, 0.0), LARGEST), margin / 2
    if test.rejects(high):
        while test.rejects(high):
            low, high, step = high, high + step, 2 * step
            if low >= LARGEST:
                return LARGEST
    else:
        while low < 0 and high > 0:
            below = max(high - step, 0.0)
            if test.rejects(below):
                low = below
            else:
                high, step = below, 2 * step
    if low < 0:
        return 0.0
    while high - low > margin * FINE:
        middle = (low + high) / 2
        if test.rejects(middle):
            low = middle
        else:
            high = middle
    return low


class _Test:
    """Whether an ε is refuted by the counts."""

    def __init__(self, counts: Counts, error: float, delta: float, guess: float) -> None:
        self.counts, self.delta = counts, delta
        weight = math.exp(min(max(guess, 0.0), LARGEST))
        self.weight = weight * counts.runs / counts.other_runs
        own = OWN_SHARE * error
        self.level = error - own
        k, n = counts.other_hits, counts.other_runs
        self.least = 0.0 if k == 0 else float(betaincinv(k, n - k + 1, own / 2))
        self.most = 1.0 if k == n else float(betaincinv(k + 1, n - k, 1 - own / 2))

    def rejects(self, epsilon: float) -> bool:
        """Whether the tail is at most the level for every q that is left."""
        factor = math.exp(epsilon)
        edges = np.linspace(self.least, self.most, PARTS + 1)
        a, b = edges[:-1], edges[1:]
        for parts in (*SPLITS, 0):
            if (self.tail(self._chance(factor, b), b) > self.level).any():
                return False  # a q for which it is not refuted
            open_ = self.tail(self._chance(factor, b), a) > self.level
            if not open_.any():
                return True
            if parts:
                shares = np.arange(parts + 1) / parts
                cuts = a[open_, None] + (b - a)[open_, None] * shares
                cuts[:, -1] = b[open_]
                a, b = cuts[:, :-1].ravel(), cuts[:, 1:].ravel()
        return False

    def _chance(self, factor: float, q: Array) -> Array:
        return np.minimum(factor * q + self.delta, 1.0)

    def tail(self, p: Array, q: Array) -> Array:
        """Upper bounds on P(K₁ − w K₀ ≥ observed), for independent counts with each p and q."""
        n = self.counts.other_runs
        low, high = _window(n, q)
        starts = np.rint(low + (high + 1 - low) * (np.arange(BLOCKS + 1)[:, None] / BLOCKS))
        first, after = starts[:-1], starts[1:]
        up_to = np.where(starts > 0, bdtr(np.maximum(starts - 1, 0), n, q), 0.0)
        inside = np.where(after > first, np.diff(up_to, axis=0), 0.0)
        # The least count of a block leaves most room to the other one.
        needed = self.counts.hits + self.weight * (first - self.counts.other_hits)
        needed = np.ceil(needed - 1e-9 * np.maximum(np.abs(needed), 1.0))
        reached = _at_least(needed, self.counts.runs, p)
        return np.asarray((np.maximum(inside, 0.0) * reached).sum(axis=0)) + 2 * _TAIL


def _window(runs: int, chance: Array) -> tuple[Array, Array]:
    """Counts outside of which hardly any lies: less than `_TAIL` at either end."""
    spread = np.sqrt(runs * chance * (1 - chance))
    far = -float(norm.ppf(_TAIL / 100)) * spread + 60  # enough by Bernstein's inequality
    middle = runs * chance
    return np.maximum(0, np.floor(middle - far)), np.minimum(runs, np.ceil(middle + far))


def _at_least(needed: Array, runs: int, chance: Array) -> Array:
    """P(K ≥ needed) of a binomial count."""
    inside = np.asarray(bdtrc(np.clip(needed, 1, runs) - 1, runs, chance))
    return np.where(needed <= 0, 1.0, np.where(needed > runs, 0.0, inside))


def expected_bound(p: Array, q: Array, runs: int, error: float, delta: float = 0.0) -> Array:
    """About where the bound will be, for events of these probabilities and `runs` runs of either.

    Used to choose events, never to judge by.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = np.log((p - delta) / q)
        spread = _spread(p, q, runs, delta)
        value = middle + float(norm.ppf(error)) * spread
    return np.where((p > delta) & np.isfinite(value), value, -np.inf)


def _spread(p: Array, q: Array, runs: int, delta: float) -> Array:
    """The standard deviation of ln((p̂ − δ)/q̂)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(p * (1 - p) / np.square(p - delta) / runs + (1 - q) / q / runs)


def detectable(claim: float, q: float, runs: int, error: float, delta: float = 0.0) -> float | None:
    """The true ε that is told from a claim nine times in ten, by an event of this probability.

    None where no ε is: the event is too likely already.
    """
    needed = float(norm.ppf(0.9) - norm.ppf(error))
    largest = math.log((1 - delta) / q) if q > 0 else 0.0
    if largest <= claim:
        return None

    def short(epsilon: float) -> bool:
        p = np.asarray(math.exp(epsilon) * q + delta)
        spread = float(_spread(np.minimum(p, 1 - 1e-12), np.asarray(q), runs, delta))
        return epsilon - claim < needed * spread

    low, high = claim, largest
    if short(high):
        return None
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if short(middle) else (low, middle)
    return high
