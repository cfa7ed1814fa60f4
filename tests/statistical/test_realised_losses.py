"""The losses of many runs are spread about the expected one as chance has it."""

import numpy as np
import pytest
from scipy import stats

import agewise as aw

RUNS = 200


@pytest.fixture(scope="module")
def losses():
    """Of many named clients in three kinds, who answer together, over the expected loss."""
    chains = [aw.birth_death(up, 0.2, [20, 50, 100, 200]) for up in (0.1, 0.2, 0.3)]
    clients = [aw.Client(f"client {i}", chains[i % 3], samples=100) for i in range(300)]
    plan = aw.plan(aw.Problem(clients, aggregate_at=12, epsilon=0.5))
    runs = [aw.run(plan, rng=np.random.default_rng([7, seed])) for seed in range(RUNS)]
    assert 0.2 < plan.noise_gap / plan.gap < 0.8  # neither noise nor records alone
    return np.array([run.realised_loss for run in runs]) / plan.gap


def as_chance_has_it(ratios):
    """Whether they may be squares of standard normal numbers, as a sum over many clients has it."""
    off = abs(ratios.mean() - 1) / np.sqrt(2 / len(ratios))
    return bool(off < 4 and stats.kstest(ratios, stats.chi2(1).cdf).pvalue > 1e-4)


def test_losses_of_runs_are_spread_as_chance_has_it(losses):
    assert as_chance_has_it(losses)


@pytest.mark.parametrize("factor", [0.7, 1.3])
def test_a_deviation_wrong_by_thirty_per_cent_is_noticed(losses, factor):
    assert not as_chance_has_it(losses * factor**2)


def test_one_draw_for_all_runs_is_noticed(losses):
    assert not as_chance_has_it(np.full(RUNS, losses[0]))
