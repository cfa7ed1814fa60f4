"""The best λ for one bias: bisection over few rows, a sample and a few passes over many.

Σ b falls as λ rises, so λ = Σ b(λ) is bracketed and bisected; where it is met, rows that tie are
split so that Σ b comes closest to λ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.errors import InvalidInput
from agewise.scheduling.schedule import Schedule
from agewise.scheduling.tables import Tables, check_block, choose_all, members_of

SAMPLE = 20_000
"""Rows up to which all of them are looked at in every step."""

GUESS = 20_000
"""Rows that a first guess of λ is made from where there are more."""

LOOSE = 100
"""Sampled rows that may still be undecided when a guess of λ is good enough."""

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
    return _Rows(u, b[:, :, 0], members_of(tables, counts)).solve(counts is not None)


@dataclass(eq=False)
class _Rows:
    """Rows of the tables with how many clients each stands for, small enough to look at often."""

    u: Array
    b: Array
    weight: Array

    def choose(self, at: float) -> NDArray[np.intp]:
        return np.asarray((self.u + (2 * at) * self.b).argmin(axis=1))

    def bias(self, columns: NDArray[np.intp]) -> float:
        return float((self.b[np.arange(len(self.b)), columns] * self.weight).sum())

    def range(self) -> tuple[float, float]:
        """The least and the largest Σ b of any schedule."""
        allowed = np.isfinite(self.u)
        low = np.where(allowed, self.b, np.inf).min(axis=1) * self.weight
        high = np.where(allowed, self.b, -np.inf).max(axis=1) * self.weight
        return float(low.sum()), float(high.sum())

    def crossing(
        self, rest: float, slope: float, near: float | None = None, loose: int = 0
    ) -> tuple[float, float]:
        """Two λ between which Σ b + `rest` falls through `slope`·λ.

        Neighbouring floats, or as soon as at most `loose` rows choose differently at the two.
        `near` is a guess.
        """

        def above(at: float) -> bool:
            return self.bias(self.choose(at)) + rest >= slope * at

        low, high = (x + rest for x in self.range()) if slope else (0.0, 0.0)
        if near is not None or not slope:
            low = high = near or 0.0
            width = 1e-3 * abs(low) + 1e-12
            while not above(low) and width < 1e300:
                low, width = low - width, width * 8
            width = 1e-3 * abs(high) + 1e-12
            while above(high) and width < 1e300:
                high, width = high + width, width * 8
        for step in range(1100):
            middle = (low + high) / 2
            if middle in (low, high) or high - low <= 1e-15 * max(abs(low), abs(high)):
                break
            if loose and step % 3 == 2:
                changed = int((self.choose(low) != self.choose(high)).sum())
                if changed <= loose:
                    break
            low, high = (middle, high) if above(middle) else (low, middle)
        return low, high

    def solve(self, grouped: bool) -> Schedule:
        """Bisect to the last bit, then move tied clients so that Σ b comes closest to λ."""
        low, high = self.crossing(0.0, 1.0)
        values = [self.bound(at) for at in (low, high)]
        at = low if values[0] >= values[1] else high
        share = self.between(low, high, at)
        bias = float((share * self.b).sum())
        cost = float((share * np.where(share > 0, self.u, 0)).sum())
        objective = cost + bias**2
        return Schedule(
            share.argmax(axis=1),
            objective,
            min(max(values), objective),
            1,
            np.array([at]),
            allocation=share if grouped else None,
        )

    def bound(self, at: float) -> float:
        least = (self.u + (2 * at) * self.b).min(axis=1)
        return math.fsum((least * self.weight).tolist()) - at * at

    def between(self, low: float, high: float, wanted: float) -> NDArray[np.int64]:
        """How many clients of each row take each column, so that Σ b comes closest to `wanted`.

        At two neighbouring λ different columns are best for a few rows; their clients are moved
        from one to the other, largest steps first, as far as that does not overshoot.
        """
        rows = np.arange(len(self.u))
        share = np.zeros(self.u.shape, dtype=np.int64)
        first, second = self.choose(low), self.choose(high)
        share[rows, first] = self.weight.astype(np.int64)
        missing = wanted - self.bias(first)
        step = self.b[rows, second] - self.b[rows, first]
        moving = np.flatnonzero(step != 0)
        for row in moving[np.argsort(-np.abs(step[moving]))]:
            moves = min(int(self.weight[row]), max(0, round(missing / step[row])))
            share[row, first[row]] -= moves
            share[row, second[row]] += moves
            missing -= moves * step[row]
        return share


def _scalar_of_many(
    tables: Tables, counts: NDArray[np.int64] | None, start: Array | None
) -> Schedule:
    """λ from a sample, corrected by a few passes over all rows; a few clients make up the rest.

    Given any λ, letting some rows choose at another one shifts Σ b at a cost of second order, so
    λ need not be met to the last bit: the gap says how much was lost.
    """
    weight = members_of(tables, counts)
    picked, sample = _sample(tables, weight)
    share = sample.weight.sum() / weight.sum()
    scaled = _Rows(sample.u, sample.b, sample.weight / share)
    if start is not None:
        at = float(start[0])
    else:  # a rough guess from a few rows, a better one from more
        few = _Rows(scaled.u[::10], scaled.b[::10], scaled.weight[::10])
        few.weight = few.weight * (scaled.weight.sum() / few.weight.sum())
        rough = float(np.mean(few.crossing(0.0, 1.0, loose=20)))
        at = float(np.mean(scaled.crossing(0.0, 1.0, near=rough, loose=LOOSE)))
    best: Schedule | None = None
    bound, proven_at = -math.inf, np.array([at])
    known: list[tuple[float, float]] = []
    for passes in range(1, PASSES + 1):
        columns, cost, bias, value = choose_all(tables, weight, np.array([at]), check=passes == 1)
        if value > bound:
            bound, proven_at = value, np.array([at])
        known.append((at, float(bias[0]) - at))
        if passes < PASSES and known[-1][1] ** 2 > 1e-2 * abs(value):  # too far off to mend
            at = _next_multiplier(scaled, known)
            continue
        schedule = _make_up(picked, sample, columns, cost, float(bias[0]), at, counts)
        if best is None or schedule.objective < best.objective:
            best = schedule
        best = replace(
            best, lower_bound=min(bound, best.objective), multipliers=proven_at, iterations=passes
        )
        if (best.relative_gap or 0.0) <= ENOUGH:
            break
        at = _next_multiplier(scaled, known)
    if best is None:  # PASSES is at least one
        raise InvalidInput("u", "empty", "one or more clients")
    if (best.relative_gap or 0.0) > 1e-3 and tables.in_memory:
        # So many rows tie at λ that a sample cannot make up for them: look at all of them.
        whole_table = _Rows(tables.u, tables.b[:, :, 0], weight).solve(counts is not None)
        if whole_table.objective < best.objective:
            bound = max(best.lower_bound or -math.inf, whole_table.lower_bound or -math.inf)
            best = replace(whole_table, lower_bound=min(bound, whole_table.objective))
    return best


def _sample(tables: Tables, weight: Array) -> tuple[NDArray[np.intp], _Rows]:
    """Evenly spread rows, and which ones."""
    stride = max(1, tables.clients // GUESS)
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
    return picked, _Rows(np.ascontiguousarray(u), np.ascontiguousarray(b), weight[picked])


def _next_multiplier(scaled: _Rows, known: list[tuple[float, float]]) -> float:
    """Where Σ b − λ vanishes, from its values so far: by the sample's shape, then by secants."""
    at, excess = known[-1]
    if len(known) > 1 and known[-2][1] != excess:
        before, earlier = known[-2]
        return at - excess * (at - before) / (excess - earlier)
    off = excess - (scaled.bias(scaled.choose(at)) - at)  # the sample's own error at this λ
    return float(np.mean(scaled.crossing(off, 1.0, near=at, loose=LOOSE)))


