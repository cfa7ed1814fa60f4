"""Plans for the best linear estimate: their tables, and the search for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from agewise.arrays import Array
from agewise.errors import AgewiseError
from agewise.knowledge.estimate import GainTables
from agewise.loss.estimator import heard_tables
from agewise.loss.gap import known_tables
from agewise.problem import Problem
from agewise.progress import Progress
from agewise.scheduling import Certificate, Schedule, check_gains, solve_gains, try_all_gains


def open_tables(
    problem: Problem,
    slots: Sequence[int],
    first: int | None,
    collected: Collection[str],
    unheard: Collection[str] = (),
) -> GainTables:
    """The tables as a plan made in slot `first` had them: slots that were past are forbidden.

    Clients that had `collected` by then, or that are lost, are held in their slot of `slots`.
    """
    tables = heard_tables(problem, known_tables(problem), unheard)
    if first is None:
        return tables
    columns = np.arange(tables.slots)
    fixed = {*collected, *unheard}
    held = np.array([client.name in fixed for client in problem.clients])
    past = np.where(held[:, None], columns != np.asarray(slots)[:, None] - 1, columns < first - 1)
    return replace(tables, base=np.where(past, np.inf, tables.base))


def search_best(
    tables: GainTables,
    capacity: int | None,
    *,
    every: bool = False,
    start: Array | None = None,
    progress: Progress | None = None,
) -> tuple[Schedule, Certificate]:
    """Find a schedule with gains, by trying every one or by the certified search; check it."""
    if every:
        found = try_all_gains(tables, capacity)
    else:
        found = solve_gains(tables, capacity, start=start, progress=progress)
    checked = check_gains(found, tables, capacity)
    if not checked.holds:
        raise AgewiseError(f"the search made a schedule that its check refuses: {checked.reason}")
    return found, checked
