"""Two rounds of a training as a black box: outputs drawn many times on two present values.

The event is that the likelihood ratio exceeds a cut, which is chosen on one half of the draws and
counted on the other, by limits that are wrong once in a thousand million times.
"""

import numpy as np
import pytest
from scipy.stats import beta

import agewise as aw
from agewise.privacy import Laplace
from parties import terms

CHAIN = aw.MarkovChain([[0.9, 0.1], [0.1, 0.9]], [0, 1])
LEARNER = aw.Logistic([[20.0], [24.0]], [0, 1], clip=0.5)
EPSILON, EVERY, DRAWS, WRONG = 2.5, 2, 10_000, 1e-9


def scores(present, noise, scale, rng):
    """ln P(outputs | value 0) − ln P(outputs | value 1) of a record with the value `present`."""
    rows = np.linalg.matrix_power(CHAIN.transition, EVERY)  # symmetric: the same backwards in time
    table = LEARNER.table(CHAIN.states)
    early = (rng.random(DRAWS) < rows[present, 1]).astype(int)
    found = np.empty(DRAWS)
    for n, first in enumerate(table[early] + noise[:, :2]):
        now = LEARNER.step(first).table(CHAIN.states)
        second = now[present] + noise[n, 2:]
        before = rows @ np.exp(-np.abs(first - table).sum(axis=1) / scale)
        after = np.exp(-np.abs(second - now).sum(axis=1) / scale)
        found[n] = np.log(before[0] * after[0]) - np.log(before[1] * after[1])
    return found


def least_epsilon(times):
    """A lower limit on the ε of two rounds with so many times the noise of the client's terms."""
    target = aw.Target(EPSILON, "exact", "sharp", rounds=2, every=EVERY)
    own = terms(aw.Client("c", CHAIN, samples=1), target, LEARNER, "plain", 4, 4)
    rng, drawn = np.random.default_rng(8), []
    for present in (0, 1):
        noise = Laplace().draw(
            np.zeros(4 * DRAWS), sensitivity=own.sensitivity, scale=own.scale * times
        )
        shaped = np.reshape(noise.value, (DRAWS, 4))
        drawn.append(scores(present, shaped, own.scale * times, rng))
    half = DRAWS // 2
    cuts = np.quantile(drawn[1][:half], np.linspace(0.7, 0.97, 10))
    bounds = [_limit(*((one[:half] > cut).sum() for one in drawn), half) for cut in cuts]
    cut = cuts[int(np.argmax(bounds))]
    return _limit(*((one[half:] > cut).sum() for one in drawn), half)


def _limit(hits, alarms, half):
    """A lower limit on the log ratio of two probabilities, from their counts."""
    low = beta.ppf(WRONG, hits, half - hits + 1)
    high = beta.isf(WRONG, alarms + 1, half - alarms)
    return float(np.log(low / high))


@pytest.mark.slow
def test_guarantee_a_sampled_training_keeps_its_target():
    assert 0.3 * EPSILON < least_epsilon(1.0) <= EPSILON


@pytest.mark.slow
def test_half_the_noise_is_noticed_by_sampling():
    assert least_epsilon(0.5) > EPSILON
