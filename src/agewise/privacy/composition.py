"""What several releases of one client add up to, with and without credit for ageing."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from agewise.arrays import Array
from agewise.checks import one_of, positive, whole
from agewise.errors import InvalidInput
from agewise.learning.learner import Learner
from agewise.mixing import METHODS, MIXINGS, Method, forward_delta, slot_delta
from agewise.privacy.ageing import aged_epsilon
from agewise.privacy.pairwise import (
    TREES,
    Rows,
    aged_losses,
    all_pairs,
    backward_of,
    forward_of,
    release_losses,
)
from agewise.privacy.sharp import sharp_forward, worst_losses
from agewise.process import Process
from agewise.process.joint import as_law, rounding


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
        if self.classical_epsilon != math.inf:  # a release without noise
            positive("classical_epsilon", self.classical_epsilon)
        if not 0 <= self.delta < 1:
            raise InvalidInput("delta", self.delta, "0 or more and below 1")


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

    `law` is the law of a record in the *earliest* of these slots; the later ones follow from the
    process. With `any_prior` no law matters. `release` says what those without a metric of their
    own released, as in `steady_epsilon`; by default they may be any mechanisms of their ε's.

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
    wanted = [whole("aggregate_at", slot, -(2**53)) for slot in slots]
    by_slot: dict[int, list[Release]] = {}
    for made in releases:
        by_slot.setdefault(made.collect_at, []).append(made)
    if not by_slot:
        return [Total(0.0, 0.0) for _ in wanted]
    at = sorted(by_slot)
    spent = [_Loss.sum_of(by_slot[slot]) for slot in at]
    classical = _Loss.sum_of([one for several in by_slot.values() for one in several])
    prior: Array | None = None if law is None else as_law("law", law, process.states.size)

    def between(j: int, later: int, law: Array | None, carried: float) -> float:
        delta = 1.0 if later == at[j] else slot_delta(process, at[j], later, method, law)
        return min(delta + carried, 1.0) if later > at[j] else 1.0

    if not process.markov and len(at) > 1:
        return [_total(classical, classical) for _ in wanted]
    before, priors, carried = [spent[0]], [prior], [0.0]
    for j in range(1, len(at)):
        delta = between(j - 1, at[j], prior, carried[-1])
        before.append(before[-1].aged(delta).plus(spent[j]))
        carried.append(carried[-1])
        if prior is not None:
            prior = np.asarray(prior @ process.kernel(at[j - 1], at[j]))
            prior = prior / prior.sum()
            carried[-1] += rounding(at[j] - at[j - 1], prior.size)  # Δ is off by as much at most
        priors.append(prior)
    after = [spent[-1]]
    for j in range(len(at) - 2, -1, -1):
        delta = forward_delta(process, at[j], at[j + 1])
        after.append(after[-1].aged(delta).plus(spent[j]))
    after.reverse()
    totals = []
    for slot in wanted:
        following, loss = bisect_right(at, slot), _Loss(0.0, 0.0)
        if following > 0:
            j = following - 1
            loss = before[j].aged(between(j, slot, priors[j], carried[j]))
        if following < len(at):
            delta = forward_delta(process, slot, at[following])
            loss = loss.plus(after[following].aged(delta))
        totals.append(_total(loss, classical))
    if not process.markov or classical.delta > 0 or math.isinf(classical.epsilon):
        return totals
    unit = release_losses(1.0, process.states, release)
    each = np.array([sum(one.losses(unit) for one in by_slot[slot]) for slot in at])
    known = any(one.metric is not None for several in by_slot.values() for one in several)
    ageing = aged_losses if known else _aged
    sharper = Pairs(process, method, at, priors, carried, ageing).losses(each, wanted)
    return [
        replace(total, aged=min(total.aged, loss))
        for total, loss in zip(totals, sharper, strict=True)
    ]


class Pairs:
    """The pairwise account of releases in the slots `at`, by the laws that hold there.

    `laws` (default: the process's own) are off by `carried`, relatively.
    """

    def __init__(
        self,
        process: Process,
        method: Method,
        at: list[int],
        laws: list[Array | None] | None = None,
        carried: list[float] | None = None,
        ageing: Callable[[Array, Rows], Array] = aged_losses,
    ) -> None:
        self.process, self.method, self.at, self._ageing = process, method, at, ageing
        self.laws = [None] * len(at) if laws is None else laws
        self.carried = [0.0] * len(at) if carried is None else carried
        self._rows: dict[tuple[int, int, bool], Rows] = {}

    def losses(self, each: Array, slots: list[int]) -> list[float]:
        """The loss about each of `slots`, of releases with pairwise losses `[release, S, S]`."""
        before, after = [each[0]], [each[-1]]
        for j, slot in enumerate(self.at[1:]):
            before.append(self._later(before[j][None], [j], [slot])[0] + each[j + 1])
        for j in range(len(self.at) - 2, -1, -1):
            after.append(self._earlier(after[-1][None], [j + 1], [self.at[j]])[0] + each[j])
        after.reverse()
        following = [bisect_right(self.at, slot) for slot in slots]
        total = np.zeros((len(slots), *each.shape[1:]))
        for last, known, carry in ((True, before, self._later), (False, after, self._earlier)):
            places = [(n, j - last) for n, j in enumerate(following) if 0 <= j - last < len(known)]
            if places:
                asked, releases = [n for n, _ in places], [j for _, j in places]
                losses = np.array([known[j] for j in releases])
                total[asked] += carry(losses, releases, [slots[n] for n in asked])
        return [float(most) for most in total.max(axis=(1, 2))]

    def carry(self, losses: Array, later: int) -> Array:
        """Losses `[S, S]` about the first of these slots, as they are about a later one."""
        return np.asarray(self._later(losses[None], [0], [later])[0])

    def _later(self, losses: Array, releases: list[int], slots: list[int]) -> Array:
        """Losses about the slots of some releases, as they are about the same slots or later."""
        kind = MIXINGS[self.method].sharpness
        pairs = list(zip(releases, slots, strict=True))
        if kind == "rows":
            aged = self._ageing(losses, Rows.stacked([self._row(j, slot) for j, slot in pairs]))
        else:
            deltas = [slot_delta(self.process, self.at[j], slot, self.method) for j, slot in pairs]
            most = zip(losses.max(axis=(1, 2)), deltas, strict=True)
            each = [float(sharp_forward(kind, loss, delta, None, 0.0)) for loss, delta in most]
            aged = all_pairs(np.array(each), losses.shape[-1])
        same = np.array([slot == self.at[j] for j, slot in pairs])
        return np.where(same[:, None, None], losses, aged)

    def _earlier(self, losses: Array, releases: list[int], slots: list[int]) -> Array:
        """Losses about the slots of some releases, as they are about earlier ones."""
        pairs = zip(releases, slots, strict=True)
        return self._ageing(losses, Rows.stacked([self._row(j, slot) for j, slot in pairs]))

    def _row(self, j: int, slot: int) -> Rows:
        """The rows between the slot of release j and another one; alike where gaps are."""
        start, law = self.at[j], self.laws[j]
        key = (start % self.process.day, slot - start, True)
        if law is not None and slot >= start:
            key = (start, slot, False)
        if key not in self._rows:
            self._rows[key] = (
                backward_of(self.process, start, slot, law, self.carried[j])
                if slot >= start
                else forward_of(self.process, slot, start)
            )
        return self._rows[key]


def _aged(losses: Array, rows: Rows) -> Array:
    """Above `TREES` states all pairs are given the loss of the worst: programs take seconds."""
    size = losses.shape[-1]
    if size <= TREES:
        return aged_losses(losses, rows)
    most = losses.max(axis=(1, 2))
    one_by_one = zip(rows.table, most, rows.rounding, strict=True)
    worst = np.array([float(worst_losses(k, loss, off)) for k, loss, off in one_by_one])
    return all_pairs(np.minimum(worst, most), size)


@dataclass(frozen=True)
class _Loss:
    """What is known of a record in one slot: (ε, δ), by advanced joint convexity as it ages."""

    epsilon: float
    delta: float

    @staticmethod
    def sum_of(releases: list[Release]) -> _Loss:
        return _Loss(
            math.fsum(one.classical_epsilon for one in releases),
            math.fsum(one.delta for one in releases),
        )

    def plus(self, other: _Loss) -> _Loss:
        return _Loss(self.epsilon + other.epsilon, self.delta + other.delta)

    def aged(self, delta: float) -> _Loss:
        if delta == 1:
            return self
        return _Loss(aged_epsilon(self.epsilon, delta), delta * self.delta)


def _total(aged: _Loss, classical: _Loss) -> Total:
    return Total(aged.epsilon, classical.epsilon, aged.delta, classical.delta)
