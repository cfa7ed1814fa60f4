"""fit and backtest over many rounds: what they are told, and how they say what was found."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape

from agewise.cli.console import console, people, print_json, progress_bar
from agewise.cli.layout import Column, print_facts, print_table
from agewise.cli.readings import SHOWN, Options
from agewise.errors import InvalidInput
from agewise.fitting import defaults
from agewise.wording import listed

if TYPE_CHECKING:
    from agewise.fitting.round_adversary import RoundAttack
    from agewise.fitting.rounds import RoundsBacktest, RoundsFit
    from agewise.fitting.states import States
    from agewise.readings import Readings

MINUTES = {"min": 1, "h": 60}
TAKEN = {
    *("readings", "states", "quantiles", "least_error", "entity", "timestamp", "value", "wide"),
    *("yes", "timezone", "aggregate_at", "unit", "every", "levels", "memory", "classical_epsilon"),
    *("confidence", "rounds", "seed", "as_json"),
}
"""What claims over rounds can be told; everything else is about single releases."""


@dataclass(frozen=True)
class _Asked:
    """Readings, and what the functions on rounds take."""

    readings: Readings
    states: States | int
    choices: dict[str, Any]


def fit_over_rounds(given: Options, confidence: float, *, as_json: bool) -> None:
    """Say what releases in every round tell of the present state."""
    from agewise.fitting.rounds import fit_rounds  # noqa: PLC0415  (polars)

    asked = _read(given)
    with progress_bar("over rounds") as advance:
        fitted = fit_rounds(
            asked.readings,
            asked.states,
            confidence=confidence,
            progress=advance,
            **asked.choices,
        )
    if as_json:
        print_json(fitted.to_dict())
        return
    screen = console()
    _print_facts(screen, fitted.backtest, fitted.verdict)
    _print_attacks(screen, fitted.backtest)
    _print_claims(screen, fitted)
    people.print(
        "No scenario was written: states of a scenario have values of their own, and those of "
        "this chain share them.",
        soft_wrap=True,
        highlight=False,
    )


def backtest_over_rounds(given: Options, rounds: int | None, seed: int, *, as_json: bool) -> None:
    """Say what adversaries got out of noised releases of every round."""
    from agewise.fitting.rounds import backtest_rounds  # noqa: PLC0415  (polars)

    asked = _read(given, half=True)
    with progress_bar("replaying rounds") as advance:
        tested = backtest_rounds(
            asked.readings,
            asked.states,
            rounds=rounds,
            seed=seed,
            progress=advance,
            **asked.choices,
        )
    if as_json:
        print_json(tested.to_dict())
        return
    screen = console()
    _print_facts(screen, tested, tested.verdict)
    _print_attacks(screen, tested)


def _read(given: Options, *, half: bool = False) -> _Asked:
    """Refuse what does not go with rounds, read the file, and find the states."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = str(parameter.name)
        chosen = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if chosen and name not in TAKEN:
            raise InvalidInput(
                parameter.opts[0],
                "given with a claim over rounds",
                "left out with --every, --levels, --memory, --classical-epsilon and --rounds",
                "It is about single releases."
                if name != "out"
                else "States of a scenario have values of their own, and those of a chain on "
                "(level class, state) share them.",
            )
    spent = _epsilons(given.classical_epsilon)
    recorded = given.read()
    readings = recorded.readings
    step = _step(given.every or "day", readings.day)
    states: States | int = defaults.STATES if given.quantiles is None else given.quantiles
    if given.states is not None or given.least_error is not None:
        states = given.choose_states(readings.split(0.5)[0] if half else readings)
    choices: dict[str, Any] = {
        "at": recorded.first_slot,
        "every": step,
        "levels": given.levels,
        "memory": defaults.MEMORY if given.memory is None else given.memory,
        "classical_epsilons": spent,
    }
    return _Asked(readings, states, choices)


