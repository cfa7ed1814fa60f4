"""Measured knowledge made up at random, with covariances that are some."""

import numpy as np

from agewise.knowledge import Measured


def measured(names, slots, states, factors=2, days=50):
    rng = np.random.default_rng(len(names))
    shape = (len(names), slots, states)
    joint = rng.normal(0, 0.02, (len(names), slots * states, 2 * slots * states))
    law = joint @ np.swapaxes(joint, 1, 2)  # the shares of all slots of a client together
    blocks = law.reshape(len(names), slots, states, slots, states)
    every = np.arange(slots)
    return Measured(
        names,
        mean=rng.dirichlet(np.ones(states), shape[:2]),
        factors=rng.normal(0, 0.05, (*shape, factors)),
        own=blocks[:, every, :, every].swapaxes(0, 1),
        lagged=blocks[:, :, :, -1, :],
        days=days,
        assumes="made up",
    )
