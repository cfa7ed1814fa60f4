"""Continual release: what a client that releases again and again tells, and what it may spend.

Three promises. `present`: at every publication, about the record's value then. `every_moment`:
about its value at any time, counting what was released before and after. A whole number H: at
every publication, about the values of the last H slots.

Everything here is the account of losses by pair of states (`agewise.privacy.pairwise`), carried
from round to round until it no longer grows. It needs a Markov process that is known and forgets
its past; of a lifted chain it is kept about the enlarged states and asked about the states.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from agewise.arrays import Array
from agewise.checks import one_of, positive, whole
from agewise.errors import InvalidInput, quoted
from agewise.learning.learner import Learner
from agewise.mixing import Method
from agewise.privacy.ageing import Ageing
from agewise.privacy.fixed_points import (
    LONGEST,
    SETTLED,
    Cost,
    one_more,
    output_logs,
    rounds_allowed,
    steady_likelihoods,
    steady_losses,
    told_losses,
)
from agewise.privacy.gaps import LongerGaps, Way, chain_of
from agewise.privacy.pairwise import LARGEST_LOSS, TREES, closed_losses, release_losses
from agewise.process import LiftedChain, Process
from agewise.process.chains import boolean_power
from agewise.process.joint import as_process
from agewise.progress import Progress, heard_by

Promise = Literal["present", "every_moment"] | int
LONGEST_GAP = 100_000
"""Slots between two releases, and the age of a release, are at most this many."""
COUNTED = 1000
"""So many later releases are counted one by one; of more, all there will ever be are counted."""
FEW = 30
"""Up to so many rounds every one of them is looked at with those before and after it."""


def continual_epsilon(
    process: Process,
    every: int,
    classical_epsilon: float,
    age: int = 0,
    promise: Promise = "present",
    release: Learner | ArrayLike | str | None = None,
    method: Method = "exact",
    rounds: int | None = None,
    progress: Progress | None = None,
) -> float:
    """Return the ε that a client keeps to for ever, collecting once `every` so many slots.

    Each release has `classical_epsilon` and is published `age` slots after it was collected. It is
    the mean of the states with Laplace noise, or of what a learner or a table (one row per state)
    makes of them; `release="any"`: any mechanism of that ε. `promise` is "present", "every_moment"
    or a number of slots H: what ε is about (see `agewise.privacy.continual`), and `rounds`
    how many releases there are in all (None: no end). With `any_prior` and `spectral`, earlier
    releases are carried on as one number for all pairs of states. `progress` hears how far it is
    where it takes seconds; what would take more than some minutes is refused (`Cost`).

    Of a `LiftedChain` it is about the state, for two adversaries: one who knows of the class what
    releases tell, and one who knows the class in that slot. Somebody who knows *something* of it
    from elsewhere, and not all, is not covered. With `any_prior` it is about the enlarged state.

    Guarantees
        An upper bound at every one of infinitely many publications, for a Markov process and the
        adversary of `method`; in a process that depends on the slot of the day, whichever slot the
        first release is in. Infinite where no bound was found.

    >>> from agewise import birth_death
    >>> chain = birth_death(up=0.4, down=0.4, states=[20, 50, 100, 200])
    >>> round(continual_epsilon(chain, every=1, classical_epsilon=0.1), 4)
    0.2356
    >>> round(continual_epsilon(chain, every=1, classical_epsilon=0.1, promise="every_moment"), 4)
    0.3712
    """
    spent = positive("classical_epsilon", classical_epsilon)
    plan = Rounds.checked(process, every, age, promise, method, rounds)
    with heard_by(progress):
        return plan.epsilon(plan.losses(spent, release))


def reached_epsilon(
    process: Process,
    every: int,
    classical_epsilon: float,
    age: int = 0,
    promise: Promise = "present",
    release: Learner | ArrayLike | str | None = None,
    method: Method = "exact",
    rounds: int | None = None,
) -> float:
    """Return a lower bound on what `continual_epsilon` bounds from above, in no time.

    It says how tight the account is, not what is private: some string of outputs, one and the same
    again and again, tells so much (`agewise.privacy.fixed_points`), and others may tell more. The
    arguments are those of `continual_epsilon`.

    Guarantees
        Never above what some string of outputs tells somebody who knows the process: of this
        mechanism for Laplace noise on a mean or a table, of some mechanism of that ε for "any".
        So never above `continual_epsilon`.

    >>> from agewise import birth_death
    >>> chain = birth_death(up=0.4, down=0.4, states=[20, 50, 100, 200])
    >>> round(reached_epsilon(chain, every=1, classical_epsilon=0.1), 4)    # of 0.2356 at most
    0.2239
    """
    spent = positive("classical_epsilon", classical_epsilon)
    plan = Rounds.checked(process, every, age, promise, method, rounds)
    return plan.reached(output_logs(plan.losses(spent, release), isinstance(release, str)))


def estimated_seconds(
    process: Process,
    every: int,
    classical_epsilon: float,
    age: int = 0,
    promise: Promise = "present",
    release: Learner | ArrayLike | str | None = None,
    method: Method = "exact",
    rounds: int | None = None,
) -> float:
    """Return about how long `continual_epsilon` takes with these arguments, reckoned high.

    0 for the few states of which every case is tried: milliseconds.
    """
    spent = positive("classical_epsilon", classical_epsilon)
    plan = Rounds.checked(process, every, age, promise, method, rounds)
    return plan.cost(plan.losses(spent, release)).seconds


def per_release_epsilon(
    process: Process,
    every: int,
    epsilon: float,
    age: int = 0,
    promise: Promise = "present",
    release: Learner | ArrayLike | str | None = None,
    method: Method = "exact",
    rounds: int | None = None,
    progress: Progress | None = None,
) -> float:
    """Return the classical ε that each release may have, for ever, at a target of `epsilon`.

    The inverse of `continual_epsilon`, whose arguments it takes, with the same defaults.

    Guarantees
        `continual_epsilon` of what is returned is at most `epsilon`, and short of it by a millionth
        at most. Infinite where no noise is needed; 0 where no ε was found to do.

    >>> from agewise import birth_death
    >>> chain = birth_death(up=0.1, down=0.2, states=[20, 50, 100, 200])
    >>> round(per_release_epsilon(chain, every=10, epsilon=0.1), 4)
    0.0842
    >>> round(per_release_epsilon(chain, every=10, epsilon=0.1, promise="every_moment"), 4)
    0.0728
    """
    target = positive("epsilon", epsilon)
    plan = Rounds.checked(process, every, age, promise, method, rounds)
    unit = plan.losses(1.0, release)
    if unit.max() == 0 or plan.without_noise() <= target:
        return math.inf
    with heard_by(progress):
        if plan.process.states.size <= TREES:
            return _inverse(plan, unit, target, target)
        likely = _inverse_of_reached(plan, unit, target, isinstance(release, str))
        spent = _inverse(plan, unit, target, likely)
        # The search went on from what it had found before: the last word has one that did not.
        while spent > 0 and replace(plan).epsilon(spent * unit) > target:
            spent *= 1 - 1e-7
        return spent


def _inverse_of_reached(plan: Rounds, unit: Array, target: float, anything: bool) -> float:
    """The ε at which the lower bound meets the target: a little too large."""
    low, high = 0.0, target
    while high < LARGEST_LOSS and plan.reached(output_logs(high * unit, anything)) < target:
        low, high = high, 2 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        if plan.reached(output_logs(middle * unit, anything)) < target:
            low = middle
        else:
            high = middle
    return high


def _inverse(plan: Rounds, unit: Array, target: float, first: float) -> float:
    """The largest ε that keeps to the target, from below, looking at `first` first."""
    low, short, high = 0.0, target, first
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
        not assumed. Never below `continual_epsilon`, but for the tolerance of both (about 1e-8).

    >>> from agewise import birth_death
    >>> chain = birth_death(up=0.1, down=0.2, states=[20, 50, 100, 200])
    >>> round(rule_epsilon(chain, every=10, classical_epsilon=0.1, promise="every_moment"), 4)
    0.1375
    """
    spent = positive("classical_epsilon", classical_epsilon)
    one_of("promise", promise, ("present", "every_moment"))
    rounds = Rounds.checked(process, every, age, promise, method)
    return rounds.rule(rounds.losses(spent, release))


