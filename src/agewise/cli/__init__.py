"""The command line: progress on stderr, tables for people, --json for programs."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer
from rich.markup import escape

from agewise import __version__
from agewise.cli import streams
from agewise.cli.lazily import Lazily
from agewise.errors import AgewiseError

app = typer.Typer(
    name="agewise",
    cls=Lazily,
    help="When each client of a federation collects its data, and how much noise it adds.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 done, 2 bad input, 3 a privacy budget would be overspent, "
    "4 a run did not complete or a federation is not up, 5 what is claimed does not hold "
    "(check, audit), 6 a ledger is an old copy, 7 a ledger and a copy of it are both in use, "
    "8 a ledger is gone or another one lies in its place, 130 interrupted, "
    "141 nobody reads the output any more.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"agewise {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; anything wrong with the input ends in one message and a code."""
    streams.prepare()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # asked to end is interrupted
    try:
        app()
    except AgewiseError as error:
        _fail(str(error), error.exit_code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}. Give a place that can be written to.", 2)
    except KeyboardInterrupt:  # before or after what Typer watches over
        sys.exit(130)
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()


def _fail(message: str, code: int) -> None:
    from agewise.cli.console import people  # noqa: PLC0415  (slow to import)

    people.print(f"[bold red]Error:[/] {escape(message)}", soft_wrap=True, highlight=False)
    sys.exit(code)
