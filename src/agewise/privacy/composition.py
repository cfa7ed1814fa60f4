"""What several releases of one client add up to: an account carried from slot to slot."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from agewise.arrays import Array
from agewise.checks import fraction, instance, one_of, positive, several, whole
from agewise.errors import InvalidInput
from agewise.learning.learner import Learner
from agewise.mixing import METHODS, MIXINGS, Method, slot_delta
from agewise.privacy.ageing import aged_epsilon, worst_losses
from agewise.privacy.curves import Curve, GaussianRounds, Sticks, step_for, sticks_between
from agewise.privacy.gaps import Ageing, Between, Gap, chain_of
from agewise.privacy.guarantee import Guarantee
from agewise.privacy.pairwise import (
    TREES,
    Rows,
    aged_losses,
    all_pairs,
    lumped_loss,
    release_losses,
)
from agewise.process import LiftedChain, Process
from agewise.process.joint import as_law, as_process


@dataclass(frozen=True)
class Release:
    """One release of a client: the slot its data were collected in, its classical ε and δ.

    `metric` `[S, S]` is the share of ε by which it tells each two states apart (None: see
    `composed_epsilon`).
    """

    collect_at: int  #: slot of collection
    classical_epsilon: float  #: ageing not counted
    delta: float = 0.0  #: its δ; 0 for Laplace noise
    metric: tuple[tuple[float, ...], ...] | None = None
    mu: float = 0.0  #: deviations of Gaussian noise that one record moves it by; 0: other noise

    def losses(self, unit: Array) -> Array:
        """Its pairwise losses `[S, S]`; `unit` are those of ε = 1 where no metric is known."""
        if self.metric is None:
            return np.asarray(self.classical_epsilon * unit)
        share = np.array(self.metric)
        if share.shape != unit.shape:
            size = len(unit)
            raise InvalidInput("metric", f"of {len(share)} states", f"one of {size} states")
        return np.asarray(self.classical_epsilon * share)

    def __post_init__(self) -> None:
        whole("collect_at", self.collect_at, -(2**53))
        if not isinstance(self.classical_epsilon, float) or self.classical_epsilon != math.inf:
            positive("classical_epsilon", self.classical_epsilon)  # infinite: without noise
        fraction("delta", self.delta, with_zero=True)


@dataclass(frozen=True)
class Total:
    """The privacy of several releases together: credited for ageing, and as if nothing aged.

    `aged` and `classical` are ε's; the δ's are 0 where every release is private by ε alone.
    """

    aged: float
    classical: float
    aged_delta: float = 0.0  #: δ that goes with `aged`
    classical_delta: float = 0.0  #: δ that goes with `classical`


def composed_epsilon(
    releases: Iterable[Release],
    process: Process,
    aggregate_at: int,
    method: Method = "exact",
    law: ArrayLike | None = None,
    release: Learner | ArrayLike | str | None = "any",
) -> Total:
    """Return the total privacy of releases of the same records, about slot `aggregate_at`.

    Works forward from the oldest release (the order of the list does not matter): what tells two
    values of the record in one slot apart becomes what tells two values in the next one apart,
    where that slot's own ε is added (`agewise.privacy.pairwise`). Releases of one slot add first.
    What is collected after `aggregate_at` tells about the record then, too: it is carried back in
    the same way, with the laws of the process forwards in time, and the two sums are added, since
    past and future are independent given the record's value in between.

    Where that does not apply, the past is carried on as one number: by the tanh law with
    `any_prior`, by ln(1 + Δ(gap)(e^L − 1)) with `spectral` and with releases that have a δ or no
    noise. The total is never above what that last formula gives.

    Of a `LiftedChain` it is about the state, as in `continual_epsilon`, and with `any_prior` about
    the enlarged one.

    `law` is the law of a record in the *earliest* of these slots; the later ones follow from the
    process. With `any_prior` no law matters. `release` says what those without a metric of their
    own released, as in `continual_epsilon`; by default they may be any mechanisms of their ε's.

    Guarantees
        An upper bound on the aged privacy loss of all releases together, under the assumptions
        of `method` (see `agewise.mixing`) and for a Markov process. A process that is only known
        lag by lag (`process.markov` false) gets no credit for ageing beyond a single slot: the
        total is then the classical one. Adding up aged ε's instead is *not* safe.

    >>> from agewise import birth_death
    >>> chain = birth_death(up=0.4, down=0.4, states=[20, 50, 100, 200])
    >>> total = composed_epsilon([Release(2, 0.5), Release(6, 0.5)], chain, aggregate_at=10)
    >>> round(total.aged, 4), total.classical
    (0.0887, 1.0)
    """
    return composed_totals(releases, process, [aggregate_at], method, law, release)[0]


def composed_totals(
    releases: Iterable[Release],
    process: Process,
    slots: Sequence[int],
    method: Method = "exact",
    law: ArrayLike | None = None,
    release: Learner | ArrayLike | str | None = "any",
) -> list[Total]:
    """`composed_epsilon` about each of several slots, in time linear in releases and slots."""
    one_of("method", method, METHODS)
    as_process(process)
    wanted = [whole("aggregate_at", slot, -(2**53)) for slot in slots]
    by_slot: dict[int, list[Release]] = {}
    for made in several("releases", releases, "Release objects"):
        instance("releases", made, Release, "Release objects")
        by_slot.setdefault(made.collect_at, []).append(made)
    if not by_slot:
        return [Total(0.0, 0.0) for _ in wanted]
    at, chain = sorted(by_slot), chain_of(process)
    classical = EpsilonDelta.of([one for several in by_slot.values() for one in several])
    [outright] = classical.guarantees([wanted[0]] if wanted else [0])
    prior = None if law is None else as_law("law", law, process.states.size)
    if not chain.markov and len(at) > 1:
        return [_total(outright, outright) for _ in wanted]
    if chain is not process and law is not None:
        allowed = "no law for several releases of a lifted chain, whose own it is"
        raise InvalidInput("law", law, allowed)
    between = Between(chain, method, prior, at)
    pairs = composed([EpsilonDelta.of(by_slot[slot]) for slot in at], at, wanted, between)
    totals = [_total(one, outright) for one in pairs.guarantees(wanted)]
    if not chain.markov or math.isinf(outright.epsilon):
        return totals
    if outright.delta > 0:
        mus = [[one.mu for one in by_slot[slot]] for slot in at]
        return _by_curves(mus, at, wanted, between, totals) if min(map(min, mus)) > 0 else totals
    unit = release_losses(1.0, process.states, release)
    known = any(one.metric is not None for several in by_slot.values() for one in several)
    lifted = process if isinstance(process, LiftedChain) else None
    ageing = aged_losses if known or lifted is not None else _worst_of_all
    each = [
        Losses.of(np.sum([one.losses(unit) for one in by_slot[slot]], axis=0), ageing, lifted)
        for slot in at
    ]
    if MIXINGS[method].prior == "any":  # whatever the class given the state: about both
        each = [replace(one, lifted=None) for one in each]
    sharper = composed(each, at, wanted, between).guarantees(wanted)
    return [
        replace(total, aged=min(total.aged, one.epsilon))
        for total, one in zip(totals, sharper, strict=True)
    ]


def _by_curves(
    mus: list[list[float]],
    at: list[int],
    slots: list[int],
    between: Between,
    totals: list[Total],
) -> list[Total]:
    """Totals of Gaussian releases, those about slots after all of them by their privacy curve.

    The ε at the δ that the total has anyway, and never more than its ε.
    """
    later = [n for n, slot in enumerate(slots) if slot >= at[-1] and 0 < totals[n].aged < 300]
    ways = {n: _sticks(between, at[-1], slots[n]) for n in later}
    found = list(totals)
    for _ in range(2):  # the second time with nodes for what the first one found
        steps = [step_for(found[n].aged, ways[n](np.array([found[n].aged]))[0]) for n in later]
        if not later:
            break
        told = Curve.of_gaussian(mus[0][0], max(steps))
        for j, each in enumerate(mus):
            if j > 0:
                told = told.aged(_sticks(between, at[j - 1], at[j])(told.epsilons))
            for mu in each[0 if j else 1 :]:
                told = told.with_gaussian(mu)
        for n in later:
            most = found[n].aged
            found[n] = replace(found[n], aged=told.epsilon(totals[n].aged_delta, ways[n], most))
    return found


def _sticks(between: Between, start: int, end: int) -> Sticks:
    if start == end:
        return lambda epsilons: np.ones(len(epsilons))
    return sticks_between(between.rows(start, end), between.total_variation(start, end))


class Account(Protocol):
    """What is known of a record in some slots, several at once: all accounts are carried alike."""

    def plus(self, release: Self) -> Self:
        """With what one release more tells about these slots, or several do after them."""
        ...

    def aged(self, gap: Gap) -> Self:
        """The same about other slots, later or earlier ones."""
        ...

    def guarantees(self, about: Sequence[int]) -> list[Guarantee]:
        """The worst of it about each of the slots."""
        ...

    def chosen(self, places: Sequence[int]) -> Self:
        """What is known at some of the places; nothing where a place is −1."""
        ...

    @classmethod
    def joined(cls, several: Sequence[Self]) -> Self:
        """Several as one."""
        ...


A = TypeVar("A", bound=Account)


def composed(each: Sequence[A], at: Sequence[int], slots: Sequence[int], between: Between) -> A:
    """The account about each of `slots` of releases made in the slots `at`, which rise.

    Forward from the oldest release, and backward from the last: past and future are independent
    given the record's value in between, so that what both tell about it adds up.
    """
    before, after = [each[0]], [each[-1]]
    for j in range(1, len(at)):
        before.append(before[-1].aged(between.gap((at[j - 1], at[j]))).plus(each[j]))
    for j in range(len(at) - 2, -1, -1):
        after.append(after[-1].aged(between.gap((at[j + 1], at[j]))).plus(each[j]))
    after.reverse()
    following = [bisect_right(at, slot) for slot in slots]
    sides = []
    for told, places in (
        (before, [j - 1 for j in following]),
        (after, [j if j < len(at) else -1 for j in following]),
    ):
        pairs = [(at[j] if j >= 0 else slot, slot) for j, slot in zip(places, slots, strict=True)]
        sides.append(each[0].joined(told).chosen(places).aged(between.gap(*pairs)))
    return sides[0].plus(sides[1])


@dataclass(frozen=True)
class EpsilonDelta:
    """(ε, δ) about each of some slots `[k]`: by advanced joint convexity as records age."""

    epsilon: Array
    delta: Array

    @classmethod
    def of(cls, releases: Sequence[Release]) -> Self:
        """What the releases of one slot tell about it."""
        epsilon = math.fsum(one.classical_epsilon for one in releases)
        return cls(np.array([epsilon]), np.array([math.fsum(one.delta for one in releases)]))

    @classmethod
    def joined(cls, several: Sequence[Self]) -> Self:
        """Several as one."""
        return cls(
            np.concatenate([one.epsilon for one in several]),
            np.concatenate([one.delta for one in several]),
        )

    def chosen(self, places: Sequence[int]) -> Self:
        """What is known at some of the places; nothing where a place is −1."""
        index = np.array(places, dtype=int)
        known = index >= 0
        return type(self)(
            np.where(known, self.epsilon[index], 0.0), np.where(known, self.delta[index], 0.0)
        )

    def plus(self, release: Self) -> Self:
        """With what one release more tells about these slots."""
        return type(self)(self.epsilon + release.epsilon, self.delta + release.delta)

    def aged(self, gap: Gap) -> Self:
        """ln(1 + Δ(e^ε − 1)) and Δ·δ."""
        return self.mixed(gap.total_variation)

    def mixed(self, total_variation: ArrayLike) -> Self:
        """The same, over a gap of which Δ is known."""
        share = np.asarray(total_variation, dtype=float)
        aged = np.asarray(aged_epsilon(np.where(self.epsilon > 0, self.epsilon, 1.0), share))
        aged = np.where((self.epsilon > 0) & (share < 1), aged, self.epsilon)
        failing = share * self.delta
        lost = (failing == 0) & (self.delta > 0) & (share > 0)  # underflow makes no δ into none
        return type(self)(aged, np.where(lost, 5e-324, failing))

    def guarantees(self, about: Sequence[int]) -> list[Guarantee]:
        """Both numbers, about each of the slots."""
        each = zip(self.epsilon.tolist(), self.delta.tolist(), about, strict=True)
        return [Guarantee(*one) for one in each]


@dataclass(frozen=True)
class Losses:
    """Losses for each two states `[k, S, S]` about each of some slots (`privacy.pairwise`).

    `ageing` carries them on; of a `lifted` chain they are about its enlarged states.
    """

    matrices: Array
    ageing: Ageing = aged_losses
    lifted: LiftedChain | None = None

    @classmethod
    def of(
        cls, losses: Array, ageing: Ageing = aged_losses, lifted: LiftedChain | None = None
    ) -> Self:
        """What releases with losses `[S, S]` by the states of the process tell about their slot."""
        return cls((losses if lifted is None else lifted.spread(losses))[None], ageing, lifted)

    @classmethod
    def joined(cls, several: Sequence[Self]) -> Self:
        """Several as one."""
        return replace(several[0], matrices=np.concatenate([one.matrices for one in several]))

    def chosen(self, places: Sequence[int]) -> Self:
        """What is known at some of the places; nothing where a place is −1."""
        index = np.array(places, dtype=int)
        known = (index >= 0)[:, None, None]
        return replace(self, matrices=np.where(known, self.matrices[index], 0.0))

    def plus(self, release: Self) -> Self:
        """With what one release more tells about these slots."""
        return replace(self, matrices=self.matrices + release.matrices)

    def aged(self, gap: Gap) -> Self:
        """By the rows of the process, the worst for each two states."""
        return replace(self, matrices=gap.losses(self.matrices, self.ageing))

    def guarantees(self, about: Sequence[int]) -> list[Guarantee]:
        """The largest loss about each of the slots."""
        if self.lifted is None:
            each = self.matrices.max(axis=(1, 2), initial=0.0).tolist()
        else:
            told = zip(self.matrices, about, strict=True)
            each = [lumped_loss(losses, self.lifted, slot) for losses, slot in told]
        return [Guarantee(most, 0.0, slot) for most, slot in zip(each, about, strict=True)]


def _worst_of_all(losses: Array, rows: Rows) -> Array:
    """Above `TREES` states all pairs are given the loss of the worst: programs take seconds."""
    size = losses.shape[-1]
    if size <= TREES:
        return aged_losses(losses, rows)
    most = losses.max(axis=(1, 2))
    one_by_one = zip(rows.table, most, rows.rounding, strict=True)
    worst = np.array([float(worst_losses(k, loss, off)) for k, loss, off in one_by_one])
    return all_pairs(np.minimum(worst, most), size)


def _total(aged: Guarantee, classical: Guarantee) -> Total:
    return Total(aged.epsilon, classical.epsilon, aged.delta, classical.delta)


def gap_delta(process: Process, every: int, method: Method) -> float:
    """Δ from one collection to that of the next round, whatever the slot of the day."""
    slots = range(1, process.day + 1)
    return max(slot_delta(process, slot, slot + every, method) for slot in slots)


def composed_pair(
    gap_delta: float, age_delta: float, rounds: int, epsilon: float, failure: float
) -> tuple[float, float]:
    """Return the (ε, δ) about the present after so many releases of (`epsilon`, `failure`) each.

    `gap_delta` is the Δ from one collection to the next, `age_delta` that to the publication.
    """
    each = told = EpsilonDelta(np.array(epsilon), np.array(failure))
    for _ in range(rounds - 1):
        told = told.mixed(gap_delta).plus(each)
    told = told.mixed(age_delta)
    return float(told.epsilon), float(told.delta)


def affordable_pair(
    gap_delta: float, age_delta: float, rounds: int, epsilon: float, failure: float
) -> tuple[float, float]:
    """Return the (ε, δ) that each of so many releases may have, at a target (`epsilon`, `failure`).

    Guarantees
        `composed_pair` of what is returned is at most the target. Infinite ε where nothing of the
        record is left at the publication.
    """
    if age_delta == 0:
        return math.inf, 0.5
    share = composed_pair(gap_delta, age_delta, rounds, epsilon, 1.0)[1]
    own = min(failure / share * (1 - 1e-12), 0.5)
    low, high = 0.0, epsilon
    while composed_pair(gap_delta, age_delta, rounds, high, own)[0] <= epsilon and high < 300:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if composed_pair(gap_delta, age_delta, rounds, middle, own)[0] <= epsilon:
            low = middle
        else:
            high = middle
    return low, own


@lru_cache(maxsize=256)
def gaussian_rounds(
    process: Process, every: int, rounds: int, method: Method, target: tuple[float, float]
) -> GaussianRounds:
    """So many releases of Gaussian noise, one every so many slots, whatever the slot of the day."""
    pairs = [(slot, slot + every) for slot in range(1, process.day + 1)]
    gap = Between(process, method).gap(*pairs)
    most = gap_delta(process, every, method)
    return GaussianRounds(sticks_between(gap.rows, most), most, rounds, target)
