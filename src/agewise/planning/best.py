"""Plans for the best linear estimate: their tables, and the search for them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.errors import AgewiseError
from agewise.knowledge.estimate import GainTables
from agewise.knowledge.one_draw import collapsed
from agewise.loss.tables import known_tables
from agewise.problem import Problem
from agewise.progress import Progress
from agewise.scheduling import (
    Certificate,
    Draw,
    Schedule,
    check_gains,
    solve_gains,
    try_all_gains,
)


def open_tables(
    problem: Problem,
    slots: Sequence[int],
    first: int | None,
    collected: Collection[str],
    unheard: Collection[str] = (),
) -> GainTables:
    """The tables as a plan made in slot `first` had them: slots that were past are forbidden.

    Clients that had `collected` by then are held in their slot of `slots`. Those that are lost
    have no row, and take nobody's place in a slot: what they add is part of the first row.
    """
    tables, places = known_tables(problem).gains, np.asarray(slots) - 1
    heard = heard_rows(problem, unheard)
    names, lost = [problem.clients[i].name for i in heard], np.setdiff1d(range(len(places)), heard)
    base, common = tables.base[heard], tables.common[heard]
    base[0] += tables.base[lost, places[lost]].sum()
    common[0] += tables.common[lost].sum(axis=0)
    if first is not None:
        columns = np.arange(tables.slots)
        held = np.array([name in collected for name in names])[:, None]
        past = np.where(held, columns != places[heard][:, None], columns < first - 1)
        base = np.where(past, np.inf, base)
    return GainTables(base, tables.cross[heard], tables.power[heard], common, tables.heard[heard])


def heard_rows(problem: Problem, unheard: Collection[str]) -> NDArray[np.intp]:
    """The places of the clients that are heard."""
    return np.flatnonzero([client.name not in unheard for client in problem.clients])


def search_best(
    tables: GainTables,
    capacity: int | None,
    once: Draw | None = None,
    *,
    every: bool = False,
    start: Array | None = None,
    progress: Progress | None = None,
) -> tuple[Schedule, Certificate]:
    """Find a schedule with gains, by trying every one or by the certified search; check it.

    `once` is what clients need where noise is drawn once: each has one gain for all coordinates.
    """
    single = tables if once is None else collapsed(tables)
    if every:
        found = try_all_gains(single, capacity, once)
    else:
        found = solve_gains(single, capacity, draw=once, start=start, progress=progress)
    checked = check_best(found, tables, capacity, once)
    if not checked.holds and math.isfinite(checked.lower_bound):  # rounding: claim what is shown
        found = replace(found, lower_bound=min(checked.lower_bound, found.objective))
        checked = check_best(found, tables, capacity, once)
    if not checked.holds:
        raise AgewiseError(f"the search made a schedule that its check refuses: {checked.reason}")
    return found, checked


def check_best(
    found: Schedule, tables: GainTables, capacity: int | None, once: Draw | None
) -> Certificate:
    """What the independent check of a schedule with gains says."""
    return check_gains(found, tables if once is None else collapsed(tables), capacity, once)
