"""Vectors and both norms: the privacy of what leaves a client, by enumeration and by OpenDP."""

import itertools
import math

import numpy as np
import opendp.prelude as dp
import pytest

import agewise as aw
from parties import terms

dp.enable_features("contrib")

CHAIN = aw.MarkovChain([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]], [1, 2, 5])
LEARNERS = [
    aw.Histogram(),
    aw.Statistics([[0.0, 1.0], [2.0, -1.0], [1.0, 1.0]]),
    aw.Ridge([0.0, 1.0, 4.0], [3.0, 1.0, 2.0]),
]


def laplace_log_density(output, centre, scale):
    return -np.abs(output - centre).sum(axis=-1) / scale


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda one: one.kind)
@pytest.mark.parametrize("calibration", ["formula", "sharp"])
@pytest.mark.parametrize("age", [0, 1, 3])
def test_guarantee_the_aged_loss_of_laplace_vectors_is_within_the_target(learner, calibration, age):
    """The densities given each present value, on a fine grid of outputs, by summing over states."""
    client = aw.Client("c", CHAIN, samples=1)
    target = aw.Target(0.4, "exact", calibration)
    own = terms(client, target, learner, "plain", 10 - age, 10)
    backward = CHAIN.joint(10 - age, 10).backward
    centres = own.release
    corners = list(itertools.product(*(sorted({*c, c.min() - 9, c.max() + 9}) for c in centres.T)))
    rng = np.random.default_rng(1)
    outputs = np.vstack([corners, rng.normal(0, 2 * own.scale, (4000, centres.shape[1]))])
    logs = laplace_log_density(outputs[:, None], centres[None], own.scale)  # [o, x]
    density = np.exp(logs) @ backward.T  # [o, y]
    worst = np.log(density.max(axis=1) / density.min(axis=1)).max()
    assert worst <= 0.4 * (1 + 1e-9)
    assert worst > (0.35 if age == 0 else 0.1)  # not by noise that hides everything


@pytest.mark.parametrize("learner", [aw.Mean(), *LEARNERS], ids=lambda one: one.kind)
def test_guarantee_the_aged_loss_of_gaussian_vectors_is_within_the_target(learner):
    """The hockey-stick divergence of mixtures of Gaussians along the line that tells most."""
    client = aw.Client("c", CHAIN, samples=1)
    target = aw.Target(0.4, "exact", "formula", "gaussian", 1e-3)
    for age in (0, 1, 3):
        own = terms(client, target, learner, "plain", 10 - age, 10)
        backward = CHAIN.joint(10 - age, 10).backward
        rng = np.random.default_rng(2)
        draws = rng.normal(0, own.scale, (200_000, own.release.shape[1]))
        for one, other in itertools.permutations(range(len(backward)), 2):
            state = rng.choice(3, p=backward[one], size=len(draws))
            output = own.release[state] + draws
            logs = -np.square(output[:, None] - own.release[None]).sum(axis=2) / 2 / own.scale**2
            density = np.exp(logs) @ backward.T
            ratio = math.exp(0.4) * density[:, other] / density[:, one]
            excess = np.maximum(1 - ratio, 0)
            error = excess.std() / math.sqrt(len(excess))
            assert excess.mean() - 4 * error <= 1e-3


def test_gaussian_releases_compose_at_least_as_opendp_says():
    """Two releases of one slot: the sum of ε's and δ's is never below OpenDP's composition."""
    from agewise.privacy import Gaussian

    gaussian, failure = Gaussian(), 1e-6
    scales = [3.0, 5.0]
    spent = [gaussian.certified(1.0, scale, failure) for scale in scales]
    total = aw.composed_epsilon(
        [aw.Release(4, one, failure) for one in spent], CHAIN, aggregate_at=4
    )
    assert total.aged == total.classical == math.fsum(spent)
    assert total.aged_delta == total.classical_delta == 2 * failure
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float)
    both = dp.c.make_zCDP_to_approxDP(
        dp.c.make_composition([dp.m.make_gaussian(*space, scale=s) for s in scales])
    )
    assert both.map(1.0).epsilon(2 * failure) <= total.classical


def test_a_delta_ages_and_composes():
    share = aw.total_variation(CHAIN, 3)
    one = aw.composed_epsilon([aw.Release(1, 0.5, 1e-6)], CHAIN, 4)
    assert one.aged_delta == pytest.approx(share * 1e-6, rel=1e-9)
    assert one.classical_delta == 1e-6
    two = aw.composed_epsilon([aw.Release(1, 0.5, 1e-6), aw.Release(4, 0.5, 2e-6)], CHAIN, 4)
    assert two.aged_delta == pytest.approx(share * 1e-6 + 2e-6, rel=1e-9)
    with pytest.raises(aw.InvalidInput, match="delta"):
        aw.Release(1, 0.5, 1.0)


def test_a_policy_without_delta_refuses_gaussian_noise():
    clients = [aw.Client(name, CHAIN, samples=50) for name in ("north", "south")]
    problem = aw.Problem(clients, 4, 0.5, mechanism="gaussian", delta=1e-6)
    plan = aw.plan(problem)
    with pytest.raises(aw.BudgetExceeded, match="aged δ"):
        aw.run(plan, policy=aw.Policy(max_aged_epsilon=1.0))
    result = aw.run(plan, policy=aw.Policy(max_aged_epsilon=1.0, max_delta=1e-6))
    assert "δ 1e-06" in result.statement.to_markdown()


def test_each_client_may_have_its_own_target():
    clients = [aw.Client("careful", CHAIN, samples=50, epsilon=0.1), aw.Client("open", CHAIN)]
    problem = aw.Problem(clients, 4, 0.8)
    plan = aw.plan(problem)
    careful, generous = plan.assignments
    assert careful.aged_epsilon <= 0.1 < generous.aged_epsilon <= 0.8
    result = aw.run(plan)
    assert [row.target_epsilon for row in result.statement.clients] == [0.1, 0.8]
    assert "careful 0.1, open 0.8" in result.statement.to_markdown()
    with pytest.raises(aw.BudgetExceeded, match="'open' would reach aged ε"):
        aw.run(plan, policy=aw.Policy(max_aged_epsilon=0.5))
    with pytest.raises(aw.InvalidInput, match="epsilon of client 'x'"):
        aw.Client("x", CHAIN, epsilon=-1)
