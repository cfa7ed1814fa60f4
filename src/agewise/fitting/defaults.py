"""What fits and back-tests take where nothing is said, from Python and on the command line."""

from __future__ import annotations

from typing import Literal, get_args

Adversary = Literal["household", "population"]
ADVERSARIES: tuple[str, ...] = get_args(Adversary)
Sampled = Literal["pairs", "days", "weeks", "entities"]
SAMPLED: tuple[str, ...] = get_args(Sampled)

EPSILON = 0.1
ADVERSARY: Adversary = "household"
DRAWN_BY: Sampled = "days"
CONFIDENCE = 0.95
WORST_LIMIT = 0.9
MOST_LEFT_OUT = 0.5
STATES = 2
"""States with the least quantisation error, where none are asked for."""
AGGREGATE_AT = "18:00"
"""On the command line; from Python slot 1 is midnight, UTC."""


def whole_day(day: int) -> int:
    """Slots that reach back one day from the aggregation, `day` being the slots of a day."""
    return day + 1
