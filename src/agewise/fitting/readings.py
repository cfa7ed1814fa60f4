"""Reading in: meter readings from CSV or Parquet onto a grid, and what was wrong with them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from agewise.errors import InvalidInput, whole
from agewise.process.joint import Array

ROW = "agewise row"
SHOWN = 3
"""Rows that cannot be used which are shown."""
SEPARATORS = ",;\t|"
OFFSET = r":\d\d(\.\d+)? ?(Z|[+-]\d\d:?\d\d)$"
"""How a time ends that says its zone."""
MOST_CELLS = 2_000_000_000
"""Entities times slots beyond which a grid is refused."""


@dataclass(frozen=True)
class Columns:
    """Which column says what. In a wide file `entity` is empty: every other column is an entity."""

    entity: str
    timestamp: str
    value: str

    @property
    def wide(self) -> bool:
        """Whether there is a column for each entity."""
        return not self.entity


@dataclass(frozen=True)
class Quality:
    """What was found in a file, and what was done about it. Every number counts readings."""

    rows: int
    entities: int
    slots: int
    resolution_minutes: int
    first: str
    last: str
    timezone: str
    used: int
    duplicates_same: int
    duplicates_averaged: int
    not_numbers: int
    negative: int
    off_grid: int
    missing: int
    left_out: tuple[tuple[str, str], ...]
    """Entities that were left out, each with the reason."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Readings:
    """Readings on a grid: `values[entity, slot]`, NaN where there is none.

    Slot 0 begins at `first` in the data's own time zone; `day` is the number of slots a day.
    Clock changes leave gaps or doubled slots in local time, so the grid is in UTC and
    `first_of_day` says which slot of the day the first one is.
    """

    entities: tuple[str, ...]
    values: Array
    day: int
    first: datetime
    quality: Quality

    @property
    def first_of_day(self) -> int:
        """Which slot of the day the grid begins with, from 0."""
        minutes = self.first.hour * 60 + self.first.minute
        return minutes * self.day // (24 * 60)

    def rows(self, client: str, members: Sequence[str]) -> list[int]:
        """The rows of a client's entities."""
        if not members:
            raise InvalidInput(f"group {client!r}", "empty", "one entity or more")
        place = {entity: row for row, entity in enumerate(self.entities)}
        for entity in members:
            if entity not in place:
                raise InvalidInput(f"group {client!r}", repr(entity), "entities that were read")
        return [place[entity] for entity in members]

    def split(self, share: float) -> tuple[Readings, Readings]:
        """The first `share` of the days, and the days after them."""
        cut = int(self.values.shape[1] * share) // self.day * self.day
        if not 0 < cut < self.values.shape[1]:
            raise InvalidInput("readings", "too few days to be split", "two days or more")
        later = self.first + timedelta(days=cut // self.day)
        before = replace(self, values=self.values[:, :cut])
        return before, replace(self, values=self.values[:, cut:], first=later)


def read_readings(
    path: Path | str,
    columns: Columns | None = None,
    *,
    timezone: str = "UTC",
    entities: Iterable[str] | None = None,
    at_least: float = 0.5,
) -> Readings:
    """Read a CSV or Parquet file of readings, long (entity, timestamp, value) or wide.

    Timestamps without a zone or offset are in `timezone`; what a clock change makes ambiguous
    counts as the earlier one, what it skips is left out. Readings that are no numbers or negative
    are left out, equal duplicates count once and others are averaged, and all of it is counted.
    `entities` keeps only those; one with less than `at_least` of its slots is left out by name.

    The file is read in blocks, three times; memory grows with the readings on the grid (some 40
    bytes each), not with the file.
    """
    file = Path(path)
    frame = _scan(file)
    named = columns or infer_columns(file)
    table, resolution, counts = _grid_rows(_long(frame, named), file, timezone)
    if entities is not None:
        wanted = list(entities)
        table = table.filter(pl.col("entity").is_in(wanted))
        absent = sorted(set(wanted) - set(table["entity"].unique().to_list()))
        if absent:
            raise InvalidInput("entities", repr(absent[0]), f"entities that occur in {path}")
    names = table["entity"].unique().sort().to_list()
    begin, end = table["slot"].min(), table["slot"].max()
    if not names or not isinstance(begin, int) or not isinstance(end, int):
        raise InvalidInput(f"readings of {path}", "without a usable row", "one reading or more")
    slots = end - begin + 1
    if len(names) * slots > MOST_CELLS:
        raise InvalidInput(
            "readings", f"{len(names)} entities times {slots} slots", f"at most {MOST_CELLS} cells",
            "Read part of the entities at a time.",
        )  # fmt: skip
    first, last = (datetime.fromtimestamp(s * resolution * 60, tz=UTC) for s in (begin, end))
    values = np.full((len(names), slots), np.nan)
    row = table["entity"].replace_strict(names, list(range(len(names)))).to_numpy()
    values[row, table["slot"].to_numpy() - begin] = table["value"].to_numpy()
    filled = np.isfinite(values).mean(axis=1)
    kept = filled >= at_least
    left_out = tuple(
        (name, f"{share:.0%} of its slots have a reading")
        for name, share, keep in zip(names, filled, kept, strict=True)
        if not keep
    )
    if not kept.any():
        raise InvalidInput(
            f"readings of {path}", f"no entity with {at_least:.0%} of the slots from "
            f"{first.date()} to {last.date()}", "fuller readings", "Look for a stray date.",
        )  # fmt: skip
    quality = Quality(
        rows=counts["rows"], entities=int(kept.sum()), slots=slots, resolution_minutes=resolution,
        first=first.isoformat(),
        last=last.isoformat(),
        timezone=timezone, used=int(np.isfinite(values[kept]).sum()),
        duplicates_same=counts["same"], duplicates_averaged=counts["averaged"],
        not_numbers=counts["not_numbers"], negative=counts["negative"],
        off_grid=counts["off_grid"], missing=int(np.isnan(values[kept]).sum()),
        left_out=left_out,
    )  # fmt: skip
    members = tuple(name for name, keep in zip(names, kept, strict=True) if keep)
    return Readings(members, values[kept], 24 * 60 // resolution, first, quality)


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
    kinds = dict(_scan(file).collect_schema())
    for role, name in (("entity", entity), ("timestamp", timestamp), ("value", value)):
        if name is not None and name not in kinds:
            raise InvalidInput(f"{role} column", repr(name), "one of " + ", ".join(kinds))
    times = [n for n, k in kinds.items() if k.is_temporal()] or [
        n for n in kinds if any(word in n.lower() for word in ("time", "date", "stamp"))
    ]
    times = [timestamp] if timestamp else [n for n in times if n not in (entity, value)]
    if len(times) != 1:
        raise _doubt(file, "timestamp", times, list(kinds))
    if wide:
        return Columns("", times[0], "")
    rest = {n: k for n, k in kinds.items() if n != times[0] and k != pl.Boolean}
    texts = [n for n, k in rest.items() if not k.is_numeric()]
    named = [n for n in rest if n.lower() in _ENTITY_WORDS and n != value]
    numbers = [n for n, k in rest.items() if k.is_numeric() and n not in named]
    if file.suffix.lower() == ".csv":  # no types there: names, and what looks like a number
        sample = _collect(file, _scan(file).head(200))
        numbers = [
            n for n in rest
            if n not in named
            and sample.select(_number(pl.String(), file, n)).to_series().null_count() < 100
        ]  # fmt: skip
        texts = [n for n in rest if n not in numbers]
    entities = [entity] if entity else named or [n for n in texts if n != value]
    numbers = [value] if value else [n for n in numbers if n != entity]
    if not entities and len(numbers) > 1:
        return Columns("", times[0], "")
    if len(entities) != 1:
        raise _doubt(file, "entity", entities, list(kinds))
    if len(numbers) != 1:
        raise _doubt(file, "value", numbers, list(kinds))
    return Columns(entities[0], times[0], numbers[0])


_ENTITY_WORDS = {"entity", "household", "meter", "meter_id", "id", "client", "customer", "lclid"}


def _doubt(file: Path, role: str, found: list[str], names: list[str]) -> InvalidInput:
    word = f"{len(found)} columns that could be it: {', '.join(found)}" if found else "none"
    wide = "" if role == "timestamp" else " Or say --wide: a column for each entity."
    return InvalidInput(
        f"{role} column of {file}", word, "one of " + ", ".join(names),
        f"Name it: --{role} NAME.{wide}",
    )  # fmt: skip


def _scan(file: Path) -> pl.LazyFrame:
    kind = file.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise InvalidInput("readings", str(file), "a .csv or .parquet file")
    if not file.is_file():
        raise InvalidInput("readings", str(file), "an existing file")
    try:
        if kind == ".parquet":
            frame = pl.scan_parquet(file, glob=False)
        else:
            sign = _separator(file)
            frame = pl.scan_csv(
                file, infer_schema=False, glob=False, separator=sign,
                with_column_names=lambda names: [name.strip() for name in names],
            ).with_columns(pl.all().str.strip_chars().replace("", None))  # fmt: skip
        frame.collect_schema()
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInput(f"readings of {file}", reason, "a readable file") from None
    return frame


def _separator(file: Path) -> str:
    with file.open(encoding="utf-8-sig", errors="replace") as text:
        header = text.readline()
    return max(SEPARATORS, key=header.count)


def _line(file: Path, row: int) -> str:
    """Where a row of data stands, as people count."""
    if file.suffix.lower() == ".parquet":
        return f"row {row + 1}"
    with file.open(newline="", encoding="utf-8-sig", errors="replace") as text:
        rows = csv.reader(text, delimiter=_separator(file))
        for number, _ in enumerate(rows):
            if number == row:
                return f"line {rows.line_num + 1}"
    return f"row {row + 1}"


def _long(frame: pl.LazyFrame, columns: Columns) -> pl.LazyFrame:
    """Entity, timestamp and value, whatever the file calls them, with the row they stand in."""
    names = frame.collect_schema().names()
    for role, name in vars(columns).items():
        if name and name not in names:
            raise InvalidInput(f"{role} column", repr(name), "one of " + ", ".join(names))
    numbered = frame.with_row_index(ROW)
    nothing = pl.col("timestamp").is_null() & pl.col("value").is_null()  # an empty line
    if columns.wide:
        numbered = numbered.unpivot(
            index=[ROW, columns.timestamp], variable_name="entity", value_name="value"
        )
        return numbered.rename({columns.timestamp: "timestamp"}).filter(~nothing)
    told = numbered.select(
        ROW,
        pl.col(columns.entity).cast(pl.String).alias("entity"),
        pl.col(columns.timestamp).alias("timestamp"),
        pl.col(columns.value).alias("value"),
    )
    return told.filter(~(nothing & pl.col("entity").is_null()))


def _grid_rows(
    rows: pl.LazyFrame, file: Path, timezone: str
) -> tuple[pl.DataFrame, int, dict[str, int]]:
    """Usable readings as (entity, slot, value), minutes between them, and what was left out."""
    number, good = pl.col("number"), pl.col("good")
    placed = pl.col("at").is_not_null() & pl.col("entity").is_not_null()
    sound = number.is_not_null() & number.is_finite() & (number >= 0)
    stamped = rows.with_columns(
        _utc(rows.collect_schema()["timestamp"], timezone).alias("at"),
        _number(rows.collect_schema()["value"], file).alias("number"),
    ).with_columns((placed & sound).fill_null(False).alias("good"))
    found = _collect(
        file,
        stamped.select(
            pl.len().alias("rows"), pl.col("at").is_null().sum().alias("lost"),
            pl.col("entity").is_null().sum().alias("nobody"),
            (placed & (number < 0)).sum().alias("negative"),
            (placed & ~good).sum().alias("bad"), good.sum().alias("good"),
        ),
    ).row(0, named=True)  # fmt: skip
    if found["lost"] and (timezone == "UTC" or found["lost"] > max(100, found["rows"] // 1000)):
        shown = _examples(file, stamped.filter(pl.col("at").is_null()), "timestamp")
        raise InvalidInput(
            f"readings: timestamps of {file}", f"{found['lost']} that cannot be read ({shown})",
            "dates with a time, such as 2013-01-31 23:30", "Correct or remove those rows.",
        )  # fmt: skip
    if found["nobody"]:
        shown = _examples(file, stamped.filter(pl.col("entity").is_null()), "timestamp")
        raise InvalidInput(
            f"readings: entities of {file}", f"{found['nobody']} rows without one ({shown})",
            "an entity in every row", "Complete or remove those rows.",
        )  # fmt: skip
    if not found["good"]:
        raise InvalidInput(
            f"readings of {file}", f"without a usable row ({found['rows']} rows, {found['negative']} "
            f"negative, {found['bad'] - found['negative']} no numbers)", "one reading or more",
        )  # fmt: skip
    usable = stamped.filter(good)
    resolution = _resolution(usable, file)
    seconds = pl.col("at").dt.epoch("s")
    merged = _collect(
        file,
        usable.filter(seconds % (resolution * 60) == 0)
        .select("entity", (seconds // (resolution * 60)).alias("slot"), number.alias("value"))
        .group_by("entity", "slot")
        .agg(
            pl.col("value").mean(), pl.len().alias("times"),
            pl.col("value").n_unique().alias("kinds"),
        ),
    )  # fmt: skip
    if merged.is_empty():
        raise InvalidInput(
            f"readings: times of {file}",
            f"all off the grid ({_examples(file, usable, 'timestamp')})",
            f"multiples of {resolution} min from midnight UTC",
            "Shift them, or state the --timezone they are in.",
        )  # fmt: skip
    twice = merged.filter(pl.col("times") > 1)
    same = twice.filter(pl.col("kinds") == 1)
    counts = {
        "rows": found["rows"],
        "not_numbers": found["bad"] - found["negative"] + found["lost"],
        "negative": found["negative"],
        "off_grid": found["good"] - int(merged["times"].sum()),
        "same": _extra(same),
        "averaged": _extra(twice) - _extra(same),
    }
    return merged.select("entity", "slot", "value"), resolution, counts


def _collect(file: Path, frame: pl.LazyFrame) -> pl.DataFrame:
    """Run a query over the file block by block."""
    try:
        return frame.collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        allowed = "readable readings"
        if file.suffix.lower() == ".csv":
            allowed = "UTF-8 text with as many fields in each row as in the first"
        raise InvalidInput(f"readings of {file}", reason, allowed) from None


def _examples(file: Path, rows: pl.LazyFrame, column: str) -> str:
    """The first few of some rows, with where they stand."""
    some = _collect(file, rows.select(ROW, column).head(SHOWN)).rows()
    return "; ".join(
        f"{_line(file, row)}: {'nothing' if shown is None else repr(str(shown))}"
        for row, shown in some
    )


def _extra(repeated: pl.DataFrame) -> int:
    return int(repeated.select((pl.col("times") - 1).sum()).item() or 0)


def _utc(kind: pl.DataType, timezone: str) -> pl.Expr:
    stamp = pl.col("timestamp")
    if kind == pl.String:
        told = stamp.str.contains(OFFSET)
        whole_time = stamp.str.replace(r"^(\S+[T ]\d\d:\d\d) ?(Z|[+-])", "$1:00$2")
        zoned = whole_time.str.to_datetime("%+", strict=False, time_unit="ms")
        plain = pl.when(~told).then(stamp).str.to_datetime(strict=False, time_unit="ms")
        return pl.coalesce(zoned, _in_zone(plain, timezone))
    if kind == pl.Date:
        stamp, kind = stamp.cast(pl.Datetime("ms")), pl.Datetime("ms")
    if not isinstance(kind, pl.Datetime):
        raise InvalidInput("timestamp column", f"of type {kind}", "dates with a time")
    return (
        _in_zone(stamp, timezone) if kind.time_zone is None else stamp.dt.convert_time_zone("UTC")
    )


def _in_zone(stamp: pl.Expr, timezone: str) -> pl.Expr:
    try:
        told = stamp.dt.replace_time_zone(timezone, ambiguous="earliest", non_existent="null")
    except pl.exceptions.PolarsError:
        raise InvalidInput("timezone", repr(timezone), "a name such as Europe/London") from None
    return told.dt.convert_time_zone("UTC")


def _number(kind: pl.DataType, file: Path, name: str = "value") -> pl.Expr:
    value = pl.col(name)
    if kind == pl.String and file.suffix.lower() == ".csv" and _separator(file) == ";":
        value = value.str.replace(",", ".", literal=True)  # decimal commas go with semicolons
    return value.cast(pl.Float64, strict=False)


def _resolution(usable: pl.LazyFrame, file: Path) -> int:
    """Minutes between readings: the commonest step, which must be the same for all entities."""
    step = pl.col("at").unique().sort().diff().dt.total_minutes().drop_nulls().mode().min()
    steps = _collect(
        file, usable.group_by("entity").agg(step.alias("step")).drop_nulls().sort("entity")
    )
    found = sorted(steps["step"].unique().to_list())
    if not found:
        raise InvalidInput(f"readings of {file}", "one reading an entity", "a series of readings")
    if len(found) > 1:
        examples = ", ".join(
            f"{steps.filter(pl.col('step') == one)['entity'][0]} every {one} min"
            for one in found[:3]
        )
        raise InvalidInput(
            f"readings: resolution of {file}", f"mixed ({examples})", "one resolution for all",
            "Bring them to one grid first.",
        )  # fmt: skip
    return _divides_a_day(int(found[0]))


def _divides_a_day(minutes: int) -> int:
    if (24 * 60) % whole("resolution", minutes, 1):
        raise InvalidInput("resolution", f"{minutes} min", "minutes that divide a day")
    return minutes
