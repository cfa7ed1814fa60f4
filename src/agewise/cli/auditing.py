"""audit: try to refute what is claimed of a scenario, a plan, a run or any mechanism."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from agewise.auditing.findings import PLAN_DRAWS, TIERS, Audit
from agewise.cli.checking import REFUTED
from agewise.cli.console import (
    JsonOption,
    OutOption,
    console,
    generator,
    output_folder,
    people,
    print_json,
    progress_bar,
    wrote,
)
from agewise.cli.layout import Column, print_facts, print_table
from agewise.errors import InvalidInput
from agewise.problem import Client
from agewise.scenario import load_scenario

SHOWN = 40
"""Rows that are shown to people; all of them with --json."""

commands = typer.Typer()


@commands.command(
    "audit",
    epilog="Examples: `agewise audit london` · `agewise audit out/plan.json` · `agewise audit "
    "runs/mine` · `agewise audit mine.py:release --claim 0.5 --age 4 --draws 1000000`",
)
def audit_command(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="[SCENARIO | PLAN | RUN | FILE.py:NAME]",
            help="A scenario, the JSON file of a plan, the folder of a run, or a function of a "
            "Python file (or module): it is given records and returns what it releases.",
        ),
    ] = "london",
    tier: Annotated[
        list[str] | None,
        typer.Option(help="exact, replay or sampled; may be repeated (default: all that apply)."),
    ] = None,
    draws: Annotated[
        int, typer.Option(help="Runs of each mechanism in the sampled tier; 0: none.")
    ] = PLAN_DRAWS,
    error: Annotated[
        float, typer.Option(help="Probability of refuting a true claim by chance, in all.")
    ] = 0.01,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds that the runs of one mechanism may take.")
    ] = None,
    claim: Annotated[float | None, typer.Option(help="With a function: the ε claimed.")] = None,
    delta: Annotated[float, typer.Option(help="With a function: the δ claimed.")] = 0.0,
    scenario: Annotated[
        str, typer.Option(help="With a function: the scenario that has the process of its records.")
    ] = "london",
    client: Annotated[
        str | None, typer.Option(help="With a function: whose process (default: the first).")
    ] = None,
    age: Annotated[
        int, typer.Option(help="With a function: slots from collection to the present.")
    ] = 0,
    own_law: Annotated[
        bool, typer.Option("--own-law", help="With a function: the prior is the client's law.")
    ] = False,
    samples: Annotated[
        int, typer.Option(help="With a function: records it is given, one of them asked about.")
    ] = 1,
    noiseless: Annotated[
        bool,
        typer.Option("--noiseless", help="With a function: it is meant to add no noise."),
    ] = False,
    ledgers: Annotated[
        Path | None, typer.Option(help="With a run: the folder of the clients' ledgers.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="For records, and for functions that take rng.")
    ] = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Try to refute what is claimed: exactly, by replaying a run, or by running a mechanism.

    Exit code 0: no claim was refuted. 5: some claim is false, and each is listed.
    """
    from agewise.auditing import BlackBox, audit, resolve  # noqa: PLC0415  (SciPy)

    chosen = TIERS if not tier else tuple(tier)
    if draws < 0:
        raise InvalidInput("--draws", draws, "0 or more")
    rng = None if seed is None else generator(seed)
    folder = output_folder(out)
    found: Any = resolve(subject)
    own: dict[str, Any] = {}
    if callable(found) and not isinstance(found, BlackBox):
        if claim is None:
            raise InvalidInput("--claim", None, "an ε above 0", "What is claimed of the function?")
        who = _client(scenario, client)
        own = {"process": who.process, "age": age, "samples": samples, "delta": delta}
        own |= {"law": who.law if own_law else None, "noiseless": noiseless}
    with progress_bar("auditing") as advance, contextlib.redirect_stdout(sys.stderr):
        report = audit(
            found,
            claim=claim,
            draws=draws,
            error=error,
            rng=rng,
            time_limit=time_limit,
            ledgers=ledgers,
            tiers=chosen,
            progress=advance,
            **own,
        )
    if as_json:
        print_json(report.to_dict())
    else:
        _print(report)
    if folder is not None:
        from agewise import figures  # noqa: PLC0415  (matplotlib takes half a second to import)

        (folder / "audit.json").write_text(report.to_json() + "\n", encoding="utf-8")
        wrote([folder / "audit.json", *figures.save(report.plot(), folder, "audit")])
    if report.refuted:
        raise typer.Exit(REFUTED)


def _client(scenario: str, name: str | None) -> Client:
    clients = load_scenario(scenario).clients
    if name is None:
        return clients[0]
    for one in clients:
        if one.name == name:
            return one
    names = ", ".join(one.name for one in clients[:10])
    raise InvalidInput("--client", repr(name), f"one of {names}")


def _print(report: Audit) -> None:
    screen = console()
    headings, rows = report.table()
    words = ("subject", "claim", "tier", "verdict")
    columns = [Column(one, words=one in words, spare=one == "draws") for one in headings]
    print_table(
        screen, escape(report.subject), columns, [[escape(c) for c in r] for r in rows[:SHOWN]]
    )
    if len(rows) > SHOWN:
        people.print(f"{len(rows) - SHOWN} more rows; --json lists them all.")
    print_facts(screen, [(name, escape(text)) for name, text in report.facts()])
