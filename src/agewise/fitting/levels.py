"""Chains on (level class, state): a habit that releases teach, made part of the state.

The level of an entity is an exponential mean of its own *past* states, and its class the quantile
that the level falls into. Present and later states have no part in it: a centred mean or median
would make past and present dependent where they are not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.checks import fraction, whole
from agewise.errors import InvalidInput
from agewise.fitting.defaults import MEMORY
from agewise.fitting.laws import Codes, fit_chain, fit_periodic, tally
from agewise.fitting.states import States
from agewise.privacy.continual import continual_epsilon
from agewise.process import LiftedChain, MarkovChain, PeriodicChain
from agewise.readings import Readings

LOOKS_BACK = 28
"""Rounds that the tests look back; no round before has a history to judge by."""
TINY = 1e-20
"""What was never seen may happen so often."""
MOST_PAIRS = 60
"""Pairs (class, state) for which losses are computed in minutes."""


@dataclass(frozen=True)
class Rounds:
    """States of entities at every release `[entity, round]`, −1 where there is no reading."""

    entities: tuple[str, ...]
    codes: Codes
    values: Array
    """What each state is released as."""
    per_day: int
    how: str
    left_out: tuple[tuple[str, str], ...] = ()

    def part(self, rounds: slice) -> Rounds:
        """Some of the rounds; begin with a whole day."""
        return replace(self, codes=self.codes[:, rounds])

    def without(self, rounds: NDArray[np.intp]) -> Rounds:
        """All rounds but some, which become gaps."""
        codes = self.codes.copy()
        codes[:, rounds] = -1
        return replace(self, codes=codes)

    @property
    def half(self) -> int:
        """Where the second half of the days begins."""
        return int(self.codes.shape[1] // self.per_day // 2 * self.per_day)


def take_rounds(
    readings: Readings,
    states: States | int,
    *,
    at: int = 0,
    every: int | None = None,
    before: float = 1.0,
) -> Rounds:
    """States at slot `at` of each day (from 0), and every so many slots from there.

    `states` are levels for everybody, or a number of states: then equally frequent ones in each
    entity by itself, released as their numbers. These are found in the first `before` of the days.
    Entities that are in one state throughout them are left out, by name.
    """
    step = readings.day if every is None else whole("every", every, 1, readings.day)
    if readings.day % step:
        raise InvalidInput("every", f"{step} slots", f"a divisor of the {readings.day} slots a day")
    first = (whole("at", at, 0, readings.day - 1) - readings.first_of_day) % readings.day
    values = readings.values[:, first::step]
    days = values.shape[1] * step // readings.day
    seen = values[:, : max(1, int(days * before)) * (readings.day // step)]
    if isinstance(states, States):
        codes, how, levels = states.index(values), states.how, states.values
    else:
        count = whole("states", states, 2, 20)
        shares = np.arange(1, count) / count
        edges = np.nanquantile(
            np.where(np.isfinite(seen).any(axis=1, keepdims=True), seen, 0.0), shares, axis=1
        )
        above = (values[None] > edges[:, :, None]).sum(axis=0)
        codes = np.where(np.isfinite(values), above, -1).astype(np.int8)
        how, levels = f"{count}, equally frequent in each entity", np.arange(count, dtype=float)
    known = codes[:, : seen.shape[1]]
    still = np.array([np.unique(one[one >= 0]).size < 2 for one in known])
    if 2 * still.sum() > still.size:
        raise InvalidInput(
            "readings",
            f"{still.sum()} of {still.size} entities in one state throughout",
            "half of them at most",
            "Choose other states, or another time of day.",
        )
    names = np.array(readings.entities)
    return Rounds(
        tuple(names[~still].tolist()),
        codes[~still],
        levels,
        readings.day // step,
        how,
        tuple((name, "always in the same state") for name in names[still].tolist()),
    )


def past_levels(codes: Codes, states: int, memory: float = MEMORY) -> Array:
    """The exponential mean of the states before each round, from 0 to 1; 1/2 before the first."""
    weight = fraction("memory", memory, with_one=True)
    levels = np.empty(codes.shape)
    level = np.full(len(codes), 0.5)
    for number, state in enumerate(codes.T):
        levels[:, number] = level
        moved = (1 - weight) * level + weight * state / (states - 1)
        level = np.where(state >= 0, moved, level)
    return levels


def warm_up(memory: float) -> int:
    """Rounds before a level is more than what it was begun with."""
    return max(LOOKS_BACK, math.ceil(1 / fraction("memory", memory, with_one=True)))


@dataclass(frozen=True)
class LevelChain:
    """A chain on (level class, state); pair c·S + s is class c, state s. One: first order."""

    process: MarkovChain | PeriodicChain
    edges: Array
    values: Array
    memory: float

    @property
    def levels(self) -> int:
        """How many level classes there are."""
        return self.edges.size + 1

    def pairs(self, codes: Codes) -> Codes:
        """The pair of each entity in each round, −1 where there is no reading."""
        return _pairs(codes, self.edges, self.values.size, self.memory)

    def epsilon(self, classical_epsilon: float) -> float:
        """The claim: of releases in all rounds before, for ever, about the present state."""
        groups = np.tile(np.arange(self.values.size), self.levels)
        lifted = LiftedChain(self.process, groups, self.values)
        return continual_epsilon(lifted, 1, classical_epsilon, age=1)

    @cached_property
    def foretold(self) -> Array:
        """ln P(next state | pair) by round of the day `[round, pair, state]`."""
        moves = [self.process.kernel(k, k + 1) for k in range(1, self.process.day + 1)]
        by_state = np.stack(moves).reshape(
            self.process.day, self.levels * self.values.size, self.levels, -1
        )
        return np.asarray(np.log(np.maximum(by_state.sum(axis=2), TINY)))


def fit_levels(rounds: Rounds, levels: int, memory: float = MEMORY) -> LevelChain:
    """Fit a chain on (level class, state), all entities together.

    Rounds before a level has settled are not counted. By round of the day where a day has several.
    With one class half a count is added to every cell; with several none: a level never leaps, and
    a chain that could would forget it too soon.
    """
    size = rounds.values.size
    wanted = whole("levels", levels, 1, MOST_PAIRS // size)
    settled = warm_up(memory)
    if rounds.codes.shape[1] < 2 * settled:
        raise InvalidInput(
            "readings",
            f"{rounds.codes.shape[1]} rounds to fit to",
            f"{2 * settled} or more, of which levels take {settled} to settle",
            "Read more days, or give levels a shorter memory (nearer to 1).",
        )
    level = past_levels(rounds.codes, size, memory)[:, settled:]
    known = level[rounds.codes[:, settled:] >= 0]
    edges = np.unique(np.quantile(known, np.arange(1, wanted) / wanted))
    if edges.size < wanted - 1:
        raise InvalidInput(
            "levels", wanted, f"{edges.size + 1} at most", "Levels take too few values for more."
        )
    pairs = _pairs(rounds.codes, edges, size, memory)
    pairs[:, :settled] = -1
    return LevelChain(
        _chain(pairs, wanted * size, rounds.per_day, wanted), edges, rounds.values, memory
    )


def _chain(pairs: Codes, size: int, per_day: int, levels: int) -> MarkovChain | PeriodicChain:
    labels = np.arange(size, dtype=float)
    if levels == 1:
        return fit_chain(pairs, labels) if per_day == 1 else fit_periodic(pairs, labels, per_day)
    counts = np.stack(
        [
            tally(pairs[:, at], pairs[:, at + 1], size).sum(axis=0)
            for at in (np.arange(k, pairs.shape[1] - 1, per_day) for k in range(per_day))
        ]
    )
    seen = counts.sum(axis=2, keepdims=True)
    if not seen.all():
        raise InvalidInput(
            "levels",
            levels,
            "fewer",
            f"{(seen == 0).sum()} of the pairs (level class, state) never occur.",
        )
    moves = counts / seen
    return MarkovChain(moves[0], labels) if per_day == 1 else PeriodicChain(moves, labels)


def _pairs(codes: Codes, edges: Array, size: int, memory: float) -> Codes:
    level = np.searchsorted(edges, past_levels(codes, size, memory), side="right")
    return np.where(codes >= 0, level * size + codes, -1).astype(np.int8)
