"""One Gaussian release of aged data: its δ by integration, against what it was set for."""

import math

import numpy as np
import pytest

import agewise as aw
from random_chains import random_chain

EPSILON, DELTA, LAST = 0.5, 1e-5, 12


def failure(rows, values, scale, epsilon):
    """The largest δ over two present values: no formula of ageing, 200,000 cells of outputs."""
    edges = np.linspace(values.min() - 9 * scale, values.max() + 9 * scale, 200_001)
    width = edges[1] - edges[0]
    away = ((edges[:-1] + edges[1:])[:, None] / 2 - values) / scale
    density = np.exp(-(away**2) / 2) / (math.sqrt(2 * math.pi) * scale)
    told = density @ rows.T
    apart = told[:, :, None] - math.exp(epsilon) * told[:, None, :]
    return float(np.maximum(apart, 0).sum(axis=0).max()) * width


def release(chain, age, calibration="sharp", mixing="exact", law=None):
    """The noise of one client, and the rows of its record in the slot of collection."""
    client = aw.Client("c", chain, law=law, samples=1)
    problem = aw.Problem(
        [client],
        LAST,
        EPSILON,
        mixing=mixing,
        estimator="plain",
        calibration=calibration,
        mechanism="gaussian",
        delta=DELTA,
    )
    priced = aw.evaluate(problem, [LAST - age])
    rows = chain.joint(LAST - age, LAST, law).backward
    return priced.assignments[0], rows


@pytest.mark.parametrize("seed", range(12))
def test_guarantee_the_delta_of_aged_gaussian_noise_is_within_the_target(seed):
    rng = np.random.default_rng(seed)
    chain, age = random_chain(rng, 2 + seed % 4, "dense"), 1 + seed % 3
    one, rows = release(chain, age)
    formula, _ = release(chain, age, "formula")
    assert one.noise_scale <= formula.noise_scale * (1 + 1e-9)
    assert one.aged_epsilon <= EPSILON
    if one.noise_scale > 0:
        true = failure(rows, chain.states, one.noise_scale, EPSILON)
        assert true <= DELTA
        if len(rows) == 2:
            assert true > 0.999 * DELTA
            assert failure(rows, chain.states, 0.999 * one.noise_scale, EPSILON) > DELTA


def test_a_fresh_release_uses_all_of_its_delta(paper_chains):
    one, rows = release(paper_chains[0], 0)
    assert 0.999 * DELTA < failure(rows, paper_chains[0].states, one.noise_scale, EPSILON) <= DELTA
