"""compare: choices side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.markup import escape

from agewise.cli.console import (
    JsonOption,
    LevelOption,
    ScenarioArgument,
    console,
    print_json,
    progress_bar,
    read_problem,
)
from agewise.cli.layout import Column, print_facts, print_table
from agewise.errors import InvalidInput
from agewise.learning import ESTIMATORS
from agewise.mixing import METHODS
from agewise.planning import Comparison, SearchMethod
from agewise.planning import compare as make_comparison

commands = typer.Typer()

Listed = Annotated[str | None, typer.Option(help="Values to try, separated by commas.")]


@commands.command(
    epilog="Example: agewise compare london --level 20,0.98 --estimator plain,best --epsilon 0.1,1"
)
def compare(
    scenario: ScenarioArgument = "london",
    estimator: Listed = None,
    calibration: Listed = None,
    epsilon: Listed = None,
    mixing: Listed = None,
    objective: Listed = None,
    noise: Listed = None,
    capacity: Listed = None,
    aggregate_at: Listed = None,
    level: LevelOption = None,
    method: Annotated[SearchMethod, typer.Option(help="How to search.")] = "certified",
    as_json: JsonOption = False,
) -> None:
    """Plan a scenario for every combination of choices and show what each one costs.

    Without any choice: every estimator with every mixing. Below them stand nothing collected, and
    fresh data with classical noise (each client's, or drawn once where the server is trusted) of
    which the server makes the best estimate. With --level the
    estimator is best unless others are listed. A combination that is not possible is
    listed with the reason. In JSON each row has its choices, ages, gap, mean_noise_scale,
    largest_classical_epsilon and reason.
    """
    # Records moved forward cannot share a level, and a scenario may say propagated.
    problem = read_problem(scenario, level=level, estimator="best" if level else None)
    words = {
        "estimator": estimator,
        "calibration": calibration,
        "mixing": mixing,
        "objective": objective,
        "noise": noise,
    }
    choices: dict[str, list[Any]] = {
        name: _listed(name, text, str) for name, text in words.items() if text is not None
    }
    if epsilon is not None:
        choices["epsilon"] = _listed("epsilon", epsilon, float)
    for name, text in (("capacity", capacity), ("aggregate_at", aggregate_at)):
        if text is not None:
            choices[name] = _listed(name, text, int)
    if not choices:
        choices = {"estimator": list(ESTIMATORS), "mixing": list(METHODS)}
    with progress_bar("planning") as advance:
        compared = make_comparison(problem, method=method, progress=advance, **choices)
    possible = any(row.plan is not None for row in compared)
    if as_json:
        print_json(compared.to_list())
    else:
        _print_comparison(compared)
    if not possible:
        raise InvalidInput(
            "choices", "not possible in any combination", "one that is", "See the reasons above."
        )


def _print_comparison(compared: Comparison) -> None:
    headings, rows = compared.table()
    wordy = {*compared[0].choices, "ages", "name"} - {"epsilon", "capacity", "aggregate_at"}
    columns = [Column(escape(one), one in wordy) for one in headings]
    screen = console()
    title = f"{escape(compared.problem.name)}: choices side by side"
    print_table(screen, title, columns, [[escape(cell) for cell in row] for row in rows])
    print_facts(screen, [(name, escape(why)) for name, why in compared.reasons()])


def _listed(name: str, text: str, kind: Callable[[str], Any]) -> list[Any]:
    """The values of an option, separated by commas."""
    values = []
    for one in text.split(","):
        try:
            values.append(kind(one.strip()))
        except ValueError:
            kinds = {float: "numbers", int: "whole numbers"}
            allowed = f"{kinds[kind]} separated by commas"  # type: ignore[index]
            option = "--" + name.replace("_", "-")
            raise InvalidInput(option, repr(text), allowed) from None
    return values
