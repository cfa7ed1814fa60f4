"""Many releases that are (ε, δ)-private each: what they tell about the present, and the inverse.

What is known of a record ages by advanced joint convexity (Balle, Barthe and Gaboardi 2018, Theorem
2): over a gap (L, D) becomes (ln(1 + Δ(e^L − 1)), Δ·D). The next release adds its own (ε, δ), and
may depend on all that was published before. This is how ledgers total such releases, too.
"""

from __future__ import annotations

import math

from agewise.mixing import Method, slot_delta
from agewise.privacy.ageing import aged_epsilon
from agewise.process import Process


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
    loss, failing = epsilon, failure
    for _ in range(rounds - 1):
        loss = epsilon + aged_epsilon(loss, gap_delta)
        failing = failure + gap_delta * failing
    return aged_epsilon(loss, age_delta), age_delta * failing


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
