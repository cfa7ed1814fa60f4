"""What the server knows before it hears anything: means, variances, and what clients share."""

from typing import Any

from agewise.checks import instance
from agewise.knowledge.filter import Filtered, Heard, filter_heard, filter_rounds
from agewise.knowledge.knowledge import Asked, Independent, Knowledge
from agewise.knowledge.level import Level, Levels, Reported, Seen
from agewise.knowledge.measured import Measured
from agewise.knowledge.moments import Moments, independent_moments
from agewise.records import call, read_tagged

__all__ = [
    "Asked",
    "Filtered",
    "Heard",
    "Independent",
    "Knowledge",
    "Level",
    "Levels",
    "Measured",
    "Moments",
    "Reported",
    "Seen",
    "filter_heard",
    "filter_rounds",
    "independent_moments",
    "level_of",
    "measured_of",
]


def level_of(entry: dict[str, Any]) -> Level:
    """Return the level that plain data describe, as `Level.to_dict` writes it."""
    return call(
        Level, instance("level", entry, dict, "a table of loading and correlation"), "level."
    )


KINDS = {"measured": Measured}
"""What is called with the table of each kind of knowledge."""


def measured_of(entry: dict[str, Any]) -> Measured:
    """Return the measured knowledge that plain data describe, as `Measured.to_dict` writes it."""
    known: Measured = read_tagged("knowledge", entry, KINDS)
    return known
