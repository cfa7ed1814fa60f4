"""init and schema: scenario files to start from, and their keys for editors."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from agewise.cli.console import people
from agewise.errors import InvalidInput
from agewise.scenario import TEMPLATE, schema_text
from agewise.scenarios import BUILT_IN

SCHEMA_FILE = "scenario.schema.json"
"""What the first line of the template names."""

commands = typer.Typer()


@commands.command(epilog="Example: agewise init my_federation && agewise plan my_federation.toml")
def init(
    name: Annotated[str, typer.Argument(help="Name of the scenario; writes NAME.toml.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a commented scenario file to start from, and beside it the schema for editors."""
    path = Path(name if name.endswith(".toml") else f"{name}.toml")
    if not re.fullmatch(r"\w[\w. -]*", path.name) or path.stem in BUILT_IN:
        raise InvalidInput(
            "NAME", repr(name), "letters, digits, _ and -, and not the name of a built-in scenario"
        )
    if path.exists() and not force:
        raise InvalidInput("NAME", str(path), "a file that does not exist", "Or give --force.")
    text = TEMPLATE.replace("my_federation", path.stem)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(
            "NAME", str(path), "a file that can be written", f"{error.strerror}."
        ) from None
    schema_beside = path.with_name(SCHEMA_FILE)
    if not schema_beside.exists():
        with suppress(OSError):  # a help for editors, which the scenario does without
            schema_beside.write_text(schema_text(), encoding="utf-8")
    people.print(f"Wrote {path}. Next: agewise check {path}", soft_wrap=True, highlight=False)


@commands.command(epilog="Example: agewise schema > scenario.schema.json")
def schema() -> None:
    """Print the JSON schema of scenario files, by which editors complete and explain their keys."""
    typer.echo(schema_text(), nl=False)
