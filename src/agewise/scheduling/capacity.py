"""At most so many clients in one slot: prices for slots on top of the multipliers for bias.

    L(λ, π) = Σ_i min_t [u_i(t) + 2λ·b_i(t) + π_t] − ‖λ‖² − c·Σ_t π_t,   π ≥ 0,

is a lower bound for capacity c. For a fixed λ the best prices are those of an assignment problem.
Few enough clients: it is solved exactly (SciPy's shortest augmenting paths), slots repeated c
times, and the prices follow from the solution. Many: prices are found on a sample, refined on all
clients, and clients are moved out of overfull slots where that costs least.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, minimize
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components, maximum_flow

from agewise.errors import InvalidInput
from agewise.process.joint import Array
from agewise.scheduling.branching import IMPOSSIBLE, Tree
from agewise.scheduling.mixture import search_multipliers
from agewise.scheduling.schedule import Leaf, Schedule
from agewise.scheduling.tables import Tables

Progress = Callable[[int, int], None]

ASSIGNMENT_CELLS = 600_000
"""Clients × places up to which the assignment is solved exactly."""

NODES = 120
"""Parts of the search space looked at with exact assignments."""

WORK = 150_000_000
"""Cells of assignment problems after which the search keeps what it has."""

ENOUGH = 5e-7
"""Relative gap at which the search with a capacity stops."""

SAMPLE = 20_000
REFINEMENTS = 10
ROUNDS = 25
SWAPS = 40
CANDIDATES = 500

_NO_SCHEDULE = "No schedule exists: allow more slots or raise the capacity."


def solve_with_capacity(
    tables: Tables, capacity: int, start: Array | None, keep_best: bool, progress: Progress | None
) -> Schedule:
    """Return a schedule with at most `capacity` clients a slot, and a bound for it."""
    at = np.zeros(tables.dimensions) if start is None else start
    if tables.clients * capacity * tables.slots <= ASSIGNMENT_CELLS:
        return _by_assignment(tables, capacity, at, keep_best, progress)
    return _by_prices(tables, capacity, at, progress)


def priced_bound(u: Array, b: Array, at: Array, prices: Array, capacity: int) -> float:
    """L(λ, π)."""
    least = (u + 2 * (b @ at) + prices).min(axis=1)
    return math.fsum(least.tolist()) - float(at @ at) - capacity * math.fsum(prices.tolist())


def _by_assignment(
    tables: Tables, capacity: int, start: Array, keep_best: bool, progress: Progress | None
) -> Schedule:
    """Best-first branch and bound; the bound of a node is that of its assignment problems.

    With one bias, a node whose two best assignments at λ lie far apart in Σ b is split on the
    client that differs most. With several, there is only the first node.
    """
    u, b = tables.u, tables.b
    tree = Tree()
    state = _State(u, b, capacity, Schedule(np.arange(len(u)), math.inf, None, 0))
    everything = np.full((2, len(u)), [[-np.inf], [np.inf]])
    complete = True
    opened: list[tuple[float, int, _Node]] = []
    done = math.inf
    try:
        root = state.evaluate(everything, start, tree)
        if root is None:
            raise InvalidInput(
                "u", "infinite in too many slots", "a schedule in the capacity", _NO_SCHEDULE
            )
        opened.append((root.bound, root.number, root))
        cells = tables.clients * capacity * tables.slots
        while opened and tables.dimensions == 1 and len(tree.multipliers) < NODES:
            if state.asked * cells > WORK:
                break
            bound, _, node = heapq.heappop(opened)
            if bound >= state.best.objective * (1 - ENOUGH):
                done = min(done, bound)
                continue
            children = []
            for side in (0, 1):
                interval = node.interval.copy()
                if side == 0:
                    interval[1, node.client] = min(interval[1, node.client], node.threshold)
                else:
                    above = float(np.nextafter(node.threshold, np.inf))
                    interval[0, node.client] = max(interval[0, node.client], above)
                child = state.evaluate(interval, node.at, tree)
                children.append(tree.add([IMPOSSIBLE])[0] if child is None else child.number)
                if child is not None:
                    heapq.heappush(opened, (max(child.bound, bound), child.number, child))
            below, above_it = (int(child) for child in children)
            tree.cuts[node.number] = node.client, node.threshold, below, above_it
            if progress is not None:
                progress(len(tree.multipliers), len(tree.multipliers) + len(opened))
    except KeyboardInterrupt:
        if not keep_best or not opened:
            raise
        complete = False
    lowest = min([done, *(bound for bound, _, _ in opened)])
    first = tree.multipliers[0]
    return replace(
        state.best, lower_bound=min(lowest, state.best.objective), iterations=state.asked,
        multipliers=np.array(first.multipliers), prices=np.array(first.prices),
        proof=tree.proof() if complete else first, complete=complete,
    )  # fmt: skip


@dataclass(eq=False)
class _Node:
    interval: Array  # [2, m]: least and largest bias of each client
    bound: float
    at: Array
    client: int
    threshold: float
    number: int


@dataclass(eq=False)
class _State:
    """The tables, and the best schedule seen while nodes are evaluated."""

    u: Array
    b: Array
    capacity: int
    best: Schedule
    asked: int = 0

    def evaluate(self, interval: Array, start: Array, tree: Tree) -> _Node | None:
        """Find a node's multipliers and prices, and try its assignments as schedules."""
        u, b, capacity = self.u, self.b, self.capacity
        inside = (b[:, :, 0] >= interval[0][:, None]) & (b[:, :, 0] <= interval[1][:, None])
        cost = np.where(inside, u, np.inf)
        allowed = np.isfinite(cost)
        if not allowed.any(axis=1).all():
            return None
        rows = np.arange(len(u))
        answers: list[tuple[float, Array, NDArray[np.intp]]] = []

        def ask(at: Array) -> tuple[float, Array]:
            self.asked += 1
            weighed = cost + 2 * (b @ at)
            # What is forbidden costs more than any allowed assignment.
            ceiling = (np.abs(weighed[allowed]).max() + 1e-300) * 4 * len(u)
            weighed[~allowed] = ceiling
            columns = linear_sum_assignment(np.repeat(weighed, capacity, axis=1))[1] // capacity
            spent, bias = float(cost[rows, columns].sum()), b[rows, columns].sum(axis=0)
            answers.append((spent + 2 * float(at @ bias) - float(at @ at), at, columns))
            return spent, bias

        if not math.isfinite(ask(start)[0]):
            return None
        if b.shape[2] == 1:
            _search_line(ask, cost, b, float(start[0]))
        else:
            search_multipliers(ask, start)
        _, at, columns = max(answers, key=lambda one: one[0])
        prices = _prices_of(cost + 2 * (b @ at), columns, capacity)
        bound = priced_bound(cost, b, at, prices, capacity)
        self._try(columns, [one[2] for one in answers[-6:]], at)
        near = sorted(answers, key=lambda one: float(abs(one[1] - at).sum()))[:8]
        biases = [float(b[rows, one[2], 0].sum()) for one in near]
        left, right = near[int(np.argmin(biases))][2], near[int(np.argmax(biases))][2]
        jump = np.abs(b[rows, left, 0] - b[rows, right, 0])
        client = int(jump.argmax())
        one, two = b[client, left[client], 0], b[client, right[client], 0]
        middle = (one + two) / 2
        threshold = float(middle if middle < max(one, two) else min(one, two))
        number = int(tree.add([Leaf(tuple(at.tolist()), tuple(prices.tolist()))])[0])
        return _Node(interval, bound, at, client, threshold, number)

    def _try(self, columns: NDArray[np.intp], others: list[NDArray[np.intp]], at: Array) -> None:
        mixed = columns
        for other in others:
            mixed = _mix(self.b, mixed, other, at, self.u.shape[1])
        for one in (mixed, columns):
            made = _as_schedule(self.u, self.b, one)
            if made.objective < self.best.objective * 1.05:
                made = _trade(self.u, self.b, made, self.capacity, at)
            if made.objective < self.best.objective:
                self.best = made


