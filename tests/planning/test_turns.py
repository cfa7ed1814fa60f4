"""Clients that take part in every so-many-th round: noise, loss, the search for turns, rounds."""

import dataclasses
import itertools

import numpy as np
import pytest

import agewise as aw
from agewise.knowledge import Heard, filter_heard
from agewise.planning.heard import heard_gap
from agewise.planning.turns import plan_of_round, postpone

STATES = [1, 2, 3, 4]
SLOW = aw.Client("slow", aw.birth_death(0.02, 0.02, STATES))
MIDDLE = aw.Client("middle", aw.birth_death(0.08, 0.05, STATES), samples=60)
FAST = aw.Client("fast", aw.birth_death(0.3, 0.3, STATES))
DAILY = aw.Problem([SLOW, MIDDLE, FAST], 4, 1.0, rounds=None, every=5)


def with_turns(problem, *turns):
    members = zip(problem.clients, turns, strict=True)
    return problem.replace(clients=[dataclasses.replace(c, turn=turn) for c, turn in members])


def test_noise_is_that_of_releases_so_far_apart():
    plan = aw.evaluate(with_turns(DAILY, 4, 2, 1), [4, 3, 2])
    for client, turn, age in zip(DAILY.clients, (4, 2, 1), (0, 1, 2), strict=True):
        one = plan.assignments[plan.problem.clients.index(dataclasses.replace(client, turn=turn))]
        afforded = aw.per_release_epsilon(client.process, 5 * turn, 1.0, age, "present")
        assert one.classical_epsilon == pytest.approx(afforded, rel=1e-6)


def last_release(problem, plan, rounds):
    """The mean loss over rounds of the best estimate from each client's last release."""
    total = 0.0
    for number in range(rounds):
        for client, weight, one in zip(
            problem.clients, problem.weights, plan.assignments, strict=True
        ):
            age = one.age + problem.every * (number % client.turn)
            noise = 2 * one.noise_scale**2
            values = client.process.states
            alone = Heard(
                client.process, client.samples, weight, np.array([age]), np.array([noise]), values
            )
            total += filter_heard([alone], ()).loss / rounds
    return total


@pytest.mark.parametrize(("rounds", "over"), [(None, 12), (12, 12), (7, 7), (3, 3), (2, 2)])
def test_the_loss_is_the_mean_over_all_rounds(rounds, over):
    problem = with_turns(DAILY.replace(rounds=rounds), 4, 3, 1)
    plan = aw.evaluate(problem, [4, 2, 3])
    assert plan.gap == pytest.approx(last_release(problem, plan, over), rel=1e-9)
    assert aw.Plan.from_json(plan.to_json()).gap == plan.gap


def test_a_round_by_itself_loses_what_its_clients_leave_open():
    problem = with_turns(DAILY, 4, 3, 1)
    plan = aw.evaluate(problem, [4, 2, 3])
    full = plan_of_round(plan, 13, {})
    assert full.unheard == ()
    assert full.gap < plan.gap
    some = plan_of_round(plan, 4, {})
    assert some.unheard == ("slow",)
    few = plan_of_round(plan, 2, {})
    assert few.unheard == ("slow", "middle")
    assert full.gap < some.gap < few.gap < plan.nothing_collected
    assert plan_of_round(aw.plan(with_turns(DAILY, 4, 2, 2)), 2, {}) is None
    plain = aw.plan(DAILY)
    assert plan_of_round(plain, 2, {}) is plain


@pytest.mark.parametrize("capacity", [None, pytest.param(1, marks=pytest.mark.slow)])
def test_no_other_turns_lose_less(capacity):
    problem = DAILY.replace(clients=[SLOW, MIDDLE], capacity=capacity)
    found = aw.plan(aw.take_turns(problem, 3))
    best = min(
        aw.plan(with_turns(problem, *turns), method="exhaustive").gap
        for turns in itertools.product(range(1, 4), repeat=2)
    )
    assert found.gap == pytest.approx(best, rel=1e-9)
    assert found.gap <= aw.plan(problem).gap


def test_slow_clients_rest_and_fast_ones_do_not():
    turns = [client.turn for client in aw.take_turns(DAILY).clients]
    assert turns[0] > turns[1] > turns[2] == 1
    daily, rare = aw.plan(DAILY), aw.plan(aw.take_turns(DAILY))
    assert rare.gap < daily.gap
    assert heard_gap(rare) < heard_gap(daily)  # also when every round is listened to
    assert heard_gap(rare) <= rare.gap


