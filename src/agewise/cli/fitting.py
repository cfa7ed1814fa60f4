"""fit: from readings to a scenario."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from agewise.cli.console import (
    JsonOption,
    console,
    generator,
    output_folder,
    people,
    print_json,
    progress_bar,
    wrote,
)
from agewise.errors import InvalidInput
from agewise.scenario import dump_scenario

if TYPE_CHECKING:
    from agewise.fitting.fit import Fit
    from agewise.fitting.readings import Readings
    from agewise.fitting.states import States
    from agewise.fitting.tables import Columns

commands = typer.Typer()
IN_DOUBT = 0.05
"""A claim that is beaten by what chance does so rarely is not said to hold."""

StatesOption = Annotated[str | None, typer.Option(help="State values, such as 20,50,100,200.")]
QuantilesOption = Annotated[int | None, typer.Option(help="This many states, equally frequent.")]
LeastErrorOption = Annotated[
    int | None, typer.Option(help="This many states, with the least quantisation error.")
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
    Path | None, typer.Option(help="CSV with the columns entity and client; else one client.")
]
AdversaryOption = Annotated[
    Literal["household", "population"],
    typer.Option(help="Whose law he is taken to know: each entity's own, or the group's."),
]
SampledOption = Annotated[
    Literal["pairs", "days", "entities"],
    typer.Option(
        help="What is taken to be independent: every reading of every entity; days, on which "
        "entities may move together; or entities, for laws that are used for others too."
    ),
]


@commands.command(
    "fit",
    epilog="Example: agewise fit meters.parquet --states 20,50,100,200 --aggregate-at 18:00 "
    "--out mine.toml",
)
def fit_command(
    readings: Annotated[Path, typer.Argument(help="CSV or Parquet, long or wide.")],
    states: StatesOption = None,
    quantiles: QuantilesOption = None,
    least_error: LeastErrorOption = None,
    entity: EntityOption = None,
    timestamp: TimestampOption = None,
    value: ValueOption = None,
    wide: WideOption = False,
    yes: YesOption = False,
    timezone: TimezoneOption = "UTC",
    groups: GroupsOption = None,
    aggregate_at: Annotated[
        str, typer.Option(help="Time of day of the aggregation, UTC; slots go back from there.")
    ] = "18:00",
    slots: Annotated[int, typer.Option(help="Slots to plan over, the aggregation included.")] = 24,
    epsilon: Annotated[float, typer.Option(help="Privacy target ε of every client.")] = 0.5,
    kind: Annotated[
        Literal["measured", "periodic", "chain"],
        typer.Option(help="The measured lag law, or a chain that assumes more."),
    ] = "measured",
    adversary: AdversaryOption = "household",
    sampled: SampledOption = "days",
    confidence: Annotated[
        float, typer.Option(help="That no Δ is below the truth, in any slot of any client.")
    ] = 0.95,
    count_epsilon: Annotated[
        float | None,
        typer.Option(help="Noise on the counts: the scenario itself is private about each day."),
    ] = None,
    ledgers: Annotated[
        Path | None, typer.Option(help="With --count-epsilon: the clients' ledgers, to record it.")
    ] = None,
    unit: Annotated[str, typer.Option(help="Of the readings, for labels.")] = "",
    out: Annotated[Path, typer.Option(help="The scenario file to write.")] = Path("fitted.toml"),
    report: Annotated[
        Path | None, typer.Option(help="Folder for the report: figures and JSON.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Turn readings into a scenario, and say how far its privacy claim can be trusted.

    Shows first what was wrong with the readings and what was done about it, then how far they are
    from a Markov chain, then Δ with its upper confidence limit. Noise is set for the limit.
    """
    if out.suffix != ".toml" or not out.parent.is_dir() or out.is_dir():
        raise InvalidInput("--out", str(out), "a .toml file in a folder that exists")
    folder = output_folder(report)
    from agewise.fitting.fit import fit, record_fit  # noqa: PLC0415  (polars)
    from agewise.fitting.readings import read_readings  # noqa: PLC0415

    if (count_epsilon is None) != (ledgers is None):
        raise InvalidInput(
            "--count-epsilon, --ledgers", "one without the other", "both, or neither",
            "What noisy counts tell has to be accounted for.",
        )  # fmt: skip
    columns = _columns(readings, entity, timestamp, value, wide=wide, yes=yes)
    with progress_bar("reading") as advance:
        found = read_readings(readings, columns, timezone=timezone, progress=advance)
    chosen = _states(states, quantiles, least_error, found)
    at = _slot_of(aggregate_at, found)
    members = _groups(groups, found)
    with people.status("measuring"):
        made = fit(
            found, chosen, epsilon=epsilon, first_slot=(at - slots + 1) % found.day, slots=slots,
            groups=members, kind=kind, adversary=adversary, sampled=sampled,
            confidence=confidence, count_epsilon=count_epsilon, name=out.stem, unit=unit,
        )  # fmt: skip
    if ledgers is not None:
        record_fit(made, ledgers)
    out.write_text(_header(made) + dump_scenario(made.problem), encoding="utf-8")
    if as_json:
        print_json({**made.to_dict(), "scenario": str(out)})
    else:
        _print(made)
    paths = [out]
    if folder is not None:
        from agewise import figures  # noqa: PLC0415

        paths += figures.save(figures.fit_figure(made), folder, "fit")
        (folder / "fit.json").write_text(json.dumps(made.to_dict(), indent=2), encoding="utf-8")
        paths.append(folder / "fit.json")
    wrote(paths)


