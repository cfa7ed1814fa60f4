"""The noise has the law it claims: tests with power, and tests of the test.

With 6,000 draws or more a scale that is off by 30 % gives a p-value of some 1e-12 at most, while
the right scale falls below the threshold of 1e-9 once in a thousand million runs.
"""

import numpy as np
import pytest
from scipy import stats

import agewise as aw

DRAWS = 50_000
THRESHOLD = 1e-9
SCALE = 3.6


def looks_laplace(draws, scale):
    return stats.kstest(draws, stats.laplace(scale=scale).cdf).pvalue > THRESHOLD


def looks_discrete_laplace(draws, scale):
    """Chi-square over the central cells; P(k) = (1−q)/(1+q)·q^|k|, q = e^{−1/scale}."""
    q = np.exp(-1 / scale)
    edge = int(np.ceil(scale * 4))
    inside = np.arange(-edge, edge + 1)
    expected = (1 - q) / (1 + q) * q ** np.abs(inside) * draws.size
    counts = np.array([(draws == k).sum() for k in inside])
    rest = draws.size - counts.sum(), draws.size - expected.sum()
    statistic = ((counts - expected) ** 2 / expected).sum() + (rest[0] - rest[1]) ** 2 / rest[1]
    return stats.chi2(inside.size).sf(statistic) > THRESHOLD


def has_scale(draws, scale):
    """Whether the mean size, whose standard error is scale/√n, is within six of them."""
    return abs(np.abs(draws).mean() / scale - 1) < 6 / np.sqrt(draws.size)


@pytest.fixture(scope="module")
def floats():
    return aw.laplace(np.zeros(DRAWS), sensitivity=1.8, epsilon=1.8 / SCALE).value


@pytest.fixture(scope="module")
def integers():
    return aw.laplace(np.zeros(DRAWS, dtype=np.int64), sensitivity=1, epsilon=1 / SCALE).value


def test_float_noise_has_the_claimed_scale_and_no_other(floats):
    assert looks_laplace(floats, SCALE)
    assert not looks_laplace(floats, SCALE * 0.7)
    assert not looks_laplace(floats, SCALE * 1.3)


def test_float_noise_is_not_off_by_five_per_cent(floats):
    assert has_scale(floats, SCALE)
    assert not has_scale(floats * 0.95, SCALE)
    assert not has_scale(floats * 1.05, SCALE)


def test_integer_noise_has_the_claimed_scale_and_no_other(integers):
    assert looks_discrete_laplace(integers, SCALE)
    assert not looks_discrete_laplace(integers, SCALE * 0.7)
    assert not looks_discrete_laplace(integers, SCALE * 1.3)


@pytest.mark.parametrize("size", [6_000, pytest.param(30_000, marks=pytest.mark.slow)])
def test_scalar_noise_has_the_claimed_scale_and_no_other(size):
    draws = np.array([aw.laplace(0.0, sensitivity=1.0, epsilon=0.5).value for _ in range(size)])
    assert looks_laplace(draws, 2.0)
    assert not looks_laplace(draws, 1.4)
    assert not looks_laplace(draws, 2.6)


def test_the_stand_in_has_the_claimed_scale_and_no_other(rng):
    draws = aw.seeded_laplace(np.zeros(DRAWS), scale=SCALE, rng=rng).value
    assert looks_laplace(draws, SCALE)
    assert not looks_laplace(draws, SCALE * 0.7)
    assert not looks_laplace(draws, SCALE * 1.3)


def test_the_helpers_reject_bad_samplers(rng):
    normal = rng.normal(0, SCALE * np.sqrt(2), DRAWS)  # the right variance, the wrong law
    shifted = rng.laplace(0.1 * SCALE, SCALE, DRAWS)
    assert not looks_laplace(normal, SCALE)
    assert not looks_laplace(shifted, SCALE)
    rounded = np.rint(normal).astype(int)
    assert not looks_discrete_laplace(rounded, SCALE)
