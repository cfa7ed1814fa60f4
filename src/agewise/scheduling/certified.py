"""The low-complexity scheduler: near-linear time, with a proof of near-optimality.

Minimise F = Σ_i u_i(t_i) + ‖Σ_i b_i(t_i)‖². For any λ, ‖s‖² ≥ 2λ·s − ‖λ‖², so

    L(λ) = Σ_i min_t [u_i(t) + 2λ·b_i(t)] − ‖λ‖²

is a lower bound, concave in λ, and where every client takes a minimiser, F − L(λ) = ‖Σ b − λ‖².
The best λ equals Σ b at its own minimisers. In one dimension Σ b falls as λ rises, so a search
brackets it; clients that choose the same column at both ends of the bracket are settled, and only
the few others are looked at again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array
from agewise.checks import whole
from agewise.errors import InvalidInput
from agewise.progress import Progress
from agewise.scheduling.branching import branch_and_bound
from agewise.scheduling.capacity import solve_with_capacity
from agewise.scheduling.enumeration import best_within
from agewise.scheduling.exhaustive import exhaustive, table_objective
from agewise.scheduling.local_search import improve
from agewise.scheduling.mixture import STEPS, search_multipliers
from agewise.scheduling.one_bias import ENOUGH, SAMPLE, search_one_bias
from agewise.scheduling.schedule import Leaf, Schedule
from agewise.scheduling.tables import (
    Stream,
    Tables,
    check_block,
    checked_counts,
    choose_all,
    members_of,
)

EXHAUSTIVE = 50_000
"""Schedules up to which all of them are simply tried."""

FINISH_CLIENTS = 128
"""Clients up to which the remaining gap is closed by branch and bound, or by enumeration."""

PROVEN = 1e-10
"""Relative gap at which a schedule counts as proven optimal and the search stops."""


def solve_schedule(
    u: ArrayLike,
    b: ArrayLike,
    capacity: int | None = None,
    *,
    counts: ArrayLike | None = None,
    start: ArrayLike | None = None,
    keep_best: bool = False,
    progress: Progress | None = None,
) -> Schedule:
    """Choose a column for each row of the tables: minimise Σu + ‖Σb‖².

    `u` `[m, T]` (infinite: that column is forbidden), `b` `[m, T]` or `[m, T, d]`. At most
    `capacity` clients may share a column. `counts[i]` clients share row i (without capacity).
    `start` is a first guess of the multipliers, from an earlier solution. With `keep_best`,
    Ctrl-C ends the search early with the best schedule so far and its honest gap.

    Guarantees
        No schedule that keeps to the capacity has an objective below `lower_bound` (to rounding,
        a relative 1e-12). Small problems end at gap 0. Without capacity time is O(m·T) for a
        fixed number of passes. `check_schedule` recomputes the bound from the proof; with several
        biases a gap that enumeration closed is more than it can confirm.

    >>> schedule = solve_schedule([[1.0, 0.0], [0.0, 2.0]], [[0.0, 3.0], [1.0, -2.0]])
    >>> schedule.columns.tolist(), schedule.objective, schedule.relative_gap
    ([0, 0], 2.0, 0.0)
    """
    tables = Tables(u, b)
    many = checked_counts(counts, tables.clients)
    guess = None if start is None else _checked_start(start, tables.dimensions)
    if capacity is not None:
        limit = whole("capacity", capacity, 1)
        if many is not None:
            raise InvalidInput(
                "counts", "given with a capacity", "one of the two", "Give each client its row."
            )
        if tables.clients > limit * tables.slots:
            raise InvalidInput(
                "capacity",
                limit,
                f"at least {-(-tables.clients // tables.slots)} for {tables.clients} clients in "
                f"{tables.slots} slots",
                "No schedule exists: raise the capacity or add slots.",
            )
        if limit < tables.clients:
            check_block(0, tables.u, tables.b)
            if _few(tables):
                evaluate = table_objective(tables.u, tables.b)
                return exhaustive(evaluate, tables.clients, tables.slots, limit)
            return solve_with_capacity(tables, limit, guess, keep_best, progress)
    if many is None and _few(tables):
        check_block(0, tables.u, tables.b)
        evaluate = table_objective(tables.u, tables.b)
        return exhaustive(evaluate, tables.clients, tables.slots)
    return _without_capacity(tables, many, guess, keep_best, progress)


def solve_stream(
    blocks: Stream,
    *,
    counts: ArrayLike | None = None,
    start: ArrayLike | None = None,
    progress: Progress | None = None,
) -> Schedule:
    """`solve_schedule` for tables that do not fit in memory, without capacity.

    `blocks()` starts a new pass and yields (u, b) for one block of rows after the other, the same
    each time. A scalar b needs about five passes. The result is that of the tables in memory,
    but for the last polish that those get where their gap is still above 5e-7.
    """
    tables = Tables(None, None, blocks)
    many = checked_counts(counts, tables.clients)
    guess = None if start is None else _checked_start(start, tables.dimensions)
    if tables.clients * tables.slots * tables.dimensions <= 2**22:  # small: take it all in
        parts = list(tables.blocks())
        held_u = np.concatenate([p[1] for p in parts])
        held_b = np.concatenate([p[2] for p in parts])
        return solve_schedule(
            held_u,
            held_b[:, :, 0] if tables.scalar else held_b,
            counts=counts,
            start=start,
            progress=progress,
        )
    return _without_capacity(tables, many, guess, False, progress)


MANY, LARGE = 20_000, 1e-3
"""Clients beyond which a gap up to this is not worth many looks at all pairs of moves."""


def _few(tables: Tables) -> bool:
    """Whether all schedules can simply be tried."""
    return EXHAUSTIVE > 0 and tables.clients * math.log(tables.slots) <= math.log(EXHAUSTIVE)


def _without_capacity(
    tables: Tables,
    counts: NDArray[np.int64] | None,
    start: Array | None,
    keep_best: bool,
    progress: Progress | None,
) -> Schedule:
    if tables.dimensions == 1:
        schedule = search_one_bias(tables, counts, start)
    else:
        schedule = _vector(tables, counts, start, keep_best, progress)
    if schedule.multipliers is not None:
        schedule = replace(schedule, proof=Leaf(tuple(schedule.multipliers.tolist())))
    if counts is not None or not tables.in_memory:
        return schedule
    return _polish(tables, schedule, keep_best, progress)


def _polish(
    tables: Tables, schedule: Schedule, keep_best: bool, progress: Progress | None
) -> Schedule:
    """Improve the schedule by moving one or two clients; for few clients close the gap exactly."""
    if schedule.multipliers is None or schedule.lower_bound is None:
        return schedule
    try:
        closed = tables.dimensions == 1 and tables.clients > SAMPLE  # as far as moves can
        if not closed and (
            (schedule.relative_gap or 0.0) > ENOUGH or tables.clients <= FINISH_CLIENTS
        ):
            columns, objective = improve(
                tables.u,
                tables.b,
                schedule.columns,
                schedule.multipliers,
                thorough=tables.clients <= MANY or (schedule.relative_gap or 0.0) > LARGE,
            )
            if objective < schedule.objective:
                schedule = replace(schedule, columns=columns, objective=objective)
        if tables.clients <= FINISH_CLIENTS:
            closing = (
                _branching(tables, schedule)
                if tables.dimensions == 1
                else (_enumerating(tables, schedule))
            )
            for step, better in enumerate(closing):
                schedule = better
                if progress is not None:
                    progress(step + 1, step + 2)
    except KeyboardInterrupt:
        if not keep_best:
            raise
        return replace(schedule, complete=False)
    return schedule


def _branching(tables: Tables, schedule: Schedule) -> Iterator[Schedule]:
    start = schedule.columns, schedule.objective
    for best in branch_and_bound(tables.u, tables.b[:, :, 0], *start, PROVEN):
        bound = max(best.bound, -math.inf if schedule.lower_bound is None else schedule.lower_bound)
        yield replace(
            schedule,
            columns=best.columns,
            objective=best.objective,
            lower_bound=min(bound, best.objective),
            iterations=schedule.iterations + best.nodes,
            proof=best.tree.proof(),
        )


def _enumerating(tables: Tables, schedule: Schedule) -> Iterator[Schedule]:
    """Yield ever better proven schedules, with growing budgets of reduced cost."""
    target = np.asarray(schedule.multipliers)
    cost = tables.u + 2 * (tables.b @ target)
    least = cost.min(axis=1)
    base = math.fsum(least.tolist()) - float(target @ target)
    evaluate = table_objective(tables.u, tables.b)
    budget = max(1e-9 * abs(schedule.objective), 1e-6 * (schedule.objective - base))
    for _ in range(30):
        span = schedule.objective - base
        if span <= PROVEN * abs(schedule.objective):
            return
        budget = min(budget, span * (1 + 1e-9))  # no better schedule has a larger reduced cost
        result = best_within(cost - least[:, None], tables.b, target, budget)
        if result is None:
            return
        objective = float(evaluate(result[0][None])[0])
        if objective < schedule.objective:
            schedule = replace(schedule, columns=result[0], objective=objective)
        closed = result[1] <= budget or budget >= span
        bound = schedule.objective if closed else base + budget
        schedule = replace(
            schedule,
            iterations=schedule.iterations + 1,
            lower_bound=min(max(bound, schedule.lower_bound or -math.inf), schedule.objective),
        )
        yield schedule
        if closed:
            return
        budget *= 4


def _vector(
    tables: Tables,
    counts: NDArray[np.int64] | None,
    start: Array | None,
    keep_best: bool,
    progress: Progress | None,
) -> Schedule:
    """Search λ in several dimensions; every step is one pass over the tables."""
    many = members_of(tables, counts)
    best = Schedule(np.empty(0, dtype=np.intp), math.inf, None, 0)
    bound, at, steps = -math.inf, np.zeros(tables.dimensions), 0

    def ask(multipliers: Array) -> tuple[float, Array]:
        nonlocal best, bound, at, steps
        columns, cost, bias, value = choose_all(tables, many, multipliers, check=steps == 0)
        steps += 1
        if value > bound:
            bound, at = value, multipliers
        if cost + float(bias @ bias) < best.objective:
            best = Schedule(columns, cost + float(bias @ bias), None, steps)
        if progress is not None:
            progress(steps, STEPS)
        return cost, bias

    complete = True
    try:
        search_multipliers(ask, at if start is None else start)
    except KeyboardInterrupt:
        if not keep_best or not math.isfinite(bound):
            raise
        complete = False
    shares = None
    if counts is not None:
        shares = np.zeros((tables.clients, tables.slots), dtype=np.int64)
        shares[np.arange(tables.clients), best.columns] = counts
    return replace(
        best,
        lower_bound=min(bound, best.objective),
        multipliers=at,
        iterations=steps,
        allocation=shares,
        complete=complete,
    )


def _checked_start(start: ArrayLike, dimensions: int) -> Array:
    values = np.atleast_1d(np.asarray(start, dtype=np.float64))
    if values.shape != (dimensions,) or not np.isfinite(values).all():
        raise InvalidInput("start", start, f"{dimensions} finite multipliers")
    return values
