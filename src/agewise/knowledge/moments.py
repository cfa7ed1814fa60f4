"""Means and covariances of what a client would tell fresh, and of what it releases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array


@dataclass(frozen=True)
class Moments:
    """What is known of one client: its mean M at aggregation, and its release y without noise.

    By collection slot and coordinate of the learner, `[A, C]`: `target_mean` and
    `target_variance` of M, `mean` and `variance` of y, and their `covariance`. Variances are of
    the client's own part; what it shares with others are factors of mean 0 and variance 1:
    `target_factors` `[C, F]` is how M moves with each of them, `factors` `[A, C, F]` how y does.
    """

    target_mean: Array
    mean: Array
    target_variance: Array
    covariance: Array
    variance: Array
    target_factors: Array
    factors: Array


def independent_moments(
    law: Array, kernel: Array, release: Array, table: Array, samples: int, row: NDArray[np.intp]
) -> Moments:
    """The moments of `samples` independent records that follow a known law.

    `law` `[R, S]`, `kernel` `[R, S, S]` and `release` `[R, S, C]` are those of the distinct rows,
    `table` `[S, C]` is φ, and `row` `[A]` says which row belongs to each slot.
    """
    moved = kernel @ table  # E[φ at aggregation | collected]
    present = (law[:, None, :] @ kernel)[:, 0]
    target_mean = present @ table
    mean = np.einsum("rs,rsc->rc", law, release)
    off = release - mean[:, None]
    target_variance = np.einsum("rs,rsc->rc", present, (table - target_mean[:, None]) ** 2)
    covariance = np.einsum("rs,rsc,rsc->rc", law, off, moved - target_mean[:, None])
    variance = np.einsum("rs,rsc->rc", law, off**2)
    none = table.shape[1]
    return Moments(
        target_mean=target_mean[row],
        mean=mean[row],
        target_variance=target_variance[row] / samples,
        covariance=covariance[row] / samples,
        variance=variance[row] / samples,
        target_factors=np.zeros((none, 0)),
        factors=np.zeros((len(row), none, 0)),
    )