@commands.command(epilog="Example: agewise backtest meters.parquet --states 60,250 --slots 49")
def backtest(
    readings: Annotated[Path, typer.Argument(help="CSV or Parquet, long or wide.")],
    states: StatesOption = None,
    quantiles: QuantilesOption = None,
    least_error: LeastErrorOption = None,
    entity: EntityOption = None,
    timestamp: TimestampOption = None,
    value: ValueOption = None,
    wide: WideOption = False,
    yes: YesOption = False,
    timezone: TimezoneOption = "UTC",
    groups: GroupsOption = None,
    aggregate_at: Annotated[str, typer.Option(help="Time of day, UTC.")] = "18:00",
    slots: Annotated[int, typer.Option(help="Slots, the aggregation included.")] = 49,
    epsilon: Annotated[float, typer.Option(help="Privacy target ε.")] = 0.1,
    adversary: AdversaryOption = "population",
    sampled: SampledOption = "days",
    seed: Annotated[
        int, typer.Option(min=0, help="Of the adversary's noise and the random schedule.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Replay recorded days: what plans would have cost, and whether an adversary beats the claim.

    Laws are fitted to the first half of the days, and both are judged on the second. The
    adversary, who knows each household's own law, guesses its present state from data collected
    in slot 1, with noise by the measured law and by a fitted chain. Plans go through the local
    engine, for laws by --adversary and --sampled, on every day without gaps.
    """
    from agewise.fitting.backtest import replay_adversary, replay_plans  # noqa: PLC0415
    from agewise.fitting.fit import fit  # noqa: PLC0415
    from agewise.fitting.readings import read_readings  # noqa: PLC0415

    columns = _columns(readings, entity, timestamp, value, wide=wide, yes=yes)
    with progress_bar("reading") as advance:
        found = read_readings(readings, columns, timezone=timezone, progress=advance)
    chosen = _states(states, quantiles, least_error, found)
    members = _groups(groups, found)
    first = (_slot_of(aggregate_at, found) - slots + 1) % found.day
    with people.status("replaying the adversary"):
        attacks = replay_adversary(
            found, chosen, epsilon=epsilon, first_slot=first, slots=slots, seed=seed
        )
    before, after = found.split(0.5)
    with people.status("measuring"):
        made = fit(
            before, chosen, epsilon=epsilon, first_slot=first, slots=slots, groups=members,
            adversary=adversary, sampled=sampled,
        )  # fmt: skip
    taking_part = {one.name: one.members for one in made.clients}
    with progress_bar("replaying plans") as advance:
        replayed = replay_plans(
            made.problem, after, chosen, taking_part, first_slot=first, rng=generator(seed),
            progress=advance,
        )  # fmt: skip
    if as_json:
        print_json({
            "attacks": [one.to_dict() for one in attacks],
            "plans": [one.to_dict() for one in replayed],
        })  # fmt: skip
        return
    screen = console()
    shown = Table(title=f"A replayed adversary, data of age {attacks[0].age}, claimed ε = "
                  f"{epsilon:g}", title_justify="left", box=box.SIMPLE_HEAD)  # fmt: skip
    for heading in ("noise by", "Δ", "scale", "hits", "alarms", "ratio", "allowed",
                    "excess", "chance", "claim"):  # fmt: skip
        shown.add_column(heading, justify="left" if heading in ("noise by", "claim") else "right")
    for one in attacks:
        shown.add_row(
            "measured law" if one.claim == "measured" else "fitted chain", f"{one.delta:.3g}",
            f"{one.noise_scale:.4g}", f"{one.hits:.3f}", f"{one.false_alarms:.3f}",
            f"{one.hits / one.false_alarms:.2f}" if one.false_alarms else "inf",
            f"{one.allowed_ratio:.2f}", f"{one.excess:+.1f} s.e.", f"{one.chance:.2g}",
            "[red]broken[/]" if one.too_good
            else "[green]holds[/]" if one.chance > IN_DOUBT else "[yellow]in doubt[/]",
        )  # fmt: skip
    screen.print(shown)
    costs = Table(title=f"Plans over recorded days, adversary: {adversary}", title_justify="left",
                  box=box.SIMPLE_HEAD)  # fmt: skip
    for heading in ("scheme", "ages", "days", "mean loss", "promised"):
        costs.add_column(heading, justify="left" if heading == "scheme" else "right")
    for row in replayed:
        costs.add_row(
            row.scheme, ", ".join(map(str, row.ages)), str(row.days),
            f"{row.mean_loss:.4g} ± {row.standard_error:.2g}", f"{row.promised:.4g}",
        )  # fmt: skip
    screen.print(costs)


def _columns(
    file: Path,
    entity: str | None,
    timestamp: str | None,
    value: str | None,
    *,
    wide: bool,
    yes: bool,
) -> Columns:
    """Which column says what: as told, or guessed, said, and on a terminal confirmed."""
    from agewise.fitting.tables import Columns, infer_columns  # noqa: PLC0415

    if wide and (entity is not None or value is not None):
        raise InvalidInput("--wide", "with --entity or --value", "with --timestamp at most")
    if entity is not None and timestamp is not None and value is not None:
        return Columns(entity, timestamp, value)
    with people.status("looking at the columns"):
        columns = infer_columns(file, entity, timestamp, value, wide=wide)
    people.print(
        f"Taking {escape(columns.timestamp)} as the time"
        + (", every other column as an entity" if columns.wide else
           f", {escape(columns.entity)} as the entity, {escape(columns.value)} as the reading")
        + "; --timestamp, --entity, --value and --wide say otherwise.",
        soft_wrap=True, highlight=False,
    )  # fmt: skip
    if not yes and sys.stdin.isatty() and people.is_terminal:
        typer.confirm("Is that right?", default=True, abort=True, err=True)
    return columns


def _states(
    given: str | None, quantiles: int | None, least_error: int | None, found: Readings
) -> States:
    from agewise.fitting import states  # noqa: PLC0415

    if sum(choice is not None for choice in (given, quantiles, least_error)) > 1:
        raise InvalidInput("--states, --quantiles, --least-error", "several", "one of them")
    if given is not None:
        try:
            levels = [float(part) for part in given.split(",")]
        except ValueError:
            raise InvalidInput("--states", repr(given), "numbers, such as 20,50,100") from None
        return states.given_states(levels, found.values)
    if quantiles is not None:
        return states.quantile_states(quantiles, found.values)
    return states.least_error_states(3 if least_error is None else least_error, found.values)


def _slot_of(time: str, found: Readings) -> int:
    hour, _, minute = time.partition(":")
    if not re.fullmatch(r"[0-9]{1,2}(:[0-9]{2})?", time):
        raise InvalidInput("--aggregate-at", repr(time), "a time of day, such as 18:00")
    minutes = int(hour) * 60 + int(minute or 0)
    step = 24 * 60 // found.day
    if minutes >= 24 * 60 or minutes % step:
        raise InvalidInput("--aggregate-at", repr(time), f"a multiple of {step} minutes in a day")
    return minutes // step


def _groups(path: Path | None, found: Readings) -> dict[str, list[str]] | None:
    """Clients and their entities; those that were not read are left out, and named."""
    if path is None:
        return None
    groups: dict[str, list[str]] = {}
    unread: list[str] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            for number, row in enumerate(csv.DictReader(file), start=2):
                if not row["entity"] or not row["client"]:
                    raise InvalidInput(
                        f"--groups: row {number} of {path}", repr(row), "an entity and a client"
                    )
                members = groups.setdefault(row["client"], [])
                (members if row["entity"] in found.entities else unread).append(row["entity"])
    except (OSError, UnicodeDecodeError, KeyError, csv.Error) as error:
        raise InvalidInput(
            "--groups", f"{path} ({error})", "a CSV file with the columns entity and client"
        ) from None
    for client, members in groups.items():
        if not members:
            raise InvalidInput(
                f"--groups: client {client!r}", "no entity with usable readings", "one or more"
            )
    if not groups:
        raise InvalidInput("--groups", f"{path}, empty", "an entity and a client a row")
    if unread:
        more = f" and {len(unread) - 8} more" if len(unread) > 8 else ""
        people.print(
            f"[yellow]In {escape(str(path))}, but without usable readings: "
            f"{escape(', '.join(unread[:8]))}{more}.[/]",
            soft_wrap=True, highlight=False,
        )  # fmt: skip
    return groups


NO_LIMIT = (
    "Δ will be that of the fitted matrices, with no allowance for their error, and is true only as "
    "far as the readings are such a chain: for comparison, not for a privacy claim."
)


def _header(made: Fit) -> str:
    limits = f"Δ limits at confidence {made.confidence:g} for all slots and clients together."
    lines = [
        f"{made.kind} law from {made.quality.entities} entities, {made.quality.first} to "
        f"{made.quality.last}.",
        f"Adversary: {made.adversary}; sampled: {made.sampled}; {limits}"
        if made.kind == "measured"
        else NO_LIMIT,
        *(made.assumptions.verdict if made.count_epsilon is None else ()),
        "Fitting itself looks at the readings: use records that are public or consented to, and "
        "others than those that will be released."
        if made.count_epsilon is None
        else f"Its counts have noise: classical ε {made.count_epsilon:g} about each day of each "
        "entity, recorded in the clients' ledgers.",
    ]
    return "".join(f"# {line}\n" for line in lines)


def _print(made: Fit) -> None:
    quality, checked, unit = made.quality, made.assumptions, escape(made.problem.unit)
    screen = console()
    facts: list[tuple[str, Any]] = [
        ("readings", f"{quality.rows} rows, {quality.entities} entities, every "
         f"{quality.resolution_minutes} min from {quality.first} to {quality.last}"),
        ("left out", f"{quality.not_numbers} no numbers, {quality.negative} negative, "
         f"{quality.off_grid} off the grid, {quality.duplicates_same} doubled; "
         f"{quality.duplicates_averaged} averaged, {quality.missing} missing"),
    ]  # fmt: skip
    left_out = [*quality.left_out, *made.left_out]
    for why in dict.fromkeys(why for _, why in left_out):
        names = [name for name, reason in left_out if reason == why]
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        facts.append(("left out", f"{escape(', '.join(names[:8]))}{more}: {why}"))
    levels = ", ".join(f"{level:.4g}" for level in made.states.values)
    facts.append(("states", f"{levels} {unit} ({made.states.how}); off by "
                  f"{made.states.error:.3g} {unit} (root mean square)"))  # fmt: skip
    facts += [("verdict", escape(line)) for line in checked.verdict]
    grid = Table.grid(padding=(0, 2))
    for name, text in facts:
        grid.add_row(f"[bold]{name}[/]", text)
    screen.print(grid)
    lags = Table(title="Δ by lag, median over entities", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("lag", "measured", "fitted chain"):
        lags.add_column(heading, justify="right")
    for one in checked.lags:
        lags.add_row(str(one.lag), f"{one.measured:.2f}", f"{one.chain:.2f}")
    screen.print(lags)
    if made.kind == "measured":
        shown = Table(title=f"Δ by client, limits at {made.confidence:.0%}, adversary: "
                      f"{made.adversary}", title_justify="left", box=box.SIMPLE_HEAD)  # fmt: skip
        for heading in ("client", "entities", "age", "measured", "limit"):
            shown.add_column(heading, justify="left" if heading == "client" else "right")
        for client in made.clients[:10]:
            last = len(client.limits) - 1
            for age in sorted({a for a in (1, 2, 4, 8, 16, last) if a <= last}):
                shown.add_row(
                    escape(client.name), str(client.entities), str(age),
                    f"{client.estimates[last - age]:.3f}", f"{client.limits[last - age]:.3f}",
                )  # fmt: skip
        screen.print(shown)
        if any(client.inflation > 1 for client in made.clients):
            widest = max(client.inflation for client in made.clients)
            screen.print(
                f"Widened, since weeks vary up to {widest:.1f} times as much as independent days "
                "would."
            )
        if all(min(client.limits) >= 1 for client in made.clients):
            people.print(
                "[yellow]Every limit is 1: these readings are too few for any credit for ageing "
                "at this confidence. Fewer states or more days help.[/]",
                soft_wrap=True,
            )
    else:
        people.print(f"[yellow]{NO_LIMIT}[/]", soft_wrap=True)
