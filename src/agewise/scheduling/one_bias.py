"""The best λ for one bias: bisection over few rows; over many, the rows that change near it.

Σ b falls as λ rises, so λ = Σ b(λ) is bracketed; where it is met, rows that tie are split so that
Σ b comes closest to λ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.scheduling.crossing import meeting
from agewise.scheduling.few_rows import Rows
from agewise.scheduling.schedule import Schedule
from agewise.scheduling.tables import Tables, check_block, choose_all, members_of

SAMPLE = 20_000
"""Rows up to which all of them are looked at in every step."""

GUESS = 20_000
"""Rows that a first guess of λ is made from where there are more."""

LARGE = 1e-3
"""Relative gap that is worth starting again with rows that tie fixed, if they are few."""

FIXED = 3
"""How many."""

TRIES = 3
"""Passes after which a schedule may be good enough already."""

OVERSHOOT = (1.5, 4.0)
"""How far beyond where the best λ is expected one is looked at, to have it in between."""

SOME_TIES = 100
"""Rows that tie, up to which each side of them is tried with what others can make up for."""

FEW = 0.1
"""The part of all rows that may choose differently on both sides of the best λ."""

ENOUGH = 5e-7
"""Relative gap at which many clients count as done."""

PASSES = 8
"""Passes over many clients at most."""


def search_one_bias(
    tables: Tables, counts: NDArray[np.int64] | None, start: Array | None
) -> Schedule:
    """Return a schedule with its dual bound, for tables with one bias and no capacity."""
    if tables.clients > SAMPLE:
        return _scalar_of_many(tables, counts, start)
    rows = list(tables.blocks())
    u, b = np.concatenate([r[1] for r in rows]), np.concatenate([r[2] for r in rows])
    check_block(0, u, b)
    return Rows(u, b[:, :, 0], members_of(tables, counts)).solve(counts is not None)


def _scalar_of_many(
    tables: Tables,
    counts: NDArray[np.int64] | None,
    start: Array | None,
    *,
    fixed: bool = False,
) -> Schedule:
    """Two λ with the best one in between, by few passes; it from the rows that change between them.

    Σ b − λ falls at least as fast as λ rises, so at any λ it says how far the best one is at most.
    """
    weight = members_of(tables, counts)
    search = _Search(tables, weight)
    search.go(search.guess() if start is None else float(start[0]))
    for tried in range(
        TRIES
    ):  # most are near enough at once for the sample to make up for the rest
        if (made := search.mended(counts)) is not None:
            return made
        if tried < TRIES - 1:
            search.go(search.beyond(1.0))
    overshoot = iter(OVERSHOOT)
    while search.left is None or search.right is None:
        search.go(search.beyond(next(overshoot, None)))
    active = search.active()
    while len(active) > FEW * tables.clients and search.passes < PASSES - 1:
        search.go(search.within())
        before, active = len(active), search.active()
        if len(active) > before / 2:
            break  # rows that tie do not become fewer
    best = search.finish(active, counts)
    if (best.relative_gap or 0.0) > LARGE and not fixed and tables.in_memory and counts is None:
        for side in search.sides():  # one row leaves more than others make up for: fix it first
            rows = search.tied
            if 0 < len(rows) <= FIXED:
                u, columns = tables.u.copy(), side.columns[rows]
                u[rows] = np.inf
                u[rows, columns] = tables.u[rows, columns]
                found = _scalar_of_many(Tables(u, tables.b), counts, best.multipliers, fixed=True)
                if found.objective < best.objective:
                    best = replace(best, columns=found.columns, objective=found.objective)
    return best


class _Search:
    """λ on both sides of the best one, with all choices at each."""

    def __init__(self, tables: Tables, weight: Array) -> None:
        self.tables, self.weight, self.passes = tables, weight, 0
        self.left: _At | None = None
        self.right: _At | None = None
        self.last: _At | None = None
        self.proven: _At | None = None
        self.tied = np.empty(0, dtype=np.intp)
        """Rows that change at the best λ, where that leaves more than others make up for."""
        self.picked, self.some = _sample(tables, weight)
        share = self.some.weight.sum() / weight.sum()
        self.sample = Rows(self.some.u, self.some.b, self.some.weight / share)

    def go(self, at: float) -> None:
        """One pass over all rows."""
        columns, cost, bias, value = choose_all(
            self.tables, self.weight, np.array([at]), check=self.passes == 0
        )
        self.passes += 1
        here = self.last = _At(at, columns, cost, float(bias[0]), value)
        if self.proven is None or value > self.proven.value:
            self.proven = here
        if here.bias >= at:
            self.left = here
        if here.bias <= at:
            self.right = here

    def guess(self) -> float:
        """Where the sample's Σ b meets λ."""
        return self._met(0.0, 0.0)

    def beyond(self, factor: float | None) -> float:
        """On the other side of the best λ: most likely, and without a `factor` for sure."""
        known = self._known(self.last)
        excess = known.bias - known.at
        if factor is None:
            return known.bias
        own = self.sample.bias(self.sample.choose(known.at))
        step = self._met(known.at, known.bias - own) - known.at
        step = factor * step + math.copysign(1e-9 * abs(excess), excess)
        return known.at + float(np.clip(step, -abs(excess), abs(excess)))

    def within(self) -> float:
        """Between both sides, where the sample says, mended by what is known of both."""
        left, right = self.sides()
        errors = [one.bias - self.sample.bias(self.sample.choose(one.at)) for one in (left, right)]
        at = (left.at + right.at) / 2
        for _ in range(3):
            part = (at - left.at) / (right.at - left.at)
            at = self._met(left.at, errors[0] + part * (errors[1] - errors[0]))
            at = min(max(at, left.at), right.at)
        room = min(at - left.at, right.at - at)
        at += room if at - left.at < right.at - at else -room  # to have it near from both sides
        return at if left.at < at < right.at else (left.at + right.at) / 2

    def sides(self) -> tuple[_At, _At]:
        return self._known(self.left), self._known(self.right)

    def mended(self, counts: NDArray[np.int64] | None) -> Schedule | None:
        """The last choices, with the sample's at another λ: if that is good enough."""
        known, some = self._known(self.last), self.some
        off = (known.bias - known.at) ** 2
        if off > 1e-2 * abs(known.value):
            return None
        rest = known.bias - some.bias(known.columns[self.picked]) - known.at
        ends = (known.at, known.at)  # near enough as it is
        if off > 0.1 * ENOUGH * abs(known.cost + known.bias**2):
            ends = some.crossing(rest, 0.0, known.at, 64)
        made = self._proven(_make_up(self.picked, some, known, ends, counts))
        return made if (made.relative_gap or 0.0) <= ENOUGH else None

    def _proven(self, made: Schedule) -> Schedule:
        best = self._known(self.proven)
        bound, at = min(best.value, made.objective), np.array([best.at])
        return replace(made, lower_bound=bound, multipliers=at, iterations=self.passes)

    @staticmethod
    def _known(one: _At | None) -> _At:
        if one is None:
            raise ValueError("there was no such pass")
        return one

    def active(self) -> NDArray[np.intp]:
        """The rows that choose differently on both sides; if they are most of them, all."""
        left, right = self.sides()
        rows = np.flatnonzero(left.columns != right.columns)
        most = self.tables.in_memory and len(rows) > 0.5 * self.tables.clients
        return np.arange(self.tables.clients) if most else rows

    def finish(self, active: NDArray[np.intp], counts: NDArray[np.int64] | None) -> Schedule:
        """The best λ, from all changes between both sides; rows that change near it mend Σ b."""
        left, right = self.sides()
        rows = _rows_of(self.tables, active, self.weight)
        chosen = left.columns[active], right.columns[active]
        both = (left.at, right.at), chosen, (left.bias, right.bias)
        at, changes, place = meeting(rows.u, rows.b, rows.weight, *both)
        known = {left.at: left, right.at: right}.get(at)
        if known is None:
            self.go(at)
            known = self._known(self.last)
        tied = np.abs(changes.at - at) <= 1e-13 * abs(at)
        made = []
        for around in (0, 8, 64):
            near = tied.copy()
            near[max(0, place - around) : place + around] = True
            picked = np.unique(changes.row[near])
            some = Rows(rows.u[picked], rows.b[picked], rows.weight[picked])
            reach = changes.at[near]
            low, high = (reach.min(), reach.max()) if len(reach) else (at, at)
            room = 1e-13 * max(abs(low), abs(high))
            close = float(low - room), float(high + room)
            made.append(_make_up(active[picked], some, known, close, counts))
        best = min(made, key=_objective)
        if best.objective - known.value > ENOUGH * abs(best.objective):
            ties = np.unique(changes.row[tied]) if tied.sum() <= SOME_TIES else active[:0]
            self.tied = active[ties]
            for side in (left, right) if len(ties) else (known,):
                made.append(self._from_afar(known, side, active[ties], rows, ties, counts))
            best = min(made, key=_objective)
        return self._proven(best)

    def _from_afar(
        self,
        known: _At,
        side: _At,
        tied: NDArray[np.intp],
        rows: Rows,
        ties: NDArray[np.intp],
        counts: NDArray[np.int64] | None,
    ) -> Schedule:
        """Tied rows as on one side; the sample, at another λ, makes up for what that leaves."""
        columns = known.columns.copy()
        columns[tied] = side.columns[tied]
        own = rows.weight[ties]
        old, new = known.columns[tied], side.columns[tied]
        cost = known.cost + float(((rows.u[ties, new] - rows.u[ties, old]) * own).sum())
        bias = known.bias + float(((rows.b[ties, new] - rows.b[ties, old]) * own).sum())
        others = ~np.isin(self.picked, tied)
        picked, some = self.picked[others], self.some.of(others)
        here = _At(known.at, columns, cost, bias, known.value)
        rest = bias - some.bias(columns[picked]) - known.at
        return _make_up(picked, some, here, some.crossing(rest, 0.0, known.at, 64), counts)

    def _met(self, start: float, off: float) -> float:
        """Where the sample's Σ b + `off` meets λ; `start` is one end of where that can be."""
        chosen = self.sample.choose(start)
        bias = self.sample.bias(chosen) + off
        if bias == start:
            return start
        own, other = self.sample, self.sample.choose(bias)
        sides = [(start, chosen, bias), (bias, other, own.bias(other) + off)]
        (low, first, above), (high, last, below) = sorted(sides, key=lambda one: one[0])
        return meeting(own.u, own.b, own.weight, (low, high), (first, last), (above, below))[0]


