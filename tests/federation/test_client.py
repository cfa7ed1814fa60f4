"""The client machine: it trusts nobody, and what it sends is in its ledger."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import agewise as aw
from agewise.federation import Order, SimulatedRecords
from agewise.mechanism import MECHANISMS
from agewise.mechanism.laplace import LARGEST_SCALE
from agewise.privacy import BudgetExceeded, Ledger, LedgerDamaged, Policy
from parties import (
    ROOM,
    BadMessage,
    ClientAgent,
    OrderRefused,
    Profile,
    Server,
    Upload,
    announced_noise,
    asked_noise,
    private_noise,
    refusal_reason,
    stand_in_noise,
)
from parties import terms as terms_for

PROBLEM = aw.scenarios.london().replace(mixing="exact", estimator="propagated")
PLAN = aw.plan(PROBLEM)


def order_for(index, plan=PLAN):
    server = Server(plan, "run")
    name = plan.problem.clients[index].name
    return next(o for o in server.orders(plan.collect_at[index]) if o.client == name)


def agent(index=0, ledger=None, policy=Policy(), noise=private_noise, **changes):  # noqa: B008
    client = PROBLEM.clients[index]
    own = {"target_epsilon": PROBLEM.epsilon, "mixing": PROBLEM.mixing, **changes}
    profile = Profile(client, policy=policy, **own)
    return ClientAgent(profile, SimulatedRecords(client, 3), ledger, noise)


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("calibration", ["formula", "tight"])
def test_its_noise_and_claims_are_the_plans(index, calibration):
    plan = aw.plan(PROBLEM.replace(calibration=calibration))
    upload = Upload.decode(agent(index).answer(order_for(index, plan)))
    planned = plan.assignments[index]
    assert upload.noise_scale == pytest.approx(planned.noise_scale, rel=1e-12)
    assert upload.noise_scale >= planned.noise_scale
    assert upload.classical_epsilon == pytest.approx(planned.classical_epsilon, rel=1e-12)
    assert upload.aged_epsilon == pytest.approx(planned.aged_epsilon, rel=1e-9)
    assert upload.aged_epsilon <= PROBLEM.epsilon
    assert upload.total_aged == upload.aged_epsilon


@pytest.mark.parametrize("index", range(3))
def test_guarantee_its_noise_is_its_own_terms_or_the_orders_whichever_is_more(index):
    """An order may fall short by the rounding of another machine; the release never does."""
    order, own = order_for(index), agent(index)
    needed = own.check(order).scale
    for factor in (1 - 0.9 * ROOM, 1 - 1e-12, 1.0, 1 + 1e-12, 2.0):
        asked = order.model_copy(update={"noise_scale": needed * factor})
        drawn = asked_noise(asked, own.check(asked))
        assert drawn.scale == max(needed, needed * factor)
        sent = Upload.decode(own.answer(asked))
        assert sent.noise_scale >= drawn.scale
        assert sent.classical_epsilon <= drawn.epsilon
        assert sent.aged_epsilon <= PROBLEM.epsilon


def own_terms(mechanism, states=(20.0, 50.0, 100.0), estimator="plain"):
    chain = aw.birth_death(0.3, 0.2, states)
    failure = 1e-6 if mechanism == "gaussian" else 0.0
    target = aw.Target(0.3, "exact", "formula", mechanism, failure)
    return terms_for(aw.Client("a", chain), target, aw.Mean(), estimator, 3, 5)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("factor", [1.0, 1.7, 1e9, 1e140, 1e200, 1e305])
def test_guarantee_what_a_server_is_to_draw_is_claimed_by_the_larger_of_two_maps(mechanism, factor):
    """A little more than was asked for, as maps round up; and never nothing, however large."""
    own = own_terms(mechanism)
    asked = own.scale * factor
    noised = announced_noise(np.zeros(1), own, asked, private=True)
    assert asked < noised.scale <= asked * (1 + 1e-15) or noised.scale == LARGEST_SCALE[float]
    assert noised.failure == own.classical_delta
    mapped = min(noised.scale, 1e150)  # more would overflow in OpenDP's maps
    both = (
        MECHANISMS[mechanism].certified(own.sensitivity, mapped, own.classical_delta),
        asked_spent(own, mapped),
    )
    assert noised.epsilon >= max(both)
    assert 0 < noised.epsilon <= max(*both, 5e-324)
    if factor == 1:
        assert noised.epsilon <= own.classical_epsilon


def asked_spent(own, scale):
    reach, failure = np.asarray(own.sensitivity), np.asarray(own.classical_delta)
    return float(MECHANISMS[own.target.mechanism].spent(reach, np.asarray(scale), failure))


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_what_depends_on_no_record_is_announced_at_no_cost(mechanism):
    """A sensitivity of 0 spends neither ε nor δ; a small one does."""
    own = replace(own_terms(mechanism), sensitivity=0.0)
    noised = announced_noise(np.zeros(1), own, 3.0, private=True)
    assert (noised.epsilon, noised.failure) == (0.0, 0.0)
    least = replace(own, sensitivity=1e-100)
    assert announced_noise(np.zeros(1), least, 3.0, private=True).failure == own.classical_delta


def test_a_rehearsal_needs_no_ledger_and_lets_an_answered_run_answer_again(tmp_path):
    """It raises what `answer` would: nothing, where the same bytes would be sent again."""
    agent(0).rehearse(order_for(0))
    policy = Policy(max_aged_epsilon=PROBLEM.epsilon)
    with Ledger(tmp_path / "a.ledger") as ledger:
        agent(2, ledger, policy).answer(order_for(2))
        agent(2, ledger, policy).rehearse(order_for(2))
        with pytest.raises(BudgetExceeded):
            agent(2, ledger, policy).rehearse(order_for(2).model_copy(update={"run": "second"}))
        assert ledger.verify() == 1
    nothing = Policy(max_aged_epsilon=PROBLEM.epsilon / 2)
    with pytest.raises(BudgetExceeded):
        agent(2, None, nothing).rehearse(order_for(2))


def test_guarantee_it_refuses_less_noise_than_its_own_terms_ask_for():
    order = order_for(2)
    weak = order.model_copy(update={"noise_scale": order.noise_scale * 0.99})
    with pytest.raises(OrderRefused, match=r"asks client 'client 3' for a noise scale .* needs"):
        agent(2).answer(weak)
    more = order.model_copy(update={"noise_scale": order.noise_scale * 2})
    assert Upload.decode(agent(2).answer(more)).noise_scale >= 2 * order.noise_scale


@pytest.mark.parametrize("changes", [{"target_epsilon": 0.05}, {"mixing": "any_prior"}])
def test_a_stricter_client_refuses_the_servers_order(changes):
    with pytest.raises(OrderRefused, match="own target"):
        agent(2, **changes).answer(order_for(2))


def test_noise_that_is_an_ulp_short_is_topped_up():
    order = order_for(2)
    short = order.model_copy(update={"noise_scale": np.nextafter(order.noise_scale, 0).item()})
    assert Upload.decode(agent(2).answer(short)).noise_scale >= order.noise_scale


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"client": "client 2"}, "reached client 'client 1'"),
        ({"fingerprint": "other"}, "Plan with the client's own scenario"),
        ({"samples": 99}, "the order was made for"),
        ({"collect_at": 11}, "collect_at is 11"),
        ({"calibration": "tight", "noise_scale": 1e-6}, "noise scale"),
    ],
)
def test_orders_that_do_not_fit_are_refused(changes, words):
    order = order_for(0).model_copy(update=changes)
    with pytest.raises(OrderRefused, match=words):
        agent(0).answer(order)


def test_an_order_is_refused_before_records_are_touched():
    one = agent(0)
    one.source.collect = lambda *_: pytest.fail("collected")
    with pytest.raises(OrderRefused):
        one.answer(order_for(1))


def test_guarantee_what_is_answered_is_recorded_and_answered_again(tmp_path):
    with Ledger(tmp_path / "a.ledger") as ledger:
        payload = agent(0, ledger).answer(order_for(0))
        stored = ledger.find("run")
        assert stored.payload == payload
        assert stored.private
        assert agent(0, ledger).answer(order_for(0)) == payload
        assert ledger.verify() == 1


def test_totals_count_earlier_releases(tmp_path):
    with Ledger(tmp_path / "a.ledger") as ledger:
        first = agent(2, ledger)
        first.answer(order_for(2))
        later = agent(2, ledger, starts_at=3)
        order = order_for(2).model_copy(update={"run": "second"})
        upload = Upload.decode(later.answer(order))
        events = ledger.events()
    assert [e.collect_at for e in events] == [order.collect_at, order.collect_at + 3]
    wanted = aw.composed_epsilon(
        [aw.Release(e.collect_at, e.classical_epsilon) for e in events],
        PROBLEM.clients[2].process,
        order.aggregate_at + 3,
    )
    assert upload.releases == 2
    assert upload.total_aged == pytest.approx(wanted.aged, rel=1e-12)
    assert upload.total_classical == wanted.classical
    assert upload.total_aged > upload.aged_epsilon


def test_a_budget_is_refused_with_what_remains(tmp_path):
    policy = Policy(max_aged_epsilon=PROBLEM.epsilon)
    with Ledger(tmp_path / "a.ledger") as ledger:
        agent(2, ledger, policy).answer(order_for(2))
        again = order_for(2).model_copy(update={"run": "second"})
        for attempt in (agent(2, ledger, policy).rehearse, agent(2, ledger, policy).answer):
            with pytest.raises(BudgetExceeded, match="remains"):
                attempt(again)
        assert ledger.verify() == 1


def test_another_clients_ledger_is_refused(tmp_path):
    with Ledger(tmp_path / "a.ledger") as ledger:
        agent(0, ledger).answer(order_for(0))
        order = order_for(1).model_copy(update={"run": "second"})
        for attempt in (agent(1, ledger).rehearse, agent(1, ledger).answer):
            with pytest.raises(aw.InvalidInput, match="A ledger holds one client's account"):
                attempt(order)


def test_rehearsing_releases_nothing(tmp_path):
    with Ledger(tmp_path / "a.ledger") as ledger:
        agent(0, ledger).rehearse(order_for(0))
        assert ledger.verify() == 0


def test_the_stand_in_is_recorded_as_not_private(tmp_path):
    with Ledger(tmp_path / "a.ledger") as ledger:
        noise = stand_in_noise(3, "client 1")
        upload = Upload.decode(agent(0, ledger, noise=noise).answer(order_for(0)))
        assert not ledger.events()[0].private
        assert ledger.total(PROBLEM.clients[0].process, 10) == aw.Total(0.0, 0.0)
    assert upload.aged_epsilon is None
    assert upload.releases == 0


def test_a_process_without_memory_needs_no_noise(tmp_path):
    chain = aw.MarkovChain([[0.5, 0.5], [0.5, 0.5]], [0.0, 1.0])
    problem = aw.Problem([aw.Client("coin", chain)], 3, 0.1, estimator="plain")
    plan = aw.plan(problem)
    server = Server(plan, "run")
    order = server.orders(plan.collect_at[0])[0]
    profile = Profile(problem.clients[0], 0.1, "exact", Policy(max_aged_epsilon=0.1))
    with Ledger(tmp_path / "coin.ledger") as ledger:
        source = SimulatedRecords(problem.clients[0], 1)
        payload = ClientAgent(profile, source, ledger, private_noise).answer(order)
    upload = Upload.decode(payload)
    assert upload.noise_scale == 0
    assert upload.classical_epsilon == math.inf
    assert upload.aged_epsilon == 0
    assert json.loads(payload)["classical_epsilon"] == "inf"
    assert server.receive(payload, order.collect_at) is None


def test_the_server_is_told_one_word():
    words = [
        refusal_reason(error)
        for error in (
            BudgetExceeded("x"),
            OrderRefused("x"),
            LedgerDamaged("x"),
            aw.InvalidInput("readings", 1, "2"),
            aw.InvalidInput("ledger", "a file", "b"),
        )
    ]
    assert words == ["budget", "order", "ledger", "records", "ledger"]


def test_messages_come_back_as_they_went():
    order = order_for(0)
    assert Order.decode(order.encode()) == order
    with pytest.raises(BadMessage, match="malformed"):
        Upload.decode(order.encode())
    with pytest.raises(BadMessage, match="version"):
        Order.decode(order.encode().replace(b'"version":4', b'"version":2'))
