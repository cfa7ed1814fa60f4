"""A column beside the readings that others may know too, such as a temperature or a tariff."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.errors import InvalidInput, quoted
from agewise.readings.columns import Columns
from agewise.readings.files import scan
from agewise.readings.survey import Grid
from agewise.wording import did_you_mean

PUBLIC = ("weekend", "weekday", "month", "level")
"""What is known without a column: the calendar, and the other entities' level."""
MOST_LABELS = 30_000
"""Different values of a column beyond which it is refused."""


@dataclass(frozen=True)
class Covariate:
    """The values of a column on the grid of readings: `labels[codes[entity, slot]]`, −1: none."""

    name: str
    labels: tuple[str, ...]
    codes: NDArray[np.int16]

    def numbers(self) -> Array | None:
        """The labels as numbers, None if some are none."""
        try:
            found = np.array([float(label.replace(",", ".")) for label in self.labels])
        except ValueError:
            return None
        return found if np.isfinite(found).all() else None

    def part(self, slots: slice) -> Covariate:
        """Some of the slots."""
        return replace(self, codes=self.codes[:, slots])


def refuse_covariate(file: Path, columns: Columns, name: str) -> None:
    """Refuse a column that there is not, or that is not beside the readings."""
    if columns.wide:
        raise InvalidInput(
            "given",
            f"column {name!r} of a wide file",
            "a column of a long file",
            "Bring the file into the columns entity, time, reading and that one.",
        )
    taken = vars(columns).values()
    free = [one for one in scan(file).collect_schema().names() if one not in taken]
    if name not in free:
        raise InvalidInput(
            "given",
            quoted(name),
            f"{', '.join(PUBLIC)}, or a column beside the readings ({', '.join(free) or 'none'})",
            did_you_mean(name, [*PUBLIC, *free]),
        )


def fill_covariate(
    name: str, blocks: Iterator[pl.DataFrame], grid: Grid, members: Sequence[str]
) -> Covariate:
    """Put a column, `also` in the blocks, on the grid; of several values in a cell the first."""
    at = pl.col("at") - grid.begin
    row = pl.col("entity").cast(pl.Enum(members), strict=False).to_physical().cast(pl.Int64)
    codes = np.full(len(members) * grid.slots, -1, dtype=np.int16)
    labels: dict[str, int] = {}
    for rows in blocks:
        block = (
            rows.filter((at % grid.step == 0) & (at >= 0) & (at // grid.step < grid.slots))
            .select(cell=row * grid.slots + at // grid.step, also=pl.col("also").cast(pl.String))
            .drop_nulls()
        )
        for label in block["also"].unique(maintain_order=True):
            labels.setdefault(label, len(labels))
        if len(labels) > MOST_LABELS:
            raise InvalidInput(
                "given",
                f"column {name!r} with more than {MOST_LABELS} different values",
                "a column with fewer",
                "Round it, or bring it into classes first.",
            )
        code = block["also"].replace_strict(labels, return_dtype=pl.Int16).to_numpy()
        cell = block["cell"].to_numpy()[::-1]  # the first of a cell is written last
        codes[cell] = np.where(codes[cell] >= 0, codes[cell], code[::-1])
    if not labels:
        raise InvalidInput("given", f"column {name!r}, empty", "a column with values")
    return Covariate(name, tuple(labels), codes.reshape(len(members), grid.slots))