def _objective(one: Schedule) -> float:
    return one.objective


@dataclass(eq=False)
class _At:
    """All choices at one λ: columns, Σ u, Σ b and L(λ)."""

    at: float
    columns: NDArray[np.intp]
    cost: float
    bias: float
    value: float


def _rows_of(tables: Tables, which: NDArray[np.intp], weight: Array) -> Rows:
    """Some rows of the tables."""
    if tables.in_memory:
        if len(which) == tables.clients:  # as they are: a copy takes as long as some looks
            return Rows(tables.u, tables.b[:, :, 0], weight)
        return Rows(tables.u[which], tables.b[which, :, 0], weight[which])
    parts = []
    for first, u, b in tables.blocks():
        low, high = np.searchsorted(which, [first, first + len(u)])
        own = which[low:high] - first
        parts.append((u[own].copy(), b[own, :, 0].copy()))
    u, b = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
    return Rows(u, b, weight[which])


def _sample(tables: Tables, weight: Array) -> tuple[NDArray[np.intp], Rows]:
    """Evenly spread rows, and which ones."""
    stride = max(20, tables.clients // GUESS)
    if tables.in_memory:
        u, b = tables.u[::stride], tables.b[::stride, :, 0]
    else:
        parts = [
            (u[(-first) % stride :: stride].copy(), b[(-first) % stride :: stride, :, 0].copy())
            for first, u, b in tables.blocks()
        ]
        u, b = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
    check_block(0, u, b[:, :, None])
    picked = np.arange(0, tables.clients, stride)
    return picked, Rows(np.ascontiguousarray(u), np.ascontiguousarray(b), weight[picked])


def _make_up(
    picked: NDArray[np.intp],
    some: Rows,
    known: _At,
    ends: tuple[float, float],
    counts: NDArray[np.int64] | None,
) -> Schedule:
    """Let some rows choose between two other λ, such that Σ b of all comes closest to λ."""
    rows = np.arange(len(picked))
    chosen = known.columns[picked]
    rest = known.bias - some.bias(chosen) - known.at  # what the rows' Σ b has to cancel
    split = some.between(*ends, -rest)
    spent = float((some.u[rows, chosen] * some.weight).sum())
    total = known.bias - some.bias(chosen) + split.bias
    cost = known.cost - spent + split.cost
    columns = known.columns.copy()
    columns[picked] = split.columns
    allocation = None
    if counts is not None:
        allocation = np.zeros((len(columns), some.u.shape[1]), dtype=np.int64)
        allocation[np.arange(len(columns)), columns] = counts
        allocation[picked] = split.allocation(some.u.shape[1])
    return Schedule(columns, cost + total**2, None, 0, allocation=allocation)
