"""Processes from readings: a chain, a chain by slot of day, and the measured lag law."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.checks import fraction, one_of, positive, whole
from agewise.errors import InvalidInput
from agewise.fitting.defaults import CONFIDENCE, DRAWN_BY, SAMPLED, Sampled
from agewise.mechanism import laplace
from agewise.process import MarkovChain, MeasuredLaw, PeriodicChain, block_inflation, delta_limit
from agewise.process.limits import table_delta

Codes = NDArray[np.int8]
"""State of each entity in each slot, −1 where there is no reading: `[entity, slot]`."""

SMOOTHING = 0.5
"""Added to each cell of a chain's counts (Jeffreys), so that what was never seen stays possible."""
WEEK = 7
FEWEST_DAYS = 2 * WEEK


def pair_counts(codes: Codes, lag: int, states: int) -> Array:
    """Count (state, state `lag` slots later) over all slots, for each entity: `[entity, x, y]`."""
    whole("lag", lag, 1, codes.shape[1] - 1)
    return tally(codes[:, :-lag], codes[:, lag:], states)


def tally(before: Codes, after: Codes, states: int) -> Array:
    """Counts of (value before, value after) for each entity, `[entity, S, S]`; −1: missing."""
    entity = np.arange(len(before))[:, None]
    code = (entity * states + before) * states + after
    good = (before >= 0) & (after >= 0)
    size = len(before) * states * states
    return np.bincount(code[good], minlength=size).reshape(-1, states, states).astype(float)


def fit_chain(codes: Codes, values: Array) -> MarkovChain:
    """One matrix for all slots, from all entities, smoothed."""
    counts = pair_counts(codes, 1, values.size).sum(axis=0) + SMOOTHING
    return MarkovChain(counts / counts.sum(axis=1, keepdims=True), values)


def fit_periodic(codes: Codes, values: Array, day: int, starts: int = 0) -> PeriodicChain:
    """One matrix for each slot of the day, smoothed; the first for the step from slot 1 to 2.

    `starts` is the slot of the day with which the codes begin.
    """
    size, matrices = values.size, []
    for slot in range(day):
        at = np.arange((slot - starts) % day, codes.shape[1] - 1, day)
        counts = tally(codes[:, at], codes[:, at + 1], size).sum(axis=0) + SMOOTHING
        matrices.append(counts / counts.sum(axis=1, keepdims=True))
    return PeriodicChain(matrices, values)


@dataclass(frozen=True)
class CountNoise:
    """Discrete Laplace noise on counts of pairs, so that the fit itself is private.

    `epsilon` is for any 24 hours of one entity: exchanging them moves at most one pair in each of
    `tables` tables, that is 2 counts per table, for each of the `windows` of slots that reach into
    them.
    """

    epsilon: float
    tables: int
    windows: int = 1

    @property
    def sensitivity(self) -> int:
        """By how much 24 hours of one entity move all counts together."""
        return 2 * self.tables * self.windows

    @property
    def scale(self) -> float:
        """The scale of the noise of each count."""
        return self.sensitivity / positive("count_epsilon", self.epsilon)

    def add(self, counts: Array, *, diagonal: bool = False) -> Array:
        """Return noised counts; what becomes negative counts as none."""
        whole_counts = counts.astype(np.int64).ravel()
        noised = laplace(whole_counts, sensitivity=self.sensitivity, epsilon=self.epsilon)
        table = np.maximum(np.asarray(noised.value, dtype=float), 0.0).reshape(counts.shape)
        if diagonal:  # in the last slot a record is what it is
            table = np.diag(np.diag(table))
        return np.asarray(table if table.sum() else np.eye(len(table)))

    def slack(self, counts: int, failure: float) -> float:
        """By how much any of so many counts can be off through the noise, but for `failure`."""
        return self.scale * math.log(counts / failure) + 1


@dataclass(frozen=True)
class LagLaw:
    """The measured law of a group of entities, and what its limits rest on."""

    law: MeasuredLaw
    estimate: Array
    """Δ as measured for the group, by slot."""
    pairs: int
    """Days counted, over all entities, at the least."""
    inflation: float
    """The most by which days were found to say less than independent ones."""


