"""Improve a schedule by moving one or two clients at a time, or by trading slots."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array

CANDIDATES = 1536
"""Moves of small reduced cost that are tried in pairs."""

OCTAVES = 16
"""Sizes of steps that are told apart, each half the one before."""

ROUNDS = 200

MANY = 20_000
"""Clients beyond which sums have more digits than floats, but are not exact."""

SWAPS = 40
"""Rounds of trades."""

TRADES = 500
"""Trades of small reduced cost that are tried in pairs."""

TABLE = 4_000_000
"""Numbers of the table of all trades, at most."""

NEAR = np.arange(-2, 2)
"""The partners tried for each move: those that come closest to cancelling what is left."""


def improve(
    u: Array, b: Array, columns: NDArray[np.intp], multipliers: Array, *, thorough: bool = True
) -> tuple[NDArray[np.intp], float]:
    """Return a schedule at least as good, and its objective; `b` is `[m, T, d]`.

    The moves tried are those that cost least at the multipliers λ, where a schedule's objective
    is L(λ) + Σ reduced costs + ‖Σb − λ‖²: alone, and in pairs. Not `thorough`: in so few rounds
    that all pairs take about as long as a look at the tables.
    """
    rows = np.arange(len(u))
    columns = np.array(columns, dtype=np.intp)
    client, column = cheap_moves(u, b, columns, multipliers)
    bias = b[rows, columns].sum(axis=0)
    rounds = ROUNDS if thorough or not client.size else max(5, u.size // client.size**2)
    for _ in range(rounds if client.size else 0):
        costs = u[client, column] - u[client, columns[client]]
        steps = b[client, column] - b[client, columns[client]]
        alone = costs + ((bias + steps) ** 2).sum(axis=1) - (bias**2).sum()
        base = costs + 2 * steps @ bias
        paired = base[:, None] + base[None, :]
        for k in range(b.shape[2]):
            paired += (steps[:, k, None] + steps[None, :, k]) ** 2
        paired[client[:, None] == client[None, :]] = np.inf
        one = int(np.argmin(alone))
        two = np.unravel_index(int(np.argmin(paired)), paired.shape)
        picked = [one] if alone[one] <= paired[two] else [int(two[0]), int(two[1])]
        if not min(alone[one], paired[two]) < -1e-15 * (bias @ bias):
            break
        columns[client[picked]] = column[picked]
        bias = bias + steps[picked].sum(axis=0)
    return columns, _objective(u, b, columns)


def cheap_moves(
    u: Array, b: Array, columns: NDArray[np.intp], multipliers: Array
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Moves of small reduced cost and of every size of step, as (client, column).

    Large steps and small ones, in either direction, are each represented by their cheapest:
    together they can make up any difference between Σb and λ.
    """
    few = 200_000 // u.shape[1] + 1
    some = np.arange(len(u)) if len(u) <= few else np.linspace(0, len(u) - 1, few).astype(np.intp)
    cost = u[some] + 2 * (b[some] @ multipliers)
    reduced = (cost - cost.min(axis=1, keepdims=True)).ravel()
    step = (b[some] - b[some, columns[some]][:, None]).reshape(-1, b.shape[2])
    size = np.abs(step).max(axis=1)
    largest = float(size.max()) or 1.0
    with np.errstate(divide="ignore"):
        octave = np.clip(-np.log2(size / largest), 0, OCTAVES - 1).astype(np.intp)
    kind = 2 * octave + (step[:, 0] > 0)
    usable = np.isfinite(reduced) & (size > 0)
    order = np.lexsort((reduced, kind))
    order = order[usable[order]]
    first = np.searchsorted(kind[order], np.arange(2 * OCTAVES))
    rank = np.arange(order.size) - first[kind[order]]
    client, column = np.unravel_index(order[rank < CANDIDATES // (2 * OCTAVES)], cost.shape)
    return some[client], column


def _objective(u: Array, b: Array, columns: NDArray[np.intp]) -> float:
    rows = np.arange(len(u))
    if len(u) > MANY:
        exact = np.longdouble  # biases may cancel out
        bias = b[rows, columns].sum(axis=0, dtype=exact)
        return float(u[rows, columns].sum(dtype=exact) + (bias * bias).sum())
    bias = [math.fsum(column) for column in b[rows, columns].T.tolist()]
    return math.fsum([*u[rows, columns].tolist(), *(one * one for one in bias)])


def best_moves(
    price: Array, step: Array, client: NDArray[np.intp], off: float
) -> tuple[list[int], float]:
    """Which one or two moves lower Σ price + (off + Σ step)² most, and by how much that changes.

    Two moves of one client are no pair. For each move the partners looked at are those with steps
    nearest to what it leaves: O(n log n).
    """
    alone = price + (off + step) ** 2
    order = np.argsort(step)
    place = np.searchsorted(step[order], -(off + step))
    partner = order[np.clip(place[:, None] + NEAR, 0, order.size - 1)]
    paired = price[:, None] + price[partner] + (off + step[:, None] + step[partner]) ** 2
    paired[client[:, None] == client[partner]] = np.inf
    one = int(np.argmin(alone))
    two = np.unravel_index(int(np.argmin(paired)), paired.shape)
    if alone[one] <= paired[two]:
        return [one], float(alone[one]) - off**2
    return [int(two[0]), int(partner[two])], float(paired[two]) - off**2


def trade(
    u: Array, b: Array, columns: NDArray[np.intp], capacity: int, at: Array
) -> NDArray[np.intp]:
    """Let clients trade slots, or move to a free place, alone or two trades at once.

    Trades of small reduced cost at λ are weighed in pairs, since two of them can cancel each
    other's effect on Σ b. Where there are too many of them, columns stay as they are.
    """
    count = len(u)
    if count * (count + u.shape[1]) * b.shape[2] > TABLE:
        return columns
    rows = np.arange(count)
    columns, objective = columns.copy(), _objective(u, b, columns)
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
        cheap = np.argpartition((cost + 2 * (step @ at)).ravel(), min(TRADES, cost.size) - 1)[
            :TRADES
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
        value = _objective(u, b, trial)
        if not value < objective:
            break
        columns, objective = trial, value
    return columns
