"""What else schedules are judged by: the paper's bound, and simulation.

The paper stands above plans. It is asked here and nowhere else below it, once somebody wants it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agewise.checks import MOST_BYTES
from agewise.problem import Problem
from agewise.progress import Progress
from agewise.scheduling import Certificate, Schedule

if TYPE_CHECKING:
    from agewise.paper.bound import Bound

BOUND_CLIENTS = 64
"""Clients beyond which a plan does not evaluate Theorem 1 unless it is the objective."""


def best_by_objective(
    problem: Problem,
    trials: int = 20_000,
    rng: np.random.Generator | None = None,
    progress: Progress | None = None,
) -> tuple[Schedule, Certificate | None]:
    """Return the best of all schedules by an objective other than `exact`, and what shows it.

    Nothing shows it of the objective `simulated`, which is only estimated, by `trials`.
    """
    if problem.objective == "bound":
        return best_by_bound(problem, progress)
    from agewise.paper.simulation import exhaustive_simulated  # noqa: PLC0415  (above plans)

    return exhaustive_simulated(problem, trials, rng, progress), None


def best_by_bound(
    problem: Problem, progress: Progress | None = None
) -> tuple[Schedule, Certificate]:
    """Return the best of all schedules by Theorem 1, and that all were tried."""
    from agewise.paper.bound import exhaustive_bound  # noqa: PLC0415  (above plans)

    schedule = exhaustive_bound(problem, progress)
    best, count = schedule.objective, schedule.iterations
    return schedule, Certificate(best, best, 0.0, count, True, f"all {count} schedules tried")


def bound_of(problem: Problem, ages: list[int]) -> Bound | None:
    """Return Theorem 1's bound on the loss gap of a schedule, where that is quick to evaluate."""
    from agewise.paper.bound import bound_bytes, has_bound, loss_bound  # noqa: PLC0415

    few = len(ages) <= BOUND_CLIENTS and has_bound(problem)
    if problem.objective == "bound" or (few and bound_bytes(problem) <= MOST_BYTES):
        return loss_bound(problem, ages)
    return None