def _as_schedule(u: Array, b: Array, columns: NDArray[np.intp]) -> Schedule:
    rows = np.arange(len(u))
    bias = b[rows, columns].sum(axis=0)
    return Schedule(columns, math.fsum(u[rows, columns].tolist()) + float(bias @ bias), None, 0)


def _search_line(
    ask: Callable[[Array], tuple[float, Array]], u: Array, b: Array, at: float
) -> None:
    """Close in on the λ that equals Σ b of its own assignment.

    Every answer is a parabola above the concave dual; the next λ is where the two at the ends of
    the bracket cross.
    """
    allowed = np.isfinite(u)[:, :, None]
    low = float(np.where(allowed, b, np.inf).min(axis=1).sum())
    high = float(np.where(allowed, b, -np.inf).max(axis=1).sum())
    narrow = 1e-13 * (high - low)
    ends: dict[str, tuple[float, float]] = {}
    at = min(max(at, low), high)
    for _ in range(80):
        cost, bias = ask(np.array([at]))
        if bias[0] >= at:
            low, ends["low"] = at, (cost, float(bias[0]))
        if bias[0] <= at:
            high, ends["high"] = at, (cost, float(bias[0]))
        if high - low <= narrow:
            return
        following = (low + high) / 2
        if len(ends) == 2 and ends["low"][1] != ends["high"][1]:
            (cost_low, bias_low), (cost_high, bias_high) = ends["low"], ends["high"]
            following = (cost_high - cost_low) / (2 * (bias_low - bias_high))
        elif len(ends) == 2:
            following = ends["low"][1]
        if not low < following < high:
            if len(ends) == 2 and following in (low, high):
                return  # the two answers cross where one of them was given: it is the peak
            following = (low + high) / 2
        at = following