def _make_up(
    picked: NDArray[np.intp],
    sample: _Rows,
    columns: NDArray[np.intp],
    cost: float,
    bias: float,
    at: float,
    counts: NDArray[np.int64] | None,
) -> Schedule:
    """Let the sampled rows choose at another λ, such that Σ b of all comes closest to λ."""
    rows = np.arange(len(picked))
    chosen = columns[picked]
    rest = bias - sample.bias(chosen) - at  # what the sample's Σ b has to cancel
    ends = (at, at)  # near enough as it is
    if (bias - at) ** 2 > 0.1 * ENOUGH * abs(cost + bias**2):
        ends = sample.crossing(rest, 0.0, near=at, loose=64)
    share = sample.between(*ends, -rest)
    spent = float((sample.u[rows, chosen] * sample.weight).sum())
    total = bias - sample.bias(chosen) + float((share * sample.b).sum())
    objective = cost - spent + float((share * np.where(share > 0, sample.u, 0)).sum()) + total**2
    allocation = None
    columns = columns.copy()
    columns[picked] = share.argmax(axis=1)
    if counts is not None:
        allocation = np.zeros((len(columns), share.shape[1]), dtype=np.int64)
        allocation[np.arange(len(columns)), columns] = counts
        allocation[picked] = share
    return Schedule(columns, objective, None, 0, allocation=allocation)
