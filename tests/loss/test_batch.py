import numpy as np
import pytest

import agewise as aw
from random_chains import random_law, random_transition


@pytest.mark.parametrize("estimator", ["plain", "propagated"])
@pytest.mark.parametrize("mixing", ["exact", "own_law", "any_prior"])
def test_tables_of_many_equal_those_of_each(rng, estimator, mixing):
    chains = np.stack([random_transition(rng, 4) for _ in range(25)])
    laws = np.stack([random_law(rng, 4) for _ in range(25)])
    samples = rng.integers(5, 300, 25)
    states = [20, 50, 100, 200]
    u, b = aw.chain_tables(
        chains, states, samples, 9, 0.2, laws=laws, mixing=mixing, estimator=estimator
    )
    clients = [
        aw.Client(str(i), aw.MarkovChain(chains[i], states), laws[i], int(samples[i]))
        for i in range(25)
    ]
    wanted = aw.cost_tables(aw.Problem(clients, 9, 0.2, mixing, estimator, "formula"))
    np.testing.assert_allclose(u, wanted.u, rtol=1e-9)
    np.testing.assert_allclose(b, wanted.b, rtol=1e-9, atol=1e-12)


def test_stationary_laws_by_default(rng):
    chains = np.stack([random_transition(rng, 3, "dense") for _ in range(5)])
    u, b = aw.chain_tables(chains, [1, 2, 3], np.full(5, 10), 4, 0.3)
    clients = [aw.Client(str(i), aw.MarkovChain(c, [1, 2, 3]), samples=10) for i, c in
               enumerate(chains)]  # fmt: skip
    wanted = aw.cost_tables(aw.Problem(clients, 4, 0.3, calibration="formula"))
    np.testing.assert_allclose(u, wanted.u, rtol=1e-9)
    assert np.abs(b).max() < 1e-12


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"samples": [1, 2]}, "samples"), ({"samples": [0]}, "samples"),
        ({"states": [1, 2, 3]}, "states"), ({"epsilon": 0}, "epsilon is 0"),
        ({"mixing": "spectral"}, "mixing"), ({"mixing": "own_law"}, "laws is None"),
        ({"estimator": "x"}, "estimator"), ({"aggregate_at": 0}, "aggregate_at is 0"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(changes, words):
    good = {"transitions": [[[0.5, 0.5], [0.2, 0.8]]], "states": [1, 2], "samples": [5],
            "aggregate_at": 3, "epsilon": 0.1}  # fmt: skip
    with pytest.raises(aw.InvalidInput, match=words):
        aw.chain_tables(**{**good, **changes})
