"""Claims over many rounds from readings: which chain, how far it holds, and what it is worth.

A chain on (level class, state) is fitted to the first half of the days. On the second half two
things are tested: whether older states foretell the present one better than the chain does (what is
left over), and whether adversaries who hear every noised release beat the claim. The number of
classes is the least with which they stay a standard error below it. The claim itself is then
computed from all days.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import t as student

from agewise.arrays import Array
from agewise.checks import fraction, positive, whole
from agewise.errors import InvalidInput
from agewise.fitting.defaults import CLASSICAL_EPSILONS, CONFIDENCE, MEMORY, STATES
from agewise.fitting.leftover import Leftover, left_over
from agewise.fitting.levels import (
    LOOKS_BACK,
    LevelChain,
    Rounds,
    fit_levels,
    take_rounds,
    warm_up,
)
from agewise.fitting.round_adversary import (
    RoundAttack,
    judge,
    replay_rounds,
)
from agewise.fitting.states import States
from agewise.progress import Progress
from agewise.readings import Readings

LEVELS = (1, 2, 3, 4, 6, 8)
"""Numbers of level classes that are tried in turn; one class is a first-order chain."""
FEWEST_ROUNDS = 30
"""Rounds that a back-test judges at least."""
BLOCKS = 8
"""Parts of the time that are left out in turn for limits."""
IN_DOUBT = 0.05
"""A claim that is beaten by what chance does so rarely is not said to stand."""
YEAR = 365
"""Days."""


@dataclass(frozen=True)
class Tried:
    """A number of level classes, judged on the second half of the days."""

    leftover: Leftover
    attacks: tuple[RoundAttack, ...]

    @property
    def levels(self) -> int:
        """How many level classes; 1 is a first-order chain."""
        return self.leftover.levels

    @property
    def holds(self) -> bool:
        """Whether adversaries keep to the claims.

        Where something is left over, that is: no log ratio comes within a standard error of a
        claim. Where nothing is seen to be, it may: chance does that. In any case chance has to do
        as well in 1 of 20 cases or more.
        """
        return all(
            math.isfinite(one.epsilon)
            and one.chance >= IN_DOUBT
            and not (one.reached and self.leftover.found)
            for one in self.attacks
        )


@dataclass(frozen=True)
class RoundsBacktest:
    """Chains fitted to the first half of the days, and what adversaries got on the second.

    `alone` are the claims of each entity's own first-order chain, of which `alone_high` is the 90th
    percentile, for each classical ε. `judged_rounds` is how many rounds of the second half count.
    """

    entities: int  #: how many households or meters
    fitted_rounds: int  #: rounds of the first half
    judged_rounds: int
    per_day: int  #: rounds in a day
    states: str  #: how readings were put into states
    memory: float  #: weight of the latest round in the mean that makes a level class
    left_out: tuple[tuple[str, str], ...]  #: entities left out, each with the reason
    alone: tuple[RoundAttack, ...]
    alone_high: tuple[float, ...]
    tried: tuple[Tried, ...]  #: every number of level classes that was tried

    @property
    def chosen(self) -> Tried | None:
        """The fewest classes whose claims hold; None where none do."""
        return next((one for one in self.tried if one.holds), None)

    @property
    def verdict(self) -> tuple[str, ...]:
        """What was tested and what was found, in plain words."""
        said = [
            f"Fitted to {self.fitted_rounds} rounds of {self.entities} entities, judged on the "
            f"{self.judged_rounds} after them: an adversary hears a noised release of every round; "
            f"a regression on the last {LOOKS_BACK} of them, and a filter that knows the fitted "
            "chain, call the state of the next round where they are surest."
        ]
        for one in self.tried:
            name = _named(one.levels)
            left = one.leftover
            said.append(
                f"{name}: older states foretell the next one better by {left.gain:.4f} ± "
                f"{left.standard_error:.4f} nats per round, so that "
                + ("something is left over" if left.found else "nothing is seen to be left over")
                + f"; adversaries {'keep to' if one.holds else 'reach'} the claim."
            )
        if self.chosen is None:
            said.append(
                "These readings support no claim over rounds: with every number of level classes "
                "that was tried, adversaries reached the claim. What holds is the "
                "classical total, the sum of the ε's of all releases."
            )
        return tuple(said)

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as plain data."""
        return {
            "entities": self.entities,
            "fitted_rounds": self.fitted_rounds,
            "judged_rounds": self.judged_rounds,
            "rounds_per_day": self.per_day,
            "states": self.states,
            "memory": self.memory,
            "left_out": [list(one) for one in self.left_out],
            "each_entity_first_order": [
                {**one.to_dict(), "epsilon_90th_percentile": high}
                for one, high in zip(self.alone, self.alone_high, strict=True)
            ],
            "tried": [
                {
                    "levels": one.levels,
                    "leftover": asdict(one.leftover),
                    "attacks": [attack.to_dict() for attack in one.attacks],
                    "holds": one.holds,
                }
                for one in self.tried
            ],
            "levels": None if self.chosen is None else self.chosen.levels,
            "verdict": list(self.verdict),
        }


