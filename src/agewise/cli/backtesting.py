"""backtest: recorded days replayed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

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
from agewise.cli.layout import Column, print_table
from agewise.cli.readings import SHOWN, Options, on_readings
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
@on_readings
def backtest(
    given: Options,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the adversary's noise and the random schedule.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Replay recorded days: what plans would have cost, and whether an adversary beats the claim.

    States and laws are fitted to the first half of the days, as agewise fit does; the second half
    judges. An adversary who knows the law that --adversary grants them guesses each household's
    present state from data collected in slot 1, with noise by the fitted limits, and by a fitted
    chain. Plans go through the local engine with private noise, on every day without gaps.
    """
    from agewise.fitting.adversary import replay_adversary  # noqa: PLC0415
    from agewise.fitting.backtest import replay_plans  # noqa: PLC0415
    from agewise.fitting.fit import fit  # noqa: PLC0415
    from agewise.fitting.halves import compare_halves  # noqa: PLC0415

    recorded = given.read()
    before, after = recorded.readings.split(0.5)
    chosen = given.choose_states(before)
    members = given.choose_groups(recorded.readings)
    with progress_bar("measuring") as advance:
        fitted = fit(
            before,
            chosen,
            epsilon=given.epsilon,
            first_slot=recorded.first_slot,
            slots=recorded.slots,
            groups=members,
            adversary=given.adversary,
            sampled=given.sampled,
            worst_limit=given.worst_limit,
            most_left_out=given.most_left_out,
            unit=given.unit,
            progress=advance,
        )
    whole = recorded.readings
    halves = compare_halves(chosen.index(whole.values), chosen.values, whole.day)
    within = [f"Within the half fitted to: {line}" for line in fitted.assumptions.halves.verdict]
    warnings = [*halves.verdict, *within, *fitted.warnings]
    with people.status("replaying the adversary"):
        attacks = replay_adversary(fitted, before, after, first_slot=recorded.first_slot, seed=seed)
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
                "adversary": given.adversary,
                "sampled": given.sampled,
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
        f"{after.values.shape[1] // after.day} after them; adversary: {given.adversary}, "
        f"sampled: {given.sampled}, claimed ε = {given.epsilon:g}. {len(fitted.left_out)} entities "
        "left out.",
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
