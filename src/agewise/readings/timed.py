"""Readings with a time, whatever the file calls its columns: long, or a column for each entity."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl

from agewise.errors import InvalidInput, quoted
from agewise.progress import Progress
from agewise.readings.columns import Columns
from agewise.readings.files import ROW, blocks, numbers, refuse_other_than_numbers, scan
from agewise.readings.times import utc


def timed_blocks(
    file: Path,
    columns: Columns,
    timezone: str,
    progress: Progress | None = None,
    *,
    also: str | None = None,
) -> Iterator[pl.DataFrame]:
    """The file's readings, some rows at a time.

    Columns: the row of the file, entity and timestamp as they stand, the time `at` in seconds
    since 1970 and the `number`, both null where they cannot be read, and whether the time is
    `skipped` by a clock change. Empty lines are left out. `also` names one more column of a long
    file, as it stands.
    """
    names = scan(file).collect_schema().names()
    for role, name in vars(columns).items():
        if name and name not in names:
            raise InvalidInput(f"{role} column", quoted(name), "one of " + ", ".join(names))
    try:
        ZoneInfo(timezone)
    except (ValueError, OSError, KeyError):
        raise InvalidInput("timezone", quoted(timezone), "a name such as Europe/London") from None
    if columns.wide:
        needed, values = names, [name for name in names if name != columns.timestamp]
        refuse_other_than_numbers(file, values, "Leave the column out.")
    else:
        needed = list(dict.fromkeys([*vars(columns).values(), *([also] if also else [])]))
        refuse_other_than_numbers(file, [columns.value], "Name another: --value NAME.")
    for block in blocks(file, needed, progress):
        long = _long(block, columns)
        if also is not None:
            long = long.with_columns(block[also].alias("also"))
        at, skipped = utc(long["timestamp"], timezone)
        yield long.with_columns(
            at.dt.epoch("s").alias("at"),
            skipped.alias("skipped"),
            numbers(long["value"], file).alias("number"),
        )


def _long(block: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    """Row, entity, timestamp and value."""
    if not columns.wide:
        return block.select(
            ROW,
            pl.col(columns.entity).cast(pl.String).alias("entity"),
            pl.col(columns.timestamp).alias("timestamp"),
            pl.col(columns.value).alias("value"),
        )
    long = (
        block.rename({columns.timestamp: "\0time"})
        .unpivot(index=[ROW, "\0time"], variable_name="\0entity", value_name="\0value")
        .rename({"\0time": "timestamp", "\0entity": "entity", "\0value": "value"})
    )
    return long.filter(pl.col("timestamp").is_not_null() | pl.col("value").is_not_null())
