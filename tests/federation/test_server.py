"""The server machine: what it accepts, what it rejects, and what it does about the missing."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import agewise as aw
from agewise.federation import SimulatedRecords
from agewise.federation.followed import carried_out
from agewise.privacy import Ledger, Policy
from parties import ClientAgent, Profile, Server, Step, Steps, private_noise, stand_in_noise

PROBLEM = aw.scenarios.slow_and_fast().replace(estimator="propagated")
PLAN = aw.plan(PROBLEM)


def agent(name, private=True, seed=5, ledger=None, problem=PROBLEM):
    client = next(c for c in problem.clients if c.name == name)
    profile = Profile(client, problem.epsilon, problem.mixing, Policy())
    noise = private_noise if private else stand_in_noise(seed, name)
    return ClientAgent(profile, SimulatedRecords(client, seed), ledger, noise)


def answers(server, slot, private=True):
    of = server.first_plan.problem
    return [agent(one.client, private, problem=of).answer(one) for one in server.orders(slot)]


def complete(server, private=True):
    last = server.first_plan.problem.aggregate_at
    for slot in range(server.closed + 1, last + 1):
        for payload in answers(server, slot, private):
            assert server.receive(payload, slot) is None
        server.close(slot)
    return server.finish()


def test_an_undisturbed_run_aggregates_with_the_weights():
    server = Server(PLAN, "run")
    outcome = complete(server)
    values = [server.received[c.name][0].value[0] for c in PROBLEM.clients]
    assert outcome.model == pytest.approx(np.dot(PROBLEM.weights, values))
    assert outcome.plan is PLAN
    assert not server.rejected
    assert [row.aged_epsilon for row in outcome.statement.clients] == pytest.approx(
        [a.aged_epsilon for a in PLAN.assignments]
    )


def test_a_run_that_misses_several_names_one_and_counts_the_others():
    twins = [aw.Client(name, PROBLEM.clients[0].process, samples=9) for name in "abc"]
    server = Server(aw.evaluate(aw.Problem(twins, 2, 0.5), [1, 1, 1]), "run")
    server.close(1)
    assert server.failure == ("client 'a' and 2 more missing in slot 1 (no upload by the deadline)")


def test_private_uploads_claim_at_most_the_target():
    for row in complete(Server(PLAN, "run")).statement.clients:
        assert row.aged_epsilon <= PROBLEM.epsilon
        assert row.aged_odds == pytest.approx(np.exp(row.aged_epsilon))
        assert row.total_aged_epsilon <= row.aged_epsilon <= row.classical_epsilon


CHANGES = [
    ({"version": 2}, "version"),
    ({"kind": "order"}, "malformed"),
    ({"extra": 1}, "malformed"),
    ({"value": None}, "malformed"),
    ({"value": "1.0"}, "malformed"),
    ({"value": []}, "wrong shape"),
    ({"value": [1.0, 2.0]}, "wrong shape"),
    ({"value": [float("nan")]}, "not finite"),
    ({"value": [float("inf")]}, "not finite"),
    ({"run": "another"}, "wrong run"),
    ({"client": "nobody"}, "unknown client"),
    ({"plan": "0" * 64}, "wrong plan"),
    ({"collect_at": 2}, "wrong plan"),
    ({"aggregate_at": 13}, "wrong plan"),
    ({"fingerprint": "other"}, "wrong plan"),
    ({"private": False}, "wrong noise"),
    ({"noise_scale": 1e-9}, "too little noise"),
    ({"noise_scale": -1.0}, "malformed"),
    ({"aged_epsilon": 0.21}, "too little noise"),
    ({"aged_epsilon": None}, "malformed"),
    ({"aged_epsilon": "NaN"}, "malformed"),
    ({"delta": 1.5}, "malformed"),
]


@pytest.mark.parametrize(("change", "reason"), CHANGES)
def test_odd_uploads_are_rejected_counted_and_change_nothing(change, reason):
    server = Server(PLAN, "run")
    slot = min(PLAN.collect_at)
    for past in range(1, slot):
        server.close(past)
    payload = answers(server, slot)[0]
    odd = json.dumps({**json.loads(payload), **change}).encode()
    assert server.receive(odd, slot) == reason
    assert server.rejected == {reason: 1}
    assert not server.received
    assert server.receive(payload, slot) is None


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"x" * (2**20 + 1), b'{"version": 4}']
)
def test_rubbish_is_malformed(payload):
    server = Server(PLAN, "run")
    assert server.receive(payload, 1) == "malformed"
    assert server.steps[-1].what == "rejected"


def test_second_uploads_are_told_apart():
    server = Server(PLAN, "run")
    for slot in range(1, min(PLAN.collect_at)):
        server.close(slot)
    slot = min(PLAN.collect_at)
    payload = answers(server, slot)[0]
    other = answers(server, slot)[0]
    assert other != payload  # fresh noise
    assert server.receive(payload, slot) is None
    assert server.receive(payload, slot) == "duplicate"
    assert server.receive(other, slot) == "conflicting"
    assert server.received[json.loads(payload)["client"]][1] == payload


def test_uploads_before_their_slot_are_early():
    server = Server(PLAN, "run")
    slot = max(PLAN.collect_at)
    assert server.receive(answers(server, slot)[0], slot - 1) == "early"


def missing_first(on_missing):
    server = Server(PLAN, "run", on_missing)
    slot = min(PLAN.collect_at)
    for past in range(1, slot):
        server.close(past)
    payload = answers(server, slot)[0]
    server.close(slot)
    return server, slot, payload


@pytest.mark.parametrize("estimator", ["plain", "best"])
def test_weights_are_those_of_each_client_in_whatever_order_they_are_heard(estimator):
    chain = aw.birth_death(0.2, 0.3, [1, 2, 3])
    clients = [aw.Client(f"client {i}", chain, samples=10 * (i + 1)) for i in range(4)]
    problem = aw.Problem(clients, aggregate_at=4, epsilon=0.5, estimator=estimator)
    plan = aw.evaluate(problem, [4, 3, 2, 1])
    outcome = complete(Server(plan, "run"))
    assert outcome.collected == {"client 0": 4, "client 1": 3, "client 2": 2, "client 3": 1}
    for client, weight in zip(clients, (0.1, 0.2, 0.3, 0.4), strict=True):
        assert outcome.weights[client.name] == pytest.approx(weight)


def test_fail_ends_the_run():
    server, slot, payload = missing_first("fail")
    assert server.receive(payload, slot + 1) == "stale"
    with pytest.raises(aw.RunIncomplete, match=r"missing in slot \d+ \(no upload by the deadline"):
        server.finish()
    assert aw.RunIncomplete.exit_code == 4


def test_renormalise_goes_on_without_the_missing():
    server, slot, payload = missing_first("renormalise")
    assert server.receive(payload, slot + 1) == "stale"
    outcome = complete(server)
    assert len(outcome.participants) == 3
    assert sum(outcome.weights.values()) == pytest.approx(1)
    kept = [c for c in PROBLEM.clients if c.name in outcome.participants]
    ages = dict(zip([c.name for c in PROBLEM.clients], PLAN.ages, strict=True))
    wanted = aw.loss_gap(PROBLEM.replace(clients=kept), [ages[c.name] for c in kept])
    assert outcome.plan.gap == pytest.approx(wanted)


def test_replan_gives_the_missing_another_slot():
    server, slot, _ = missing_first("replan")
    late = json.loads(missing_first("replan")[2])["client"]
    planned = dict(zip([c.name for c in PROBLEM.clients], server.plan.collect_at, strict=True))
    assert planned[late] > slot
    wanted = aw.replan(PLAN, slot + 1, {})
    assert server.plan.collect_at == wanted.collect_at
    outcome = complete(server)
    assert len(outcome.participants) == 4
    assert outcome.plan.gap == pytest.approx(wanted.gap)


def test_replan_still_takes_what_was_only_late():
    server, slot, payload = missing_first("replan")
    assert server.receive(payload, slot + 1) is None
    outcome = complete(server)
    late = json.loads(payload)
    row = next(r for r in outcome.statement.clients if r.client == late["client"])
    assert (row.collect_at, row.age) == (slot, PROBLEM.aggregate_at - slot)


def test_a_client_that_refuses_is_not_asked_again():
    server = Server(PLAN, "run", "replan")
    slot = min(PLAN.collect_at)
    for past in range(1, slot):
        server.close(past)
    name = server.orders(slot)[0].client
    server.refuse(name, slot, "budget")
    server.close(slot)
    assert server.missing == {name: "budget"}
    assert name not in complete(server).participants


def test_nobody_left_is_a_failure():
    server = Server(PLAN, "run", "renormalise")
    for slot in range(1, PROBLEM.aggregate_at + 1):
        server.close(slot)
    with pytest.raises(aw.RunIncomplete, match="no client uploaded anything"):
        server.finish()


def test_slots_are_closed_in_order():
    server = Server(PLAN, "run")
    with pytest.raises(aw.InvalidInput, match="the next one to close"):
        server.close(2)
    early = Server(PLAN, "run")
    for slot in range(1, max(PLAN.collect_at)):
        for payload in answers(early, slot):
            early.receive(payload, slot)
        early.close(slot)
    with pytest.raises(aw.InvalidInput, match="all slots to 12 closed"):
        early.finish()


def test_a_stand_in_claims_nothing():
    outcome = complete(Server(PLAN, "run", private=False), private=False)
    for row in outcome.statement.clients:
        assert row.aged_epsilon is row.classical_epsilon is row.total_aged_epsilon is None
        assert row.aged_odds is None
    page = outcome.statement.to_markdown()
    assert "Nothing is private" in page
    assert "none claimed" in page


def test_the_statement_is_bound_to_its_numbers():
    first = complete(Server(PLAN, "run")).statement
    again = complete(Server(PLAN, "run")).statement
    assert first.digest != again.digest  # other noise, other bytes
    document = first.to_dict()
    assert json.loads(json.dumps(document, allow_nan=False))["digest"] == first.digest
    for row in first.clients:
        assert row.assumptions in first.to_markdown()


def test_the_same_ledger_answers_another_order_with_the_same_bytes(tmp_path):
    server, slot, _ = missing_first("replan")
    first = Server(PLAN, "run")
    order = first.orders(slot)[0]
    with Ledger(tmp_path / "one.ledger") as ledger:
        one = agent(order.client, ledger=ledger)
        payload = one.answer(order)
        later = next(
            o
            for t in range(slot + 1, PROBLEM.aggregate_at + 1)
            for o in server.orders(t)
            if o.client == order.client
        )
        assert one.answer(later) == payload
        assert ledger.verify() == 1
    assert server.receive(payload, later.collect_at) is None


def test_a_failure_that_is_taken_back_is_rebuilt_from_the_inputs():
    slot = min(a.collect_at for a in PLAN.assignments)
    late = next(a.client for a in PLAN.assignments if a.collect_at == slot)
    server = Server(PLAN, "run")
    for number in range(1, slot + 1):
        for order in server.orders(number):
            if order.client != late:
                server.receive(agent(order.client).answer(order), number)
        server.refuse(late, number, "budget")
        server.close(number)
    assert server.failure is not None
    stored = agent(late, ledger=Ledger(None))
    payload = stored.answer(next(o for o in server.orders(slot)))
    assert server.receive(payload, slot) == "stale"  # released all the same
    assert late in server.late
    server.retry()
    assert (server.failure, server.refused) == (None, {})
    assert [order.client for order in server.orders(server.closed + 1) if order.client == late]
    assert stored.answer(next(o for o in server.orders(slot))) == payload
    assert server.receive(payload, slot) is None
    assert not server.late
    again = Server(PLAN, "run")
    for entry in json.loads(json.dumps(server.inputs)):
        again.feed(entry)
    assert (again.received, again.closed) == (server.received, server.closed)
    assert again.steps == server.steps
    assert complete(again).participants == complete(server).participants


def test_what_was_carried_out_is_priced_even_above_the_capacity():
    """Slots that lie behind cannot be refused any more."""
    plan = aw.plan(aw.scenarios.london().replace(capacity=1))
    clients = list(plan.problem.clients)
    received = SimpleNamespace(collected=lambda: {c.name: 3 for c in clients})
    done = carried_out(plan, plan.problem, clients, (1 / 3,) * 3, received)
    assert (done.collect_at, done.method) == ([3, 3, 3], "carried out")
    assert done.problem.capacity is None


def test_steps_are_those_that_were_added_however_they_are_looked_at():
    steps, wanted = Steps(), []
    assert list(steps) == [] == steps[:]
    for slot, names in ((1, ["a"]), (2, ["b", "c", "d"]), (3, []), (4, ["e"])):
        steps.extend(slot, names, "uploaded")
        wanted += [Step(slot, name, "uploaded") for name in names]
    steps.append(Step(5, "f", "missing", "late"))
    wanted.append(Step(5, "f", "missing", "late"))
    assert list(steps) == wanted == steps
    assert [steps[i] for i in range(len(steps))] == wanted == [*steps[:2], *steps[2:]]
    assert steps[-1] == wanted[-1]
    assert steps[-6] == wanted[0]
    assert repr(steps) == repr(tuple(wanted))
    assert steps != wanted[:-1]
    for beyond in (6, -7):
        with pytest.raises(IndexError):
            steps[beyond]
