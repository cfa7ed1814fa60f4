"""An adversary replayed on recorded days, after those that the laws were fitted to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta
from scipy.stats import t as student

from agewise.arrays import Array
from agewise.checks import whole
from agewise.errors import InvalidInput
from agewise.fitting.laws import WEEK, Codes, fit_chain, tally
from agewise.fitting.report import Fit
from agewise.fitting.states import States
from agewise.mixing import delta
from agewise.privacy.ageing import classical_epsilon
from agewise.readings import Readings

BY_CHANCE = 1 / 2000
"""How often an adversary may be called too good who is not (Student's t over households)."""
FEWEST = 5
"""Households that a judgement needs."""
FEWEST_WEEKS = 3
"""Weeks that a judgement needs."""
DRAWS = 20
"""Draws of the noise by which the adversary chooses how sure they want to be."""


@dataclass(frozen=True)
class Attack:
    """What a replayed adversary achieved against one way of setting the noise.

    They know what everybody else released, the noise, and the law that the fit grants them. For
    each state they say "it is in that state now" when the release makes that likely enough; how
    likely they chose on the days of the fit. `hits` is how often they say so where it is true,
    `false_alarms` where it is not, means over states. The claimed ε allows hits of at most e^ε
    times the false alarms: in each household, or for an adversary who knows the population only,
    over all households of a client. `excess` is by how many standard errors (over households and
    over weeks; over weeks only for the population) they beat that on average, and `chance` how
    often one who just keeps to it looks as good (Student's t). `exposed` are the households that
    by themselves refute a claim about each (exact binomial limits, together 1 in 2,000).
    `too_good` if there are any, or if `chance` is less than 1 in 2,000.
    """

    claim: str
    age: int
    delta: float
    noise_scale: float
    households: int
    hits: float
    false_alarms: float
    allowed_ratio: float
    excess: float
    chance: float
    exposed: tuple[str, ...]
    too_good: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return asdict(self)


def replay_adversary(
    fitted: Fit,
    before: Readings,
    after: Readings,
    *,
    first_slot: int,
    collect_at: int = 1,
    seed: int = 0,
) -> list[Attack]:
    """Guess households' present states from releases, with noise by two claims about Δ.

    `before` are the readings that `fitted` was fitted to with that `first_slot`, `after` those that
    they are judged on. `measured` sets the noise for the limit on Δ of each client; `chain` for the
    Δ of the homogeneous chain fitted to the same, which is what readings with a habit make false.
    """
    if fitted.kind != "measured":
        raise InvalidInput("fitted", f"a fit of kind {fitted.kind}", "one of kind measured")
    slots, epsilon = fitted.problem.aggregate_at, fitted.problem.epsilon
    age = slots - whole("collect_at", collect_at, 1, slots - 1)
    rng = np.random.default_rng(seed)
    watched: dict[str, list[_Watched]] = {"measured": [], "chain": []}
    pairs = [_pairs(fitted.states, part, first_slot, collect_at, slots) for part in (before, after)]
    for client, client_fit in zip(fitted.problem.clients, fitted.clients, strict=True):
        rows = before.rows(client.name, client_fit.members)
        limit = client_fit.limits[collect_at - 1]
        law = client.process.joint(collect_at, slots).matrix
        for name, part in _parties(fitted.adversary, client.name, client_fit.members, rows):
            was, is_then, _ = _together(pairs[0], part)
            old, new, week = _together(pairs[1], part)
            if np.unique(new[new >= 0]).size < 2:
                continue  # always in the same state when it counts
            chain = fit_chain(fitted.states.index(before.values[part]), fitted.states.values)
            if fitted.adversary == "household":
                law = _table(was, is_then, fitted.states.values.size)
            for claim, claimed in (("measured", limit), ("chain", float(delta(chain, age)))):
                reach = float(np.ptp(fitted.states.values))
                scale = reach / classical_epsilon(epsilon, claimed)
                guess = _Guess(law + 1e-4, fitted.states.values, scale, math.exp(epsilon))
                at = guess.thresholds(was, is_then, rng)
                true, called = guess.calls(old, new, at, rng)
                watched[claim].append(_Watched(name, len(part), claimed, scale, true, called, week))
    households = sum(one.households for one in watched["chain"])
    if households < FEWEST:
        raise InvalidInput(
            "readings",
            f"{households or 'no'} household(s) that change when it counts",
            f"{FEWEST} or more",
            "Choose other states.",
        )
    alone = fitted.adversary == "household"
    return [_judge(claim, age, rows, epsilon, alone=alone) for claim, rows in watched.items()]


def _parties(
    adversary: str, client: str, members: Sequence[str], rows: list[int]
) -> list[tuple[str, list[int]]]:
    """Whom a claim is about: each household, or all of a client without regard to who is who."""
    if adversary == "household":
        return [(name, [row]) for name, row in zip(members, rows, strict=True)]
    return [(client, rows)]


def _together(
    pairs: list[tuple[Codes, Codes]], rows: list[int]
) -> tuple[Codes, Codes, NDArray[np.intp]]:
    """States at collection and aggregation of several households in a row, and their weeks."""
    days = np.arange(pairs[0][0].size)
    return (
        np.concatenate([pairs[row][0] for row in rows]),
        np.concatenate([pairs[row][1] for row in rows]),
        np.tile(days // WEEK, len(rows)),
    )


def _pairs(
    states: States, readings: Readings, first_slot: int, collect_at: int, slots: int
) -> list[tuple[Codes, Codes]]:
    """States at collection and at aggregation, by day, of each entity; −1 where one is missing."""
    codes = states.index(readings.values)
    begin = (first_slot - readings.first_of_day) % readings.day
    days = np.arange(begin, codes.shape[1] - slots + 1, readings.day)
    old, new = codes[:, days + collect_at - 1], codes[:, days + slots - 1]
    good = (old >= 0) & (new >= 0)
    return list(zip(np.where(good, old, -1), np.where(good, new, -1), strict=True))


def _table(old: Codes, new: Codes, size: int) -> Array:
    counts = tally(old[None], new[None], size)[0]
    return np.asarray(counts / max(counts.sum(), 1))


@dataclass(frozen=True)
class _Guess:
    """An adversary who knows a law `joint[x, y]`, the noise, and by how much hits must win."""

    joint: Array
    values: Array
    scale: float
    factor: float

    def _evidence(self, old: Codes, rng: np.random.Generator) -> Array:
        """For days and states, the log of how much likelier the release is in that state."""
        seen = self.values[old] + (rng.laplace(0, self.scale, old.size) if self.scale > 0 else 0)
        if self.scale > 0:
            weight = np.exp(-np.abs(seen[:, None] - self.values[None]) / self.scale)
        else:
            weight = (seen[:, None] == self.values[None]).astype(float)
        together = np.maximum(weight, 1e-300) @ self.joint
        prior = self.joint.sum(axis=0)
        rest = (together.sum(axis=1, keepdims=True) - together) / (prior.sum() - prior)
        return np.asarray(np.log(together / prior) - np.log(rest))

    def thresholds(self, old: Codes, new: Codes, rng: np.random.Generator) -> Array:
        """For each state, from how much evidence on calling it wins most, on their own days."""
        good = np.tile(old >= 0, DRAWS)
        old, new = np.tile(old, DRAWS)[good], np.tile(new, DRAWS)[good]
        thresholds = np.zeros(self.values.size)
        evidence = self._evidence(old, rng)
        for state in range(thresholds.size):
            true = new == state
            if not true.any() or true.all():
                continue
            tried = np.unique(np.quantile(evidence[:, state], np.linspace(0, 1, 41)))
            called = evidence[:, state, None] >= tried
            wins = called[true].mean(axis=0) - self.factor * called[~true].mean(axis=0)
            thresholds[state] = tried[int(wins.argmax())]
        return thresholds

    def calls(
        self, old: Codes, new: Codes, thresholds: Array, rng: np.random.Generator
    ) -> tuple[NDArray[np.bool_], Array]:
        """Which state is true on each day `[day, state]`, and whether it is called; NaN: no day."""
        called = np.full((old.size, self.values.size), np.nan)
        good = old >= 0
        called[good] = self._evidence(old[good], rng) >= thresholds
        return new[:, None] == np.arange(self.values.size), called


@dataclass(frozen=True)
class _Watched:
    """What is true `[day, state]` and what was called (NaN: no day) of those a claim is about."""

    name: str
    households: int
    delta: float
    scale: float
    true: NDArray[np.bool_]
    called: Array
    week: NDArray[np.intp]

    def rates(self, without: int = -1) -> tuple[Array, Array]:
        """Hits and false alarms by state, NaN where a state is always or never there."""
        known = np.isfinite(self.called) & (self.week != without)[:, None]
        calls = np.where(known, self.called, 0.0)
        with np.errstate(invalid="ignore"):
            hits = (calls * self.true).sum(axis=0) / (known & self.true).sum(axis=0)
            alarms = (calls * ~self.true).sum(axis=0) / (known & ~self.true).sum(axis=0)
        both = np.isfinite(hits) & np.isfinite(alarms)
        return np.where(both, hits, np.nan), np.where(both, alarms, np.nan)

    def beyond(self, allowed: float, without: int = -1) -> float:
        """Hits − e^ε · false alarms, the mean over states."""
        hits, alarms = self.rates(without)
        seen = np.isfinite(hits)
        return float((hits - allowed * alarms)[seen].mean()) if seen.any() else 0.0

    def refutes(self, allowed: float, level: float) -> bool:
        """Whether in some state hits are surely more than the claim allows (independent days)."""
        known = np.isfinite(self.called)
        calls = np.where(known, self.called, 0.0)
        n_true, n_not = (known & self.true).sum(axis=0), (known & ~self.true).sum(axis=0)
        k_true, k_not = (calls * self.true).sum(axis=0), (calls * ~self.true).sum(axis=0)
        each = level / 2 / n_true.size
        least = np.where(k_true > 0, beta.ppf(each, np.maximum(k_true, 1), n_true - k_true + 1), 0)
        most = np.where(n_not > k_not, beta.isf(each, k_not + 1, np.maximum(n_not - k_not, 1)), 1)
        return bool((least > allowed * most).any())


def _judge(
    claim: str, age: int, rows: list[_Watched], epsilon: float, *, alone: bool = True
) -> Attack:
    """Judge all parties together, and households each by itself; days of a week may depend."""
    allowed = math.exp(epsilon)
    weeks = np.unique(np.concatenate([row.week for row in rows]))
    if weeks.size < FEWEST_WEEKS:
        raise InvalidInput(
            "readings", f"{weeks.size} week(s) to judge by", f"{FEWEST_WEEKS} or more"
        )
    beyond = np.array([row.beyond(allowed) for row in rows])
    mean, count = float(beyond.mean()), beyond.size
    without = [float(np.mean([row.beyond(allowed, week) for row in rows])) for week in weeks]
    spread = (weeks.size - 1) * float(np.var(without)) + 1 / rows[0].week.size ** 2
    freedom = weeks.size - 1
    if alone and count > 1:
        spread += float(beyond.var(ddof=1)) / count
        freedom = min(freedom, count - 1)
    excess = mean / math.sqrt(spread)
    chance = float(student.sf(excess, freedom))
    exposed = tuple(row.name for row in rows if alone and row.refutes(allowed, BY_CHANCE / count))
    hits, alarms = (
        float(np.mean([np.nanmean(row.rates()[part]) for row in rows])) for part in (0, 1)
    )
    return Attack(
        claim,
        age,
        float(np.median([r.delta for r in rows])),
        float(np.median([r.scale for r in rows])),
        sum(r.households for r in rows),
        hits,
        alarms,
        allowed,
        excess,
        chance,
        exposed,
        bool(exposed) or chance < BY_CHANCE,
    )
