"""What the commands on readings share: options, columns, states and groups."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import typer
from rich.markup import escape

from agewise.cli.console import people, progress_bar
from agewise.errors import InvalidInput
from agewise.fitting import defaults
from agewise.fitting.defaults import Adversary, Limits, Sampled
from agewise.wording import listed

if TYPE_CHECKING:
    from agewise.fitting.states import States
    from agewise.readings import Columns, Readings

SHOWN = 8
"""Entities that are named before the others are counted only."""

ReadingsArgument = Annotated[Path, typer.Argument(help="CSV or Parquet, long or wide.")]
StatesOption = Annotated[str | None, typer.Option(help="State values, such as 20,50,100,200.")]
QuantilesOption = Annotated[int | None, typer.Option(help="This many states, equally frequent.")]
LeastErrorOption = Annotated[
    int | None,
    typer.Option(
        help="This many states, with the least quantisation error. Without a choice: "
        f"{defaults.STATES}."
    ),
]
EntityOption = Annotated[str | None, typer.Option(help="Column of the entity.")]
TimestampOption = Annotated[str | None, typer.Option(help="Column of the time.")]
WideOption = Annotated[bool, typer.Option("--wide", help="Every column but the time is an entity.")]
YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask whether the columns were guessed right.")
]
ValueOption = Annotated[str | None, typer.Option(help="Column of the reading.")]
TimezoneOption = Annotated[str, typer.Option(help="Of times that say none.")]
GroupsOption = Annotated[
    Path | None,
    typer.Option(help="CSV or Parquet with the columns entity and client. Without: one client."),
]
AdversaryOption = Annotated[
    Adversary,
    typer.Option(help="Whose law they are taken to know: each entity's own, or the group's."),
]
SampledOption = Annotated[
    Sampled,
    typer.Option(
        help="What is taken to be independent: every day of every entity; days or weeks, on which "
        "entities may move together; or entities, for laws that are used for others too."
    ),
]
LimitsOption = Annotated[
    Limits,
    typer.Option(
        help="proven: for what --sampled takes to be independent, whatever the number of days. "
        "asymptotic: over weeks taken to be independent, right as weeks grow many; narrower."
    ),
]
AgesOption = Annotated[
    str | None,
    typer.Option(
        help="Ages in slots that get credit, such as 10,20,48: limits hold for all of them "
        f"together, so that fewer are tighter. Without a choice: at most {defaults.MOST_AGES}, "
        "evenly spaced."
    ),
]
GivenOption = Annotated[
    str | None,
    typer.Option(
        "--given",
        help="What the adversary also knows of the day: weekend, weekday, month, level (of the "
        "other entities, in thirds), or a column of the readings. Default: nothing.",
    ),
]
CalendarOption = Annotated[
    bool,
    typer.Option("--calendar", help="The same as --given weekend."),
]
FactorsOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Common factors in what is known of the clients. Without a choice: as few as let odd "
        "weeks foretell even ones all but best, six at most.",
    ),
]
EachOption = Annotated[bool, typer.Option("--each", help="Every entity is a client of its own.")]
AggregateOption = Annotated[
    str, typer.Option(help="Time of day of the aggregation, UTC; slots go back from there.")
]
WorstLimitOption = Annotated[
    float,
    typer.Option(help="With adversary household: entities whose limit is above this take no part."),
]
MostLeftOutOption = Annotated[
    float,
    typer.Option(help="Share of the entities that may be left out before the fit is refused."),
]
SlotsOption = Annotated[
    int | None,
    typer.Option(help="Slots, the aggregation included. Without a choice: one day back."),
]
EpsilonOption = Annotated[float, typer.Option(help="Privacy target ε of every client.")]
UnitOption = Annotated[str, typer.Option(help="Of the readings, for labels.")]


@dataclass(frozen=True)
class Chosen:
    """Readings, where slot 1 stands in the day, and how many slots there are."""

    readings: Readings
    first_slot: int
    slots: int


def read(
    file: Path,
    columns: Columns,
    timezone: str,
    aggregate_at: str,
    slots: int | None,
    given: str | None = None,
) -> Chosen:
    """Read a file, and say what the time of aggregation is where the readings come from."""
    from agewise.readings import read_readings  # noqa: PLC0415
    from agewise.readings.covariate import PUBLIC  # noqa: PLC0415

    column = None if given in PUBLIC else given
    with progress_bar("reading") as advance:
        readings = read_readings(
            file, columns, timezone=timezone, covariate=column, progress=advance
        )
    slot = _slot_of(aggregate_at, readings)
    if timezone != "UTC":
        zone, start = ZoneInfo(timezone), readings.first + timedelta(days=1)
        midnight = start.replace(hour=0, minute=0, second=0)
        at = [midnight + timedelta(days=d + slot / readings.day) for d in (0, 182)]
        local = sorted({f"{time.astimezone(zone):%H:%M}" for time in at})
        people.print(
            f"--aggregate-at {escape(aggregate_at)} is UTC: {' or '.join(local)} in {timezone}.",
            soft_wrap=True,
            highlight=False,
        )
    count = defaults.whole_day(readings.day) if slots is None else slots
    return Chosen(readings, (slot - count + 1) % readings.day, count)


def choose_columns(
    file: Path,
    entity: str | None,
    timestamp: str | None,
    value: str | None,
    *,
    wide: bool,
    yes: bool,
) -> Columns:
    """Which column says what: as given, or guessed, said, and on a terminal confirmed."""
    from agewise.readings import Columns, infer_columns  # noqa: PLC0415

    if wide and (entity is not None or value is not None):
        raise InvalidInput("--wide", "with --entity or --value", "with --timestamp at most")
    if entity is not None and timestamp is not None and value is not None:
        return Columns(entity, timestamp, value)
    with people.status("looking at the columns"):
        columns = infer_columns(file, entity, timestamp, value, wide=wide)
    people.print(
        f"Taking {escape(columns.timestamp)} as the time"
        + (
            ", every other column as an entity"
            if columns.wide
            else f", {escape(columns.entity)} as the entity, {escape(columns.value)} as the reading"
        )
        + "; --timestamp, --entity, --value and --wide say otherwise.",
        soft_wrap=True,
        highlight=False,
    )
    if not yes and sys.stdin.isatty() and people.is_terminal:
        typer.confirm("Is that right?", default=True, abort=True, err=True)
    return columns


def choose_states(
    given: str | None, quantiles: int | None, least_error: int | None, readings: Readings
) -> States:
    """State values: as given, or by the readings."""
    from agewise.fitting import states  # noqa: PLC0415

    if sum(choice is not None for choice in (given, quantiles, least_error)) > 1:
        raise InvalidInput("--states, --quantiles, --least-error", "several", "one of them")
    if given is not None:
        try:
            levels = [float(part) for part in given.split(",")]
        except ValueError:
            raise InvalidInput("--states", repr(given), "numbers, such as 20,50,100") from None
        return states.given_states(levels, readings.values)
    if quantiles is not None:
        return states.quantile_states(quantiles, readings.values)
    count = defaults.STATES if least_error is None else least_error
    with people.status("choosing states"):
        return states.least_error_states(count, readings.values)


def choose_ages(given: str | None) -> list[int] | None:
    """Ages that get credit: as given, or left to the fit."""
    if given is None:
        return None
    try:
        return [int(part) for part in given.split(",")]
    except ValueError:
        raise InvalidInput("--ages", repr(given), "whole slots, such as 10,20,48") from None


def _slot_of(time: str, readings: Readings) -> int:
    hour, _, minute = time.partition(":")
    if not re.fullmatch(r"[0-9]{1,2}(:[0-9]{2})?", time):
        raise InvalidInput("--aggregate-at", repr(time), "a time of day, such as 18:00")
    seconds = (int(hour) * 60 + int(minute or 0)) * 60
    step = 24 * 60 * 60 // readings.day
    if seconds >= 24 * 60 * 60 or seconds % step:
        allowed = f"a multiple of {step / 60:g} minutes in a day" if readings.day > 1 else "00:00"
        raise InvalidInput("--aggregate-at", repr(time), allowed)
    return seconds // step


def choose_groups(
    path: Path | None, readings: Readings, *, each: bool
) -> dict[str, list[str]] | None:
    """Clients and their entities; those that were not read are left out, and named."""
    if each and path is not None:
        raise InvalidInput("--each, --groups", "both", "one of them")
    if path is None:
        everybody = (*readings.entities, *dict(readings.quality.left_out))
        return {name: [name] for name in everybody} if each else None
    from agewise.readings import read_groups  # noqa: PLC0415

    try:
        listed_groups = read_groups(path)
    except InvalidInput as bad:
        field = re.sub("^(readings|groups)", "--groups", bad.field)
        raise InvalidInput(field, bad.value, bad.allowed, bad.remedy) from None
    known = {*readings.entities, *dict(readings.quality.left_out)}
    groups = {client: [n for n in names if n in known] for client, names in listed_groups.items()}
    unread = [n for names in listed_groups.values() for n in names if n not in known]
    for client, members in groups.items():
        if not members:
            raise InvalidInput(
                f"--groups: client {client!r}", "no entity with usable readings", "one or more"
            )
    if unread:
        people.print(
            f"[yellow]In {escape(str(path))}, but without usable readings: "
            f"{escape(listed(unread, SHOWN))}.[/]",
            soft_wrap=True,
            highlight=False,
        )
    return groups
