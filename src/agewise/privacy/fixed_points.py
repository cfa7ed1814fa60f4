"""What never ends: bounds on what releases tell for ever, what finding them takes, and attacks.

*Above.* Any losses L with age(L) + d ≤ L bound what any number of releases tell. Finding some takes
rounds: of few states every one is proven, of many a few steps each (`guessed_losses`), and the last
one is.

*Below.* A string of one and the same output is carried from slot to slot by the rows of the process
in no time, and what it tells is a *lower* bound on what the mechanism does: for Laplace noise the
outputs at each state's own value, the highest and the lowest included; for a mechanism of which
only ε is known some that tell one set of states from the rest. What two strings tell before and
after a slot adds up. They slow down as losses do, and so say how many rounds a bound takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agewise.arrays import Array
from agewise.errors import InvalidInput
from agewise.privacy.pairwise import LARGEST_LOSS, TREES, all_pairs, closed_losses
from agewise.process.joint import TINY
from agewise.progress import tell

Carry = Callable[[Array], Array]
ROUNDS = 20_000
"""If so many rounds have led to no bound for ever, none is given."""
STRIDE = 500
"""Rounds in which losses must slow down: from one to the next, guesses are too uneven to tell."""
LONGEST = 5_000
"""A string has at most so many outputs."""
SETTLED = 1e-9
"""A string is long enough once one more output changes what is told by this share of a release."""
MOST_SECONDS = 600.0
"""What is reckoned to take longer is refused. Reckoned high: most end in a third of that."""
TOLD = 2.0
"""What is reckoned to take so many seconds tells how far it is."""
PROVEN = 12
"""So many rounds that are guessed take as long as one that is proven from the beginning."""
_BEGUN, _NUMBER = 1e-3, 5e-8
"""Seconds that a round takes, and each of its S⁴ numbers; measured by `benchmarks/for_ever.py`."""


def steady_losses(
    age: Callable[[Array], Array],
    release: Array,
    guess: Callable[[Array], Array] | None = None,
    start: Array | None = None,
    tell: Callable[[int], None] | None = None,
) -> Array:
    """Return a bound on all of L₁ = d, L₂ = age(L₁) + d, L₃ = ...; infinite where none was found.

    Any L with age(L) + d ≤ L is such a bound, where `age` is never below the true ageing, for that
    grows with L: L₁ = d ≤ L, and L_n ≤ L gives L_{n+1} ≤ age(L) + d ≤ L. The iterates themselves
    lie *below* their limit. So a little more than d is released in each round, until losses are
    found that pass that check. How they were found does not matter: by `guess`, if given, and from
    `start`. `tell` hears the number of each round.
    """
    little = 1e-9 * release.max()
    more = all_pairs(np.full(len(release), little), release.shape[-1])
    losses, before, pace, earlier = release if start is None else start, 0.0, 0.0, math.inf
    search = age if guess is None else guess
    for number in range(1, ROUNDS + 1):
        if tell is not None:
            tell(number)
        following = search(losses) + release
        if following.max() > LARGEST_LOSS:
            break
        moved = float(np.abs(following - losses).max())
        if (following <= losses).all() and moved <= 2 * little:
            proven = following if guess is None else age(losses) + release
            if (proven <= losses).all():
                return proven
            following = np.maximum(proven, losses)
        step = following + more - losses
        size = float(np.abs(step).max())
        rate = size / before if before > 0 else 0.0
        if number % STRIDE == 0:
            if size > max(0.99 * earlier, 1e3 * little):  # they do not slow down
                break
            earlier = size
        losses, before = following + more, size
        steady = 0 < rate < 1 and abs(rate - pace) < (1 - rate) / 20 and (step >= 0).all()
        if number % 8 == 0 and steady:  # the rest of a geometric series, to save rounds
            losses = losses + step * rate / (1 - rate)
            before = rate = 0.0
        pace = rate
    return all_pairs(np.full(len(release), np.inf), release.shape[-1])


def rounds_allowed(states: int) -> int:
    """So many rounds of one matrix are refused already: no need to count further."""
    return int(MOST_SECONDS / (_BEGUN + _NUMBER * states**4)) + 2


@dataclass(frozen=True)
class Cost:
    """A bound for ever of so many states: rounds that are guessed, and matrices aged with proof."""

    states: int
    rounds: int
    proven: int
    matrices: int = 1  #: aged in each round: slots of the day, gaps of a rule

    @property
    def seconds(self) -> float:
        """About, on one core; 0 where it is never long."""
        if self.states <= TREES:
            return 0.0
        steps = self.rounds * self.matrices + PROVEN * self.proven
        return float(steps * (_BEGUN + _NUMBER * self.states**4))

    def check(self) -> None:
        """Refuse what would not end in minutes."""
        if self.seconds > MOST_SECONDS:
            raise InvalidInput(
                "states",
                f"{self.states}, for which a bound on continual release takes about "
                f"{math.ceil(self.seconds / 60):,} minutes",
                f"as many as take {MOST_SECONDS / 60:g} minutes",
                "Take fewer states or level classes, releases further apart, or the promise "
                "'present'. A lower bound takes a second: agewise.privacy.reached_epsilon.",
            )

    def tell(self, number: int) -> None:
        """Say how far it is, where it takes long."""
        if self.seconds > TOLD:
            tell(min(number, self.rounds - 1), self.rounds)


def output_logs(release: Array, anything: bool = False) -> Array:
    """ln of the likelihoods `[O, S]` of some outputs of a release with pairwise losses `[S, S]`.

    e^{−d[x,·]} for each x is an output of some mechanism with these losses, and for Laplace noise
    on a mean or a table the one at the value of x. `anything`: of which only ε is known.
    """
    peaks = -closed_losses(release[None])[0]
    if not anything:
        return np.asarray(peaks)
    first = np.tri(len(release), k=-1)[1:]  # the states below each border, in their order
    sets = np.concatenate([np.eye(len(release)), first])
    return np.asarray(-release.max() * np.concatenate([sets, 1 - sets]))


def steady_likelihoods(
    carry: Carry, outputs: Array, day: int, most: int = LONGEST
) -> tuple[Array, int]:
    """Likelihoods `[day, O, S]` of a long string of each output, scaled, and its length.

    `carry` takes likelihoods about one release's slot to the next one's.
    """
    each = np.broadcast_to(np.exp(outputs), (day, *outputs.shape))
    told, number, settled = each, 1, SETTLED * -outputs.min()
    while number < most:
        following = one_more(carry, told, each)
        if following.min() < TINY:
            break
        moved = float(np.abs(np.log(following / told)).max())
        told, number = following, number + 1
        if moved <= settled:
            break
    return told, number


def one_more(carry: Carry, told: Array, each: Array) -> Array:
    """The likelihoods after one more release."""
    following = carry(told) * each
    return np.asarray(following / following.max(axis=-1, keepdims=True))


def told_losses(likelihoods: Array) -> Array:
    """What the worst of the outputs tells each two states apart by, `[..., S, S]`."""
    logs = np.log(likelihoods)
    worst = np.zeros((*logs.shape[:-2], logs.shape[-1], logs.shape[-1]))
    for output in np.moveaxis(logs, -2, 0):
        np.maximum(worst, output[..., :, None] - output[..., None, :], out=worst)
    return worst
