"""Reading in: meter readings from CSV or Parquet onto a grid, and what was wrong with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from agewise.errors import InvalidInput
from agewise.fitting.plausibility import registers
from agewise.fitting.tables import (
    ROW,
    Columns,
    Progress,
    blocks,
    infer_columns,
    line,
    time_hint,
)
from agewise.process.joint import Array

DAY = 24 * 60 * 60
LARGEST = 1e100
"""Readings above this are taken for none."""
MOST_OFF = 0.05
"""Readings that may be off the grid."""
SHOWN = 3
"""Rows that cannot be used which are shown."""
MOST_CELLS = 2_000_000_000
"""Entities times slots beyond which a grid is refused."""
_GOOD = (
    (pl.col("at").is_not_null() & pl.col("entity").is_not_null())
    & (pl.col("number") >= 0)
    & (pl.col("number") <= LARGEST)
).fill_null(False)
_LOST = pl.col("at").is_null() & ~pl.col("skipped")


@dataclass(frozen=True)
class Quality:
    """What was found in a file, and what was done about it. Every number counts readings."""

    rows: int
    entities: int
    slots: int
    resolution_minutes: float
    first: str
    last: str
    timezone: str
    used: int
    duplicates_same: int
    duplicates_averaged: int
    not_numbers: int
    negative: int
    clock_change: int
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

    def _part(self, slots: slice, first: datetime) -> Readings:
        """Some of the slots; what was wrong with the file remains what it was."""
        values = self.values[:, slots]
        last = first + timedelta(days=1) / self.day * (values.shape[1] - 1)
        used = int(np.isfinite(values).sum())
        quality = replace(
            self.quality, slots=values.shape[1], first=first.isoformat(), last=last.isoformat(),
            used=used, missing=values.size - used,
        )  # fmt: skip
        return replace(self, values=values, first=first, quality=quality)


def read_readings(
    path: Path | str,
    columns: Columns | None = None,
    *,
    timezone: str = "UTC",
    entities: Iterable[str] | None = None,
    at_least: float = 0.5,
    progress: Progress | None = None,
) -> Readings:
    """Read a CSV or Parquet file of readings, long (entity, timestamp, value) or wide.

    Timestamps without a zone or offset are in `timezone`; what a clock change makes ambiguous
    counts as the earlier one, what it skips is left out. Readings that are no numbers or negative
    (or above 1e100) are left out, equal duplicates count once and others are averaged, and all of
    it is counted. `entities` keeps only those; one with less than `at_least` of its slots, or with
    readings that hardly ever fall (totals on a meter), is left out by name, and a file is refused
    if most of its entities are of the latter kind.

    The file is read in blocks, twice; memory grows with the cells of the grid (8 bytes each), not
    with the file.
    """
    file = Path(path)
    named = columns or infer_columns(file)
    wanted = None if entities is None else list(entities)
    survey = blocks(file, named, timezone, _half(progress, 0))
    counts, profile = _survey(survey, file, wanted, wide=named.wide)
    grid = _grid(profile, file, at_least)
    names = grid.names
    values, same, averaged = _fill(blocks(file, named, timezone, _half(progress, 1)), grid)
    if named.wide and same + averaged > counts["good"] / 4:
        raise InvalidInput(
            f"readings of {file}", "the same times over and over", "each time once in a wide file",
            "Is the file long? Then name its columns, and do not say --wide.",
        )  # fmt: skip
    filled = np.isfinite(values).mean(axis=1)
    kept = filled >= at_least
    left_out = tuple(
        (name, f"{share:.0%} of its slots have a reading")
        for name, share, keep in zip(names, filled, kept, strict=True)
        if not keep
    )
    if not kept.any():
        raise _too_thin(file, at_least, grid)
    totals = kept & registers(values, DAY // grid.step)
    if 2 * totals.sum() > kept.sum():
        first = names[int(totals.argmax())]
        raise InvalidInput(
            f"readings of {file}", f"{totals.sum()} of {kept.sum()} entities that hardly ever fall "
            f"(such as {first!r}), like totals on a meter", "what was used in each slot",
            "Take differences of each entity's readings in order of time first.",
        )  # fmt: skip
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
        rows=counts["rows"], entities=len(values), slots=values.shape[1],
        resolution_minutes=grid.step / 60, first=grid.time(0).isoformat(),
        last=grid.time(grid.slots - 1).isoformat(),
        timezone=timezone, used=used, duplicates_same=same, duplicates_averaged=averaged,
        not_numbers=counts["bad"] - counts["negative"], negative=counts["negative"],
        clock_change=counts["skipped"], off_grid=grid.off,
        missing=values.size - used, left_out=left_out,
    )  # fmt: skip
    members = tuple(name for name, keep in zip(names, kept, strict=True) if keep)
    return Readings(members, values, DAY // grid.step, grid.time(0), quality)


@dataclass(frozen=True)
class _Grid:
    """Whose readings there are and when: seconds per slot, and seconds since 1970 of slot 0."""

    names: list[str]
    step: int
    begin: int
    slots: int
    off: int
    """Readings that are not on it."""

    def time(self, slot: int) -> datetime:
        return datetime.fromtimestamp(self.begin + slot * self.step, tz=UTC)


def _half(progress: Progress | None, which: int) -> Progress | None:
    if progress is None:
        return None
    return lambda done, total: progress(done + which * total, 2 * total)


def _survey(
    readings: Iterator[pl.DataFrame], file: Path, wanted: list[str] | None, *, wide: bool
) -> tuple[Counter[str], pl.DataFrame]:
    """Count what is good and what is not, and how often each entity has a reading when in the day.

    Refuses what cannot be left out silently.
    """
    counts: Counter[str] = Counter()
    words: Counter[str] = Counter()
    odd: dict[str, list[tuple[int, str]]] = {"lost": [], "nobody": []}
    parts: list[pl.DataFrame] = []
    for block in readings:
        placed = pl.col("at").is_not_null() & pl.col("entity").is_not_null()
        counts += Counter(
            block.select(
                rows=pl.len(), good=_GOOD.sum(), bad=(placed & ~_GOOD).sum(),
                negative=(placed & (pl.col("number") < 0)).sum(),
                lost=_LOST.sum(), skipped=pl.col("skipped").sum(),
                nobody=pl.col("entity").is_null().sum(),
            ).row(0, named=True)
        )  # fmt: skip
        for what, is_so in (("lost", _LOST), ("nobody", pl.col("entity").is_null())):
            some = block.filter(is_so).head(SHOWN)
            odd[what] += [(row, "nothing" if t is None else repr(str(t)))
                          for row, t in some.select(ROW, "timestamp").rows()]  # fmt: skip
        if wide:
            text = block.filter(pl.col("number").is_null() & pl.col("value").is_not_null())
            words.update(text["entity"].to_list())
        good = block.filter(_GOOD)
        if wanted is not None:
            good = good.filter(pl.col("entity").is_in(wanted))
        if good.height:
            parts.append(_profile(good.with_columns(times=1, first="at", last="at")))
        if len(parts) > 50:
            parts = [_profile(pl.concat(parts))]
    if counts["lost"]:
        raise InvalidInput(
            f"readings: timestamps of {file}",
            f"{counts['lost']} that cannot be read ({_shown(file, odd['lost'])})",
            "dates with a time, such as 2013-01-31 23:30, or seconds since 1970",
            time_hint(odd["lost"][0][1].strip("'")) or "Correct or remove those rows.",
        )  # fmt: skip
    if counts["nobody"]:
        raise InvalidInput(
            f"readings: entities of {file}",
            f"{counts['nobody']} rows without one ({_shown(file, odd['nobody'])})",
            "an entity in every row", "Complete or remove those rows.",
        )  # fmt: skip
    if not counts["good"]:
        raise InvalidInput(
            f"readings of {file}", f"without a usable row ({counts['rows']} rows, "
            f"{counts['negative']} negative, {counts['bad'] - counts['negative']} no numbers)",
            "one reading or more",
        )  # fmt: skip
    profile = _profile(pl.concat(parts)) if parts else pl.DataFrame({"entity": []})
    for name in words.keys() - set(profile["entity"].unique().to_list()):
        raise InvalidInput(
            f"column {name!r} of {file}", "without a number", "numbers in all of a wide file",
            "Is the file long? Then do not say --wide; else leave the column out.",
        )  # fmt: skip
    absent = sorted(set(wanted or ()) - set(profile["entity"].unique().to_list()))
    if absent:
        raise InvalidInput("entities", repr(absent[0]), f"entities with readings in {file}")
    return counts, profile


def _profile(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.group_by("entity", second=pl.col("first") % DAY).agg(
        pl.col("times").sum(), pl.col("first").min(), pl.col("last").max()
    )


def _shown(file: Path, rows: list[tuple[int, str]]) -> str:
    return "; ".join(f"{line(file, row)}: {text}" for row, text in rows[:SHOWN])


def _grid(profile: pl.DataFrame, file: Path, at_least: float) -> _Grid:
    """Find entities, resolution and extent."""
    step = _resolution(profile, file)
    rest = profile.group_by(rest=pl.col("second") % step).agg(pl.col("times").sum())
    commonest = rest.sort("times", "rest", descending=[True, False])["rest"][0]
    placed = profile.filter(pl.col("second") % step == commonest)
    begin, end = placed.select(pl.col("first").min(), pl.col("last").max()).row(0)
    names = placed["entity"].unique().sort().to_list()
    off = int(profile["times"].sum()) - int(placed["times"].sum())
    if off > MOST_OFF * int(profile["times"].sum()):
        raise InvalidInput(
            f"readings: times of {file}", f"{off} of {int(profile['times'].sum())} off the grid "
            f"of {step / 60:g} min from {datetime.fromtimestamp(begin, tz=UTC):%Y-%m-%d %H:%M:%S}",
            f"{MOST_OFF:.0%} at most",
            "Clock changes do that to steps of more than an hour: give times in UTC.",
        )  # fmt: skip
    grid = _Grid(names, step, begin, (end - begin) // step + 1, off)
    most = placed.group_by("entity").agg(pl.col("times").sum())["times"].max()
    if isinstance(most, int) and most < at_least * grid.slots:
        raise _too_thin(file, at_least, grid)
    if len(names) * grid.slots > MOST_CELLS:
        raise InvalidInput(
            "readings", f"{len(names)} entities times {grid.slots} slots",
            f"at most {MOST_CELLS} cells", "Read part of the entities at a time.",
        )  # fmt: skip
    return grid


def _too_thin(file: Path, at_least: float, grid: _Grid) -> InvalidInput:
    first, last = grid.time(0).date(), grid.time(grid.slots - 1).date()
    return InvalidInput(
        f"readings of {file}", f"no entity with {at_least:.0%} of the slots from {first} to {last}",
        "fuller readings", "Look for a stray date.",
    )  # fmt: skip


def _resolution(profile: pl.DataFrame, file: Path) -> int:
    """Seconds between readings: the commonest step in the day, the same for all entities.

    Times of day with less than half as many readings as the fullest one are not looked at.
    """
    times, second = pl.col("times"), pl.col("second")
    regular = profile.filter(
        (times.sum().over("entity") > 1) & (times * 2 >= times.max().over("entity"))
    )
    around = pl.concat([second.sort(), second.min() + DAY]).diff().drop_nulls()
    steps = (
        regular.group_by("entity").agg(around.mode().min().alias("step")).sort("entity")
    )  # fmt: skip
    found = sorted(steps["step"].unique().to_list())
    if not found:
        raise InvalidInput(f"readings of {file}", "one reading an entity", "a series of readings")
    if len(found) > 1:
        shown = ", ".join(
            f"{steps.filter(pl.col('step') == one)['entity'][0]} every {one / 60:g} min"
            for one in found[:3]
        )
        raise InvalidInput(
            f"readings: resolution of {file}", f"mixed ({shown})", "one resolution for all",
            "Bring them to one grid first.",
        )  # fmt: skip
    if DAY % found[0]:
        raise InvalidInput(
            "resolution", f"{found[0]} s between readings", "seconds that divide a day of 86,400 s",
            "Bring the readings to such a grid first.",
        )  # fmt: skip
    return int(found[0])


def _fill(readings: Iterator[pl.DataFrame], grid: _Grid) -> tuple[Array, int, int]:
    """Put readings on the grid, block by block; count those that are there more than once."""
    step, at = grid.step, pl.col("at")
    row = pl.col("entity").cast(pl.Enum(grid.names), strict=False).to_physical().cast(pl.Int64)
    values = np.full(len(grid.names) * grid.slots, np.nan)
    again: list[pl.DataFrame] = []
    for rows in readings:
        block = rows.filter(_GOOD & ((at - grid.begin) % step == 0)).select(
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
        more = pl.concat(again).group_by("cell").agg(
            number.sum().alias("sum"), pl.len().alias("times"), number.min().alias("low"),
            number.max().alias("high"),
        )  # fmt: skip
        cell, times = more["cell"].to_numpy(), more["times"].to_numpy()
        alike = (more["low"].to_numpy() == values[cell]) & (more["high"].to_numpy() == values[cell])
        same, averaged = int(times[alike].sum()), int(times[~alike].sum())
        mean = (values[cell] + more["sum"].to_numpy()) / (times + 1)
        values[cell[~alike]] = mean[~alike]
    return values.reshape(len(grid.names), grid.slots), same, averaged
