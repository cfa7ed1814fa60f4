"""The proof that a plan carries: it travels, and one that does not hold is refused."""

import copy
import dataclasses
import json
import sys
from importlib import import_module

import numpy as np
import pytest

import agewise as aw
from agewise.planning.proof import AllTried, proof_from_data, proof_to_data
from agewise.scheduling import (
    Halved,
    Leaf,
    Schedule,
    Split,
    check_schedule,
    exhaustive,
    solve_schedule,
    table_objective,
)

LONDON = aw.scenarios.london()


def searched(capacity=None, clients=8, objective="exact"):
    """A plan whose proof has parts: too many schedules to try them all."""
    rng = np.random.default_rng(3)
    members = [
        aw.Client(
            str(i),
            aw.birth_death(*rng.uniform(0.05, 0.4, 2), [20, 50, 100, 200]),
            rng.dirichlet(np.ones(4)),
            int(rng.integers(20, 400)),
        )
        for i in range(clients)
    ]
    return aw.Problem(members, 12, 0.1, estimator="plain", capacity=capacity, objective=objective)


@pytest.fixture(scope="module")
def by_parts():
    return aw.plan(searched())


def test_the_proof_is_data_and_travels(by_parts):
    assert isinstance(by_parts.proof, Leaf | Split)
    again = aw.Plan.from_json(by_parts.to_json())
    assert again == by_parts
    assert again.proof == by_parts.proof
    assert again.certificate == by_parts.certificate
    assert again.digest == by_parts.digest
    assert not any("Certificate" in note for note in by_parts.notes)


@pytest.mark.parametrize(
    ("problem", "method"),
    [
        (searched(capacity=2), "certified"),
        (searched(objective="bound", clients=5), "certified"),
        (LONDON.replace(aggregate_at=4, objective="bound"), "exhaustive"),
        (LONDON.replace(aggregate_at=4, objective="simulated"), "exhaustive"),
        (LONDON.replace(capacity=1), "exhaustive"),
        (LONDON, "random"),
    ],
)
def test_every_kind_of_plan_travels(problem, method):
    made = aw.plan(problem, method, rng=np.random.default_rng(1), trials=100)
    again = aw.Plan.from_json(made.to_json())
    assert again == made
    assert again.proof == made.proof
    assert (again.lower_bound is None) == (again.certificate is None)


def test_a_plan_made_anew_is_proven_among_what_was_left():
    first = aw.plan(searched())
    again = aw.replan(first, 6, {"0": 2, "3": 5})
    assert (again.planned_from, again.collected) == (6, ("0", "3"))
    loaded = aw.Plan.from_json(again.to_json())
    assert loaded == again
    assert loaded.lower_bound > first.lower_bound
    document = json.loads(again.to_json())
    for lie in ({"planned_from": None, "collected": []}, {"collected": ["0"]}, {"planned_from": 3}):
        with pytest.raises(aw.InvalidInput, match="plan: "):
            aw.Plan.from_json(json.dumps({**document, **lie}))


def test_with_several_biases_too_the_proof_shows_all_that_is_claimed():
    rng = np.random.default_rng(2)
    u, b = rng.uniform(0, 1, (20, 12)), rng.normal(size=(20, 12, 2))
    found = solve_schedule(u, b)
    assert isinstance(found.proof, Split)
    assert found.relative_gap <= 1e-8
    checked = check_schedule(found, u, b)
    assert checked.holds
    assert checked.lower_bound == pytest.approx(found.lower_bound, rel=1e-9)


def test_a_bound_too_good_for_one_bias_is_not_weakened():
    u, b = np.array([[1.0, 2.0], [3.0, 1.0]]), np.zeros((2, 2))
    found = exhaustive(table_objective(u, b), 2, 2)
    lie = Schedule(found.columns, found.objective, found.objective + 1, 0)
    assert not check_schedule(lie, u, b).holds


def edited(plan, change):
    document = json.loads(plan.to_json())
    change(document)
    return json.dumps(document)


def first_leaf(document):
    return next(part for part in document["proof"]["parts"] if "multipliers" in part)


