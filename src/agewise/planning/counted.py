"""Plans of very many clients: those that are alike are counted, and searched for as one row.

The bound that multipliers show adds up what each client adds at least, so clients that are alike
add so many times the same, wherever they are. In the search each row is several pieces, the last
of which are a few clients and one, so that almost any number of them can be in a column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.errors import AgewiseError
from agewise.knowledge.estimate import GainTables
from agewise.knowledge.one_draw import collapsed
from agewise.loss.tables import Rows, shared_costs, shared_tables
from agewise.planning.proof import draws_once
from agewise.problem import Problem
from agewise.progress import Progress
from agewise.scheduling import (
    Certificate,
    Draw,
    Halved,
    Schedule,
    Split,
    check_gains,
    check_schedule,
    solve_schedule,
)
from agewise.scheduling.costs import Costs
from agewise.scheduling.gains import Gains
from agewise.scheduling.schedule import Proof
from agewise.scheduling.search import search

PIECES = 800
"""Pieces that rows are searched in, about, where there are fewer rows."""

FEWER = 300
"""The same where the search also goes over scales of a draw of noise, and asks more often."""


@dataclass(frozen=True)
class Counted:
    """The tables of a problem by row, and what rows need where the server adds noise once."""

    rows: Rows
    tables: GainTables | tuple[Array, Array]  #: of best estimates, or u and b
    draw: Draw | None

    def of(self, rows: NDArray[np.intp], count: NDArray[np.int64]) -> Costs | Gains:
        """What a search asks of so many clients of each of these rows."""
        draw = None if self.draw is None else Draw(self.draw.scales[rows], self.draw.power)
        if isinstance(self.tables, GainTables):
            tables = self.tables
            taken = (tables.base, tables.cross, tables.power, tables.common, tables.heard)
            return Gains(GainTables(*(one[rows] for one in taken)).times(count), draw)
        u, b = self.tables
        return Costs(u[rows] * count[:, None], b[rows] * count[:, None, None], draw)


def counted_tables(problem: Problem) -> Counted | None:
    """The tables of a problem by row; None where each client has a row of its own."""
    if problem.uses_knowledge:
        known = shared_tables(problem)
        if known.rows.own:
            return None
        once = draws_once(problem, known.slots, {}, known.rows.first)
        return Counted(known.rows, known.gains if once is None else collapsed(known.gains), once)
    costs = shared_costs(problem)
    if costs.rows.own:
        return None
    once = draws_once(problem, costs.slots, {}, costs.rows.first)
    bias = costs.b if costs.b.ndim == 3 else costs.b[:, :, None]
    return Counted(costs.rows, (costs.u, bias), once)


def search_counted(
    counted: Counted, *, keep_best: bool = False, progress: Progress | None = None
) -> tuple[Schedule, Certificate]:
    """Find columns for all clients, and check what is proven about them."""
    tables, count = counted.tables, counted.rows.count
    if isinstance(tables, tuple) and tables[1].shape[2] == 1 and counted.draw is None:
        u, b = tables
        found = solve_schedule(u, b, counts=count, keep_best=keep_best, progress=progress)
        shares = np.zeros_like(u, dtype=np.int64) if found.allocation is None else found.allocation
        row, column = np.nonzero(shares)
        many = shares[row, column]
    else:
        row, many = _pieces(count, PIECES if counted.draw is None else FEWER)
        oracle = counted.of(row, many)
        found = search(oracle, divide=False, keep_best=keep_best, progress=progress)
        column = found.columns
    columns = np.empty(len(counted.rows.row), dtype=np.intp)
    order = np.lexsort((column, row))  # the first names take the oldest data
    columns[np.argsort(counted.rows.row, kind="stable")] = np.repeat(column[order], many[order])
    checked = check_counted(counted, columns, found.proof, found.lower_bound)
    if not checked.holds:
        raise AgewiseError(f"the search made a schedule that its check refuses: {checked.reason}")
    found = replace(found, columns=columns, objective=checked.objective, allocation=None)
    return replace(found, gains=None), checked


def check_counted(
    counted: Counted, columns: NDArray[np.intp], proof: Proof | None, claimed: float | None
) -> Certificate:
    """What the independent check says of clients in these columns, one per client.

    Clients of a row that take the same column have the same gain.
    """
    row, column, count = counted.rows.used(columns)
    oracle = counted.of(row, count)
    settled = oracle.settle(column)
    schedule = Schedule(column, settled.objective, claimed, 0, proof=proof, gains=settled.gains)
    if isinstance(oracle, Gains):
        return check_gains(schedule, oracle.tables, None, oracle.draw)
    return check_schedule(schedule, oracle.u, oracle.b, draw=oracle.draw)


def is_about_counts(proof: Proof) -> bool:
    """Whether a proof holds however clients that are alike are spread: it cuts no client's row."""
    stack: list[Proof] = [proof]
    while stack:
        part = stack.pop()
        if isinstance(part, Split):
            return False
        if isinstance(part, Halved):
            stack += [part.below, part.above]
    return True


def _pieces(count: NDArray[np.int64], pieces: int) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Rows, and how many clients each piece of them has: equal numbers, the last one halved."""
    rows, many = [], []
    for row, clients in enumerate(count.tolist()):
        each = -(-clients // max(1, pieces // len(count)))
        equal = (clients - 1) // each
        parts, left = [each] * equal, clients - each * equal
        while left > 1:
            parts.append(-(-left // 2))
            left //= 2
        many += [*parts, left]
        rows += [row] * (len(parts) + 1)
    return np.array(rows, dtype=np.intp), np.array(many)
