"""What earlier days say of the clients: means, what they share, and what each has of its own.

Shares of a client's records in each state, day by day, less their mean over the *other* weeks: the
covariances of such differences count that a mean of few weeks is off, weeks being independent of
each other. Factors are what clients share. Their covariances come from products of different
clients only, since the product of a client with itself holds its own variance too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.checks import whole
from agewise.errors import InvalidInput
from agewise.fitting.laws import WEEK, Codes, window_starts
from agewise.knowledge import Measured

FEWEST_WEEKS = 2
"""Weeks with whole days that knowledge needs: each is judged by the others."""
MOST_FACTORS = 6
"""Factors at most, unless told how many: files grow with them, and plans take longer."""
NEARLY = 1.02
"""A factor more has to bring odd and even weeks nearer to each other by more than this."""
DIGITS, EXACT_DIGITS = 6, 10
"""Significant digits kept of means and loadings, and of covariances, which have to remain some."""


@dataclass(frozen=True)
class Days:
    """Shares of records in each state `[day, client, slot, state]`, and the week of each day."""

    clients: tuple[str, ...]
    shares: Array
    week: NDArray[np.intp]


def daily_shares(
    codes: Codes,
    members: Mapping[str, Sequence[int]],
    states: int,
    day: int,
    *,
    first_slot: int,
    slots: int,
    starts: int = 0,
    wanted: NDArray[np.bool_] | None = None,
) -> Days:
    """Cut readings into a window for each day, and count each client's records by state.

    `members` are the rows of each client. Days on which fewer than half of a client's entities
    have a reading in some slot are left out, and those that are not `wanted` (None: all are).
    """
    begin = window_starts(codes.shape[1], day, first_slot=first_slot, slots=slots, starts=starts)
    inside = begin[:, None] + np.arange(slots)
    counts = np.stack(
        [
            np.stack([(codes[rows] == state).sum(axis=0)[inside] for state in range(states)], -1)
            for rows in (list(rows) for rows in members.values())
        ],
        axis=1,
    )
    sizes = np.array([len(rows) for rows in members.values()])
    known = counts.sum(axis=-1)
    good = (2 * known >= np.maximum(sizes[:, None], 1)).all(axis=(1, 2))
    good &= True if wanted is None else wanted
    week = np.arange(len(begin)) // WEEK
    found = np.unique(week[good]).size
    if found < FEWEST_WEEKS:
        raise InvalidInput(
            "readings",
            f"{found} week(s) with days on which every client has readings in every slot",
            f"{FEWEST_WEEKS} or more, for what is known of the clients",
            "Complete the readings, or leave knowledge out (knowledge=False, --no-knowledge).",
        )
    return Days(tuple(members), counts[good] / known[good][..., None], week[good])


def measure_knowledge(
    days: Days, values: Array, weights: Array, factors: int | None = None, assumes: str = ""
) -> Measured:
    """Return means and covariances of shares, with common factors.

    `factors` is how many (None: as few as let odd weeks foretell even ones all but best, and the
    other way round; six at most). Factors are principal components, over slots, of the part of the
    weighted mean value that different clients have in common. What the factors leave of it counts
    as the clients' own, so that the mean of all clients varies in each slot, and with the
    aggregation slot, as it was measured to.
    """
    if factors is not None:
        whole("factors", factors, 0, min(len(days.shares) - 1, days.shares.shape[2]))
    off = days.shares - _mean_of_other_weeks(days)
    loadings = _loadings(off, values, weights, days.week, factors)
    own, lagged = (
        found - shared for found, shared in zip(_moments(off), _shared(loadings), strict=True)
    )
    everybody = np.einsum("i,dits->dts", weights, off)
    together = np.einsum("i,itsf->tsf", weights, loadings)
    rest, rest_lagged = (
        (found - shared - np.einsum("i,itsu->tsu", weights**2, part)) / (weights**2).sum()
        for found, shared, part in zip(
            _moments(everybody), _shared(together), (own, lagged), strict=True
        )
    )
    own, lagged = _covariances(own + rest, lagged + rest_lagged)
    return Measured(
        days.clients,
        _rounded(days.shares.mean(axis=0)),
        _rounded(loadings),
        _rounded(own, EXACT_DIGITS),
        _rounded(lagged, EXACT_DIGITS),
        len(days.shares),
        assumes,
    )


def _mean_of_other_weeks(days: Days) -> Array:
    """For each day, the mean share over the days of all other weeks."""
    weeks, place = np.unique(days.week, return_inverse=True)
    sums = np.stack([days.shares[place == week].sum(axis=0) for week in range(weeks.size)])
    left = len(days.shares) - np.bincount(place)
    means = (sums.sum(axis=0) - sums) / left[:, None, None, None]
    return np.asarray(means[place])


def _moments(off: Array) -> tuple[Array, Array]:
    """Second moments in each slot, and with the aggregation slot, `[..., slot, state, state]`."""
    count = len(off)
    return (
        np.einsum("d...ts,d...tu->...tsu", off, off) / count,
        np.einsum("d...ts,d...u->...tsu", off, off[..., -1, :]) / count,
    )


def _shared(loadings: Array) -> tuple[Array, Array]:
    """What factors add to those moments."""
    return (
        np.einsum("...tsf,...tuf->...tsu", loadings, loadings),
        np.einsum("...tsf,...uf->...tsu", loadings, loadings[..., -1, :, :]),
    )


def _loadings(
    off: Array, values: Array, weights: Array, week: NDArray[np.intp], factors: int | None
) -> Array:
    """How each client's shares move with each factor, `[client, slot, state, F]`."""
    shape = off.shape[1:]
    if shape[0] == 1 or factors == 0:
        return np.zeros((*shape, 0))
    levels = off @ values  # [day, client, slot]
    odd = np.unique(week, return_inverse=True)[1] % 2 == 1
    sizes, vectors = _components(_common(levels, weights))
    if factors is None:
        factors = _foretelling(*(_common(levels[part], weights) for part in (odd, ~odd)))
    kept = min(factors, int((sizes > 1e-9 * sizes[0]).sum()))
    scores = vectors[:, :kept] / np.sqrt(sizes[:kept])
    everybody = np.einsum("i,dit->dt", weights, levels)

    def found(chosen: NDArray[np.bool_]) -> Array:
        """Covariances of each client's shares with the scores of all others."""
        others = everybody[chosen, None] - weights[:, None] * levels[chosen]
        heard = (others / (1 - weights[:, None])) @ scores
        return np.asarray(np.einsum("dits,dif->itsf", off[chosen], heard) / chosen.sum())

    every = found(np.ones(len(off), dtype=bool))
    mean = np.einsum("i,itsf->tsf", weights, every)
    halves = [found(part) - mean for part in (odd, ~odd)]
    alike = float((halves[0] * halves[1]).sum() / max(float(((every - mean) ** 2).sum()), 1e-300))
    # Clients differ as far as odd and even weeks agree that they do; the rest is chance.
    return np.asarray(mean + min(max(alike, 0.0), 1.0) * (every - mean))


