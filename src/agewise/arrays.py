"""Arrays that many modules share: made read-only, moved to the nearest state, drawn from laws."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def frozen(array: Array) -> Array:
    """Make an array read-only, and return it."""
    array.setflags(write=False)
    return array


def nearest_states(values: Array, states: Array) -> NDArray[np.intp]:
    """Return the index of the state nearest to each value, of two equally near ones the lower.

    >>> nearest_states(np.array([-5.0, 35.0, 36.0]), np.array([50.0, 20.0]))
    array([1, 1, 0])
    """
    order = np.argsort(states)
    middles = (states[order][1:] + states[order][:-1]) / 2
    return order[np.searchsorted(middles, values, side="left")]


def draw_states(cumulative: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw one state from each row of summed-up probabilities, by inverting them.

    >>> draw_states(np.cumsum([[0.0, 1.0, 0.0]] * 3, axis=1), np.random.default_rng(0))
    array([1, 1, 1])
    """
    return states_at(cumulative, rng.random(cumulative.shape[:1]))


def states_at(cumulative: Array, shares: Array) -> NDArray[np.intp]:
    """Return the state of each row of summed-up probabilities at a share, 0 to 1, of their sum."""
    # Scaling by the last entry keeps rounding in the sum from selecting a state of probability 0.
    draw = shares * cumulative[:, -1]
    return np.asarray((draw[:, None] >= cumulative).sum(axis=1), dtype=np.intp)