CHANGES = {
    "a multiplier": lambda d: first_leaf(d)["multipliers"].__setitem__(0, 1e6),
    "no multipliers": lambda d: first_leaf(d).update(multipliers=[]),
    "two multipliers": lambda d: first_leaf(d).update(multipliers=[0.0, 0.0]),
    "prices for no capacity": lambda d: first_leaf(d).update(prices=[1.0] * 12),
    "words": lambda d: first_leaf(d).update(multipliers=["x"]),
    "an unknown key": lambda d: first_leaf(d).update(odd=1),
    "all parts gone": lambda d: d["proof"].update(parts=[]),
    "a part too many": lambda d: d["proof"]["parts"].append({"multipliers": [0.0]}),
    "a cut without parts": lambda d: d["proof"].update(parts=[{"client": 0, "columns": [0]}]),
    "a client that is not there": lambda d: d["proof"].update(
        parts=[{"client": 8, "columns": [0]}, {"multipliers": [0.0]}, {"multipliers": [0.0]}]
    ),
    "a column that is not there": lambda d: d["proof"].update(
        parts=[{"client": 0, "columns": [12]}, {"multipliers": [0.0]}, {"multipliers": [0.0]}]
    ),
    "a scale where there is no draw": lambda d: d["proof"].update(
        parts=[{"scale": 1.0}, {"multipliers": [0.0]}, {"multipliers": [0.0]}]
    ),
    "no proof": lambda d: d.update(proof=None),
    "neither": lambda d: d.update(proof=None, lower_bound=None, relative_gap=None),
    "all tried, which nobody can": lambda d: d.update(proof={"all_schedules_tried": True}),
    "a better bound": lambda d: d.update(lower_bound=d["lower_bound"] * 1.001),
    "a worse bound": lambda d: d.update(lower_bound=d["lower_bound"] * 0.999),
    "another gap": lambda d: d.update(relative_gap=0.5),
    "another method": lambda d: d.update(method="given"),
    "not a proof": lambda d: d.update(proof=5),
    "a number for a slot": lambda d: d["collect_at"].__setitem__(0, float(d["collect_at"][0])),
    "notes that are none": lambda d: d.update(notes=5),
    "collected by nobody known": lambda d: d.update(collected=["nobody"]),
    "complete or not": lambda d: d.update(complete=1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_guarantee_a_plan_whose_proof_does_not_hold_is_refused(by_parts, change):
    with pytest.raises(aw.InvalidInput, match="plan"):
        aw.Plan.from_json(edited(by_parts, change))


def test_a_better_schedule_shows_that_not_all_were_tried():
    worse = aw.evaluate(LONDON, [10, 10, 10])
    document = json.loads(worse.to_json())
    document.update(
        method="exhaustive",
        lower_bound=worse.objective,
        relative_gap=0.0,
        proof={"all_schedules_tried": True},
    )
    with pytest.raises(aw.InvalidInput, match=r"lower_bound is 216.*127\.07.*its proof shows"):
        aw.Plan.from_json(json.dumps(document))
    by_bound = aw.evaluate(LONDON.replace(aggregate_at=3, objective="bound"), [3, 3, 3])
    document = copy.deepcopy(json.loads(by_bound.to_json()))
    document.update(
        method="exhaustive",
        lower_bound=by_bound.objective,
        relative_gap=0.0,
        proof={"all_schedules_tried": True},
    )
    with pytest.raises(aw.InvalidInput, match="which its proof shows"):
        aw.Plan.from_json(json.dumps(document))


def test_a_deep_proof_travels():
    proof = Leaf((0.5,), (0.0, 1.0))
    for depth in range(3 * sys.getrecursionlimit()):
        one = Leaf((float(depth),))
        cut = frozenset({depth % 5, 2})
        proof = Split(depth % 7, cut, one, proof) if depth % 2 else Halved(1.0, one, proof)
    data = proof_to_data(proof)
    assert proof_to_data(proof_from_data(json.loads(json.dumps(data)), 7)) == data
    assert proof_from_data(proof_to_data(AllTried()), 1) == AllTried()
    assert proof_from_data(proof_to_data(None), 1) is None


@pytest.mark.parametrize("problem", [LONDON, searched()], ids=["tried", "searched"])
def test_a_bias_may_be_a_vector(monkeypatch, problem):
    """One more dimension in which nobody is biased changes nothing but the proof."""
    plain = aw.plan(problem)
    anew = aw.replan(plain, 4, {problem.clients[0].name: 2})
    scalar = aw.cost_tables

    def vector(asked):
        tables = scalar(asked)
        return dataclasses.replace(tables, b=np.stack([tables.b, 0 * tables.b], axis=-1))

    for module in ("search", "document"):
        monkeypatch.setattr(import_module(f"agewise.planning.{module}"), "cost_tables", vector)
    made = aw.plan(problem)
    assert made.ages == plain.ages
    assert made.gap == pytest.approx(plain.gap, rel=1e-12)
    assert made.lower_bound <= made.objective * (1 + 1e-12)
    assert aw.Plan.from_json(made.to_json()) == made
    assert aw.replan(plain, 4, {problem.clients[0].name: 2}).ages == anew.ages


@pytest.mark.parametrize("capacity", [None, 2])
def test_an_interrupted_search_is_proven_as_far_as_it_went(capacity):
    def interrupt(_done, _total):
        raise KeyboardInterrupt

    made = aw.plan(searched(capacity, clients=20), keep_best=True, progress=interrupt)
    assert not made.complete
    assert "interrupted" in " ".join(made.notes)
    again = aw.Plan.from_json(made.to_json())
    assert again == made
    assert not again.complete
