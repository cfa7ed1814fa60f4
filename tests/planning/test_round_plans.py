"""Plans for many rounds: noise that lasts, promises, rivals, scenario files."""

import dataclasses
import json

import numpy as np
import pytest

import agewise as aw
from agewise import Plan
from agewise.planning.heard import heard_gap

FOR_EVER = aw.scenarios.for_ever()
PLAIN = FOR_EVER.replace(level=None, estimator="plain")


@pytest.mark.parametrize(
    ("promise", "ages", "spent", "loss", "filtered"),
    [
        ("every_moment", [0, 0, 0], (0.07282, 0.07107, 0.09878), 224.508, 167.404),
        ("present", [0, 0, 0], (0.08424, 0.08309, 0.09939), 207.041, 154.157),
        ("present", [4, 4, 4], (0.15006, 0.14786, 0.64749), 180.687, 157.595),
    ],
)
def test_each_release_spends_what_lasts_for_ever(promise, ages, spent, loss, filtered):
    problem = FOR_EVER.replace(promise=promise)
    plan = aw.evaluate(problem, [10 - age for age in ages])
    for one, wanted in zip(plan.assignments, spent, strict=True):
        assert one.classical_epsilon == pytest.approx(wanted, abs=1e-5)
        assert one.aged_epsilon == pytest.approx(0.1, rel=1e-6)
        assert one.aged_epsilon <= 0.1
    assert plan.gap == pytest.approx(loss, abs=1e-2)
    assert plan.nothing_collected == pytest.approx(410.362, abs=6e-4)
    assert heard_gap(plan) == pytest.approx(filtered, abs=2e-3)


def test_for_ever_no_classical_noise_is_left():
    plan = aw.plan(FOR_EVER)
    assert plan.classical_fresh == plan.nothing_collected
    year = aw.plan(FOR_EVER.replace(rounds=365))
    assert year.classical_fresh == pytest.approx(410.3586, abs=6e-4)
    assert year.gap < 150


def test_fewer_rounds_need_less_noise_and_many_are_for_ever():
    gaps = [aw.evaluate(PLAIN.replace(rounds=n), [10, 10, 10]).gap for n in (2, 5, 365, None)]
    assert gaps == sorted(gaps)
    assert gaps[-2] == pytest.approx(gaps[-1], rel=1e-6)
    once = PLAIN.replace(rounds=1, every=None)
    assert aw.evaluate(once, [10, 10, 10]).gap < gaps[0]


def test_one_release_promised_at_every_moment_is_classical():
    once = PLAIN.replace(rounds=1, every=None, promise="every_moment")
    plan = aw.evaluate(once, [1, 5, 10])
    assert plan.classical_epsilons == pytest.approx([0.1] * 3, rel=1e-6)


def test_the_last_slots_lie_between_the_two_promises():
    slots = [2, 5, 8]
    spent = {}
    for promise in ("every_moment", 20, 4, 0, "present"):
        spent[promise] = aw.evaluate(PLAIN.replace(promise=promise), slots).classical_epsilons
    for one, other in zip(list(spent)[:-1], list(spent)[1:], strict=True):
        assert all(a <= b * (1 + 1e-6) for a, b in zip(spent[one], spent[other], strict=True))
    assert spent[0] == pytest.approx(spent["present"])


@pytest.mark.parametrize("noise", ["client", "server"])
@pytest.mark.parametrize("estimator", ["plain", "propagated", "best"])
def test_certified_is_exhaustive_over_rounds_and_plans_travel(estimator, noise):
    problem = PLAIN.replace(estimator=estimator, noise=noise, rounds=30)
    plan, every = aw.plan(problem), aw.plan(problem, "exhaustive")
    assert plan.gap == pytest.approx(every.gap)
    assert all(one.aged_epsilon <= 0.1 for one in plan.assignments)
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.problem.rounds == 30


def test_a_replaced_promise_in_a_document_is_refused():
    document = json.loads(aw.plan(PLAIN).to_json())
    document["scenario"]["promise"] = "every_moment"
    with pytest.raises(aw.InvalidInput):
        Plan.from_json(json.dumps(document))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"every": 0}, "every"),
        ({"every": -3}, "every"),
        ({"every": None}, "every"),
        ({"every": 2.5}, "every"),
        ({"every": 9}, "1 to 9"),
        ({"rounds": 0}, "rounds"),
        ({"rounds": 1}, "every"),
        ({"rounds": 1.5}, "rounds"),
        ({"promise": "always"}, "every_moment"),
        ({"promise": -1}, "promise"),
        ({"promise": True}, "promise"),
        ({"calibration": "formula"}, "sharp"),
        ({"mechanism": "gaussian", "delta": 1e-6}, "a number of them"),
        ({"objective": "bound"}, "exact"),
    ],
)
def test_rounds_that_are_none_are_refused(changes, told):
    with pytest.raises(aw.InvalidInput, match=told):
        PLAIN.replace(**changes)


def test_processes_that_do_not_forget_or_are_known_by_lag_get_no_rounds():
    lasting = aw.MarkovChain(np.eye(2), [0.0, 1.0])
    rhythm = aw.MarkovChain([[0.0, 1.0], [1.0, 0.0]], [0.0, 1.0])
    for chain in (lasting, rhythm):
        client = aw.Client("one", process=chain)
        with pytest.raises(aw.InvalidInput, match="never forgets"):
            aw.Problem([client], 2, 0.1, rounds=None, every=2)
    fitted = aw.scenarios.london_fitted()
    with pytest.raises(aw.InvalidInput, match="lag by lag"):
        fitted.replace(rounds=30, every=48)


def test_a_stated_law_does_not_hold_in_every_round():
    stated = [dataclasses.replace(PLAIN.clients[0], law=(1.0, 0.0, 0.0, 0.0))]
    with pytest.raises(aw.InvalidInput, match="leave the law out"):
        PLAIN.replace(clients=stated)


def test_a_round_is_whole_days_of_a_day_profile():
    day = aw.scenarios.day_profile()
    assert aw.plan(day.replace(rounds=7, every=24)).lower_bound is not None
    with pytest.raises(aw.InvalidInput, match="multiple of 24"):
        day.replace(rounds=7, every=30)


@pytest.mark.parametrize(
    "changes",
    [{}, {"rounds": 30}, {"promise": "every_moment"}, {"promise": 4, "rounds": 365}],
    ids=str,
)
def test_rounds_travel_in_scenario_files(tmp_path, changes):
    problem = FOR_EVER.replace(**changes)
    path = tmp_path / "rounds.toml"
    path.write_text(aw.dump_scenario(problem))
    assert aw.load_scenario(path) == problem


@pytest.mark.parametrize(
    ("line", "told"),
    [('rounds = "always"', "rounds"), ("rounds = 0", "rounds"), ("every = 3", "aggregate_at")],
)
def test_bad_rounds_in_scenario_files(tmp_path, line, told):
    name = line.split()[0]
    path = tmp_path / "bad.toml"
    lines = aw.dump_scenario(FOR_EVER).splitlines()
    path.write_text("\n".join(line if one.startswith(f"{name} =") else one for one in lines))
    with pytest.raises(aw.InvalidInput, match=told):
        aw.load_scenario(path)


def test_a_plan_says_what_its_epsilon_is_about():
    told = str(aw.plan(PLAIN.replace(promise="every_moment", rounds=7)))
    assert "every 10 slots, 7 rounds" in told
    assert "value at any time, all releases before and after it counted" in told
    assert "for ever" in str(aw.plan(PLAIN))