def _prices_of(cost: Array, columns: NDArray[np.intp], capacity: int) -> Array:
    """Prices at which every client is content with its slot of an optimal assignment.

    π_s is the least that it costs to move someone from s, directly or along a chain, to a slot
    with room: shortest paths (Bellman and Ford).
    """
    slots = cost.shape[1]
    move = np.full((slots, slots), np.inf)
    np.minimum.at(move, columns, cost - cost[np.arange(len(cost)), columns][:, None])
    room = np.bincount(columns, minlength=slots) < capacity
    full = not room.any()
    if full:
        room[0] = True
    prices = np.where(room, 0.0, np.inf)
    for _ in range(slots):
        shorter = np.minimum(prices, (move + prices[None, :]).min(axis=1))
        if not full:
            shorter[room] = 0
        if np.array_equal(shorter, prices):
            break
        prices = shorter
    if full:
        prices = prices - prices[np.isfinite(prices)].min()
    return np.where(np.isfinite(prices), np.maximum(prices, 0), 0.0)


def _mix(
    b: Array, one: NDArray[np.intp], other: NDArray[np.intp], at: Array, slots: int
) -> NDArray[np.intp]:
    """Take parts of two assignments that are equally good at λ, so that Σ b comes near λ.

    Clients that trade places form chains and cycles of slots; each of these can follow either
    assignment without regard to the others.
    """
    rows = np.arange(len(one))
    moved = np.flatnonzero(one != other)
    edges = coo_array((np.ones(moved.size), (one[moved], other[moved])), shape=(slots, slots))
    count, label = connected_components(edges, directed=False)
    step = np.zeros((count, b.shape[2]))
    np.add.at(step, label[one[moved]], b[moved, other[moved]] - b[moved, one[moved]])
    columns = one.copy()
    missing = at - b[rows, one].sum(axis=0)
    for part in np.argsort(-(step**2).sum(axis=1)):
        if ((missing - step[part]) ** 2).sum() < (missing**2).sum():
            missing = missing - step[part]
            chosen = moved[label[one[moved]] == part]
            columns[chosen] = other[chosen]
    return columns


def _trade(u: Array, b: Array, found: Schedule, capacity: int, at: Array) -> Schedule:
    """Let clients trade slots, or move to a free place, alone or two trades at once.

    Trades of small reduced cost at λ are weighed in pairs, since two of them can cancel each
    other's effect on Σ b.
    """
    rows = np.arange(len(u))
    columns, objective = found.columns.copy(), found.objective
    count = len(u)
    for _ in range(SWAPS):
        bias = b[rows, columns].sum(axis=0)
        free = np.flatnonzero(np.bincount(columns, minlength=u.shape[1]) < capacity)
        targets = np.concatenate([columns, free])  # first m: the slots of the others
        cost = u[:, targets] - u[rows, columns][:, None]
        step = b[:, targets] - b[rows, columns][:, None]
        cost[:, :count] += cost[:, :count].T.copy()
        step[:, :count] += step[:, :count].swapaxes(0, 1).copy()
        cost[np.tril_indices(count)] = np.inf  # a trade once, and none with oneself
        alone = cost + 2 * (step @ bias)
        cheap = np.argpartition((cost + 2 * (step @ at)).ravel(), min(CANDIDATES, cost.size) - 1)[
            :CANDIDATES
        ]
        who, where = np.unravel_index(cheap, cost.shape)
        base, steps = alone[who, where], step[who, where]
        partner = np.where(where < count, where, -1 - targets[where])  # a free slot counts too
        paired = base[:, None] + base[None, :]
        for k in range(b.shape[2]):
            paired += (steps[:, k, None] + steps[None, :, k]) ** 2
        clash = (who[:, None] == who) | (who[:, None] == partner) | (partner[:, None] == partner)
        paired[clash | clash.T] = np.inf
        alone += (step**2).sum(axis=2)
        first = np.unravel_index(int(np.argmin(alone)), alone.shape)
        pair = np.unravel_index(int(np.argmin(paired)), paired.shape)
        trades = [first] if alone[first] <= paired[pair] else [(who[p], where[p]) for p in pair]
        trial = columns.copy()
        for client, target in trades:
            trial[client] = targets[target]
            if target < count:
                trial[target] = columns[client]
        made = _as_schedule(u, b, trial)
        if not made.objective < objective:
            break
        columns, objective = trial, made.objective
    return replace(found, columns=columns, objective=objective)


