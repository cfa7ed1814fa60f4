"""A model trained over rounds: every round steps on, wherever it was interrupted."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

import agewise as aw
import in_process
from agewise import RunIncomplete, run_rounds
from agewise.federation import Order, SimulatedRecords, check_rounds
from parties import ClientAgent, OrderRefused, Profile, Server, private_noise

CHAIN = aw.MarkovChain([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]], [1, 2, 5])
LEARNER = aw.Logistic([[1.0], [-1.5], [0.5]], ["no", "yes", "yes"], clip=0.5)
CLIENTS = [aw.Client(name, CHAIN, samples=60 + 20 * k) for k, name in enumerate(("north", "south"))]
PROBLEM = aw.Problem(CLIENTS, 4, 2.0, estimator="propagated", learner=LEARNER, rounds=4, every=4)
PLAN = aw.plan(PROBLEM)


def seeded():
    return np.random.default_rng(5)


def unnamed(result):
    return [dataclasses.replace(one, run="") for one in result.rounds]


def test_every_round_takes_a_step_from_the_model_of_the_one_before(tmp_path):
    result = run_rounds(PLAN, seeded(), folder=tmp_path / "run")
    learner, shares = LEARNER, np.array([60, 80]) / 140
    variance = 2 * np.square(shares * PLAN.noise_scales).sum()
    for number, one in enumerate(result.rounds, start=1):
        plan = aw.Plan.from_json((tmp_path / "run" / f"{number:05d}" / "plan.json").read_text())
        assert plan.problem.learner.current.tolist() == learner.current.tolist()
        learner = learner.step(one.aggregate, variance)
        assert one.estimate == learner.model.vector
    assert result.model.vector == learner.model.vector
    assert result.model.standard_error == pytest.approx(learner.model.standard_error)
    assert [model.rounds for model in result.models] == [1, 2, 3, 4]
    assert result.model.standard_error**2 == result.rounds[-1].estimate_gap > 0
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["model"] == json.loads(json.dumps(result.model.to_dict()))
    result.plot(tmp_path / "rounds.png")


def test_guarantee_private_rounds_keep_the_promise_and_check(tmp_path):
    for name, changes in (
        ("laplace", {}),
        ("gaussian", {"mechanism": "gaussian", "delta": 1e-5}),
        ("server", {"noise": "server"}),
    ):
        plan = aw.plan(PROBLEM.replace(**changes))
        result = run_rounds(plan, folder=tmp_path / name)
        assert result.private
        assert all(one.epsilon <= 2.0 * (1 + 1e-9) for one in result.rounds)
        assert result.rounds[-1].classical > result.rounds[0].classical
        report = check_rounds(tmp_path / name)
        assert not report.differences
        words = (tmp_path / name / "statement.md").read_text()
        assert ("δ = 1e-05" in words) == (name == "gaussian")


def test_a_model_that_does_not_follow_from_the_rounds_is_found(tmp_path):
    run_rounds(PLAN, seeded(), folder=tmp_path / "run")
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "run", other)
    record = json.loads((other / "record.json").read_text())
    record["model"]["coefficients"][0] += 0.1
    (other / "record.json").write_text(json.dumps(record))
    assert any("model" in one.where for one in check_rounds(other).differences)
    path = tmp_path / "run" / "00003" / "plan.json"
    plan = aw.Plan.from_json(path.read_text())
    path.write_text(plan.at(plan.problem.learner.step([0.1, 0.1])).to_json())
    found = [one.where for one in check_rounds(tmp_path / "run").differences]
    assert any(where.startswith("round 3: plan.json: learner") for where in found)


def test_those_who_are_heard_are_the_step(tmp_path):
    result = run_rounds(PLAN, seeded(), on_missing="renormalise", drop=["south"])
    assert [one.missing for one in result.rounds] == [("south",)] * 4
    everybody = run_rounds(PLAN, seeded())
    assert result.model.standard_error > everybody.model.standard_error
    with pytest.raises(RunIncomplete, match="no client uploaded"):
        run_rounds(
            PLAN, seeded(), on_missing="renormalise", drop=["north", "south"], folder=tmp_path / "x"
        )


def order(**changes):
    (first, *_) = Server(PLAN, "run").orders(PLAN.collect_at[0])
    return Order.model_validate({**first.model_dump(), **changes})


def ask(given):
    profile = Profile.of(CLIENTS[0], PROBLEM, None)
    agent = ClientAgent(profile, SimulatedRecords(CLIENTS[0], 1), None, private_noise)
    return agent.check(given)


def test_guarantee_a_node_follows_any_model_of_its_own_learner_and_no_other():
    own = ask(order())
    for step in ([0.3, -0.2], [1e300, -1e300]):
        later = ask(order(learner=LEARNER.step(step).to_dict()))
        assert (later.scale, later.sensitivity) == (own.scale, own.sensitivity)
        assert np.abs(later.release).sum(axis=1).max() <= 0.5 * (1 + 1e-12)
    wider = aw.Logistic([[1.0], [-1.5], [0.5]], ["no", "yes", "yes"], clip=5.0)
    other = aw.Logistic([[1.0], [-1.5], [9.0]], ["no", "yes", "yes"], clip=0.5)
    for learner in (wider, other, wider.step([0.1, 0.1])):
        with pytest.raises(OrderRefused, match="learner is"):
            ask(order(learner=learner.to_dict()))


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"coefficients": [float("nan"), 0.0]}, "progress.coefficients"),
        ({"coefficients": [float("inf"), 0.0]}, "progress.coefficients"),
        ({"coefficients": [1e200, 0.0]}, r"up to 1e\+100"),
        ({"coefficients": [0.0, 0.0, 0.0]}, "3 numbers; allowed: 2"),
        ({"coefficients": "none"}, "progress.coefficients"),
        ({"rounds": "two"}, "progress.rounds"),
        ({"clip": 9}, "clip is not a known key"),
    ],
)
def test_a_node_refuses_a_model_that_makes_no_sense(told, words):
    good = LEARNER.step([0.1, 0.2]).to_dict()
    bad = {**good, "progress": {**good["progress"], **told}}
    with pytest.raises(OrderRefused, match=words):
        ask(order(learner=bad))


SCENARIO = """
aggregate_at = 4
epsilon = 2.0
estimator = "propagated"
rounds = 3
every = 4

