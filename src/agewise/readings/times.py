"""Times as files write them, in UTC."""

from __future__ import annotations

import re

import polars as pl

from agewise.errors import InvalidInput, quoted

OFFSET = r":\d\d(\.\d+)? ?(Z|[+-]\d\d:?\d\d)$"
"""How a time ends that says its zone."""
EPOCHS = (1, 1_000, 1_000_000, 1_000_000_000)
"""Units in which numbers count from 1970 (s, ms, µs, ns), by how many make a second."""
FROM_2000, TO_2100 = 946_684_800, 4_102_444_800
"""Seconds since 1970: numbers between them are times, and of one unit only."""
STRANGE_TIMES = {
    r"(?i)\d ?[ap]\.?m\.?$": "Times with AM or PM: write them with 24 hours and the year first, "
    "such as 2013-01-31 23:30.",
    r"^\d\d?/(1[3-9]|2\d|3[01])/\d{4}": "Dates with the month first: write them with the year "
    "first, such as 2013-01-31 23:30.",
}
"""What times look like that are not read: day and month could be taken for each other."""


def time_hint(text: str) -> str:
    """What a time that cannot be read looks like, and what to do about it."""
    return next((hint for form, hint in STRANGE_TIMES.items() if re.search(form, text)), "")


def utc(stamp: pl.Series, timezone: str) -> tuple[pl.Series, pl.Series]:
    """Times in UTC, null where they cannot be read or do not exist; and where they do not exist."""
    if stamp.dtype == pl.String:
        return _text_utc(stamp, timezone)
    if stamp.dtype.is_numeric():
        return since_1970(stamp), stamp.is_null() & False
    if stamp.dtype == pl.Date:
        stamp = stamp.cast(pl.Datetime("ms"))
    if not isinstance(stamp.dtype, pl.Datetime):
        raise InvalidInput("timestamp column", f"of type {stamp.dtype}", "dates with a time")
    if stamp.dtype.time_zone is not None:
        return stamp.dt.convert_time_zone("UTC"), stamp.is_null() & False
    return _in_zone(stamp, timezone)


def _text_utc(stamp: pl.Series, timezone: str) -> tuple[pl.Series, pl.Series]:
    since = since_1970(stamp)
    zoned = stamp.str.contains(OFFSET).fill_null(False)
    local, skipped = _in_zone(_parsed(stamp.set(zoned | since.is_not_null(), None)), timezone)
    stamps = since.zip_with(since.is_not_null(), local)
    if not zoned.any():
        return stamps, skipped
    to_the_second = stamp.str.replace(r"^(\S+[T ]\d\d:\d\d) ?(Z|[+-])", "$1:00$2")
    with_offset = to_the_second.str.to_datetime("%+", strict=False, time_unit="ms")
    return with_offset.zip_with(with_offset.is_not_null(), stamps), skipped


def since_1970(stamp: pl.Series) -> pl.Series:
    """Times where numbers count s, ms, µs or ns from 1970, null elsewhere."""
    if stamp.dtype == pl.String:
        digits = stamp.str.contains(r"^\d{9,19}(\.\d+)?$").fill_null(False)
        if not digits.any():  # as in most files: no time spent
            return pl.repeat(None, stamp.len(), dtype=pl.Datetime("ms", "UTC"), eager=True)
        stamp = stamp.set(~digits, None)
    number, milliseconds = stamp.cast(pl.Float64, strict=False), pl.lit(None, dtype=pl.Float64)
    for unit in EPOCHS:
        inside = pl.col("n").is_between(FROM_2000 * unit, TO_2100 * unit)
        milliseconds = pl.when(inside).then(pl.col("n") * 1000 / unit).otherwise(milliseconds)
    since = pl.select(n=number).select(milliseconds.round().cast(pl.Int64)).to_series()
    return since.cast(pl.Datetime("ms", "UTC"))


def _parsed(stamp: pl.Series) -> pl.Series:
    try:
        return stamp.str.to_datetime(strict=False, time_unit="ms")
    except pl.exceptions.ComputeError:  # not one that looks like a time
        return pl.Series(values=[None] * stamp.len(), dtype=pl.Datetime("ms"))


def _in_zone(stamp: pl.Series, timezone: str) -> tuple[pl.Series, pl.Series]:
    zoned = stamp.dt.replace_time_zone(timezone, ambiguous="earliest", non_existent="null")
    return zoned.dt.convert_time_zone("UTC"), stamp.is_not_null() & zoned.is_null()


def slot_of_day(field: str, time: str, day: int) -> int:
    """The slot of the day, from 0, that begins at a time such as 18:00, of `day` slots.

    >>> slot_of_day("at", "18:00", 48)
    36
    """
    hour, _, minute = time.partition(":")
    if not re.fullmatch(r"[0-9]{1,2}(:[0-9]{2})?", time):
        raise InvalidInput(field, quoted(time), "a time of day, such as 18:00")
    seconds = (int(hour) * 60 + int(minute or 0)) * 60
    step = 24 * 60 * 60 // day
    if seconds >= 24 * 60 * 60 or seconds % step:
        allowed = f"a multiple of {step / 60:g} minutes in a day" if day > 1 else "00:00"
        raise InvalidInput(field, quoted(time), allowed)
    return seconds // step
