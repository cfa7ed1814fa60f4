"""Upper limits on Δ and E from weeks, right as weeks grow many: narrower than proven ones.

Δ and E are the largest of contrasts q(A) − t·d(A), over pairs of rows q, d and sets A of states
(t = 1 for Δ, e^ε̄ for E at the target ε̄). The largest of upper limits on all contrasts is above
the truth wherever the limit of the contrast that is truly largest is above it: that a maximum is
biased upwards and has kinks needs no correction.

A contrast of shares is, up to smaller terms, the mean of one number per week (its jackknife
pseudo-values). To these one more is added, 1: a week as bad as can be, since what is rarer than
the weeks read would else count for nothing. Limits are Student's t limits of those means, with as
many degrees of freedom as the kurtosis of the numbers leaves, and a critical value for all of
them together from a multiplier bootstrap of whole weeks. What moves all entities in a week stays
in that week's number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from agewise.arrays import Array
from agewise.checks import finite_array, fraction
from agewise.errors import InvalidInput
from agewise.process.limits import ALL_SETS, state_sets

FEWEST_WEEKS = 8
"""Weeks below which there are no asymptotic limits."""
LEAST_FAILURE = 0.01
"""The rarest failure that the draws can tell."""
DRAWS = 4000
_BLOCK = 2000
"""Contrasts handled at once."""


@dataclass(frozen=True)
class _Contrasts:
    """Means of weekly numbers `[set, pair, target]`, and how far weeks are from them."""

    mean: Array
    error: Array
    freedom: Array
    weeks: Array
    """The numbers of the weeks that count; −1 is the worst week, which is added."""
    deviations: Array
    """`[week, contrast]`, of length 1 over the weeks."""


def critical_value(tables: Iterable[ArrayLike], targets: ArrayLike, failure: float) -> float:
    """Return how many standard errors all limits together need, on the scale of the normal law.

    `tables[k][week, x, y]` are the weekly counts of each age, class and group for which limits are
    wanted; all cover the same weeks. `targets` are the target ε's of E; 0 is Δ.
    """
    fraction("failure", failure)
    if failure < LEAST_FAILURE:
        raise InvalidInput(
            "confidence",
            f"{1 - failure:g} for asymptotic limits",
            f"{1 - LEAST_FAILURE:g} at most",
            "So far out no simulation tells; use proven limits.",
        )
    draws = np.empty((0, 0))
    largest = np.full(DRAWS, -np.inf)
    for table in tables:
        found = _contrasts(table, targets)
        if found is None:
            continue
        if not draws.size:
            draws = np.random.default_rng(0).standard_normal((DRAWS, len(np.asarray(table)) + 1))
        taken = draws[:, found.weeks]
        for start in range(0, found.deviations.shape[1], _BLOCK):
            drawn = taken @ found.deviations[:, start : start + _BLOCK]
            np.maximum(largest, drawn.max(axis=1), out=largest)
    return float(np.quantile(largest, 1 - failure, method="higher")) if draws.size else 0.0


def asymptotic_limits(table: ArrayLike, targets: ArrayLike, critical: float) -> Array:
    """Return upper limits on E at each target ε (0: on Δ) from weekly counts `[week, x, y]`.

    `critical` is the `critical_value` of all tables for which limits shall hold together.

    Guarantees
        As weeks grow many, and if they are independent draws, the probability that any of these
        limits is below the truth tends to at most the failure that `critical` is for. There is no
        proof for any number of weeks; `agewise.fitting.coverage` says what simulations found. The
        limit is 1 for fewer than 8 weeks with pairs, and where some later value was never seen.
    """
    from scipy.stats import norm, t  # noqa: PLC0415  (slow to import)

    found = _contrasts(table, targets)
    if found is None:
        return np.ones(np.shape(targets))
    room = t.isf(norm.sf(critical), found.freedom) * found.error
    upper = np.maximum(found.mean + room, 0.0)
    if np.asarray(table).shape[1] > ALL_SETS:  # a distance is the sum of what single states have
        upper = upper.sum(axis=0, keepdims=True)
    return np.asarray(np.minimum(upper.max(axis=(0, 1)), 1.0))


def _contrasts(table: ArrayLike, targets: ArrayLike) -> _Contrasts | None:
    """All contrasts of a table; None for few weeks, and if some later value was never seen."""
    counts = finite_array("table", table, "counts [week, x, y]")
    if counts.ndim != 3 or counts.shape[1] != counts.shape[2] or (counts < 0).any():
        raise InvalidInput("table", f"of shape {counts.shape}", "counts [week, x, y], none below 0")
    present = np.flatnonzero(counts.sum(axis=(1, 2)))
    if present.size < FEWEST_WEEKS:
        return None
    counts, size = counts[present], counts.shape[1]
    seen = counts.sum(axis=1)
    total = seen.sum(axis=0)
    if not total.all():
        return None
    sets = state_sets(size)[: size if size > ALL_SETS else None]
    inside = np.einsum("ax,wxy->way", sets, counts)
    share = inside.sum(axis=0) / total
    by_week = share + len(counts) * (inside - share * seen[:, None]) / total
    one, other = np.nonzero(~np.eye(size, dtype=bool))
    factors = np.exp(np.asarray(targets, dtype=float))
    numbers = by_week[:, :, one, None] - factors * by_week[:, :, other, None]
    numbers = np.concatenate([numbers, np.ones((1, *numbers.shape[1:]))])
    count, mean = len(numbers), numbers.mean(axis=0)
    away = numbers - mean
    square = np.maximum((away**2).sum(axis=0), 1e-30)
    freedom = np.clip(3 * square**2 / np.maximum((away**4).sum(axis=0), 1e-60) - 1, 1, count - 1)
    return _Contrasts(
        mean,
        np.sqrt(square / (count - 1) / count),
        freedom,
        np.append(present, -1),
        (away / np.sqrt(square)).reshape(count, -1),
    )
