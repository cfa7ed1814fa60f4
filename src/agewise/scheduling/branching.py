"""The exact finish for one bias: branch and bound on the dual bound.

A node restricts each client to the columns whose bias lies in an interval. Its bound is the dual
L(λ) over those columns, at the best λ found by bisection. Where the bound falls short of the best
schedule known, some client has two columns that are equally good at λ, far apart in bias: the node
is split between them, which makes both halves tighter. Nodes are handled in batches, lowest bound
first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.scheduling.local_search import improve
from agewise.scheduling.schedule import Leaf, Split

BATCH = 64
NODES = 60_000
"""Nodes after which the search gives up and keeps the bound it has."""

CELLS = 20_000_000
"""Cells of all nodes together after which it does so, too."""

BISECTIONS = 44

IMPOSSIBLE = Leaf(())
"""Stands for a part of the search space that holds no schedule."""


@dataclass(frozen=True, eq=False)
class Incumbent:
    """The best schedule so far, its objective, and a bound that no schedule beats."""

    columns: NDArray[np.intp]
    objective: float
    bound: float
    nodes: int
    tree: Tree


class Tree:
    """How the search space was cut up: grows as nodes are split, ends as a proof."""

    def __init__(self) -> None:
        self.cuts: dict[int, tuple[int, float, int, int]] = {}
        self.multipliers: list[Leaf] = []

    def add(self, leaves: list[Leaf]) -> NDArray[np.intp]:
        """Number new nodes."""
        first = len(self.multipliers)
        self.multipliers += leaves
        return np.arange(first, first + len(leaves))

    def proof(self) -> Leaf | Split:
        """The tree as nested data, built from the last node back to the first."""
        nodes: list[Leaf | Split] = list(self.multipliers)
        for node in sorted(self.cuts, reverse=True):  # children have higher numbers
            client, threshold, below, above = self.cuts[node]
            nodes[node] = Split(client, threshold, nodes[below], nodes[above])
        return nodes[0]


def branch_and_bound(
    u: Array, b: Array, columns: NDArray[np.intp], objective: float, tolerance: float
) -> Iterator[Incumbent]:
    """Yield ever better proven schedules until the gap is within a relative `tolerance`.

    `u`, `b` are `[m, T]`. Each incumbent's bound holds for all schedules.
    """
    clients = len(u)
    low, high = np.full((1, clients), -np.inf), np.full((1, clients), np.inf)
    done = math.inf  # the lowest bound among nodes that were cut off, or their own best schedule
    # Where the best objective is near zero only an absolute slack makes sense.
    slack = 1e-13 * float(np.where(np.isfinite(u), np.abs(u), 0).max(axis=1).sum())
    slack += 1e-13 * float((np.abs(b).max(axis=1) ** 2).sum())
    limit = min(NODES, max(500, CELLS // u.size))
    tree = Tree()
    opened = _evaluate(u, b, low, high, tree)
    while len(opened.bound):
        place = int(np.argmin(opened.objective))
        if opened.objective[place] < objective:
            columns, objective = opened.columns[place], float(opened.objective[place])
            at = np.array([opened.multiplier[place]])
            better, value = improve(u, b[:, :, None], columns, at)
            if value < objective:
                columns, objective = better, value
        enough = objective - tolerance * abs(objective) - slack
        closed = opened.bound >= enough
        if closed.any():
            done = min(done, float(opened.bound[closed].min()))
        opened = opened.take(np.flatnonzero(~closed))
        lowest = float(opened.bound.min()) if len(opened.bound) else math.inf
        seen = len(tree.multipliers)
        yield Incumbent(columns, objective, min(done, lowest, objective), seen, tree)
        if not len(opened.bound) or seen >= limit:
            return
        order = np.argsort(opened.bound)
        batch, rest = opened.take(order[:BATCH]), opened.take(order[BATCH:])
        children = _evaluate(u, b, *_split(batch), tree)
        for node, client, threshold, below in zip(
            batch.number, batch.client, batch.threshold, children.number[::2], strict=True
        ):
            tree.cuts[int(node)] = int(client), float(threshold), int(below), int(below) + 1
        opened = rest.join(children)


@dataclass(eq=False)
class _Nodes:
    """Open nodes: intervals of bias, bound, λ, the better end's schedule, and where to split."""

    low: Array  # [n, m]
    high: Array
    bound: Array  # [n]
    multiplier: Array
    columns: NDArray[np.intp]  # [n, m]
    objective: Array
    client: NDArray[np.intp]
    threshold: Array
    number: NDArray[np.intp]

    def take(self, places: NDArray[np.intp]) -> _Nodes:
        return _Nodes(*(part[places] for part in vars(self).values()))

    def join(self, other: _Nodes) -> _Nodes:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return _Nodes(*(np.concatenate(pair) for pair in pairs))


def _split(nodes: _Nodes) -> tuple[Array, Array]:
    """Both halves of each node, one after the other: intervals `[2n, m]`."""
    low, high = np.repeat(nodes.low, 2, axis=0), np.repeat(nodes.high, 2, axis=0)
    first = 2 * np.arange(len(nodes.bound))
    high[first, nodes.client] = np.minimum(high[first, nodes.client], nodes.threshold)
    above = np.nextafter(nodes.threshold, np.inf)
    low[first + 1, nodes.client] = np.maximum(low[first + 1, nodes.client], above)
    return low, high


def _evaluate(u: Array, b: Array, low: Array, high: Array, tree: Tree) -> _Nodes:
    """Find λ of each node by bisection, all nodes at once, and what it says."""
    cost = np.where((b >= low[:, :, None]) & (b <= high[:, :, None]), u, np.inf)
    allowed = np.isfinite(cost)
    at_low = np.where(allowed, b, np.inf).min(axis=2).sum(axis=1)
    at_high = np.where(allowed, b, -np.inf).max(axis=2).sum(axis=1)
    rows = np.arange(u.shape[0])

    def choose(at: Array) -> tuple[NDArray[np.intp], Array]:
        columns = (cost + (2 * at)[:, None, None] * b).argmin(axis=2)
        return columns, b[rows, columns].sum(axis=1)

    for _ in range(BISECTIONS):
        middle = (at_low + at_high) / 2
        above = choose(middle)[1] >= middle
        at_low, at_high = np.where(above, middle, at_low), np.where(above, at_high, middle)
    ends = []
    for at in (at_low, at_high):
        columns, bias = choose(at)
        spent = u[rows, columns].sum(axis=1)
        ends.append((columns, spent + bias**2, spent + 2 * at * bias - at**2))
    (left, value_left, bound_left), (right, value_right, bound_right) = ends
    better = value_left <= value_right
    jump = b[rows, left] - b[rows, right]  # how far each client moves between the two ends
    client = np.abs(jump).argmax(axis=1)
    nodes = np.arange(len(low))
    one, two = b[client, left[nodes, client]], b[client, right[nodes, client]]
    middle = (one + two) / 2  # strictly below the larger of the two, so that both halves get one
    best = np.where(bound_left >= bound_right, at_low, at_high)
    return _Nodes(
        low,
        high,
        np.maximum(bound_left, bound_right),
        best,
        np.where(better[:, None], left, right),
        np.minimum(value_left, value_right),
        client,
        np.where(middle < np.maximum(one, two), middle, np.minimum(one, two)),
        tree.add([Leaf((at,)) for at in best.tolist()]),
    )
