"""The worst likelihoods that pairwise losses allow, found from tree to tree.

For two rows q, d and a metric L of losses, what is wanted is the largest ratio q·v/d·v over the
v > 0 with v(x) ≤ e^{L[x,z]} v(z). It is reached where the constraints along a spanning tree of the
states are tight. This is the simplex method on such trees, for many pairs of rows at once: the
subtree that gains most by leaving its constraint is scaled until another constraint holds it.
Trees are kept from call to call, since losses that change a little keep nearly the same ones.

Any tree also proves an upper bound. With w = v/min v − 1 a constraint is w(x) − e^L w(z) ≤ e^L − 1.
Flows f ≥ 0 along the edges are its multipliers: for every τ ≥ 1, with
r = q − τd − Σ f (1_x − e^L 1_z),

    (1 + q·w) − τ (1 + d·w) ≤ 1 − τ + Σ f (e^L − 1) + Σ_x r(x) w(x).

The flows are such that r is 0 but at the root, state 0: what a state has above τ times the other
row flows to its parent, and what it has below comes from there. At the root
w ≤ (1 + d·w) min(e^{max L} − 1, 1/Σ_z d(z) e^{−L[0,z]}).

Rounding. The bound holds for *any* τ and *any* f ≥ 0, so that nothing rests on how they were
found: a search that has gone wrong makes it looser, never wrong. Its evaluation is rounded outward:
what flows out of a state counts S + 8 ulps more of all that is added up there, and the result 8 S
ulps more of itself. Rows are laws: they sum to one but for S ulps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array

JITTER = 1e-12
"""Losses are raised by this share of the largest one, and up to twice as much, each by its own:
where several constraints are tight at once a search could go in circles."""
FULL = 50
"""A search ends after so many times S pivots, with whatever bound its trees prove by then."""
TRIES = 20
"""So many times τ is raised a little for what rounding leaves at the root."""
_ULP = float(np.finfo(float).eps)
_BLOCK = 2**16
"""Numbers handled at once: few enough to stay in the cache."""
_Places = NDArray[np.intp]


@dataclass
class Trees:
    """The trees of all pairs of rows after a call, and the pivots of all calls so far.

    A kept tree may leave the cone of new losses by `stray`: its bound is then off by about as much.
    """

    stray: float = 0.0
    pivots: int = 0
    found: list[_Forest] = field(default_factory=list)


def worst_ratios(
    losses: Array, rows: Array, trees: Trees | None = None, most: int | None = None
) -> Array:
    """Return ln max q·v/d·v `[k, Y, Y]` for each two rows, of losses `[k, S, S]` that are metrics.

    `rows` `[k, Y, S]`. With `most` no pair takes more pivots than that, and what is returned is
    what its v reaches: near the maximum, and no bound.

    Guarantees
        Without `most`: never below the true maximum for these rows. Above it by a few `JITTER` of
        the largest loss, by `stray` and by rounding, unless a search took all its pivots.
    """
    count, asked, size = rows.shape
    trees = Trees() if trees is None else trees
    raised = losses + JITTER * losses.max(axis=(1, 2), keepdims=True) * _spread(size)
    place, top, low = np.nonzero(np.broadcast_to(~np.eye(asked, dtype=bool), (count, asked, asked)))
    result = np.zeros((count, asked, asked))
    block = max(1, _BLOCK // size**2)
    forests: list[_Forest] = []
    for number, start in enumerate(range(0, len(place), block)):
        part = slice(start, start + block)
        at, q, d = place[part], rows[place[part], top[part]], rows[place[part], low[part]]
        if number < len(trees.found) and trees.found[number].logs.shape == q.shape:
            forest = trees.found[number]
            forest.follow(raised, at, trees.stray)
        else:
            forest = _stars(raised, at, q, d)
        trees.pivots += _climb(forest, raised, at, q, d, FULL * size if most is None else most)
        forests.append(forest)
        excess = _ratio(forest.logs, q, d)[2]
        bound = excess if most is not None else _proven(forest, raised, at, q, d, excess)
        result[at, top[part], low[part]] = np.log1p(bound)
    trees.found = forests
    return result


@cache
def _spread(size: int) -> Array:
    """By how much each pair of states is raised: from once to twice."""
    return np.where(np.eye(size) > 0, 0.0, 1 + np.random.default_rng(0).random((size, size)))


@dataclass
class _Forest:
    """A tree on all states for each pair of rows, with state 0 as its root.

    `logs` `[n, S]` are the logarithms of v. `side` `[n, S]` is 1 where a state is as high above its
    parent as L allows, −1 where it is as low below, 0 where the edge is loose.
    `under` `[n, S, S]`: whether the second state is in the subtree of the first.
    """

    logs: Array
    parent: _Places
    side: NDArray[np.int8]
    under: NDArray[np.bool_]

    def follow(self, losses: Array, at: _Places, stray: float) -> None:
        """The same trees for other losses, moved into the cone of these."""
        size = self.logs.shape[1]
        each, states = np.arange(len(at))[:, None], np.arange(size)
        up = losses[at[:, None], states, self.parent]
        down = losses[at[:, None], self.parent, states]
        loose = self.logs - self.logs[each, self.parent]
        step = np.where(self.side > 0, up, np.where(self.side < 0, -down, loose))
        step[:, 0] = 0
        logs = np.matmul(step[:, None, :], self.under.astype(float))[:, 0]
        inside = (logs[:, None, :] + losses[at]).min(axis=2)
        room = np.maximum(8 * size * _ULP * losses.max(axis=(1, 2)), stray)[at]
        moved = inside < logs - room[:, None]
        self.logs = np.where(moved, inside, logs)
        self.side = np.where(moved | moved[each, self.parent], 0, self.side).astype(np.int8)


def _ratio(logs: Array, q: Array, d: Array) -> tuple[Array, Array, Array]:
    """w, 1 + d·w and the ratio of the rows' sums, less one."""
    w = np.expm1(logs - logs.min(axis=1, keepdims=True))
    bottom = 1 + (d * w).sum(axis=1)
    return w, bottom, np.asarray(np.maximum(((q - d) * w).sum(axis=1) / bottom, 0.0))


