"""What there is in a file of readings: how good it is, whose it is, and on which grid of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from agewise.errors import InvalidInput
from agewise.readings.files import ROW, line
from agewise.readings.times import time_hint

DAY = 24 * 60 * 60
LARGEST = 1e100
"""Readings above this are taken for none."""
MOST_OFF = 0.05
"""Readings that may be off the grid."""
SHOWN = 3
"""Rows that cannot be used which are shown."""
MOST_CELLS = 2_000_000_000
"""Entities times slots beyond which a grid is refused."""
GOOD = (
    (pl.col("at").is_not_null() & pl.col("entity").is_not_null())
    & (pl.col("number") >= 0)
    & (pl.col("number") <= LARGEST)
).fill_null(False)
"""Which rows can be used."""
_LOST = pl.col("at").is_null() & ~pl.col("skipped")


@dataclass(frozen=True)
class Grid:
    """Whose readings there are and when: seconds per slot, and seconds since 1970 of slot 0."""

    names: list[str]
    step: int
    begin: int
    slots: int
    off: int
    """Readings that are not on it."""

    def time(self, slot: int) -> datetime:
        """When a slot begins, in UTC."""
        return datetime.fromtimestamp(self.begin + slot * self.step, tz=UTC)


def survey(
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
                rows=pl.len(),
                good=GOOD.sum(),
                bad=(placed & ~GOOD).sum(),
                negative=(placed & (pl.col("number") < 0)).sum(),
                lost=_LOST.sum(),
                skipped=pl.col("skipped").sum(),
                nobody=pl.col("entity").is_null().sum(),
            ).row(0, named=True)
        )
        for what, is_so in (("lost", _LOST), ("nobody", pl.col("entity").is_null())):
            some = block.filter(is_so).head(SHOWN)
            odd[what] += [
                (row, "nothing" if t is None else repr(str(t)))
                for row, t in some.select(ROW, "timestamp").rows()
            ]
        if wide:
            text = block.filter(pl.col("number").is_null() & pl.col("value").is_not_null())
            words.update(text["entity"].to_list())
        good = block.filter(GOOD)
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
        )
    if counts["nobody"]:
        raise InvalidInput(
            f"readings: entities of {file}",
            f"{counts['nobody']} rows without one ({_shown(file, odd['nobody'])})",
            "an entity in every row",
            "Complete or remove those rows.",
        )
    if not counts["good"]:
        raise InvalidInput(
            f"readings of {file}",
            f"without a usable row ({counts['rows']} rows, "
            f"{counts['negative']} negative, {counts['bad'] - counts['negative']} no numbers)",
            "one reading or more",
        )
    profile = _profile(pl.concat(parts)) if parts else pl.DataFrame({"entity": []})
    for name in words.keys() - set(profile["entity"].unique().to_list()):
        raise InvalidInput(
            f"column {name!r} of {file}",
            "without a number",
            "numbers in all of a wide file",
            "Is the file long? Then do not say --wide; else leave the column out.",
        )
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


def find_grid(profile: pl.DataFrame, file: Path, at_least: float) -> Grid:
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
            f"readings: times of {file}",
            f"{off} of {int(profile['times'].sum())} off the grid "
            f"of {step / 60:g} min from {datetime.fromtimestamp(begin, tz=UTC):%Y-%m-%d %H:%M:%S}",
            f"{MOST_OFF:.0%} at most",
            "Clock changes do that to steps of more than an hour: give times in UTC.",
        )
    grid = Grid(names, step, begin, (end - begin) // step + 1, off)
    most = placed.group_by("entity").agg(pl.col("times").sum())["times"].max()
    if isinstance(most, int) and most < at_least * grid.slots:
        raise too_thin(file, at_least, grid)
    if len(names) * grid.slots > MOST_CELLS:
        raise InvalidInput(
            "readings",
            f"{len(names)} entities times {grid.slots} slots",
            f"at most {MOST_CELLS} cells",
            "Read part of the entities at a time.",
        )
    return grid


def too_thin(file: Path, at_least: float, grid: Grid) -> InvalidInput:
    """The refusal of readings that have too many gaps."""
    first, last = grid.time(0).date(), grid.time(grid.slots - 1).date()
    return InvalidInput(
        f"readings of {file}",
        f"no entity with {at_least:.0%} of the slots from {first} to {last}",
        "fuller readings",
        "Look for a stray date.",
    )


def _resolution(profile: pl.DataFrame, file: Path) -> int:
    """Seconds between readings: the commonest step in the day, the same for all entities.

    Times of day with less than half as many readings as the fullest one are not looked at.
    """
    times, second = pl.col("times"), pl.col("second")
    regular = profile.filter(
        (times.sum().over("entity") > 1) & (times * 2 >= times.max().over("entity"))
    )
    around = pl.concat([second.sort(), second.min() + DAY]).diff().drop_nulls()
    steps = regular.group_by("entity").agg(around.mode().min().alias("step")).sort("entity")
    steps_seen = sorted(steps["step"].unique().to_list())
    if not steps_seen:
        raise InvalidInput(f"readings of {file}", "one reading per entity", "a series of readings")
    if len(steps_seen) > 1:
        shown = ", ".join(
            f"{steps.filter(pl.col('step') == one)['entity'][0]} every {one / 60:g} min"
            for one in steps_seen[:3]
        )
        raise InvalidInput(
            f"readings: resolution of {file}",
            f"mixed ({shown})",
            "one resolution for all",
            "Bring them to one grid first.",
        )
    if DAY % steps_seen[0]:
        raise InvalidInput(
            "resolution",
            f"{steps_seen[0]} s between readings",
            "seconds that divide a day of 86,400 s",
            "Bring the readings to such a grid first.",
        )
    return int(steps_seen[0])
