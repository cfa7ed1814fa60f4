"""The best linear estimate on problems: the loss, its rivals, and runs that apply the gains."""

import json
from dataclasses import replace

import numpy as np
import pytest

import agewise as aw
from agewise.federation import SimulatedRecords
from agewise.knowledge import Level
from agewise.loss.gap import classical_fresh, nothing_collected
from agewise.privacy import Policy
from parties import ClientAgent, Profile, Server, stand_in_noise
from random_problems import random_ages, random_problem

PAPER = aw.scenarios.london().replace(mixing="exact", calibration="formula", estimator="best")
LEVEL = Level(20.0, 0.98)


@pytest.mark.parametrize(
    ("level", "epsilon", "ages", "gap", "fresh", "nothing"),
    [
        (None, 0.03, [0, 0, 0], 4.6930, 4.6930, 4.7089),
        (None, 0.1, [0, 0, 0], 4.5394, 4.5394, 4.7089),
        (None, 0.3, [0, 0, 0], 3.5578, 3.5578, 4.7089),
        (None, 1.0, [0, 0, 0], 1.1722, 1.1722, 4.7089),
        (LEVEL, 0.03, [9, 0, 6], 193.2981, 368.31, 404.7089),
        (LEVEL, 0.1, [9, 0, 4], 135.4837, 193.65, 404.7089),
        (LEVEL, 0.3, [0, 0, 0], 39.3848, 39.3848, 404.7089),
        (LEVEL, 1.0, [0, 0, 0], 5.7053, 5.7053, 404.7089),
    ],
)
def test_the_paper_clients_with_what_the_server_knows(level, epsilon, ages, gap, fresh, nothing):
    problem = PAPER.replace(level=level, epsilon=epsilon)
    for method in ("certified", "exhaustive"):
        plan = aw.plan(problem, method)
        assert plan.ages == ages
        assert plan.gap == pytest.approx(gap, abs=5.1e-5)
        assert plan.classical_fresh == pytest.approx(fresh, abs=5.1e-3)
        assert plan.lower_bound == pytest.approx(plan.gap)
        assert json.loads(plan.to_json())["nothing_collected"] == plan.nothing_collected
    assert nothing_collected(problem, [0, 0, 0]) == pytest.approx(nothing, abs=5.1e-5)


@pytest.mark.parametrize("method", ["certified", "exhaustive"])
@pytest.mark.parametrize(
    ("mixing", "ages", "gap"), [("exact", [9, 0, 4], 133.637), ("any_prior", [0, 0, 5], 142.844)]
)
def test_the_paper_clients_with_a_level_and_sharp_noise(mixing, ages, gap, method):
    plan = aw.plan(aw.scenarios.common_level().replace(mixing=mixing), method)
    assert (plan.ages, plan.problem.epsilon) == (ages, 0.1)
    told = (plan.gap, plan.classical_fresh, plan.nothing_collected)
    assert told == pytest.approx((gap, 193.648, 404.709), abs=5.1e-4)
    fresh = aw.evaluate(plan.problem, [10, 10, 10])
    assert fresh.gap == pytest.approx(193.648, abs=5.1e-4)


def test_nothing_collected_has_one_value_whatever_the_ages_and_wherever_it_stands():
    assert nothing_collected(PAPER, [9, 9, 9]) == pytest.approx(9.6682, abs=5e-5)
    old, mixed = aw.evaluate(PAPER, [1, 1, 1]), aw.evaluate(PAPER, [1, 10, 4])
    run = aw.run(mixed, rng=np.random.default_rng(1))
    compared = [row.gap for row in aw.compare(PAPER) if row.name == "nothing collected"]
    schemes = aw.compare_schemes(PAPER.replace(estimator="plain", mixing="spectral"), [0.03, 0.1])
    told = [
        *(plan.nothing_collected for plan in (old, mixed, aw.plan(PAPER))),
        json.loads(old.to_json())["nothing_collected"],
        run.to_dict()["nothing_collected"],
        *compared,
        *(row.nothing_collected for row in schemes),
    ]
    assert len(told) == 6 + 12
    assert set(told) == {nothing_collected(PAPER)}
    assert told[0] == pytest.approx(4.7089, abs=5e-5)


def test_a_plan_whose_ages_imply_another_law_says_so_once():
    told = "under that one nothing collected would lose 9.668 Wh², not 4.709 Wh²."
    notes = aw.evaluate(PAPER, [1, 1, 1]).notes
    assert sum(note.endswith(told) for note in notes) == 1
    assert str(aw.evaluate(PAPER, [1, 1, 1])).count("nothing collected would lose") == 1
    stationary = [replace(client, law=None) for client in PAPER.clients]
    for same in (
        aw.evaluate(PAPER, [10] * 3),
        aw.evaluate(PAPER.replace(clients=stationary), [1] * 3),
    ):
        assert not any("nothing collected would lose" in note for note in same.notes)


@pytest.mark.parametrize(
    "choices",
    [
        {"estimator": "best"},
        {"estimator": "best", "level": Level(20.0, 0.98)},
        {"estimator": "best", "level": [Level([20.0, 5.0, -3.0], 0.9), Level(4.0, 0.5)]},
        {"estimator": "plain", "level": Level(20.0, 0.98)},
        {"estimator": "best", "learner": aw.Histogram(), "epsilon": 1.0},
        {"estimator": "best", "mechanism": "gaussian", "delta": 1e-6},
    ],
)
def test_the_loss_is_that_of_simulated_records_levels_and_noise(choices):
    problem = PAPER.replace(**choices)
    for ages in ([0, 3, 7], [9, 9, 9]):
        estimate = aw.simulate_gap(problem, ages, 20_000, np.random.default_rng(3))
        off = estimate - aw.loss_gap(problem, ages)
        assert abs(off) < 4 * estimate.standard_error
        assert estimate.standard_error < 0.05 * estimate