def _common(levels: Array, weights: Array) -> Array:
    """What different clients have in common, between slots: their products, without squares."""
    everybody = np.einsum("i,dit->dt", weights, levels)
    squares = np.einsum("i,dit,diu->tu", weights**2, levels, levels)
    return np.asarray(
        (everybody.T @ everybody - squares) / (len(levels) * (1 - (weights**2).sum()))
    )


def _components(common: Array) -> tuple[Array, Array]:
    sizes, vectors = np.linalg.eigh(common)
    return np.maximum(sizes[::-1], 0.0), vectors[:, ::-1]


def _foretelling(odd: Array, even: Array) -> int:
    """How few components of either half of the weeks come (nearly) nearest to the other half."""
    distance = np.zeros(min(MOST_FACTORS, len(odd)) + 1)
    for mine, other in ((odd, even), (even, odd)):
        sizes, vectors = _components(mine)
        for count in range(distance.size):
            kept = (vectors[:, :count] * sizes[:count]) @ vectors[:, :count].T
            distance[count] += float(np.square(other - kept).sum())
    return int((distance <= NEARLY * distance.min()).argmax())


def _covariances(own: Array, lagged: Array) -> tuple[Array, Array]:
    """The nearest that are some: what a slot has alone is never less than nothing."""
    present = _not_negative(own[:, -1])
    inverse = np.linalg.pinv(present, rcond=1e-9, hermitian=True)
    lagged = lagged @ inverse[:, None] @ present[:, None]
    explained = lagged @ inverse[:, None] @ np.swapaxes(lagged, 2, 3)
    own = explained + _not_negative(own - explained)
    own[:, -1] = lagged[:, -1] = present
    return own, lagged


def _not_negative(matrices: Array) -> Array:
    sizes, vectors = np.linalg.eigh((matrices + np.swapaxes(matrices, -1, -2)) / 2)
    return np.asarray(
        (vectors * np.maximum(sizes, 0.0)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    )


def _rounded(array: Array, digits: int = DIGITS) -> Array:
    """The numbers with fewer digits, for the size of files."""
    size = np.abs(array)
    place = 10.0 ** (digits - 1 - np.floor(np.log10(np.where(size > 0, size, 1.0))))
    return np.asarray(np.round(array * place) / place)
