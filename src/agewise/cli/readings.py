"""What the commands on readings share: options, columns, states and groups."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints
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


@dataclass(frozen=True)
class Chosen:
    """Readings, where slot 1 stands in the day, and how many slots there are."""

    readings: Readings
    first_slot: int
    slots: int


@dataclass(frozen=True)
class Options:
    """What every command on readings can be told: one field for each argument and option."""

    readings: Annotated[Path, typer.Argument(help="CSV or Parquet, long or wide.")]
    states: Annotated[str | None, typer.Option(help="State values, such as 20,50,100,200.")] = None
    quantiles: Annotated[int | None, typer.Option(help="This many states, equally frequent.")] = (
        None
    )
    least_error: Annotated[
        int | None,
        typer.Option(
            help="This many states, with the least quantisation error. Without a choice: "
            f"{defaults.STATES}."
        ),
    ] = None
    entity: Annotated[str | None, typer.Option(help="Column of the entity.")] = None
    timestamp: Annotated[str | None, typer.Option(help="Column of the time.")] = None
    value: Annotated[str | None, typer.Option(help="Column of the reading.")] = None
    wide: Annotated[
        bool, typer.Option("--wide", help="Every column but the time is an entity.")
    ] = False
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask whether the columns were guessed right.")
    ] = False
    timezone: Annotated[str, typer.Option(help="Of times that say none.")] = "UTC"
    groups: Annotated[
        Path | None,
        typer.Option(
            help="CSV or Parquet with the columns entity and client. Without: one client."
        ),
    ] = None
    each: Annotated[bool, typer.Option("--each", help="Every entity is a client of its own.")] = (
        False
    )
    aggregate_at: Annotated[
        str,
        typer.Option(
            "--aggregate-at",
            "--at",
            help="Time of day of the aggregation, UTC; slots go back from there. Over rounds: of "
            "the first release of a day.",
        ),
    ] = defaults.AGGREGATE_AT
    slots: Annotated[
        int | None,
        typer.Option(help="Slots, the aggregation included. Without a choice: one day back."),
    ] = None
    epsilon: Annotated[float, typer.Option(help="Privacy target ε of every client.")] = (
        defaults.EPSILON
    )
    adversary: Annotated[
        Adversary,
        typer.Option(help="Whose law they are taken to know: each entity's own, or the group's."),
    ] = defaults.ADVERSARY
    sampled: Annotated[
        Sampled,
        typer.Option(
            help="What is taken to be independent: every day of every entity; days or weeks, on "
            "which entities may move together; or entities, for laws that are used for others too."
        ),
    ] = defaults.DRAWN_BY
    limits: Annotated[
        Limits,
        typer.Option(
            help="proven: for what --sampled takes to be independent, whatever the number of days. "
            "asymptotic: over weeks taken to be independent, right as weeks grow many; narrower."
        ),
    ] = defaults.LIMITS_ARE
    ages: Annotated[
        str | None,
        typer.Option(
            help="Ages in slots that get credit, such as 10,20,48: limits hold for all of them "
            f"together, so that fewer are tighter. Without a choice: at most {defaults.MOST_AGES}, "
            "evenly spaced."
        ),
    ] = None
    known: Annotated[
        str | None,
        typer.Option(
            "--given",
            help="What the adversary also knows of the day: weekend, weekday, month, level (of the "
            "other entities, in thirds), or a column of the readings. Default: nothing.",
        ),
    ] = None
    worst_limit: Annotated[
        float,
        typer.Option(
            help="With adversary household: entities whose limit is above this take no part."
        ),
    ] = defaults.WORST_LIMIT
    most_left_out: Annotated[
        float,
        typer.Option(help="Share of the entities that may be left out before the fit is refused."),
    ] = defaults.MOST_LEFT_OUT
    factors: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Common factors in what is known of the clients. Without a choice: as few as let "
            "odd weeks foretell even ones all but best, six at most.",
        ),
    ] = None
    unit: Annotated[str, typer.Option(help="Of the readings, for labels.")] = ""
    every: Annotated[
        str | None,
        typer.Option(
            help="Claims over many rounds: a release every day, or every 12h, 6h, 30min and so on "
            "(see docs/fitting.md). Says what all rounds together tell of the present state.",
        ),
    ] = None
    levels: Annotated[
        int | None,
        typer.Option(
            help="Over rounds: classes of each entity's level, the mean of its past states. "
            "Without a choice: as few as adversaries do not beat on days held out.",
        ),
    ] = None
    memory: Annotated[
        float | None,
        typer.Option(
            help="Over rounds: the weight of the latest state in a level, above 0 and at most 1. "
            f"Default: {defaults.MEMORY}."
        ),
    ] = None
    classical_epsilon: Annotated[
        str | None,
        typer.Option(
            help="Over rounds: the classical ε of each release, one or several. Default: "
            f"{','.join(f'{one:g}' for one in defaults.CLASSICAL_EPSILONS)}."
        ),
    ] = None

    @property
    def over_rounds(self) -> bool:
        """Whether claims over many rounds are asked for."""
        asked = (self.every, self.levels, self.memory, self.classical_epsilon)
        return any(one is not None for one in asked)

    def read(self) -> Chosen:
        """Read the file, and say what the time of aggregation is where the readings come from."""
        from agewise.readings import read_readings  # noqa: PLC0415
        from agewise.readings.covariate import PUBLIC  # noqa: PLC0415
        from agewise.readings.times import slot_of_day  # noqa: PLC0415

        columns = self._columns()
        covariate = None if self.known in PUBLIC else self.known
        with progress_bar("reading") as advance:
            readings = read_readings(
                self.readings,
                columns,
                timezone=self.timezone,
                covariate=covariate,
                progress=advance,
            )
        slot = slot_of_day("--aggregate-at", self.aggregate_at, readings.day)
        if self.timezone != "UTC":
            zone, start = ZoneInfo(self.timezone), readings.first + timedelta(days=1)
            midnight = start.replace(hour=0, minute=0, second=0)
            at = [midnight + timedelta(days=d + slot / readings.day) for d in (0, 182)]
            local = sorted({f"{time.astimezone(zone):%H:%M}" for time in at})
            people.print(
                f"--aggregate-at {escape(self.aggregate_at)} is UTC: {' or '.join(local)} in "
                f"{self.timezone}.",
                soft_wrap=True,
                highlight=False,
            )
        count = defaults.whole_day(readings.day) if self.slots is None else self.slots
        return Chosen(readings, (slot - count + 1) % readings.day, count)

    def choose_ages(self) -> list[int] | None:
        """Ages that get credit: as given, or left to the fit."""
        if self.ages is None:
            return None
        try:
            return [int(part) for part in self.ages.split(",")]
        except ValueError:
            allowed = "whole slots, such as 10,20,48"
            raise InvalidInput("--ages", repr(self.ages), allowed) from None

    def _columns(self) -> Columns:
        """Which column says what: as given, or guessed, said, and on a terminal confirmed."""
        from agewise.readings import Columns, infer_columns  # noqa: PLC0415

        if self.wide and (self.entity is not None or self.value is not None):
            raise InvalidInput("--wide", "with --entity or --value", "with --timestamp at most")
        if self.entity is not None and self.timestamp is not None and self.value is not None:
            return Columns(self.entity, self.timestamp, self.value)
        with people.status("looking at the columns"):
            columns = infer_columns(
                self.readings, self.entity, self.timestamp, self.value, wide=self.wide
            )
        people.print(
            f"Taking {escape(columns.timestamp)} as the time"
            + (
                ", every other column as an entity"
                if columns.wide
                else f", {escape(columns.entity)} as the entity, {escape(columns.value)} as the "
                "reading"
            )
            + "; --timestamp, --entity, --value and --wide say otherwise.",
            soft_wrap=True,
            highlight=False,
        )
        if not self.yes and sys.stdin.isatty() and people.is_terminal:
            typer.confirm("Is that right?", default=True, abort=True, err=True)
        return columns

    def choose_states(self, readings: Readings) -> States:
        """State values: as given, or by the readings."""
        from agewise.fitting import states  # noqa: PLC0415

        ways = (self.states, self.quantiles, self.least_error)
        if sum(way is not None for way in ways) > 1:
            raise InvalidInput("--states, --quantiles, --least-error", "several", "one of them")
        if self.states is not None:
            try:
                levels = [float(part) for part in self.states.split(",")]
            except ValueError:
                raise InvalidInput(
                    "--states", repr(self.states), "numbers, such as 20,50,100"
                ) from None
            return states.given_states(levels, readings.values)
        if self.quantiles is not None:
            return states.quantile_states(self.quantiles, readings.values)
        count = defaults.STATES if self.least_error is None else self.least_error
        with people.status("choosing states"):
            return states.least_error_states(count, readings.values)

    def choose_groups(self, readings: Readings) -> dict[str, list[str]] | None:
        """Clients and their entities; those that were not read are left out, and named."""
        if self.each and self.groups is not None:
            raise InvalidInput("--each, --groups", "both", "one of them")
        if self.groups is None:
            everybody = (*readings.entities, *dict(readings.quality.left_out))
            return {name: [name] for name in everybody} if self.each else None
        from agewise.readings import read_groups  # noqa: PLC0415

        try:
            listed_groups = read_groups(self.groups)
        except InvalidInput as bad:
            field = re.sub("^(readings|groups)", "--groups", bad.field)
            raise InvalidInput(field, bad.value, bad.allowed, bad.remedy) from None
        known = {*readings.entities, *dict(readings.quality.left_out)}
        groups = {
            client: [n for n in names if n in known] for client, names in listed_groups.items()
        }
        unread = [n for names in listed_groups.values() for n in names if n not in known]
        for client, members in groups.items():
            if not members:
                raise InvalidInput(
                    f"--groups: client {client!r}", "no entity with usable readings", "one or more"
                )
        if unread:
            people.print(
                f"[yellow]In {escape(str(self.groups))}, but without usable readings: "
                f"{escape(listed(unread, SHOWN))}.[/]",
                soft_wrap=True,
                highlight=False,
            )
        return groups


def on_readings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the arguments of `Options` before its own; they come to it as one object."""
    types = get_type_hints(Options, include_extras=True)
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    shared = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if one.default is MISSING else one.default,
            annotation=types[one.name],
        )
        for one in fields(Options)
    ]

    def call(**given: Any) -> None:
        options = Options(**{one.name: given.pop(one.name) for one in shared})
        command(options, **given)

    parameters = [*shared, *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own)]
    call.__doc__, call.__name__ = command.__doc__, command.__name__
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call
