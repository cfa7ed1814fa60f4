"""The low-complexity scheduler: near-linear time, with a proof of near-optimality.

Minimise F = Σ_i u_i(t_i) + ‖Σ_i b_i(t_i)‖², or what the server does not know with the best gains.
For any λ the least that each client can add, less ‖λ‖², is a lower bound, concave in λ (`costs`). A
problem with one bias and many clients is a search on a line (`one_bias`); every other problem goes
to `search`. Small ones are simply tried.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array
from agewise.checks import finite_array, instance, numbers, whole
from agewise.errors import InvalidInput
from agewise.knowledge.estimate import GainTables, best_gains, gain_objective, gap_of
from agewise.knowledge.one_draw import least_losses
from agewise.progress import Progress
from agewise.scheduling.capacity import Chooser, assignable, least_of_each, within
from agewise.scheduling.costs import Costs
from agewise.scheduling.dual import STEPS, Answer, maximise
from agewise.scheduling.exhaustive import all_schedules, exhaustive, table_objective
from agewise.scheduling.gains import Gains
from agewise.scheduling.moves import improve
from agewise.scheduling.one_bias import ENOUGH, SAMPLE, search_one_bias
from agewise.scheduling.prices import by_prices
from agewise.scheduling.schedule import Draw, Leaf, Schedule
from agewise.scheduling.search import search
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

MOST_TRIED = 200_000
"""Schedules with gains for one draw up to which all of them are tried when that is asked for."""

FINISH_CLIENTS = 128
"""Clients with one bias up to which the remaining gap is closed by branching."""

PRICED = 12
"""Questions about all clients where the prices of slots are sought anew for each."""

MANY, LARGE = 20_000, 1e-3
"""Clients beyond which a gap up to this is not worth many looks at all pairs of moves."""


def solve_schedule(
    u: ArrayLike,
    b: ArrayLike,
    capacity: int | None = None,
    *,
    counts: ArrayLike | None = None,
    draw: Draw | None = None,
    start: ArrayLike | None = None,
    keep_best: bool = False,
    progress: Progress | None = None,
) -> Schedule:
    """Choose a column for each row of the tables: minimise Σu + ‖Σb‖².

    `u` `[m, T]` (infinite: that column is forbidden), `b` `[m, T]` or `[m, T, d]`. At most
    `capacity` clients may share a column. `counts[i]` clients share row i (without capacity).
    With a `draw`, what its largest scale loses is added: the server draws noise once. `start` is a
    first guess of the multipliers, from an earlier solution. With `keep_best`, Ctrl-C ends the
    search early with the best schedule so far and its honest gap.

    Guarantees
        No schedule that keeps to the capacity has an objective below `lower_bound` (to rounding,
        a relative 1e-12). Small problems end at gap 0. Without capacity time is O(m·T) for a
        fixed number of passes. `check_schedule` recomputes the bound from the proof.

    >>> schedule = solve_schedule([[1.0, 0.0], [0.0, 2.0]], [[0.0, 3.0], [1.0, -2.0]])
    >>> schedule.columns.tolist(), schedule.objective, schedule.relative_gap
    ([0, 0], 2.0, 0.0)
    """
    tables = Tables(u, b)
    many = checked_counts(counts, tables.clients)
    guess = None if start is None else _checked_start(start, tables.dimensions)
    limit = _checked_capacity(capacity, tables.clients, tables.slots, many)
    if draw is not None:
        draw = _checked_draw(draw, tables.u)
    if limit is not None or draw is not None:
        check_block(0, tables.u, tables.b)
    if many is None and _few(tables.clients, tables.slots):
        check_block(0, tables.u, tables.b)
        evaluate = table_objective(tables.u, tables.b, draw)
        return exhaustive(evaluate, tables.clients, tables.slots, limit)
    choose = _chooser(limit, tables.clients, tables.slots)
    if draw is not None:
        if many is not None:
            raise InvalidInput("counts", "given with a draw", "one of the two")
        oracle = Costs(tables.u, tables.b, draw)
        few = limit is None or assignable(limit, tables.clients, tables.slots)
        steps = STEPS if few else PRICED
        return search(oracle, choose, capacity=limit, steps=steps, progress=progress)
    if limit is not None and not assignable(limit, tables.clients, tables.slots):
        at = np.zeros(tables.dimensions) if guess is None else guess
        return by_prices(tables, limit, at, keep_best, progress)
    if tables.dimensions == 1 and limit is None:
        return _one_bias(tables, many, guess, keep_best, progress)
    check_block(0, tables.u, tables.b)
    costs = Costs(tables.u, tables.b)
    if many is not None:
        costs = Costs(tables.u * many[:, None], tables.b * many[:, None, None])
    found = search(
        costs,
        choose,
        capacity=limit,
        start=guess,
        keep_best=keep_best,
        progress=progress,
    )
    return (
        found if many is None else replace(found, allocation=_shared(found.columns, many, tables))
    )


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
    if tables.dimensions == 1:
        return _one_bias(tables, many, guess, False, progress)
    weights, passes = members_of(tables, many), 0

    def ask(at: Array) -> Answer:
        nonlocal passes
        columns, cost, bias, value = choose_all(tables, weights, at, check=passes == 0)
        passes += 1
        if progress is not None:
            progress(passes, STEPS)
        return Answer(at, value, cost, bias, columns)

    eye = np.eye(tables.dimensions)
    guess = np.zeros(tables.dimensions) if guess is None else guess
    dual = maximise(ask, lambda _: eye, guess, math.inf, STEPS)
    best = min((*dual.answers, dual.best), key=lambda one: one.cost + float(one.bias @ one.bias))
    objective = best.cost + float(best.bias @ best.bias)
    return Schedule(
        best.columns,
        objective,
        min(dual.best.bound, objective),
        passes,
        multipliers=dual.best.at,
        allocation=None if many is None else _shared(best.columns, many, tables),
        proof=Leaf(tuple(dual.best.at.tolist())),
    )


def solve_gains(
    tables: GainTables,
    capacity: int | None = None,
    *,
    counts: ArrayLike | None = None,
    draw: Draw | None = None,
    start: Array | None = None,
    progress: Progress | None = None,
) -> Schedule:
    """Choose a column and gains for each client: minimise what the server does not know.

    At most `capacity` clients may share a column. `counts[i]` clients, alike in column and gain,
    share row i (without capacity). With a `draw` the server adds noise once, for the client that
    needs most: `tables` have one coordinate then, and no noise in their power. `start` is a first
    guess of the multipliers.

    Guarantees
        No schedule that keeps to the capacity, with whatever gains, has an objective below
        `lower_bound` (to rounding). Small problems end at gap 0. `check_gains` recomputes it.
    """
    many = checked_counts(counts, tables.clients)
    limit = _checked_capacity(capacity, tables.clients, tables.slots, many)
    tables = tables if many is None else tables.times(many)
    if draw is None and _few(tables.clients, tables.slots):
        return try_all_gains(tables, limit)
    few = limit is None or assignable(limit, tables.clients, tables.slots)
    return search(
        Gains(tables, draw),
        _chooser(limit, tables.clients, tables.slots),
        capacity=limit,
        steps=STEPS if few else PRICED,
        start=None if start is None else np.ravel(np.asarray(start, float)),
        progress=progress,
    )


def try_all_gains(tables: GainTables, capacity: int | None, draw: Draw | None = None) -> Schedule:
    """The best of all schedules, each with its best gains.

    With a draw gains are sought only for schedules that might be better than the best so far.
    """
    if draw is None:
        found = exhaustive(gain_objective(tables), tables.clients, tables.slots, capacity)
        gains = best_gains(tables, found.columns)
        value = gap_of(tables, found.columns, gains)  # the same, but for rounding
        return replace(found, objective=value, lower_bound=value, gains=gains)
    oracle = Gains(tables, draw)
    best = solve_gains(tables, capacity, draw=draw)
    at = oracle.settle(best.columns).bias
    for block in all_schedules(tables.clients, tables.slots, capacity, MOST_TRIED):
        least = least_losses(tables, block, draw.scales, draw.power, at)
        for columns in block[least < best.objective]:
            tried = oracle.settle(columns)
            if tried.objective < best.objective:
                best = replace(best, columns=columns, objective=tried.objective, gains=tried.gains)
    count = tables.slots**tables.clients
    return Schedule(best.columns, best.objective, best.objective, count, gains=best.gains)


def _few(clients: int, slots: int) -> bool:
    """Whether all schedules can simply be tried."""
    return EXHAUSTIVE > 0 and clients * math.log(slots) <= math.log(EXHAUSTIVE)


def _chooser(limit: int | None, clients: int, slots: int) -> Chooser:
    return least_of_each if limit is None else within(limit, clients, slots)


def _shared(
    columns: NDArray[np.intp], many: NDArray[np.int64], tables: Tables
) -> NDArray[np.int64]:
    """How many clients of each row take each column, if all of a row take the same."""
    shares = np.zeros((tables.clients, tables.slots), dtype=np.int64)
    shares[np.arange(tables.clients), columns] = many
    return shares


def _one_bias(
    tables: Tables,
    counts: NDArray[np.int64] | None,
    start: Array | None,
    keep_best: bool,
    progress: Progress | None,
) -> Schedule:
    """The search on a line; then moves, and for few clients branching."""
    schedule = search_one_bias(tables, counts, start)
    at = schedule.multipliers
    if at is None:
        return schedule
    schedule = replace(schedule, proof=Leaf(tuple(at.tolist())))
    if counts is not None or not tables.in_memory or tables.clients > SAMPLE:
        return schedule
    gap = schedule.relative_gap or 0.0
    if tables.clients <= FINISH_CLIENTS:
        found = search(
            Costs(tables.u, tables.b),
            start=at,
            columns=schedule.columns,
            keep_best=keep_best,
            progress=progress,
        )
        return replace(found, iterations=found.iterations + schedule.iterations)
    if gap > ENOUGH:
        columns, objective = improve(
            tables.u,
            tables.b,
            schedule.columns,
            at,
            thorough=tables.clients <= MANY or gap > LARGE,
        )
        if objective < schedule.objective:
            schedule = replace(schedule, columns=columns, objective=objective)
    return schedule


def _checked_capacity(
    capacity: int | None, clients: int, slots: int, counts: NDArray[np.int64] | None
) -> int | None:
    """A capacity that can be met, or None where nobody can exceed it."""
    if capacity is None:
        return None
    limit = whole("capacity", capacity, 1)
    if counts is not None:
        raise InvalidInput(
            "counts", "given with a capacity", "one of the two", "Give each client its row."
        )
    if clients > limit * slots:
        raise InvalidInput(
            "capacity",
            limit,
            f"at least {-(-clients // slots)} for {clients} clients in {slots} slots",
            "No schedule exists: raise the capacity or add slots.",
        )
    return limit if limit < clients else None


def _checked_draw(draw: Draw, u: Array) -> Draw:
    instance("draw", draw, Draw, "a Draw, or none")
    scales = finite_array("scales", draw.scales, "finite scales, 0 or more")
    if scales.shape != u.shape or (scales < 0).any():
        raise InvalidInput("scales", f"of shape {scales.shape}", f"0 or more, shape {u.shape}")
    return Draw(scales, draw.power)


def _checked_start(start: ArrayLike, dimensions: int) -> Array:
    values = np.atleast_1d(numbers("start", start, f"{dimensions} finite multipliers"))
    if values.shape != (dimensions,) or not np.isfinite(values).all():
        raise InvalidInput("start", start, f"{dimensions} finite multipliers")
    return values
