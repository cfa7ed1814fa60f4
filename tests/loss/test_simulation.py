import numpy as np
import pytest

import agewise as aw


@pytest.mark.parametrize(
    ("runs", "off"), [(300, 0.16), pytest.param(1500, 0.08, marks=pytest.mark.slow)]
)
def test_the_standard_error_is_honest(runs, off):
    """Over many runs the estimate misses by as much as its standard error says."""
    problem, ages = aw.scenarios.london(), [4, 9, 2]
    true = aw.loss_gap(problem, ages)
    rng = np.random.default_rng(3)
    found = [aw.simulate_gap(problem, ages, 2000, rng) for _ in range(runs)]
    spread = np.std([float(one) for one in found])
    told = np.mean([one.standard_error for one in found])
    assert told == pytest.approx(spread, rel=off)  # four of its own standard errors
    assert abs(np.mean(found) - true) < 5 * spread / np.sqrt(runs)


def test_a_wrong_gap_is_noticed():
    problem, ages = aw.scenarios.london(), [0, 9, 9]
    estimate = aw.simulate_gap(problem, ages, 100_000, np.random.default_rng(4))
    true = aw.loss_gap(problem, ages)
    assert abs(estimate - true) < 4 * estimate.standard_error
    assert abs(estimate - 1.1 * true) > 4 * estimate.standard_error


def test_seeded_runs_repeat_and_progress_is_told():
    seen = []
    first, second = (
        aw.simulate_gap(
            aw.scenarios.london(),
            [0, 0, 0],
            30_000,
            np.random.default_rng(1),
            progress=lambda done, total: seen.append((done, total)),
        )
        for _ in range(2)
    )
    assert first == second
    assert first.trials == 30_000
    assert seen == [(20_000, 30_000), (30_000, 30_000)] * 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"trials": 1}, "trials is 1"), ({"trials": 2.5}, "trials is 2.5"), ({"rng": 3}, "rng is 3")],
)
def test_bad_input_is_refused(changes, words):
    with pytest.raises(aw.InvalidInput, match=words):
        aw.simulate_gap(aw.scenarios.london(), [0, 0, 0], **changes)
