"""Distances between the laws that rows of kernels give, for batches of them."""

from __future__ import annotations

import itertools

import numpy as np

from agewise.arrays import Array


def widest(rows: Array) -> Array:
    """The largest total variation distance between two rows of `[y, x, m]`."""
    widest, apart = np.zeros(rows.shape[2]), np.empty(rows.shape[1:])
    for y, other in itertools.combinations(rows, 2):
        np.abs(np.subtract(y, other, out=apart), out=apart)
        np.maximum(widest, apart.sum(axis=0), out=widest)
    return widest / 2


def any_prior_distance(kernel: Array) -> Array:
    """tanh(D/4), D the projective diameter (Birkhoff) of kernels `[x, y, m]`.

    For two values y, y′ at aggregation the worst prior sits on the two collected values with the
    largest and the smallest likelihood ratio, and there the distance is tanh(ln(cross)/4), cross
    the quotient of the two ratios. Written without logarithms, whose rounding grows with them.
    """
    cross = np.ones(kernel.shape[2])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for x in range(kernel.shape[0] - 1):
            ratio = kernel[x + 1 :] / kernel[x]  # nan where neither can reach y: no evidence
            width = np.fmax.reduce(ratio, axis=1) / np.fmin.reduce(ratio, axis=1)
            np.maximum(cross, width.max(axis=0), out=cross)
    return 1 - 2 / (1 + np.sqrt(cross))


def rounded_up(value: Array, slack: Array | float) -> Array:
    """Add a bound on the rounding error and clip at one.

    A total variation distance of laws with a relative error r is off by at most r, and so is
    tanh(D/4).
    """
    return np.minimum(value + slack, 1.0)
