"""The δ of Gaussian noise on one number, about a later value: from both sides, cell by cell.

∫ (p − e^ε q)₊ for two mixtures of normal densities. On a cell of outputs in which p − e^ε q keeps
its sign, the integral is the difference of two probabilities; a cell in which it may change is at
most its width squared times the steepest slope there. Leaving cells out only lowers the sum.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy.special import ndtr

from agewise.arrays import Array
from agewise.auditing.outward import Between

CELLS = 40_000
BEYOND = 12.0
"""Standard deviations beyond the outermost values that are looked at."""
_OFF = 1e-14
"""Error of a probability by SciPy's normal distribution."""


def failure_between(
    rows: Between, values: Array, scale: float, epsilon: float
) -> tuple[float, float]:
    """The least and the most that δ can be at this ε, for the worst two later values.

    `rows` `[Y, S]` are the laws of the released value given each later one, `values` `[S]` what is
    released of each state, `scale` the standard deviation of the noise.
    """
    edges = np.linspace(values.min() - BEYOND * scale, values.max() + BEYOND * scale, CELLS + 1)
    width = edges[1] - edges[0]
    factor = math.exp(min(epsilon, 700.0))
    away = (edges[:, None] - values) / scale
    # The smaller of two tails keeps its digits.
    below, above = ndtr(away), ndtr(-away)
    chance = np.where(away[:-1] > 0, -np.diff(above, axis=0), np.diff(below, axis=0))
    middle = np.abs(away[:-1] + away[1:]) / 2
    nearest = np.maximum(middle - width / scale / 2, 0.0)
    density = np.exp(-(nearest**2) / 2) / (math.sqrt(2 * math.pi) * scale)
    slope = density * (middle + width / scale) / scale
    low, high = 0.0, 0.0
    for y, other in itertools.permutations(range(len(rows.low)), 2):
        least = chance @ rows.low[y] - factor * (chance @ rows.high[other])
        most = chance @ rows.high[y] - factor * (chance @ rows.low[other])
        steep = (slope @ rows.high[y] + factor * (slope @ rows.high[other])) * width**2
        low = max(low, float(np.maximum(least, 0.0).sum()))
        turning = np.where((least < steep) & (most > -steep), steep, 0.0)
        high = max(high, float((np.maximum(most, 0.0) + turning).sum()))
    tails = 2 * float(ndtr(-BEYOND))
    rounding = _OFF * (1 + factor)
    return max(low * (1 - 1e-9) - rounding, 0.0), min(high * (1 + 1e-9) + tails + rounding, 1.0)
