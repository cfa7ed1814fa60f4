"""Losses for an adversary of whom nothing is known: the worst law of a record at collection.

A release that tells two states x, x′ apart by d tells two later values apart by at most ε, where
tanh(ε/4) = tanh(D/4)·tanh(d/4) and D is the logarithm of the kernel's largest cross ratio.
A law on two states reaches it; what is reported as reached is worked out for that very law.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from agewise.arrays import Array
from agewise.auditing.losses import MOST_ROUNDS, STEADY, Lasting, Loss, Sent, loss_about
from agewise.auditing.outward import Between, log_above, log_below
from agewise.auditing.paths import Path
from agewise.errors import InvalidInput

PLAIN = 1.0
"""The loss for which a law is chosen where there is no noise, so that samples can show it."""
_ROUNDING = 1e-13
"""Relative error of hyperbolic functions and a few products of them."""


def spread(kernel: Between) -> float:
    """D: the largest logarithm of a cross ratio of a kernel, rounded up; infinite for zeros."""
    size = kernel.low.shape[0]
    low, high = log_below(kernel.low), log_above(kernel.high)
    worst = 0.0
    for x, other in itertools.permutations(range(size), 2):
        with np.errstate(invalid="ignore"):
            apart = high[x] - low[other]
        occurs = (kernel.high[x] > 0) | (kernel.high[other] > 0)
        if occurs.any():
            back = (high[other] - low[x])[occurs]
            worst = max(worst, float(apart[occurs].max() + back.max()))
    return math.inf if math.isnan(worst) else worst * (1 + _ROUNDING)


def aged_number(loss: float, largest: float) -> float:
    """What a loss about the earlier value is about the later one, at most."""
    if math.isinf(largest) or loss == 0:
        return loss
    if math.isinf(loss):
        return largest
    inside = math.tanh(largest / 4) * math.tanh(loss / 4)
    bound = 4 * math.atanh(min(inside * (1 + _ROUNDING), 1 - 2**-53))
    return min(bound * (1 + _ROUNDING), loss, largest)


def worst_law(path: Path, sent: Sent, about: int, plain: float = PLAIN) -> Array:
    """The law on two states with which a release tells most about a later value.

    Without noise that is told in the limit only, by laws with which it hardly ever happens; `plain`
    is the loss that stands for an infinite one then.
    """
    kernel = path.kernel(sent.slot, about)
    middle = (kernel.low + kernel.high) / 2
    apart = np.minimum(sent.apart(np.arange(path.size)), 700.0)
    apart[np.isinf(sent.apart(np.arange(path.size)))] = plain
    best, law = -1.0, np.full(path.size, 1 / path.size)
    pairs = list(itertools.permutations(range(path.size), 2))
    for (x, other), (y, seen) in itertools.product(pairs, pairs):
        a, b, c, d = middle[x, y], middle[other, y], middle[x, seen], middle[other, seen]
        if min(a, d) <= 0 or not apart[x, other] > 0:
            continue
        possible = min(b, c) > 0
        cross = math.log(a / b) + math.log(d / c) if possible else math.inf
        told = aged_number(float(apart[x, other]), max(cross, 0.0))
        if told > best:
            best = told
            odds = math.sqrt(b / a * d / c * math.exp(-apart[x, other])) if possible else 1.0
            law = np.zeros(path.size)
            law[x], law[other] = odds / (1 + odds), 1 / (1 + odds)
    return law


def single_loss(path: Path, sent: Sent, about: int) -> Loss:
    """What one release tells about a later value, whatever the law at collection."""
    classical = float(sent.apart(np.arange(path.size)).max())
    bound = aged_number(classical, spread(path.kernel(sent.slot, about)))
    laws = [worst_law(path, sent, about, plain) for plain in (PLAIN, 30.0)]
    ways = [Path(path.process, law, sent.slot) for law in laws]
    return Loss(max(loss_about(way, [sent], about).reached for way in ways), bound)


class Unknown(Lasting):
    """Several releases, for any law: a bound in one number; reached by the process's own law."""

    def __init__(self, path: Path, one: Sent, every: int, rounds: int | None) -> None:
        super().__init__(path, one, every, rounds)
        self.largest = spread(path.kernel(one.slot - every, one.slot))

    @property
    def losses(self) -> Array:
        own = float(self.one.apart(self.support).max())
        before, most = 0.0, MOST_ROUNDS if self.rounds is None else self.rounds - 1
        for _ in range(most):
            more = aged_number(before + own, self.largest)
            settled = more <= before * (1 + STEADY / 10)
            before = max(more, before)
            if settled:
                break
        else:
            if self.rounds is not None:
                return (before + own) * (1 - np.eye(self.path.size))
        before = before * (1 + STEADY)
        if aged_number(before + own, self.largest) > before:
            return np.full((self.path.size,) * 2, np.inf)
        return (before + own) * (1 - np.eye(self.path.size))

    def bound(self, about: int) -> Array:
        if about == self.one.slot:
            return self.losses
        largest = spread(self.path.kernel(self.one.slot, about))
        aged = aged_number(float(self.losses.max()), largest)
        return aged * (1 - np.eye(self.path.size))

    def reached(self, about: int) -> Array:
        told = np.full((self.path.size,) * 2, -np.inf)
        try:
            own = Path(self.path.process)
            support = own.support(about)
        except InvalidInput:  # it has no law of its own
            return told
        every = self.one.slot - self._before
        told[np.ix_(support, support)] = Lasting(own, self.one, every, self.rounds).reached(about)
        return told