@dataclass(frozen=True)
class RoundClaim:
    """What releases of one classical ε in every round, for ever, tell of the present state.

    `limit` is an upper limit on `epsilon` over blocks of time that are left out in turn, right as
    these grow many; there is no proven one. `classical_year` is the classical total of a year.
    """

    classical_epsilon: float
    epsilon: float
    limit: float
    classical_year: float


@dataclass(frozen=True)
class RoundsFit:
    """A chain on (level class, state) from all days, its claims, and how they were tested."""

    chain: LevelChain | None  #: None where no claim held
    claims: tuple[RoundClaim, ...]  #: for each classical ε of a release, what holds over all rounds
    confidence: float  #: with which each limit holds
    backtest: RoundsBacktest  #: how the claims were tested

    @property
    def verdict(self) -> tuple[str, ...]:
        """What was tested, what was found, and what is not proven."""
        said = [*self.backtest.verdict]
        if self.chain is not None:
            said.append(
                f"{_named(self.chain.levels)} fitted to all days. Its claim is about the present "
                "state, from releases in all rounds before, for whoever learns the level from the "
                "releases or knows it; the release of the present round adds its own ε. It assumes "
                "that (level class, state) is a Markov chain, "
                "that the days to come are like those read, and that entities are alike but for it."
            )
            said.append(
                f"The limits ({self.confidence:.0%}) allow for how parts of the time differ, and "
                "not for a chain of the wrong kind. No limit over rounds is proven for any number "
                "of days."
            )
        said.append("A law measured lag by lag gets no credit over rounds: its ε's add up.")
        return tuple(said)

    def to_dict(self) -> dict[str, Any]:
        """Return the fit as plain data."""
        return {
            "chain": None
            if self.chain is None
            else {
                **self.chain.process.to_dict(),
                "levels": self.chain.levels,
                "level_edges": self.chain.edges.tolist(),
                "state_values": self.chain.values.tolist(),
                "memory": self.chain.memory,
            },
            "confidence": self.confidence,
            "claims": [asdict(one) for one in self.claims],
            "backtest": self.backtest.to_dict(),
            "verdict": list(self.verdict),
        }


