"""fit: from readings to a scenario."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from agewise.cli.console import (
    JsonOption,
    console,
    output_folder,
    people,
    print_json,
    progress_bar,
    wrote,
)
from agewise.cli.fit_rounds import fit_over_rounds
from agewise.cli.layout import Column, print_facts, print_table
from agewise.cli.readings import Options, on_readings
from agewise.errors import InvalidInput
from agewise.fitting import defaults
from agewise.planning import plan
from agewise.scenario import dump_scenario
from agewise.wording import printable

if TYPE_CHECKING:
    from agewise.fitting.report import Fit

commands = typer.Typer()


@commands.command(
    "fit",
    epilog="Example: agewise fit meters.parquet --states 60,250 --adversary population "
    "--aggregate-at 18:00 --out mine.toml",
)
@on_readings
def fit_command(
    given: Options,
    kind: Annotated[
        Literal["measured", "periodic", "chain"],
        typer.Option(help="The measured lag law, or a chain that assumes more."),
    ] = "measured",
    calendar: Annotated[
        bool, typer.Option("--calendar", help="The same as --given weekend.")
    ] = False,
    confidence: Annotated[
        float, typer.Option(help="That no Δ is below the truth, in any slot of any client.")
    ] = defaults.CONFIDENCE,
    count_epsilon: Annotated[
        float | None,
        typer.Option(help="Noise on the counts: the scenario itself is private about each day."),
    ] = None,
    ledgers: Annotated[
        Path | None, typer.Option(help="With --count-epsilon: the clients' ledgers, to record it.")
    ] = None,
    knowledge: Annotated[
        bool,
        typer.Option(
            help="Measure how clients vary, by themselves and together, for better estimates and "
            "promises that hold. Left out with --count-epsilon."
        ),
    ] = True,
    known_days: Annotated[
        defaults.DayKind,
        typer.Option(
            help="The days that knowledge is measured on. A scenario for workdays or weekends "
            "takes an adversary to know which it is (--given weekend)."
        ),
    ] = "all",
    out: Annotated[Path, typer.Option(help="The scenario file to write.")] = Path("fitted.toml"),
    force: Annotated[bool, typer.Option("--force", help="Write over a scenario file.")] = False,
    report: Annotated[
        Path | None, typer.Option(help="Folder for the report: figures and JSON.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Turn readings into a scenario, and say how far its privacy claim can be trusted.

    Shows first what was wrong with the readings and what was done about it, then how far they are
    from a Markov chain, then Δ with its upper confidence limit. Noise is set for the limit.

    With --every, --levels, --memory or --classical-epsilon: what releases in every round,
    without an end, tell of the present state, by a chain on (level class, state); no scenario is
    written.
    """
    if given.over_rounds:
        fit_over_rounds(given, confidence, as_json=as_json)
        return
    if out.suffix != ".toml" or not out.parent.is_dir() or out.is_dir():
        raise InvalidInput("--out", str(out), "a .toml file in a folder that exists")
    page = _page(out, report, count_epsilon)
    for file in (out, page) if report is None else (out,):
        if file is not None and os.path.lexists(file) and not force:
            raise InvalidInput("--out", f"{file}, which exists", "a new file", "Or say --force.")
    from agewise.fitting.fit import fit  # noqa: PLC0415  (polars)
    from agewise.fitting.record import record_fit  # noqa: PLC0415

    if (count_epsilon is None) != (ledgers is None):
        raise InvalidInput(
            "--count-epsilon, --ledgers",
            "one without the other",
            "both, or neither",
            "What noisy counts tell has to be accounted for.",
        )
    offered = given.choose_ages()
    recorded = given.read()
    chosen = given.choose_states(recorded.readings)
    members = given.choose_groups(recorded.readings)
    with progress_bar("measuring") as advance:
        fitted = fit(
            recorded.readings,
            chosen,
            epsilon=given.epsilon,
            first_slot=recorded.first_slot,
            slots=recorded.slots,
            groups=members,
            kind=kind,
            adversary=given.adversary,
            sampled=given.sampled,
            limits=given.limits,
            ages=offered,
            given=given.known,
            calendar=calendar,
            confidence=confidence,
            worst_limit=given.worst_limit,
            most_left_out=given.most_left_out,
            count_epsilon=count_epsilon,
            knowledge=knowledge,
            known_days=known_days,
            factors=given.factors,
            name=out.stem,
            unit=given.unit,
            progress=advance,
        )
    folder = output_folder(report, "--report")
    text = None if page is None else _handover(fitted)
    _write(
        out,
        _header(fitted) + dump_scenario(fitted.problem),
        (lambda: record_fit(fitted, ledgers)) if ledgers is not None else None,
    )
    if as_json:
        print_json({**fitted.to_dict(), "scenario": str(out)})
    else:
        _print(fitted)
    for warning in fitted.warnings:
        people.print(f"[yellow]{escape(warning)}[/]", soft_wrap=True, highlight=False)
    paths = [out]
    if page is not None and text is not None:
        _write(page, text, None)
        paths.append(page)
    if folder is not None:
        from agewise import figures  # noqa: PLC0415

        paths += figures.save(figures.fit_figure(fitted), folder, "fit")
        (folder / "fit.json").write_text(json.dumps(fitted.to_dict(), indent=2), encoding="utf-8")
        paths.append(folder / "fit.json")
    wrote(paths)


