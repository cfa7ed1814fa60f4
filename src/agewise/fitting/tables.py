"""Files of readings as tables: separators, columns and times, whatever the file calls them."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl

from agewise.errors import InvalidInput

Progress = Callable[[int, int], None]
ROW = "\0row"
"""No file has a column of that name."""
SEPARATORS = ",;\t|"
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
    sample = _sample(file)
    for role, name in (("entity", entity), ("timestamp", timestamp), ("value", value)):
        if name is not None and name not in sample.columns:
            raise InvalidInput(f"{role} column", repr(name), "one of " + ", ".join(sample.columns))
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
    numbers = [value] if value else [
        n for n in rest if looks[n] in ("number", "nothing") and n not in entities
    ]  # fmt: skip
    if not entities and len(numbers) > 1:
        return Columns("", times[0], "")
    if len(numbers) > 1:  # columns in which there is nothing are entities, or nothing
        numbers = [n for n in numbers if looks[n] == "number"]
    if len(entities) != 1:
        raise _doubt(file, "entity", entities, sample.columns)
    if len(numbers) != 1:
        raise _doubt(file, "value", numbers, sample.columns)
    return Columns(entities[0], times[0], numbers[0])


_ENTITY_WORDS = {"entity", "household", "meter", "meter_id", "id", "client", "customer", "lclid"}


_TIME_WORDS = ("time", "date", "stamp", "zeit", "datum", "heure", "fecha", "hora")


def _times(looks: dict[str, str], taken: tuple[str | None, ...]) -> list[str]:
    """Columns that look like times, by name where several do, or none.

    Numbers that could be seconds since 1970 are times only where nothing else is.
    """
    found = [n for n, look in looks.items() if look == "time" and n not in taken]
    found = found or [
        n for n, look in looks.items()
        if look == "epoch" and n not in taken and n.lower() not in _ENTITY_WORDS
    ]  # fmt: skip
    if len(found) == 1:
        return found
    among = found or [n for n, look in looks.items() if look != "number" and n not in taken]
    return [n for n in among if any(word in n.lower() for word in _TIME_WORDS)] or found


def _looks_like(column: pl.Series, file: Path) -> str:
    """Time, epoch, number, text, yes or no, or nothing at all: what most of the first rows are."""
    kind, some = column.dtype, column.drop_nulls()
    if kind.is_numeric():
        return "epoch" if 2 * _since_1970(some).count() > some.len() else "number"
    if kind != pl.String:
        return "time" if kind.is_temporal() else "yes or no" if kind == pl.Boolean else "text"
    some = some.filter(some != "")
    if some.is_empty():
        return "nothing"
    comma = file.suffix.lower() == ".csv" and _separator(file) == ";"
    if 2 * _number(some, decimal_comma=comma).count() > some.len():
        return "epoch" if 2 * _since_1970(some).count() > some.len() else "number"
    odd = some.filter([bool(time_hint(text)) for text in some])
    return "time" if 2 * (_utc(some, "UTC")[0].count() + odd.len()) > some.len() else "text"


def time_hint(text: str) -> str:
    """What a time that cannot be read looks like, and what to do about it."""
    return next((hint for form, hint in STRANGE_TIMES.items() if re.search(form, text)), "")


def _sample(file: Path) -> pl.DataFrame:
    try:
        return _scan(file).head(200).collect()
    except pl.exceptions.PolarsError as error:
        raise _unreadable(file, error) from None


def _doubt(file: Path, role: str, found: list[str], names: list[str]) -> InvalidInput:
    word = f"{len(found)} columns that could be it: {', '.join(found)}" if found else "none"
    wide = "" if role == "timestamp" else " Or say --wide: a column for each entity."
    return InvalidInput(
        f"{role} column of {file}", word, "one of " + ", ".join(names),
        f"Name it: --{role} NAME.{wide}",
    )  # fmt: skip


def blocks(
    file: Path, columns: Columns, timezone: str, progress: Progress | None = None
) -> Iterator[pl.DataFrame]:
    """The file's readings, some rows at a time, whatever the file calls its columns.

    Columns: the row of the file, entity and timestamp as they stand, the time `at` in seconds
    since 1970 and the `number`, both null where they cannot be read, and whether the time is
    `skipped` by a clock change. Empty lines are left out.
    """
    frame = _scan(file)
    kinds = frame.collect_schema()
    for role, name in vars(columns).items():
        if name and name not in kinds:
            raise InvalidInput(f"{role} column", repr(name), "one of " + ", ".join(kinds))
    try:
        ZoneInfo(timezone)
    except (ValueError, OSError, KeyError):
        raise InvalidInput("timezone", repr(timezone), "a name such as Europe/London") from None
    needed = list(kinds) if columns.wide else list(vars(columns).values())
    for name in needed if columns.wide else [columns.value]:
        if name != columns.timestamp and not (kinds[name].is_numeric() or kinds[name] == pl.String):
            raise InvalidInput(
                f"column {name!r} of {file}", f"of type {kinds[name]}", "numbers",
                "Leave the column out." if columns.wide else "Name another: --value NAME.",
            )  # fmt: skip
    decimal_comma = file.suffix.lower() == ".csv" and _separator(file) == ";"
    row = total = 0
    try:
        if progress is not None:
            total = frame.select(pl.len()).collect(engine="streaming").item()
        for block in frame.select(needed).collect_batches(engine="streaming"):
            told = _long(block.with_row_index(ROW, offset=row), columns)
            row += block.height
            if progress is not None:
                progress(row, total)
            at, skipped = _utc(told["timestamp"], timezone)
            yield told.with_columns(
                at.dt.epoch("s").alias("at"),
                skipped.alias("skipped"),
                _number(told["value"], decimal_comma=decimal_comma).alias("number"),
            )
    except pl.exceptions.PolarsError as error:
        raise _unreadable(file, error) from None


def line(file: Path, row: int) -> str:
    """Where a row of data stands, as people count."""
    if file.suffix.lower() == ".parquet":
        return f"row {row + 1}"
    with file.open(newline="", encoding="utf-8-sig", errors="replace") as text:
        rows = csv.reader(text, delimiter=_separator(file))
        for number, _ in enumerate(rows):
            if number == row:
                return f"line {rows.line_num + 1}"
    return f"row {row + 1}"


def _scan(file: Path) -> pl.LazyFrame:
    """The file as it stands; what is in a CSV file is text, without blanks around it."""
    kind = file.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise InvalidInput("readings", str(file), "a .csv or .parquet file")
    if not file.is_file():
        raise InvalidInput("readings", str(file), "an existing file")
    try:
        if kind == ".parquet":
            frame = pl.scan_parquet(file, glob=False)
        else:
            _refuse_strange_text(file)
            frame = pl.scan_csv(
                file, infer_schema=False, glob=False, separator=_separator(file),
                with_column_names=lambda names: [name.strip() for name in names],
            ).with_columns(pl.all().str.strip_chars())  # fmt: skip
        frame.collect_schema()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _unreadable(file, error) from None
    return frame


def _unreadable(file: Path, error: Exception) -> InvalidInput:
    if file.suffix.lower() == ".parquet":
        return InvalidInput(f"readings of {file}", str(error).splitlines()[0], "a Parquet file")
    fault = _first_fault(file) or str(error).splitlines()[0]
    allowed = "UTF-8 text with as many fields in each row as in the first"
    return InvalidInput(f"readings of {file}", fault, allowed)


def _first_fault(file: Path) -> str:
    """The first line of a CSV file that has more fields than the header, or cannot be read."""
    lines = 0
    try:
        with file.open(newline="", encoding="utf-8-sig") as text:
            rows = csv.reader(text, delimiter=_separator(file))
            fields = len(next(rows, []))
            for row in rows:
                lines = rows.line_num
                if len(row) > fields:
                    return f"line {lines} with {len(row)} fields, the first has {fields}"
    except (UnicodeDecodeError, csv.Error) as error:
        return f"line {lines + 1} or after that cannot be read ({error})"
    return ""


def _refuse_strange_text(file: Path) -> None:
    """Refuse what is no UTF-8 text, or names two columns alike, before anything is guessed."""
    with file.open("rb") as data:
        head = data.read(1 << 20)
    if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or head[:64].count(0) >= 16:
        raise InvalidInput(
            f"readings of {file}", "UTF-16 text, as spreadsheets save it", "UTF-8 text",
            "Save it as CSV UTF-8, or: iconv -f utf-16 -t utf-8.",
        )  # fmt: skip
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:
            line = head[: error.start].count(b"\n") + 1
            raise InvalidInput(
                f"readings of {file}", f"byte {head[error.start]:#x} in line {line}", "UTF-8 text",
                "Convert it, such as by: iconv -f latin1 -t utf-8.",
            ) from None  # fmt: skip
        text = head[: error.start].decode("utf-8-sig")
    if "\0" in text:
        raise InvalidInput(f"readings of {file}", "bytes that are no text", "UTF-8 text")
    names = [n.strip() for n in next(csv.reader([text.partition("\n")[0]],
                                               delimiter=_separator(file)), [])]  # fmt: skip
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(
                f"columns of {file}", f"{names.count(name)} named {name!r}", "distinct names"
            )


def _separator(file: Path) -> str:
    with file.open(encoding="utf-8-sig", errors="replace") as text:
        header = text.readline()
    return max(SEPARATORS, key=header.count)


def _long(block: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    """Entity, timestamp and value; text that is empty is nothing."""
    if columns.wide:
        told = (
            block.rename({columns.timestamp: "\0time"})
            .unpivot(index=[ROW, "\0time"], variable_name="\0entity", value_name="\0value")
            .rename({"\0time": "timestamp", "\0entity": "entity", "\0value": "value"})
        )
    else:
        told = block.select(
            ROW,
            pl.col(columns.entity).cast(pl.String).alias("entity"),
            pl.col(columns.timestamp).alias("timestamp"),
            pl.col(columns.value).alias("value"),
        )
    told = told.with_columns(
        pl.when(pl.col(name) != "").then(pl.col(name)).alias(name)
        for name, kind in told.schema.items()
        if kind == pl.String
    )
    nothing = pl.col("timestamp").is_null() & pl.col("value").is_null()
    return told.filter(~nothing if columns.wide else ~(nothing & pl.col("entity").is_null()))


def _utc(stamp: pl.Series, timezone: str) -> tuple[pl.Series, pl.Series]:
    """Times in UTC, null where they cannot be read or do not exist; and where they do not exist."""
    if stamp.dtype == pl.String:
        return _text_utc(stamp, timezone)
    if stamp.dtype.is_numeric():
        return _since_1970(stamp), stamp.is_null() & False
    if stamp.dtype == pl.Date:
        stamp = stamp.cast(pl.Datetime("ms"))
    if not isinstance(stamp.dtype, pl.Datetime):
        raise InvalidInput("timestamp column", f"of type {stamp.dtype}", "dates with a time")
    if stamp.dtype.time_zone is not None:
        return stamp.dt.convert_time_zone("UTC"), stamp.is_null() & False
    return _in_zone(stamp, timezone)


def _text_utc(stamp: pl.Series, timezone: str) -> tuple[pl.Series, pl.Series]:
    since = _since_1970(stamp)
    zoned = stamp.str.contains(OFFSET).fill_null(False)
    local, skipped = _in_zone(_parsed(stamp.set(zoned | since.is_not_null(), None)), timezone)
    found = since.zip_with(since.is_not_null(), local)
    if not zoned.any():
        return found, skipped
    to_the_second = stamp.str.replace(r"^(\S+[T ]\d\d:\d\d) ?(Z|[+-])", "$1:00$2")
    told = to_the_second.str.to_datetime("%+", strict=False, time_unit="ms")
    return told.zip_with(told.is_not_null(), found), skipped


def _since_1970(stamp: pl.Series) -> pl.Series:
    """Times where numbers count s, ms, µs or ns from 1970, null elsewhere."""
    if stamp.dtype == pl.String:
        digits = stamp.str.contains(r"^\d{9,19}(\.\d+)?$").fill_null(False)
        if not digits.any():  # as in most files: no time spent
            return pl.repeat(None, stamp.len(), dtype=pl.Datetime("ms", "UTC"), eager=True)
        stamp = stamp.set(~digits, None)
    number, found = stamp.cast(pl.Float64, strict=False), pl.lit(None, dtype=pl.Float64)
    for unit in EPOCHS:
        inside = pl.col("n").is_between(FROM_2000 * unit, TO_2100 * unit)
        found = pl.when(inside).then(pl.col("n") * 1000 / unit).otherwise(found)
    since = pl.select(n=number).select(found.round().cast(pl.Int64)).to_series()
    return since.cast(pl.Datetime("ms", "UTC"))


def _parsed(stamp: pl.Series) -> pl.Series:
    try:
        return stamp.str.to_datetime(strict=False, time_unit="ms")
    except pl.exceptions.ComputeError:  # not one that looks like a time
        return pl.Series(values=[None] * stamp.len(), dtype=pl.Datetime("ms"))


def _in_zone(stamp: pl.Series, timezone: str) -> tuple[pl.Series, pl.Series]:
    told = stamp.dt.replace_time_zone(timezone, ambiguous="earliest", non_existent="null")
    return told.dt.convert_time_zone("UTC"), stamp.is_not_null() & told.is_null()


def _number(value: pl.Series, *, decimal_comma: bool) -> pl.Series:
    """Numbers, null where they cannot be read."""
    if value.dtype == pl.String and decimal_comma:
        value = value.str.replace(",", ".", literal=True)
    return value.cast(pl.Float64, strict=False)
