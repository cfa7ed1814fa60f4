"""Noise on counts: the discrete Laplace, on the grid that the shares lie on."""

import math

import numpy as np
import pytest
from scipy import stats

import agewise as aw
from agewise import Problem
from agewise.privacy import Laplace
from parties import private_noise, stand_in_noise, terms

RECORDS = 50
STEP = 1 / RECORDS


def chances(wide, reach=400):
    """The discrete Laplace of this scale on -reach..reach."""
    weights = np.exp(-np.abs(np.arange(-reach, reach + 1)) / wide)
    return weights / weights.sum()


def whole(values):
    counts = np.asarray(values) / STEP
    np.testing.assert_allclose(counts, np.rint(counts), atol=1e-9)
    return np.rint(counts).astype(int)


def p_value(counts, wide):
    """Of a chi-square test that counts of -3..3 and beyond follow the discrete Laplace."""
    law = chances(wide)
    middle = len(law) // 2
    inner = law[middle - 3 : middle + 4]
    seen = [(counts == k).sum() for k in range(-3, 4)]
    seen, told = [*seen, len(counts) - sum(seen)], [*inner, 1 - inner.sum()]
    return stats.chisquare(seen, np.array(told) * len(counts)).pvalue


@pytest.mark.parametrize("size", [5_000, 500])
def test_private_noise_is_the_discrete_laplace(size):
    """Long vectors, drawn in pieces, and short ones."""
    drawn = [
        Laplace().draw(np.zeros(size), sensitivity=2 * STEP, scale=0.8 * STEP, step=STEP)
        for _ in range(5_000 // size)
    ]
    counts = whole(np.concatenate([one.value for one in drawn]))
    assert p_value(counts, 0.8) > 1e-6
    for wrong in (0.7, 1.3):
        assert p_value(counts, 0.8 * wrong) < 1e-6
    assert {one.private for one in drawn} == {True}
    assert drawn[0].epsilon == pytest.approx(2.5)


def test_the_stand_in_has_the_same_law_and_the_stated_variance():
    drawn = Laplace().imitate(
        np.zeros(100_000), scale=0.8 * STEP, rng=np.random.default_rng(1), step=STEP
    )
    assert not drawn.private
    assert p_value(whole(drawn.value), 0.8) > 1e-6
    assert p_value(whole(drawn.value), 0.7 * 0.8) < 1e-6
    want = float(Laplace().variance(np.asarray(0.8 * STEP), STEP))
    assert np.var(drawn.value) == pytest.approx(want, rel=0.05)


@pytest.mark.parametrize("wide", [0.05, 0.4, 3.0, 1e3])
def test_the_variance_is_that_of_the_law_and_below_the_continuous_one(wide):
    grid = np.arange(-30_000, 30_001)
    weights = np.exp(-np.abs(grid) / wide)
    true = float((weights * grid**2).sum() / weights.sum())
    told = float(Laplace().variance(np.asarray(wide * STEP), STEP)) / STEP**2
    assert told == pytest.approx(true, rel=1e-6)
    assert told < 2 * wide**2
    assert float(Laplace().variance(np.asarray(0.0), STEP)) == 0


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_a_record_replaced_changes_no_chance_by_more_than_epsilon(epsilon):
    """Enumerated: one count goes down by one, another up, noised by the scale that terms give."""
    client = aw.Client("c", aw.birth_death(0.2, 0.2, range(3)), samples=RECORDS)
    problem = Problem([client], 3, epsilon, learner=aw.Histogram(), estimator="plain")
    own = terms(client, problem.target_of(client), aw.Histogram(), "plain", 3, 3)
    assert own.step == STEP
    law = chances(own.scale / STEP, reach=100)
    loss = 2 * np.abs(np.log(law[1:] / law[:-1])).max()
    assert 0.999 * epsilon < loss <= epsilon * (1 + 1e-9)
    noised = private_noise(np.array([0.2, 0.3, 0.5]), own, own.scale)
    whole(noised.value)
    assert 0.999 * epsilon < noised.epsilon <= epsilon
    assert noised.scale >= own.scale


def test_what_is_moved_forward_is_not_whole_and_gets_continuous_noise():
    client = aw.Client("c", aw.birth_death(0.2, 0.2, range(3)), samples=RECORDS)
    problem = Problem([client], 3, 1.0, learner=aw.Histogram(), estimator="propagated")
    own = terms(client, problem.target_of(client), aw.Histogram(), "propagated", 1, 3)
    assert own.step == 0
    drawn = stand_in_noise(1, "c")(np.array([0.2, 0.3, 0.5]), own, own.scale).value
    counts = np.asarray(drawn) / STEP
    assert np.abs(counts - np.rint(counts)).max() > 1e-3


def test_values_off_the_grid_are_refused():
    with pytest.raises(aw.InvalidInput, match="whole steps"):
        Laplace().draw(np.array([0.013]), sensitivity=2 * STEP, scale=STEP, step=STEP)
    with pytest.raises(aw.InvalidInput, match="value"):
        Laplace().draw(np.array([math.nan]), sensitivity=2 * STEP, scale=STEP, step=STEP)


def test_noise_far_wider_than_the_grid_is_drawn_as_for_any_vector():
    drawn = Laplace().draw(np.zeros(2), sensitivity=2 * STEP, scale=1e17 * STEP, step=STEP)
    assert drawn.private
    imitated = Laplace().imitate(
        np.zeros(2), scale=1e17 * STEP, rng=np.random.default_rng(0), step=STEP
    )
    assert np.isfinite(imitated.value).all()


@pytest.mark.parametrize("estimator", ["plain", "best"])
def test_the_loss_that_plans_tell_is_that_of_whole_noise(estimator):
    """Closed form against simulation, where noise of whole counts is well below the continuous."""
    clients = [
        aw.Client(name, aw.birth_death(0.3, 0.2, range(3)), samples=RECORDS) for name in "ab"
    ]
    problem = Problem(clients, 2, 5.0, learner=aw.Histogram(), estimator=estimator)
    gap = aw.loss_gap(problem, [0, 0])
    told = aw.simulate_gap(problem, [0, 0], trials=40_000, rng=np.random.default_rng(3))
    assert abs(told - gap) < 5 * told.standard_error
    scale = terms(clients[0], problem.target_of(clients[0]), aw.Histogram(), estimator, 2, 2).scale
    continuous = 3 * 2 * float(Laplace().variance(np.asarray(scale))) / 4
    if estimator == "plain":
        assert gap < 0.7 * continuous
    plan = aw.evaluate(problem, [2, 2])
    assert plan.noise_gap <= plan.gap * (1 + 1e-12)
