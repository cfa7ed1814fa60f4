"""What ridge regression releases, by sampling: the ε that outputs tell is within the claim.

An event that tells two inputs apart has probabilities p and q with p ≤ e^ε·q; both are estimated
from private draws. The threshold of six standard errors gives a false alarm once in a thousand
million runs; a fifth of the noise is told apart, which shows that the test has power.
"""

import math

import numpy as np
import pytest
from examples.central.ridge import record_reach, release_sums

import agewise as aw
from agewise.learning.ridge_model import entries
from agewise.privacy import Laplace
from parties import terms

DRAWS = 5_000
EPSILON = 0.5
CHAIN = aw.MarkovChain([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]], [1, 2, 5])
RIDGE = aw.Ridge([0.0, 1.0, 4.0], [3.0, 1.0, 2.0])


def told_apart(first, second, one, other):
    """Whether outputs that lie nearer to `one` are likelier under it than the claim allows."""
    near = [np.abs(x - one).sum(axis=1) < np.abs(x - other).sum(axis=1) for x in (first, second)]
    p, q = (n.mean() for n in near)
    spread = math.sqrt((p * (1 - p) + math.exp(2 * EPSILON) * q * (1 - q)) / DRAWS)
    return p - math.exp(EPSILON) * q > 6 * spread


def noise(scale, sensitivity, width):
    drawn = Laplace().draw(np.zeros(DRAWS * width), sensitivity=sensitivity, scale=scale)
    return np.reshape(drawn.value, (DRAWS, width))


def test_guarantee_the_sums_of_two_neighbours_are_not_told_apart():
    rows, labels, others = np.array([[1.0], [0.3]]), np.array([1.0, 0.5]), np.array([-1.0, 0.5])
    scale = release_sums(rows, labels, EPSILON).scale
    centres = [entries(rows, y).mean(axis=0) for y in (labels, others)]
    drawn = [noise(scale, record_reach(1, 1) / 2, centres[0].size) for _ in range(2)]
    whole = [centre + one for centre, one in zip(centres, drawn, strict=True)]
    part = [centre + one / 5 for centre, one in zip(centres, drawn, strict=True)]
    assert not told_apart(*whole, *centres)
    assert told_apart(*part, *centres)


@pytest.mark.parametrize("age", [0, 2])
def test_guarantee_the_present_value_of_a_record_is_not_told_from_its_sums(age):
    """One record, drawn given its present value; what the mechanism makes of it."""
    client = aw.Client("c", CHAIN, samples=1)
    own = terms(client, aw.Target(EPSILON, "exact", "sharp"), RIDGE, "plain", 10 - age, 10)
    backward, rng = CHAIN.joint(10 - age, 10).backward, np.random.default_rng(1)
    pair = 0, 2
    told = [own.release[rng.choice(3, p=backward[present], size=DRAWS)] for present in pair]
    drawn = [noise(own.scale, own.sensitivity, own.release.shape[1]) for _ in pair]
    centres = [own.release[state] for state in pair]
    assert not told_apart(*(x + one for x, one in zip(told, drawn, strict=True)), *centres)
    assert told_apart(*(x + one / 5 for x, one in zip(told, drawn, strict=True)), *centres)
