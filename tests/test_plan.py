import json

import numpy as np
import pytest

import agewise as aw
from random_problems import random_problem

LONDON = aw.scenarios.london()


@pytest.mark.parametrize("seed", range(15))
def test_every_client_meets_the_target(seed):
    rng = np.random.default_rng(seed)
    for calibration, mixing in (("formula", "any_prior"), ("tight", "exact"), ("tight", "own_law")):
        problem = random_problem(rng, calibration=calibration, mixing=mixing)
        made = aw.plan(problem, method="exhaustive")
        for one in made.assignments:
            assert one.aged_epsilon <= problem.epsilon
            assert one.age == problem.aggregate_at - one.collect_at


def test_exhaustive_plan_is_the_minimum_of_the_closed_form():
    import itertools

    problem = LONDON.replace(mixing="exact", capacity=1)
    made = aw.plan(problem, method="exhaustive")
    gaps = {ages: aw.loss_gap(problem, ages) for ages in itertools.permutations(range(10), 3)}
    best = min(gaps, key=gaps.get)
    assert tuple(made.ages) == best
    assert made.gap == made.objective == pytest.approx(gaps[best])
    assert made.lower_bound == made.objective


@pytest.mark.slow
def test_objective_bound_minimises_theorem_1():
    """Quick are the same numbers as a scheme (`test_cli.py`), and golden cells with the bound."""
    made = aw.plan(LONDON.replace(objective="bound"), method="exhaustive")
    assert made.ages == [1, 9, 9]
    assert made.objective == pytest.approx(414.382, rel=1e-5)
    assert aw.loss_bound(LONDON, made.ages) == pytest.approx(made.objective)
    assert made.gap == pytest.approx(132.003, rel=1e-5)


def test_objective_simulated_comes_close_and_claims_no_proof():
    made = aw.plan(
        LONDON.replace(objective="simulated"), method="exhaustive", rng=np.random.default_rng(5)
    )
    assert made.gap <= 1.02 * 127.07
    assert made.lower_bound is None
    assert made.relative_gap is None


def test_simulation_tells_its_progress():
    seen = []
    aw.plan(
        LONDON.replace(objective="simulated"),
        "exhaustive",
        trials=50,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1] == (30, 30)


def test_random_plans_keep_to_the_capacity(rng):
    problem = LONDON.replace(capacity=1)
    for _ in range(20):
        made = aw.plan(problem, method="random", rng=rng)
        assert len(set(made.collect_at)) == 3
        assert made.gap == pytest.approx(aw.loss_gap(problem, made.ages))
        assert made.lower_bound is None


@pytest.mark.parametrize("name", ["london", "slow_and_fast", "day_profile"])
def test_plans_travel_as_json(name):
    made = aw.plan(aw.load_scenario(name), method="exhaustive")
    text = made.to_json()
    assert aw.Plan.from_json(text) == made
    assert json.loads(text)["version"] == 4


def test_a_plan_without_noise_travels_too():
    chain = aw.MarkovChain([[0.3, 0.7], [0.3, 0.7]], [0, 1])
    problem = aw.Problem([aw.Client("a", chain)], 3, 0.1, estimator="plain")
    made = aw.plan(problem, method="exhaustive")
    assert aw.Plan.from_json(made.to_json()) == made


def changed(**changes):
    document = json.loads(aw.plan(LONDON, method="exhaustive").to_json())
    for path, value in changes.items():
        place = document
        *parents, last = path.split("__")
        for part in parents:
            place = place[int(part) if part.isdigit() else part]
        place[last] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "plan version is None"),
        (changed(version=1), "plan version is 1; allowed: 4"),
        (changed(version=True), "plan version is True; allowed: 4"),
        (changed(assignments__0__fingerprint="beef"), "fingerprint of client 'client 1' is beef"),
        (changed(assignments=[]), "other clients"),
        (changed(scenario__epsilon=-1.0), "epsilon is -1"),
        (changed(assignments=[{"client": "x"}]), "incomplete"),
        (json.dumps({"version": 4}), "incomplete"),
        (changed(assignments__0__noise_scale=0.0), "noise_scale of client 'client 1' is 0.0"),
        (changed(assignments__0__noise_scale="none"), "noise_scale of client 'client 1' is none"),
        (changed(assignments__0__noise_scale=float("nan")), "not JSON"),
        (changed(assignments__2__aged_epsilon=1e-9), "aged_epsilon of client 'client 3'"),
        (changed(assignments__1__delta=0.0), "delta of client 'client 2' is 0.0"),
        (changed(assignments__1__age=99), "age of client 'client 2' is 99"),
        (changed(assignments__1__collect_at=-5), "collect_at of client 'client 2' is -5"),
        (changed(scenario__epsilon=1e-6), "classical_epsilon of client"),
        (changed(scenario__mixing="any_prior"), "of client"),
        (changed(scenario__capacity=1), "at most 1 in one slot, the capacity"),
        (changed(gap=0.0), "gap is 0.0"),
        (changed(bound=0.0), "incomplete"),
        (changed(bound="x", bound_evaluation=None), "bound is x; allowed: a number"),
        (changed(bound=None, bound_evaluation="x"), "bound_evaluation is x; allowed: exact"),
        (changed(objective=0.0), "objective is 0.0"),
        (changed(lower_bound=1e9), "lower_bound is 1000000000.0"),
        (changed(epsilon=1e-9), "epsilon is 1e-09"),
        (changed(noise_scales=[0.0, 0.0, 0.0]), "noise_scales is 0.0"),
        (changed(surprise=1), "surprise is 1"),
        (changed(assignments=[5]), "incomplete"),
        (changed(lower_bound="x"), "lower_bound is x; allowed: a number"),
    ],
)
def test_bad_plans_are_refused(text, words):
    with pytest.raises(aw.InvalidInput, match=words):
        aw.Plan.from_json(text)


