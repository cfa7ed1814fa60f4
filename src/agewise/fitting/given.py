"""What an adversary may know of the day: the calendar, the others' level, or a column of the file.

Days of readings fall into classes by it, and Δ is the largest over the classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.errors import InvalidInput, quoted
from agewise.fitting.laws import FEWEST_DAYS, WEEK, window_starts
from agewise.process.asymptotic import FEWEST_WEEKS
from agewise.readings import Readings
from agewise.readings.covariate import PUBLIC
from agewise.wording import did_you_mean, listed

CALENDAR = {
    "weekend": "whether it is a weekend",
    "weekday": "the day of the week",
    "month": "the month",
}
LEVEL = "level"
MOST_CLASSES = 12
"""Values of a column up to which each is a class; numbers with more are cut into thirds."""
_THIRDS = ("low", "middle", "high")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True)
class Classes:
    """The class of each entity on each day, −1 where it is not known: `codes[entity, day]`."""

    known: str
    """What tells the class, in words."""
    names: tuple[str, ...]
    codes: NDArray[np.int8]


def find_classes(
    given: str, readings: Readings, values: Array, at: NDArray[np.intp], *, asymptotic: bool
) -> Classes:
    """Return the classes of the days whose aggregation is in the slots `at` of the readings.

    `values` are the readings as states have them: `level` cuts the mean of the other entities'
    values at that moment into thirds, for each entity by itself. A class that is too rare for
    limits is refused by name.
    """
    if given in CALENDAR:
        found = _calendar(given, readings, at)
    elif given == LEVEL:
        found = _level(values[:, at])
    else:
        found = _column(given, readings, at)
    _refuse_rare(given, found, asymptotic=asymptotic)
    return found


def _calendar(given: str, readings: Readings, at: NDArray[np.intp]) -> Classes:
    times = [readings.first + timedelta(days=1) / readings.day * int(slot) for slot in at]
    if given == "month":
        names: tuple[str, ...] = tuple(f"month {month}" for month in range(1, 13))
        codes = [time.month - 1 for time in times]
    elif given == "weekday":
        names, codes = _DAYS, [time.weekday() for time in times]
    else:
        names = ("weekdays", "weekends")
        codes = [int(time.weekday() >= WEEK - 2) for time in times]
    shape = (len(readings.entities), len(at))
    return Classes(CALENDAR[given], names, np.broadcast_to(np.array(codes, np.int8), shape))


def weekends(readings: Readings, first_slot: int, slots: int) -> NDArray[np.bool_]:
    """Whether the aggregation of each day's window is on a Saturday or Sunday (UTC)."""
    begin = window_starts(
        readings.values.shape[1],
        readings.day,
        first_slot=first_slot,
        slots=slots,
        starts=readings.first_of_day,
    )
    return np.asarray(_calendar("weekend", readings, begin + slots - 1).codes[0] == 1)


def _level(values: Array) -> Classes:
    if len(values) < 2:
        raise InvalidInput(
            "given",
            "level, of one entity",
            "readings of two entities or more",
            "There are no others whose level could be known.",
        )
    known = np.isfinite(values)
    others = known.sum(axis=0) - known
    total = np.where(known, values, 0.0)
    with np.errstate(invalid="ignore"):
        mean = (total.sum(axis=0) - total) / others
    codes = np.stack([_thirds(one) for one in mean])
    return Classes("the level of the other entities, in thirds", _THIRDS, codes)


def _column(given: str, readings: Readings, at: NDArray[np.intp]) -> Classes:
    covariate = readings.covariate
    if covariate is None or covariate.name != given:
        raise InvalidInput(
            "given",
            quoted(given),
            f"{', '.join(PUBLIC)}, or a column of the readings",
            did_you_mean(given, PUBLIC)
            or "Columns are read by read_readings(..., covariate=NAME).",
        )
    codes, labels = covariate.codes[:, at], covariate.labels
    present = np.unique(codes[codes >= 0])
    words = f"{given!r} in the aggregation slot"
    if present.size > MOST_CLASSES:
        numbers = covariate.numbers()
        if numbers is None:
            raise InvalidInput(
                "given",
                f"{given!r} with {present.size} values",
                f"{MOST_CLASSES} classes at most, or numbers",
                "Bring its values into fewer classes first.",
            )
        cut = _thirds(np.where(codes >= 0, numbers[codes], np.nan))
        return Classes(f"{words}, in thirds", _THIRDS, cut)
    place = np.full(len(labels) + 1, -1, dtype=np.int8)
    place[present] = np.arange(present.size)
    return Classes(words, tuple(labels[label] for label in present), place[codes])


def _thirds(numbers: Array) -> NDArray[np.int8]:
    """Low, middle or high among all that are known; −1 where there is no number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an entity without others
        edges = np.nanquantile(numbers, [1 / 3, 2 / 3])
    codes = (numbers > edges[0]).astype(np.int8) + (numbers > edges[1])
    return np.where(np.isfinite(numbers), codes, -1).astype(np.int8)


def _refuse_rare(given: str, found: Classes, *, asymptotic: bool) -> None:
    fewest, unit = (FEWEST_WEEKS, "weeks") if asymptotic else (FEWEST_DAYS, "days")
    rare: list[str] = []
    for code, name in enumerate(found.names):
        days = np.flatnonzero((found.codes == code).any(axis=0))
        count = np.unique(days // WEEK).size if asymptotic else days.size
        if 0 < count < fewest:
            rare.append(f"{name} ({count} {unit})")
    if rare:
        raise InvalidInput(
            "given",
            f"{given}, with few of {listed(rare, 3)}",
            f"{fewest} {unit} or more in each class",
            _remedy(given, asymptotic=asymptotic),
        )


def _remedy(given: str, *, asymptotic: bool) -> str:
    wider = {"month": "weekday or level", "weekday": "weekend"}.get(given, "fewer classes")
    return f"Read more of them, or take {wider}{', or proven limits' if asymptotic else ''}."


def class_masks(classes: Classes | None, rows: Sequence[int]) -> list[NDArray[np.bool_]]:
    """Which pairs `[entity, day]` of some entities are in each class."""
    if classes is None:
        return []
    codes = classes.codes[list(rows)]
    masks = [codes == code for code in range(len(classes.names))]
    return [mask for mask in masks if mask.any()]
