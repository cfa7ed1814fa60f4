"""What asymptotic limits covered in simulations, as recorded by `python -m benchmarks coverage`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Row:
    """How often limits at `level` from so many weeks covered the truth at all ages and targets.

    `delta` is the true Δ at the oldest age, `mean_limit` the mean limit on it.
    `weeks_independent` says whether weeks were what the limits take them to be.
    """

    case: str
    weeks: int
    level: float
    repetitions: int
    covered: float
    delta: float
    mean_limit: float
    weeks_independent: bool


@cache
def coverage() -> tuple[Row, ...]:
    """The simulations on record."""
    text = (files("agewise.fitting") / "coverage.json").read_text(encoding="utf-8")
    return tuple(Row(**row) for row in json.loads(text))


def coverage_sentence(weeks: int) -> str:
    """What was measured for the largest number of weeks that is not above this one."""
    known = {row.weeks for row in coverage()}
    nearest = max((w for w in known if w <= weeks), default=min(known))
    rows = sorted((r for r in coverage() if r.weeks == nearest), key=lambda row: row.covered)
    worst, half = rows[0], rows[len(rows) // 2]
    depend = "" if worst.weeks_independent else ", against what the limits assume"
    return (
        f"Asymptotic limits at {worst.level:.0%} covered {half.covered:.1%} (the median of "
        f"{len(rows)} kinds of readings) in simulations of {nearest} weeks, {worst.repetitions} "
        f"each; worst case {worst.covered:.1%}: {worst.case}{depend}."
    )
