"""CSV and Parquet files as tables: what is refused, how fields are told apart, where rows stand."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from agewise.errors import InvalidInput
from agewise.progress import Progress

ROW = "\0row"
"""The number of a row of data, from 0; no file has a column of that name."""
SEPARATORS = ",;\t|"


def scan(file: Path) -> pl.LazyFrame:
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
                file,
                infer_schema=False,
                glob=False,
                separator=_separator(file),
                with_column_names=lambda names: [name.strip() for name in names],
            ).with_columns(pl.all().str.strip_chars())
        frame.collect_schema()
    except OSError as error:
        raise InvalidInput("readings", f"{file} ({error.strerror})", "a readable file") from None
    except pl.exceptions.PolarsError as error:
        raise _unreadable(file, error) from None
    return frame


def first_rows(file: Path, count: int) -> pl.DataFrame:
    """The first rows of a file, to guess from."""
    try:
        return scan(file).head(count).collect()
    except pl.exceptions.PolarsError as error:
        raise _unreadable(file, error) from None


def blocks(
    file: Path, columns: Sequence[str], progress: Progress | None = None
) -> Iterator[pl.DataFrame]:
    """Some columns of a file, some rows at a time, with the number of each row.

    Text that is empty is nothing, and rows in which there is nothing are left out.
    """
    frame = scan(file)
    row = total = 0
    try:
        if progress is not None:
            total = frame.select(pl.len()).collect(engine="streaming").item()
        for block in frame.select(columns).collect_batches(engine="streaming"):
            numbered = block.with_row_index(ROW, offset=row).with_columns(
                pl.when(pl.col(name) != "").then(pl.col(name)).alias(name)
                for name, kind in block.schema.items()
                if kind == pl.String
            )
            row += block.height
            if progress is not None:
                progress(row, total)
            yield numbered.filter(~pl.all_horizontal(pl.col(columns).is_null()))
    except pl.exceptions.PolarsError as error:
        raise _unreadable(file, error) from None


def refuse_other_than_numbers(file: Path, columns: Sequence[str], remedy: str = "") -> None:
    """Refuse columns whose type cannot be read as numbers; text may turn out to be some."""
    kinds = scan(file).collect_schema()
    for name in columns:
        if not (kinds[name].is_numeric() or kinds[name] == pl.String):
            raise InvalidInput(
                f"column {name!r} of {file}", f"of type {kinds[name]}", "numbers", remedy
            )


def numbers(column: pl.Series, file: Path) -> pl.Series:
    """Numbers, null where they cannot be read; with semicolons between fields 1,5 is one."""
    if column.dtype == pl.String and file.suffix.lower() == ".csv" and _separator(file) == ";":
        column = column.str.replace(",", ".", literal=True)
    return column.cast(pl.Float64, strict=False)


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
            f"readings of {file}",
            "UTF-16 text, as spreadsheets save it",
            "UTF-8 text",
            "Save it as CSV UTF-8, or: iconv -f utf-16 -t utf-8.",
        )
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:
            line = head[: error.start].count(b"\n") + 1
            raise InvalidInput(
                f"readings of {file}",
                f"byte {head[error.start]:#x} in line {line}",
                "UTF-8 text",
                "Convert it, such as by: iconv -f latin1 -t utf-8.",
            ) from None
        text = head[: error.start].decode("utf-8-sig")
    if "\0" in text:
        raise InvalidInput(f"readings of {file}", "bytes that are no text", "UTF-8 text")
    header = csv.reader([text.partition("\n")[0]], delimiter=_separator(file))
    names = [name.strip() for name in next(header, [])]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(
                f"columns of {file}", f"{names.count(name)} named {name!r}", "distinct names"
            )


def _separator(file: Path) -> str:
    with file.open(encoding="utf-8-sig", errors="replace") as text:
        header = text.readline()
    return max(SEPARATORS, key=header.count)
