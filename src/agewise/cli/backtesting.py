"""backtest: recorded days replayed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from agewise.cli import readings as given
from agewise.cli.console import (
    JsonOption,
    console,
    generator,
    people,
    print_json,
    progress_bar,
)
from agewise.cli.layout import Column, print_table
from agewise.fitting import defaults
from agewise.wording import listed

if TYPE_CHECKING:
    from agewise.fitting.adversary import Attack
    from agewise.fitting.backtest import Replayed

commands = typer.Typer()
IN_DOUBT = 0.05
"""A claim that is beaten by what chance does so rarely is not said to stand."""
MANY = 6
"""Clients beyond which their ages are not spelt out."""
SCHEMES = {
    "plain": "records as collected",
    "propagated": "records moved forward",
    "classical, fresh": "classical noise, fresh",
    "random": "a random schedule",
}


@commands.command(
    epilog="Example: agewise backtest meters.parquet --states 60,250 --each --adversary household"
)
def backtest(
    readings: given.ReadingsArgument,
    states: given.StatesOption = None,
    quantiles: given.QuantilesOption = None,
    least_error: given.LeastErrorOption = None,
    entity: given.EntityOption = None,
    timestamp: given.TimestampOption = None,
    value: given.ValueOption = None,
    wide: given.WideOption = False,
    yes: given.YesOption = False,
    timezone: given.TimezoneOption = "UTC",
    groups: given.GroupsOption = None,
    each: given.EachOption = False,
    aggregate_at: given.AggregateOption = defaults.AGGREGATE_AT,
    slots: given.SlotsOption = None,
    epsilon: given.EpsilonOption = defaults.EPSILON,
    adversary: given.AdversaryOption = defaults.ADVERSARY,
    sampled: given.SampledOption = defaults.DRAWN_BY,
    limits: given.LimitsOption = defaults.LIMITS_ARE,
    ages: given.AgesOption = None,
    known: given.GivenOption = None,
    worst_limit: given.WorstLimitOption = defaults.WORST_LIMIT,
    most_left_out: given.MostLeftOutOption = defaults.MOST_LEFT_OUT,
    unit: given.UnitOption = "",
    seed: Annotated[
        int, typer.Option(min=0, help="Of the adversary's noise and the random schedule.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Replay recorded days: what plans would have cost, and whether an adversary beats the claim.

    States and laws are fitted to the first half of the days, as agewise fit does; the second half
    judges. An adversary who knows the law that --adversary grants them guesses each household's
    present state from data of the oldest age with a limit, with noise by the fitted limits, and by
    a fitted chain. Plans go through the local engine with private noise, on every day without gaps.
    """
    from agewise.fitting.adversary import replay_adversary  # noqa: PLC0415
    from agewise.fitting.backtest import replay_plans  # noqa: PLC0415
    from agewise.fitting.fit import fit  # noqa: PLC0415
    from agewise.fitting.halves import compare_halves  # noqa: PLC0415

    columns = given.choose_columns(readings, entity, timestamp, value, wide=wide, yes=yes)
    offered = given.choose_ages(ages)
    recorded = given.read(readings, columns, timezone, aggregate_at, slots, known)
    before, after = recorded.readings.split(0.5)
    chosen = given.choose_states(states, quantiles, least_error, before)
    members = given.choose_groups(groups, recorded.readings, each=each)
    with progress_bar("measuring") as advance:
        fitted = fit(
            before,
            chosen,
            epsilon=epsilon,
            first_slot=recorded.first_slot,
            slots=recorded.slots,
            groups=members,
            adversary=adversary,
            sampled=sampled,
            limits=limits,
            ages=offered,
            given=known,
            worst_limit=worst_limit,
            most_left_out=most_left_out,
            unit=unit,
            progress=advance,
        )
    whole = recorded.readings
    halves = compare_halves(chosen.index(whole.values), chosen.values, whole.day)
    within = [f"Within the half fitted to: {line}" for line in fitted.assumptions.halves.verdict]
    warnings = [*halves.verdict, *within, *fitted.warnings]
    with people.status("replaying the adversary"):
        attacks = replay_adversary(
            fitted,
            before,
            after,
            first_slot=recorded.first_slot,
            collect_at=recorded.slots - max(fitted.ages),
            seed=seed,
        )
    with progress_bar("replaying plans") as advance:
        replayed = replay_plans(
            fitted.problem,
            after,
            chosen,
            {one.name: one.members for one in fitted.clients},
            first_slot=recorded.first_slot,
            rng=generator(seed),
            progress=advance,
        )
    if as_json:
        print_json(
            {
                "adversary": adversary,
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
        f"Fitted to {before.values.shape[1] // before.day} days, judged on the "
        f"{after.values.shape[1] // after.day} after them; adversary: {adversary}, sampled: "
        f"{fitted.sampled}, limits: {fitted.limits}, claimed ε = {epsilon:g}. "
        f"{len(fitted.left_out)} entities left out.",
        highlight=False,
    )
    _print_attacks(screen, attacks, unit)
    for one in attacks:
        if one.exposed:
            screen.print(
                f"Noise by the {_noise(one)} exposes {escape(listed(one.exposed, given.SHOWN))}: "
                "each by itself refutes the claim.",
                highlight=False,
            )
    _print_plans(screen, replayed, unit)


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
    ]
    rows = []
    for row in replayed:
        ages = ", ".join(map(str, row.ages))
        if len(row.ages) > MANY:
            ages = f"{min(row.ages)} to {max(row.ages)}"
        loss = f"{row.mean_loss:.1f} ± {row.standard_error:.1f}"
        rows.append([SCHEMES[row.scheme], ages, loss, f"{row.promised:.1f}"])
    print_table(screen, f"Plans over {replayed[0].days} recorded days", columns, rows)
