"""Readings on a grid of time, and what was wrong with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from agewise.arrays import Array
from agewise.checks import as_names, as_path, fraction, instance
from agewise.errors import InvalidInput
from agewise.progress import Progress
from agewise.readings.columns import Columns, infer_columns
from agewise.readings.covariate import Covariate, fill_covariate, refuse_covariate
from agewise.readings.plausibility import registers
from agewise.readings.survey import DAY, GOOD, Grid, find_grid, survey, too_thin
from agewise.readings.timed import timed_blocks

WEEK = 7
"""Days."""


@dataclass(frozen=True)
class Quality:
    """What was found in a file, and what was done about it. Every number counts readings."""

    rows: int  #: in the file
    entities: int  #: that were kept
    slots: int  #: of the grid
    resolution_minutes: float  #: minutes from slot to slot
    first: str  #: time of the first slot
    last: str  #: time of the last slot
    timezone: str  #: of timestamps that name none
    used: int  #: readings on the grid
    duplicates_same: int  #: equal to another one, counted once
    duplicates_averaged: int  #: other than another one of the same time
    not_numbers: int  #: left out
    negative: int  #: left out
    clock_change: int  #: left out: at times that a clock change skips
    off_grid: int  #: left out: between two slots
    missing: int  #: slots of kept entities without a reading
    left_out: tuple[tuple[str, str], ...]
    """Entities that were left out, each with the reason."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Readings:
    """Readings on a grid: `values[entity, slot]`, NaN where there is none.

    Slot 0 begins at `first` in the data's own time zone; `day` is the number of slots per day.
    Clock changes leave gaps or doubled slots in local time, so the grid is in UTC and
    `first_of_day` says which slot of the day the first one is.
    """

    entities: tuple[str, ...]  #: names, in the order of the rows
    values: Array  #: in the unit of the file
    day: int
    first: datetime
    quality: Quality  #: what was found in the file
    covariate: Covariate | None = None
    """A column that others may know too, if one was asked for."""

    def __repr__(self) -> str:
        rows, slots = self.values.shape
        return (
            f"Readings({rows:,} entities, {slots:,} slots of {self.day} per day, from {self.first})"
        )

    @property
    def first_of_day(self) -> int:
        """Which slot of the day the grid begins with, from 0."""
        seconds = (self.first.hour * 60 + self.first.minute) * 60 + self.first.second
        return seconds * self.day // DAY

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
        return self._part(slice(None, cut), self.first), self._part(slice(cut, None), later)

    def alternate_weeks(self, first_slot: int, slots: int) -> tuple[Readings, Readings]:
        """Windows of every other week from the first one on, and those of the weeks between.

        A window of `slots` starts in `first_slot` of each day (from 0). Both parts keep the whole
        time, with readings only where their windows are; neighbouring windows share what they
        overlap by.
        """
        week = WEEK * self.day
        if slots > week:
            raise InvalidInput("slots", slots, f"at most {week}, one week, to be judged by weeks")
        at = np.arange(self.values.shape[1]) - (first_slot - self.first_of_day) % self.day
        parts = []
        for parity in (0, 1):
            near = (at // week % 2 == parity) | ((at - slots + 1) // week % 2 == parity)
            part = replace(self, values=np.where(near, self.values, np.nan))
            parts.append(part._part(slice(None), self.first))
        return parts[0], parts[1]

    def _part(self, slots: slice, first: datetime) -> Readings:
        """Some of the slots; what was wrong with the file remains what it was."""
        values = self.values[:, slots]
        last = first + timedelta(days=1) / self.day * (values.shape[1] - 1)
        used = int(np.isfinite(values).sum())
        quality = replace(
            self.quality,
            slots=values.shape[1],
            first=first.isoformat(),
            last=last.isoformat(),
            used=used,
            missing=values.size - used,
        )
        also = None if self.covariate is None else self.covariate.part(slots)
        return replace(self, values=values, first=first, quality=quality, covariate=also)


def read_readings(
    path: Path | str,
    columns: Columns | None = None,
    *,
    timezone: str = "UTC",
    entities: Iterable[str] | None = None,
    at_least: float = 0.5,
    covariate: str | None = None,
    progress: Progress | None = None,
) -> Readings:
    """Read a CSV or Parquet file of readings, long (entity, timestamp, value) or wide.

    Timestamps without a zone or offset are in `timezone`; what a clock change makes ambiguous
    counts as the earlier one, what it skips is left out. Readings that are no numbers or negative
    (or above 1e100) are left out, equal duplicates count once and others are averaged, and all of
    it is counted. `entities` keeps only those; one with less than `at_least` of its slots, or with
    readings that hardly ever fall (totals on a meter), is left out by name, and a file is refused
    if most of its entities are of the latter kind. `covariate` names a column of a long file that
    others may know too (see `agewise.fitting.given`); the file is then read once more.

    The file is read in blocks, twice; memory grows with the cells of the grid (8 bytes each), not
    with the file.
    """
    file = as_path("readings", path)
    if columns is not None:
        instance("columns", columns, Columns, "Columns, or None to guess them")
    named = infer_columns(file) if columns is None else columns
    instance("timezone", timezone, str, "a name such as Europe/London")
    wanted = None if entities is None else list(as_names("entities", entities))
    if wanted == []:
        raise InvalidInput("entities", "empty", "names of entities, or None for all")
    if covariate is not None:
        instance("covariate", covariate, str, "the name of a column, or None")
    fraction("at_least", at_least, with_zero=True, with_one=True)
    if covariate is not None:
        refuse_covariate(file, named, covariate)
    rows = timed_blocks(file, named, timezone, _half(progress, 0))
    counts, profile = survey(rows, file, wanted, wide=named.wide)
    grid = find_grid(profile, file, at_least)
    names = grid.names
    again = timed_blocks(file, named, timezone, _half(progress, 1))
    values, same, averaged = _fill(again, grid)
    if named.wide and same + averaged > counts["good"] / 4:
        raise InvalidInput(
            f"readings of {file}",
            "the same times over and over",
            "each time once in a wide file",
            "Is the file long? Then name its columns, and do not say --wide.",
        )
    filled = np.isfinite(values).mean(axis=1)
    kept = filled >= at_least
    left_out = tuple(
        (name, f"{share:.0%} of its slots have a reading")
        for name, share, keep in zip(names, filled, kept, strict=True)
        if not keep
    )
    if not kept.any():
        raise too_thin(file, at_least, grid)
    totals = kept & registers(values, DAY // grid.step)
    if 2 * totals.sum() > kept.sum():
        first = names[int(totals.argmax())]
        raise InvalidInput(
            f"readings of {file}",
            f"{totals.sum()} of {kept.sum()} entities that hardly ever fall "
            f"(such as {first!r}), like totals on a meter",
            "what was used in each slot",
            "Take differences of each entity's readings in order of time first.",
        )
    kept &= ~totals
    left_out += tuple(
        (name, "hardly ever falls, like the total on a meter: take differences first")
        for name, total in zip(names, totals, strict=True)
        if total
    )
    if not kept.all():
        values = values[kept]
    used = int(np.isfinite(values).sum())
    quality = Quality(
        rows=counts["rows"],
        entities=len(values),
        slots=values.shape[1],
        resolution_minutes=grid.step / 60,
        first=grid.time(0).isoformat(),
        last=grid.time(grid.slots - 1).isoformat(),
        timezone=timezone,
        used=used,
        duplicates_same=same,
        duplicates_averaged=averaged,
        not_numbers=counts["bad"] - counts["negative"],
        negative=counts["negative"],
        clock_change=counts["skipped"],
        off_grid=grid.off,
        missing=values.size - used,
        left_out=left_out,
    )
    members = tuple(name for name, keep in zip(names, kept, strict=True) if keep)
    also = None
    if covariate is not None:
        blocks = timed_blocks(file, named, timezone, also=covariate)
        also = fill_covariate(covariate, blocks, grid, members)
    return Readings(members, values, DAY // grid.step, grid.time(0), quality, also)


def _half(progress: Progress | None, which: int) -> Progress | None:
    if progress is None:
        return None
    return lambda done, total: progress(done + which * total, 2 * total)


def _fill(readings: Iterator[pl.DataFrame], grid: Grid) -> tuple[Array, int, int]:
    """Put readings on the grid, block by block; count those that are there more than once."""
    step, at = grid.step, pl.col("at")
    row = pl.col("entity").cast(pl.Enum(grid.names), strict=False).to_physical().cast(pl.Int64)
    values = np.full(len(grid.names) * grid.slots, np.nan)
    again: list[pl.DataFrame] = []
    for rows in readings:
        block = rows.filter(GOOD & ((at - grid.begin) % step == 0)).select(
            "number", cell=row * grid.slots + (at - grid.begin) // step
        )
        block = block.drop_nulls()  # of entities that are not wanted
        cell = block["cell"].to_numpy()
        fresh = np.isnan(values[cell])
        if (np.diff(cell) <= 0).any():  # not in order: the same cell may be in it twice
            first = np.zeros(cell.size, dtype=bool)
            first[np.unique(cell, return_index=True)[1]] = True
            fresh &= first
        values[cell[fresh]] = block["number"].to_numpy()[fresh]
        if not fresh.all():
            again.append(block.filter(~fresh))
    same = averaged = 0
    if again:
        number = pl.col("number")
        more = (
            pl.concat(again)
            .group_by("cell")
            .agg(
                number.sum().alias("sum"),
                pl.len().alias("times"),
                number.min().alias("low"),
                number.max().alias("high"),
            )
        )
        cell, times = more["cell"].to_numpy(), more["times"].to_numpy()
        alike = (more["low"].to_numpy() == values[cell]) & (more["high"].to_numpy() == values[cell])
        same, averaged = int(times[alike].sum()), int(times[~alike].sum())
        mean = (values[cell] + more["sum"].to_numpy()) / (times + 1)
        values[cell[~alike]] = mean[~alike]
    return values.reshape(len(grid.names), grid.slots), same, averaged
