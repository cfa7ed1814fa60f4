"""Laws measured at each lag: what they promise, and how far they can be trusted."""

import numpy as np
import pytest

import agewise as aw
from agewise.process.measured import MeasuredLaw, block_inflation, delta_limit, table_delta

CHAIN = aw.birth_death(0.3, 0.25, [1, 2, 3])
SKEWED = aw.MarkovChain([[0.97, 0.02, 0.01], [0.4, 0.5, 0.1], [0.3, 0.3, 0.4]], [1, 2, 3])


def true_joint(chain, age):
    return chain.stationary[:, None] * chain.kernel(1, 1 + age)


def measured(chain=CHAIN, slots=6, room=0.05, **changes):
    joints = [true_joint(chain, slots - t) for t in range(1, slots + 1)]
    limits = [min(1.0, table_delta(j) + room) for j in joints]
    return MeasuredLaw(joints, limits, chain.states, **{"confidence": 0.95, "day": 48, **changes})


def misses(chain, age, pairs, failure, repetitions, rng, inflation=1.0):
    """How often the limit falls below the truth."""
    joint = true_joint(chain, age)
    truth = table_delta(joint)
    counts = rng.multinomial(pairs, joint.ravel(), size=repetitions).reshape(-1, *joint.shape)
    return np.mean([delta_limit(c, failure, inflation) < truth for c in counts])


@pytest.mark.parametrize("chain", [CHAIN, SKEWED], ids=["even", "sparse"])
@pytest.mark.parametrize("pairs", [30, 300, 3_000])
@pytest.mark.parametrize("age", [1, 4])
def test_guarantee_the_limit_covers_the_truth(chain, pairs, age):
    failure = 0.2
    rng = np.random.default_rng(pairs + age)
    assert misses(chain, age, pairs, failure, 300, rng) <= failure


@pytest.mark.slow
@pytest.mark.parametrize("chain", [CHAIN, SKEWED], ids=["even", "sparse"])
@pytest.mark.parametrize("pairs", [30, 365, 5_000])
@pytest.mark.parametrize("failure", [0.05, 0.3])
def test_the_limit_covers_the_truth_in_two_thousand_repetitions(chain, pairs, failure):
    for age in (1, 2, 5, 12):
        assert misses(chain, age, pairs, failure, 2_000, np.random.default_rng(age)) <= failure


def test_the_coverage_test_would_notice_a_limit_without_room(monkeypatch):
    from agewise.process import measured as module

    monkeypatch.setattr(module.math, "log", lambda _: 0.0)  # no allowance at all
    rng = np.random.default_rng(0)
    pair = aw.birth_death(0.1, 0.1, [0, 1])
    assert misses(pair, 4, 300, 0.2, 300, rng) > 0.3


def test_the_limit_tightens_at_the_expected_rate():
    rng, joint = np.random.default_rng(1), true_joint(CHAIN, 3)
    truth = table_delta(joint)
    room = []
    for pairs in (1_000, 100_000):
        counts = rng.multinomial(pairs, joint.ravel(), size=50).reshape(-1, 3, 3)
        room.append(np.mean([delta_limit(c, 0.05) for c in counts]) - truth)
    assert room[1] > 0
    assert room[0] / room[1] == pytest.approx(10, rel=0.3)  # √100


def test_values_hardly_seen_give_no_credit():
    assert delta_limit([[50, 0], [50, 0]], 0.05) == 1.0
    assert delta_limit([[500, 1], [500, 1]], 0.05) == 1.0
    assert delta_limit([[7]], 0.05) == 0.0


def test_pairs_in_blocks_count_for_less():
    rng = np.random.default_rng(3)
    joint = true_joint(CHAIN, 2)
    alone = rng.multinomial(7, joint.ravel(), size=400).reshape(-1, 3, 3)
    assert block_inflation(alone).max() < 1.5
    copied = 7 * rng.multinomial(1, joint.ravel(), size=400).reshape(-1, 3, 3)
    factor = block_inflation(copied)  # a week in which every day is the same
    assert factor == pytest.approx([7, 7, 7], rel=0.25)
    total = copied.sum(axis=0)
    assert delta_limit(total, 0.05, factor) > delta_limit(total, 0.05)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([[1, 2]], 0.05), "a square table"),
        (([[1, -2], [1, 1]], 0.05), "none negative"),
        (([[1, 2], [3, 4]], 0), "failure is 0"),
        (([[1, 2], [3, 4]], 1), "failure is 1"),
        (([[1, 2], [3, 4]], 0.1, 0.5), "inflation is 0.5"),
        (([[1, np.nan], [3, 4]], 0.1), "counts"),
    ],
)
def test_bad_counts_are_refused(arguments, words):
    with pytest.raises(aw.InvalidInput, match=words):
        delta_limit(*arguments)


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
    loss = aw.rehearse(plan, 400, np.random.default_rng(1))
    assert abs(loss - plan.gap) < 4 * loss.standard_error
    assert aw.run(plan, ledgers=tmp_path / "l", starts_at=48).private
    with pytest.raises(aw.InvalidInput, match=r"measured|repeats"):
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


@pytest.mark.parametrize("choice", [{"mixing": "any_prior"}, {"mixing": "spectral"},
                                    {"calibration": "tight"}])  # fmt: skip
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
    facts = {"joints": good.joints, "limits": good.limits, "states": good.states,
             "confidence": 0.95, "day": 48, **change}  # fmt: skip
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
