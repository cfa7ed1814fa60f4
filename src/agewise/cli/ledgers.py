"""ledger show, verify, export, restore and forget."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from agewise.cli.console import JsonOption, console, print_json
from agewise.cli.layout import Column, print_table
from agewise.errors import InvalidInput
from agewise.federation.restoring import restore_ledger
from agewise.privacy.account import Event
from agewise.privacy.accounts import read_ledger
from agewise.privacy.standing import Standing
from agewise.privacy.witness import LedgerRolledBack, Witness
from agewise.report.tables import counted
from agewise.wording import listed

commands = typer.Typer(
    help="Look into a client's ledger: what was released, and what it adds up to.",
    no_args_is_help=True,
)
LedgerArgument = Annotated[Path, typer.Argument(help="The ledger file of a client, or of many.")]
ClientOption = Annotated[
    str | None, typer.Option("--client", help="Of a ledger of many: this client's account only.")
]


@contextmanager
def _events(path: Path, client: str | None) -> Iterator[list[Event]]:
    """The events of a ledger, checked: all, or those of one client.

    An old copy is refused too, but only when its events have been shown: others are missing.
    """
    with read_ledger(path) as ledger:
        events = ledger.events()
        if client is not None:
            events = [event for event in events if event.client == client]
            if not events:
                allowed = f"a client that {path} holds an account of"
                raise InvalidInput("--client", repr(client), allowed)
        yield events
        ledger.refuse_forgotten()


@commands.command(epilog="Example: agewise ledger show north.ledger --json")
def show(path: LedgerArgument, client: ClientOption = None, as_json: JsonOption = False) -> None:
    """List the events of a ledger, checked on the way. Never changes it.

    Of an old copy, too; its exit code is 6 then, and 7 where two copies were written to.
    """
    with _events(path, client) as events:
        if as_json:
            print_json([_facts(event) for event in events])
        else:
            _print_events(path, events)


def _print_events(path: Path, events: list[Event]) -> None:
    columns = [
        Column("#"),
        Column("client", words=True),
        Column("for", words=True),
        Column("collected"),
        Column("aggregated"),
        Column("classical ε"),
        Column("noise scale"),
        Column("noise by", words=True, spare=True),
        Column("made at", spare=True),
    ]
    rows = [
        (
            str(event.number),
            escape(event.client),
            escape(event.key),
            str(event.collect_at),
            str(event.aggregate_at),
            f"{event.classical_epsilon:.4g}" if event.private else "stand-in",
            f"{event.scale:.4g}",
            event.noise,
            event.made_at,
        )
        for event in events
    ]
    screen = console()
    print_table(screen, escape(str(path)), columns, rows)
    each: dict[str, list[float]] = {}
    for event in events:
        each.setdefault(event.client, []).append(event.classical_epsilon if event.private else 0.0)
    largest = max((math.fsum(spent) for spent in each.values()), default=0.0)
    of_many = f", of the client with the most ({counted(len(each), 'client')})"
    screen.print(
        f"classical ε in all: {largest:.6g}{of_many if len(each) > 1 else ''}", highlight=False
    )
    if len(each) == 1:
        _print_account(screen, events)
    screen.print(
        "Slots are the client's own time; noise scales are in the unit of its records.",
        highlight=False,
    )


def _print_account(screen: Console, events: list[Event]) -> None:
    """What the account that the last event carries says, if it carries one."""
    standing = Standing.read(events[-1].account) if events else None
    if standing is None or standing.collect_at is None:
        return
    told = max(max(row) for row in standing.losses) + standing.outside
    screen.print(
        f"about the value in slot {standing.collect_at}, by all so far: ε {told:.6g} "
        f"({standing.method}, process {standing.fingerprint})",
        highlight=False,
    )


@commands.command(epilog="Example: agewise ledger verify north.ledger")
def verify(path: LedgerArgument) -> None:
    """Check the file, its hash chain and the accounts in it. Damage is reported, never repaired."""
    with read_ledger(path) as ledger:
        count, unknown = ledger.verify(), sorted(ledger.unknown)
        ledger.refuse_forgotten()
    if unknown:
        typer.echo(
            f"Not made anew: accounts that rest on process {listed(unknown, 3)}, "
            "which this older ledger does not hold. agewise check RUN makes them anew.",
            err=True,
        )
    typer.echo(f"{path}: {counted(count, 'event')}, unchanged since written.")


@commands.command(epilog="Example: agewise ledger restore north.ledger runs/monday runs/tuesday")
def restore(
    path: LedgerArgument,
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, of one or many rounds.")],
    client: Annotated[
        str | None, typer.Option(help="Whose ledger it is, if it is empty and not named so.")
    ] = None,
    starts_at: Annotated[
        int, typer.Option(help="Slots that the client's node on Flower adds to those of a run.")
    ] = 0,
) -> None:
    """Play in again what an old copy of a ledger has forgotten, as far as the runs prove it.

    Exit code 6: releases are still missing, and the ledger is not believed.
    """
    found = restore_ledger(path, runs, starts_at, client)
    typer.echo(f"{path}: {counted(found.added, 'release')} played in again.")
    missing = max(found.unproven, found.forgotten)
    if missing > 0:
        typer.echo(
            f"Still missing: {counted(missing, 'release')} that these runs do not prove. Name the "
            f"other runs too, or count them as spent; then: agewise ledger forget {path}",
            err=True,
        )
        raise typer.Exit(LedgerRolledBack.exit_code)


@commands.command(epilog="Example: agewise ledger forget /var/lib/agewise/north.ledger")
def forget(path: Annotated[Path, typer.Argument(help="Where the ledger lies, or lay.")]) -> None:
    """Forget what this machine remembers of a ledger that was deleted, replaced or set back.

    What it held that is lost now was released all the same: count it as spent.
    """
    if not Witness().forget(path.resolve()):
        raise InvalidInput("ledger", str(path), "one that this machine remembers here")
    typer.echo(f"{path} is forgotten. What lies there next is remembered when it is first used.")


@commands.command(epilog="Example: agewise ledger export north.ledger --csv > events.csv")
def export(
    path: LedgerArgument,
    client: ClientOption = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV instead of JSON.")] = False,
) -> None:
    """Print all events for other programs, payloads in hexadecimal.

    Of an old copy, too; its exit code is 6 then, and 7 where two copies were written to.
    """
    with _events(path, client) as events:
        rows = [{**_facts(event), "payload": event.payload.hex()} for event in events]
        if as_csv:
            _print_csv(rows)
        else:
            print_json(rows)


def _print_csv(rows: list[dict[str, Any]]) -> None:
    names = [field.name for field in fields(Event)]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # data for programs, as in files
    writer = csv.DictWriter(sys.stdout, fieldnames=names)
    writer.writeheader()
    writer.writerows(rows)


def _facts(event: Event) -> dict[str, Any]:
    facts = event.facts()
    if not event.private:
        facts["classical_epsilon"] = None  # a seed can be replayed: nothing is claimed for it
    return facts