@pytest.mark.parametrize("problems", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_guarantee_the_best_estimate_loses_no_more_than_its_rivals(problems):
    rng = np.random.default_rng(11)
    for _ in range(problems):
        problem = random_problem(rng, estimator="best")
        if rng.random() < 0.5:
            loading = rng.normal(0, 10, len(problem.clients))
            problem = problem.replace(level=Level(loading, float(rng.random())))
        ages = random_ages(rng, problem)
        gap = aw.loss_gap(problem, ages)
        assert gap <= nothing_collected(problem, ages) * (1 + 1e-9)
        weighted = problem.replace(estimator="plain")
        assert gap <= aw.loss_gap(weighted, ages) * (1 + 1e-9)
        fresh = aw.loss_gap(problem, [0] * len(ages))
        assert fresh == pytest.approx(classical_fresh(problem), rel=1e-9)


def test_a_plan_that_is_not_worth_it_says_so_first():
    nothing = aw.plan(PAPER.replace(epsilon=0.01))
    assert nothing.verdict.startswith("Collect nothing")
    assert nothing.facts()[0] == ("verdict", nothing.verdict)
    paper = aw.plan(aw.scenarios.london())
    assert paper.verdict.startswith("Collect fresh data")
    assert "loses 4.53935 Wh² with" in paper.verdict
    fresh = aw.plan(PAPER)
    assert set(fresh.ages) == {0}
    assert (
        fresh.verdict == paper.verdict
    )  # ageing brings nothing: said also where the plan is fresh
    assert aw.plan(PAPER.replace(level=LEVEL)).verdict is None


class TestRuns:
    problem = PAPER.replace(level=LEVEL)

    @pytest.fixture
    def plan(self):
        return aw.plan(self.problem)

    def test_the_server_applies_the_gains_to_what_was_uploaded(self, plan):
        server = Server(plan, "run", private=False)
        for slot in range(1, self.problem.aggregate_at + 1):
            for order in server.orders(slot):
                client = next(c for c in self.problem.clients if c.name == order.client)
                profile = Profile.of(client, self.problem, Policy())
                noise = stand_in_noise(5, client.name)
                agent = ClientAgent(profile, SimulatedRecords(client, 5), None, noise)
                assert server.receive(agent.answer(order), slot) is None
            server.close(slot)
        values = [server.received[c.name][0].value[0] for c in self.problem.clients]
        outcome = server.finish()
        assert outcome.model == pytest.approx(plan.offset[0] + np.dot(plan.gains, values))
        assert outcome.plan is plan
        assert plan.gains[2] > 2 * plan.gains[0]

    @pytest.mark.parametrize("on_missing", ["renormalise", "replan"])
    def test_gains_are_made_anew_without_the_missing(self, plan, on_missing):
        result = aw.run(
            plan, rng=np.random.default_rng(2), drop=["client 3"], on_missing=on_missing
        )
        assert result.plan.unheard == ("client 3",)
        assert result.plan.gains[2] == 0
        assert result.plan.gains[0] > 2 * plan.gains[0]
        assert plan.gap < result.plan.gap < result.plan.nothing_collected
        assert [a.client for a in result.plan.assignments] == [c.name for c in self.problem.clients]
        assert aw.Plan.from_json(result.plan.to_json()) == result.plan

    def test_the_loss_of_runs_is_the_expected_one(self):
        plan = aw.evaluate(PAPER.replace(epsilon=1.0), [10, 7, 8])
        rng = np.random.default_rng(5)
        losses = [aw.run(plan, rng=rng).realised_loss for _ in range(400)]
        error = np.std(losses) / np.sqrt(len(losses))
        assert abs(np.mean(losses) - plan.gap) < 4 * error


def test_gains_of_a_plan_are_those_that_its_scenario_implies():
    plan = aw.plan(PAPER.replace(level=LEVEL))
    document = json.loads(plan.to_json())
    for change in (
        {"gains": [0.1, 0.1, 0.1]},
        {"offset": [0.0]},
        {"nothing_collected": 1.0},
        {"classical_fresh": 1.0},
        {"unheard": ["nobody"]},
        {"unheard": ["client 1"]},
    ):
        with pytest.raises(aw.InvalidInput, match="plan: "):
            aw.Plan.from_json(json.dumps({**document, **change}))
    plain = json.loads(aw.plan(PAPER.replace(estimator="plain")).to_json())
    with pytest.raises(aw.InvalidInput, match="gains"):
        aw.Plan.from_json(json.dumps({**plain, "gains": document["gains"]}))
    with pytest.raises(aw.InvalidInput, match="nobody, with estimator 'plain'"):
        aw.evaluate(PAPER.replace(estimator="plain"), [1, 1, 1], unheard=["client 1"])
    with pytest.raises(aw.InvalidInput, match="unheard is 'x'"):
        aw.evaluate(PAPER, [1, 1, 1], unheard=["x"])


def test_what_the_paper_compares_knows_no_gains():
    with pytest.raises(aw.InvalidInput, match="estimator is best"):
        aw.compare_schemes(PAPER)
    with pytest.raises(aw.InvalidInput, match="for Theorem 1"):
        aw.loss_bound(PAPER, [0, 0, 0])


def test_a_capacity_is_kept_with_gains():
    plan = aw.plan(PAPER.replace(level=LEVEL, capacity=1))
    assert len(set(plan.collect_at)) == 3
    assert plan.gap == pytest.approx(plan.lower_bound)
    assert plan.lower_bound <= plan.gap
    best = aw.plan(PAPER.replace(level=LEVEL, capacity=1), method="exhaustive")
    assert best.gap == plan.gap
