"""Where Σ b(λ) meets λ: from the λ at which single rows change their choice.

At λ a row chooses the column with the least u + 2λb. As λ rises, its b falls: from the choice at
one λ to that at a larger one it goes over columns of ever smaller b, and each change happens where
two lines cross. All changes between two λ, sorted, give Σ b everywhere in between.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array

Columns = NDArray[np.intp]
Part = tuple[Array, NDArray[np.intp]]
Result = TypeVar("Result")

CELLS = 240_000
"""Cells of the rows whose values are held at once."""

MANY = 6
"""Parts of so many rows that are worth two threads."""

SOME = 500
"""Rows of which all changes are looked for at once."""

FEW = 250
"""Rows that say where others are likely to meet."""

ROOM = 0.1
"""The part of all that changes that those few may be wrong by."""

TIED = 1e-13
"""How near, as a share of them, two λ are the same."""

STEPS = 30
"""How often two λ are brought together before all changes between them are looked for."""


@dataclass(frozen=True)
class Changes:
    """At which λ rows change from one column to another, in rising order.

    With each of them Σ b changes by `step` and Σ u by `price`.
    """

    at: Array
    row: NDArray[np.intp]
    first: Columns
    last: Columns
    step: Array
    price: Array

    def crossing(
        self, start: float, ends: tuple[float, float], slope: float = 1.0
    ) -> tuple[float, int]:
        """Where Σ b = `slope`·λ, if that is `start` at the lower end; and the next change there.

        Σ b − λ falls, so there is one such place: within a change, or between two.
        """
        after = start + np.cumsum(self.step)
        before = np.concatenate([[start], after[:-1]])
        passed = int(np.searchsorted(-(before - slope * self.at), 0.0))  # Σ b is above λ still
        if passed and after[passed - 1] <= slope * self.at[passed - 1]:
            return float(self.at[passed - 1]), passed - 1
        low = ends[0] if passed == 0 else float(self.at[passed - 1])
        between = start if passed == 0 else float(after[passed - 1])
        return float(np.clip(between / slope, low, ends[1])) if slope else low, passed

    def expected(
        self, above: float, below: float, ends: tuple[float, float], slope: float
    ) -> tuple[float, float]:
        """Two λ with the meeting of all rows likely in between, if these are some of them.

        Σ b of all falls from `above` to `below`. Rows that tie there are in between as well.
        """
        fall = above - below
        own = -float(self.step.sum())
        scaled = replace(self, step=self.step * (fall / own if own else 1.0))
        low, high = (scaled.crossing(above + room * fall, ends, slope)[0] for room in (-ROOM, ROOM))
        nudge = TIED * max(abs(low), abs(high))
        return low - nudge, high + nudge


@dataclass(frozen=True)
class Meeting:
    """Where Σ b meets λ, all changes near it, which of them is next, and what is chosen before."""

    at: float
    changes: Changes
    place: int
    columns: Columns
    """The choice of every row before the first of the changes."""

    def window(self, around: int) -> tuple[int, int]:
        """From which change to which: those that tie at the place, and some around it."""
        room = TIED * abs(self.at)
        low = int(np.searchsorted(self.changes.at, self.at - room, "left"))
        high = int(np.searchsorted(self.changes.at, self.at + room, "right"))
        last = self.changes.at.size
        return max(0, min(low, self.place - around)), min(last, max(high, self.place + around))

    def rows(self, low: int, high: int) -> NDArray[np.intp]:
        """The rows that some of the changes are about, in order."""
        changing = np.zeros(self.columns.size, dtype=np.bool_)
        changing[self.changes.row[low:high]] = True
        return np.flatnonzero(changing)

    def before(self, change: int) -> Columns:
        """The choice of every row before one of the changes."""
        columns = self.columns.copy()
        columns[self.changes.row[:change]] = self.changes.last[:change]
        return columns


def meeting(
    u: Array,
    b: Array,
    weight: Array,
    ends: tuple[float, float],
    chosen: tuple[Columns, Columns],
    bias: tuple[float, float],
    slope: float = 1.0,
) -> Meeting:
    """Where Σ b = `slope`·λ between two λ at which rows choose as `chosen`, and Σ b is `bias`.

    Few rows say where that is likely to be; rows that choose the same on both sides of there are
    left behind, so each step looks at fewer.
    """
    (low, high), (above, below) = ends, bias
    columns, rows = chosen[0].copy(), np.flatnonzero(chosen[0] != chosen[1])
    first, last = chosen[0][rows], chosen[1][rows]
    for _ in range(STEPS):
        before = rows.size
        if before <= SOME:
            break
        some = slice(None, None, max(1, before // FEW))
        ends, both = (low, high), (first[some], last[some])
        few = changes_between(u, b, weight, ends, rows[some], both)
        if few.at.size and few.at[-1] - few.at[0] <= TIED * abs(few.at[0]):
            break
        for at in few.expected(above, below, ends, slope):
            if not low < at < high:
                continue
            picked = _choices(u, b, rows, at)
            steps = (b[rows, picked] - b[rows, first]) * weight[rows]
            here = above + float(steps.sum())
            if here >= slope * at:
                low, first, above = at, picked, here
            else:
                high, last, below = at, picked, here
            left = first != last
            columns[rows] = first
            rows, first, last = rows[left], first[left], last[left]
        if rows.size == before:
            break  # those that are left tie
    changes = changes_between(u, b, weight, (low, high), rows, (first, last))
    at, place = changes.crossing(above, (low, high), slope)
    return Meeting(at, changes, place, columns)


def _choices(u: Array, b: Array, rows: NDArray[np.intp], at: float) -> Columns:
    def work(part: NDArray[np.intp]) -> Columns:
        own_u, own_b, _ = _held_rows(u, b, part)
        own_b *= 2 * at
        own_b += own_u
        return np.asarray(own_b.argmin(axis=1))

    return np.concatenate(_in_parts(work, u.shape[1], rows))


_held = threading.local()


def _held_rows(u: Array, b: Array, rows: NDArray[np.intp]) -> tuple[Array, Array, Array]:
    """u and b of some rows, and room for as much; good until this thread asks again.

    The memory is used again, for a fresh page costs more than the sums in it.
    """
    size = rows.size * u.shape[1]
    if not hasattr(_held, "room") or _held.room.shape[1] < size:
        _held.room = np.empty((3, max(size, CELLS)))
    own_u, own_b, room = (one[:size].reshape(rows.size, u.shape[1]) for one in _held.room)
    for whole, own in ((u, own_u), (b, own_b)):
        if whole.flags.c_contiguous:
            np.take(whole, rows, axis=0, out=own, mode="clip")
        else:  # of which `take` would copy all
            own[:] = whole[rows]
    return own_u, own_b, room


def _in_parts(work: Callable[..., Result], slots: int, *arrays: NDArray[np.intp]) -> list[Result]:
    """Some rows at a time; two parts at once if there are many."""
    rows = max(1, CELLS // slots)
    starts = range(0, max(1, arrays[0].size), rows)
    parts = [[one[start : start + rows] for one in arrays] for start in starts]
    if len(parts) < MANY:
        return [work(*part) for part in parts]
    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(lambda part: work(*part), parts))


def changes_between(
    u: Array,
    b: Array,
    weight: Array,
    ends: tuple[float, float],
    rows: NDArray[np.intp],
    chosen: tuple[Columns, Columns],
) -> Changes:
    """The changes of some rows between two λ, at which those choose the columns `chosen`."""

    def work(*part: NDArray[np.intp]) -> Part:
        return _changes(u, b, ends, *part)

    parts = _in_parts(work, u.shape[1], rows, *chosen)
    numbers, which = (np.concatenate(one, axis=1) for one in zip(*parts, strict=True))
    at, start, step, price = numbers
    order = np.lexsort((-start, at))  # of one row, the larger b first
    row, first, last = (one[order] for one in which)
    step, price = (one[order] * weight[row] for one in (step, price))
    return Changes(at[order], row, first, last, step, price)


def _changes(
    u: Array,
    b: Array,
    ends: tuple[float, float],
    rows: NDArray[np.intp],
    first: Columns,
    last: Columns,
) -> Part:
    """At which λ, from which b, steps and prices; which rows, from which columns to which."""
    found = [(np.empty((4, 0)), np.empty((3, 0), dtype=np.intp))]
    while rows.size:
        own_u, own_b, values = _held_rows(u, b, rows)
        lies = np.arange(rows.size)
        start, end = own_b[lies, first], own_b[lies, last]
        step, price = end - start, own_u[lies, last] - own_u[lies, first]
        falls = step < 0  # but for columns that are the same, or the same to rounding
        at = np.clip(-price / np.where(falls, 2 * step, -1.0), *ends)
        np.multiply(own_b, (2 * at)[:, None], out=values)
        values += own_u
        middle = values.argmin(axis=1)
        between = own_b[lies, middle]
        inside = falls & (between < start) & (between > end)
        inside &= values[lies, middle] < np.minimum(values[lies, first], values[lies, last])
        whole = falls & ~inside
        numbers, which = np.stack([at, start, step, price]), np.stack([rows, first, last])
        found.append((numbers[:, whole], which[:, whole]))
        middle = middle[inside]
        first, last = np.append(first[inside], middle), np.append(middle, last[inside])
        rows = np.tile(rows[inside], 2)
    numbers, which = (np.concatenate(one, axis=1) for one in zip(*found, strict=True))
    return numbers, which
