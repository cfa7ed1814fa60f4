"""A client of many rounds: its own rounds and promise only, and its rule whatever it is asked."""

from dataclasses import replace

import numpy as np
import pytest

import agewise as aw
from agewise.federation import Order, SimulatedRecords
from agewise.privacy import BudgetExceeded, Ledger, Policy
from parties import ClientAgent, OrderRefused, Profile, Upload, own_policy, private_noise, terms

CHAIN = aw.birth_death(0.1, 0.2, [20, 50, 100, 200])
PROBLEM = aw.Problem(
    [aw.Client("north", CHAIN)], aggregate_at=10, epsilon=0.1, rounds=None, every=10
)


def order_for(problem, number, collect_at=6, **changes):
    """The order of one round, as a server of this problem would plan it."""
    client = problem.clients[0]
    own = terms(
        client,
        problem.target_of(client),
        problem.learner,
        problem.estimator,
        collect_at,
        problem.aggregate_at,
    )
    facts = {
        "run": f"round {number}",
        "client": client.name,
        "plan": "plan",
        "collect_at": collect_at,
        "aggregate_at": problem.aggregate_at,
        "samples": client.samples,
        "epsilon": problem.epsilon,
        "mixing": problem.mixing,
        "estimator": problem.estimator,
        "calibration": problem.calibration,
        "learner": problem.learner.to_dict(),
        "mechanism": problem.mechanism,
        "delta": 0.0,
        "noise": problem.noise,
        "noise_scale": own.scale,
        "rounds": problem.rounds,
        "every": problem.every,
        "promise": problem.promise,
        "fingerprint": client.process.fingerprint,
    }
    return Order(**{**facts, **changes})


def agent(problem, ledger, number=0, policy=None):
    client = problem.clients[0]
    profile = Profile.of(client, problem, policy, starts_at=10 * number)
    return ClientAgent(profile, SimulatedRecords(client, 3), ledger, private_noise)


@pytest.mark.parametrize("promise", ["present", "every_moment", 4])
def test_round_after_round_its_total_is_about_the_promise(promise):
    problem = PROBLEM.replace(promise=promise)
    with Ledger(None) as ledger:
        for number in range(25):
            order = order_for(problem, number)
            agent(problem, ledger, number).rehearse(order)
            upload = Upload.decode(agent(problem, ledger, number).answer(order))
            assert upload.releases == number + 1
            assert upload.total_aged <= 0.1 * (1 + 1e-6)
            assert upload.total_aged >= upload.aged_epsilon
        ledger.check_account(CHAIN)
    assert upload.aged_epsilon == pytest.approx(0.1, rel=1e-4)
    assert upload.total_classical == pytest.approx(25 * upload.classical_epsilon)


def test_one_round_of_a_promise_is_kept_too():
    for promise in ("every_moment", 4):
        problem = PROBLEM.replace(rounds=1, every=None, promise=promise)
        with Ledger(None) as ledger:
            upload = Upload.decode(agent(problem, ledger).answer(order_for(problem, 0)))
            assert upload.total_aged <= 0.1 * (1 + 1e-9)
            with pytest.raises(BudgetExceeded):
                agent(problem, ledger).answer(order_for(problem, 1))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rounds": 30}, "rounds is 30 in the order; client 'north' allows None only"),
        ({"every": 20}, "every is 20 in the order; client 'north' allows 10 only"),
        ({"promise": "every_moment"}, "promise is every_moment in the order; .* present only"),
        ({"rounds": 1, "every": None}, "rounds is 1"),
    ],
)
def test_it_takes_part_in_its_own_rounds_only(changes, words):
    with Ledger(None) as ledger, pytest.raises(OrderRefused, match=words):
        agent(PROBLEM, ledger).answer(order_for(PROBLEM, 0, **changes))
    one = PROBLEM.replace(rounds=1, every=None)
    with Ledger(None) as ledger, pytest.raises(OrderRefused, match="rounds is None in the order"):
        agent(one, ledger).answer(order_for(PROBLEM, 0))


