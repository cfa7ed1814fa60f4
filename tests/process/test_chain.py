import warnings
from fractions import Fraction

import numpy as np
import pytest
import sympy

import agewise as aw
from agewise.process import stationary_laws
from random_chains import random_chain, random_transition

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import quantecon


def exact_stationary(transition):
    """The stationary law by rational elimination (SymPy), from the floats as they are."""
    size = len(transition)
    exact = sympy.Matrix(size, size, lambda i, j: sympy.Rational(Fraction(float(transition[i, j]))))
    for row in range(size):  # float rows sum to one only within an ulp: rescale exactly
        exact[row, :] = exact[row, :] / sum(exact[row, :])
    system = (exact.T - sympy.eye(size)).col_join(sympy.ones(1, size))
    law = (system.T * system).LUsolve(system.T * sympy.Matrix([0] * size + [1]))
    return exact, law


NEARLY_REDUCIBLE = np.array(
    [[1 - 1e-14, 1e-14, 0, 0], [0.5, 0.5, 0, 0], [0, 1e-13, 0.3, 0.7], [1e-12, 0, 0.6, 0.4]]
)
NEARLY_REDUCIBLE[1] = [0.5, 0.5 - 1e-12, 1e-12, 0]
PERIODIC = np.array([[0, 0.5, 0, 0.5], [1, 0, 0, 0], [0, 0.5, 0, 0.5], [0.25, 0, 0.75, 0]])


@pytest.mark.parametrize("kind", ["dense", "sparse", "birth_death", "sticky"])
@pytest.mark.parametrize("size", [2, 3, 7, 40])
def test_stationary_law_agrees_with_quantecon(rng, kind, size):
    chain = random_chain(rng, size, kind)
    peer = quantecon.MarkovChain(chain.transition).stationary_distributions
    assert peer.shape[0] == 1
    np.testing.assert_allclose(chain.stationary, peer[0], rtol=1e-10)


@pytest.mark.parametrize("matrix", [NEARLY_REDUCIBLE, PERIODIC], ids=["nearly", "periodic"])
def test_stationary_law_and_reversal_agree_with_exact_rational_arithmetic(matrix):
    chain = aw.MarkovChain(matrix, np.arange(4))
    exact, law = exact_stationary(chain.transition)
    wanted = np.array([float(x) for x in law])
    np.testing.assert_allclose(chain.stationary, wanted, rtol=1e-12)
    reversal = [[float(law[j] * exact[j, i] / law[i]) for j in range(4)] for i in range(4)]
    np.testing.assert_allclose(chain.joint(1, 2).backward, reversal, rtol=1e-11)
    peer = quantecon.MarkovChain(chain.transition).stationary_distributions[0]
    np.testing.assert_allclose(chain.stationary, peer, rtol=1e-10)


def test_reversal_of_random_chains_agrees_with_exact_rational_arithmetic(rng):
    for size in (2, 3, 4):
        chain = random_chain(rng, size, "sparse")
        exact, law = exact_stationary(chain.transition)
        wanted = [[float(law[j] * exact[j, i] / law[i]) for j in range(size)] for i in range(size)]
        np.testing.assert_allclose(chain.joint(1, 2).backward, wanted, rtol=1e-12)


def test_batch_of_stationary_laws_equals_one_by_one(rng):
    batch = np.stack([random_transition(rng, 5) for _ in range(50)])
    single = [aw.MarkovChain(m, np.arange(5)).stationary for m in batch]
    np.testing.assert_allclose(stationary_laws(batch), single, rtol=1e-13)


def test_three_hundred_states(rng):
    chain = random_chain(rng, 300, "sparse")
    assert np.abs(chain.stationary @ chain.transition - chain.stationary).max() < 1e-15
    assert 0 < aw.total_variation(chain, 3) <= 1


def test_stationary_law_where_products_would_overflow():
    chain = aw.birth_death(up=0.999, down=1e-9, states=np.arange(60))
    assert np.isfinite(chain.stationary).all()
    assert chain.stationary.sum() == pytest.approx(1)
    assert chain.stationary[-1] > 0.4


def test_transient_states_get_probability_zero():
    chain = aw.MarkovChain([[0.5, 0.5, 0], [0, 0.3, 0.7], [0, 0.6, 0.4]], [1, 2, 3])
    np.testing.assert_allclose(chain.stationary, [0, 6 / 13, 7 / 13])
    absorbing = aw.MarkovChain([[1, 0], [0.5, 0.5]], [1, 2])
    np.testing.assert_array_equal(absorbing.stationary, [1, 0])


def test_period_ergodicity_reversibility():
    periodic = aw.MarkovChain(PERIODIC, np.arange(4))
    assert periodic.period == 2
    assert not periodic.is_ergodic
    ring = aw.MarkovChain(np.roll(np.eye(5), 1, axis=1), np.arange(5))
    assert ring.period == 5
    assert not ring.is_reversible
    lazy_ring = aw.MarkovChain(0.5 * np.roll(np.eye(5), 1, axis=1) + 0.5 * np.eye(5), np.arange(5))
    assert lazy_ring.is_ergodic
    assert not lazy_ring.is_reversible
    assert aw.birth_death(0.1, 0.2, [1, 2, 3]).is_reversible