[learner]
kind = "logistic"
features = [[1.0], [-1.5], [0.5]]
labels = ["a", "b", "b"]
clip = 0.5

[[clients]]
name = "north"
states = [1, 2, 5]
samples = 50
process = { kind = "birth_death", up = 0.3, down = 0.4 }
"""


def test_a_scenario_file_with_a_model_is_carried_out(tmp_path):
    path = tmp_path / "model.toml"
    path.write_text(SCENARIO)
    problem = aw.load_scenario(path)
    (tmp_path / "again.toml").write_text(aw.dump_scenario(problem))
    assert aw.load_scenario(tmp_path / "again.toml") == problem
    (tmp_path / "own.toml").write_text(aw.dump_scenario(PROBLEM))
    assert aw.load_scenario(tmp_path / "own.toml") == PROBLEM
    words = ["rounds", str(path), "--seed", "3", "--json", "--out", str(tmp_path / "runs")]
    done = in_process.command(*words)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["model"]["classes"] == ["a", "b"]
    assert told["model"]["rounds"] == 3


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('labels = ["a", "b", "b"]', 'labels = ["a", "b"]', "3 labels"),
        ('labels = ["a", "b", "b"]', 'labels = ["b", "b", "b"]', "2 classes or more"),
        ("[[1.0], [-1.5], [0.5]]", "[[1.0], [1.0], [1.0]]", "in every state"),
        ("[[1.0], [-1.5], [0.5]]", "[[1.0], [-1.5], [nan]]", "features"),
        ("clip = 0.5", "clip = -1", "clip is -1"),
        ("clip = 0.5", "clop = 0.5", "not a known key"),
        ('"propagated"', '"best"', "plain or propagated"),
    ],
)
def test_a_bad_scenario_file_is_refused_and_nothing_written(tmp_path, old, new, words):
    path = tmp_path / "model.toml"
    assert old in SCENARIO
    path.write_text(SCENARIO.replace(old, new))
    done = in_process.command("rounds", path, "--out", tmp_path / "runs")
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
    assert not (tmp_path / "runs").exists()


def test_one_round_is_one_step():
    plan = aw.plan(PROBLEM.replace(rounds=1, every=None))
    result = aw.run(plan, rng=seeded())
    assert result.model.vector == LEARNER.step(result.aggregate).model.vector
    assert result.model.standard_error > 0
    assert "x1: " in str(result)
    result.plot()