def test_all_rounds_heard_is_what_a_long_run_comes_to():
    problem = with_turns(DAILY, 3, 2, 1)
    plan = aw.plan(problem)
    result = aw.run_rounds(plan, np.random.default_rng(1), rounds=24)
    cycle = [one.estimate_gap for one in result.rounds[-6:]]
    assert heard_gap(plan) == pytest.approx(np.mean(cycle), rel=1e-3)


@pytest.mark.parametrize("promise", ["present", "every_moment", 3])
def test_guarantee_turns_keep_the_promise(promise, tmp_path):
    plan = aw.plan(with_turns(DAILY.replace(promise=promise), 3, 2, 1))
    result = aw.run_rounds(plan, rounds=7, folder=tmp_path / "run")
    assert max(one.epsilon for one in result.rounds) <= 1 + 1e-9
    assert [one.participants for one in result.rounds] == [3, 1, 2, 2, 2, 1, 3]
    assert all(one.missing == () for one in result.rounds)


def test_guarantee_a_client_asked_out_of_turn_refuses(tmp_path):
    plan = aw.plan(with_turns(DAILY, 3, 2, 1))
    aw.run_rounds(plan, rounds=1, folder=tmp_path / "a", ledgers=tmp_path / "ledgers")
    with pytest.raises((aw.BudgetExceeded, aw.RunIncomplete)):
        aw.run_rounds(
            plan, rounds=1, folder=tmp_path / "b", ledgers=tmp_path / "ledgers", starts_at=5
        )


def test_those_who_missed_their_slot_come_later_and_nobody_else_moves():
    plan = aw.evaluate(DAILY, [1, 2, 4])
    moved = postpone(plan, 3, ["middle"])
    assert moved.collect_at[1:] == [2, 4]
    assert moved.collect_at[0] in (3, 4)
    other = {3: 4, 4: 3}[moved.collect_at[0]]
    assert moved.gap <= aw.evaluate(DAILY, [other, 2, 4]).gap
    full = DAILY.replace(capacity=1)
    assert postpone(aw.evaluate(full, [1, 2, 4]), 3, ["middle"]).collect_at == [3, 2, 4]
    with pytest.raises(aw.InvalidInput, match="capacity"):
        postpone(aw.evaluate(full, [1, 2, 4]), 4, ["middle"])
    again = aw.replan(plan, 3, {"middle": 2})
    assert again.collect_at == moved.collect_at


def test_turns_are_kept_in_scenarios(tmp_path):
    problem = with_turns(DAILY, 3, 2, 1)
    (tmp_path / "s.toml").write_text(aw.dump_scenario(problem))
    assert aw.load_scenario(tmp_path / "s.toml") == problem


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"rounds": 1, "every": None}, "rounds"),
        ({"estimator": "plain"}, "estimator"),
        ({"noise": "server"}, "noise"),
        ({"level": aw.Level(1.0, 0.9)}, "level"),
    ],
)
def test_where_nobody_can_rest(changes, what):
    with pytest.raises(aw.InvalidInput, match=f"turn is 2; allowed: 1, unless {what} is"):
        with_turns(DAILY.replace(**changes), 1, 2, 1)
    with pytest.raises(aw.InvalidInput, match=f"turns is 3; allowed: 1, unless {what} is"):
        aw.take_turns(DAILY.replace(**changes), 3)


@pytest.mark.parametrize("turn", [0, -1, 1.5, "often"])
def test_bad_turns(turn):
    with pytest.raises(aw.InvalidInput, match="turn"):
        dataclasses.replace(SLOW, turn=turn)
    with pytest.raises(aw.InvalidInput, match="turns"):
        aw.take_turns(DAILY, turn)


def test_a_target_counts_the_rounds_that_are_taken_part_in():
    for_ever = with_turns(DAILY, 3, 1, 1)
    target = for_ever.target_of(for_ever.clients[0])
    assert (target.every, target.rounds) == (15, None)
    finite = with_turns(DAILY.replace(rounds=7), 3, 7, 1)
    assert [finite.target_of(c).rounds for c in finite.clients] == [3, 1, 7]
