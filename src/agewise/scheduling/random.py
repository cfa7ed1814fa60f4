"""The baseline: uniformly random slots."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching


def random_schedule(
    clients: int,
    slots: int,
    rng: np.random.Generator,
    capacity: int | None = None,
    allowed: NDArray[np.bool_] | None = None,
) -> NDArray[np.intp]:
    """Draw a column for each client, independently and uniformly.

    With a capacity, clients are dealt into `slots · capacity` places drawn without replacement.
    Where only some slots are `allowed` `[m, T]`, among those; with a capacity too, by a matching in
    a random order, of which some schedules are likelier than others.
    """
    if allowed is not None and not allowed.all():
        if capacity is None:
            return np.asarray(np.where(allowed, rng.random(allowed.shape), -1.0).argmax(axis=1))
        order = rng.permutation(slots * min(capacity, clients))
        return np.asarray(order[matched(allowed, capacity, order)] // min(capacity, clients))
    if capacity is None:
        return rng.integers(0, slots, clients, dtype=np.intp)
    places = rng.choice(slots * capacity, size=clients, replace=False)
    return np.asarray(places // capacity, dtype=np.intp)


def matched(
    allowed: NDArray[np.bool_], capacity: int, order: NDArray[np.intp] | None = None
) -> NDArray[np.intp]:
    """A place among the `slots · capacity` for as many clients as can have one, else -1."""
    places = np.repeat(allowed, min(capacity, len(allowed)), axis=1)
    places = places if order is None else places[:, order]
    found = maximum_bipartite_matching(csr_array(places), perm_type="column")
    return np.asarray(found, dtype=np.intp)
