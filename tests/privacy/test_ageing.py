import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agewise as aw

EPSILONS = [1e-12, 1e-8, 1e-3, 0.03, 0.1, 0.5, 1.0, 3.0, 10.0, 50.0]
DELTAS = [1e-300, 1e-18, 1e-9, 1e-3, 0.017, 0.36, 0.5, 0.999, 1 - 2**-53, 1.0]


def forward_exactly(epsilon, delta):
    """ε(a, ε_c) with a thousand digits."""
    with mpmath.workdps(1000):
        return mpmath.log1p(mpmath.mpf(delta) * mpmath.expm1(mpmath.mpf(epsilon)))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_forward_is_accurate(epsilon, delta):
    exact = forward_exactly(epsilon, delta)
    got = mpmath.mpf(aw.aged_epsilon(epsilon, delta))
    assert abs(got - exact) <= 4e-16 * exact + mpmath.mpf("1e-320")


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_classical_epsilon_is_never_above_the_target(epsilon, delta):
    needed = aw.classical_epsilon(epsilon, delta)
    assert needed >= epsilon * (1 - 1e-14)
    assert aw.aged_epsilon(needed, delta) <= epsilon
    true = forward_exactly(needed, delta)
    assert true <= epsilon
    assert true >= epsilon * (1 - 1e-11)


@given(st.floats(1e-12, 50), st.floats(1e-12, 1))
def test_classical_epsilon_is_never_above_the_target_anywhere(epsilon, delta):
    needed = aw.classical_epsilon(epsilon, delta)
    assert aw.aged_epsilon(needed, delta) <= epsilon
    with mpmath.workdps(60):
        true = mpmath.log1p(mpmath.mpf(delta) * mpmath.expm1(mpmath.mpf(needed)))
        assert epsilon * (1 - mpmath.mpf("1e-12")) <= true <= epsilon


def test_edges():
    assert aw.aged_epsilon(2.0, 1.0) == 2.0
    assert aw.classical_epsilon(2.0, 1.0) == 2.0
    assert aw.aged_epsilon(2.0, 0.0) == 0.0
    assert aw.classical_epsilon(2.0, 0.0) == math.inf
    assert aw.aged_epsilon(math.inf, 0.0) == 0.0
    assert aw.aged_epsilon(math.inf, 0.5) == math.inf
    assert aw.aged_epsilon(5000.0, 0.5) == pytest.approx(5000 + math.log(0.5))
    assert aw.classical_epsilon(5000.0, 0.5) == pytest.approx(5000 - math.log(0.5))


@pytest.mark.parametrize("epsilon", [1e-8, 0.3, 1.0, 31.0, 30.5, 800.0])
@pytest.mark.parametrize("delta", [1e-310, 5e-324, 1e-300, 0.7])
def test_ratios_beyond_the_range_of_floats(epsilon, delta):
    """(e^ε̄ − 1)/Δ overflows where ε_c does not."""
    needed = aw.classical_epsilon(epsilon, delta)
    with mpmath.workdps(400):
        exact = mpmath.log1p(mpmath.expm1(mpmath.mpf(epsilon)) / mpmath.mpf(delta))
        assert exact * (1 - mpmath.mpf("1e-14")) <= needed < exact
        assert mpmath.log1p(mpmath.mpf(delta) * mpmath.expm1(mpmath.mpf(needed))) <= epsilon
    assert epsilon * (1 - 1e-11) <= aw.aged_epsilon(needed, delta) <= epsilon


def test_what_does_not_age_keeps_its_epsilon_to_the_last_digit():
    every = np.geomspace(1e-9, 700, 300)
    np.testing.assert_array_equal(aw.aged_epsilon(every, 1.0), every)
    np.testing.assert_array_equal(aw.classical_epsilon(every, 1.0), every)


def test_failure_probability_vanishes_only_where_there_is_none():
    assert aw.aged_approximate(1.0, 1e-300, 1e-300)[1] == 5e-324
    assert aw.aged_approximate(1.0, 0.0, 0.5)[1] == 0
    assert aw.aged_approximate(1.0, 1e-6, 0.0)[1] == 0
    assert aw.aged_approximate(1.0, 0.25, 0.5)[1] == 0.125


def test_arrays_broadcast():
    table = aw.classical_epsilon(np.array([[0.1], [1.0]]), np.array([0.0, 0.2, 1.0]))
    assert table.shape == (2, 3)
    assert table[1, 1] == aw.classical_epsilon(1.0, 0.2)
    assert isinstance(aw.aged_epsilon(np.float64(0.5), 0.5), float)


def test_failure_probability_shrinks_with_delta():
    """Against the hockey-stick divergence of two mixtures, by enumeration."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        mechanism = rng.dirichlet(np.ones(4), 3)
        epsilon_c = rng.uniform(0.05, 1.5)
        failure_c = max(
            np.maximum(a - np.exp(epsilon_c) * b, 0).sum() for a in mechanism for b in mechanism
        )
        rows = rng.dirichlet(np.ones(3), 2)
        delta = 0.5 * np.abs(rows[0] - rows[1]).sum()
        epsilon, failure = aw.aged_approximate(epsilon_c, min(failure_c, 1 - 1e-9), delta)
        one, other = rows @ mechanism
        assert np.maximum(one - np.exp(epsilon) * other, 0).sum() <= failure + 1e-12


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: aw.aged_epsilon(0, 0.5), "epsilon is 0.0; allowed: a number above 0"),
        (lambda: aw.aged_epsilon(-1, 0.5), "epsilon is -1.0"),
        (lambda: aw.aged_epsilon(math.nan, 0.5), "epsilon is nan"),
        (lambda: aw.classical_epsilon(math.inf, 0.5), "epsilon is inf"),
        (lambda: aw.classical_epsilon([0.1, 0.0], 0.5), "epsilon is 0.0"),
        (lambda: aw.aged_epsilon(1, 1.5), "total_variation is 1.5; allowed: 0 to 1"),
        (lambda: aw.classical_epsilon(1, -0.1), "total_variation is -0.1"),
        (lambda: aw.classical_epsilon(1, math.nan), "total_variation is nan"),
        (lambda: aw.aged_epsilon("much", 0.5), "epsilon is 'much'"),
        (lambda: aw.aged_approximate(1.0, -0.1, 0.5), "failure is -0.1"),
        (lambda: aw.aged_approximate(1.0, math.nan, 0.5), "failure is nan"),
        (lambda: aw.aged_approximate(1.0, 1.0, 0.5), "failure is 1.0"),
    ],
)
def test_bad_input_is_refused_in_one_clear_message(call, words):
    with pytest.raises(aw.InvalidInput, match=words):
        call()
