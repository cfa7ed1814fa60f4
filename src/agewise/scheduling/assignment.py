"""Capacity for few clients: an exact assignment at each λ (SciPy's shortest augmenting paths).

Slots are repeated as often as the capacity allows, and the prices follow from the solution. Where
the best assignments at λ lie far apart in Σ b, the search space is split.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.progress import Progress
from agewise.scheduling.branching import IMPOSSIBLE, Tree
from agewise.scheduling.mixture import search_multipliers
from agewise.scheduling.schedule import Leaf, Schedule
from agewise.scheduling.tables import Tables, no_schedule

NODES = 120
"""Parts of the search space looked at."""

WORK = 150_000_000
"""Cells of assignment problems after which the search keeps what it has."""

ENOUGH = 5e-7
"""Relative gap at which the search stops."""

SWAPS = 40
CANDIDATES = 500


def priced_bound(u: Array, b: Array, at: Array, prices: Array, capacity: int) -> float:
    """L(λ, π)."""
    least = (u + 2 * (b @ at) + prices).min(axis=1)
    return math.fsum(least.tolist()) - float(at @ at) - capacity * math.fsum(prices.tolist())


def by_assignment(
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
    done, root = math.inf, None
    try:
        root = state.evaluate(everything, start, tree)
        if root is None:
            raise no_schedule()
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
                child = state.evaluate(interval, node.at, tree, node)
                children.append(tree.add([IMPOSSIBLE])[0] if child is None else child.number)
                if child is not None:
                    if child.bound < bound:  # what proves its parent's bound proves more of it
                        tree.multipliers[child.number] = tree.multipliers[node.number]
                    heapq.heappush(opened, (max(child.bound, bound), child.number, child))
            below, above_it = (int(child) for child in children)
            tree.cuts[node.number] = node.client, node.threshold, below, above_it
            if progress is not None:
                progress(len(tree.multipliers), len(tree.multipliers) + len(opened))
    except KeyboardInterrupt:
        if not keep_best or root is None:
            raise
        complete, done = False, root.bound  # a node may be half looked at: its parts prove nothing
    lowest = min([done, *(bound for bound, _, _ in opened)])
    first = tree.multipliers[0]
    return replace(
        state.best,
        lower_bound=min(lowest, state.best.objective),
        iterations=state.asked,
        multipliers=np.array(first.multipliers),
        prices=np.array(first.prices),
        proof=tree.proof() if complete else first,
        complete=complete,
    )


@dataclass(eq=False)
class _Node:
    interval: Array  # [2, m]: least and largest bias of each client
    bound: float
    at: Array
    prices: Array
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

    def evaluate(
        self, interval: Array, start: Array, tree: Tree, parent: _Node | None = None
    ) -> _Node | None:
        """Find a node's multipliers and prices, and try its assignments as schedules.

        What bounds the parent bounds its parts: where that is better, it is taken over.
        """
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
            from scipy.optimize import linear_sum_assignment  # noqa: PLC0415

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
        proof_at, proof_prices = at, prices
        if parent is not None:
            inherited = priced_bound(cost, b, parent.at, parent.prices, capacity)
            if inherited > bound:
                bound, proof_at, proof_prices = inherited, parent.at, parent.prices
        leaf = Leaf(tuple(proof_at.tolist()), tuple(proof_prices.tolist()))
        number = int(tree.add([leaf])[0])
        return _Node(interval, bound, proof_at, proof_prices, client, threshold, number)

    def _try(self, columns: NDArray[np.intp], others: list[NDArray[np.intp]], at: Array) -> None:
        mixed = columns
        for other in others:
            mixed = _mix(self.b, mixed, other, at, self.u.shape[1])
        for one in (mixed, columns):
            schedule = _as_schedule(self.u, self.b, one)
            if schedule.objective < self.best.objective * 1.05:
                schedule = _trade(self.u, self.b, schedule, self.capacity, at)
            if schedule.objective < self.best.objective:
                self.best = schedule


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
    longest = slots * float(np.abs(move[np.isfinite(move)]).max())
    move = np.where(np.isfinite(move), move, longest)  # forbidden: farther than any other way
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
    from scipy.sparse import coo_array  # noqa: PLC0415
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

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


def _trade(u: Array, b: Array, schedule: Schedule, capacity: int, at: Array) -> Schedule:
    """Let clients trade slots, or move to a free place, alone or two trades at once.

    Trades of small reduced cost at λ are weighed in pairs, since two of them can cancel each
    other's effect on Σ b.
    """
    rows = np.arange(len(u))
    columns, objective = schedule.columns.copy(), schedule.objective
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
        traded = _as_schedule(u, b, trial)
        if not traded.objective < objective:
            break
        columns, objective = trial, traded.objective
    return replace(schedule, columns=columns, objective=objective)
