"""Processes from readings: a chain, a chain by slot of day, and the measured lag law."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.checks import fraction, one_of, positive, several, whole
from agewise.errors import InvalidInput
from agewise.fitting.defaults import (
    CONFIDENCE,
    DRAWN_BY,
    LIMITS,
    LIMITS_ARE,
    SAMPLED,
    TARGETS,
    Limits,
    Sampled,
    offered_ages,
)
from agewise.mechanism import laplace
from agewise.process import MarkovChain, MeasuredLaw, PeriodicChain, block_inflation
from agewise.process.asymptotic import FEWEST_WEEKS, asymptotic_limits, critical_value
from agewise.process.limits import stick_limits, table_delta, table_sticks

Mask = NDArray[np.bool_]
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


def window_starts(
    slots_read: int, day: int, *, first_slot: int, slots: int, starts: int = 0
) -> NDArray[np.intp]:
    """The first slot of each day's window of `slots`, which begins in `first_slot` of the day."""
    begin = (first_slot - starts) % day
    return np.arange(begin, slots_read - slots + 1, day)


@dataclass(frozen=True)
class LagPairs:
    """States of a group's entities in every slot of each day's window, and what they are part of.

    `codes[entity, day, slot]`; the last slot is the aggregation. `classes` are masks
    `[entity, day]`: limits hold for all pairs together, and for those of each class.
    """

    codes: Codes
    size: int
    ages: tuple[int, ...]
    """Those that get a limit."""
    classes: Sequence[Mask] = ()

    @property
    def week(self) -> NDArray[np.intp]:
        """The week of each day."""
        return np.arange(self.codes.shape[1]) // WEEK

    def parts(self, slot: int) -> Iterator[tuple[Codes, Codes, NDArray[np.intp]]]:
        """States at collection and aggregation `[entity, day]` and weeks: all, then each class."""
        now, later = self.codes[:, :, slot], self.codes[:, :, -1]
        yield now, later, self.week
        for mask in self.classes:
            days = mask.any(axis=0)
            yield np.where(mask, now, np.int8(-1))[:, days], later[:, days], self.week[days]

    def weekly_tables(self) -> Iterator[Array]:
        """Counts by week `[week, x, y]`, for each age that gets a limit and each class."""
        for age in self.ages:
            for now, later, week in self.parts(self.codes.shape[2] - 1 - age):
                yield self._by_week(now, later, week)

    def _by_week(self, now: Codes, later: Codes, week: NDArray[np.intp]) -> Array:
        by_day = tally(now.T, later.T, self.size)
        tables = np.zeros((int(self.week[-1]) + 1, self.size, self.size))
        np.add.at(tables, week, by_day)
        return tables

    def weekly_limits(self, slot: int, targets: Array, critical: float) -> Array:
        """Asymptotic limits on E at each target, the largest over the classes."""
        tables = [self._by_week(*part) for part in self.parts(slot)]
        limits = [asymptotic_limits(one, targets, critical) for one in tables]
        return np.asarray(np.max(limits, axis=0))


def lag_pairs(
    codes: Codes,
    size: int,
    day: int,
    *,
    first_slot: int,
    slots: int,
    starts: int = 0,
    ages: Sequence[int] | None = None,
    classes: Sequence[Mask] = (),
) -> LagPairs:
    """Cut readings into a window for each day; see `fit_lag_law`."""
    length = whole("slots", slots, 1, codes.shape[1])
    days = window_starts(codes.shape[1], day, first_slot=first_slot, slots=length, starts=starts)
    if days.size < FEWEST_DAYS:
        raise InvalidInput("readings", f"{days.size} days", f"{FEWEST_DAYS} days or more")
    offered = offered_ages(length) if ages is None else checked_ages(ages, length)
    return LagPairs(codes[:, days[:, None] + np.arange(length)], size, offered, classes)


