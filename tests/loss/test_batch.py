import numpy as np
import pytest

import agewise as aw
from agewise.loss import batch
from random_chains import random_law, random_transition


@pytest.mark.parametrize("estimator", ["plain", "propagated"])
@pytest.mark.parametrize("mixing", ["exact", "own_law", "any_prior"])
@pytest.mark.parametrize("calibration", ["formula", "sharp"])
def test_tables_of_many_equal_those_of_each(rng, estimator, mixing, calibration):
    chains = np.stack([random_transition(rng, 4) for _ in range(25)])
    laws = np.stack([random_law(rng, 4) for _ in range(25)])
    samples = rng.integers(5, 300, 25)
    states = [20, 50, 100, 200]
    u, b = aw.chain_tables(
        chains,
        states,
        samples,
        9,
        0.2,
        laws=laws,
        mixing=mixing,
        estimator=estimator,
        calibration=calibration,
    )
    clients = [
        aw.Client(str(i), aw.MarkovChain(chains[i], states), laws[i], int(samples[i]))
        for i in range(25)
    ]
    wanted = aw.cost_tables(aw.Problem(clients, 9, 0.2, mixing, estimator, calibration))
    np.testing.assert_allclose(u, wanted.u, rtol=1e-12)
    np.testing.assert_allclose(b, wanted.b, rtol=1e-12, atol=1e-12)


def test_stationary_laws_and_the_choices_of_a_problem_by_default(rng):
    chains = np.stack([random_transition(rng, 3, "dense") for _ in range(5)])
    u, b = aw.chain_tables(chains, [1, 2, 3], np.full(5, 10), 4, 0.3)
    clients = [
        aw.Client(str(i), aw.MarkovChain(c, [1, 2, 3]), samples=10) for i, c in enumerate(chains)
    ]
    wanted = aw.cost_tables(aw.Problem(clients, 4, 0.3, estimator="propagated"))
    np.testing.assert_allclose(u, wanted.u, rtol=1e-12)
    assert np.abs(b).max() < 1e-12


def test_clients_alike_are_worked_out_once(rng, monkeypatch):
    seen = []
    chains = batch.Chains
    monkeypatch.setattr(
        batch, "Chains", lambda each, *others: seen.append(each) or chains(each, *others)
    )
    kinds = np.stack([random_transition(rng, 3) for _ in range(4)])
    laws = np.stack([random_law(rng, 3) for _ in range(4)])
    kind, weights = rng.integers(0, 4, 60), rng.random(60)
    arguments = [1, 2, 3], np.full(60, 10), 5, 0.3
    u, b = aw.chain_tables(kinds[kind], *arguments, laws=laws[kind], weights=weights)
    assert sum(len(chains) for chains in seen) == 4
    each, bias = aw.chain_tables(
        kinds, [1, 2, 3], np.full(4, 10), 5, 0.3, laws=laws, weights=[1] * 4
    )
    np.testing.assert_allclose(u, each[kind] * weights[:, None] ** 2, rtol=1e-14)
    np.testing.assert_allclose(b, bias[kind] * weights[:, None], rtol=1e-14)


def test_clients_that_differ_are_never_taken_for_alike(rng, monkeypatch):
    class Same:
        def random(self, size):
            return np.ones(size)  # every chain then sums to as many rows as it has

    chains = np.stack([random_transition(rng, 3) for _ in range(6)])
    wanted = aw.chain_tables(chains, [1, 2, 3], np.full(6, 10), 5, 0.3)
    monkeypatch.setattr(np.random, "default_rng", lambda seed: Same())
    np.testing.assert_array_equal(
        aw.chain_tables(chains, [1, 2, 3], np.full(6, 10), 5, 0.3), wanted
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"samples": [1, 2]}, "samples"),
        ({"samples": [0]}, "samples"),
        ({"states": [1, 2, 3]}, "states"),
        ({"epsilon": 0}, "epsilon is 0"),
        ({"mixing": "spectral"}, "mixing"),
        ({"mixing": "own_law"}, "laws is None"),
        ({"calibration": "tight"}, "calibration is 'tight'"),
        ({"estimator": "x"}, "estimator"),
        ({"weights": [0.5, 0.5]}, "weights is of shape"),
        ({"aggregate_at": 0}, "aggregate_at is 0"),
    ],
)
def test_bad_input_is_refused(changes, words):
    good = {
        "transitions": [[[0.5, 0.5], [0.2, 0.8]]],
        "states": [1, 2],
        "samples": [5],
        "aggregate_at": 3,
        "epsilon": 0.1,
    }
    with pytest.raises(aw.InvalidInput, match=words):
        aw.chain_tables(**{**good, **changes})


def test_laws_that_underflow_get_no_credit_for_ageing():
    slow = np.array([[[1.0, 1e-150], [0.5, 0.5]]] * 2)
    laws = np.array([[1e-150, 1.0], [0.5, 0.5]])
    u, _ = aw.chain_tables(slow, [0, 1], [10, 10], 3, 0.1, laws=laws, mixing="own_law")
    clients = [aw.Client(str(i), aw.MarkovChain(slow[i], [0, 1]), laws[i], 10) for i in range(2)]
    wanted = aw.cost_tables(aw.Problem(clients, 3, 0.1, "own_law", "propagated"))
    np.testing.assert_allclose(u, wanted.u, rtol=1e-12)
    assert wanted.slots[0].classical_epsilon[0] == pytest.approx(0.1)
    assert wanted.slots[1].classical_epsilon[0] > 0.15


@pytest.mark.parametrize("mixing", ["exact", "own_law"])
def test_clients_left_out_once_nothing_is_left_of_their_rows_get_what_they_would(
    rng, mixing, monkeypatch
):
    chains = np.stack([random_transition(rng, 4) for _ in range(60)])
    stays = rng.random((60, 1, 1))  # some mix in a slot or two, some in very many
    chains = stays * np.eye(4) + (1 - stays) * chains
    laws = np.stack([random_law(rng, 4) for _ in range(60)])
    found, asked = [], []
    hockey_sticks = batch.hockey_sticks

    def counted(rows, *more):
        asked[-1] += len(rows)
        return hockey_sticks(rows, *more)

    monkeypatch.setattr(batch, "hockey_sticks", counted)
    for worth in (0.0, 0.5, 1.1):
        monkeypatch.setattr(batch, "WORTH", worth)
        asked.append(0)
        found.append(
            aw.chain_tables(chains, [0, 1, 2, 3], np.full(60, 9), 40, 0.3, laws=laws, mixing=mixing)
        )
    assert asked[0] == 39 * 60  # none of age 0: Δ is 1 there
    assert asked[0] > asked[1] > asked[2]
    for u, b in found[1:]:
        np.testing.assert_allclose(u, found[0][0], rtol=1e-12)
        np.testing.assert_allclose(b, found[0][1], rtol=1e-12)


def test_a_client_may_have_a_single_record():
    u, _ = aw.chain_tables([[[0.5, 0.5], [0.5, 0.5]]], [0, 1], [1], 2, 0.5)
    assert np.isfinite(u).all()