def backtest_rounds(
    readings: Readings,
    states: States | int = STATES,
    *,
    at: int = 0,
    every: int | None = None,
    levels: int | None = None,
    memory: float = MEMORY,
    classical_epsilons: Sequence[float] = CLASSICAL_EPSILONS,
    rounds: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> RoundsBacktest:
    """Fit chains on (level class, state) to the first half of the days, and judge them by the
    second.

    A release in slot `at` of each day (from 0), or `every` so many slots from there. `states` as in
    `take_rounds`, found in the first half too. `levels` classes (None: tried in turn until no
    adversary gets more than is claimed). `rounds` of the second half count (None: all).
    """
    spent = _checked_epsilons(classical_epsilons)
    warm_up(memory)
    offered = LEVELS if levels is None else (whole("levels", levels, 1),)
    taken = take_rounds(readings, states, at=at, every=every, before=0.5)
    held_out = taken.codes.shape[1] - taken.half
    if held_out < FEWEST_ROUNDS:
        raise InvalidInput(
            "readings",
            f"{held_out} rounds to judge by",
            f"{FEWEST_ROUNDS} or more in the second half",
            "Read more days, or release more often.",
        )
    judged = held_out if rounds is None else whole("rounds", rounds, FEWEST_ROUNDS, held_out)
    first = taken.part(slice(None, taken.half))
    alone = _alone(first, memory, spent)
    tried: list[Tried] = []
    own: list[RoundAttack] = []
    for number, count in enumerate(offered):
        try:
            chain = fit_levels(first, count, memory)
        except InvalidInput as refused:
            if levels is None and tried and refused.field == "levels":
                break  # levels take too few values for more classes
            raise
        attacks = []
        for which, epsilon in enumerate(spent):
            calls = replay_rounds(taken, chain, epsilon, judged=judged, seed=seed)
            claim = np.full(len(taken.entities), chain.epsilon(epsilon))
            attacks.append(judge(calls, _short(chain.levels), epsilon, claim))
            if progress is not None:
                progress(number * len(spent) + which + 1, len(offered) * len(spent))
            own.append(judge(calls, "each entity's own first order", epsilon, alone[which]))
        tried.append(Tried(left_over(taken, chain, judged), tuple(attacks)))
        if tried[-1].holds:
            break
    return RoundsBacktest(
        entities=len(taken.entities),
        fitted_rounds=taken.half,
        judged_rounds=judged,
        per_day=taken.per_day,
        states=taken.how,
        memory=memory,
        left_out=taken.left_out,
        alone=tuple(own[-len(spent) :]),
        alone_high=tuple(float(np.quantile(one, 0.9)) for one in alone),
        tried=tuple(tried),
    )


def fit_rounds(
    readings: Readings,
    states: States | int = STATES,
    *,
    at: int = 0,
    every: int | None = None,
    levels: int | None = None,
    memory: float = MEMORY,
    classical_epsilons: Sequence[float] = CLASSICAL_EPSILONS,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    progress: Progress | None = None,
) -> RoundsFit:
    """Find what releases in every round, for ever, tell of the present state of an entity.

    The arguments are those of `backtest_rounds`, which chooses the number of classes. Claims and
    their limits are then computed from all days; where no chain passes, there are none but the
    classical totals.

    Guarantees
        None that is proven for a number of days. If (level class, state) is the stationary Markov
        chain fitted, `epsilon` of a claim bounds what releases tell (`lumped_epsilon`).
    """
    fraction("confidence", confidence)
    tested = backtest_rounds(
        readings,
        states,
        at=at,
        every=every,
        levels=levels,
        memory=memory,
        classical_epsilons=classical_epsilons,
        seed=seed,
        progress=progress,
    )
    year = YEAR * tested.per_day
    if tested.chosen is None:
        none = [RoundClaim(e, math.inf, math.inf, e * year) for e in classical_epsilons]
        return RoundsFit(None, tuple(none), confidence, tested)
    taken = take_rounds(readings, states, at=at, every=every)
    count = tested.chosen.levels
    chain = fit_levels(taken, count, memory)
    parts = np.array_split(np.arange(warm_up(memory), taken.codes.shape[1]), BLOCKS)
    fewer = [fit_levels(taken.without(part), count, memory) for part in parts]
    claims = []
    for which, spent in enumerate(classical_epsilons):
        found = []
        for number, one in enumerate(fewer):
            found.append(one.epsilon(spent))
            if progress is not None:
                progress(which * BLOCKS + number + 1, BLOCKS * len(classical_epsilons))
        epsilon = chain.epsilon(spent)
        limit = epsilon + float(student.ppf(confidence, BLOCKS - 1)) * math.sqrt(
            (BLOCKS - 1) * float(np.var(found))
        )
        claims.append(RoundClaim(spent, epsilon, limit, spent * year))
    return RoundsFit(chain, tuple(claims), confidence, tested)


def _checked_epsilons(given: Sequence[float]) -> list[float]:
    if not given:
        raise InvalidInput("classical_epsilons", "none", "one or more numbers above 0")
    return [positive("classical_epsilons", one) for one in given]


def _short(levels: int) -> str:
    return "first order" if levels == 1 else f"{levels} level classes"


def _named(levels: int) -> str:
    return "A first-order chain" if levels == 1 else f"A chain with {levels} level classes"


def _alone(first: Rounds, memory: float, spent: Sequence[float]) -> list[Array]:
    """The claims of each entity's own first-order chain, for each classical ε."""
    chains = [
        fit_levels(replace(first, codes=first.codes[row : row + 1]), 1, memory)
        for row in range(len(first.entities))
    ]
    return [np.array([one.epsilon(epsilon) for one in chains]) for epsilon in spent]
