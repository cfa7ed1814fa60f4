"""What a chain leaves over: whether older states foretell the next one better than it does."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from agewise.fitting.laws import WEEK
from agewise.fitting.levels import LevelChain, Rounds, warm_up
from agewise.fitting.round_adversary import fit_softmax, last_rounds, softmax_logs


@dataclass(frozen=True)
class Leftover:
    """How much better the states of the last 28 rounds foretell the next one than the chain does.

    In nats per round, on rounds that neither was fitted to, with the standard error over weeks or
    over entities, whichever is larger.
    """

    levels: int
    gain: float
    standard_error: float

    @property
    def found(self) -> bool:
        """Whether something is surely left over."""
        return self.gain > 2 * self.standard_error


def left_over(rounds: Rounds, chain: LevelChain, judged: int) -> Leftover:
    """What the last states say of the next one beyond the chain, judged on other days."""
    codes, half, size = rounds.codes, rounds.half, rounds.values.size
    pairs, at = chain.pairs(codes), np.arange(codes.shape[1] - 1)
    known = np.zeros(codes.shape, dtype=bool)
    known[:, 1:] = (codes[:, 1:] >= 0) & (pairs[:, :-1] >= 0)
    base = np.zeros((*codes.shape, size))
    base[:, 1:] = chain.foretold[at % rounds.per_day, pairs[:, :-1]]
    looked = last_rounds(np.where(codes >= 0, codes / (size - 1) - 0.5, 0.0))
    trained, tested = known.copy(), known.copy()
    trained[:, : warm_up(chain.memory)] = trained[:, half:] = False
    tested[:, :half] = tested[:, half + judged :] = False
    weights = fit_softmax(looked[trained], codes[trained], size, base[trained])
    more = softmax_logs(weights, looked, base) - base
    gain = np.where(
        tested, np.take_along_axis(more, np.maximum(codes, 0)[..., None], 2)[..., 0], 0.0
    )
    week = np.arange(codes.shape[1]) // (WEEK * rounds.per_day)
    rest = np.where(tested, gain - gain.sum() / tested.sum(), 0.0)
    over_weeks = np.bincount(week, rest.sum(axis=0))
    spread = max(float((over_weeks**2).sum()), float((rest.sum(axis=1) ** 2).sum()))
    return Leftover(
        chain.levels, float(gain.sum() / tested.sum()), math.sqrt(spread) / float(tested.sum())
    )