@pytest.mark.parametrize("promise", ["present", "every_moment", 4])
def test_guarantee_it_keeps_to_its_rule_whatever_the_server_asks(promise):
    """Sooner, twice, or with less noise: refused, in so many words, and nothing is released."""
    problem = PROBLEM.replace(promise=promise)
    with Ledger(None) as ledger:
        agent(problem, ledger).answer(order_for(problem, 0))
        sooner = order_for(problem, 1, collect_at=5)
        with pytest.raises(BudgetExceeded, match="one release in any 10 slots"):
            agent(problem, ledger, 1).answer(sooner)
        with pytest.raises(BudgetExceeded, match="one release in any 10 slots"):
            agent(problem, ledger, 0).answer(order_for(problem, "again"))
        louder = order_for(problem, 1, noise_scale=order_for(problem, 1).noise_scale / 2)
        with pytest.raises(OrderRefused, match="noise scale"):
            agent(problem, ledger, 1).answer(louder)
        assert ledger.verify() == 1
        agent(problem, ledger, 1).answer(order_for(problem, 1))


def test_a_smaller_limit_on_each_release_holds_against_the_plan():
    strict = replace(own_policy(PROBLEM.clients[0], PROBLEM), max_release_epsilon=0.05)
    with Ledger(None) as ledger:
        with pytest.raises(BudgetExceeded, match=r"0\.05 each time"):
            agent(PROBLEM, ledger, policy=strict).answer(order_for(PROBLEM, 0))
        scale = order_for(PROBLEM, 0).noise_scale
        quiet = order_for(PROBLEM, 0, noise_scale=10 * scale)
        agent(PROBLEM, ledger, policy=strict).answer(quiet)


def test_what_it_allows_itself_if_nothing_is_said():
    north = PROBLEM.clients[0]
    ever = PROBLEM.replace(promise="every_moment")
    affordable = aw.per_release_epsilon(CHAIN, 10, 0.1, promise="every_moment")
    policy = own_policy(north, ever)
    assert (policy.max_aged_epsilon, policy.promise, policy.every) == (0.1, "every_moment", 10)
    assert policy.max_release_epsilon == pytest.approx(affordable, rel=1e-6)
    assert own_policy(north, PROBLEM.replace(rounds=1, every=None)) == Policy(0.1)


@pytest.mark.parametrize(
    "choices",
    [
        {"estimator": "propagated", "mixing": "any_prior"},
        {"estimator": "best", "level": aw.Level(loading=4.0, correlation=0.9)},
    ],
    ids=["propagated", "level"],
)
def test_what_it_allows_itself_lets_every_plan_of_its_own_through(choices):
    """Where what is released differs from slot to slot, so does the ε that a target affords."""
    chains = [aw.birth_death(0.1 + 0.05 * k, 0.2, [10.0, 20.0, 50.0]) for k in range(3)]
    problem = aw.Problem(
        [aw.Client(f"c{k}", one, samples=20 + 10 * k) for k, one in enumerate(chains)],
        aggregate_at=4,
        epsilon=0.7,
        rounds=None,
        every=4,
        promise="every_moment",
        **choices,
    )
    for slots in ([4, 4, 4], [1, 3, 2]):
        result = aw.run_rounds(aw.evaluate(problem, slots), rounds=2)
        assert all(one.epsilon <= 0.7 for one in result.rounds)
        assert not any(one.missing for one in result.rounds)


def test_an_event_knows_what_it_tells_apart():
    with Ledger(None) as ledger:
        agent(PROBLEM, ledger).answer(order_for(PROBLEM, 0))
        (event,) = ledger.events()
    z = CHAIN.states
    true = np.abs(z[:, None] - z) / 180
    assert (np.array(event.metric) >= true).all()
    assert np.array(event.metric) == pytest.approx(true, rel=1e-13)
    gaussian = PROBLEM.replace(rounds=1, every=None, mechanism="gaussian", delta=1e-6)
    with Ledger(None) as ledger:
        agent(gaussian, ledger).answer(order_for(gaussian, 0, delta=1e-6))
        assert ledger.events()[0].metric is None


def test_a_policy_with_a_promise_is_kept_in_a_nodes_file(tmp_path):
    node = pytest.importorskip("agewise.federation.flower.node")
    problem = PROBLEM.replace(promise=4)
    policy = own_policy(problem.clients[0], problem)
    for number, kept in enumerate((policy, replace(policy, promise="every_moment"))):
        path = tmp_path / str(number) / "node.toml"
        records = {"kind": "simulated", "seed": 1}
        node.write_node(path, problem, "north", records=records, policy=kept)
        assert node.Node(path).config.policy == kept