def checked_ages(ages: Sequence[int], slots: int) -> tuple[int, ...]:
    """Ages that get a limit: whole slots, each once."""
    given = several("ages", ages, "a list of whole slots")
    if not given:
        raise InvalidInput("ages", "none", f"one or more, from 1 to {slots - 1} slots")
    return tuple(sorted({whole("ages", age, 1, slots - 1) for age in given}))


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
    limits: Limits = LIMITS_ARE,
    ages: Sequence[int] | None = None,
    classes: Sequence[Mask] = (),
    targets: Sequence[float] = TARGETS,
    critical: float | None = None,
    noise: CountNoise | None = None,
) -> LagLaw:
    """Measure the joint law of (value at collection, value at aggregation), slot by slot.

    Slot 1 is slot `first_slot` of the day (from 0), slot `slots` the aggregation; each day gives
    one pair per entity. Limits are given for `ages` (None: at most twelve, see `offered_ages`);
    elsewhere they are 1. They hold together, at `confidence`, over these ages and over `claims`
    such fits, on Δ and on E at the target ε's in `targets`. `noise` is added to every count, and
    the limits allow for it.

    `sampled` says what the readings are independent draws of:

    - `pairs`: every entity on every day is one by itself.
    - `days`: entities are of any kinds and may move together on a day. Where weeks are found to
      vary more than independent days would, the limits widen by that (without noise only). That
      is a precaution, not a bound: what makes one week in fifty unlike all others is not seen.
    - `weeks`: the same, and days of a week may depend on each other in any way.
    - `entities`: days of an entity may depend on each other in any way, but nothing moves all
      entities together; entities that were not read follow the law too.

    With `limits` asymptotic, weeks are taken to be independent, whatever `sampled` says, and
    limits are those of `agewise.process.asymptotic`; `critical` is then their critical value,
    where others are to hold together with them.

    `classes` are masks of pairs `[entity, day]`: the limits hold for an adversary too who knows
    in which class a day is.

    Guarantees
        With proven limits, and if the readings are what `sampled` says, then with probability
        `confidence` no limit is below the Δ (or E) of the law that a pair follows on average over
        them (see `delta_limit`). Gaps must not depend on what would have been read. Windows of
        more than a day share readings: days then have to be independent given what they share,
        backwards in time. With asymptotic limits this holds as weeks grow many.
    """
    fraction("confidence", confidence)
    one_of("sampled", sampled, SAMPLED)
    one_of("limits", limits, LIMITS)
    size = values.size
    pairs = lag_pairs(
        codes,
        size,
        day,
        first_slot=first_slot,
        slots=slots,
        starts=starts,
        ages=ages,
        classes=classes,
    )
    orders = np.array([0.0, *sorted(targets)])
    failure = (1 - confidence) / max(1, len(pairs.ages)) / claims / (1 + len(classes))
    weeks = pairs.codes.shape[1] // WEEK
    if limits == "asymptotic" and weeks < FEWEST_WEEKS:
        raise InvalidInput(
            "readings",
            f"of {weeks} weeks",
            f"{FEWEST_WEEKS} weeks or more, with asymptotic limits",
            "Read more weeks, or take proven limits.",
        )
    if limits == "asymptotic" and critical is None:
        critical = critical_value(pairs.weekly_tables(), orders, (1 - confidence) / claims)
    joints, upper, estimates, worst, fewest = [], [], [], 1.0, np.inf
    for slot in range(slots):
        total = tally(pairs.codes[:, :, slot], pairs.codes[:, :, -1], size).sum(axis=0)
        if not total.sum():
            raise InvalidInput("readings", f"no pair at slot {slot + 1}", "fuller readings")
        if noise is not None:
            total = noise.add(total, diagonal=slot == slots - 1)
        fewest = min(fewest, total.sum())
        joints.append(total / total.sum())
        if slot == slots - 1:
            upper.append(np.ones(orders.size))
            estimates.append(np.ones(orders.size))
            continue
        tables = [total]
        if noise is None:
            tables = [tally(now, later, size).sum(axis=0) for now, later, _ in pairs.parts(slot)]
        estimate = np.max([table_sticks(table, orders) for table in tables], axis=0)
        estimate[0] = max(table_delta(table) for table in tables)
        limit = np.ones(orders.size)
        if slots - 1 - slot not in pairs.ages:
            pass
        elif critical is not None:
            limit = pairs.weekly_limits(slot, orders, critical)
        elif noise is None:
            found = [_limit(*part, size, sampled, failure, orders) for part in pairs.parts(slot)]
            limit = np.max([one for one, _ in found], axis=0)
            worst = max(worst, *(widened for _, widened in found))
        else:
            slack = noise.slack(total.size, failure / 2)
            units, most = _sizes(sampled, *pairs.codes.shape[:2])
            limit = stick_limits(total, failure / 2, orders, units=units, most=most, slack=slack)
        estimates.append(estimate)
        upper.append(np.minimum.accumulate(np.maximum(limit, estimate)))
    law = MeasuredLaw(
        joints,
        [one[0] for one in upper],
        values,
        confidence=confidence,
        day=day,
        basis=limits,
        weeks=weeks,
        targets=orders[1:],
        sticks=[one[1:] for one in upper] if orders.size > 1 else None,
    )
    return LagLaw(law, np.array([one[0] for one in estimates]), int(fewest), worst)


def _sizes(sampled: Sampled, entities: int, days: int) -> tuple[int | None, int]:
    """How many independent units there are (None: pairs), and how many pairs each has at most."""
    if sampled == "pairs":
        return None, 1
    if sampled == "entities":
        return entities, days
    return (days, entities) if sampled == "days" else (-(-days // WEEK), WEEK * entities)


def _limit(
    now: Codes,
    later: Codes,
    week: NDArray[np.intp],
    size: int,
    sampled: Sampled,
    failure: float,
    targets: Array,
) -> tuple[Array, float]:
    """Limits on E at each target from states at collection and aggregation `[entity, day]`.

    With them, by how much they were widened.
    """
    by_entity = sampled == "entities"
    units = tally(now, later, size) if by_entity else tally(now.T, later.T, size)
    total = units.sum(axis=0)
    most = max(1, _sizes(sampled, *now.shape)[1])
    if sampled == "days":
        factor = block_inflation(units, week)
        counted = total if most == 1 else units  # days of one entity are pairs
        limit = stick_limits(counted, failure, targets, most=most, inflation=factor)
        return limit, float(factor.max())
    if sampled == "pairs":
        return stick_limits(total, failure, targets), 1.0
    if sampled == "weeks":
        days, units = units, np.zeros((int(week.max(initial=0)) + 1, size, size))
        np.add.at(units, week, days)
    return stick_limits(units, failure, targets, most=most), 1.0
