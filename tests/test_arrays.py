"""Arrays: the nearest state, and draws from rows of probabilities."""

import numpy as np
from scipy.stats import chisquare

from agewise.arrays import draw_states, frozen, nearest_states


def test_the_nearest_state_is_the_nearest_whatever_the_order_of_states():
    rng = np.random.default_rng(0)
    states, values = rng.permutation(np.array([20.0, 50, 100, 200])), rng.uniform(0, 250, (7, 50))
    distance = abs(values[..., None] - states)
    assert (nearest_states(values, states) == distance.argmin(axis=-1)).all()
    assert states[nearest_states(np.array([35.0, 75.0, 150.0]), states)].tolist() == [20, 50, 100]


def test_draws_follow_their_rows():
    law = np.array([0.1, 0.0, 0.6, 0.3])
    cumulative = np.broadcast_to(np.cumsum(law), (100_000, 4))
    counts = np.bincount(draw_states(cumulative, np.random.default_rng(0)), minlength=4)
    assert counts[1] == 0
    assert chisquare(counts[[0, 2, 3]], 100_000 * law[[0, 2, 3]]).pvalue > 1e-6
    assert chisquare(counts[[0, 2, 3]], 100_000 * np.array([0.12, 0.58, 0.3])).pvalue < 1e-6


class Fixed:
    """A generator that draws the same number always."""

    def __init__(self, number):
        self.number = number

    def random(self, count):
        return np.full(count, self.number)


def test_states_of_probability_zero_are_never_drawn():
    rows = np.array([[0, 0.1, 0.2, 0.7, 0], [0, 1 / 3, 1 / 3, 1 / 3, 0], [0, 1, 0, 0, 0]])
    for number in (0.0, np.nextafter(1, 0)):
        drawn = draw_states(np.cumsum(rows, axis=1), Fixed(number))
        assert (rows[np.arange(3), drawn] > 0).all()


def test_frozen_arrays_cannot_be_written_to():
    assert not frozen(np.zeros(2)).flags.writeable
