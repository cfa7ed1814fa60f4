"""Readings that cannot be what they are taken for: cumulative registers, and outliers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array

RISES = 20
"""Steps upwards from which on a series without steps downwards is a register."""
FALLS = 0.01
"""Steps downwards that a register may have for each one upwards: exchanged or reset meters."""
FEWEST_DAYS = 3
"""Days below which a rising series may be anything."""
PEAK = 0.99
"""The share of an entity's readings above zero that is at most its peak."""
BEYOND = 10.0
"""Readings above so many times the peak of a typical entity are outliers."""
MOST_OUTLIERS = 0.05
"""What more of the readings do than this is no outlier."""


def registers(values: Array, day: int) -> NDArray[np.bool_]:
    """Which entities' readings hardly ever fall: meters' totals, not what was used in a slot."""
    meters = np.zeros(len(values), dtype=bool)
    if values.shape[1] < FEWEST_DAYS * day:
        return meters
    for row, one in enumerate(values):
        steps = np.diff(one[np.isfinite(one)])
        rises, falls = np.count_nonzero(steps > 0), np.count_nonzero(steps < 0)
        meters[row] = rises >= RISES and falls <= FALLS * rises
    return meters


def fence(values: Array) -> float:
    """The value above which a reading is an outlier.

    Ten times the peak of the typical entity: the median over entities of the value that 99 % of
    an entity's readings above zero do not exceed. Neither a few wild readings of each nor a few
    wild entities move it much. If more than 5 % of all readings were above, those are no
    outliers, and the fence stands above them.
    """
    rows = np.atleast_2d(values)
    peaks = [np.quantile(used, PEAK) for row in rows if (used := row[row > 0]).size]
    if not peaks:
        return float(np.inf)
    limit = BEYOND * float(np.median(peaks))
    known = np.count_nonzero(np.isfinite(rows))
    if np.count_nonzero(rows > limit) <= MOST_OUTLIERS * known:
        return limit
    return float(np.nanquantile(rows, 1 - MOST_OUTLIERS))


@dataclass(frozen=True)
class Outliers:
    """Readings of one entity above the fence: how many, and the largest with its time (UTC)."""

    entity: str
    readings: int
    largest: float
    at: str

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return asdict(self)


def find_outliers(
    entities: tuple[str, ...], values: Array, day: int, first: datetime
) -> tuple[Outliers, ...]:
    """Outliers by entity, the largest first."""
    above, outliers = fence(values), []
    for name, row in zip(entities, values, strict=True):
        count = int(np.count_nonzero(row > above))
        if count:
            slot = int(np.nanargmax(row))
            at = first + timedelta(days=1) * slot / day
            outliers.append(Outliers(name, count, float(row[slot]), at.isoformat()))
    return tuple(sorted(outliers, key=lambda one: -one.largest))
