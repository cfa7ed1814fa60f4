"""Asymptotic limits: what they cover in simulations, and how E is limited between targets."""

import numpy as np
import pytest
from benchmarks.coverage import LEVEL, REPETITIONS, TARGETS, cases, covered

import agewise as aw
from agewise.fitting.coverage import coverage, coverage_sentence
from agewise.process.asymptotic import asymptotic_limits, critical_value
from agewise.process.limits import delta_limit, stick_limits, table_delta, table_sticks

CASES = {case.name: case for case in cases()}
MOVED = CASES["days that move everybody"]


def limits_of(tables):
    critical = critical_value(tables, TARGETS, 1 - LEVEL)
    return np.array([asymptotic_limits(one, TARGETS, critical) for one in tables])


def test_limits_cover_days_that_move_everybody_where_estimates_do_not():
    rng, truth, missed, estimates = np.random.default_rng(0), MOVED.truth(), 0, 0
    for _ in range(25):
        tables = MOVED.tables(26, rng)
        missed += (limits_of(tables) < truth).any()
        estimates += any(
            table_delta(t.sum(axis=0)) < d for t, d in zip(tables, truth[:, 0], strict=True)
        )
    assert missed <= 4
    assert estimates > 10  # the same check, without room


def test_limits_are_narrower_than_proven_ones_by_weeks():
    tables = MOVED.tables(52, np.random.default_rng(1))
    proven = [delta_limit(one, 0.05 / len(tables), most=140) for one in tables]
    assert (limits_of(tables)[:, 0] < proven).all()
    assert (np.diff(limits_of(tables), axis=1) <= 0).all()  # E falls with its target


def test_fewer_ages_are_tighter():
    tables = CASES["one entity"].tables(52, np.random.default_rng(2))
    assert limits_of(tables[-1:])[0, 0] < limits_of(tables)[-1, 0]


def test_many_states_are_bounded_state_by_state():
    rng = np.random.default_rng(3)
    tables = rng.multinomial(20_000, np.full(81, 1 / 81), size=300).reshape(1, 300, 9, 9)
    (limit,) = limits_of(tables.astype(float))
    assert table_delta(tables[0].sum(axis=0)) < limit[0] < 1


def test_what_was_not_seen_has_no_limit():
    tables = MOVED.tables(10, np.random.default_rng(0))
    assert (asymptotic_limits(tables[0][:7], TARGETS, 2.0) == 1).all()
    never = tables[0].copy()
    never[:, :, 1] = 0
    assert (asymptotic_limits(never, TARGETS, 2.0) == 1).all()
    assert critical_value([never], TARGETS, 0.05) == 0


def test_bad_tables_and_levels_are_refused():
    tables = MOVED.tables(10, np.random.default_rng(0))
    with pytest.raises(aw.InvalidInput, match=r"confidence is 0.999 for asymptotic limits"):
        critical_value(tables, TARGETS, 0.001)
    with pytest.raises(aw.InvalidInput, match="table is of shape"):
        asymptotic_limits(tables, TARGETS, 2.0)


@pytest.mark.slow
@pytest.mark.parametrize("row", coverage(), ids=lambda row: f"{row.case}, {row.weeks} weeks")
def test_recorded_coverage_is_what_simulations_give(row):
    """The level, but for weeks too rare to be seen, and states hardly ever seen."""
    assert covered(CASES[row.case], row.weeks, REPETITIONS) == row
    if "rare weeks" not in row.case and (row.weeks, row.case) != (10, "one entity, rare state"):
        assert row.covered >= LEVEL - 0.02


def test_the_record_is_said_for_the_nearest_fewer_weeks():
    assert {row.weeks for row in coverage()} == {10, 26, 52}
    assert "simulations of 26 weeks" in coverage_sentence(51)
    assert "simulations of 52 weeks" in coverage_sentence(300)
    worst = min((row for row in coverage() if row.weeks == 52), key=lambda row: row.covered)
    assert f"worst case {worst.covered:.1%}: {worst.case}" in coverage_sentence(52)


