import math

import numpy as np
import opendp.prelude as dp
import pytest

import agewise as aw

dp.enable_features("contrib")


@pytest.mark.parametrize("epsilon", [1e-9, 0.03, 0.1, 1 / 3, 1.0, 7.3, 40.0])
@pytest.mark.parametrize("sensitivity", [1e-6, 0.018, 1.8, 2 / 3, 1e5])
def test_opendp_confirms_the_epsilon(epsilon, sensitivity):
    noised = aw.laplace(3.25, sensitivity=sensitivity, epsilon=epsilon)
    assert noised.private
    assert noised.scale >= sensitivity / epsilon
    assert noised.scale <= sensitivity / epsilon * (1 + 1e-12)
    domain, metric = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    own_word = dp.m.make_laplace(domain, metric, scale=noised.scale).map(sensitivity)
    assert noised.epsilon == own_word
    assert own_word <= epsilon


@pytest.mark.parametrize("value", [np.array([1.5, -2.0, 0.0]), [1.5, 2.5], np.arange(4), [3, 4]])
def test_vectors_keep_shape_and_kind(value):
    noised = aw.laplace(value, sensitivity=2, epsilon=0.5)
    assert np.shape(noised.value) == np.shape(value)
    assert np.asarray(noised.value).dtype.kind == np.asarray(value).dtype.kind
    assert noised.epsilon <= 0.5


def test_integers_stay_integers():
    noised = aw.laplace(7, sensitivity=1, epsilon=0.5)
    assert isinstance(noised.value, int)
    assert noised.scale >= 2


def test_fractional_sensitivity_of_integers_is_rounded_up():
    assert aw.laplace(7, sensitivity=0.4, epsilon=0.5).scale >= 2


def test_no_noise_where_none_is_needed():
    assert aw.laplace(7.5, sensitivity=1.0, epsilon=math.inf) == aw.Noised(
        7.5, 0.0, math.inf, private=True
    )
    assert aw.laplace(7.5, sensitivity=0.0, epsilon=0.1) == aw.Noised(7.5, 0.0, 0.0, private=True)


@pytest.mark.parametrize(("sensitivity", "epsilon"), [(5e-324, 3.0), (1e-320, 1e5)])
def test_subnormal_sensitivities_end(sensitivity, epsilon):
    noised = aw.laplace(1.0, sensitivity=sensitivity, epsilon=epsilon)
    assert noised.epsilon <= epsilon


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.uint64, np.float16, np.float32])
def test_narrow_numbers_come_back_wide(kind):
    noised = aw.laplace(
        np.array([200 if kind is np.uint8 else 100], kind), sensitivity=50, epsilon=0.01
    )
    assert noised.value.dtype in (np.int64, np.float64)
    assert np.isfinite(noised.value).all()


def test_large_integers_do_not_saturate():
    draws = [aw.laplace(2**40, sensitivity=1, epsilon=1.0).value - 2**40 for _ in range(200)]
    assert max(map(abs, draws)) < 60
    assert len(set(draws)) > 3


def test_two_releases_differ():
    draws = {aw.laplace(0.0, sensitivity=1.0, epsilon=1.0).value for _ in range(20)}
    assert len(draws) == 20


def test_the_stand_in_is_reproducible_and_says_that_it_is_not_private():
    first, second = (
        aw.seeded_laplace(np.zeros(5), scale=2.0, rng=np.random.default_rng(4)) for _ in range(2)
    )
    np.testing.assert_array_equal(first.value, second.value)
    assert first.private is False
    assert first.epsilon is None
    assert isinstance(aw.seeded_laplace(3, scale=2.0, rng=np.random.default_rng(4)).value, int)


@pytest.mark.parametrize("scale", [0.5, 20.0])
@pytest.mark.parametrize("value", [[1.0, -2.0, 30.0], [1, -2, 30]])
def test_the_stand_in_adds_what_numpy_draws(value, scale):
    drawn = np.random.default_rng(4).laplace(0.0, scale, 3)
    drawn = drawn if isinstance(value[0], float) else np.rint(drawn)
    made = aw.seeded_laplace(value, scale=scale, rng=np.random.default_rng(4))
    np.testing.assert_array_equal(made.value, np.array(value) + drawn)


def test_the_stand_in_adds_nothing_where_no_noise_is_asked_for():
    assert aw.seeded_laplace(3.5, scale=0, rng=np.random.default_rng(4)).value == 3.5


def test_the_largest_integers_and_scales_are_still_served():
    assert isinstance(aw.laplace(2**53, sensitivity=1, epsilon=1).value, int)
    assert aw.laplace(1, sensitivity=1, epsilon=2.0**-50).scale >= 2.0**50


RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: aw.laplace(math.nan, sensitivity=1, epsilon=1), "value is nan.*finite"),
        (lambda: aw.laplace(math.inf, sensitivity=1, epsilon=1), "value is inf"),
        (lambda: aw.laplace([1.0, math.nan], sensitivity=1, epsilon=1), "finite numbers"),
        (lambda: aw.laplace([], sensitivity=1, epsilon=1), "value"),
        (lambda: aw.laplace([[1.0], [2.0]], sensitivity=1, epsilon=1), "a number or a vector"),
        (lambda: aw.laplace(1, sensitivity=1, epsilon=2.0**-51), "at least 8.88"),
        (lambda: aw.laplace("1", sensitivity=1, epsilon=1), "value"),
        (lambda: aw.laplace(1.0, sensitivity=-1, epsilon=1), "sensitivity is -1"),
        (lambda: aw.laplace(1.0, sensitivity=math.inf, epsilon=1), "sensitivity is inf"),
        (lambda: aw.laplace(1.0, sensitivity=math.nan, epsilon=1), "sensitivity is nan"),
        (lambda: aw.laplace(1.0, sensitivity=1, epsilon=0), "epsilon is 0"),
        (lambda: aw.laplace(1.0, sensitivity=1, epsilon=math.nan), "epsilon is nan"),
        (lambda: aw.laplace(1.0, sensitivity=1, epsilon=1e-305), "at least 1e-300"),
        (lambda: aw.laplace(2**60, sensitivity=1, epsilon=1), "integers of size"),
        (lambda: aw.laplace(1.0, sensitivity=1, epsilon=True), "epsilon is True"),
        (lambda: aw.laplace(1.0, sensitivity="1", epsilon=1), "sensitivity is 1"),
        (lambda: aw.laplace(1.0, sensitivity=np.bool_(True), epsilon=1), "sensitivity"),
        (lambda: aw.laplace(1.0, sensitivity=1, epsilon="1"), "epsilon is '1'"),
        (lambda: aw.seeded_laplace(math.nan, scale=1, rng=RNG), "value is nan"),
        (lambda: aw.seeded_laplace(1.0, scale=-1, rng=RNG), "scale is -1"),
        (lambda: aw.seeded_laplace(1.0, scale=math.nan, rng=RNG), "scale is nan"),
        (lambda: aw.seeded_laplace(1.0, scale=1, rng=7), "default_rng"),
    ],
)
def test_bad_input_is_refused_before_any_mechanism_sees_it(call, words):
    with pytest.raises(aw.InvalidInput, match=words):
        call()
