"""Moves of one or two clients that leave the least, where all moves have one bias."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array

NEAR = np.arange(-2, 2)
"""The partners tried for each move: those that come closest to cancelling what is left."""


def best_moves(
    price: Array, step: Array, client: NDArray[np.intp], off: float
) -> tuple[list[int], float]:
    """Which one or two moves lower Σ price + (off + Σ step)² most, and by how much that changes.

    Two moves of one client are no pair. For each move the partners looked at are those with steps
    nearest to what it leaves: O(n log n).
    """
    alone = price + (off + step) ** 2
    order = np.argsort(step)
    place = np.searchsorted(step[order], -(off + step))
    partner = order[np.clip(place[:, None] + NEAR, 0, order.size - 1)]
    paired = price[:, None] + price[partner] + (off + step[:, None] + step[partner]) ** 2
    paired[client[:, None] == client[partner]] = np.inf
    one = int(np.argmin(alone))
    two = np.unravel_index(int(np.argmin(paired)), paired.shape)
    if alone[one] <= paired[two]:
        return [one], float(alone[one]) - off**2
    return [int(two[0]), int(partner[two])], float(paired[two]) - off**2
