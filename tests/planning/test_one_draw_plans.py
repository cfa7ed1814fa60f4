"""Plans for one draw of noise by the server: losses, promises, documents, rivals."""

import json

import numpy as np
import pytest

import agewise as aw
from agewise import Plan
from random_problems import random_problem

PAPER = aw.scenarios.london()
WAYS = {
    "spectral": {"estimator": "plain", "calibration": "formula", "mixing": "spectral"},
    "sharp": {"estimator": "plain", "calibration": "sharp", "mixing": "exact"},
    "propagated": {"estimator": "propagated", "calibration": "sharp", "mixing": "exact"},
}


@pytest.mark.parametrize(
    ("way", "epsilon", "each", "once"),
    [
        ("spectral", 0.03, (1045.0246, [9, 9, 8]), (564.2465, [9, 9, 4])),
        ("spectral", 0.1, (127.0702, [0, 9, 9]), (72, [0, 0, 0])),
        ("spectral", 0.3, (24, [0, 0, 0]), (8, [0, 0, 0])),
        ("sharp", 0.03, (248.1147, [9, 9, 6]), (166.8793, [9, 9, 4])),
        ("sharp", 0.1, (84.5552, [4, 9, 2]), (66.7932, [4, 9, 2])),
        ("sharp", 0.3, (20.3774, [0, 9, 5]), (8, [0, 0, 0])),
        ("propagated", 0.03, (14.6949, [9, 9, 6]), (12.2508, [9, 9, 4])),
        ("propagated", 0.1, (9.9532, [9, 9, 4]), (9.7037, [9, 9, 4])),
        ("propagated", 0.3, (8.8408, [5, 8, 2]), (8, [0, 0, 0])),
    ],
)
def test_the_paper_clients_with_noise_of_each_or_once(way, epsilon, each, once):
    problem = PAPER.replace(epsilon=epsilon, **WAYS[way])
    for trust, (gap, ages) in (("client", each), ("server", once)):
        for method in ("certified", "exhaustive"):
            plan = aw.plan(problem.replace(noise=trust), method)
            assert plan.ages == ages
            assert plan.gap == pytest.approx(gap, abs=5.1e-5)
            assert plan.lower_bound == pytest.approx(plan.gap)
            assert all(one.aged_epsilon <= epsilon * (1 + 1e-9) for one in plan.assignments)


@pytest.mark.parametrize(
    ("epsilon", "each", "once"), [(0.03, 2400, 800), (0.1, 216, 72), (0.3, 24, 8)]
)
def test_classical_noise_on_fresh_data_of_each_or_once(epsilon, each, once):
    problem = PAPER.replace(epsilon=epsilon, calibration="formula", estimator="plain")
    for trust, gap in (("client", each), ("server", once)):
        assert aw.evaluate(problem.replace(noise=trust), [10] * 3).gap == pytest.approx(gap)


def server_problem(rng, **choices):
    return random_problem(rng, noise="server", objective="exact", **choices)


@pytest.mark.parametrize("estimator", ["plain", "propagated", "best"])
def test_guarantee_the_draw_is_enough_for_every_client(estimator):
    rng = np.random.default_rng(1)
    for _ in range(20):
        problem = server_problem(rng, estimator=estimator, calibration="sharp")
        plan = aw.evaluate(problem, rng.integers(1, problem.aggregate_at + 1, len(problem.clients)))
        own = aw.evaluate(problem.replace(noise="client"), plan.collect_at)
        gains = np.abs(np.ravel(plan.gains))
        for gain, one, alone in zip(gains, plan.assignments, own.assignments, strict=True):
            assert plan.draw_scale >= gain * alone.noise_scale * (1 - 1e-12)
            assert one.noise_scale >= alone.noise_scale
            if gain > 0 and alone.noise_scale > 0:
                assert one.noise_scale == pytest.approx(plan.draw_scale / gain)
            assert one.aged_epsilon <= problem.epsilon * (1 + 1e-9)
        assert plan.gap <= own.gap * (1 + 1e-9) or estimator == "best"


