"""Choices of all rows near one λ, and rows that change nearby so that Σ b comes closest to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.scheduling.crossing import Columns, Meeting
from agewise.scheduling.few_rows import Rows, Split, split
from agewise.scheduling.moves import best_moves

Which = NDArray[np.intp]

MOST, ROUNDS = 1024, 50
"""Rows of which clients are moved one or two at a time, and how often."""

WIDER = 24
"""How often a bracket is made eight times as wide."""


@dataclass(eq=False)
class Choices:
    """Choices of all rows at one λ, or near it: columns, Σ u and Σ b."""

    at: float
    columns: Columns
    cost: float
    bias: float
    shared: tuple[Which, Split] | None = None
    """Rows whose clients do not all choose the same."""

    @property
    def value(self) -> float:
        """L(λ), if all are the best choices at λ."""
        return self.cost + 2 * self.at * self.bias - self.at**2

    @property
    def objective(self) -> float:
        return self.cost + self.bias**2

    def changed(self, which: Which, rows: Rows, chosen: Columns, at: float) -> Choices:
        """At another λ, where all choose the same but some of the rows."""
        other = np.flatnonzero(chosen != self.columns[which])
        columns = self.columns.copy()
        u, b = rows.of(other, columns[which[other]])
        new_u, new_b = rows.of(other, chosen[other])
        columns[which[other]] = chosen[other]
        cost = self.cost + float(((new_u - u) * rows.weight[other]).sum())
        bias = self.bias + float(((new_b - b) * rows.weight[other]).sum())
        return Choices(at, columns, cost, bias)

    def after(self, which: Which, met: Meeting, change: int) -> Choices:
        """Where some rows choose as before the first of all changes: with those up to one made."""
        columns = self.columns.copy()
        columns[which] = met.before(change)
        cost = self.cost + float(met.changes.price[:change].sum())
        return Choices(self.at, columns, cost, self.bias + float(met.changes.step[:change].sum()))


def objective_of(one: Choices) -> float:
    """To compare by."""
    return one.objective


def other_meeting(base: Choices, which: Which, rows: Rows) -> Meeting | None:
    """Where else some rows should choose, for Σ b of all to be this λ; None if there is no such."""
    chosen, excess = base.columns[which], base.bias - base.at
    own, width = rows.bias(chosen), min(abs(excess), 1e-3 * abs(base.at) + 1e-12)
    least, most = rows.range()
    if not least <= own - excess <= most:
        return None
    near = base.at, chosen, excess
    for _ in range(WIDER if excess else 0):
        at = near[0] + math.copysign(width, excess)
        there = rows.choose(at)
        far = at, there, excess + rows.bias(there) - own
        if far[2] == 0.0 or (far[2] > 0) != (excess > 0):
            low, high = sorted((near, far), key=lambda one: one[0])
            return rows.meeting(low, high, slope=0.0)
        near, width = far, 8 * width
    return None


def settled(base: Choices, which: Which, rows: Rows, met: Meeting, around: int) -> Choices:
    """Let rows that change near the meeting take either side, for Σ b of all to be closest to λ."""
    low, high = met.window(around)
    near = met.rows(low, high)
    here = base.changed(which, rows, met.columns, base.at).after(which, met, low)
    both = here.columns[which[near]], met.before(high)[near]
    values, weight = [rows.of(near, one) for one in both], rows.weight[near]
    (u, b), _ = values
    spent, own = float((u * weight).sum()), float((b * weight).sum())
    rest = here.bias - own
    found = _refined(split(both, values, weight, base.at - rest), values, base.at, rest)
    here.columns[which[near]] = found.columns
    cost, bias = here.cost - spent + found.cost, rest + found.bias
    return replace(here, cost=cost, bias=bias, shared=(which[near], found))


def _refined(found: Split, values: Sequence[tuple[Array, Array]], at: float, rest: float) -> Split:
    """Move or take back one client or two at a time, as long as that brings more."""
    (u, b), (other_u, other_b) = values
    row = np.arange(len(u))
    if len(row) > MOST:  # those that tie are many: some of them do
        row = row[:: -(-len(row) // MOST)]
    step = (other_b - b)[row]
    price = (other_u - u)[row] + 2 * at * step
    price, step = np.append(price, -price), np.append(step, -step)
    stay, moved, off = found.stay.copy(), found.moved.copy(), rest + found.bias - at
    for _ in range(ROUNDS if len(row) else 0):
        can = np.append(stay[row] > 0, moved[row] > 0)
        moves, gain = best_moves(np.where(can, price, np.inf), step, np.tile(row, 2), off)
        if not gain < 0:
            break
        off += float(step[moves].sum())
        for move in moves:
            by = 1 if move < len(row) else -1
            stay[row[move % len(row)]] -= by
            moved[row[move % len(row)]] += by
    cost = float((u * stay + np.where(moved > 0, other_u, 0.0) * moved).sum())
    bias = float((b * stay + other_b * moved).sum())
    return replace(found, stay=stay, moved=moved, cost=cost, bias=bias)


def changes_near(met: Meeting) -> tuple[Which, Columns]:
    """Rows and columns, to take back or make changes near the meeting."""
    near = slice(max(0, met.place - MOST // 2), met.place + MOST // 2)
    changes = met.changes
    return np.tile(changes.row[near], 2), np.append(changes.first[near], changes.last[near])


def closed(base: Choices, which: Which, rows: Rows, row: Which, column: Columns) -> Choices:
    """Move one or two rows at a time to such columns, as long as that brings more."""
    columns = base.columns[which]
    new_u, new_b = rows.of(row, column)
    off = base.bias - base.at
    for _ in range(ROUNDS if row.size else 0):
        u, b = rows.of(row, columns[row])
        price = new_u - u + 2 * base.at * (new_b - b)
        moves, gain = best_moves(price, new_b - b, row, off)
        if not gain < 0:
            break
        columns[row[moves]] = column[moves]
        off += float((new_b - b)[moves].sum())
    return base.changed(which, rows, columns, base.at)
