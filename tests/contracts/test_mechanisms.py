"""What every mechanism promises; one class per mechanism inherits it."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

import agewise as aw
from agewise.mechanism import MECHANISMS, Gaussian, Laplace

FAILURE = 1e-5


class MechanismContract:
    mechanism = None
    failure = 0.0
    law = None

    def scale(self, sensitivity, epsilon):
        found = self.mechanism.calibrate(
            np.asarray(sensitivity), np.asarray(epsilon), np.asarray(self.failure)
        )
        return np.asarray(found)

    @pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 5.0])
    @pytest.mark.parametrize("sensitivity", [1e-3, 1.8, 1e4])
    def test_opendp_confirms_what_was_calibrated(self, epsilon, sensitivity):
        scale = float(self.scale(sensitivity, epsilon))
        noised = self.mechanism.draw(
            np.array([1.0, -2.0]), sensitivity=sensitivity, scale=scale, failure=self.failure
        )
        assert noised.private
        assert noised.failure == self.failure
        assert 0.98 * epsilon <= noised.epsilon <= epsilon * (1 + 1e-12)
        own_word = self.mechanism.certified(sensitivity, noised.scale, self.failure)
        assert noised.epsilon == own_word
        assert np.shape(noised.value) == (2,)

    def test_a_scale_goes_there_and_back(self):
        epsilons = np.geomspace(1e-3, 20, 60)
        scales = self.scale(2.0, epsilons)
        spent = self.mechanism.spent(np.asarray(2.0), scales, np.asarray(self.failure))
        np.testing.assert_allclose(spent, epsilons, rtol=1e-6)
        assert (spent <= epsilons * (1 + 1e-12)).all()
        assert (np.diff(scales) < 0).all()

    def test_nothing_to_hide_needs_no_noise(self):
        assert float(self.scale(1.0, np.inf)) == 0
        one = self.mechanism.draw(np.ones(3), sensitivity=0.0, scale=0.0, failure=self.failure)
        assert one.epsilon == 0
        np.testing.assert_array_equal(one.value, np.ones(3))
        bare = self.mechanism.draw(np.ones(3), sensitivity=1.0, scale=0.0, failure=self.failure)
        assert bare.epsilon == math.inf

    def test_the_variance_is_that_of_the_noise(self):
        rng = np.random.default_rng(1)
        drawn = self.mechanism.imitate(np.zeros(200_000), scale=3.0, rng=rng)
        assert not drawn.private
        assert drawn.epsilon is None
        want = float(self.mechanism.variance(np.asarray(3.0)))
        assert np.var(drawn.value) == pytest.approx(want, rel=0.03)
        assert stats.kstest(drawn.value, self.law(3.0).cdf).pvalue > 1e-6
        assert stats.kstest(drawn.value, self.law(3.0 * 0.7).cdf).pvalue < 1e-6

    def test_private_noise_has_the_same_law(self):
        drawn = self.mechanism.draw(
            np.zeros(4_000), sensitivity=1.0, scale=3.0, failure=self.failure
        ).value
        assert stats.kstest(drawn, self.law(3.0).cdf).pvalue > 1e-6
        for wrong in (0.7, 1.3):
            assert stats.kstest(drawn, self.law(3.0 * wrong).cdf).pvalue < 1e-6

    @pytest.mark.parametrize("value", [[math.nan], [math.inf], [], [[1.0]]])
    def test_what_is_not_a_finite_vector_is_refused(self, value):
        with pytest.raises(aw.InvalidInput, match="value"):
            self.mechanism.draw(np.array(value), sensitivity=1.0, scale=1.0, failure=self.failure)

    def test_it_is_known_by_its_name(self):
        assert MECHANISMS[self.mechanism.kind].kind == self.mechanism.kind
        assert self.mechanism.norm in (1, 2)
        assert "OpenDP" in self.mechanism.words


class TestLaplace(MechanismContract):
    mechanism = Laplace()
    law = staticmethod(lambda scale: stats.laplace(scale=scale))

    def test_pairs_of_states_are_told_apart_by_their_distance(self):
        release = np.array([[0.0, 0.0], [1.0, -2.0], [1.0, 0.0]])
        losses = self.mechanism.pairwise(release, 10, 0.5)
        np.testing.assert_allclose(losses, np.array([[0, 3, 1], [3, 0, 2], [1, 2, 0]]) / 5)


class TestGaussian(MechanismContract):
    mechanism = Gaussian()
    failure = FAILURE
    law = staticmethod(lambda scale: stats.norm(scale=scale))

    @pytest.mark.parametrize("epsilon", [0.05, 0.5, 4.0])
    def test_the_exact_curve_of_the_gaussian_is_never_exceeded(self, epsilon):
        """δ(ε) = Φ(s/2σ − εσ/s) − e^ε Φ(−s/2σ − εσ/s) (Balle and Wang 2018)."""
        ratio = 1 / float(self.scale(1.0, epsilon))
        true = stats.norm.cdf(ratio / 2 - epsilon / ratio) - math.exp(epsilon) * stats.norm.cdf(
            -ratio / 2 - epsilon / ratio
        )
        assert 0.999 * self.failure < true <= self.failure
        less = ratio * 1.001  # noise that is a thousandth short breaks it
        assert (
            stats.norm.cdf(less / 2 - epsilon / less)
            - math.exp(epsilon) * stats.norm.cdf(-less / 2 - epsilon / less)
            > self.failure
        )

    @pytest.mark.parametrize("failure", [1e-100, 1e-6, 0.4])
    def test_guarantee_what_is_calibrated_fails_no_more_often_to_fifty_digits(self, failure):
        """Against 50 digits: σ is never too small, and never above what it need be by 0.01 %."""
        for epsilon in (1e-3, 0.1, 2.0, 40.0):
            scale = float(
                self.mechanism.calibrate(np.array(1.0), np.array(epsilon), np.array(failure))
            )
            with mpmath.workdps(50):
                assert 0.999 * failure < failing(scale, epsilon) <= failure
                assert failing(scale * 0.999, epsilon) > failure

    @pytest.mark.parametrize("epsilon", [1e-15, 1e-12, 1e-9, 1.0, 700.0])
    @pytest.mark.parametrize("failure", [5e-324, 1e-300, 1e-20, 1e-16, 1e-14])
    def test_guarantee_what_floats_lose_is_never_spent(self, epsilon, failure):
        """Where δ(ε) is a difference of numbers all but equal, or too small for all its digits."""
        asked = map(np.array, (1.0, epsilon, failure))
        with mpmath.workdps(60):
            scale = float(self.mechanism.calibrate(*asked))
            assert failing(scale, epsilon) <= failure
            asked = map(np.array, (1.0, scale * 0.7, failure))
            assert failing(scale * 0.7, float(self.mechanism.spent(*asked))) <= failure


def failing(scale, epsilon):
    """δ(ε) of a release that one record moves by 1."""
    mu, e = 1 / mpmath.mpf(scale), mpmath.mpf(epsilon)
    return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)


class TestGaussianNeedsDelta:
    mechanism = Gaussian()

    @pytest.mark.parametrize("failure", [0.0, 1.0, -1e-6, math.nan])
    def test_it_needs_a_delta(self, failure):
        with pytest.raises(aw.InvalidInput, match="delta"):
            self.mechanism.draw(np.ones(1), sensitivity=1.0, scale=1.0, failure=failure)
