"""Adversaries who learn from the noised releases of all rounds, replayed on rounds held out.

Two of them. One knows no chain: a regression, trained on the rounds fitted to, foretells the
present state from the last 28 releases. One knows the fitted chain: a filter follows what all
releases so far say of (level class, state). Each calls a state in the rounds in which they are
surest of it. A claim of ε allows, in each household, at most e^ε times as many calls where the
state is there (hits) as where it is not (false alarms).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import false_discovery_control
from scipy.stats import t as student

from agewise.arrays import Array
from agewise.fitting.adversary import BY_CHANCE
from agewise.fitting.laws import WEEK, Codes
from agewise.fitting.levels import LOOKS_BACK, TINY, LevelChain, Rounds

SUREST = (0.5, 0.25, 0.1, 0.03)
"""The shares of rounds in which an adversary calls a state."""
DRAWS = 12
"""Draws of the noise over which calls are averaged."""


@dataclass(frozen=True)
class Calls:
    """How often a state was called, mean over draws: `[household, round of the day, week]`.

    What time of day it is everybody knows, so that only rounds at the same time compare.
    """

    adversary: str
    surest: float
    state: int
    hits: Array
    false_alarms: Array
    there: Array
    """Rounds in which the state is there."""
    not_there: Array

    def log_ratio(self, without: int | None = None) -> float:
        """Log of the ratio of hits to false alarms, within households (Mantel–Haenszel)."""
        won, lost = self.sums(without)
        if won.sum() <= 0:
            return -math.inf
        return math.log(won.sum() / lost.sum()) if lost.sum() > 0 else math.inf

    @property
    def standard_error(self) -> float:
        """Of the log ratio, over weeks left out in turn; infinite where one week decides."""
        weeks = self.hits.shape[2]
        found = np.array([self.log_ratio(week) for week in range(weeks)])
        return float(np.sqrt((weeks - 1) * np.var(found))) if np.isfinite(found).all() else math.inf

    def sums(self, without: int | None = None) -> tuple[Array, Array]:
        """Hits and false alarms of each household as Mantel and Haenszel weigh them."""
        kept = np.arange(self.hits.shape[2]) != (-1 if without is None else without)
        hits, alarms, there, rest = (
            table[:, :, kept].sum(axis=2)
            for table in (self.hits, self.false_alarms, self.there, self.not_there)
        )
        total = np.maximum(there + rest, 1)
        return (hits * rest / total).sum(axis=1), (alarms * there / total).sum(axis=1)


@dataclass(frozen=True)
class RoundAttack:
    """What replayed adversaries got out of noised releases, against one claim.

    `log_ratios` are the largest over states and adversaries at each share of rounds in `surest`,
    with their standard errors over weeks; `by` names who reached each. `reached` if one of them is
    above the claim or within a standard error of it. `chance`: how often those who just keep to the
    claim do as well, all comparisons together (Simes' test; the states of each pooled). `broken`
    where that is less than 1 in 2,000.
    """

    claim: str
    classical_epsilon: float
    epsilon: float
    log_ratios: tuple[float, ...]
    standard_errors: tuple[float, ...]
    by: tuple[str, ...]
    reached: bool
    chance: float

    @property
    def broken(self) -> bool:
        """Whether the claim is refuted."""
        return self.chance < BY_CHANCE

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return {**asdict(self), "surest": list(SUREST), "broken": self.broken}


def replay_rounds(
    rounds: Rounds,
    chain: LevelChain,
    classical_epsilon: float,
    *,
    judged: int | None = None,
    seed: int = 0,
) -> list[Calls]:
    """Release every round with noise, and let adversaries call states in the second half.

    `chain` is what the filter knows; the regression learns from the first half. `judged` limits the
    rounds of the second half that count (None: all).
    """
    rng, values = np.random.default_rng(seed), rounds.values
    codes, half, width = rounds.codes, rounds.half, float(np.ptp(rounds.values))
    last = codes.shape[1] if judged is None else half + judged
    true = codes[:, half:last]
    found: dict[tuple[str, float, int], list[NDArray[np.bool_]]] = {}
    scale, weights = width / classical_epsilon, None
    for _ in range(DRAWS):
        seen = np.where(codes >= 0, values[codes] + rng.laplace(0, scale, codes.shape), np.nan)
        looked = _cut_off(rounds, seen)
        if weights is None:
            weights = _learn(rounds, looked)
        for name, scores in (
            ("regression", log_odds(softmax_logs(weights, looked))),
            ("filter", _by_filter(rounds, chain, seen, scale)),
        ):
            for state in range(values.size):
                score = scores[:, half:last, state]
                for surest in SUREST:
                    edge = np.quantile(score[true >= 0], 1 - surest)
                    found.setdefault((name, surest, state), []).append(score >= edge)
    return [
        _count(name, surest, state, true, np.mean(called, axis=0), rounds.per_day)
        for (name, surest, state), called in found.items()
    ]


def judge(calls: list[Calls], claim: str, classical_epsilon: float, claims: Array) -> RoundAttack:
    """Compare calls with a claim: ε of each household, or one for all."""
    best = [
        max((one for one in calls if one.surest == share), key=Calls.log_ratio) for share in SUREST
    ]
    ratios, errors = [one.log_ratio() for one in best], [one.standard_error for one in best]
    kinds = {(one.adversary, one.surest) for one in calls}
    each = [_chance(_of(calls, *kind), claims) for kind in sorted(kinds)]
    chance = float(false_discovery_control(each).min())  # Simes: good calls come together
    middle = float(np.median(claims))
    return RoundAttack(
        claim,
        classical_epsilon,
        middle,
        tuple(ratios),
        tuple(errors),
        tuple(one.adversary for one in best),
        any(ratio + error > middle for ratio, error in zip(ratios, errors, strict=True)),
        chance,
    )


def _of(calls: list[Calls], adversary: str, surest: float) -> list[Calls]:
    return [one for one in calls if (one.adversary, one.surest) == (adversary, surest)]


def _chance(calls: list[Calls], claims: Array) -> float:
    """How often one who just keeps to each household's claim does as well, all states together.

    By Student's t over weeks or over households, whichever vary more.
    """
    factor = np.exp(np.minimum(claims, 700.0))

    def beyond(without: int | None = None) -> Array:
        found = [one.sums(without) for one in calls]
        return np.asarray(sum(won - factor * lost for won, lost in found))

    households, _, weeks = calls[0].hits.shape
    each = beyond()
    left = np.array([beyond(week).sum() for week in range(weeks)])
    over_weeks = math.sqrt((weeks - 1) * float(np.var(left)))
    over_households = households * math.sqrt(float(np.var(each)) / max(households - 1, 1))
    error, units = max((over_weeks, weeks), (over_households, households))
    return float(student.sf(each.sum() / error, units - 1)) if error > 0 else 1.0


def _count(name: str, surest: float, state: int, true: Codes, called: Array, per_day: int) -> Calls:
    at = np.arange(true.shape[1])
    week, time = at // (WEEK * per_day), at % per_day
    there, rest = true == state, (true >= 0) & (true != state)

    def by_week(table: Array) -> Array:
        sums = np.zeros((per_day, int(week[-1]) + 1, len(true)))
        np.add.at(sums, (time, week), table.T)
        return sums.transpose(2, 0, 1)

    tables = (called * there, called * rest, there.astype(float), rest.astype(float))
    return Calls(name, surest, state, *(by_week(table) for table in tables))


def last_rounds(table: Array, count: int = LOOKS_BACK) -> Array:
    """The last `count` entries before each round `[entity, round, count]`; 0: there is none."""
    looked = np.zeros((*table.shape, count))
    for back in range(1, count + 1):
        looked[:, back:, back - 1] = table[:, :-back]
    return looked


def _cut_off(rounds: Rounds, seen: Array) -> Array:
    """The last releases before each round, from −1/2 to 1/2.

    Beyond the outermost states Laplace noise tells no more, so releases are cut off there.
    """
    low, high = rounds.values.min(), rounds.values.max()
    cut = (np.clip(seen, low, high) - (low + high) / 2) / (high - low)
    return last_rounds(np.nan_to_num(cut))


def _learn(rounds: Rounds, looked: Array) -> Array:
    """The weights of a regression on the last releases, from the first half.

    How frequent states are at each time of day is known beforehand.
    """
    codes, size = rounds.codes, rounds.values.size
    trained = codes >= 0
    trained[:, :LOOKS_BACK] = trained[:, rounds.half :] = False
    time = np.broadcast_to(np.arange(codes.shape[1]) % rounds.per_day, codes.shape)[trained]
    counts = np.ones((rounds.per_day, size))
    np.add.at(counts, (time, codes[trained]), 1)
    return fit_softmax(looked[trained], codes[trained], size, np.log(counts[time]))


def _by_filter(rounds: Rounds, chain: LevelChain, seen: Array, scale: float) -> Array:
    """Scores `[entity, round, state]` of one who follows the fitted chain through all releases."""
    size = rounds.values.size
    away = np.abs(seen[..., None] - rounds.values) / scale
    likely = np.where(np.isfinite(away), np.exp(away.min(axis=-1, keepdims=True) - away), 1.0)
    process, scores = chain.process, np.empty((*seen.shape, size))
    belief = np.broadcast_to(process.law(1), (len(seen), process.states.size))
    for number in range(seen.shape[1]):
        if number:
            belief = belief @ process.kernel(number, number + 1)
        prior = process.law(number + 1).reshape(-1, size).sum(axis=0)
        now = belief.reshape(len(seen), -1, size).sum(axis=1)
        scores[:, number] = np.log(np.maximum(now, TINY)) - np.log(prior)
        heard = belief * np.tile(likely[:, number], chain.levels)
        belief = heard / heard.sum(axis=1, keepdims=True)
    return log_odds(scores)


def log_odds(logs: Array) -> Array:
    """Of each state against all others together, from logs of weights `[..., state]`."""
    weight = np.exp(logs - logs.max(axis=-1, keepdims=True))
    others = weight.sum(axis=-1, keepdims=True) - weight
    return np.asarray(np.log(np.maximum(weight, TINY)) - np.log(np.maximum(others, TINY)))


def fit_softmax(features: Array, states: Codes, size: int, base: Array | float = 0.0) -> Array:
    """Weights `[state, 1 + features]` of a logistic regression; `base`: what is known before."""
    table = np.concatenate([np.ones((len(features), 1)), features], axis=1)
    true = np.eye(size)[states]

    def loss(flat: Array) -> tuple[float, Array]:
        weights = flat.reshape(size, -1)
        logs = base + table @ weights.T
        logs -= logs.max(axis=1, keepdims=True)
        total = np.exp(logs).sum(axis=1, keepdims=True)
        slope = (np.exp(logs) / total - true).T @ table + weights
        return float((np.log(total[:, 0]) - (logs * true).sum(axis=1)).sum() + flat @ flat / 2), (
            slope.ravel()
        )

    start = np.zeros(size * table.shape[1])
    found = minimize(loss, start, jac=True, method="L-BFGS-B")
    return np.asarray(found.x.reshape(size, -1))


def softmax_logs(weights: Array, features: Array, base: Array | float = 0.0) -> Array:
    """Logs of the states' probabilities `[..., state]`."""
    logs = base + weights[:, 0] + features @ weights[:, 1:].T
    logs = logs - logs.max(axis=-1, keepdims=True)
    return np.asarray(logs - np.log(np.exp(logs).sum(axis=-1, keepdims=True)))
