"""What releases tell of a record's value, where only value and habit make a Markov chain.

The chain runs on enlarged states, such as pairs (level class, value); releases depend on the value
only, and so does the claim. Its state numbers are mere labels: many of them share one value.

Enlarged states are many, and aging their pairwise losses takes one linear program per pair. The
bound for ever needs hundreds of rounds, but only its last one has to be proven: any losses L with
age(L) + d ≤ L are a bound (`steady_losses`). So most rounds use a pool of rays, which the programs
of a few rounds have found to be the worst, and `aged_losses` checks the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array
from agewise.checks import finite_array, positive
from agewise.errors import InvalidInput
from agewise.privacy.pairwise import (
    LARGEST_LOSS,
    Rows,
    aged_losses,
    all_pairs,
    backward_of,
    release_losses,
)
from agewise.process import Process

TOLERANCE = 1e-4
"""The bound for ever is that of releases with so much more loss, as a share of their own."""
SEARCHES = 40
"""If so many searches for worse rays have led to no bound, none is given."""
ROUNDS = 20_000


def lumped_epsilon(
    process: Process,
    groups: Sequence[int] | NDArray[np.intp],
    values: ArrayLike,
    classical_epsilon: float,
) -> float:
    """Return the ε about a record's present value of releases in every slot before it, for ever.

    `process` is a Markov chain (homogeneous or by slot of day) on enlarged states. `groups` names
    the value of each as a number from 0, `values` is what a release of classical ε
    `classical_epsilon` is the noised mean of: one number or vector per enlarged state, the same
    within a group. Unit vectors bound every mechanism of that ε: all values are as far apart.

    Guarantees
        An upper bound on ln P(releases | value s)/P(releases | value s′), for two adversaries: one
        who knows of the habit what releases tell, and one who knows the present habit besides. It
        holds for any number of releases, if the enlarged process is the Markov chain given and
        stationary. Infinite where no bound was found. Somebody who knows *something* of the habit
        from elsewhere, and not all, is not covered.

    Proof: let v(x) be the likelihood of all releases as a function of the enlarged state x at the
    last one, and L the steady losses: v(x) ≤ e^{L[x,x′]} v(x′). Later releases are none, so that by
    the Markov property P(releases | present value s) = Σ_x R[s, x] v(x), where R[s, x] is the law
    of x given that the present enlarged state, one slot later, is in group s. `aged_losses` bounds
    the ratio of two such sums over all v with these losses, for rows of any number. With the habit
    known the rows are those given the present enlarged state, and only states that share a habit
    compare: those with the same number within their groups, of the groups that have so many.

    >>> from agewise import MarkovChain
    >>> chain = MarkovChain([[0.8, 0.2], [0.3, 0.7]], states=[0, 1])
    >>> round(lumped_epsilon(chain, [0, 1], [0, 1], 0.5), 3)
    0.49
    """
    spent = positive("classical_epsilon", classical_epsilon)
    if not process.markov:
        raise InvalidInput(
            "process",
            f"a {process.kind} law, known lag by lag only",
            "a Markov chain",
            "Such a law gets no credit over rounds: the ε's of all releases add up.",
        )
    table = finite_array("values", values, "one number or vector per enlarged state")
    table = table[:, None] if table.ndim == 1 else table
    group = _checked_groups(groups, table, process.states.size)
    slots = range(1, process.day + 1)
    rows = Rows.stacked([backward_of(process, slot - 1, slot) for slot in slots])
    release = release_losses(spent, process.states, table)
    steady = np.roll(_steady(rows, release), 1, axis=0)
    if math.isinf(steady.max()):
        return math.inf
    worst = 0.0
    for law, losses, back, off in zip(
        (process.law(slot) for slot in slots), steady, rows.table, rows.rounding, strict=True
    ):
        share = np.where(group == np.arange(group.max() + 1)[:, None], law, 0.0)
        share = share[share.sum(axis=1) > 0]  # a value that does not occur then tells nothing
        share /= share.sum(axis=1, keepdims=True)
        rounding = off + 4 * law.size * float(np.finfo(float).eps)
        # The habit unknown, then each habit: as many rows as there are values each time.
        tables = [share @ back, *(back[members] for members in _habits(group))]
        for table_ in tables:
            aged = aged_losses(losses[None], Rows(table_[None], np.array([rounding])))
            worst = max(worst, math.inf if np.isnan(aged).any() else float(aged.max()))
    return worst


def _checked_groups(
    groups: Sequence[int] | NDArray[np.intp], table: Array, size: int
) -> NDArray[np.intp]:
    group = np.asarray(groups)
    if group.shape != (size,) or len(table) != size:
        raise InvalidInput(
            "groups, values", f"{group.size} and {len(table)} numbers", f"{size} each"
        )
    if group.dtype.kind not in "iu" or not np.array_equal(
        np.unique(group), np.arange(group.max() + 1)
    ):
        raise InvalidInput("groups", group.tolist(), "whole numbers from 0, none left out")
    if group.max() < 1:
        raise InvalidInput("groups", "one", "two or more, to be told apart")
    for one in range(group.max() + 1):
        if len(np.unique(table[group == one], axis=0)) > 1:
            raise InvalidInput("values", f"several within group {one}", "one per group")
    return group.astype(np.intp)


def _habits(group: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """For each habit the enlarged states that have it: the n-th of each group that has so many.

    None where every value has one habit only: nothing is left to know.
    """
    members = [np.flatnonzero(group == one) for one in range(group.max() + 1)]
    most = max(len(one) for one in members)
    habits = [np.array([one[n] for one in members if len(one) > n]) for n in range(most)]
    return [one for one in habits if len(one) > 1] if most > 1 else []


def _steady(rows: Rows, release: Array) -> Array:
    """A bound on the losses after each of infinitely many releases, by slot `[day, S, S]`."""
    day, size = rows.table.shape[0], release.shape[0]
    each = np.broadcast_to(release, (day, size, size))
    more = each + all_pairs(np.full(day, TOLERANCE * release.max()), size)
    losses, pools = more, [np.zeros((1, size, size * size)) for _ in range(day)]
    for _ in range(SEARCHES):
        before = np.roll(losses, 1, axis=0)
        grown = [
            np.unique(np.concatenate([pool, _worst_trees(one, table)]), axis=0)
            for pool, one, table in zip(pools, before, rows.table, strict=True)
        ]
        if all(len(new) == len(old) for new, old in zip(grown, pools, strict=True)):
            break  # the programs failed: nothing worse was found, and still no proof
        pools = grown
        for _ in range(ROUNDS):
            aged = [
                _by_pool(one, table, pool)
                for one, table, pool in zip(
                    np.roll(losses, 1, axis=0), rows.table, pools, strict=True
                )
            ]
            following = np.stack(aged) + more
            moved = float(np.abs(following - losses).max())
            losses = following
            if moved < 0.1 * TOLERANCE * release.max() or losses.max() > LARGEST_LOSS:
                break
        if losses.max() > LARGEST_LOSS:
            break
        if (aged_losses(np.roll(losses, 1, axis=0), rows) + each <= losses).all():
            return losses
    return all_pairs(np.full(day, np.inf), size)


def _by_pool(losses: Array, rows: Array, pool: Array) -> Array:
    """Aged losses, from below: the worst over some rays, each moved into the cone."""
    logs = pool.reshape(-1, losses.size) @ losses.ravel()
    logs = logs.reshape(len(pool), -1)
    logs = (logs[:, None, :] + losses).min(axis=2)
    told = np.exp(logs - logs.max(axis=1, keepdims=True)) @ rows.T
    return np.asarray(np.log((told[:, :, None] / told[:, None, :]).max(axis=0)))


def _worst_trees(losses: Array, rows: Array) -> Array:
    """How the logarithms of the worst ray of each pair add up from the losses, `[ray, S, S²]`."""
    from scipy.optimize import linprog  # noqa: PLC0415  (0.3 s to import)

    size = losses.shape[0]
    pairs = [(x, z) for x in range(size) for z in range(size) if x != z]
    bounds = np.zeros((len(pairs), size))
    for number, (x, z) in enumerate(pairs):
        bounds[number, x], bounds[number, z] = 1.0, -np.exp(losses[x, z])
    rays = set()
    for y in range(len(rows)):
        for low in range(len(rows)):
            if y == low:
                continue
            found = linprog(
                -rows[y], A_ub=bounds, b_ub=np.zeros(len(pairs)), A_eq=rows[low][None], b_eq=[1.0]
            )
            ray = np.asarray(found.x if found.success else 0.0)
            if (ray > 0).all():
                rays.add(_tight_tree(np.log(ray), losses))
    return np.array([_sums(tree, size) for tree in sorted(rays)]).reshape(-1, size, size * size)


def _tight_tree(logs: Array, losses: Array) -> tuple[tuple[int, int], ...]:
    """The tightest constraints that link all states, each as (high, low), from state 0 outwards."""
    slack = losses - (logs[:, None] - logs[None])
    linked, edges = {0}, []
    while len(linked) < len(losses):
        inside, outside = sorted(linked), [x for x in range(len(losses)) if x not in linked]
        options = [(slack[x, z], x, z) for x in inside for z in outside]
        options += [(slack[z, x], z, x) for x in inside for z in outside]
        _, high, low = min(options)
        edges.append((high, low))
        linked |= {high, low}
    return tuple(edges)


def _sums(tree: tuple[tuple[int, int], ...], size: int) -> Array:
    """The logarithm of each state's likelihood as a sum of losses along the tree."""
    sums = np.zeros((size, size * size))
    linked = {0}
    for high, low in tree:
        near, far, sign = (high, low, -1) if high in linked else (low, high, 1)
        sums[far] = sums[near]
        sums[far, high * size + low] += sign
        linked.add(far)
    return sums
