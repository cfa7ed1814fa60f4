"""check: what a run says of itself, recomputed; scenario files, looked through."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from agewise.cli.console import JsonOption, console, people, print_json
from agewise.errors import InvalidInput
from agewise.federation.checking import check_run
from agewise.federation.checking_rounds import check_rounds
from agewise.federation.journal import ROUNDS
from agewise.problem import Problem
from agewise.report.problems import problem_facts
from agewise.report.tables import counted, text_facts
from agewise.scenario import load_scenario, problem_to_dict
from agewise.scenarios import BUILT_IN

REFUTED = 5
"""Exit code for a run that says of itself what does not hold."""
SHOWN = 40
"""Differences that are listed for people; all of them with --json."""

commands = typer.Typer()


@commands.command(
    "check",
    epilog="Example: agewise check mine.toml; "
    "agewise check runs/mine-20260301-120000 --ledgers /var/lib/agewise",
)
def check_command(
    what: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|SCENARIO", help="The folder of a run that has ended, or a scenario file."
        ),
    ],
    ledgers: Annotated[
        Path | None,
        typer.Option(
            help="Of a run: folder of the clients' ledgers, or one file; default: where the run "
            "kept them."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute all that a run says of itself from its ledgers; or look through a scenario file.

    Exit code 0: all of it follows, or the file is a scenario. 2: it is none, and every problem is
    listed, or it is a run of another version. 5: something in a run differs, and each difference is
    listed. Nothing is changed.
    """
    if what.suffix == ".toml" or what.is_file() or (str(what) in BUILT_IN and not what.exists()):
        if ledgers is not None:
            raise InvalidInput("--ledgers", "given with a scenario", "with the folder of a run")
        _print_scenario(str(what), load_scenario(what), as_json)
    else:
        _print_run(what, ledgers, as_json)


def _print_scenario(source: str, problem: Problem, as_json: bool) -> None:
    if as_json:
        print_json({"scenario": source, "holds": problem_to_dict(problem)})
        return
    console().print(text_facts(problem_facts(problem)), highlight=False, markup=False)
    people.print(
        f"{escape(source)} is a scenario. Next: agewise plan {escape(source)}",
        soft_wrap=True,
        highlight=False,
    )


def _print_run(run: Path, ledgers: Path | None, as_json: bool) -> None:
    report = (check_rounds if (run / ROUNDS).exists() else check_run)(run, ledgers)
    if as_json:
        print_json(
            {
                "run": report.run,
                "compared": report.compared,
                "verified": report.verified,
                "differences": [asdict(one) for one in report.differences],
                "as_told": list(report.as_told),
            }
        )
    else:
        screen = console()
        for one in report.differences[:SHOWN]:
            screen.print(f"[red]differs[/]  {escape(str(one))}", highlight=False, soft_wrap=True)
        more = len(report.differences) - SHOWN
        if more > 0:
            people.print(f"{more} more; --json lists them all.")
        for told in report.as_told:
            screen.print(f"as told  {escape(told)}", highlight=False, soft_wrap=True)
        verdict = (
            f"[red]{counted(len(report.differences), 'difference')}[/]"
            if report.differences
            else "all of it follows"
        )
        screen.print(
            f"{escape(report.run)}: {counted(report.verified, 'upload')} verified against the "
            f"ledgers, {report.compared} entries of record, statement and plan recomputed: "
            f"{verdict}. Expected losses are recomputed from the scenario's model; whether records "
            "follow it is not verified.",
            highlight=False,
            soft_wrap=True,
        )
    if report.differences:
        raise typer.Exit(REFUTED)