@pytest.mark.parametrize(
    "choices",
    [
        {"estimator": "plain"},
        {"estimator": "propagated"},
        {"estimator": "best"},
        {"estimator": "best", "level": aw.Level(20.0, 0.98)},
        {"estimator": "best", "learner": aw.Histogram(), "epsilon": 1.0},
        {"estimator": "plain", "learner": aw.Histogram(), "epsilon": 1.0},
        {"estimator": "plain", "mechanism": "gaussian", "delta": 1e-6},
    ],
    ids=str,
)
def test_the_loss_is_that_of_simulated_records_and_one_draw(choices):
    problem = PAPER.replace(mixing="exact", calibration="sharp", noise="server", **choices)
    ages = [0, 5, 2]
    estimate = aw.simulate_gap(problem, ages, 40_000, np.random.default_rng(2))
    gap = aw.loss_gap(problem, ages)
    assert abs(estimate - gap) < 4 * estimate.standard_error
    assert aw.evaluate(problem, [10, 5, 8]).gap == gap


def test_coordinates_share_one_gain_and_one_scale():
    problem = PAPER.replace(learner=aw.Histogram(), estimator="best", noise="server", epsilon=1.0)
    plan = aw.plan(problem)
    assert all(len(set(gain)) == 1 for gain in plan.gains)
    assert plan.lower_bound == pytest.approx(plan.gap)


@pytest.mark.parametrize("estimator", ["plain", "best"])
def test_a_plan_with_one_draw_survives_its_document(estimator):
    problem = PAPER.replace(noise="server", estimator=estimator, **{"epsilon": 0.1})
    plan = aw.plan(problem)
    assert Plan.from_json(plan.to_json()) == plan
    for field, value in (("draw_scale", plan.draw_scale * 0.9), ("draw_scale", None)):
        document = json.loads(plan.to_json()) | {field: value}
        with pytest.raises(aw.InvalidInput, match=field):
            Plan.from_json(json.dumps(document))
    document = json.loads(plan.to_json())
    document["promised"] = {"client 1": 3.0}
    with pytest.raises(aw.InvalidInput, match="promised"):
        Plan.from_json(json.dumps(document))


@pytest.mark.parametrize("estimator", ["plain", "propagated", "best"])
def test_guarantee_planning_anew_keeps_what_was_promised(estimator):
    problem = PAPER.replace(
        noise="server", estimator=estimator, mixing="exact", calibration="sharp", epsilon=0.05
    )
    first = aw.evaluate(problem, [3, 1, 9])
    again = aw.replan(first, 5, {"client 2": 1}, lost=["client 1"])
    third = aw.replan(again, 7, {"client 2": 1})
    ordered = first.assignments[1].noise_scale
    for plan in (again, third):
        kept = next(one for one in plan.assignments if one.client == "client 2")
        assert plan.promised == {"client 2": ordered}
        assert kept.noise_scale >= ordered * (1 - 1e-12)
        assert Plan.from_json(plan.to_json()) == plan
    document = json.loads(again.to_json())
    document["promised"]["client 2"] *= 2
    with pytest.raises(aw.InvalidInput):
        Plan.from_json(json.dumps(document))


def test_a_promise_beyond_the_target_makes_a_larger_draw():
    problem = PAPER.replace(noise="server", estimator="plain")
    plain = aw.evaluate(problem, [10, 10, 10])
    more = aw.evaluate(problem, [10, 10, 10], promised={"client 3": 100.0})
    assert more.draw_scale == pytest.approx(100 / 3)
    assert plain.draw_scale < more.draw_scale
    assert more.assignments[2].noise_scale == pytest.approx(100)


@pytest.mark.parametrize(
    ("promised", "trust", "told"),
    [
        ({"nobody": 1.0}, "server", "nobody"),
        ({"client 1": float("nan")}, "server", "client 1"),
        ({"client 1": -1.0}, "server", "client 1"),
        ({"client 1": 1.0}, "client", "its own noise"),
    ],
)
def test_promises_that_are_none_are_refused(promised, trust, told):
    with pytest.raises(aw.InvalidInput, match=told):
        aw.evaluate(PAPER.replace(noise=trust), [10] * 3, promised=promised)


