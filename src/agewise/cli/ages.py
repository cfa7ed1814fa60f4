"""ages: what ageing buys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from rich.markup import escape

from agewise.calibration import slot_table
from agewise.cli.console import (
    CalibrationOption,
    EpsilonOption,
    EstimatorOption,
    JsonOption,
    MixingOption,
    OutOption,
    ScenarioArgument,
    console,
    output_folder,
    print_assumptions,
    print_json,
    read_problem,
    scale_in,
    wrote,
)
from agewise.cli.layout import Column, print_table
from agewise.errors import InvalidInput
from agewise.mixing import METHODS
from agewise.problem import Problem

commands = typer.Typer()


@commands.command(epilog="Example: agewise ages london --epsilon 0.3 --mixing any_prior --out out")
def ages(
    scenario: ScenarioArgument = "london",
    epsilon: EpsilonOption = None,
    mixing: MixingOption = None,
    estimator: EstimatorOption = None,
    calibration: CalibrationOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Show what ageing buys: Δ, the classical ε and the noise scale of each client at each age."""
    problem = read_problem(
        scenario, epsilon=epsilon, mixing=mixing, estimator=estimator, calibration=calibration
    )
    folder = output_folder(out)
    rows = []
    for client in problem.clients:
        table = slot_table(client, problem)
        rows += [
            {
                "client": client.name,
                "age": int(age),
                "delta": float(table.delta[slot]),
                "classical_epsilon": float(table.classical_epsilon[slot]),
                "sensitivity": float(table.sensitivity[slot]),
                "noise_scale": float(table.scale[slot]),
            }
            for slot, age in reversed(list(enumerate(table.ages)))
        ]
    if as_json:
        print_json(rows)
    else:
        _print_ages(problem, rows)
    if folder is not None:
        _draw_ages(problem, rows, folder)


def _print_ages(problem: Problem, rows: list[dict[str, Any]]) -> None:
    cells = [
        (
            escape(row["client"]) if row["age"] == 0 else "",
            str(row["age"]),
            f"{row['delta']:.4g}",
            f"{row['classical_epsilon']:.4g}",
            f"{row['noise_scale']:.4g}",
        )
        for row in rows
    ]
    screen = console()
    print_table(
        screen,
        f"{escape(problem.name)}: noise for an aged ε of {problem.epsilon:g}, "
        f"mixing {problem.mixing}, estimator {problem.estimator}",
        [
            Column("client", words=True),
            *map(Column, ("age", "Δ", "classical ε", scale_in(problem))),
        ],
        cells,
        [i for i in range(len(rows) - 1) if rows[i + 1]["age"] == 0],
    )
    print_assumptions(screen, problem)


def _draw_ages(problem: Problem, rows: list[dict[str, Any]], folder: Path) -> None:
    from agewise import figures  # noqa: PLC0415

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
    figure = figures.ageing_figure(names, curves, problem.epsilon, problem.unit)
    wrote([*figures.save(figure, folder, "ages"), figures.save_csv(rows, folder, "ages")])
