import numpy as np
import pytest

import agewise as aw
from agewise.learning import Mean, average, release_table, unexplained


def release_values(*arguments):
    return release_table(Mean(), *arguments)[:, 0]


def estimate_mean(records, states, release, samples):
    return average(records, states, np.asarray(release)[:, None], samples)[0]


def test_plain_releases_the_value_and_propagated_its_expectation(paper_chains):
    chain = paper_chains[1]
    np.testing.assert_array_equal(release_values(chain, 3, 10, "plain"), chain.states)
    wanted = np.linalg.matrix_power(chain.transition, 7) @ chain.states
    np.testing.assert_allclose(release_values(chain, 3, 10, "propagated"), wanted)


def test_the_range_of_the_propagated_release_shrinks_with_age(paper_chains):
    widths = [np.ptp(release_values(paper_chains[2], 10 - a, 10, "propagated")) for a in range(10)]
    assert (np.diff(widths) < 0).all()


def test_records_count_as_the_nearest_state():
    states, release = np.array([20.0, 50, 100, 200]), np.array([1.0, 2, 3, 4])
    records = [20, 34.9, 35, 36, -999, 10_000]
    mean = estimate_mean(records, states, release, 6)
    assert mean == pytest.approx((1 + 1 + 1 + 2 + 1 + 4) / 6)
    assert unexplained(records, states) == 5


def test_states_in_any_order():
    states, release = np.array([100.0, 20]), np.array([9.0, 5])
    assert estimate_mean([21, 99, 100], states, release, 3) == (5 + 9 + 9) / 3
    assert unexplained([21, 99, 100], states) == 2
    assert unexplained([21, 101, 100], states, spread=1.0) == 1  # two that a level of 1 explains


PAPER = np.array([20.0, 50, 100, 200])


@pytest.mark.parametrize("level", [0.0, 17.3, -42.0, 99.9])
def test_records_that_one_level_moves_are_explained(rng, level):
    records = rng.choice(PAPER, 100) + level
    assert unexplained(records, PAPER, spread=20.0) == 0
    assert unexplained(records + 1e6 * np.eye(100)[7], PAPER, spread=20.0) == 1


@pytest.mark.parametrize(
    "misled",
    [
        lambda rng, own: own + 20 * rng.normal(size=own.size),  # a level of each record's own
        lambda rng, own: own + rng.normal(size=own.size),  # readings between states
        lambda rng, own: own + 101.0,  # a level of more than five standard deviations
        lambda rng, own: 1.1 * own,  # other states
    ],
)
def test_records_of_another_model_are_noticed_though_each_is_near_a_state(rng, misled):
    records = misled(rng, rng.choice(PAPER, 100))
    assert unexplained(records, PAPER, spread=20.0) > 50


@pytest.mark.parametrize("records", [[], [1.0, float("nan")], ["a"], [float("inf")]])
def test_bad_records_are_refused(records):
    with pytest.raises(aw.InvalidInput, match="records"):
        estimate_mean(records, np.array([1.0, 2]), np.array([1.0, 2]), 2)


def test_another_number_of_records_than_planned_is_refused():
    """The noise was set for n records; fewer of them would each count for more."""
    states = np.array([1.0, 2])
    with pytest.raises(aw.InvalidInput, match="1 records; allowed: 100"):
        estimate_mean([1.0], states, states, 100)
    with pytest.raises(aw.InvalidInput, match="release is of shape"):
        estimate_mean([1.0], states, np.ones(3), 1)
