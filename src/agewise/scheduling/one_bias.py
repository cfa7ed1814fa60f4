"""The best λ for one bias: bisection over few rows; over many, the rows that change near it.

Σ b falls as λ rises, so λ = Σ b(λ) is bracketed; where it is met, rows that tie are split so that
Σ b comes closest to λ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.scheduling.choices import (
    Choices,
    Which,
    changes_near,
    closed,
    objective_of,
    other_meeting,
    settled,
)
from agewise.scheduling.crossing import Columns
from agewise.scheduling.few_rows import Rows
from agewise.scheduling.moves import cheap_moves
from agewise.scheduling.schedule import Schedule
from agewise.scheduling.tables import Tables, check_block, choose_all, members_of

Counts = NDArray[np.int64] | None
SAMPLE = 20_000
"""Rows up to which all of them are looked at in every step."""

GUESS = 20_000
"""Rows that a first guess of λ is made from where there are more."""

TRIES = 2
"""Passes after which a schedule may be good enough already."""

BEYOND = (1.0, 1.0, 1.5, 4.0)
"""How far to where the best λ is expected the next looks go; at last beyond it."""

HOPS = (1e-9, 0.3, 10.0)
"""How far beyond a λ, as a share of it, if the best one is expected to be that, but is not."""

FEW = 0.25
"""The part of all rows that may choose differently on both sides of the best λ."""

TIGHT = 1e-6
"""How near two λ are to each other, as a share of them, where rows in between count as tied."""

AROUND = (0, 8, 64)
"""How many changes on both sides of the best λ make up for what rows that tie leave."""

ENOUGH = 5e-7
"""Relative gap at which many clients count as done."""

CANCELLED = 1e-14
"""(Σ b − λ)² that counts as none, as a share of what it would be by chance."""

BEYOND_PROOF = 1e-3
"""The part of a gap that stays open, whatever rows that are not fixed choose, that is nothing."""

LARGE = 1e-3
"""Relative gap that is worth starting again with rows that tie fixed, if they are few."""

FIXED = 3
"""How many."""

AGAIN = 3
"""How often."""

PASSES = 8
"""Passes over many clients at most."""


def search_one_bias(tables: Tables, counts: Counts, start: Array | None) -> Schedule:
    """Return a schedule with its dual bound, for tables with one bias and no capacity."""
    if tables.clients > SAMPLE:
        return _scalar_of_many(tables, counts, start)
    rows = list(tables.blocks())
    u, b = np.concatenate([r[1] for r in rows]), np.concatenate([r[2] for r in rows])
    check_block(0, u, b)
    return Rows(u, b[:, :, 0], members_of(tables, counts)).solve(counts is not None)


def _scalar_of_many(tables: Tables, counts: Counts, start: Array | None) -> Schedule:
    search = latest = _Search(tables, members_of(tables, counts), counts is not None)
    best = search.run(search.guess() if start is None else float(start[0]))
    for _ in range(AGAIN if tables.in_memory and counts is None else 0):
        fixed = latest.fixing()  # few rows leave more than others make up for: fix them first
        if search.gap(best) <= LARGE or fixed is None:
            break
        latest = _Search(tables, search.weight, False, fixed, search.bound)
        best = min(best, latest.run(search.bound_at, search.seen), key=objective_of)
        search.seen += latest.seen
        search.passes += latest.passes
    return search.schedule(best, counts)


class _Search:
    """λ on both sides of the best one, with all choices at each."""

    def __init__(
        self,
        tables: Tables,
        weight: Array,
        grouped: bool,
        fixed: tuple[Which, Columns] | None = None,
        floor: float = math.inf,
    ) -> None:
        self.tables, self.weight, self.grouped, self.fixed = tables, weight, grouped, fixed
        self.floor = floor
        """The bound without fixed rows."""
        self.passes, self.hops = 0, 0
        self.left: Choices | None = None
        self.right: Choices | None = None
        self.last: Choices
        self.seen: list[Choices] = []
        """What passes over tables in memory found."""
        self.bound, self.bound_at = -math.inf, 0.0
        self.tied = np.empty(0, dtype=np.intp)
        """Rows that change at the best λ, where that leaves more than others make up for."""
        self.tied_sides: list[Choices] = []
        self.picked, self.some = _sample(tables, weight)
        if fixed is not None:
            others = ~np.isin(self.picked, fixed[0])
            self.picked, self.some = self.picked[others], self.some.only(others)
        share = self.some.weight.sum() / weight.sum()
        self.sample = Rows(self.some.u, self.some.b, self.some.weight / share)
        """Many enough for all."""
        self.by_chance = float(((self.some.b**2).mean(axis=1) * self.sample.weight).sum())
        """(Σ b)² of clients with a column each by lot."""

    def run(self, start: float, seen: Sequence[Choices] = ()) -> Choices:
        """Two λ with the best one in between, by few passes; it from the rows that change there.

        Σ b − λ falls at least as fast as λ rises, so at any λ it says how far the best is at most.
        What was `seen` before some rows were fixed needs no pass.
        """
        for one in seen:
            self.take(one)
        if not seen:
            self.go(start)
        for step in count():  # near enough, as a rule, for the sample to make up for the rest
            made = self.made_up(self.last)
            if self.enough(made):
                return made
            if self.left and self.right and (step >= TRIES or self.near()):
                break
            self.go(self.beyond(BEYOND[step] if step < len(BEYOND) else None))
        while not self.near() and self.passes < PASSES - 1:
            before = len(self.active())
            self.go(self.within())
            if len(self.active()) > before / 2:
                break  # rows that tie do not become fewer
        return min(self.finish(self.active()), key=objective_of)

    def go(self, at: float) -> None:
        """One pass over all rows."""
        columns, cost, bias, _ = choose_all(
            self.tables, self.weight, np.array([at]), check=self.passes == 0
        )
        self.passes += 1
        here = Choices(at, columns, cost, float(bias[0]))
        if self.tables.in_memory:
            self.seen.append(here)
        self.take(here)

    def take(self, here: Choices) -> None:
        """Choices at a λ, if nearer to the best one than those on their side are."""
        if self.fixed is not None:
            rows, chosen = self.fixed
            here = here.changed(rows, _rows_of(self.tables, rows, self.weight), chosen, here.at)
        self.last = here
        self.prove(here)
        if here.bias >= here.at and (self.left is None or here.at >= self.left.at):
            self.left = here
        if here.bias <= here.at and (self.right is None or here.at <= self.right.at):
            self.right = here

    def prove(self, one: Choices) -> None:
        """L(λ) is a bound for every λ: keep the best."""
        if one.value > self.bound:
            self.bound, self.bound_at = one.value, one.at

    def gap(self, made: Choices) -> float:
        """How far from the best it can be, as a share of it."""
        return (made.objective - self.bound) / (abs(made.objective) or 1.0)

    def enough(self, made: Choices) -> bool:
        left = made.objective - self.bound
        known = BEYOND_PROOF * (made.objective - self.floor)
        return left <= max(ENOUGH * abs(made.objective), CANCELLED * self.by_chance, known)

    def guess(self) -> float:
        """Where the sample's Σ b meets λ."""
        return self._met(0.0, 0.0)

    def beyond(self, factor: float | None) -> float:
        """On the other side of the best λ: most likely, and without a `factor` for sure."""
        known = self.last
        excess = known.bias - known.at
        if factor is None:
            return known.bias
        own = self.sample.bias(self.sample.choose(known.at))
        step = abs(self._met(known.at, known.bias - own) - known.at) * factor * (1 + 1e-9)
        if step <= HOPS[0] * abs(known.at):  # the sample says that it is here: just beyond, then
            step = HOPS[min(self.hops, len(HOPS) - 1)] * abs(known.at)
            self.hops += 1
        at = known.at + math.copysign(min(step, abs(excess)), excess)
        return at if at != known.at else known.bias

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

    def _met(self, start: float, off: float) -> float:
        """Where the sample's Σ b + `off` meets λ; `start` is one end of where that can be."""
        chosen = self.sample.choose(start)
        bias = self.sample.bias(chosen) + off
        if bias == start:
            return start
        own, other = self.sample, self.sample.choose(bias)
        sides = [(start, chosen, bias), (bias, other, own.bias(other) + off)]
        low, high = sorted(sides, key=lambda one: one[0])
        return own.meeting(low, high).at

    def sides(self) -> tuple[Choices, Choices]:
        if self.left is None or self.right is None:
            raise ValueError("the best λ is not in between yet")
        return self.left, self.right

    def near(self) -> bool:
        """Whether both sides are so near that few rows choose differently, or those tie."""
        left, right = self.sides()
        tight = right.at - left.at <= TIGHT * max(abs(left.at), abs(right.at))
        return tight or len(self.active()) <= FEW * self.tables.clients

    def active(self) -> Which:
        """The rows that choose differently on both sides."""
        left, right = self.sides()
        return np.flatnonzero(left.columns != right.columns)

    def finish(self, active: Which) -> Iterator[Choices]:
        """The best λ, from all changes between both sides; rows that change near it mend Σ b."""
        left, right = self.sides()
        active, rows = _active(self.tables, active, self.weight)
        low, high = ((one.at, one.columns[active], one.bias) for one in (left, right))
        met = rows.meeting(low, high)
        start = left.changed(active, rows, met.columns, met.at)
        known = start.after(active, met, met.place)
        self.prove(known)
        best = known
        for around in sorted({met.window(one): one for one in AROUND}.values()):
            best = min(best, settled(start, active, rows, met, around), key=objective_of)
            yield best
            if self.enough(best):
                return
        if not self.grouped:
            best = closed(best, active, rows, *changes_near(met))
            yield best
            if self.enough(best):
                return
        begin, end = met.window(0)
        ties = met.rows(begin, end)
        if len(ties) <= FIXED:
            self.tied = active[ties]
            for change in (begin, end) if len(ties) else (met.place,):
                self.tied_sides.append(self.made_up(start.after(active, met, change)))
            yield from self.tied_sides
        elif self.grouped:
            yield self.made_up(known)
        if not self.grouped:
            yield self.closed(min([best, *self.tied_sides], key=objective_of))

    def made_up(self, base: Choices) -> Choices:
        """Let rows of the sample choose as at another λ, for Σ b of all to come closest to this."""
        which, rows = self.picked, self.some
        if len(self.tied):
            others = ~np.isin(which, self.tied)
            which, rows = which[others], rows.only(others)
        met = other_meeting(base, which, rows)
        if met is None:
            return base
        made = settled(base, which, rows, met, AROUND[-1])
        if self.grouped or self.enough(made):
            return made
        made = closed(made, which, rows, *changes_near(met))
        off = (made.bias - made.at) ** 2  # less than a step, and most of what is left to gain
        worth = off < self.by_chance / self.weight.sum() and 2 * off > made.objective - self.bound
        return self.closed(made) if worth and not self.enough(made) else made

    def closed(self, base: Choices) -> Choices:
        """Move one or two clients of the sample at a time, by steps of all sizes."""
        columns, at = base.columns[self.picked], np.array([base.at])
        moves = cheap_moves(self.some.u, self.some.b[:, :, None], columns, at)
        return closed(base, self.picked, self.some, *moves)

    def fixing(self) -> tuple[Which, Columns] | None:
        """Rows that tie, with what they choose on the side that seems better, and those fixed."""
        if not len(self.tied):
            return None
        rows, chosen = self.tied, min(self.tied_sides, key=objective_of).columns[self.tied]
        if self.fixed is None:
            return rows, chosen
        return np.append(self.fixed[0], rows), np.append(self.fixed[1], chosen)

    def schedule(self, made: Choices, counts: Counts) -> Schedule:
        allocation = None
        if counts is not None:
            slots, rows = self.tables.slots, np.arange(self.tables.clients)
            allocation = np.zeros((self.tables.clients, slots), dtype=np.int64)
            allocation[rows, made.columns] = counts
            if made.shared is not None:
                which, shares = made.shared
                allocation[which] = shares.allocation(slots)
        return Schedule(
            made.columns,
            made.objective,
            min(self.bound, made.objective),
            self.passes,
            np.array([self.bound_at]),
            allocation=allocation,
        )


def _rows_of(tables: Tables, which: Which, weight: Array) -> Rows:
    """Some rows of tables in memory."""
    return Rows(tables.u[which], tables.b[which, :, 0], weight[which])


def _active(tables: Tables, which: Which, weight: Array) -> tuple[Which, Rows]:
    """Some rows of the tables, and which; in memory all of them, as they are."""
    if tables.in_memory:
        return np.arange(tables.clients), Rows(tables.u, tables.b[:, :, 0], weight)
    parts = []
    for first, u, b in tables.blocks():
        low, high = np.searchsorted(which, [first, first + len(u)])
        own = which[low:high] - first
        parts.append((u[own].copy(), b[own, :, 0].copy()))
    u, b = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
    return which, Rows(u, b, weight[which])


def _sample(tables: Tables, weight: Array) -> tuple[Which, Rows]:
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
