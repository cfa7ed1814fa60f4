"""Pairwise losses: what all releases so far tell two values of a record apart by.

L[x, x′] bounds ln v(x)/v(x′), where v is the likelihood of everything released, as a function of
the record's value in one slot. A release adds its own pairwise losses. From one slot to another,
with rows K of the old value given the new one, L becomes

    L′[y, y′] = max of ln(K[y]·v / K[y′]·v) over all v > 0 with v(x) ≤ e^{L[x,x′]} v(x′):

a linear-fractional program, whose maximum is at an extreme ray of the cone of the v's. On such a
ray S − 1 constraints that form a spanning tree are tight. L is a metric, so that trees will do in
which every state is either high or low and v(high) = e^{L[high,low]} v(low) on every edge:
2·S^{S−2} rays, 32 for four states, for all pairs and many clients at once. Proofs: docs/theory.md,
section 4.

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
from agewise.errors import InvalidInput
from agewise.learning.learner import Learner, checked_table
from agewise.privacy.sharp import ROWS_OFF
from agewise.process import Process
from agewise.process.joint import TINY, backward_rows, rounding, youngest

TREES = 6
"""Up to so many states extreme rays are tried one by one; beyond, linear programs are faster."""
LARGEST_LOSS = 300.0
"""Beyond this nothing is credited: e^L would leave the range of floats."""
ROUNDS = 20_000
"""If so many rounds have led to no bound for ever, none is given."""
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
    themselves.
    "any" is a mechanism of which only ε is known: ε for every two states.
    """
    if release is None:
        table = states[:, None]
    elif isinstance(release, str):
        if release != "any":
            raise InvalidInput("release", repr(release), "a learner, a table, 'any' or None")
        return all_pairs(np.array(epsilon), states.size)
    elif hasattr(release, "table"):
        table = release.table(states)
    else:
        table = checked_table(release, states.size)
    distance = np.abs(table[:, None] - table).sum(axis=-1)
    widest = distance.max()
    if widest == 0:
        return np.zeros((states.size, states.size))
    share = np.minimum(distance / widest * (1 + 2 * (table.shape[1] + 2) * _ULP), 1.0)
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


def aged_losses(losses: Array, rows: Rows) -> Array:
    """Return L′ `[k, Y, Y]`: pairwise losses `[k, S, S]` about one slot, as they are about another.

    Guarantees
        Never below the true maximum, for any nonnegative losses and rows within their stated error;
        never above the largest loss. Above the true maximum by rounding only: M·(4r + 100 S² ulps).
    """
    size = losses.shape[-1]
    closed = _closure(losses)
    most = closed.max(axis=(1, 2))
    usable = (most <= LARGEST_LOSS)[:, None, None]
    solve = _by_trees if size <= TREES else by_programs
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


def _closure(losses: Array) -> Array:
    """The metric below the losses: the same v's satisfy both."""
    closed = losses.copy()
    for middle in range(losses.shape[-1]):
        through = closed[:, :, middle, None] + closed[:, None, middle]
        np.minimum(closed, through * (1 + 2 * _ULP), out=closed)
    return closed


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


def by_programs(losses: Array, rows: Array) -> Array:
    """L′ without margin, by one linear program per pair of states, never below the true maximum.

    A solver is right up to its tolerance only, so its multipliers λ ≥ 0 and θ are used as a proof:
    K[y]·v ≤ θ K[y′]·v + Σ_x r⁺(x) v(x), r = K[y] − θ K[y′] − (constraints)ᵀλ, and
    v(x) ≤ K[y′]·v / Σ_z K[y′,z] e^{−L[x,z]}.
    """
    from scipy.optimize import linprog  # noqa: PLC0415  (0.3 s to import)

    count, size = losses.shape[:2]
    result = np.zeros((count, rows.shape[1], rows.shape[1]))
    pairs = [(x, z) for x in range(size) for z in range(size) if x != z]
    for one in range(count):
        bounds = np.zeros((len(pairs), size))
        for number, (x, z) in enumerate(pairs):
            bounds[number, x], bounds[number, z] = 1.0, -np.exp(losses[one, x, z])
        for y, low in itertools.permutations(range(rows.shape[1]), 2):
            top, bottom = rows[one, y], rows[one, low]
            found = linprog(
                -top, A_ub=bounds, b_ub=np.zeros(len(pairs)), A_eq=bottom[None], b_eq=[1.0]
            )
            if not found.success:
                result[one, y, low] = losses[one].max()
                continue
            factor = -float(found.eqlin.marginals[0])
            prices = np.maximum(-found.ineqlin.marginals, 0.0)
            rounded = size**2 * _ULP * (top + factor * bottom + np.abs(bounds).T @ prices)
            missed = np.maximum(top - factor * bottom - bounds.T @ prices + rounded, 0.0)
            weight = (np.exp(-losses[one]) * bottom).sum(axis=1)
            result[one, y, low] = np.log(max(factor + float((missed / weight).sum()), 1.0))
    return result


def steady_losses(age: Callable[[Array], Array], release: Array) -> Array:
    """Return a bound on all of L₁ = d, L₂ = age(L₁) + d, L₃ = ...; infinite where none was found.

    `age` never falls where losses grow. Then any L with age(L) + d ≤ L is such a bound: L₁ = d ≤ L,
    and L_n ≤ L gives L_{n+1} ≤ age(L) + d ≤ L. The iterates themselves lie *below* their limit. So
    a little more than d is released in each round, until losses are found that pass that check.
    """
    little = 1e-9 * release.max()
    more = all_pairs(np.full(len(release), little), release.shape[-1])
    losses, before, pace = release, 0.0, 0.0
    for number in range(1, ROUNDS + 1):
        following = age(losses) + release
        if following.max() > LARGEST_LOSS:
            break
        moved = float(np.abs(following - losses).max())
        if (following <= losses).all() and moved <= 2 * little:
            return following
        step = following + more - losses
        size = float(np.abs(step).max())
        rate = size / before if before > 0 else 0.0
        if rate >= 1 and pace >= 1 and number > 1000:  # after so many they still do not slow down
            break
        losses, before = following + more, size
        steady = 0 < rate < 1 and abs(rate - pace) < (1 - rate) / 20 and (step >= 0).all()
        if number % 8 == 0 and steady:  # the rest of a geometric series, to save rounds
            losses = losses + step * rate / (1 - rate)
            before = rate = 0.0
        pace = rate
    return all_pairs(np.full(len(release), np.inf), release.shape[-1])
