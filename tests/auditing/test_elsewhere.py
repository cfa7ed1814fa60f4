"""Claims of other people's libraries that do not hold, where they are installed."""

import warnings

import numpy as np
import pytest

import agewise as aw
from agewise.auditing import BlackBox

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


@pytest.mark.filterwarnings("ignore")
def test_flowers_gaussian_noise_is_too_small_for_a_large_epsilon():
    """σ = √(2 ln(1.25/δ))/ε is proven for ε below 1 only, and any ε is accepted."""
    np.random.seed(5)  # noqa: NPY002  (which is what that noise comes from)
    rng = np.random.default_rng(5)
    found = aw.audit(flower_noise(20.0, 1e-3, 4), draws=20_000, error=0.001, rng=rng)
    assert found.refuted
    small = aw.audit(flower_noise(0.9, 1e-3, 4), draws=20_000, error=0.001, rng=rng)
    assert not small.refuted


@pytest.mark.filterwarnings("ignore")
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
