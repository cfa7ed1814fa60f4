import numpy as np
import pytest

import agewise as aw

LONDON = aw.scenarios.london()


def test_the_rest_is_planned_as_well_as_it_can_be():
    first = aw.plan(LONDON.replace(mixing="exact"))
    again = aw.replan(first, now=5, collected={"client 2": 1})
    assert again.collect_at[1] == 1
    assert min(again.collect_at[0], again.collect_at[2]) >= 5
    best = min(
        aw.loss_gap(first.problem, [10 - a, 9, 10 - c]) for a in range(5, 11) for c in range(5, 11)
    )
    assert again.gap == pytest.approx(best, rel=1e-9)
    assert again.notes[0] == "Planned anew from slot 5."


def test_capacity_counts_who_has_collected():
    first = aw.plan(LONDON.replace(capacity=1, epsilon=0.03))
    again = aw.replan(first, now=3, collected={"client 1": 3})
    assert again.collect_at[0] == 3
    assert len(set(again.collect_at)) == 3


def test_a_lost_client_leaves_its_slot_to_others():
    problem = aw.scenarios.london().replace(
        aggregate_at=3, capacity=1, epsilon=1.0, mixing="exact", estimator="best"
    )
    first = aw.plan(problem.replace(level=aw.Level(20.0, 0.98)))
    last = first.assignments[first.collect_at.index(3)].client
    new = aw.replan(first, now=2, lost=[last])
    others = [one for one in new.assignments if one.client != last]
    assert sorted(one.collect_at for one in others) == [2, 3]
    assert new.unheard == (last,)
    assert aw.Plan.from_json(new.to_json()) == new


def test_lost_clients_drop_out():
    first = aw.plan(LONDON)
    again = aw.replan(first, now=2, lost=["client 3"])
    assert [a.client for a in again.assignments] == ["client 1", "client 2"]
    np.testing.assert_allclose(again.problem.weights, [0.5, 0.5])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"now": 11}, "now is 11"),
        ({"now": 0}, "now is 0"),
        ({"now": 2, "collected": {"nobody": 1}}, "'nobody'; allowed: one of client 1"),
        ({"now": 2, "collected": {"client 1": 11}}, "slot of client 'client 1' is 11"),
        ({"now": 2, "lost": ["client 1", "client 2", "client 3"]}, "one or more Client"),
        ({"now": 4, "collected": {"client 1": 9}}, "slot of client 'client 1' is 9"),
        ({"now": 4, "lost": "client 1"}, "a list of names"),
        ({"now": 4, "lost": ["client 1"], "collected": {"client 1": 1}}, "collected or lost"),
    ],
)
def test_bad_input_is_refused(arguments, words):
    with pytest.raises(aw.InvalidInput, match=words):
        aw.replan(aw.plan(LONDON), **arguments)


def test_the_bound_of_a_plan_made_on_the_way_is_about_what_was_still_open():
    planned = aw.plan(aw.scenarios.london())
    late = dict(aw.replan(planned, 3, {"client 1": 2}).facts())["optimality"]
    assert late.startswith("no schedule still open then has an objective below 227.261 Wh²")
    assert dict(planned.facts())["optimality"].startswith("no schedule has an objective below")