def rule_bound(process: Process, every: int, losses: Array, method: Method = "exact") -> float:
    """`rule_epsilon` about every moment, of releases whose pairwise losses are at most these."""
    rounds = Rounds.checked(process, every, 0, "every_moment", method)
    return rounds.rule(losses if rounds.lifted is None else rounds.lifted.spread(losses))


@dataclass(frozen=True)
class Rounds:
    """A client that releases once in so many slots, and what is promised of it."""

    process: Process  #: of a lifted chain the one on enlarged states
    every: int
    age: int
    promise: Promise
    method: Method
    rounds: int | None = None
    lifted: LiftedChain | None = None

    @staticmethod
    def checked(
        process: Process,
        every: int,
        age: int,
        promise: Promise,
        method: Method,
        rounds: int | None = None,
    ) -> Rounds:
        as_process(process)
        whole("every", every, 1, LONGEST_GAP)
        whole("age", age, 0, LONGEST_GAP)
        one_of("method", method, ("exact", "any_prior", "spectral"))
        check_promise(promise)
        if rounds is not None:
            whole("rounds", rounds, 1)
        lifted = process if isinstance(process, LiftedChain) else None
        if lifted is None and (rounds != 1 or promise != "present"):
            check_lasting(process, rounds)
        return Rounds(chain_of(process), int(every), int(age), promise, method, rounds, lifted)

    def losses(self, epsilon: float, release: Learner | ArrayLike | str | None) -> Array:
        """The pairwise losses `[S, S]` of one release of this classical ε."""
        if self.lifted is None:
            return release_losses(epsilon, self.process.states, release)
        return self.lifted.spread(release_losses(epsilon, self.lifted.states, release))

    def _known(self, way: Way, each: Array) -> Array:
        """What all releases so far tell at the last of them, however many there are at most."""
        if self.rounds is None or self.rounds > COUNTED:
            return self._for_ever(way, each)
        losses = each
        for _ in range(self.rounds - 1):  # it never falls from round to round
            following = way(losses)[0] + each
            if (following <= losses * (1 + 1e-12)).all():
                return self._for_ever(way, each)
            losses = following
        return losses

    def _for_ever(self, way: Way | LongerGaps, each: Array) -> Array:
        """A bound on what any number of releases tell at the last of them."""
        gaps, age, guess = (
            (way.way, way.worst, way.guess)
            if isinstance(way, LongerGaps)
            else (way, lambda losses: way(losses)[0], lambda losses: way.guess(losses)[0])
        )
        if not gaps.searches:
            return steady_losses(age, each)
        most = float(each.max())
        gaps.trees.stray = 1e-10 * most
        start = None if gaps.start is None else gaps.start * (most / float(gaps.start.max()))
        cost = self.cost(each[0])
        found = steady_losses(age, each, guess, start, cost.tell)
        gaps.start = None if math.isinf(found.max()) else found
        return found

    def cost(self, release: Array, gaps: int = 1) -> Cost:
        """What the bound of such releases takes, about."""
        size, day = self.process.states.size, self.process.day
        if size <= TREES:
            return Cost(size, 0, 0)
        both = self._asked_before > 0
        back, outputs = self._exact.back.next, output_logs(release)
        string = steady_likelihoods(back, outputs, day, rounds_allowed(size))[1]
        rounds = string if self.rounds is None else min(string, self.rounds)
        return Cost(size, rounds * (1 + both), day * (2 + 2 * self.every * both), day * gaps)

    @property
    def _asked_before(self) -> float:
        """Slots before the last collection that are asked about."""
        back = {"present": 0, "every_moment": math.inf}.get(str(self.promise), self.promise)
        return float(back) - self.age

    @property
    def _later(self) -> Array:
        """How many later releases count: the next one is 1, 2, ..., `every` slots away."""
        later = 1 + (min(self._asked_before, 2.0**53) - np.arange(1, self.every + 1)) // self.every
        return np.asarray(np.minimum(later, (self.rounds or math.inf) - 1))

    def epsilon(self, release: Array) -> float:
        """The bound for ever, of releases with these pairwise losses."""
        release = closed_losses(release[None])[0]
        self.cost(release).check()
        each = np.broadcast_to(release, (self.process.day, *release.shape))
        known = self._known(self.back, each)
        worst = math.inf if math.isinf(known.max()) else self._published.worst(known)
        if self._asked_before <= 0 or math.isinf(worst):
            return worst
        most = math.inf
        if self.rounds is not None and self.rounds <= FEW:
            most = self._at_any_time(each)
        before, told, later = self._before(known), each, self._later
        if later.max() > COUNTED:
            told = self._for_ever(self._fore, each)
            return min(most, max(worst, self._about(before + self._after(told))))
        for number in range(1, int(later.max()) + 1):
            asked = later == number
            if asked.any():
                worst = max(worst, self._about((before + self._after(told))[asked]))
            told = self._fore(told)[0] + each
        return min(most, worst)

    def _about(self, losses: Array) -> float:
        """The worst of losses `[..., day, S, S]` about slots of the day that are asked about."""
        return math.inf if math.isinf(losses.max(initial=0.0)) else self._published.about(losses)

    def _at_any_time(self, each: Array) -> float:
        """What a few releases tell about any slot, those before and after it counted."""
        back, fore = [each], [each]
        for _ in range(1, self.rounds or 1):
            back.append(self.back(back[-1])[0] + each)
            fore.append(self._fore(fore[-1])[0] + each)
        worst = max(self._about(back[-1]), self._about(fore[-1]))
        for one, other in zip(back[:-1], reversed(fore[:-1]), strict=True):
            worst = max(worst, self._about(self._before(one) + self._after(other)))
        return worst

    def rule(self, release: Array) -> float:
        """The bound for every sequence of releases at this gap or longer ones."""
        release = closed_losses(release[None])[0]
        each = np.broadcast_to(release, (self.process.day, *release.shape))
        self.cost(release).check()
        first = self.every if self.promise == "present" else 0
        back = LongerGaps(self.process, self.every, self.method, first)
        self.cost(release, back.way.gaps).check()
        known = self._for_ever(back, each)
        if self.promise == "present" or math.isinf(known.max()):
            return float(self._published(known).max())
        fore = LongerGaps(self.process, self.every, None, first)
        told = self._for_ever(fore, each)
        # A release r slots ago or longer, and the next one in every − r slots or later.
        before, after = back.at_least(known), fore.at_least(told)
        return max(self._about(before[r] + after[self.every - r]) for r in range(self.every))

    def reached(self, outputs: Array) -> float:
        """What some of these outputs `[O, S]`, released again and again, tell: a lower bound."""
        exact, day = self._exact, self.process.day
        later = exact._later if self._asked_before > 0 else np.zeros(self.every)
        most = LONGEST
        if self.rounds is not None:
            later = np.minimum(later, self.rounds // 2)
            most = self.rounds - int(later.max())
        known, _ = steady_likelihoods(exact.back.next, outputs, day, most)
        worst = max(float(told_losses(one).max()) for one in exact._published.told(known))
        if self._asked_before > 0 and self.lifted is None:
            before = told_losses(exact._before.carry(known))
            each = np.broadcast_to(np.exp(outputs), known.shape)
            told = each
            if later.max() > COUNTED:
                told, _ = steady_likelihoods(exact._fore.next, outputs, day)
                later = np.ones(self.every)
            for number in range(int(later.max()) + 1):
                asked = later == number
                if asked.any() and number == 0:
                    worst = max(worst, float(before[asked].max()))
                elif asked.any():
                    after = told_losses(exact._after.carry(told))
                    worst = max(worst, float((before + after)[asked].max()))
                told = told if number == 0 else one_more(exact._fore.next, told, each)
        return worst * (1 - SETTLED)  # whatever was rounded on the way

    @cached_property
    def _exact(self) -> Rounds:
        """The same with the law that the process has, if any is covered."""
        return self if self.method == "exact" else replace(self, method="exact")

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
    def back(self) -> Way:
        """From one collection to the next."""
        return Way(self.process, [self.every], self.method)

    @cached_property
    def _fore(self) -> Way:
        return Way(self.process, [self.every], None)

    @cached_property
    def _published(self) -> Way:
        """About the present, or the slot of collection if that is asked about, too."""
        asked = {"present": 0, "every_moment": self.age}
        back = asked[self.promise] if isinstance(self.promise, str) else int(self.promise)
        oldest = min(back, self.age)
        return Way(self.process, [self.age - oldest], self.method, self.lifted)

    @cached_property
    def _before(self) -> Way:
        return Way(self.process, range(self.every - 1, -1, -1), self.method)

    @cached_property
    def _after(self) -> Way:
        return Way(self.process, range(1, self.every + 1), None)


def check_promise(promise: Promise) -> None:
    """Refuse what is no promise."""
    if not isinstance(promise, str):
        whole("promise", promise, 0)
    elif promise not in ("present", "every_moment"):
        allowed = "present, every_moment or a whole number of slots"
        raise InvalidInput("promise", quoted(promise), allowed)


def check_lasting(process: Process, rounds: int | None = None) -> None:
    """Refuse a process of which nothing bounds what releases tell together, or later on."""
    if not process.markov:
        raise InvalidInput(
            "process",
            f"a {process.kind} law, known lag by lag only",
            "a Markov process",
            "Plan one round with the promise present. Several releases of such a client get no "
            "credit for ageing: their ε's add up.",
        )
    if rounds == 1:
        return
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
            "Nothing bounds continual release. Drop states never visited, or count the releases "
            "with composed_epsilon.",
        )
