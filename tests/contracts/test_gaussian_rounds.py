"""Several Gaussian releases: what they tell about the present, by integration over all outputs."""

import math

import numpy as np
import pytest
from scipy.stats import norm

import agewise as aw
from agewise.privacy.failing import composed_pair, gap_delta

CHAINS = {
    "slow": aw.MarkovChain([[0.9, 0.1], [0.2, 0.8]], [0, 1]),
    "fast": aw.MarkovChain([[0.6, 0.4], [0.5, 0.5]], [0, 1]),
}
OUTPUTS = np.linspace(-9, 10, 381)


def own_failure(scale, epsilon):
    """δ of one release of 0 or 1 with Gaussian noise, in closed form (Balle and Wang 2018)."""
    half = 1 / (2 * scale)
    return norm.cdf(half - epsilon * scale) - math.exp(epsilon) * norm.cdf(-half - epsilon * scale)


def failure(chain, every, age, scale, epsilon):
    """δ of two releases about the present at this ε: no formula of composition or ageing."""
    step = np.linalg.matrix_power
    first, last = step(chain.transition, every), step(chain.transition, age)
    joint = chain.stationary[:, None, None] * first[:, :, None] * last[None]
    given = joint / joint.sum(axis=(0, 1))
    density = norm.pdf(OUTPUTS[:, None], chain.states, scale)
    told = np.einsum("oa,pb,aby->yop", density, density, given)
    cell = (OUTPUTS[1] - OUTPUTS[0]) ** 2
    apart = [np.maximum(told[y] - math.exp(epsilon) * told[1 - y], 0).sum() for y in (0, 1)]
    return max(apart) * cell


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize(("every", "age"), [(1, 0), (1, 2), (3, 1), (6, 0)])
@pytest.mark.parametrize(("scale", "spent"), [(0.8, 0.7), (1.5, 0.4), (1.5, 1.2)])
def test_guarantee_what_two_gaussian_releases_tell_is_within_the_bound(
    name, every, age, scale, spent
):
    chain = CHAINS[name]
    gap, aged = gap_delta(chain, every, "exact"), float(aw.delta(chain, age))
    epsilon, delta = composed_pair(gap, aged, 2, spent, own_failure(scale, spent))
    assert failure(chain, every, age, scale, epsilon) <= delta * (1 + 1e-6)


@pytest.mark.parametrize("wrong", ["ageing", "between releases", "one of two"])
def test_too_much_credit_is_noticed(wrong):
    chain, scale, spent = CHAINS["slow"], 1.5, 0.4
    age = 0 if wrong == "between releases" else 1
    gap, aged = gap_delta(chain, 1, "exact"), float(aw.delta(chain, age))
    own = own_failure(scale, spent)
    epsilon, delta = {
        "ageing": composed_pair(gap, aged / 2, 2, spent, own),
        "between releases": composed_pair(gap / 4, aged, 2, spent, own),
        "one of two": composed_pair(gap, aged, 1, spent, own),
    }[wrong]
    assert failure(chain, 1, age, scale, epsilon) > delta * 1.05
