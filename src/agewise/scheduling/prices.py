"""Capacity for many clients: slot prices from a sample, refined on all of them.

Then clients are moved out of overfull slots where that costs least, into better ones that have
room, and so that Σ b comes near λ.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.progress import Progress
from agewise.scheduling.schedule import Leaf, Schedule
from agewise.scheduling.tables import Tables, no_schedule

SAMPLE = 20_000
REFINEMENTS = 10
ROUNDS = 25


def by_prices(
    tables: Tables, capacity: int, start: Array, keep_best: bool, progress: Progress | None
) -> Schedule:
    """Prices from a sample, refined on all clients; then overfull slots are emptied."""
    u, b = tables.u, tables.b
    clients = tables.clients
    stride = max(1, clients // SAMPLE)
    share = len(u[::stride]) / clients
    at, prices, stiffness = _sampled_prices(
        u[::stride], b[::stride], capacity * share, share, start
    )
    best_bound, best_pair = -math.inf, (at, prices)
    damping, complete = 1.0, True
    try:
        for step in range(REFINEMENTS):
            _, bias, load, value = _ask_priced(tables, at, prices, capacity)
            if value > best_bound:
                best_bound, best_pair = value, (at, prices)
            else:
                damping /= 2
            if progress is not None:
                progress(step + 1, REFINEMENTS)
            excess = load - capacity
            prices = np.maximum(0.0, best_pair[1] + damping * excess / stiffness)
            at = best_pair[0] + damping * 0.5 * (bias - best_pair[0])
    except KeyboardInterrupt:
        if not keep_best or not math.isfinite(best_bound):
            raise
        complete = False
    at, prices = best_pair
    columns, _, _, _ = _ask_priced(tables, at, prices, capacity)
    columns = _relieve(tables, columns, at, prices, capacity)
    columns = _move_to_room(tables, columns, at, capacity)
    columns = _rebalance(tables, columns, at, prices, capacity)
    schedule = _as_schedule_blocks(tables, columns)
    return replace(
        schedule,
        lower_bound=min(best_bound, schedule.objective),
        multipliers=at,
        prices=prices,
        iterations=REFINEMENTS,
        proof=Leaf(tuple(at.tolist()), tuple(prices.tolist())),
        complete=complete,
    )


def _sampled_prices(
    u: Array, b: Array, capacity: float, share: float, start: Array
) -> tuple[Array, Array, Array]:
    """Maximise the dual of a sample, minima smoothed ever less; also how loads answer to prices.

    The bias of the whole is that of the sample over `share`.
    """
    slots, dimensions = b.shape[1:]
    spread = float(np.median(np.ptp(np.where(np.isfinite(u), u, u.min(axis=1)[:, None]), axis=1)))
    spread = spread or 1.0
    lean = float(np.median(np.ptp(b, axis=1))) or 1.0
    unit = np.concatenate([np.full(dimensions, spread / lean), np.full(slots, spread)])
    point = np.concatenate([start, np.zeros(slots)]) / unit
    chance = np.zeros_like(u)

    def negative(x: Array, heat: float) -> tuple[float, Array]:
        nonlocal chance
        at, prices = (x * unit)[:dimensions], (x * unit)[dimensions:]
        cost = u + 2 * (b @ at) + prices
        least = cost.min(axis=1, keepdims=True)
        chance = np.exp((least - cost) / heat)
        mass = chance.sum(axis=1, keepdims=True)
        chance /= mass
        value = float((least - heat * np.log(mass)).sum()) - capacity * float(prices.sum())
        bias = np.einsum("it,itk->k", chance, b)
        slope = np.concatenate([2 * bias - 2 * share * at, chance.sum(axis=0) - capacity])
        size = spread * len(u)
        return -(value - share * float(at @ at)) / size, -slope * unit / size

    bounds = [(None, None)] * dimensions + [(0, None)] * slots
    heat = spread
    for cooling in (0.1, 0.01, 0.001, 0.0002):
        heat = spread * cooling
        from scipy.optimize import minimize  # noqa: PLC0415

        result = minimize(
            negative,
            point,
            args=(heat,),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": 200, "ftol": 1e-14, "gtol": 1e-12},
        )
        point = np.asarray(result.x)
    negative(point, heat)
    stiffness = (chance * (1 - chance)).sum(axis=0) / heat / share
    solution = point * unit
    return solution[:dimensions], solution[dimensions:], np.maximum(stiffness, 1e-300)


def _ask_priced(
    tables: Tables, at: Array, prices: Array, capacity: int
) -> tuple[NDArray[np.intp], Array, NDArray[np.int64], float]:
    """All clients' choices at these prices: columns, Σ b, loads and L(λ, π)."""
    columns = np.empty(tables.clients, dtype=np.intp)

    def work(first: int, u: Array, b: Array) -> tuple[float, Array]:
        cost = b @ (2 * at)
        cost += u
        cost += prices
        picked = cost.argmin(axis=1)
        rows = np.arange(len(u))
        columns[first : first + len(u)] = picked
        return float(cost[rows, picked].sum()), b[rows, picked].sum(axis=0)

    parts = tables.map(work)
    value = math.fsum(p[0] for p in parts) - float(at @ at) - capacity * float(prices.sum())
    load = np.bincount(columns, minlength=tables.slots)
    return columns, np.sum([p[1] for p in parts], axis=0), load, value


