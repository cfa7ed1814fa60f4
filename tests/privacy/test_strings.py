"""Lower bounds by constant strings: below the account, near it, and really told."""

import math

import numpy as np
import pytest

import agewise as aw
from agewise.privacy.fixed_points import output_logs
from attacks import attack
from harness.seeds import seeds
from random_chains import random_chain


@pytest.mark.parametrize("seed", seeds(10, 30))
def test_guarantee_what_is_reached_is_never_above_the_account(seed):
    rng = np.random.default_rng(seed)
    chain = random_chain(rng, int(rng.integers(2, 8)), "dense")
    every, spent, age = (
        int(rng.integers(1, 4)),
        float(rng.uniform(0.05, 2)),
        int(rng.integers(0, 3)),
    )
    release = [None, "any", rng.normal(size=(chain.states.size, 2))][seed % 3]
    for promise in ("present", "every_moment", int(rng.integers(0, 6))):
        for rounds in (None, 1, int(rng.integers(2, 40))):
            asked = (chain, every, spent, age, promise, release, "exact", rounds)
            account, reached = aw.continual_epsilon(*asked), aw.privacy.reached_epsilon(*asked)
            assert 0.1 * account < reached <= account, (promise, rounds)


def test_it_is_what_the_string_tells(paper_chains):
    """The output at the highest state, released in eight slots, by the sum over all paths."""
    chain, slots = paper_chains[0], list(range(0, 16, 2))
    high = np.exp(output_logs(0.7 * np.abs(np.subtract.outer(range(4), range(4))) / 3))[:, :, None]
    told = max(
        attack(chain.transition, chain.stationary, slots, [one.T] * 8, slots[-1] + 1)
        for one in high
    )
    reached = aw.privacy.reached_epsilon(
        chain, 2, 0.7, 1, release=np.arange(4.0)[:, None], rounds=8
    )
    assert reached == pytest.approx(told, rel=1e-8)


@pytest.mark.parametrize(("client", "tight"), [(0, 0.999), (1, 0.999), (2, 0.93)])
def test_it_says_how_tight_the_account_is(paper_chains, client, tight):
    for promise in ("present", "every_moment"):
        account = aw.continual_epsilon(paper_chains[client], 1, 0.1, promise=promise)
        reached = aw.privacy.reached_epsilon(paper_chains[client], 1, 0.1, promise=promise)
        assert tight * account < reached <= account


def test_other_adversaries_know_at_least_as_much(paper_chains):
    for method in ("any_prior", "spectral"):
        account = aw.continual_epsilon(paper_chains[0], 12, 0.1, method=method)
        reached = aw.privacy.reached_epsilon(paper_chains[0], 12, 0.1, method=method)
        assert 0 < reached <= account < math.inf
    day = aw.PeriodicChain([[[0.95, 0.05], [0.1, 0.9]], [[0.6, 0.4], [0.3, 0.7]]], [0, 1])
    for promise in ("present", "every_moment"):
        account = aw.continual_epsilon(day, 1, 0.3, promise=promise)
        reached = aw.privacy.reached_epsilon(day, 1, 0.3, promise=promise)
        assert 0.95 * account < reached <= account
    lifted = aw.LiftedChain(day, [0, 1], [0, 1])
    for promise in ("present", "every_moment"):
        account = aw.continual_epsilon(lifted, 1, 0.3, 1, promise)
        assert 0 < aw.privacy.reached_epsilon(lifted, 1, 0.3, 1, promise) <= account
