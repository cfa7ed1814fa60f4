"""The exact finish for several biases: every schedule whose reduced cost is small enough to matter.

With multipliers λ, any schedule has objective L(λ) + Σ r_i + ‖Σ b_i − λ‖², where r_i ≥ 0 is the
reduced cost of the chosen cell. So whatever beats L + G has Σ r_i ≤ G. The clients are split in
two halves, all partial choices of each half with Σ r ≤ G are listed, and a nearest-neighbour
search pairs them: R₁ + R₂ + ‖B₁ + B₂ − λ‖² is a squared distance once √R₂ is a coordinate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array

LONGEST = 400_000
"""Partial choices of one half beyond which the search gives up on a budget."""


def best_within(
    reduced: Array, bias: Array, target: Array, budget: float
) -> tuple[NDArray[np.intp], float] | None:
    """Return the best of all schedules of reduced cost up to `budget`, and its value.

    `reduced` `[m, T]`, `bias` `[m, T, d]`, `target` λ; the value is objective − L(λ). Any schedule
    not looked at has a value above `budget`. None where there are too many to list.
    """
    options = [np.flatnonzero(row <= budget) for row in reduced]
    order = sorted(range(len(options)), key=lambda i: len(options[i]))
    halves = order[::2], order[1::2]
    lists = [_partial_choices(reduced, bias, options, half, budget) for half in halves]
    left, right = lists
    if left is None or right is None:
        return None
    from scipy.spatial import KDTree  # noqa: PLC0415

    tree = KDTree(np.column_stack([right[1], np.sqrt(right[0])]))
    wanted = np.column_stack([target - left[1], np.zeros(len(left[0]))])
    nearest = tree.query(wanted)
    distance, partner = np.asarray(nearest[0]), np.asarray(nearest[1])
    totals = left[0] + distance**2
    place = int(np.argmin(totals))
    columns = np.empty(len(reduced), dtype=np.intp)
    columns[halves[0]] = left[2][place]
    columns[halves[1]] = right[2][partner[place]]
    return columns, float(totals[place])


def _partial_choices(
    reduced: Array,
    bias: Array,
    options: list[NDArray[np.intp]],
    half: list[int],
    budget: float,
) -> tuple[Array, Array, NDArray[np.intp]] | None:
    """All choices of some clients within the budget: cost `[k]`, bias `[k, d]`, columns."""
    cost, total = np.zeros(1), np.zeros((1, bias.shape[2]))
    columns = np.empty((1, 0), dtype=np.intp)
    for client in half:
        choice = options[client]
        if len(cost) * len(choice) > 8 * LONGEST:
            return None
        sums = cost[:, None] + reduced[client, choice]
        parent, option = np.nonzero(sums <= budget)
        if len(parent) > LONGEST:
            return None
        cost = sums[parent, option]
        total = total[parent] + bias[client, choice[option]]
        columns = np.column_stack([columns[parent], choice[option]])
    return cost, total, columns
