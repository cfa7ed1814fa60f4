"""A level of which next to nothing passes the clip of aged reports earns no aged slot."""

import numpy as np
import pytest

import agewise as aw

COARSE = aw.birth_death(0.1, 0.2, [0, 100])  # a level of 12 moves hardly any record across 50
FINE = aw.birth_death(0.1, 0.2, [20, 50, 100, 200])
LEVEL = aw.Level(loading=12.0, correlation=0.98)


def problem(*chains, **choices):
    clients = [aw.Client(f"c{i}", chain, samples=60) for i, chain in enumerate(chains)]
    return aw.Problem(clients, 6, 0.3, level=LEVEL, unit="Wh", **choices)


def notes_of(plan):
    return " ".join(plan.notes)


@pytest.mark.parametrize("estimator", ["best", "plain"])
@pytest.mark.parametrize("method", ["certified", "exhaustive", "random"])
def test_who_hides_the_level_collects_fresh_and_the_plan_says_why(method, estimator):
    asked = problem(COARSE, FINE, estimator=estimator)
    for seed in range(10 if method == "random" else 1):
        rng = np.random.default_rng(seed) if method == "random" else None
        made = aw.plan(asked, method=method, rng=rng)
        assert made.ages[0] == 0
        assert "Only fresh data are collected from client c0" in notes_of(made)
        assert "states would let more of it pass" in notes_of(made)


def test_others_still_collect_aged_data():
    drawn = [
        aw.plan(problem(COARSE, FINE), method="random", rng=np.random.default_rng(seed)).ages[1]
        for seed in range(40)
    ]
    assert set(drawn) == set(range(6))


def test_a_schedule_given_with_such_an_age_says_that_it_is_useless():
    made = aw.evaluate(problem(COARSE, FINE), [3, 6])
    assert "Aged data of client c0 are all but useless" in notes_of(made)
    assert "Collect them fresh" in notes_of(made)


@pytest.mark.parametrize("estimator", ["best", "plain"])
@pytest.mark.parametrize("method", ["certified", "exhaustive", "random"])
def test_with_a_capacity_they_get_the_fresh_slot_before_others(method, estimator):
    asked = problem(FINE, COARSE, FINE, capacity=1, estimator=estimator)
    for seed in range(5):
        rng = np.random.default_rng(seed) if method == "random" else None
        made = aw.plan(asked, method=method, rng=rng)
        assert made.ages[1] == 0
        assert len(set(made.ages)) == 3


@pytest.mark.parametrize("method", ["certified", "exhaustive", "random"])
def test_a_capacity_that_leaves_no_slot_worth_having_is_refused(method):
    asked = problem(COARSE, COARSE, FINE, capacity=1)
    rng = np.random.default_rng(0) if method == "random" else None
    with pytest.raises(aw.InvalidInput, match="Raise the capacity") as error:
        aw.plan(asked, method=method, rng=rng)
    assert error.value.field == "capacity"
    assert "1 client more" in str(error.value)
    made = aw.plan(asked.replace(capacity=2), method=method, rng=rng)
    assert made.ages[:2] == [0, 0]


def test_a_level_that_passes_nobodys_clip_is_refused():
    hidden = problem(aw.birth_death(0.1, 0.2, [0, 1]))
    with pytest.raises(aw.InvalidInput) as error:
        aw.plan(hidden)
    assert error.value.field == "level"
