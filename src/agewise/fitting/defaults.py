"""What fits and back-tests take where nothing is said, from Python and on the command line."""

from __future__ import annotations

from typing import Literal, get_args

from agewise.process.measured import BASES, Basis

Adversary = Literal["household", "population"]
ADVERSARIES: tuple[str, ...] = get_args(Adversary)
Sampled = Literal["pairs", "days", "weeks", "entities"]
SAMPLED: tuple[str, ...] = get_args(Sampled)
DayKind = Literal["all", "workdays", "weekends"]
DAY_KINDS: tuple[str, ...] = get_args(DayKind)
Limits = Basis
LIMITS = BASES

EPSILON = 0.1
ADVERSARY: Adversary = "household"
DRAWN_BY: Sampled = "days"
LIMITS_ARE: Limits = "proven"
CONFIDENCE = 0.95
WORST_LIMIT = 0.9
MOST_LEFT_OUT = 0.5
STATES = 2
"""States with the least quantisation error, where none are asked for."""
AGGREGATE_AT = "18:00"
"""On the command line; from Python slot 1 is midnight, UTC."""
MOST_AGES = 12
"""Ages that are offered where none are asked for: limits that hold together cost width."""
TARGETS = (0.1, 0.3, 1.0)
"""Target ε's at which E is limited too, beside the target of the fit; others lie between."""

MEMORY = 0.05
"""Over rounds, the weight of the latest state in a level: it remembers some twenty rounds."""
CLASSICAL_EPSILONS = (0.5, 1.0)
"""Over rounds, the classical ε's of a release for which claims are made."""


def offered_ages(slots: int) -> tuple[int, ...]:
    """Ages with a limit of their own, evenly spaced back to the oldest; all where they are few."""
    oldest = slots - 1
    step = -(-oldest // MOST_AGES)
    return tuple(range(oldest, 0, -step))[::-1]


def whole_day(day: int) -> int:
    """Slots that reach back one day from the aggregation, `day` being the slots of a day."""
    return day + 1