def _relieve(
    tables: Tables, columns: NDArray[np.intp], at: Array, prices: Array, capacity: int
) -> NDArray[np.intp]:
    """Move clients out of overfull slots, those first that lose least, until none is overfull."""
    columns = columns.copy()
    for _ in range(10 * tables.slots):
        load = np.bincount(columns, minlength=tables.slots)
        over = load > capacity
        if not over.any():
            return columns
        room = np.maximum(capacity - load, 0)
        movers = np.flatnonzero(over[columns])
        cost = tables.u[movers] + tables.b[movers] @ (2 * at) + prices
        cost -= cost[np.arange(movers.size), columns[movers]][:, None]
        cost[:, room == 0] = np.inf
        target = cost.argmin(axis=1)
        loss = cost[np.arange(movers.size), target]
        order = np.argsort(loss, kind="stable")
        if not np.isfinite(loss[order[0]]):
            break
        excess = load - capacity
        order = order[np.isfinite(loss[order])]
        leaving = _first_of_each(columns[movers[order]], np.maximum(excess, 0))
        order = order[leaving]
        order = order[_first_of_each(target[order], room)]
        columns[movers[order]] = target[order]
    return _by_flow(tables, capacity)


def _by_flow(tables: Tables, capacity: int) -> NDArray[np.intp]:
    """Any schedule in the capacity, by maximum flow; says so if there is none."""
    clients, slots = tables.clients, tables.slots
    who, where = np.nonzero(np.isfinite(tables.u))
    source, sink = clients + slots, clients + slots + 1
    start = np.concatenate([np.full(clients, source), who, clients + np.arange(slots)])
    end = np.concatenate([np.arange(clients), clients + where, np.full(slots, sink)])
    size = np.concatenate([np.ones(clients + who.size), np.full(slots, capacity)]).astype(np.int32)
    from scipy.sparse import csr_array  # noqa: PLC0415
    from scipy.sparse.csgraph import maximum_flow  # noqa: PLC0415

    graph = csr_array((size, (start, end)), shape=(sink + 1, sink + 1))
    flow = maximum_flow(graph, source, sink)
    if flow.flow_value < clients:
        raise no_schedule()
    used = flow.flow.tocoo()
    taken = (used.data > 0) & (used.row < clients)
    columns = np.empty(clients, dtype=np.intp)
    columns[used.row[taken]] = used.col[taken] - clients
    return columns


