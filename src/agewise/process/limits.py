"""Upper confidence limits on Δ and E from counts, proven for what is taken to be independent."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from agewise.arrays import Array
from agewise.checks import finite_array, fraction, whole
from agewise.errors import InvalidInput

ALL_SETS = 8
"""States up to which every set of them is bounded; beyond, single states are."""
STAKES = 2.0 ** -np.arange(11)
"""Shares of the wealth that are bet, a fund each."""
HALVINGS = 16


def table_delta(joint: Array) -> float:
    """Return Δ of a table `[x, y]` of probabilities or counts, as it stands: no allowance at all.

    The widest distance of two laws of the collected value, each given one of the later values.
    """
    columns = joint[:, joint.sum(axis=0) > 0]
    rows = (columns / columns.sum(axis=0)).T
    return min(1.0, max((float(abs(a - b).sum()) / 2 for a in rows for b in rows), default=0.0))


def table_sticks(joint: Array, targets: ArrayLike) -> Array:
    """Return E (the hockey-stick divergence) of a table at each target ε, as it stands."""
    columns = joint[:, joint.sum(axis=0) > 0]
    rows = (columns / columns.sum(axis=0)).T if columns.size else np.zeros((1, len(joint)))
    factors = np.exp(np.asarray(targets, dtype=float))
    beyond = rows[:, None, None] - factors[:, None] * rows[None, :, None]
    return np.asarray(np.maximum(beyond, 0.0).sum(axis=-1).max(axis=(0, 1)))


def delta_limit(
    counts: ArrayLike,
    failure: float,
    *,
    units: int | None = None,
    most: int = 1,
    inflation: ArrayLike = 1.0,
    slack: float = 0.0,
) -> float:
    """Return an upper confidence limit on Δ from counts of (value at collection, at aggregation).

    `failure` is the probability that the limit is below the truth, at most. What is taken to be
    independent is up to the caller:

    - `counts[x, y]`: every pair of every other, all with the same law.
    - `counts[unit, x, y]`: units only (days, say), of at most `most` pairs each, which may depend
      on each other in any way. Δ is that of all pairs together, on average over the units.
    - `counts[x, y]` with `units`: the same, where only the sums over so many units are known.

    `slack` is by how much each count may be off. `inflation` (one number, or one for each y)
    multiplies the logarithm of 1/failure: it can only widen.

    Guarantees
        The probability that the limit is below Δ is at most `failure`, whatever the law and
        however rare its values. The share of a set of collected values among the pairs that end
        in y is bounded for every set and every y at once: for independent pairs by the exact
        binomial limit (Clopper and Pearson 1934), for units by Ville's inequality for a mixture
        of bets against each share (Waudby-Smith and Ramdas 2024), for sums over units by
        Hoeffding's inequality. Δ is at most the widest difference of these limits. A value that
        was never seen may have any law.

    >>> round(delta_limit([[800, 200], [200, 800]], failure=0.05), 3)
    0.655
    """
    return float(
        stick_limits(
            counts, failure, [0.0], units=units, most=most, inflation=inflation, slack=slack
        )[0]
    )


def stick_limits(
    counts: ArrayLike,
    failure: float,
    targets: ArrayLike,
    *,
    units: int | None = None,
    most: int = 1,
    inflation: ArrayLike = 1.0,
    slack: float = 0.0,
) -> Array:
    """Return upper confidence limits on E at each target ε, from counts as for `delta_limit`.

    Guarantees
        The probability that any of them is below the truth is at most `failure`, however many
        targets there are: they follow from the same limits on shares. E at ε = 0 is Δ.
    """
    table = finite_array("counts", counts, "a square table of counts, or one per unit")
    size = table.shape[-1] if table.ndim else 0
    if table.ndim not in (2, 3) or table.shape[-2] != size or (table < 0).any():
        raise InvalidInput("counts", f"of shape {table.shape}", "square tables, none negative")
    fraction("failure", failure)
    if not (math.isfinite(slack) and slack >= 0):
        raise InvalidInput("slack", slack, "0 or more")
    factor = np.broadcast_to(np.asarray(inflation, dtype=float), (size,))
    if not (factor >= 1).all():
        raise InvalidInput("inflation", inflation, "1 or more")
    whole("most", most, 1)
    if table.ndim == 3 and (units is not None or slack):
        raise InvalidInput("units, slack", "given with a table a unit", "sums of counts")
    if table.ndim == 3 and table.sum(axis=(1, 2)).max(initial=0.0) > most:
        raise InvalidInput("most", most, "the pairs of every unit, or more")
    if size == 1:
        return np.zeros(np.shape(targets))
    sets = state_sets(size)
    needed = math.log(sets.shape[0] * size / failure) * factor
    if table.ndim == 3:
        share = _by_units(table / most, sets, needed)
    else:
        inside = sets @ (table + slack)
        outside = (1 - sets) @ np.maximum(table - slack, 0.0)
        if units is None:
            share = _by_pairs(inside, outside, needed)
        else:
            share = _by_sums(inside, outside, whole("units", units, 1), most, needed)
    factors = np.exp(np.asarray(targets, dtype=float))
    return np.array([_widest(np.minimum(share, 1.0), size, factor) for factor in factors])


def block_inflation(units: ArrayLike, blocks: ArrayLike) -> Array:
    """How much less than independent units say units that depend on each other within blocks.

    `units[u, x, y]` are the counts of each unit, `blocks[u]` the block it is in. For each later
    value: the variance of sums over blocks, over what it would be if units were independent; at
    least 1. An estimate, not a bound.
    """
    tables = finite_array("units", units, "tables of counts")
    if tables.ndim != 3 or tables.shape[1] != tables.shape[2]:
        raise InvalidInput("units", f"of shape {tables.shape}", "shape (units, S, S)")
    label = np.unique(np.asarray(blocks), return_inverse=True)[1]
    if label.shape != (len(tables),):
        raise InvalidInput("blocks", f"of shape {label.shape}", "one label a unit")
    if label.max() < 1:
        return np.full(tables.shape[1], np.inf)
    seen = tables.sum(axis=0).sum(axis=0)
    share = tables.sum(axis=0) / np.maximum(seen, 1e-300)
    rest = tables - share * tables.sum(axis=1)[:, None, :]
    sums = np.zeros((label.max() + 1, *rest.shape[1:]))
    np.add.at(sums, label, rest)
    between, alone = (sums**2).sum(axis=(0, 1)), (rest**2).sum(axis=(0, 1))
    ratio = np.divide(between, alone, out=np.ones_like(alone), where=alone > 0)
    return np.asarray(np.maximum(ratio, 1.0))


def state_sets(size: int) -> Array:
    """Sets of states as rows of 0 and 1; the complement of each stands at its mirror place."""
    if size > ALL_SETS:
        single = np.eye(size)
        return np.concatenate([single, 1 - single[::-1]])
    masks = np.arange(1, 2**size - 1)
    return ((masks[:, None] >> np.arange(size)) & 1).astype(float)


def _widest(share: Array, size: int, factor: float) -> float:
    """The largest E of order `factor` that shares of sets `[set, y]` up to these limits allow."""
    least = 1 - share[::-1]
    beyond = np.maximum(share[:, :, None] - factor * least[:, None, :], 0.0)
    beyond[:, range(size), range(size)] = 0.0
    if size > ALL_SETS:  # a distance is the sum of what single states have more
        return float(min(1.0, beyond[:size].sum(axis=0).max()))
    return float(min(1.0, beyond.max()))


def _by_pairs(inside: Array, outside: Array, needed: Array) -> Array:
    from scipy.stats import beta  # noqa: PLC0415  (slow to import)

    chance = np.broadcast_to(np.exp(-needed), inside.shape)
    limits = np.ones_like(inside)
    some = outside > 0
    limits[some] = beta.isf(chance[some], inside[some] + 1, outside[some])
    return limits


def _by_units(units: Array, sets: Array, needed: Array) -> Array:
    """For each set and y, the least share that bets against all larger ones have ruined.

    If the true share is at least p, a bettor on (p · pairs in y − pairs in the set and y) of each
    unit gains nothing on average, so that their wealth exceeds 1/failure with at most that chance.
    It grows with p: the limit is where it gets there.
    """
    inside = np.einsum("ax,uxy->auy", sets, units)
    seen = units.sum(axis=1)[None]
    low, high = np.zeros((len(sets), units.shape[2])), np.ones((len(sets), units.shape[2]))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        gain = middle[:, None] * seen - inside
        funds = [np.log1p(stake * gain).sum(axis=1) for stake in STAKES]
        wealth = np.logaddexp.reduce(funds, axis=0) - math.log(len(STAKES))
        ruled_out = wealth >= needed
        high, low = np.where(ruled_out, middle, high), np.where(ruled_out, low, middle)
    return high


def _by_sums(inside: Array, outside: Array, units: int, most: int, needed: Array) -> Array:
    room = most * np.sqrt(units * needed / 2)
    seen = inside + outside
    return np.asarray(np.divide(inside + room, seen, out=np.ones_like(seen), where=seen > 0))