def _by_prices(tables: Tables, capacity: int, start: Array, progress: Progress | None) -> Schedule:
    """Prices from a sample, refined on all clients; then overfull slots are emptied."""
    u, b = tables.u, tables.b
    clients = tables.clients
    stride = max(1, clients // SAMPLE)
    share = len(u[::stride]) / clients
    at, prices, stiffness = _sampled_prices(
        u[::stride], b[::stride], capacity * share, share, start
    )
    best_bound, best_pair = -math.inf, (at, prices)
    damping = 1.0
    for step in range(REFINEMENTS):
        _, bias, load, value = _ask_priced(tables, at, prices, capacity)
        if progress is not None:
            progress(step + 1, REFINEMENTS)
        if value > best_bound:
            best_bound, best_pair = value, (at, prices)
        else:
            damping /= 2
        excess = load - capacity
        prices = np.maximum(0.0, best_pair[1] + damping * excess / stiffness)
        at = best_pair[0] + damping * 0.5 * (bias - best_pair[0])
    at, prices = best_pair
    tilted = _tilt(Tables(u[::stride], b[::stride]), at, prices, capacity * share, share)
    columns, _, _, _ = _ask_priced(tables, tilted, prices, capacity)
    columns = _relieve(tables, columns, tilted, prices, capacity)
    columns = _settle(tables, columns, tilted, capacity)
    columns = _rebalance(tables, columns, at, prices, capacity)
    made = _as_schedule_blocks(tables, columns)
    return replace(
        made, lower_bound=min(best_bound, made.objective), multipliers=at, prices=prices,
        iterations=REFINEMENTS, proof=Leaf(tuple(at.tolist()), tuple(prices.tolist())),
    )  # fmt: skip


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
        result = minimize(
            negative, point, args=(heat,), jac=True, method="L-BFGS-B", bounds=bounds,
            options={"maxiter": 200, "ftol": 1e-14, "gtol": 1e-12},
        )  # fmt: skip
        point = np.asarray(result.x)
    negative(point, heat)
    stiffness = (chance * (1 - chance)).sum(axis=0) / heat / share
    found = point * unit
    return found[:dimensions], found[dimensions:], np.maximum(stiffness, 1e-300)


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


def _tilt(sample: Tables, at: Array, prices: Array, capacity: float, share: float) -> Array:
    """λ moved a little, so that Σ b is near λ once overfull slots have been emptied.

    At the best prices many clients are all but indifferent, and a slight lean one way or the
    other decides what they take. Found on a sample, one bias at a time.
    """
    room = math.ceil(capacity)
    rows = np.arange(sample.clients)

    def off(lean: Array) -> Array:
        columns = _ask_priced(sample, lean, prices, room)[0]
        columns = _settle(sample, _relieve(sample, columns, lean, prices, room), lean, room)
        return np.asarray(sample.b[rows, columns].sum(axis=0) / share - at)

    tilted = at.copy()
    for k in range(at.size):
        sign = float(np.sign(off(tilted)[k]))
        width = abs(at[k]) * 1e-3 + 1e-15
        near, far = tilted[k], tilted[k]
        for _ in range(24):  # Σ b falls as λ rises
            far = near + sign * width
            tilted[k] = far
            if np.sign(off(tilted)[k]) != sign:
                break
            near, width = far, width * 4
        for _ in range(12):
            tilted[k] = (near + far) / 2
            if np.sign(off(tilted)[k]) == sign:
                near = tilted[k]
            else:
                far = tilted[k]
    return tilted


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
    graph = csr_array((size, (start, end)), shape=(sink + 1, sink + 1))
    flow = maximum_flow(graph, source, sink)
    if flow.flow_value < clients:
        raise InvalidInput(
            "u", "infinite in too many slots", "a schedule in the capacity", _NO_SCHEDULE
        )
    used = flow.flow.tocoo()
    taken = (used.data > 0) & (used.row < clients)
    columns = np.empty(clients, dtype=np.intp)
    columns[used.row[taken]] = used.col[taken] - clients
    return columns


def _settle(
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
