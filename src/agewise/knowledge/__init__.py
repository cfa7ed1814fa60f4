"""What the server knows before it hears anything: means, variances, and what clients share."""

from typing import Any

from agewise.errors import InvalidInput
from agewise.knowledge.filter import Filtered, filter_rounds
from agewise.knowledge.knowledge import Asked, Independent, Knowledge
from agewise.knowledge.level import Level, Levels
from agewise.knowledge.measured import Measured
from agewise.knowledge.moments import Moments, independent_moments

__all__ = [
    "Asked",
    "Filtered",
    "Independent",
    "Knowledge",
    "Level",
    "Levels",
    "Measured",
    "Moments",
    "filter_rounds",
    "independent_moments",
    "level_of",
    "measured_of",
]


def level_of(entry: dict[str, Any]) -> Level:
    """Return the level that plain data describe, as `Level.to_dict` writes it."""
    _refuse_unknown("level", entry, ("loading", "correlation"))
    return Level(entry["loading"], entry["correlation"])


def measured_of(entry: dict[str, Any]) -> Measured:
    """Return the measured knowledge that plain data describe, as `Measured.to_dict` writes it."""
    needed = ("kind", "clients", "mean", "factors", "own", "lagged", "days", "assumes")
    _refuse_unknown("knowledge", entry, needed)
    if entry["kind"] != "measured":
        raise InvalidInput("knowledge.kind", repr(entry["kind"]), "measured")
    return Measured(**{name: entry[name] for name in needed if name != "kind"})


def _refuse_unknown(where: str, entry: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in entry:
        if name not in known:
            raise InvalidInput(f"{where}.{name}", "not a known key", "one of " + ", ".join(known))
    for name in known:
        if name not in entry:
            raise InvalidInput(f"{where}.{name}", "missing", "one of " + ", ".join(known))
