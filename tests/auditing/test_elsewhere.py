"""Claims of other people's libraries that do not hold, where they are installed."""

import warnings

import numpy as np
import pytest

import agewise as aw
from agewise.auditing import BlackBox
from agewise.auditing.gaussian import failure_between
from agewise.auditing.outward import Between

CHAIN = aw.MarkovChain([[0.7, 0.3], [0.3, 0.7]], [0, 1])


def flower_noise(epsilon, delta, digits):
    """The noise of Flower's LocalDpMod on one number of sensitivity 1."""
    flower = pytest.importorskip("flwr.supercore.differential_privacy")
    from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays

    def mechanism(records):
        values = ndarrays_to_parameters([records[:, 0].astype(np.float64)])
        noised = flower.add_localdp_gaussian_noise_to_params(values, 1.0, epsilon, delta)
        return np.round(parameters_to_ndarrays(noised)[0], digits)

    return BlackBox(mechanism, CHAIN, epsilon, delta, batched=True, name="LocalDpMod")


@pytest.mark.parametrize(("epsilon", "delta"), [(10.0, 1e-5), (20.0, 1e-3)])
def test_flowers_gaussian_noise_is_too_small_for_a_large_epsilon(epsilon, delta):
    """σ = √(2 ln(1.25/δ))/ε is proven for ε below 1 only; LocalDpMod takes any ε.

    So rare an event is out of reach of samples, not of the exact tier.
    """
    draws = flower_noise(epsilon, delta, 9).mechanism(np.zeros((40_000, 1)))
    scale = np.sqrt(2 * np.log(1.25 / delta)) / epsilon
    assert draws.std() == pytest.approx(scale, rel=0.03)
    low, _ = failure_between(Between.exactly(np.eye(2)), np.array([0.0, 1.0]), scale, epsilon)
    assert low > 2 * delta


def test_flowers_gaussian_noise_is_enough_for_a_small_one():
    box = flower_noise(0.9, 1e-3, 4)
    rng = np.random.default_rng(5)
    assert not aw.audit(box, draws=20_000, error=1e-9, rng=rng).refuted
    scale = np.sqrt(2 * np.log(1.25 / 1e-3)) / 0.9
    _, high = failure_between(Between.exactly(np.eye(2)), np.array([0.0, 1.0]), scale, 0.9)
    assert high < 1e-3


def test_flowers_noise_shows_its_low_bits():
    np.random.seed(6)  # noqa: NPY002
    rng = np.random.default_rng(6)
    found = aw.audit(flower_noise(0.5, 1e-5, 30), draws=20_000, error=0.001, rng=rng)
    assert found.refuted
    assert "lowest bit" in found.findings[0].detail


def test_a_mean_without_bounds_takes_its_sensitivity_from_the_data():
    tools = pytest.importorskip("diffprivlib.tools")

    def mechanism(records):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return float(tools.mean(records, epsilon=1.0))

    box = BlackBox(mechanism, CHAIN, 1.0, samples=5, others=0.0, name="diffprivlib.tools.mean")
    assert aw.audit(box, draws=4_000, error=0.001, rng=np.random.default_rng(7)).refuted