def test_plans_that_carry_the_bound_of_theorem_1_are_read_as_they_were_written():
    """Nothing is made of it, but what was made of such a plan keeps its digest, and so its runs."""
    made = aw.plan(LONDON, method="exhaustive")
    assert "bound" not in made.to_dict()
    assert "Theorem 1" not in str(made)
    text = changed(bound=300.0, bound_evaluation="exact")
    read = aw.Plan.from_json(text)
    assert (read, read.digest != made.digest) == (made, True)
    assert json.loads(read.to_json()) == json.loads(text)
    assert "300 Wh² (exact)" in str(read)
    later = aw.replan(made, 3).as_written_with(read)
    assert later.to_dict()["bound"] == aw.loss_bound(LONDON, later.ages)
    assert later.as_written_with(made) is later
    assert made.as_written_with(made) is made
    best = LONDON.replace(estimator="best")
    assert aw.plan(best).as_written_with(read).to_dict()["bound"] is None


def test_the_bound_of_a_plan_is_still_told_with_a_warning():
    made = aw.plan(LONDON)
    with pytest.warns(DeprecationWarning, match=r"use aw\.loss_bound\(problem, plan\.ages\)"):
        assert made.bound == aw.loss_bound(LONDON, made.ages)


def test_a_plan_says_what_its_defender_should_know():
    notes = " ".join(aw.plan(LONDON.replace(mixing="exact")).notes)
    assert "clients client 1, client 2, client 3 start from another stated law" in notes
    alone = LONDON.replace(mixing="exact", clients=LONDON.clients[:1])
    assert "but client client 1 starts from another" in " ".join(aw.plan(alone).notes)
    assert "another stated law" not in " ".join(aw.plan(LONDON.replace(mixing="own_law")).notes)
    chain = aw.MarkovChain([[0.3, 0.7], [0.3, 0.7]], [0, 1])
    bare = aw.plan(aw.Problem([aw.Client("a", chain)], 3, 0.1, estimator="plain"))
    if bare.assignments[0].age:
        assert "told outright" in " ".join(bare.notes)


@pytest.mark.parametrize(
    ("epsilon", "odds", "protected"),
    [
        (2.0, None, True),
        (5.0, "148 (e^ε)", True),
        (8.0, "2,981 (e^ε)", True),
        (20.0, "about 485 million", False),
        (800.0, "more than a thousand trillion", False),
    ],
)
def test_a_plan_says_what_a_large_target_gives_away(epsilon, odds, protected):
    made = aw.plan(LONDON.replace(epsilon=epsilon, mixing="any_prior"))
    notes = " ".join(made.notes)
    assert ("by a factor of" in notes) == (odds is not None)
    assert odds is None or odds in notes
    assert ("Nothing of clients client 1" in notes) == (not protected)
    assert protected or "only their present values" not in notes
    assert made.notes == aw.run(made).statement.notes


def test_numbers_of_numpy_are_as_good_as_any():
    problem = LONDON.replace(epsilon=np.float32(0.25), aggregate_at=np.int64(6))
    assert aw.Plan.from_json(aw.plan(problem).to_json()).problem.aggregate_at == 6


def test_too_large_a_search_names_the_alternative():
    clients = [aw.Client(str(i), LONDON.clients[0].process) for i in range(12)]
    with pytest.raises(aw.InvalidInput, match="Use method certified"):
        aw.plan(aw.Problem(clients, 10, 0.1), method="exhaustive")
    with pytest.raises(aw.InvalidInput, match="Use method certified"):
        aw.plan(
            aw.Problem(clients[:5], 10, 0.1, estimator="plain", objective="bound"),
            method="exhaustive",
        )
    with pytest.raises(aw.InvalidInput, match="method is 'typo'"):
        aw.plan(LONDON, method="typo")
