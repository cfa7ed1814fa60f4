"""Laws measured at each lag: what they promise, and how far they can be trusted."""

import numpy as np
import pytest

import agewise as aw
from agewise import MeasuredLaw
from agewise.process.limits import table_delta

CHAIN = aw.birth_death(0.3, 0.25, [1, 2, 3])
SKEWED = aw.MarkovChain([[0.97, 0.02, 0.01], [0.4, 0.5, 0.1], [0.3, 0.3, 0.4]], [1, 2, 3])


def true_joint(chain, age):
    return chain.stationary[:, None] * chain.kernel(1, 1 + age)


def measured(chain=CHAIN, slots=6, room=0.05, **changes):
    joints = [true_joint(chain, slots - t) for t in range(1, slots + 1)]
    limits = [min(1.0, table_delta(j) + room) for j in joints]
    return MeasuredLaw(joints, limits, chain.states, **{"confidence": 0.95, "day": 48, **changes})


def test_noise_is_for_the_limit_never_for_the_estimate():
    problem = aw.Problem([aw.Client("d", measured(), samples=50)], 6, 0.2)
    table = aw.slot_table(problem.clients[0], problem)
    exact = aw.slot_table(aw.Client("d", CHAIN, samples=50), problem)
    for slot in range(5):
        assert table.delta[slot] == pytest.approx(
            min(1.0, table_delta(true_joint(CHAIN, 5 - slot)) + 0.05), abs=1e-9
        )
        assert table.delta[slot] >= measured().limits[slot]
    assert (table.scale[:5] >= exact.scale[:5]).all()
    assert table.delta[5] == 1.0


def test_a_measured_law_plans_runs_and_travels(tmp_path):
    problem = aw.Problem([aw.Client("d", measured()), aw.Client("e", measured(SKEWED))], 6, 0.2)
    again = aw.load_scenario(_written(tmp_path, aw.dump_scenario(problem)))
    assert again == problem
    plan = aw.plan(problem)
    assert all(a.aged_epsilon <= 0.2 for a in plan.assignments)
    assert aw.Plan.from_json(plan.to_json()) == plan
    loss = aw.rehearse(plan, 200, np.random.default_rng(1))
    assert abs(loss - plan.gap) < 4 * loss.standard_error
    assert aw.run(plan, ledgers=tmp_path / "l", starts_at=48).private
    with pytest.raises(aw.InvalidInput, match="a multiple of 48 slots"):
        aw.run(plan, ledgers=tmp_path / "l", starts_at=5)


def _written(folder, text):
    path = folder / "s.toml"
    path.write_text(text)
    return path


def test_several_releases_get_no_credit_for_ageing():
    releases = [aw.Release(1, 0.5), aw.Release(3, 0.5)]
    assert aw.composed_epsilon(releases, measured(), 6) == aw.Total(1.0, 1.0)
    assert aw.composed_epsilon(releases[:1], measured(), 6).aged < 0.5
    assert aw.composed_epsilon(releases[:1], measured(), 40).aged == 0.5  # no such lag is known


@pytest.mark.parametrize(
    "choice", [{"mixing": "any_prior"}, {"mixing": "spectral"}, {"calibration": "tight"}]
)
def test_choices_that_a_measured_law_cannot_support_are_refused(choice):
    problem = aw.Problem([aw.Client("d", measured())], 6, 0.2)
    with pytest.raises(aw.InvalidInput, match=r"measured|for this process"):
        aw.plan(problem.replace(**choice))


def test_another_law_is_refused():
    problem = aw.Problem([aw.Client("d", measured(), law=[1, 0, 0])], 6, 0.2, mixing="own_law")
    with pytest.raises(aw.InvalidInput, match="the law it was measured with"):
        aw.plan(problem)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"confidence": 0}, "confidence is 0"),
        ({"confidence": 1}, "confidence is 1"),
        ({"day": 0}, "day is 0"),
        ({"limits": [0.1] * 6}, "at least the measured"),
        ({"limits": [1.0] * 5}, "6 numbers"),
        ({"limits": [2.0] * 6}, "6 numbers"),
        ({"joints": np.ones((6, 3, 3))}, "sums to 9"),
        ({"joints": -np.ones((6, 3, 3))}, "joints"),
        ({"joints": np.ones((6, 3, 2))}, "shape"),
        ({"joints": np.full((6, 3, 3), 1 / 9)}, "off the diagonal"),
    ],
)
def test_bad_laws_are_refused(change, words):
    good = measured()
    facts = {
        "joints": good.joints,
        "limits": good.limits,
        "states": good.states,
        "confidence": 0.95,
        "day": 48,
        **change,
    }
    with pytest.raises(aw.InvalidInput, match=words):
        MeasuredLaw(**facts)


def test_only_what_was_measured_is_known():
    law = measured()
    with pytest.raises(aw.InvalidInput, match="slots that were measured"):
        law.kernel(1, 5)
    with pytest.raises(aw.InvalidInput, match="slots that were measured"):
        law.kernel(0, 6)
    assert (law.kernel(1, 6) == law.kernel(49, 54)).all()
    assert (law.kernel(3, 3) == np.eye(3)).all()
    assert law != CHAIN
    assert "6 slots" in repr(law)
