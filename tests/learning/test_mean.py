import numpy as np
import pytest

import agewise as aw
from agewise.learning import Mean, average, release_table


def release_values(*arguments):
    return release_table(Mean(), *arguments)[:, 0]


def estimate_mean(records, states, release, samples):
    mean, moved = average(records, states, np.asarray(release)[:, None], samples)
    return mean[0], moved


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
    mean, moved = estimate_mean([20, 34.9, 35, 36, -999, 10_000], states, release, 6)
    assert mean == pytest.approx((1 + 1 + 1 + 2 + 1 + 4) / 6)
    assert moved == 5


def test_states_in_any_order():
    states, release = np.array([100.0, 20]), np.array([9.0, 5])
    assert estimate_mean([21, 99, 100], states, release, 3) == ((5 + 9 + 9) / 3, 2)


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
