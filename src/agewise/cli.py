"""The command line: progress on stderr, tables for people, --json for programs."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from agewise import __version__, scenarios
from agewise.errors import AgewiseError, InvalidInput
from agewise.mixing import METHODS
from agewise.noise import slot_table
from agewise.problem import Problem

app = typer.Typer(
    name="agewise",
    help="When each client of a federation collects its data, and how much noise it adds.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 done, 2 bad input, 3 a privacy budget would be overspent, "
    "4 a run that did not complete.",
)
people = Console(stderr=True)

ScenarioArgument = Annotated[str, typer.Argument(help="A built-in scenario.", show_default=True)]
EpsilonOption = Annotated[float | None, typer.Option(help="Privacy target ε of every client.")]
MixingOption = Annotated[str | None, typer.Option(help="How Δ is taken: " + ", ".join(METHODS))]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
OutOption = Annotated[Path | None, typer.Option(help="Folder for figures and their CSV files.")]


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


@app.command(epilog="Example: agewise ages london --epsilon 0.3 --mixing any_prior --out out")
def ages(
    scenario: ScenarioArgument = "london",
    epsilon: EpsilonOption = None,
    mixing: MixingOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Show what ageing buys: Δ, the classical ε and the noise scale of each client at each age."""
    problem = _problem(scenario, epsilon=epsilon, mixing=mixing)
    rows = []
    for client in problem.clients:
        table = slot_table(client, problem)
        rows += [
            {
                "client": client.name,
                "age": int(age),
                "delta": table.delta[slot],
                "classical_epsilon": table.classical_epsilon[slot],
                "sensitivity": table.sensitivity[slot],
                "noise_scale": table.scale[slot],
            }
            for slot, age in reversed(list(enumerate(table.ages)))
        ]
    if as_json:
        print_json(rows)
    else:
        _print_ages(problem, rows)
    if out is not None:
        _draw_ages(problem, rows, out)


def _print_ages(problem: Problem, rows: list[dict[str, Any]]) -> None:
    shown = Table(
        title=f"{problem.name}: noise for an aged ε of {problem.epsilon:g}, "
        f"mixing {problem.mixing}, estimator {problem.estimator}",
        title_justify="left",
    )
    for heading in ("client", "age", "Δ", "classical ε", "noise scale"):
        shown.add_column(heading, justify="left" if heading == "client" else "right")
    for index, row in enumerate(rows):
        shown.add_row(
            row["client"] if row["age"] == 0 else "",
            str(row["age"]),
            f"{row['delta']:.3f}",
            f"{row['classical_epsilon']:.4f}",
            f"{row['noise_scale']:.3f}",
            end_section=index + 1 == len(rows) or rows[index + 1]["age"] == 0,
        )
    Console().print(shown)


def _draw_ages(problem: Problem, rows: list[dict[str, Any]], out: Path) -> None:
    from agewise import figures  # noqa: PLC0415  (matplotlib takes half a second to import)

    folder = figures.prepare_folder(out)
    curves: dict[str, list[tuple[Any, Any]]] = {}
    for method in METHODS:
        try:
            tables = [
                slot_table(c, problem.replace(mixing=method, calibration="formula"))
                for c in problem.clients
            ]
        except InvalidInput:  # a method that this process does not admit has no curve
            continue
        curves[method] = [(t.delta[::-1], t.scale[::-1]) for t in tables]
    names = [c.name for c in problem.clients]
    figure = figures.ageing_figure(names, curves, problem.epsilon, "")
    paths = [*figures.save(figure, folder, "ages"), figures.save_csv(rows, folder, "ages")]
    people.print("Wrote " + ", ".join(str(p) for p in paths), soft_wrap=True)


def _problem(scenario: str, **changes: Any) -> Problem:
    if scenario != "london":
        raise InvalidInput("scenario", repr(scenario), "london")
    problem = scenarios.london()
    given = {name: value for name, value in changes.items() if value is not None}
    return problem.replace(**given)


def print_json(document: Any) -> None:
    """Print strict JSON: numbers that JSON has no word for become null."""
    typer.echo(json.dumps(_strict(document), indent=2, allow_nan=False))


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def main() -> None:
    """Run the command line; anything wrong with the input ends in one message and a code."""
    try:
        app()
    except AgewiseError as error:
        people.print(f"[bold red]Error:[/] {error}", soft_wrap=True, highlight=False)
        sys.exit(error.exit_code)