def test_spectrum_of_a_known_chain():
    chain = aw.MarkovChain([[0.9, 0.1], [0.3, 0.7]], [0, 1])
    np.testing.assert_allclose(chain.eigenvalues, [1, 0.6])
    walk = aw.birth_death(0.4, 0.4, [20, 50, 100, 200])
    assert abs(walk.eigenvalues[1]) == pytest.approx(0.6)


def test_joint_law_is_law_times_power(rng):
    chain = random_chain(rng, 4)
    law = rng.dirichlet(np.ones(4))
    wanted = np.diag(law) @ np.linalg.matrix_power(chain.transition, 3)
    np.testing.assert_allclose(chain.joint(5, 8, law).matrix, wanted, rtol=1e-14)
    np.testing.assert_allclose(chain.joint(5, 8).law, chain.stationary)
    np.testing.assert_allclose(chain.joint(5, 8).aggregation_law, chain.stationary)


def test_backward_of_the_stationary_chain_is_its_reversal(rng):
    chain = random_chain(rng, 5, "dense")
    flow = chain.stationary[:, None] * chain.transition
    reversal = np.linalg.matrix_power((flow / chain.stationary).T, 3)
    np.testing.assert_allclose(chain.joint(1, 4).backward, reversal, rtol=1e-12)


def test_sampled_paths_follow_the_chain(rng):
    chain = aw.birth_death(0.1, 0.2, [20, 50, 100, 200])
    law = [0, 1, 0, 0]
    paths = chain.sample_paths(rng, slots=3, size=200_000, law=law)
    assert paths.shape == (200_000, 3)
    assert (paths[:, 0] == 50).all()
    seen = np.array([(paths[:, 2] == v).mean() for v in chain.states])
    expected = chain.steps(2)[1]
    np.testing.assert_allclose(seen, expected, atol=5 * np.sqrt(0.25 / 200_000))
    again = chain.sample_paths(np.random.default_rng(1), 5, 10)
    np.testing.assert_array_equal(again, chain.sample_paths(np.random.default_rng(1), 5, 10))


def test_chains_cannot_be_changed():
    chain = aw.birth_death(0.1, 0.2, [1, 2, 3])
    for array in (chain.transition, chain.states, chain.stationary):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    assert chain == aw.birth_death(0.1, 0.2, [1, 2, 3])
    assert hash(chain) == hash(aw.birth_death(0.1, 0.2, [1, 2, 3]))
    assert chain != aw.birth_death(0.1, 0.2, [1, 2, 4])


GOOD = [[0.5, 0.5], [0.2, 0.8]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: aw.MarkovChain([[0.5, 0.5], [0.2, 0.7]], [0, 1]), "row 1 .*sums to 0.9;"),
        (lambda: aw.MarkovChain([[1.1, -0.1], [0.2, 0.8]], [0, 1]), r"transition\[0, 1\] is -0.1"),
        (lambda: aw.MarkovChain([[0.5, 0.5]], [0, 1]), r"shape \(1, 2\).*square"),
        (lambda: aw.MarkovChain([[np.nan, 1], [0, 1]], [0, 1]), r"transition\[0, 0\] is nan"),
        (lambda: aw.MarkovChain([[np.inf, 0], [0, 1]], [0, 1]), "inf"),
        (lambda: aw.MarkovChain([[1.0]], [0]), "two or more states"),
        (lambda: aw.MarkovChain([], []), "empty"),
        (lambda: aw.MarkovChain([[1, 0], [0]], [0, 1]), "rows of one length"),
        (lambda: aw.MarkovChain(GOOD, [3, 3]), r"distinct values \(repeated: 3\)"),
        (lambda: aw.MarkovChain(GOOD, [1, 2, 3]), "2 values"),
        (lambda: aw.MarkovChain(GOOD, [1, np.nan]), r"states\[1\] is nan"),
        (lambda: aw.MarkovChain(GOOD, [0, 1]).joint(1, 2, [0.5, 0.3, 0.2]), "2 probabilities"),
        (lambda: aw.MarkovChain(GOOD, [0, 1]).joint(1, 2, [0.5, 0.4]), "sums to 0.9"),
        (lambda: aw.MarkovChain(GOOD, [0, 1]).joint(3, 2), "collect_at is 3.*after"),
        (lambda: aw.MarkovChain(np.eye(2), [0, 1]).stationary, "2 closed classes"),
        (lambda: aw.MarkovChain(np.eye(3), [0, 1, 2]).period, "reducible"),
        (lambda: aw.birth_death(0.7, 0.7, [1, 2]), "up \\+ down"),
        (lambda: aw.birth_death(-0.1, 0.7, [1, 2]), "up is -0.1"),
        (lambda: aw.birth_death(np.nan, 0.7, [1, 2]), "up is nan"),
        (lambda: aw.birth_death(0.1, 0.1, [1]), "two or more"),
        (lambda: aw.MarkovChain(GOOD, [0, 1]).sample_paths(7, 3), "default_rng"),
        (lambda: aw.JointLaw([[0.5, 0.4], [0, 0]], [0, 1]), "sums to 0.9"),
        (lambda: aw.MarkovChain([[0, 1], [1e-310, 1]], [0, 1]), "0, or at least 1e-280"),
        (lambda: aw.MarkovChain(GOOD, [-1e308, 1e308]), "of size 1e\\+100 at most"),
        (lambda: aw.JointLaw([[0.5, 0.5]], [0, 1]), "shape"),
    ],
)
def test_bad_input_is_refused_in_one_clear_message(call, words):
    with pytest.raises(aw.InvalidInput, match=words):
        call()