def _move_to_room(
    tables: Tables, columns: NDArray[np.intp], at: Array, capacity: int
) -> NDArray[np.intp]:
    """Let clients move to slots with room where that is cheaper for them, who gains most first."""
    columns = columns.copy()
    for _ in range(ROUNDS):
        room = capacity - np.bincount(columns, minlength=tables.slots)
        open_slots = np.flatnonzero(room > 0)
        if not open_slots.size:
            break

        def work(first: int, u: Array, b: Array) -> tuple[NDArray[np.intp], ...]:
            rows = np.arange(len(u))
            own = columns[first : first + len(u)]
            now = u[rows, own] + b[rows, own] @ (2 * at)
            cost = u[:, open_slots] + b[:, open_slots] @ (2 * at)  # noqa: B023
            place = cost.argmin(axis=1)
            gain = now - cost[rows, place]
            moving = np.flatnonzero(gain > 0)
            return first + moving, open_slots[place[moving]], gain[moving]  # noqa: B023

        parts = tables.map(work)
        who, target, gain = (np.concatenate([p[k] for p in parts]) for k in range(3))
        order = np.argsort(-gain, kind="stable")
        order = order[_first_of_each(target[order], room)]
        if not order.size:
            break
        columns[who[order]] = target[order]
        if order.size < 1e-4 * tables.clients:
            break
    return columns


def _rebalance(
    tables: Tables, columns: NDArray[np.intp], at: Array, prices: Array, capacity: int
) -> NDArray[np.intp]:
    """Move clients to slots with room so that Σ b comes near λ, at the least reduced cost.

    The clients are looked at in parts, twice over; each part makes up its share of what is still
    missing, with the moves that cost least for what they bring.
    """
    columns = columns.copy()
    rows = np.arange(tables.clients)
    parts = np.array_split(
        np.random.default_rng(0).permutation(tables.clients),
        max(1, tables.clients // 50_000),
    )
    parts = [part for _ in range(2) for part in parts]
    off = tables.b[rows, columns].sum(axis=0) - at
    for done, some in enumerate(parts):
        room = capacity - np.bincount(columns, minlength=tables.slots)
        if not (room > 0).any() or not off.any():
            break
        u, b = tables.u[some], tables.b[some]
        here = np.arange(some.size)
        cost = u + 2 * (b @ at) + prices
        cost -= cost[here, columns[some]][:, None]
        step = b - b[here, columns[some]][:, None]
        gain = -2 * (step @ off) - (step**2).sum(axis=2)  # how much nearer, alone
        usable = (gain > 0) & (room > 0) & (cost < gain)
        # A move that is free but brings nothing must not stand in the way of one that does.
        toll = 1e-2 * float(np.abs(cost[usable]).mean()) if usable.any() else 0.0
        rate = np.where(usable, (np.maximum(cost, 0) + toll) / np.where(usable, gain, 1), np.inf)
        target = rate.argmin(axis=1)
        order = np.argsort(rate[here, target], kind="stable")
        order = order[np.isfinite(rate[here, target][order])]
        order = order[_first_of_each(target[order], np.maximum(room, 0))]
        aim = off * (1 - 1 / max(1, len(parts) // 2 - done))  # the second round mends the rest
        path = off + np.cumsum(step[order, target[order]], axis=0)
        nearest = ((path - aim) ** 2).sum(axis=1)
        if not order.size or nearest.min() >= float((off - aim) @ (off - aim)):
            continue
        last = int(nearest.argmin())
        columns[some[order[: last + 1]]] = target[order[: last + 1]]
        off = path[last]
    return columns


def _first_of_each(labels: NDArray[np.intp], quota: NDArray[np.int64]) -> NDArray[np.intp]:
    """The places of the first `quota[k]` entries with label k, for every k, in order."""
    by_label = np.argsort(labels, kind="stable")
    sorted_labels = labels[by_label]
    starts = np.searchsorted(sorted_labels, np.arange(quota.size))
    rank = np.arange(labels.size) - starts[sorted_labels]
    return np.sort(by_label[rank < quota[sorted_labels]])


def _as_schedule_blocks(tables: Tables, columns: NDArray[np.intp]) -> Schedule:
    def work(first: int, u: Array, b: Array) -> tuple[float, Array]:
        rows = np.arange(len(u))
        picked = columns[first : first + len(u)]
        return float(u[rows, picked].sum()), b[rows, picked].sum(axis=0)

    parts = tables.map(work)
    bias = np.sum([p[1] for p in parts], axis=0)
    return Schedule(columns, math.fsum(p[0] for p in parts) + float(bias @ bias), None, 0)
