"""ledger show, verify and export."""

from __future__ import annotations

import csv
import io
import math
import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from agewise.cli.console import JsonOption, console, print_json
from agewise.cli.layout import Column, print_table
from agewise.errors import InvalidInput
from agewise.privacy.account import Event
from agewise.privacy.accounts import read_ledger
from agewise.privacy.standing import Standing
from agewise.report.tables import counted

commands = typer.Typer(
    help="Look into a client's ledger: what was released, and what it adds up to.",
    no_args_is_help=True,
)
LedgerArgument = Annotated[Path, typer.Argument(help="The ledger file of a client, or of many.")]
ClientOption = Annotated[
    str | None, typer.Option("--client", help="Of a ledger of many: this client's account only.")
]


def _events(path: Path, client: str | None) -> list[Event]:
    """The events of a ledger, checked: all, or those of one client."""
    with read_ledger(path) as ledger:
        if client is None:
            return ledger.events()
        events = [event for event in ledger.events() if event.client == client]
    if not events:
        raise InvalidInput("--client", repr(client), f"a client that {path} holds an account of")
    return events


@commands.command(epilog="Example: agewise ledger show north.ledger --json")
def show(path: LedgerArgument, client: ClientOption = None, as_json: JsonOption = False) -> None:
    """List the events of a ledger, checked on the way. Never changes it."""
    events = _events(path, client)
    if as_json:
        print_json([_facts(event) for event in events])
        return
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
    """Check the file and its hash chain. Damage is reported, never repaired."""
    with read_ledger(path) as ledger:
        count = ledger.verify()
    typer.echo(f"{path}: {counted(count, 'event')}, unchanged since written.")


@commands.command(epilog="Example: agewise ledger export north.ledger --csv > events.csv")
def export(
    path: LedgerArgument,
    client: ClientOption = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV instead of JSON.")] = False,
) -> None:
    """Print all events for other programs, payloads in hexadecimal."""
    rows = [{**_facts(event), "payload": event.payload.hex()} for event in _events(path, client)]
    if not as_csv:
        print_json(rows)
        return
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
