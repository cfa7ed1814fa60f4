"""Random chains of several kinds, for tests that must hold for any chain."""

import numpy as np

import agewise as aw


def random_transition(rng, size, kind=None):
    kind = kind or rng.choice(["dense", "sparse", "birth_death", "sticky"])
    if kind == "birth_death":
        up, down = rng.dirichlet([1, 1, 1])[:2]
        return aw.birth_death(up, down, np.arange(size)).transition.copy()
    matrix = rng.dirichlet(np.ones(size), size)
    if kind == "sparse":  # a cycle through all states keeps it irreducible
        keep = rng.random((size, size)) < 0.4
        keep[np.arange(size), (np.arange(size) + 1) % size] = True
        matrix = np.where(keep, matrix + 1e-3, 0)
    if kind == "sticky":
        matrix = 0.05 * matrix + 0.95 * np.eye(size)
    return matrix / matrix.sum(axis=1, keepdims=True)


def random_chain(rng, size, kind=None):
    transition, states = random_transition(rng, size, kind), np.sort(rng.normal(0, 50, size))
    if np.unique(states.round(3)).size == size:  # short numbers where they stay distinct
        states = states.round(3)
    return aw.MarkovChain(transition, states)


def random_law(rng, size, zeros=True):
    law = rng.dirichlet(np.ones(size))
    if zeros and rng.random() < 0.3:
        law[rng.integers(size)] = 0
    return law / law.sum()
