"""Where a client's records come from: a simulated process, or recorded readings."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from agewise.errors import InvalidInput
from agewise.problem import Client
from agewise.process.joint import Array

COLUMNS = ("client", "slot", "value")
"""Columns of a file of readings, one row a record."""


class DataSource(Protocol):
    """Gives a client its records. A retry in the same slot must give the same ones."""

    def check(self, slot: int, samples: int) -> None:
        """Raise `InvalidInput` if `collect` would; release nothing."""
        ...

    def collect(self, slot: int, samples: int) -> Array:
        """Return `samples` records as they are in `slot`, or raise `InvalidInput`."""
        ...


def client_generator(seed: int, name: str, purpose: str) -> np.random.Generator:
    """Return a client's own generator, whatever the order in which clients are served."""
    digest = hashlib.sha256(f"{purpose}\0{name}".encode()).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:16])])


class SimulatedRecords:
    """Records drawn from the client's own law and process, and followed until aggregation."""

    def __init__(self, client: Client, seed: int) -> None:
        self.client, self.seed = client, seed

    def check(self, slot: int, samples: int) -> None:
        """Records can be drawn in any slot."""

    def collect(self, slot: int, samples: int) -> Array:
        drawn, _ = self._draw(slot, samples)
        return np.asarray(self.client.process.states[drawn])

    def present(self, collect_at: int, aggregate_at: int, samples: int, table: Array) -> Array:
        """The mean of `table` `[S, d]` in slot `aggregate_at`, over what `collect` gave."""
        process = self.client.process
        drawn, rng = self._draw(collect_at, samples)
        later = _draw(process.kernel(collect_at, aggregate_at)[drawn], rng)
        return np.array([column[later].mean() for column in np.ascontiguousarray(table.T)])

    def _draw(self, slot: int, samples: int) -> tuple[Any, np.random.Generator]:
        rng = client_generator(self.seed, self.client.name, "records")
        law = self.client.law_at(slot)
        return _draw(np.broadcast_to(law, (samples, law.size)), rng), rng


def _draw(rows: Array, rng: np.random.Generator) -> Any:
    """One state from each row of probabilities."""
    below = np.cumsum(rows, axis=1)[:, :-1]
    # A state of probability 0 is never drawn, not even by rounding of the sums.
    drawn = (below <= rng.random(len(rows))[:, None]).sum(axis=1)
    last = rows.shape[1] - 1 - np.argmax(rows[:, ::-1] > 0, axis=1)
    return np.minimum(drawn, last)


class RecordedReadings:
    """A client's records by slot, as read from a file."""

    def __init__(self, name: str, path: Path | None, by_slot: Mapping[int, Array]) -> None:
        self.name, self.path, self.by_slot = name, path, by_slot

    def check(self, slot: int, samples: int) -> None:
        """Refuse a slot with too few records, or too many."""
        self.collect(slot, samples)

    def collect(self, slot: int, samples: int) -> Array:
        found = self.by_slot.get(slot, np.empty(0))
        if found.size != samples:
            raise InvalidInput(
                f"readings of client {self.name!r} in slot {slot}",
                f"{found.size} records in {self.path}",
                f"{samples}, as its noise was set for",
                f"Plan for {found.size} samples, or correct the file: whose records do not follow "
                "the client's law must not be in it."
                if found.size
                else "Complete the file.",
            )
        return found


def load_readings(path: Path | str, slots: int) -> dict[str, RecordedReadings]:
    """Read a CSV or Parquet file with the columns client, slot and value, one row a record.

    Only slots 1 to `slots` are kept.
    """
    import polars as pl  # noqa: PLC0415  (an eighth of a second to import)

    def _whole(column: pl.Expr) -> pl.Expr:
        number = column.cast(pl.Float64, strict=False)
        return pl.when(number == number.floor()).then(number.cast(pl.Int64, strict=False))

    file = Path(path)
    if file.suffix.lower() not in (".csv", ".parquet"):
        raise InvalidInput("readings", str(path), "a .csv or .parquet file")
    try:
        frame = (
            pl.scan_parquet(file, glob=False)
            if file.suffix.lower() == ".parquet"
            else pl.scan_csv(file, infer_schema=False, glob=False)
        )
        names = frame.collect_schema().names()
        for column in COLUMNS:
            if column not in names:
                raise InvalidInput(
                    "readings", f"{path} with columns {', '.join(names)}",
                    "the columns " + ", ".join(COLUMNS),
                )  # fmt: skip
        kinds = frame.collect_schema()
        for column in ("slot", "value"):
            if not (kinds[column].is_numeric() or kinds[column] == pl.String):
                raise InvalidInput(
                    f"readings: column {column} of {path}", str(kinds[column]), "numbers"
                )
        table = (
            frame.select(COLUMNS)
            .with_row_index("row")
            .with_columns(
                _whole(pl.col("slot")).alias("at"),
                pl.col("value").cast(pl.Float64, strict=False).alias("number"),
            )
            .filter(
                pl.col("at").is_between(1, slots)
                | pl.col("at").is_null()
                | pl.col("client").is_null()
            )
            .collect()
        )
    except FileNotFoundError:
        raise InvalidInput("readings", str(path), "an existing file") from None
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInput("readings", f"{path} ({reason})", "a readable file") from None
    wrong = table.filter(
        pl.col("client").is_null() | pl.col("at").is_null() | ~pl.col("number").is_finite()
        | pl.col("number").is_null()
    )  # fmt: skip
    if wrong.height:
        row = wrong.row(0, named=True)
        raise InvalidInput(
            f"readings: row {row['row'] + 1} of {path}",
            f"client {row['client']}, slot {row['slot']}, value {row['value']}",
            "a name, a whole number and a finite number",
            f"{wrong.height} such rows; correct or remove them.",
        )
    if not table.height:
        raise InvalidInput("readings", f"{path} without rows", f"rows in slots 1 to {slots}")
    found: dict[str, dict[int, Array]] = {}
    grouped = table.group_by("client", "at", maintain_order=True).agg("number")
    for client, slot, values in grouped.iter_rows():
        found.setdefault(str(client), {})[slot] = np.asarray(values, dtype=float)
    return {name: RecordedReadings(name, file, by_slot) for name, by_slot in found.items()}