def _stars(losses: Array, at: _Places, q: Array, d: Array) -> _Forest:
    """To begin with: for each pair the best v in which all edges go to one state."""
    count, size = q.shape
    centred = np.concatenate([-losses, losses.swapaxes(1, 2)], axis=1)
    w = np.expm1(centred - centred.min(axis=2, keepdims=True))[at]
    gain, low = np.einsum("nrs,ns->nr", w, q), np.einsum("nrs,ns->nr", w, d)
    best = ((gain - low) / (1 + low)).argmax(axis=1)
    centre, peak = best % size, np.where(best < size, 1, -1)
    each = np.arange(count)
    parent = np.repeat(centre[:, None], size, axis=1)
    side = np.repeat(-peak[:, None], size, axis=1)
    parent[each, centre], side[each, centre] = 0, peak
    parent[:, 0] = side[:, 0] = 0
    under = np.repeat(np.eye(size, dtype=bool)[None], count, axis=0)
    under[each, centre, 1:] = True
    under[:, 0] = True
    return _Forest(centred[at, best], parent, side.astype(np.int8), under)


def _climb(forest: _Forest, losses: Array, at: _Places, q: Array, d: Array, most: int) -> int:
    """Pivot until no subtree gains by leaving its constraint; returns how many pivots that took."""
    size, pivots = q.shape[1], 0
    busy = np.arange(len(q))
    for _ in range(most):
        logs, under, side = forest.logs[busy], forest.under[busy], forest.side[busy]
        w, bottom, excess = _ratio(logs, q[busy], d[busy])
        scale = ((1 + w) / (bottom * (1 + excess))[:, None])[..., None]
        high, low = q[busy] * scale[..., 0], (1 + excess)[:, None] * d[busy] * scale[..., 0]
        sums = np.matmul(under.astype(float), np.stack([high - low, high + low], axis=2))
        pull = sums[..., 0]
        gain = np.where(side == 0, np.abs(pull), -side * pull) - 8 * size * _ULP * sums[..., 1]
        gain[:, 0] = 0
        child = gain.argmax(axis=1)
        going = gain[np.arange(len(busy)), child] > 0
        if not going.any():
            break
        busy, child, logs, under = busy[going], child[going], logs[going], under[going]
        up = pull[going, child] > 0
        pivots += len(busy)
        _pivot(forest, losses[at[busy]], busy, child, up, logs, under)
    return pivots


