"""What is to be planned, as it may be given: a problem, or where one is to be found."""

from __future__ import annotations

from pathlib import Path

from agewise.loss.size import refuse_large
from agewise.problem import Problem, as_problem


def problem_of(given: Problem | str | Path) -> Problem:
    """Return a problem, or that of the scenario of this name or in this file."""
    if isinstance(given, str | Path):
        from agewise.scenario import load_scenario  # noqa: PLC0415  (pydantic is slow to import)

        given = load_scenario(given)
    refuse_large(as_problem(given))
    return given
