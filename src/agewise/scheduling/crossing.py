"""Where Σ b(λ) meets λ: from the λ at which single rows change their choice.

At λ a row chooses the column with the least u + 2λb. As λ rises, its b falls: from the choice at
one λ to that at a larger one it goes over columns of ever smaller b, and each change happens where
two lines cross. All changes between two λ, sorted, give Σ b everywhere in between.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array

Chosen = tuple[NDArray[np.intp], NDArray[np.intp]]

ROWS = 5_000
"""Rows whose values are held at once."""

SOME = 1_000
"""Rows of which all changes are looked for at once."""


@dataclass(frozen=True)
class Changes:
    """At which λ rows change their choice, in rising order, and by how much Σ b falls there."""

    at: Array
    row: NDArray[np.intp]
    step: Array

    def crossing(self, start: float, low: float, high: float) -> tuple[float, int]:
        """Where Σ b = λ, if that is `start` at the lower end; and the next change there or above.

        Σ b − λ falls, so there is one such place: within a change, or between two.
        """
        after = start + np.cumsum(self.step)
        before = np.concatenate([[start], after[:-1]])
        passed = int(np.searchsorted(-(before - self.at), 0.0))  # changes with Σ b above λ still
        if passed and after[passed - 1] <= self.at[passed - 1]:
            return float(self.at[passed - 1]), passed - 1
        between = start if passed == 0 else float(after[passed - 1])
        return float(np.clip(between, low, high)), passed


ASIDE = 0.05
"""By which part of what is between them a step goes beyond where it expects to meet."""

STEPS = 20
"""How often two λ are brought together before all changes between them are looked for."""


def meeting(
    u: Array,
    b: Array,
    weight: Array,
    ends: tuple[float, float],
    chosen: Chosen,
    bias: tuple[float, float],
) -> tuple[float, Changes, int]:
    """Where Σ b = λ between two λ at which rows choose as `chosen`, and Σ b of all is `bias`.

    Also the changes near it, and which one comes next there. Rows that choose the same on both
    sides are left behind, so each step looks at fewer, or at fewer columns of them.
    """
    (low, high), (first, last), (above, below) = ends, chosen, bias
    rows = np.flatnonzero(first != last)
    fall, stuck, lowered = _fall(b, weight, rows, first, last), 0, False
    for _ in range(STEPS if rows.size > SOME else 0):
        over, under = above - low, high - below  # by how much Σ b is above and below λ
        part = over / (over + under or 1.0)
        part = part - ASIDE if part > 0.5 else part + ASIDE  # so that both ends come near
        if stuck:  # it may be much nearer to the other end than it seems
            near = 0.5 * 0.1 ** (stuck * (stuck + 1) / 2)
            part = near if lowered else 1 - near
        at = low + part * (high - low)
        if not low < at < high:
            break
        picked = first.copy()
        picked[rows] = _choices(u, b, rows, at)
        here = above + float(((b[rows, picked[rows]] - b[rows, first[rows]]) * weight[rows]).sum())
        lowered = here < at
        if not lowered:
            low, first, above = at, picked, here
        else:
            high, last, below = at, picked, here
        rows = rows[first[rows] != last[rows]]
        before, fall = fall, _fall(b, weight, rows, first, last)
        stuck = stuck + 1 if fall > 0.95 * before else 0
        if stuck > 5 or rows.size <= SOME:
            break  # those that are left tie, or are few
    changes = changes_between(u, b, weight, (low, high), rows, (first, last))
    at, place = changes.crossing(above, low, high)
    return at, changes, place


def _fall(
    b: Array,
    weight: Array,
    rows: NDArray[np.intp],
    first: NDArray[np.intp],
    last: NDArray[np.intp],
) -> float:
    return float(((b[rows, first[rows]] - b[rows, last[rows]]) * weight[rows]).sum())


def _choices(u: Array, b: Array, rows: NDArray[np.intp], at: float) -> NDArray[np.intp]:
    picked = np.empty(rows.size, dtype=np.intp)
    for start in range(0, rows.size, ROWS):
        part = rows[start : start + ROWS]
        picked[start : start + ROWS] = (u[part] + (2 * at) * b[part]).argmin(axis=1)
    return picked


def changes_between(
    u: Array,
    b: Array,
    weight: Array,
    ends: tuple[float, float],
    rows: NDArray[np.intp],
    chosen: Chosen,
) -> Changes:
    """The changes of some rows between two λ, at which they choose the columns `chosen`."""
    parts = [
        _changes(u, b, rows[start : start + ROWS], ends, chosen)
        for start in range(0, max(1, rows.size), ROWS)
    ]
    at, row, step = (np.concatenate(one) for one in zip(*parts, strict=True))
    order = np.argsort(at, kind="stable")
    return Changes(at[order], row[order], (step * weight[row])[order])


def _changes(
    u: Array,
    b: Array,
    rows: NDArray[np.intp],
    ends: tuple[float, float],
    chosen: Chosen,
) -> tuple[Array, NDArray[np.intp], Array]:
    first, last = (one[rows] for one in chosen)
    found: list[tuple[Array, NDArray[np.intp], Array]] = [(np.empty(0), rows[:0], np.empty(0))]
    while rows.size:
        fall = b[rows, last] - b[rows, first]
        falls = fall < 0  # but for columns that are the same, or the same to rounding
        rows, first, last, fall = rows[falls], first[falls], last[falls], fall[falls]
        if not rows.size:
            break
        at = np.clip((u[rows, first] - u[rows, last]) / (2 * fall), *ends)
        values = u[rows] + (2 * at)[:, None] * b[rows]
        picked = values.argmin(axis=1)
        lies = np.arange(rows.size)
        inside = (b[rows, picked] < b[rows, first]) & (b[rows, picked] > b[rows, last])
        inside &= values[lies, picked] < np.minimum(values[lies, first], values[lies, last])
        whole = ~inside
        found.append((at[whole], rows[whole], fall[whole]))
        rows, middle = rows[inside], picked[inside]
        first, last = np.append(first[inside], middle), np.append(middle, last[inside])
        rows = np.append(rows, rows)
    at, row, step = (np.concatenate(one) for one in zip(*found, strict=True))
    return at, row, step