def _pivot(
    forest: _Forest,
    losses: Array,
    busy: _Places,
    child: _Places,
    up: NDArray[np.bool_],
    logs: Array,
    under: NDArray[np.bool_],
) -> None:
    """Scale the subtree of `child` up or down until another constraint holds it; hang it there."""
    size = logs.shape[1]
    each = np.arange(len(busy))
    moving = under[each, child]
    sign = np.where(up, 1.0, -1.0)
    signed = sign[:, None] * logs
    room = np.where(up[:, None, None], losses, losses.swapaxes(1, 2))
    room = room - signed[:, :, None] + signed[:, None, :]
    room = np.where(moving[:, :, None] & ~moving[:, None, :], room, np.inf).reshape(len(busy), -1)
    tightest = room.argmin(axis=1)
    step = sign * np.maximum(room[each, tightest], 0.0)
    inner, outer = tightest // size, tightest % size
    forest.logs[busy] = logs + np.where(moving, step[:, None], 0.0)
    parent, side = forest.parent[busy], forest.side[busy]
    left, joined = under[each, :, parent[each, child]], under[each, :, outer]
    after = under & ~(left[:, :, None] & moving[:, None, :])
    after |= joined[:, :, None] & moving[:, None, :]
    way = under[each, :, inner] & moving  # from the new point of attachment to the old one
    way[each, child] = False
    which, state = np.nonzero(way)
    turned = parent[which, state]
    new_parent, new_side = parent.copy(), side.copy()
    new_parent[which, turned] = state
    new_side[which, turned] = -side[which, state]
    after[which, turned] = moving[which] & ~under[which, state]
    after[each, inner] = moving
    new_parent[each, inner] = outer
    new_side[each, inner] = np.where(up, 1, -1)
    forest.under[busy], forest.parent[busy], forest.side[busy] = after, new_parent, new_side


def _proven(
    forest: _Forest, losses: Array, at: _Places, q: Array, d: Array, excess: Array
) -> Array:
    """The bound on the ratio less one that flows along a tree prove, for τ near 1 + excess."""
    size = q.shape[1]
    order = np.argsort(-forest.under.sum(axis=1), axis=1, kind="stable")  # from the leaves
    reach = np.einsum("nz,nz->n", d, np.exp(-losses[at, 0]))
    with np.errstate(divide="ignore"):
        reach = np.minimum(np.expm1(losses.max(axis=(1, 2)))[at], 1 / reach)
    best, busy = np.full(len(q), np.inf), np.arange(len(q))
    more = 16 * size * _ULP * excess
    for _ in range(TRIES):
        tau = excess[busy] + more
        left, told = _flows(
            losses, at[busy], q[busy], d[busy], tau, order[busy], forest.parent[busy]
        )
        bound = np.maximum(tau, told) + left * reach[busy]
        best[busy] = np.minimum(best[busy], bound)
        again = left > 0
        if not again.any():
            break
        busy, more = busy[again], np.maximum(8 * more[again], _ULP)
    return np.asarray(best * (1 + 8 * size * _ULP))


def _flows(
    losses: Array, at: _Places, q: Array, d: Array, tau: Array, order: _Places, parent: _Places
) -> tuple[Array, Array]:
    """What flows to the parents leave at the root, and Σ f (e^L − 1), both rounded up.

    What is missing at a state, as a high one, flows to its parent, and what it has to spare, as a
    low one, comes from there: nothing is left anywhere but at the root.
    """
    each, size = np.arange(len(q)), q.shape[1]
    missing = (q - d) - tau[:, None] * d
    added = q + (1 + tau)[:, None] * d
    told = np.zeros(len(q))
    for place in range(size - 1):
        state = order[:, place]
        above = parent[each, state]
        here = missing[each, state] + (size + 8) * _ULP * added[each, state]
        up, down = losses[at, state, above], losses[at, above, state]
        flow = np.where(here > 0, here, here * np.exp(-down))
        told += np.where(here > 0, here * np.expm1(up), -flow * np.expm1(down))
        brought = np.where(here > 0, here * np.exp(up), flow)
        missing[each, above] += brought
        added[each, above] += np.abs(brought)
    return np.maximum(missing[:, 0] + (size + 8) * _ULP * added[:, 0], 0.0), told