def _write(out: Path, text: str, record: Callable[[], None] | None) -> None:
    """Write a file whole or not at all, and not before what it tells is recorded."""
    draft = out.with_name(f".{out.name}.draft")
    try:
        draft.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(
            "--out", str(out), "a file that can be written", f"{error.strerror}."
        ) from None
    try:
        if record is not None:
            record()
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)


def _page(out: Path, report: Path | None, count_epsilon: float | None) -> Path | None:
    """Where the page to hand over goes: with the report, or beside the scenario.

    It tells what the readings say, so that it is not put beside a scenario that has noise for that.
    """
    if report is not None:
        return report / "report.html"
    return out.with_suffix(".html") if count_epsilon is None else None


def _handover(fitted: Fit) -> str:
    from agewise import figures  # noqa: PLC0415
    from agewise.fitting.pages import fit_page, fit_picture_text  # noqa: PLC0415
    from agewise.report.drawing import svg_text  # noqa: PLC0415
    from agewise.report.pages import picture  # noqa: PLC0415

    with progress_bar("planning") as advance:
        planned = plan(fitted.problem, progress=advance)
    drawn = [
        picture(
            svg_text(
                figures.fit_figure(fitted), "fit", "Δ by lag and age", fit_picture_text(fitted)
            ),
            "What the readings say of Δ, what a fitted chain would promise, and the limits used.",
        ),
        picture(
            svg_text(figures.timeline_figure(planned), "plan", "The plan", planned.title),
            "Who collects in which slot.",
        ),
    ]
    return fit_page(fitted, planned, drawn)


def _header(fitted: Fit) -> str:
    lines = [fitted.problem.origin]
    if fitted.kind == "measured":
        known = f", who knows {fitted.given}" if fitted.given else ""
        lines.append(
            f"Adversary: {fitted.adversary}{known}; sampled: {fitted.sampled}; Δ limits: "
            f"{fitted.limits}, at confidence {fitted.confidence:g} for all ages "
            f"({', '.join(map(str, fitted.ages))} slots) and clients together."
        )
    if fitted.count_epsilon is None:
        lines += fitted.assumptions.verdict
        lines.append(
            "Fitting itself looks at the readings: use records that are public or consented to, "
            "and others than those that will be released."
        )
    else:
        lines.append(
            f"Its counts have noise: classical ε {fitted.count_epsilon:g} about any 24 hours of "
            "each entity, recorded in the clients' ledgers."
        )
    return "".join(f"# {printable(line)}\n" for line in lines)


def _print(fitted: Fit) -> None:
    checked, screen = fitted.assumptions, console()
    print_facts(screen, [(name, escape(value)) for name, value in fitted.facts()])
    print_table(
        screen,
        "Δ by lag, median over entities",
        [Column("lag (slots)"), Column("measured"), Column("fitted chain")],
        [[f"{o.lag} ({o.time})", f"{o.measured:.2f}", f"{o.chain:.2f}"] for o in checked.lags],
    )
    if fitted.kind == "measured":
        screen.print(
            f"Δ by client, {fitted.limits} limits at {fitted.confidence:.0%}; adversary: "
            f"{fitted.adversary}, sampled: {fitted.sampled}"
            + (f", given {escape(fitted.given)}" if fitted.given else ""),
            style="italic",
            highlight=False,
        )
        headings = ("client", "entities", "age (slots)", "measured", "limit")
        rows = []
        for client in fitted.clients[:10]:
            last = len(client.limits) - 1
            rows += [
                [
                    escape(client.name),
                    str(client.entities),
                    str(age),
                    f"{client.estimates[last - age]:.3f}",
                    f"{client.limits[last - age]:.3f}",
                ]
                for age in fitted.ages
            ]
        columns = [Column(heading, words=heading == "client") for heading in headings]
        print_table(screen, "", columns, rows)
        if fitted.coverage is not None:
            screen.print(fitted.coverage, highlight=False)
        if any(client.inflation > 1 for client in fitted.clients):
            widest = max(client.inflation for client in fitted.clients)
            screen.print(
                f"Widened, since weeks vary up to {widest:.1f} times as much as independent days "
                "would."
            )