def _step(every: str, day: int) -> int:
    """Slots from one release to the next."""
    if every == "day":
        return day
    found = re.fullmatch(r"([0-9]{1,4}) ?(h|min)", every)
    allowed = "day, or hours or minutes, such as 12h or 30min"
    if found is None:
        raise InvalidInput("--every", repr(every), allowed)
    minutes, whole_day, slot = int(found[1]) * MINUTES[found[2]], 24 * 60, 24 * 60 / day
    if not minutes or whole_day % minutes or minutes % slot:
        raise InvalidInput(
            "--every",
            repr(every),
            f"a divisor of a day that is a multiple of the {slot:g} min between readings",
        )
    return int(minutes / slot)


def _epsilons(text: str | None) -> tuple[float, ...]:
    if text is None:
        return defaults.CLASSICAL_EPSILONS
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput(
            "--classical-epsilon", repr(text), "numbers above 0, such as 0.5,1"
        ) from None


def _print_facts(screen: Console, tested: RoundsBacktest, verdict: tuple[str, ...]) -> None:
    facts = [
        ("states", escape(tested.states)),
        ("rounds", f"{tested.per_day} per day; level memory {tested.memory:g}"),
    ]
    if tested.left_out:
        names = listed([name for name, _ in tested.left_out], SHOWN)
        facts.append(("left out", f"{escape(names)}: {tested.left_out[0][1]}"))
    facts += [("verdict", escape(line)) for line in verdict]
    print_facts(screen, facts)


def _print_attacks(screen: Console, tested: RoundsBacktest) -> None:
    """What adversaries got out of all rounds, against each claim."""
    from agewise.fitting.round_adversary import SUREST  # noqa: PLC0415  (scipy)

    columns = [
        Column("claim by", words=True),
        Column("ε_c of each release"),
        Column("claimed ε"),
        *(Column(f"surest {share:.0%}") for share in SUREST),
        Column("chance", spare=True),
        Column("claim", words=True),
    ]
    rows = []
    for one, high in zip(tested.alone, tested.alone_high, strict=True):
        rows.append(_row(one, f"{one.epsilon:.2f} ({high:.2f})"))
    for tried in tested.tried:
        rows += [_row(one, f"{one.epsilon:.2f}") for one in tried.attacks]
    ends = range(len(tested.alone) - 1, len(rows), len(tested.alone))
    title = (
        f"Log ratio of hits to false alarms on {tested.judged_rounds} rounds held out, "
        f"{tested.entities} entities (own chains: median and 90th percentile claimed)"
    )
    print_table(screen, title, columns, rows, ends)


def _row(one: RoundAttack, claimed: str) -> list[str]:
    from agewise.fitting.rounds import IN_DOUBT  # noqa: PLC0415  (scipy)

    verdict = "[green]not refuted[/]"
    if one.broken:
        verdict = "[red]broken[/]"
    elif one.chance < IN_DOUBT:
        verdict = "[yellow]in doubt[/]"
    elif one.reached:
        verdict = "[yellow]reached[/]"
    cells = [
        f"{ratio:.2f} ± {error:.2f}"
        for ratio, error in zip(one.log_ratios, one.standard_errors, strict=True)
    ]
    return [
        one.claim,
        f"{one.classical_epsilon:g}",
        claimed,
        *cells,
        f"{one.chance:.1g}",
        verdict,
    ]


def _print_claims(screen: Console, fitted: RoundsFit) -> None:
    """What a release in every round tells of the present state, for ever."""
    columns = [
        Column("ε_c of each release"),
        Column("ε for ever, about the present"),
        Column(f"limit ({fitted.confidence:.0%}, not proven)"),
        Column("classical total of a year"),
    ]
    rows = [
        [
            f"{one.classical_epsilon:g}",
            "no claim" if fitted.chain is None else f"{one.epsilon:.3f}",
            "no claim" if fitted.chain is None else f"{one.limit:.3f}",
            f"{one.classical_year:g}",
        ]
        for one in fitted.claims
    ]
    print_table(screen, "Claims over rounds", columns, rows)
