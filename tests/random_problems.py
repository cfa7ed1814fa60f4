"""Random small problems of every kind."""

import numpy as np

import agewise as aw
from agewise.calibration import terms_of
from random_chains import random_chain, random_law, random_transition


def random_problem(rng, clients=None, slots=None, *, lattice=False, samples=(1, 30), **choices):
    members = []
    for i in range(clients or int(rng.integers(1, 4))):
        size = int(rng.integers(2, 4))
        if rng.random() < 0.25:
            states = np.arange(size) if lattice else np.sort(rng.normal(0, 10, size))
            process = aw.PeriodicChain([random_transition(rng, size) for _ in range(3)], states)
        else:
            chain = random_chain(rng, size)
            states = np.cumsum(rng.integers(1, 4, size)) * 5 if lattice else chain.states
            process = aw.MarkovChain(chain.transition, states)
        law = random_law(rng, size) if rng.random() < 0.6 else None
        members.append(aw.Client(f"c{i}", process, law, int(rng.integers(*samples))))
    base = {
        "mixing": rng.choice(["exact", "own_law", "any_prior"]),
        "estimator": rng.choice(["plain", "propagated"]),
    }
    return aw.Problem(
        members,
        slots or int(rng.integers(2, 6)),
        float(np.exp(rng.uniform(-3, 1))),
        **{**base, **choices},
    )


def random_ages(rng, problem):
    return rng.integers(0, problem.aggregate_at, len(problem.clients)).tolist()


def achieved_epsilon(table, column):
    """The aged ε of a cell of a client's table."""
    cell = terms_of(table, column)
    return cell.aged_epsilon(cell.scale, cell.classical_epsilon)
