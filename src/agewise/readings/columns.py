"""Which column of a file says what: named, or guessed from types and names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from agewise.errors import InvalidInput, quoted
from agewise.readings.files import first_rows, numbers
from agewise.readings.times import since_1970, time_hint, utc

SAMPLE = 200
"""Rows that guesses are made from."""
_ENTITY_WORDS = {"entity", "household", "meter", "meter_id", "id", "client", "customer", "lclid"}
_TIME_WORDS = ("time", "date", "stamp", "zeit", "datum", "heure", "fecha", "hora")


@dataclass(frozen=True)
class Columns:
    """Which column says what. In a wide file `entity` is empty: every other column is an entity."""

    entity: str
    timestamp: str  #: when it was read
    value: str  #: what was read

    @property
    def wide(self) -> bool:
        """Whether there is a column for each entity."""
        return not self.entity


def infer_columns(
    path: Path | str,
    entity: str | None = None,
    timestamp: str | None = None,
    value: str | None = None,
    *,
    wide: bool = False,
) -> Columns:
    """Guess which column says what, from types and names; raise where the file leaves doubt.

    What is given is not guessed. `wide` says that every column but the time is an entity.
    """
    file = Path(path)
    sample = first_rows(file, SAMPLE)
    for role, name in (("entity", entity), ("timestamp", timestamp), ("value", value)):
        if name is not None and name not in sample.columns:
            raise InvalidInput(
                f"{role} column", quoted(name), "one of " + ", ".join(sample.columns)
            )
    looks = {name: _looks_like(sample[name], file) for name in sample.columns}
    times = [timestamp] if timestamp else _times(looks, taken=(entity, value))
    looks = {name: "number" if look == "epoch" else look for name, look in looks.items()}
    if len(times) != 1:
        raise _doubt(file, "timestamp", times, sample.columns)
    if wide:
        return Columns("", times[0], "")
    rest = [name for name in sample.columns if name != times[0]]
    named = [n for n in rest if n.lower() in _ENTITY_WORDS]
    texts = [n for n in rest if looks[n] == "text"]
    entities = [entity] if entity else [n for n in named or texts if n != value]
    values = [n for n in rest if looks[n] in ("number", "nothing") and n not in entities]
    if value:
        values = [value]
    if not entities and len(values) > 1:
        return Columns("", times[0], "")
    if len(values) > 1:  # columns in which there is nothing are entities, or nothing
        values = [n for n in values if looks[n] == "number"]
    if len(entities) != 1:
        raise _doubt(file, "entity", entities, sample.columns)
    if len(values) != 1:
        raise _doubt(file, "value", values, sample.columns)
    return Columns(entities[0], times[0], values[0])


def _times(looks: dict[str, str], taken: tuple[str | None, ...]) -> list[str]:
    """Columns that look like times, by name where several do, or none.

    Numbers that could be seconds since 1970 are times only where nothing else is.
    """
    candidates = [n for n, look in looks.items() if look == "time" and n not in taken]
    if not candidates:
        free = [n for n in looks if n not in taken and n.lower() not in _ENTITY_WORDS]
        candidates = [n for n in free if looks[n] == "epoch"]
    if len(candidates) == 1:
        return candidates
    among = candidates or [n for n, look in looks.items() if look != "number" and n not in taken]
    return [n for n in among if any(word in n.lower() for word in _TIME_WORDS)] or candidates


def _looks_like(column: pl.Series, file: Path) -> str:
    """Time, epoch, number, text, yes or no, or nothing at all: what most of the first rows are."""
    kind, some = column.dtype, column.drop_nulls()
    if kind.is_numeric():
        return "epoch" if 2 * since_1970(some).count() > some.len() else "number"
    if kind != pl.String:
        return "time" if kind.is_temporal() else "yes or no" if kind == pl.Boolean else "text"
    some = some.filter(some != "")
    if some.is_empty():
        return "nothing"
    if 2 * numbers(some, file).count() > some.len():
        return "epoch" if 2 * since_1970(some).count() > some.len() else "number"
    odd = some.filter([bool(time_hint(text)) for text in some])
    return "time" if 2 * (utc(some, "UTC")[0].count() + odd.len()) > some.len() else "text"


def _doubt(file: Path, role: str, candidates: list[str], names: list[str]) -> InvalidInput:
    word = (
        f"{len(candidates)} columns that could be it: {', '.join(candidates)}"
        if candidates
        else "none"
    )
    wide = "" if role == "timestamp" else " Or say --wide: a column for each entity."
    return InvalidInput(
        f"{role} column of {file}",
        word,
        "one of " + ", ".join(names),
        f"Name it: --{role} NAME.{wide}",
    )
