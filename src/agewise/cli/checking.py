"""check: recompute what a run says of itself."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from agewise.cli.console import JsonOption, console, people, print_json
from agewise.federation.checking import check_run
from agewise.federation.checking_rounds import check_rounds
from agewise.federation.journal import ROUNDS
from agewise.report.tables import counted

REFUTED = 5
"""Exit code for a run that says of itself what does not hold."""
SHOWN = 40
"""Differences that are listed for people; all of them with --json."""

commands = typer.Typer()


@commands.command(
    "check", epilog="Example: agewise check runs/mine-20260301-120000 --ledgers /var/lib/agewise"
)
def check_command(
    run: Annotated[Path, typer.Argument(help="The folder of a run that has ended.")],
    ledgers: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the clients' ledgers, or one file; left out: where the run kept them."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute everything that a run's record, statement and plan say, from the ledgers.

    Exit code 0: all of it follows. 5: something differs, and each difference is listed. Nothing
    is changed.
    """
    report = (check_rounds if (run / ROUNDS).exists() else check_run)(run, ledgers)
    if as_json:
        print_json(
            {
                "run": report.run,
                "compared": report.compared,
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
            else "all agree"
        )
        screen.print(
            f"{escape(report.run)}: {report.compared} entries of record, statement and plan "
            f"recomputed from the ledgers: {verdict}.",
            highlight=False,
            soft_wrap=True,
        )
    if report.differences:
        raise typer.Exit(REFUTED)