def fit_lag_law(
    codes: Codes,
    values: Array,
    day: int,
    *,
    first_slot: int,
    slots: int,
    starts: int = 0,
    confidence: float = CONFIDENCE,
    claims: int = 1,
    sampled: Sampled = DRAWN_BY,
    first_weekday: int | None = None,
    noise: CountNoise | None = None,
) -> LagLaw:
    """Measure the joint law of (value at collection, value at aggregation), slot by slot.

    Slot 1 is slot `first_slot` of the day (from 0), slot `slots` the aggregation; each day gives
    one pair per entity. The limits hold together, at `confidence`, over all slots and over
    `claims` such fits. `noise` is added to every count, and the limits allow for it.

    `sampled` says what the readings are independent draws of:

    - `pairs`: every entity on every day is one by itself.
    - `days`: entities are of any kinds and may move together on a day. Where weeks are found to
      vary more than independent days would, the limits widen by that (without noise only). That
      is a precaution, not a bound: what makes one week in fifty unlike all others is not seen.
    - `weeks`: the same, and days of a week may depend on each other in any way.
    - `entities`: days of an entity may depend on each other in any way, but nothing moves all
      entities together; entities that were not read follow the law too.

    With `first_weekday`, that of the first day of `codes` (Monday is 0), the limits hold for an
    adversary too who knows whether the aggregation is on a weekend.

    Guarantees
        If the readings are what `sampled` says, then with probability `confidence` no limit is
        below the Δ of the law that a pair follows on average over them (see `delta_limit`). Gaps
        must not depend on what would have been read. Windows of more than a day share readings:
        days then have to be independent given what they share, backwards in time.
    """
    length = whole("slots", slots, 1, codes.shape[1])
    fraction("confidence", confidence)
    one_of("sampled", sampled, SAMPLED)
    begin = (first_slot - starts) % day
    days = np.arange(begin, codes.shape[1] - length + 1, day)
    if days.size < FEWEST_DAYS:
        raise InvalidInput("readings", f"{days.size} days", f"{FEWEST_DAYS} days or more")
    size = values.size
    week = np.arange(days.size) // WEEK
    kinds = [np.full(days.size, True)]
    if first_weekday is not None:
        weekend = ((starts + days + length - 1) // day + first_weekday) % WEEK >= WEEK - 2
        kinds += [weekend, ~weekend]
    failure = (1 - confidence) / max(1, length - 1) / claims / len(kinds)
    later = codes[:, days + length - 1]
    joints, limits, estimates, worst, fewest = [], [], [], 1.0, np.inf
    for slot in range(length):
        now = codes[:, days + slot]
        total = tally(now, later, size).sum(axis=0)
        if not total.sum():
            raise InvalidInput("readings", f"no pair at slot {slot + 1}", "fuller readings")
        if noise is not None:
            total = noise.add(total, diagonal=slot == length - 1)
        fewest = min(fewest, total.sum())
        joints.append(total / total.sum())
        if slot == length - 1:
            limits.append(1.0)
            estimates.append(1.0)
            continue
        if noise is None:
            by_kind = [
                _limit(now[:, k], later[:, k], week[k], size, sampled, failure) for k in kinds
            ]
            limit, estimate, widened = (max(part) for part in zip(*by_kind, strict=True))
            worst = max(worst, widened)
        else:
            slack = noise.slack(total.size, failure / 2)
            units, most = _sizes(sampled, len(codes), days.size)
            limit = delta_limit(total, failure / 2, units=units, most=most, slack=slack)
            estimate = table_delta(total)
        estimates.append(estimate)
        limits.append(max(limit, estimate))
    law = MeasuredLaw(joints, limits, values, confidence=confidence, day=day)
    return LagLaw(law, np.array(estimates), int(fewest), worst)


def _sizes(sampled: Sampled, entities: int, days: int) -> tuple[int | None, int]:
    """How many independent units there are (None: pairs), and how many pairs each has at most."""
    if sampled == "pairs":
        return None, 1
    if sampled == "entities":
        return entities, days
    return (days, entities) if sampled == "days" else (-(-days // WEEK), WEEK * entities)


def _limit(
    now: Codes, later: Codes, week: NDArray[np.intp], size: int, sampled: Sampled, failure: float
) -> tuple[float, float, float]:
    """A limit on Δ from states at collection and aggregation `[entity, day]`.

    With it, Δ as measured, and by how much the limit was widened.
    """
    by_entity = sampled == "entities"
    units = tally(now, later, size) if by_entity else tally(now.T, later.T, size)
    total = units.sum(axis=0)
    estimate, most = table_delta(total), max(1, _sizes(sampled, *now.shape)[1])
    if sampled == "days":
        factor = block_inflation(units, week)
        counted = total if most == 1 else units  # days of one entity are pairs
        limit = delta_limit(counted, failure, most=most, inflation=factor)
        return limit, estimate, float(factor.max())
    if sampled == "pairs":
        return delta_limit(total, failure), estimate, 1.0
    if sampled == "weeks":
        days, units = units, np.zeros((int(week.max(initial=0)) + 1, size, size))
        np.add.at(units, week, days)
    return delta_limit(units, failure, most=most), estimate, 1.0
