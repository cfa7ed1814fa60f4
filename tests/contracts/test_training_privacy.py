"""Two rounds of a training: what they tell about a record, by summing over its states."""

import itertools
import math

import numpy as np
import pytest

import agewise as aw
from agewise.privacy.composition import affordable_pair, composed_pair, gap_delta
from parties import terms

CHAIN = aw.MarkovChain([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]], [1, 2, 5])
LEARNER = aw.Logistic([[1.0], [-1.5], [0.5]], [0, 1, 1], clip=0.5, rate=3.0)
EVERY, EPSILON = 3, 0.6


def paths_given(present, age):
    """P(value in the first, in the second collection | value at the second publication)."""
    step = np.linalg.matrix_power
    joint = (
        CHAIN.stationary[:, None, None]
        * step(CHAIN.transition, EVERY)[:, :, None]
        * step(CHAIN.transition, age)[None]
    )
    return joint[:, :, present] / joint[:, :, present].sum()


def densities(release, outputs, scale):
    """Laplace densities `[output, state]`, but for a factor."""
    return np.exp(-np.abs(outputs[:, None] - release).sum(axis=2) / scale)


def corners(release):
    """The outputs that tell most lie at the values of the states, or beyond all of them."""
    sides = [sorted({*column, column.min() - 9, column.max() + 9}) for column in release.T]
    return np.array(list(itertools.product(*sides)))


def worst_loss(estimator, age, times):
    """The most that outputs of two rounds tell two present values apart by."""
    client = aw.Client("c", CHAIN, samples=1)
    target = aw.Target(EPSILON, "exact", "sharp", rounds=2, every=EVERY)
    own = terms(client, target, LEARNER, estimator, 10 - age, 10)
    scale, worst = own.scale * times, 0.0
    laws = np.stack([paths_given(present, age) for present in range(3)])
    moves = [LEARNER.step(output) for output in corners(own.release)]
    absurd = [LEARNER.step([sign * 1e30, other * 1e30]) for sign in (-1, 1) for other in (-1, 1)]
    for first, learner in zip(corners(own.release), moves, strict=True):
        told = densities(own.release, first[None], scale)[0]
        for now in (learner, *absurd):  # the model that follows, or what a server says follows
            later = terms(client, target, now, estimator, 10 - age, 10)
            assert (later.scale, later.sensitivity) == (own.scale, own.sensitivity)
            second = densities(later.release, corners(later.release), scale)
            likely = np.einsum("yab,a,ob->oy", laws, told, second)
            worst = max(worst, float(np.log(likely.max(axis=1) / likely.min(axis=1)).max()))
    return worst


@pytest.mark.parametrize("estimator", ["plain", "propagated"])
@pytest.mark.parametrize("age", [0, 1, 2])
def test_guarantee_two_rounds_of_training_keep_the_target(estimator, age):
    assert 0.4 * EPSILON < worst_loss(estimator, age, 1.0) <= EPSILON * (1 + 1e-9)


@pytest.mark.parametrize("estimator", ["plain", "propagated"])
def test_half_the_noise_is_noticed(estimator):
    assert worst_loss(estimator, 0, 0.5) > EPSILON


def test_guarantee_two_gaussian_rounds_keep_the_target():
    """The hockey-stick divergence of both outputs together, by drawing them."""
    learner = aw.Logistic([[1.0], [-1.5], [0.5]], [0, 1, 1], clip=0.5, rate=3.0, norm=2)
    client, rng = aw.Client("c", CHAIN, samples=1), np.random.default_rng(2)
    target = aw.Target(EPSILON, "exact", "sharp", "gaussian", 1e-2, 2, EVERY)
    for age, times in ((0, 1.0), (1, 1.0), (0, 0.3)):
        own = terms(client, target, learner, "plain", 10 - age, 10)
        laws = np.stack([paths_given(present, age) for present in range(3)])
        scale, most = own.scale * times, 0.0
        for one, other in ((0, 1), (1, 0)):
            cells = rng.choice(9, p=laws[one].ravel(), size=3000)
            excess = []
            for x, y in zip(cells // 3, cells % 3, strict=True):
                first = own.release[x] + rng.normal(0, scale, 2)
                second_table = learner.step(first).table(CHAIN.states)
                second = second_table[y] + rng.normal(0, scale, 2)
                early = np.exp(-np.square(first - own.release).sum(axis=1) / 2 / scale**2)
                late = np.exp(-np.square(second - second_table).sum(axis=1) / 2 / scale**2)
                likely = np.einsum("yab,a,b->y", laws, early, late)
                excess.append(max(0.0, 1 - math.exp(EPSILON) * likely[other] / likely[one]))
            most = max(most, np.mean(excess) - 4 * np.std(excess) / math.sqrt(len(excess)))
        assert (most <= 1e-2) == (times == 1.0)


@pytest.mark.parametrize("rounds", [1, 2, 30])
@pytest.mark.parametrize("again", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("share", [0.2, 1.0])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
def test_guarantee_what_is_affordable_composes_to_the_target(rounds, again, share, epsilon):
    spent, failure = affordable_pair(again, share, rounds, epsilon, 1e-6)
    total, failing = composed_pair(again, share, rounds, spent, failure)
    assert epsilon * (1 - 1e-6) <= total <= epsilon
    assert 1e-6 * (1 - 1e-9) <= failing <= 1e-6
    if again == share == 1:
        assert spent == pytest.approx(epsilon / rounds)


def test_what_is_affordable_is_what_ledgers_total():
    again, share = gap_delta(CHAIN, EVERY, "exact"), aw.total_variation(CHAIN, 2)
    spent, failure = affordable_pair(again, share, 4, 0.5, 1e-6)
    releases = [aw.Release(1 + EVERY * k, spent, failure) for k in range(4)]
    total = aw.composed_epsilon(releases, CHAIN, 1 + 3 * EVERY + 2)
    assert total.aged == pytest.approx(0.5, rel=1e-6)
    assert total.aged_delta == pytest.approx(1e-6, rel=1e-6)
    assert affordable_pair(again, 0.0, 4, 0.5, 1e-6)[0] == math.inf
