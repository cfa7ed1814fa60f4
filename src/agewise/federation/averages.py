"""What a server makes of noised uploads, by coordinate. Sums are exact, and rounded once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from agewise.arrays import Array
from agewise.planning import Plan


def weighted_mean(shares: Sequence[float], values: Array) -> tuple[float, ...]:
    """Σ share × release, of releases `[m, d]`."""
    products = np.asarray(shares)[:, None] * values
    return tuple(math.fsum(column) for column in products.T.tolist())


def best_estimate(plan: Plan, names: Sequence[str], values: Array) -> tuple[float, ...]:
    """The plan's offset + Σ gain × release, of releases `[m, d]` of the clients named."""
    clients = [a.client for a in plan.assignments]
    rows = np.reshape(plan.gains, (len(clients), -1))
    if clients != list(names):
        place = {client: row for row, client in enumerate(clients)}
        rows = rows[[place[name] for name in names]]
    columns = (rows * values).T.tolist()
    return tuple(
        math.fsum([offset, *column]) for offset, column in zip(plan.offset, columns, strict=True)
    )
