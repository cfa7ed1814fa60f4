"""An adversary replayed on recorded days, after those that the laws were fitted to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta
from scipy.stats import t as student

from agewise.arrays import Array
from agewise.checks import whole
from agewise.errors import InvalidInput
from agewise.fitting.given import LEVEL, find_classes
from agewise.fitting.laws import WEEK, Codes, fit_chain, tally, window_starts
from agewise.fitting.report import Fit
from agewise.mixing import total_variation
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

    claim: str  #: which way of setting the noise
    age: int  #: of the collected records, in slots
    delta: float  #: Δ that the noise was set for; the median over clients
    noise_scale: float  #: median over clients, in the unit of the readings
    households: int  #: that were attacked
    hits: float
    false_alarms: float
    allowed_ratio: float  #: hits over false alarms that the claimed ε allows
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
    rng, values, watched = np.random.default_rng(seed), fitted.states.values, _nobody()
    pairs = [_pairs(fitted, part, first_slot, collect_at) for part in (before, after)]
    for party in _watch(fitted, before, pairs, collect_at):
        for claim, claimed, epsilon in party.claims:
            scale = float(np.ptp(values)) / epsilon
            guess = _Guess(party.law + 1e-4, values, scale, math.exp(fitted.problem.epsilon))
            at = guess.thresholds(*party.before, rng)
            true, called = guess.calls(*party.after, at, rng)
            watched[claim].append(party.watched(claimed, scale, true, called))
    return _judge_all(fitted, collect_at, watched)


def weigh_adversary(
    fitted: Fit,
    before: Readings,
    after: Readings,
    *,
    first_slot: int,
    collect_at: int = 1,
    others: bool = False,
) -> list[Attack]:
    """Weigh what releases tell of two states, exactly: no noise is drawn, and nobody has to dare.

    Far out in the tails of the noise an output is e^ε_c times as likely from one collected state as
    from the other. With k = e^ε_c − 1 and a_y the share of days with the telling state among those
    on which the present one is y, the likeliest outputs tell y = 1 from y = 0 by the factor
    (1 + a_1 k)/(1 + a_0 k), which the claim allows to be e^ε. `hits` and `false_alarms` are those
    two, relative to e^ε_c. Which tail speaks for which state the adversary learns on the days of
    the fit. With `others` they also know the present mean of all other entities, in thirds.
    """
    if fitted.states.values.size != 2:
        raise InvalidInput(
            "states", f"{fitted.states.values.size}", "2, to weigh tails", "Use replay_adversary."
        )
    watched = _nobody()
    pairs = [_pairs(fitted, part, first_slot, collect_at) for part in (before, after)]
    for known in _by_level(fitted, (before, after), pairs, first_slot) if others else [pairs]:
        for party in _watch(fitted, before, known, collect_at):
            was, is_then = party.before
            ups = [was[(was >= 0) & (is_then == y)] for y in (0, 1)]
            rising = not all(up.size for up in ups) or ups[1].mean() >= ups[0].mean()
            old, new = party.after
            high = (old == 1) == rising
            called = np.where((old >= 0)[:, None], np.stack([~high, high], axis=1), np.nan)
            true = new[:, None] == np.arange(2)
            for claim, claimed, epsilon in party.claims:
                scale = float(np.ptp(fitted.states.values)) / epsilon
                watched[claim].append(
                    party.watched(claimed, scale, true, called, floor=math.exp(-epsilon))
                )
    return _judge_all(fitted, collect_at, watched)


def _by_level(
    fitted: Fit, parts: Sequence[Readings], pairs: Sequence[_Pairs], first_slot: int
) -> list[list[_Pairs]]:
    """The same days by the present mean of the others: low, middle and high ones."""
    slots, found = fitted.problem.aggregate_at, []
    for part in parts:
        begin = window_starts(
            part.values.shape[1],
            part.day,
            first_slot=first_slot,
            slots=slots,
            starts=part.first_of_day,
        )
        codes = fitted.states.index(part.values)
        values = np.where(codes >= 0, fitted.states.values[codes], np.nan)
        found.append(find_classes(LEVEL, part, values, begin + slots - 1, asymptotic=False))
    return [
        [
            _Pairs(*(np.where(classes.codes == one, x, np.int8(-1)) for x in (pair.old, pair.new)))
            for classes, pair in zip(found, pairs, strict=True)
        ]
        for one in range(len(found[0].names))
    ]


def _nobody() -> dict[str, list[_Watched]]:
    return {"measured": [], "chain": []}


@dataclass(frozen=True)
class _Pairs:
    """States at collection and at aggregation `[entity, day]`, −1 where either is missing."""

    old: Codes
    new: Codes


@dataclass(frozen=True)
class _Party:
    """Those whom a claim is about: their days before and after, the law that is known of them.

    `claims` are each claim's name, its Δ, and the classical ε that it allows.
    """

    name: str
    households: int
    before: tuple[Codes, Codes]
    after: tuple[Codes, Codes]
    week: NDArray[np.intp]
    law: Array
    claims: tuple[tuple[str, float, float], ...]

    def watched(
        self,
        claimed: float,
        scale: float,
        true: NDArray[np.bool_],
        called: Array,
        floor: float = 0.0,
    ) -> _Watched:
        """What was called of them."""
        return _Watched(self.name, self.households, claimed, scale, true, called, self.week, floor)


def _watch(
    fitted: Fit, before: Readings, pairs: Sequence[_Pairs], collect_at: int
) -> Iterator[_Party]:
    """Everybody who changes when it counts."""
    if fitted.kind != "measured":
        raise InvalidInput("fitted", f"a fit of kind {fitted.kind}", "one of kind measured")
    slots, epsilon = fitted.problem.aggregate_at, fitted.problem.epsilon
    age, values = slots - whole("collect_at", collect_at, 1, slots - 1), fitted.states.values
    for client, client_fit in zip(fitted.problem.clients, fitted.clients, strict=True):
        rows = before.rows(client.name, client_fit.members)
        limit = client_fit.limits[collect_at - 1]
        law = client.process.joint(collect_at, slots).matrix
        for name, part in _parties(fitted.adversary, client.name, client_fit.members, rows):
            was, then = ((pair.old[part].ravel(), pair.new[part].ravel()) for pair in pairs)
            if np.unique(then[1][then[1] >= 0]).size < 2:
                continue  # always in the same state when it counts
            chain = fit_chain(fitted.states.index(before.values[part]), values)
            if fitted.adversary == "household":
                law = _table(*was, values.size)
            week = np.tile(np.arange(pairs[1].old.shape[1]) // WEEK, len(part))
            deltas = (("measured", limit), ("chain", float(total_variation(chain, age))))
            claims = tuple((claim, d, float(classical_epsilon(epsilon, d))) for claim, d in deltas)
            yield _Party(name, len(part), was, then, week, law, claims)


def _judge_all(fitted: Fit, collect_at: int, watched: Mapping[str, list[_Watched]]) -> list[Attack]:
    households = sum({one.name: one.households for one in watched["chain"]}.values())
    if households < FEWEST:
        raise InvalidInput(
            "readings",
            f"{households or 'no'} household(s) that change when it counts",
            f"{FEWEST} or more",
            "Choose other states.",
        )
    alone, age = fitted.adversary == "household", fitted.problem.aggregate_at - collect_at
    epsilon = fitted.problem.epsilon
    return [_judge(claim, age, rows, epsilon, alone=alone) for claim, rows in watched.items()]


def _parties(
    adversary: str, client: str, members: Sequence[str], rows: list[int]
) -> list[tuple[str, list[int]]]:
    """Whom a claim is about: each household, or all of a client without regard to who is who."""
    if adversary == "household":
        return [(name, [row]) for name, row in zip(members, rows, strict=True)]
    return [(client, rows)]


def _pairs(fitted: Fit, readings: Readings, first_slot: int, collect_at: int) -> _Pairs:
    codes, slots = fitted.states.index(readings.values), fitted.problem.aggregate_at
    days = window_starts(
        codes.shape[1],
        readings.day,
        first_slot=first_slot,
        slots=slots,
        starts=readings.first_of_day,
    )
    old, new = codes[:, days + collect_at - 1], codes[:, days + slots - 1]
    good = (old >= 0) & (new >= 0)
    return _Pairs(np.where(good, old, np.int8(-1)), np.where(good, new, np.int8(-1)))


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
    """What is true `[day, state]` and what was called (NaN: no day) of those a claim is about.

    A call is made with probability 1 where it is said to be, and with probability `floor` else.
    """

    name: str
    households: int
    delta: float
    scale: float
    true: NDArray[np.bool_]
    called: Array
    week: NDArray[np.intp]
    floor: float = 0.0

    def rates(self, without: int = -1) -> tuple[Array, Array]:
        """Hits and false alarms by state, NaN where a state is always or never there."""
        known = np.isfinite(self.called) & (self.week != without)[:, None]
        calls = np.where(known, self.called, 0.0)
        with np.errstate(invalid="ignore"):
            hits = (calls * self.true).sum(axis=0) / (known & self.true).sum(axis=0)
            alarms = (calls * ~self.true).sum(axis=0) / (known & ~self.true).sum(axis=0)
        hits, alarms = (self.floor + (1 - self.floor) * rate for rate in (hits, alarms))
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
        least, most = (self.floor + (1 - self.floor) * rate for rate in (least, most))
        return bool((least > allowed * most).any())


def _judge(
    claim: str, age: int, rows: list[_Watched], epsilon: float, *, alone: bool = True
) -> Attack:
    """Judge all parties together, and households each by itself; days of a week may depend."""
    allowed = math.exp(epsilon)
    weeks = np.unique(np.concatenate([row.week[np.isfinite(row.called[:, 0])] for row in rows]))
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
    refuting = [row.name for row in rows if alone and row.refutes(allowed, BY_CHANCE / count)]
    exposed = tuple(dict.fromkeys(refuting))
    hits, alarms = (
        float(np.mean([np.nanmean(row.rates()[part]) for row in rows])) for part in (0, 1)
    )
    return Attack(
        claim,
        age,
        float(np.median([r.delta for r in rows])),
        float(np.median([r.scale for r in rows])),
        sum({r.name: r.households for r in rows}.values()),
        hits,
        alarms,
        allowed,
        excess,
        chance,
        exposed,
        bool(exposed) or chance < BY_CHANCE,
    )
