"""backtest: recorded days replayed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape

from agewise.cli.console import (
    JsonOption,
    console,
    generator,
    people,
    print_json,
    progress_bar,
)
from agewise.cli.fit_rounds import backtest_over_rounds
from agewise.cli.layout import Column, print_table
from agewise.cli.readings import SHOWN, Options, on_readings
from agewise.errors import InvalidInput
from agewise.wording import listed

if TYPE_CHECKING:
    from agewise.fitting.adversary import Attack
    from agewise.fitting.backtest import Replayed
    from agewise.readings import Readings

commands = typer.Typer()
IN_DOUBT = 0.05
"""A claim that is beaten by what chance does so rarely is not said to stand."""
MANY = 6
"""Clients beyond which their ages are not spelt out."""
SCHEMES = {
    "nothing collected": "nothing collected",
    "classical, fresh": "classical noise, fresh, what is known used",
    "plain": "records as collected",
    "propagated": "records moved forward",
    "best": "best estimate",
    "random": "a random schedule",
}


@commands.command(
    epilog="Example: agewise backtest meters.parquet --states 60,250 --each --adversary household"
)
@on_readings
def backtest(
    given: Options,
    split: Annotated[
        Literal["halves", "weeks"],
        typer.Option(
            help="halves: fitted to the first half of the days, judged on the second. weeks: "
            "fitted to every other week, judged on those between, and for plans the other way "
            "round too; seasons do not part them."
        ),
    ] = "halves",
    others: Annotated[
        bool,
        typer.Option(
            "--others",
            help="The adversary also knows the present mean of the others, in thirds (two states).",
        ),
    ] = False,
    rounds: Annotated[
        int | None,
        typer.Option(
            help="Claims over many rounds (as with --every): how many rounds of the second half "
            "are judged, 30 at least. Without a choice: all."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the adversary's noise and the random schedule.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Replay recorded days: what plans would have cost, and whether an adversary beats the claim.

    States, laws and what is known of the clients are fitted to half of the days, as agewise fit
    does; the other half judges (--split). An adversary who knows the law that --adversary grants
    them concludes each household's present state from data of the oldest age with a limit, with
    noise by the fitted limits, and by a fitted chain. Plans are carried out on every day without
    gaps, beside nothing collected and classical noise.

    With --rounds or --every: adversaries who hear a noised release of every round, against claims
    of first-order chains and of chains on (level class, state).
    """
    if given.over_rounds or rounds is not None:
        backtest_over_rounds(given, rounds, seed, as_json=as_json)
        return
    from agewise.fitting.adversary import replay_adversary, weigh_adversary  # noqa: PLC0415
    from agewise.fitting.backtest import pool_replays, replay_plans  # noqa: PLC0415
    from agewise.fitting.fit import fit  # noqa: PLC0415
    from agewise.fitting.halves import compare_halves  # noqa: PLC0415

    offered = given.choose_ages()
    recorded = given.read()
    parts = [recorded.readings.split(0.5)]
    if split == "weeks":
        even, odd = recorded.readings.alternate_weeks(recorded.first_slot, recorded.slots)
        parts = [(even, odd), (odd, even)]
    members = given.choose_groups(recorded.readings)
    fits = []
    for part, _ in parts:
        chosen = given.choose_states(part)
        with progress_bar("measuring") as advance:
            fits.append(
                fit(
                    part,
                    chosen,
                    epsilon=given.epsilon,
                    first_slot=recorded.first_slot,
                    slots=recorded.slots,
                    groups=members,
                    adversary=given.adversary,
                    sampled=given.sampled,
                    limits=given.limits,
                    ages=offered,
                    given=given.known,
                    worst_limit=given.worst_limit,
                    most_left_out=given.most_left_out,
                    factors=given.factors,
                    unit=given.unit,
                    progress=advance,
                )
            )
    fitted, (before, after) = fits[0], parts[0]
    chosen = fitted.states
    if others and chosen.values.size != 2:
        raise InvalidInput("--others", f"with {chosen.values.size} states", "two states")
    whole = recorded.readings
    halves = compare_halves(chosen.index(whole.values), chosen.values, whole.day)
    within = [f"Within the half fitted to: {line}" for line in fitted.assumptions.halves.verdict]
    warnings = [*halves.verdict, *within, *fitted.warnings]
    with people.status("replaying the adversary"):
        oldest = recorded.slots - max(fitted.ages)
        attacks = (
            weigh_adversary(
                fitted,
                before,
                after,
                first_slot=recorded.first_slot,
                collect_at=oldest,
                others=others,
            )
            if chosen.values.size == 2
            else replay_adversary(
                fitted,
                before,
                after,
                first_slot=recorded.first_slot,
                collect_at=oldest,
                seed=seed,
            )
        )
    replays = []
    for made, (_, judging) in zip(fits, parts, strict=True):
        with progress_bar("replaying plans") as advance:
            replays.append(
                replay_plans(
                    made.problem,
                    judging,
                    made.states,
                    {one.name: one.members for one in made.clients},
                    first_slot=recorded.first_slot,
                    rng=generator(seed),
                    progress=advance,
                )
            )
    replayed = pool_replays(replays)
    warnings += [warning for row in replayed if (warning := _miss(row, split))]
    if as_json:
        print_json(
            {
                "split": split,
                "adversary": given.adversary,
                "sampled": fitted.sampled,
                "limits": fitted.limits,
                "ages": list(fitted.ages),
                "given": fitted.given,
                "attacks": [one.to_dict() for one in attacks],
                "plans": [one.to_dict() for one in replayed],
                "left_out": [list(one) for one in fitted.left_out],
                "halves": halves.to_dict(),
                "warnings": warnings,
            }
        )
    for warning in warnings:
        people.print(f"[yellow]{escape(warning)}[/]", soft_wrap=True, highlight=False)
    if as_json:
        return
    screen = console()
    screen.print(
        f"{_judged(before, after, split)}; adversary: {given.adversary}, sampled: "
        f"{fitted.sampled}, limits: {fitted.limits}, claimed ε = {given.epsilon:g}. "
        f"{len(fitted.left_out)} entities left out.",
        highlight=False,
    )
    _print_attacks(screen, attacks, given.unit)
    for one in attacks:
        if one.exposed:
            screen.print(
                f"Noise by the {_noise(one)} exposes {escape(listed(one.exposed, SHOWN))}: "
                "each by itself refutes the claim.",
                highlight=False,
            )
    _print_plans(screen, replayed, given.unit)