def test_the_rival_has_the_same_trust():
    problem = aw.scenarios.common_level()
    each, once = aw.plan(problem), aw.plan(problem.replace(noise="server"))
    assert "classical, fresh, each client" in str(each)
    assert "classical, fresh, once" in str(once)
    assert once.classical_fresh < each.classical_fresh
    assert once.gap < each.gap
    fresh = aw.evaluate(problem.replace(noise="server", capacity=None), [10] * 3)
    assert once.classical_fresh == pytest.approx(fresh.gap)
    rows = aw.compare(problem, noise=["client", "server"])
    names = [row.name for row in rows]
    assert names.count("nothing collected") == 1
    assert [name for name in names if name.startswith("classical")] == [
        "classical, fresh, each client",
        "classical, fresh, once",
    ]
    assert rows[-1].gap == pytest.approx(once.classical_fresh)


def test_a_plan_says_who_is_trusted():
    problem = PAPER.replace(estimator="plain")
    assert "nobody is trusted" in str(aw.plan(problem))
    told = str(aw.plan(problem.replace(noise="server")))
    assert "trusted with every client's mean as it is" in told
    assert "classical ε is infinite" in told


@pytest.mark.parametrize("objective", ["bound", "simulated"])
def test_theorem_1_is_for_noise_by_each_client(objective):
    with pytest.raises(aw.InvalidInput, match="exact"):
        PAPER.replace(noise="server", objective=objective)


@pytest.mark.parametrize("noise", ["both", "", None, 1, "Server"])
def test_other_trust_is_refused(noise):
    with pytest.raises(aw.InvalidInput, match="client"):
        PAPER.replace(noise=noise)


def test_schemes_of_the_paper_are_for_noise_by_each_client():
    with pytest.raises(aw.InvalidInput, match="noise"):
        aw.compare_schemes(PAPER.replace(noise="server", estimator="plain"), [0.1])


def test_a_scenario_says_who_adds_the_noise(tmp_path):
    problem = PAPER.replace(noise="server")
    path = tmp_path / "trusted.toml"
    path.write_text(aw.dump_scenario(problem))
    assert 'noise = "server"' in path.read_text()
    assert aw.load_scenario(path) == problem
    mixed = path.read_text().replace('name = "client 1"', 'name = "client 1"\nnoise = "client"')
    path.write_text(mixed)
    with pytest.raises(aw.InvalidInput, match="noise"):
        aw.load_scenario(path)


def test_random_and_many_clients_with_one_draw():
    problem = PAPER.replace(noise="server", estimator="best", calibration="sharp", mixing="exact")
    drawn = aw.plan(problem, "random", rng=np.random.default_rng(3))
    assert drawn.lower_bound is None
    assert drawn.draw_scale is not None
    chain = PAPER.clients[0].process
    many = [aw.Client(f"c{i}", process=chain, samples=10 + i % 3) for i in range(200)]
    crowd = aw.Problem(many, 6, 0.1, noise="server", estimator="propagated")
    plan, own = aw.plan(crowd), aw.plan(crowd.replace(noise="client"))
    assert plan.relative_gap < 1e-6
    assert plan.gap < own.gap


def test_data_so_old_that_no_noise_is_needed_are_planned_without_a_warning():
    chain = aw.MarkovChain([[0.7, 0.2, 0.1], [0.15, 0.7, 0.15], [0.1, 0.3, 0.6]], [10, 20, 50])
    clients = [aw.Client(name, chain, samples=20) for name in "abc"]
    learner = aw.Ridge([[1.0], [2.0], [4.0]], [10.0, 20.0, 50.0])
    plan = aw.plan(aw.Problem(clients, 4, 0.7, noise="server", learner=learner))
    assert plan.noise_scales == [0.0, 0.0, 0.0]
