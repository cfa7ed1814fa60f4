"""The baseline: uniformly random slots."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def random_schedule(
    clients: int, slots: int, rng: np.random.Generator, capacity: int | None = None
) -> NDArray[np.intp]:
    """Draw a column for each client, independently and uniformly.

    With a capacity, clients are dealt into `slots · capacity` places drawn without replacement.
    """
    if capacity is None:
        return rng.integers(0, slots, clients, dtype=np.intp)
    places = rng.choice(slots * capacity, size=clients, replace=False)
    return np.asarray(places // capacity, dtype=np.intp)