def _judged(before: Readings, after: Readings, split: str) -> str:
    if split == "weeks":
        return (
            "Fitted to every other week and judged on those between; plans, the other way round too"
        )
    days = [part.values.shape[1] // part.day for part in (before, after)]
    return f"Fitted to {days[0]} days, judged on the {days[1]} after them"


def _miss(row: Replayed, split: str) -> str:
    """What to say of a promise that was not kept; nothing where it was."""
    if not row.missed:
        return ""
    why = "" if split == "weeks" else " (--split weeks judges without the drift of seasons)"
    return (
        f"{SCHEMES[row.scheme].capitalize()}: the loss is {row.ratio:.2f} times what was promised, "
        "by more than three standard errors. The days judged are unlike those fitted to: no "
        f"promise foresees a drift{why}."
    )


def _noise(one: Attack) -> str:
    return "fitted limit" if one.claim == "measured" else "fitted chain"


def _print_attacks(screen: Console, attacks: list[Attack], unit: str) -> None:
    """What an adversary got out of recorded days, against what each claim allows."""
    of = f" ({escape(unit)})" if unit else ""
    columns = [
        Column("noise by", words=True),
        Column("Δ"),
        Column(f"noise scale{of}", spare=True),
        Column("hits"),
        Column("false alarms"),
        Column("ratio"),
        Column("allowed"),
        Column("excess"),
        Column("chance", spare=True),
        Column("claim", words=True),
    ]
    rows = [
        [
            _noise(one),
            f"{one.delta:.3g}",
            f"{one.noise_scale:.4g}",
            f"{one.hits:.3f}",
            f"{one.false_alarms:.3f}",
            f"{one.hits / one.false_alarms if one.false_alarms else math.inf:.2f}",
            f"{one.allowed_ratio:.2f}",
            f"{one.excess:+.1f} s.e.",
            f"{one.chance:.1g}",
            "[red]broken[/]"
            if one.too_good
            else "[green]not refuted[/]"
            if one.chance > IN_DOUBT
            else "[yellow]in doubt[/]",
        ]
        for one in attacks
    ]
    title = (
        f"A replayed adversary, data of age {attacks[0].age}, {attacks[0].households} households"
    )
    print_table(screen, title, columns, rows)


def _print_plans(screen: Console, replayed: list[Replayed], unit: str) -> None:
    """What plans cost on recorded days, beside what they promised."""
    square = f" ({escape(unit)}²)" if unit else ""
    columns = [
        Column("scheme", words=True),
        Column("ages", words=True),
        Column(f"mean loss{square}"),
        Column(f"promised{square}"),
        Column("ratio"),
        Column(f"above best estimate{square}", spare=True),
    ]
    rows = []
    for row in replayed:
        ages = ", ".join(map(str, row.ages))
        if len(row.ages) > MANY:
            ages = f"{min(row.ages)} to {max(row.ages)}"
        loss = f"{row.mean_loss:.1f} ± {row.standard_error:.1f}"
        above = f"{row.beyond_best:+.1f} ± {row.beyond_best_error:.1f}"
        rows.append(
            [
                SCHEMES[row.scheme],
                ages or "-",
                loss,
                f"{row.promised:.1f}",
                f"{row.ratio:.2f}",
                "-" if row.scheme == "best" else above,
            ]
        )
    print_table(screen, f"Plans over {replayed[0].days} recorded days", columns, rows)
