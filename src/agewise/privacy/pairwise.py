"""Pairwise losses: what all releases so far tell two values of a record apart by.

L[x, x′] bounds ln v(x)/v(x′), where v is the likelihood of everything released, as a function of
the record's value in one slot. A release adds its own pairwise losses. From one slot to another,
with rows K of the old value given the new one, L becomes

    L′[y, y′] = max of ln(K[y]·v / K[y′]·v) over all v > 0 with v(x) ≤ e^{L[x,x′]} v(x′):

a linear-fractional program, whose maximum is at an extreme ray of the cone of the v's. On such a
ray S − 1 constraints that form a spanning tree are tight. L is a metric, so that trees will do in
which every state is either high or low and v(high) = e^{L[high,low]} v(low) on every edge:
2·S^{S−2} rays, 32 for four states, for all pairs and many clients at once. Of more than `TREES`
states the worst tree is searched for (`agewise.privacy.spanning`). Proofs: docs/theory.md,
section 4.

Losses may be any nonnegative matrix. They are replaced by the metric below them, by shortest paths:
v(x) ≤ e^{L[x,m]} v(m) ≤ e^{L[x,m] + L[m,z]} v(z), so that the same v's satisfy both.

Rounding. With M the largest loss, scale a ray so that its least entry is 1: w = v − 1 lies in
[0, e^M − 1]. A relative error r of the rows moves ln(1 + K[y]·w) by r·min(1, M) at most. The metric
below the losses is off by 3S ulps of M, so that sums of S − 1 of its entries along a tree, and
with them the logarithms of v, are off by 3S(S − 1) + (S − 1)²/2; sums of S products of numbers that
are 0 or more are off by S ulps of themselves. Counted for two rows, with a few ulps for the
division and the functions, that is less than M·(2r + 16 S² ulps), which is added to every loss. The
same 16 S² ulps of M are the room within which a ray still counts as satisfying its constraints.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from agewise.arrays import Array
from agewise.checks import finite_array
from agewise.errors import InvalidInput, quoted
from agewise.learning.learner import Learner, checked_table
from agewise.privacy.ageing import ROWS_OFF
from agewise.privacy.spanning import Trees, worst_ratios
from agewise.process import LiftedChain, Process
from agewise.process.joint import TINY, backward_rows, rounding, youngest

TREES = 5
"""Up to so many states extreme rays are tried one by one; beyond, searching for them is faster."""
GUESSING = 4
"""Pivots of each pair in a round that need not be proven."""
LARGEST_LOSS = 300.0
"""Beyond this nothing is credited: e^L would leave the range of floats."""
_ULP = float(np.finfo(float).eps)
_BLOCK = 2**15
"""Numbers handled at once: few enough to stay in the cache."""


@dataclass(frozen=True)
class Rows:
    """Laws `[k, Y, S]` of a record in one slot given its value in another, one table per client.

    `rounding` `[k]` bounds their relative error; 1 or more: nothing is known, and nothing credited.
    """

    table: Array
    rounding: Array

    @staticmethod
    def stacked(several: list[Rows]) -> Rows:
        """Several as one batch."""
        return Rows(
            np.concatenate([rows.table for rows in several]),
            np.concatenate([rows.rounding for rows in several]),
        )


def release_losses(
    epsilon: float, states: Array, release: Learner | ArrayLike | str | None = None
) -> Array:
    """Return d `[S, S]`, the pairwise losses of one release of classical ε `epsilon`.

    Laplace noise on the mean of a vector per state: ε‖f(x) − f(x′)‖₁ / max ‖f(x) − f(x′)‖₁.
    `release` gives the vectors: a learner, a table with one row per state, or None for the states
    themselves. Of several tables `[G, S, d]` each two states are as far apart as in the worst.
    "any" is a mechanism of which only ε is known: ε for every two states.
    """
    if release is None:
        table = states[:, None]
    elif isinstance(release, str):
        if release != "any":
            raise InvalidInput("release", quoted(release), "a learner, a table, 'any' or None")
        return all_pairs(np.array(epsilon), states.size)
    elif hasattr(release, "table"):
        table = release.table(states)
    elif isinstance(release, np.ndarray) and release.ndim == 3:
        table = finite_array("release", release, "tables of one row of finite numbers per state")
    else:
        table = checked_table(release, states.size)
    distance = np.abs(table[..., :, None, :] - table[..., None, :, :]).sum(axis=-1)
    distance = distance.max(axis=0) if distance.ndim == 3 else distance
    widest = distance.max()
    if widest == 0:
        return np.zeros((states.size, states.size))
    share = np.minimum(distance / widest * (1 + 2 * (table.shape[-1] + 2) * _ULP), 1.0)
    return np.asarray(epsilon * share)


def backward_of(
    process: Process,
    collect_at: int,
    later: int,
    law: ArrayLike | None = None,
    carried: float = 0.0,
) -> Rows:
    """The rows K of the value in slot `collect_at` given that in `later`.

    `law` holds in slot `collect_at` (default: the process's own) and is off by `carried` at most,
    relatively. A later value that cannot occur gets the row of one that can.
    """
    joint = process.joint(collect_at, later, law)
    off = 1.0 if joint.underflowed else ROWS_OFF * (joint.rounding + carried)
    table = backward_rows(joint.matrix[..., None])[..., 0]
    return Rows(table[None], np.array([off]))


def forward_of(process: Process, slot: int, later: int) -> Rows:
    """The rows of the value in slot `later` given that in `slot`: nobody's prior matters."""
    age = int(youngest(process, np.asarray(later - slot)))
    kernel = process.kernel(later - age, later)
    possible = process.reachable(later - age, later)
    lost = bool((kernel[possible] < TINY).any())
    return Rows(kernel[None], np.array([1.0 if lost else rounding(age, len(kernel))]))


def aged_losses(losses: Array, rows: Rows, trees: Trees | None = None) -> Array:
    """Return L′ `[k, Y, Y]`: pairwise losses `[k, S, S]` about one slot, as they are about another.

    `trees` are those of an earlier call with these rows or similar ones, to begin with.

    Guarantees
        Never below the true maximum, for any nonnegative losses and rows within their stated error;
        never above the largest loss. Above the true maximum by rounding only, M·(4r + 100 S² ulps),
        and with more than `TREES` states by what `worst_ratios` adds.
    """
    return _aged(losses, rows, lambda closed, table: worst_ratios(closed, table, trees))


def guessed_losses(losses: Array, rows: Rows, trees: Trees) -> Array:
    """`aged_losses` nearly, and no bound: a few steps from the trees of an earlier call."""
    return _aged(losses, rows, lambda closed, table: worst_ratios(closed, table, trees, GUESSING))


def _aged(losses: Array, rows: Rows, search: Callable[[Array, Array], Array]) -> Array:
    size = losses.shape[-1]
    closed = closed_losses(losses)
    most = closed.max(axis=(1, 2))
    usable = (most <= LARGEST_LOSS)[:, None, None]
    solve = _by_trees if size <= TREES else search
    aged = solve(np.where(usable, closed, 0.0), rows.table)
    margin = most * (2 * rows.rounding + 16 * size**2 * _ULP)
    aged = np.where(usable, aged + margin[:, None, None], np.inf)
    aged = np.minimum(aged, most[:, None, None])  # mixtures differ by no more than what is mixed
    diagonal = np.arange(aged.shape[-1])
    aged[:, diagonal, diagonal] = 0
    return np.asarray(aged)


def all_pairs(losses: Array, size: int) -> Array:
    """Return matrices `[..., S, S]` with one loss for every two states."""
    return np.where(np.eye(size) > 0, 0.0, losses[..., None, None])


def closed_losses(losses: Array) -> Array:
    """The metric below losses `[k, S, S]`, by shortest paths: the same v's satisfy both."""
    closed = losses.copy()
    for middle in range(losses.shape[-1]):
        through = closed[:, :, middle, None] + closed[:, None, middle]
        np.minimum(closed, through * (1 + 2 * _ULP), out=closed)
    return closed


def lumped_rows(rows: Rows, lifted: LiftedChain, slot: int) -> list[Rows]:
    """The rows of enlarged states given what is asked about a lifted chain's state in `slot`."""
    off = rows.rounding + 4 * lifted.groups.size * _ULP
    return [Rows((table @ rows.table[0])[None], off) for table in lifted.asked(slot)]


def lumped_loss(losses: Array, lifted: LiftedChain, slot: int) -> float:
    """The worst that losses `[S, S]` about enlarged states in `slot` tell about the state."""
    within = backward_of(lifted.chain, slot, slot)
    asked = lumped_rows(within, lifted, slot)
    return max(float(aged_losses(losses[None], rows).max()) for rows in asked)


def _by_trees(losses: Array, rows: Array) -> Array:
    """L′ without margin, by the extreme rays of the cones of a metric."""
    count, size = losses.shape[:2]
    paths = _paths(size)
    rays = len(paths) // size
    result = np.empty((count, rows.shape[1], rows.shape[1]))
    block = max(1, _BLOCK // (rays * size * size))
    for start in range(0, count, block):
        part, table = losses[start : start + block], rows[start : start + block]
        logs = (part.reshape(len(part), -1) @ paths.T).reshape(len(part), rays, size)
        room = 16 * size**2 * _ULP * part.max(axis=(1, 2))
        allowed = (part + room[:, None, None])[:, None]
        kept = (logs[..., :, None] - logs[..., None, :] <= allowed).all(axis=(2, 3))
        above = np.expm1(logs - logs.min(axis=2, keepdims=True)) * kept[..., None]
        gain = above @ table.swapaxes(1, 2)
        excess = (gain[..., :, None] - gain[..., None, :]) / (1 + gain[..., None, :])
        result[start : start + block] = np.log1p(excess.max(axis=1))
    return result


@cache
def _paths(size: int) -> Array:
    """How the logarithm of each entry of each ray adds up from the losses, `[rays · S, S²]`."""
    paths: list[Array] = []
    for code in itertools.product(range(size), repeat=size - 2):
        edges = _tree(code, size)
        for first_is_high in (True, False):
            sums = {0: np.zeros((size, size))}
            high = {0: first_is_high}
            while len(sums) < size:
                for one, other in edges:
                    for near, far in ((one, other), (other, one)):
                        if near in sums and far not in sums:
                            sums[far] = sums[near].copy()
                            high[far] = not high[near]
                            if high[far]:
                                sums[far][far, near] += 1
                            else:
                                sums[far][near, far] -= 1
            paths.extend(sums[state].ravel() for state in range(size))
    return np.array(paths)


def _tree(code: tuple[int, ...], size: int) -> list[tuple[int, int]]:
    """The edges of the spanning tree with this Prüfer code."""
    degree = [1 + code.count(state) for state in range(size)]
    edges = []
    for state in code:
        leaf = degree.index(1)
        edges.append((leaf, state))
        degree[leaf] -= 1
        degree[state] -= 1
    first = degree.index(1)
    return [*edges, (first, degree.index(1, first + 1))]
