"""For ever: what a client that releases again and again tells, and what it may spend each time.

Three promises. `present`: at every publication, about the record's value then. `every_moment`:
about its value at any time, counting what was released before and after. A whole number H: at
every publication, about the values of the last H slots.

Everything here is the pairwise account of `agewise.privacy.pairwise`, and needs a Markov process
that is known and forgets its past.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from agewise.arrays import Array
from agewise.checks import one_of, positive, whole
from agewise.errors import InvalidInput
from agewise.learning.learner import Learner
from agewise.mixing import MIXINGS, Method, slot_delta
from agewise.privacy.pairwise import (
    LARGEST_LOSS,
    Rows,
    aged_losses,
    all_pairs,
    backward_of,
    forward_of,
    release_losses,
    steady_losses,
)
from agewise.privacy.sharp import Ageing, sharp_forward
from agewise.process import Process
from agewise.process.chain import boolean_power

Promise = Literal["present", "every_moment"] | int
LONGEST_GAP = 100_000
"""Slots between two releases, and the age of a release, are at most this many."""
COUNTED = 1000
"""So many later releases are counted one by one; of more, all there will ever be are counted."""
FEW = 30
"""Up to so many rounds every one of them is looked at with those before and after it."""
GAPS = 4096
"""Gaps that a rule is checked for one by one, over all slots of the day."""


def steady_epsilon(
    process: Process,
    every: int,
    classical_epsilon: float,
    age: int = 0,
    promise: Promise = "present",
    release: Learner | ArrayLike | str | None = None,
    method: Method = "exact",
    rounds: int | None = None,
) -> float:
    """Return the ε that a client keeps to for ever, collecting once `every` so many slots.

    Each release has `classical_epsilon` and is published `age` slots after it was collected. It is
    the mean of the states with Laplace noise, or of what a learner or a table (one row per state)
    makes of them; `release="any"`: any mechanism of that ε. `promise` is "present", "every_moment"
    or a number of slots H: what ε is about (see `agewise.privacy.steady`), and `rounds`
    how many releases there are in all (None: no end). With `any_prior` and `spectral`, earlier
    releases are carried on as one number for all pairs of states.

    Guarantees
        An upper bound at every one of infinitely many publications, for a Markov process and the
        adversary of `method`; in a process that depends on the slot of the day, whichever slot the
        first release is in. Infinite where no bound was found.

    >>> from agewise import birth_death
    >>> chain = birth_death(up=0.4, down=0.4, states=[20, 50, 100, 200])
    >>> round(steady_epsilon(chain, every=1, classical_epsilon=0.1), 4)
    0.2356
    >>> round(steady_epsilon(chain, every=1, classical_epsilon=0.1, promise="every_moment"), 4)
    0.3712
    """
    spent = positive("classical_epsilon", classical_epsilon)
    plan = _Rounds.checked(process, every, age, promise, method, rounds)
    return plan.epsilon(release_losses(spent, process.states, release))


def affordable_epsilon(
    process: Process,
    every: int,
    epsilon: float,
    age: int = 0,
    promise: Promise = "every_moment",
    release: Learner | ArrayLike | str | None = None,
    method: Method = "exact",
    rounds: int | None = None,
) -> float:
    """Return the classical ε that each release may have, for ever, at a target of `epsilon`.

    The inverse of `steady_epsilon`, whose arguments it takes.

    Guarantees
        `steady_epsilon` of what is returned is at most `epsilon`, and one that is 0.01 % larger
        is above it. Infinite where no noise is needed; 0 where no ε was found to do.

    >>> from agewise import birth_death
    >>> chain = birth_death(up=0.1, down=0.2, states=[20, 50, 100, 200])
    >>> round(affordable_epsilon(chain, every=10, epsilon=0.1), 4)
    0.0728
    >>> round(affordable_epsilon(chain, every=10, epsilon=0.1, promise="present"), 4)
    0.0842
    """
    target = positive("epsilon", epsilon)
    plan = _Rounds.checked(process, every, age, promise, method, rounds)
    unit = release_losses(1.0, process.states, release)
    if unit.max() == 0 or plan.without_noise() <= target:
        return math.inf
    low, short, high = 0.0, target, target
    over = plan.epsilon(high * unit) - target
    while over <= 0 and high < LARGEST_LOSS:
        low, short, high = high, -over, 2 * high
        over = plan.epsilon(high * unit) - target
    for step in range(200):
        if high - low <= 1e-7 * high:
            break
        if high < 1e-6 * target:
            return 0.0
        # The loss is all but proportional to ε: where a straight line meets the target, a little
        # to either side in turn, so that both ends close in; now and then the middle.
        near = low + (high - low) * short / (short + over) if math.isfinite(over) else low
        near *= 1 - 4e-8 if step % 2 else 1 + 4e-8
        middle = near if low < near < high and step % 5 else (low + high) / 2
        excess = plan.epsilon(middle * unit) - target
        if excess <= 0:
            low, short = middle, -excess
        else:
            high, over = middle, excess
    return low


def rule_epsilon(
    process: Process,
    every: int,
    classical_epsilon: float,
    age: int = 0,
    promise: Literal["present", "every_moment"] = "present",
    release: Learner | ArrayLike | str | None = None,
    method: Method = "exact",
) -> float:
    """Return the ε of a rule that a client can be held to without knowing the future.

    The rule: at most one release in any `every` slots in a row, each of at most
    `classical_epsilon`, published `age` slots after its collection or later.

    Guarantees
        An upper bound for every sequence of releases that keeps to the rule, at whatever gaps. It
        lets each pair of states have its worst gap in each round; that longer gaps never hurt is
        not assumed. Never below `steady_epsilon`, but for the tolerance of both (about 1e-8).

    >>> from agewise import birth_death
    >>> chain = birth_death(up=0.1, down=0.2, states=[20, 50, 100, 200])
    >>> round(rule_epsilon(chain, every=10, classical_epsilon=0.1, promise="every_moment"), 4)
    0.1375
    """
    spent = positive("classical_epsilon", classical_epsilon)
    one_of("promise", promise, ("present", "every_moment"))
    rounds = _Rounds.checked(process, every, age, promise, method)
    return rounds.rule(release_losses(spent, process.states, release))


def rule_bound(process: Process, every: int, losses: Array, method: Method = "exact") -> float:
    """`rule_epsilon` about every moment, of releases whose pairwise losses are at most these."""
    return _Rounds.checked(process, every, 0, "every_moment", method).rule(losses)


class _Way:
    """How losses about one slot become losses about another: one way in time, at several gaps."""

    def __init__(self, process: Process, gaps: Sequence[int], method: Method | None) -> None:
        """`method` None: forwards, from a later slot to an earlier one, whatever the prior."""
        slots, sign = range(1, process.day + 1), 1 if method is None else -1
        self._source = np.array([[(s - 1 + sign * g) % process.day for s in slots] for g in gaps])
        self._rows: Rows | None = None
        self._method = method
        pairs = [(s, g) for g in gaps for s in slots]
        if method is None:
            self._rows = Rows.stacked([forward_of(process, s, s + g) for s, g in pairs])
        elif MIXINGS[method].sharpness == "rows":
            self._rows = Rows.stacked([backward_of(process, s - g, s) for s, g in pairs])
        else:
            self._deltas = [slot_delta(process, s - g, s, method) for s, g in pairs]

    def __call__(self, losses: Array) -> Array:
        """Losses `[gaps, day, S, S]` about each slot of the day, from `[day, S, S]`."""
        moved = losses[self._source]
        flat = moved.reshape(-1, *losses.shape[-2:])
        if self._rows is not None:
            return aged_losses(flat, self._rows).reshape(moved.shape)
        kind = MIXINGS[self._method or "exact"].sharpness
        aged = [
            sharp_forward(kind, np.asarray(most), delta, None, 0.0)
            for most, delta in zip(flat.max(axis=(1, 2)), self._deltas, strict=True)
        ]
        return all_pairs(np.array(aged), losses.shape[-1]).reshape(moved.shape)


@dataclass(frozen=True)
class _Rounds:
    """A client that releases once in so many slots, and what is promised of it."""

    process: Process
    every: int
    age: int
    promise: Promise
    method: Method
    rounds: int | None = None

    @staticmethod
    def checked(
        process: Process,
        every: int,
        age: int,
        promise: Promise,
        method: Method,
        rounds: int | None = None,
    ) -> _Rounds:
        whole("every", every, 1, LONGEST_GAP)
        whole("age", age, 0, LONGEST_GAP)
        one_of("method", method, ("exact", "any_prior", "spectral"))
        check_promise(promise)
        if rounds is not None:
            whole("rounds", rounds, 1)
        if rounds != 1:
            check_lasting(process)
        return _Rounds(process, int(every), int(age), promise, method, rounds)

    def _known(self, way: _Way, each: Array) -> Array:
        """What all releases so far tell at the last of them, however many there are at most."""
        if self.rounds is None or self.rounds > COUNTED:
            return steady_losses(lambda losses: way(losses)[0], each)
        losses = each
        for _ in range(self.rounds - 1):  # it never falls from round to round
            following = way(losses)[0] + each
            if (following <= losses * (1 + 1e-12)).all():
                return steady_losses(lambda one: way(one)[0], each)
            losses = following
        return losses

    def epsilon(self, release: Array) -> float:
        """The bound for ever, of releases with these pairwise losses."""
        each = np.broadcast_to(release, (self.process.day, *release.shape))
        known = self._known(self._back, each)
        worst = float(self._published(known).max())
        back = {"present": 0, "every_moment": math.inf}.get(str(self.promise), self.promise)
        reach = float(back) - self.age  # slots before the last collection that are asked about
        if reach <= 0 or math.isinf(worst):
            return worst
        most = math.inf
        if self.rounds is not None and self.rounds <= FEW:
            most = self._at_any_time(each)
        before, told = self._before(known), each
        # In place p the next release is p slots away, and this is how many of them count.
        later = 1 + (min(reach, 2.0**53) - np.arange(1, self.every + 1)) // self.every
        if self.rounds is not None:
            later = np.minimum(later, self.rounds - 1)
        if later.max() > COUNTED:
            told = steady_losses(lambda losses: self._fore(losses)[0], each)
            return min(most, max(worst, float((before + self._after(told)).max())))
        for number in range(1, int(later.max()) + 1):
            asked = later == number
            if asked.any():
                worst = max(worst, float((before + self._after(told))[asked].max()))
            told = self._fore(told)[0] + each
        return min(most, worst)

    def _at_any_time(self, each: Array) -> float:
        """What a few releases tell about any slot, those before and after it counted."""
        back, fore = [each], [each]
        for _ in range(1, self.rounds or 1):
            back.append(self._back(back[-1])[0] + each)
            fore.append(self._fore(fore[-1])[0] + each)
        worst = max(float(back[-1].max()), float(fore[-1].max()))
        for one, other in zip(back[:-1], reversed(fore[:-1]), strict=True):
            worst = max(worst, float((self._before(one) + self._after(other)).max()))
        return worst

    def rule(self, release: Array) -> float:
        """The bound for every sequence of releases at this gap or longer ones."""
        each = np.broadcast_to(release, (self.process.day, *release.shape))
        first = self.every if self.promise == "present" else 0
        back = _Gaps(self.process, self.every, self.method, first)
        known = steady_losses(back.worst, each)
        if self.promise == "present" or math.isinf(known.max()):
            return float(self._published(known).max())
        fore = _Gaps(self.process, self.every, None, first)
        told = steady_losses(fore.worst, each)
        # A release r slots ago or longer, and the next one in every − r slots or later.
        before, after = back.at_least(known), fore.at_least(told)
        both = [before[r] + after[self.every - r] for r in range(self.every)]
        return float(max(one.max() for one in both))

    def without_noise(self) -> float:
        """The ε of releases that have no noise: they hide what was released before them."""
        asked = {"present": self.age, "every_moment": 0}
        gap = asked[self.promise] if isinstance(self.promise, str) else self.age - self.promise
        if gap <= 0:
            return math.inf
        slots = range(gap + 1, gap + 1 + self.process.day)
        ages = [Ageing(self.process, gap, self.method, aggregate_at=slot) for slot in slots]
        return max(age.aged_epsilon(math.inf) for age in ages)

    @cached_property
    def _back(self) -> _Way:
        return _Way(self.process, [self.every], self.method)

    @cached_property
    def _fore(self) -> _Way:
        return _Way(self.process, [self.every], None)

    @cached_property
    def _published(self) -> _Way:
        """About the present, or the slot of collection if that is asked about, too."""
        asked = {"present": 0, "every_moment": self.age}
        back = asked[self.promise] if isinstance(self.promise, str) else int(self.promise)
        oldest = min(back, self.age)
        return _Way(self.process, [self.age - oldest], self.method)

    @cached_property
    def _before(self) -> _Way:
        return _Way(self.process, range(self.every - 1, -1, -1), self.method)

    @cached_property
    def _after(self) -> _Way:
        return _Way(self.process, range(1, self.every + 1), None)


class _Gaps:
    """Losses at a gap of so many slots or more, each pair of states at its worst gap.

    Rows at a long gap are mixtures of the rows at any shorter one that starts in the same slot, so
    that beyond the last gap tried no pair loses more than the worst pair did there.
    """

    def __init__(self, process: Process, least: int, method: Method | None, first: int) -> None:
        ones, more = all_pairs(np.ones(process.day), process.states.size), 1
        while more * process.day < GAPS:
            if _Way(process, [least + more], method)(ones).max() < 1e-6:
                break
            more *= 2
        self._place, self._way = (
            least - first,
            _Way(process, range(first, least + more + 1), method),
        )

    def at_least(self, losses: Array) -> Array:
        """Losses `[gap, day, S, S]` at each gap from the first on, or at any longer one."""
        aged = self._way(losses)
        beyond = all_pairs(np.full(1, aged[-1].max()), losses.shape[-1])
        aged[-1] = np.maximum(aged[-1], beyond)
        return np.asarray(np.maximum.accumulate(aged[::-1], axis=0)[::-1])

    def worst(self, losses: Array) -> Array:
        """Losses at the gap of the rule or at any longer one."""
        return np.asarray(self.at_least(losses)[self._place])


def check_promise(promise: Promise) -> None:
    """Refuse what is no promise."""
    if promise not in ("present", "every_moment"):
        if isinstance(promise, str):
            raise InvalidInput(
                "promise", repr(promise), "present, every_moment or a whole number of slots"
            )
        whole("promise", promise, 0)


def check_lasting(process: Process) -> None:
    """Refuse a process of which releases could tell more and more for ever."""
    if not process.markov:
        raise InvalidInput(
            "process",
            f"a {process.kind} law, known lag by lag only",
            "a Markov process",
            "Several releases of such a client get no credit for ageing: their ε's add up.",
        )
    chain = process.homogeneous
    if chain is not None:
        forgets = chain.is_ergodic
    else:
        size = process.states.size
        day = process.reachable(1, 1 + process.day)
        forgets = bool(boolean_power(day, (size - 1) ** 2 + 1).all(axis=0).any())
    if not forgets:
        raise InvalidInput(
            "process",
            "one that never forgets where it started",
            "an ergodic chain: every state leads to every other, with no fixed rhythm",
            "There is no bound for ever. Drop states never visited, or count the releases with "
            "composed_epsilon.",
        )
