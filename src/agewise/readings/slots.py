"""Records by client and slot: what a run averages."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from agewise.arrays import Array
from agewise.errors import InvalidInput
from agewise.readings.files import ROW, blocks, line, numbers, refuse_other_than_numbers, scan

COLUMNS = ("client", "slot", "value")
"""Columns of a file of records, one row per record."""
_PLACED = (pl.col("client").is_not_null() & (pl.col("at") == pl.col("at").floor())).fill_null(False)
_NAME = pl.col("client").cast(pl.String)
_FINITE = pl.col("number").is_finite().fill_null(False)


def read_slots(path: Path | str, slots: int) -> dict[str, dict[int, Array]]:
    """Read a CSV or Parquet file with the columns client, slot and value, one row per record.

    Return each client's records by slot, in the order of the file; only slots 1 to `slots` are
    kept. The file is read in blocks.
    """
    file = Path(path)
    names = scan(file).collect_schema().names()
    if not set(COLUMNS) <= set(names):
        raise InvalidInput(
            "readings",
            f"{path} with columns {', '.join(names)}",
            "the columns " + ", ".join(COLUMNS),
        )
    refuse_other_than_numbers(file, ("slot", "value"))
    kept: list[pl.DataFrame] = []
    bad: list[pl.DataFrame] = []
    for block in blocks(file, COLUMNS):
        read = block.with_columns(
            numbers(block["slot"], file).alias("at"), numbers(block["value"], file).alias("number")
        )
        wanted = read.filter(pl.col("at").is_between(1, slots) | ~_PLACED)
        bad.append(wanted.filter(~(_PLACED & _FINITE)))
        good = wanted.filter(_PLACED & _FINITE)
        kept.append(good.select(_NAME, pl.col("at").cast(pl.Int64), "number"))
    _refuse_bad_rows(file, bad)
    table = pl.concat(kept) if kept else pl.DataFrame()
    if not table.height:
        raise InvalidInput("readings", f"{path} without rows", f"rows in slots 1 to {slots}")
    readings: dict[str, dict[int, Array]] = {}
    for (client, slot), rows in table.group_by("client", "at", maintain_order=True):
        readings.setdefault(str(client), {})[slot] = rows["number"].to_numpy()
    return readings


def _refuse_bad_rows(file: Path, bad: list[pl.DataFrame]) -> None:
    rows = next((part for part in bad if part.height), None)
    if rows is None:
        return
    first = rows.row(0, named=True)
    raise InvalidInput(
        f"readings: {line(file, first[ROW])} of {file}",
        f"client {first['client']}, slot {first['slot']}, value {first['value']}",
        "a name, a whole number and a finite number",
        f"Rows like this: {sum(part.height for part in bad)}. Correct or remove them.",
    )