def test_proven_limits_on_e_cover_all_targets_together():
    rng, joint = np.random.default_rng(4), np.array([[0.3, 0.2], [0.1, 0.4]])
    missed = 0
    for _ in range(200):
        counts = rng.multinomial(300, joint.ravel()).reshape(2, 2)
        limits = stick_limits(counts, 0.2, [0.0, 0.1, 0.5, 1.0])
        missed += (limits < table_sticks(joint, [0.0, 0.1, 0.5, 1.0])).any()
        assert limits[0] == delta_limit(counts, 0.2)
    assert missed <= 40


@pytest.fixture
def measured():
    joint = np.array([[0.3, 0.2], [0.15, 0.35]])
    return aw.MeasuredLaw(
        [joint, np.diag(joint.sum(axis=0))],
        [0.5, 1.0],
        [1, 2],
        confidence=0.95,
        basis="asymptotic",
        weeks=52,
        targets=[0.1, 1.0],
        sticks=[[0.45, 0.1], [1.0, 1.0]],
    )


def test_limits_on_e_between_targets_are_on_the_safe_side(measured):
    pair = measured.joint(1, 2)
    assert pair.stick_limit(0.1) == pytest.approx(0.45)
    for target in np.linspace(0.01, 3, 50):
        assert pair.stick_limit(target) >= table_sticks(pair.matrix, [target])[0]
    middle = np.log((np.exp(0.1) + np.e) / 2)
    assert pair.stick_limit(middle) == pytest.approx(0.275)
    assert pair.stick_limit(5) == pytest.approx(0.1)


@pytest.mark.parametrize("target", [0.01, 0.1, 0.4, 1.0, 2.0])
def test_guarantee_sharp_noise_for_a_measured_law_meets_its_target(measured, target):
    ageing = aw.Ageing(measured, 1, aggregate_at=2)
    spent = ageing.classical_epsilon(target)
    assert ageing.aged_epsilon(spent) <= target
    assert spent > aw.classical_epsilon(target, 0.5)
    assert spent == pytest.approx(
        np.log1p(np.expm1(target) / measured.joint(1, 2).stick_limit(target))
    )
    problem = aw.Problem([aw.Client("a", measured, samples=10)], 2, target, estimator="plain")
    cell = aw.evaluate(problem, [1]).assignments[0]
    assert cell.classical_epsilon == pytest.approx(spent)
    assert cell.aged_epsilon <= target


def test_what_limits_rest_on_travels(measured, tmp_path):
    problem = aw.Problem([aw.Client("a", measured, samples=10)], 2, 0.1)
    file = tmp_path / "mine.toml"
    file.write_text(aw.dump_scenario(problem), encoding="utf-8")
    again = aw.load_scenario(file)
    assert again.clients[0].process == measured
    plan = aw.plan(again)
    (note,) = [note for note in plan.notes if "upper limit" in note]
    assert "confidence 0.95 (asymptotic, from 52 weeks of readings" in note
    assert note in aw.run(plan, rng=np.random.default_rng(0)).statement.notes


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"basis": "guessed"}, "basis is 'guessed'"),
        ({"targets": [0.1]}, "sticks"),
        ({"targets": [1.0, 0.1], "sticks": [[0.2, 0.1]] * 2}, "targets"),
        ({"targets": [0.1], "sticks": [[0.9], [1.0]]}, "sticks is rising"),
        ({"targets": [0.1], "sticks": [[0.2]]}, "sticks is of shape"),
        ({"weeks": -1}, "weeks is -1"),
    ],
)
def test_senseless_limits_are_refused(choices, words):
    joint = np.array([[0.3, 0.2], [0.15, 0.35]])
    with pytest.raises(aw.InvalidInput, match=words):
        aw.MeasuredLaw(
            [joint, np.diag(joint.sum(axis=0))], [0.5, 1.0], [1, 2], confidence=0.95, **choices
        )
