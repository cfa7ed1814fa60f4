"""Plans of the best estimate where releases have hardly any noise, or none."""

import numpy as np
import pytest

import agewise as aw
from agewise import scenarios
from agewise.scheduling import GainTables, best_gains, gain_objective, gap_of

LONDON = scenarios.london().replace(estimator="best", mixing="exact")


@pytest.mark.parametrize("epsilon", [1e6, 1e12])
@pytest.mark.parametrize("level", [None, aw.Level(20.0, 0.98), aw.Level([20.0, -3.0, 0.0], 1.0)])
def test_a_plan_with_hardly_any_noise_is_made_and_travels(level, epsilon):
    made = aw.plan(LONDON.replace(level=level, epsilon=epsilon))
    assert 0 <= made.lower_bound <= made.gap <= made.nothing_collected
    assert aw.Plan.from_json(made.to_json()) == made


def test_gains_keep_their_digits_where_one_release_has_no_noise():
    heard = np.full((2, 1, 1, 1), 20.0)
    tables = GainTables(
        base=np.full((2, 1), 100.0),
        cross=np.array([0.0, 1.0])[:, None, None],
        power=np.array([1e-13 * 400, 1e6])[:, None, None],
        common=np.full((2, 1, 1), 10.0),
        heard=heard,
    )
    columns = np.zeros(2, dtype=np.intp)
    # The first release tells the level but for its tiny power; the second one hardly anything.
    expected = 200.0 + 1e-13 * 400 - 1e-6
    gains = best_gains(tables, columns)
    assert gap_of(tables, columns, gains) == pytest.approx(expected, rel=1e-13)
    assert gain_objective(tables)(columns[None])[0] == pytest.approx(expected, rel=1e-13)


def test_where_nothing_is_unknown_nothing_need_be_collected():
    chain = aw.birth_death(0.1, 0.2, [20, 50])
    known = aw.Client("known", chain, law=[1.0, 0.0])
    made = aw.plan(aw.Problem([known], aggregate_at=1, epsilon=1.0))
    assert made.gap == made.nothing_collected == 0
    assert made.verdict.startswith("Collect nothing")
