"""Any schedule as a plan."""

import numpy as np
import pytest

import agewise as aw

LONDON = aw.scenarios.london()


def test_a_priced_schedule_is_the_plan_of_those_slots():
    best = aw.plan(LONDON)
    again = aw.evaluate(LONDON, best.collect_at)
    assert again.assignments == best.assignments
    assert (again.gap, again.objective) == (best.gap, best.gap)
    assert (again.method, again.lower_bound, again.proof, again.certificate) == (
        "given",
        None,
        None,
        None,
    )
    assert aw.Plan.from_json(again.to_json()) == again


def test_the_objective_of_a_priced_schedule_is_the_problems():
    by_bound = aw.evaluate(LONDON.replace(objective="bound"), np.array([9, 1, 1]), "mine")
    assert by_bound.objective == aw.loss_bound(by_bound.problem, by_bound.ages)
    assert by_bound.objective == pytest.approx(414.382, rel=1e-5)
    assert aw.Plan.from_json(by_bound.to_json()) == by_bound


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        ([1, 2], "slots is 2 slots; allowed: 3 slots, one per client"),
        ([1, 2, 11], "collect_at of client 'client 3' is 11; allowed: a whole number from 1 to 10"),
        ([0, 2, 3], "collect_at of client 'client 1' is 0"),
        ([1.5, 2, 3], "collect_at of client 'client 1' is 1.5"),
        ([True, 2, 3], "collect_at of client 'client 1' is True"),
        (["1", 2, 3], "collect_at of client 'client 1' is '1'"),
        ([4, 4, 3], "collect_at is 4 for 2 clients; allowed: at most 1 in one slot"),
    ],
)
def test_slots_that_cannot_be_are_refused(slots, words):
    with pytest.raises(aw.InvalidInput, match=words):
        aw.evaluate(LONDON.replace(capacity=1), slots)


def test_somebody_must_be_heard():
    london = LONDON.replace(estimator="best")
    with pytest.raises(aw.InvalidInput, match="unheard is all clients"):
        aw.evaluate(london, [1, 1, 1], unheard=[client.name for client in london.clients])


def test_a_priced_schedule_claims_no_search():
    with pytest.raises(aw.InvalidInput, match=r"method is 'certified'.*Use plan\(\)"):
        aw.evaluate(LONDON, [1, 2, 3], "certified")
