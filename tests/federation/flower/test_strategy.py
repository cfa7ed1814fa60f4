"""Strategies of Flower with a plan's orders in their messages, on a grid in this process."""

from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedMedian

import agewise as aw
from agewise.federation.flower.client_app import introduce
from agewise.federation.flower.mod import age_dp_mod
from agewise.federation.flower.strategy import AgedStrategy
from agewise.privacy.account import total_of
from agewise.testing import FlowerGrid, FlowerNode
from parties import Profile

PROBLEM = aw.scenarios.for_ever().replace(epsilon=1.0, rounds=4)
PLAN = aw.plan(PROBLEM)
EVERY = PROBLEM.every
NAMES = [c.name for c in PROBLEM.clients]
START = ArrayRecord({"w": Array(np.zeros(3))})

app = ClientApp(mods=[age_dp_mod(clip=1.0)])
app.query("agewise")(introduce)


@app.train()
def train(message, context):
    moved = message.content["arrays"]["w"].numpy() + 0.1
    slot = message.content["agewise"]["collect-at"]
    record = MetricRecord({"num-examples": 1, "collected-at": slot})
    content = {"arrays": ArrayRecord({"w": Array(moved)}), "metrics": record}
    return Message(RecordDict(content), reply_to=message)


@app.evaluate()
def evaluate(message, context):
    metrics = MetricRecord({"num-examples": 1, "accuracy": 0.75})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def policy(name):
    """What a node is laid out with: the target of its client, in all rounds."""
    client = next(c for c in PROBLEM.clients if c.name == name)
    return Profile.of(client, PROBLEM, None).policy


@pytest.fixture
def grid(tmp_path):
    nodes = []
    for name in NAMES:
        nodes.append(FlowerNode.of(tmp_path, PROBLEM, name, policy=policy(name), app=app))
    return FlowerGrid(nodes)


def events(folder, name):
    with aw.Ledger.read(folder / name / "releases.ledger") as ledger:
        return ledger.events()


def kinds(grid, kind):
    return [m for _, m in grid.pushed if m.metadata.message_type == kind]


def fedavg(**choices):
    return FedAvg(min_available_nodes=3, **choices)


@pytest.mark.parametrize("make", [FedAvg, FedAdam, FedMedian])
def test_guarantee_every_round_is_a_release_in_its_slots_and_is_accounted_for(tmp_path, grid, make):
    strategy = AgedStrategy(make(min_available_nodes=3), PLAN, "learn", starts_at=EVERY)
    result = strategy.start(grid, START, num_rounds=3)
    worst = [(0.0, 0.0)] * 3
    for client, one in zip(PROBLEM.clients, PLAN.assignments, strict=True):
        found = events(tmp_path, client.name)
        slots = [EVERY * number + one.collect_at for number in (1, 2, 3)]
        assert [event.collect_at for event in found] == slots
        assert [event.key for event in found] == [f"learn-{number:05d}" for number in (1, 2, 3)]
        for number in range(3):
            with aw.Ledger.read(tmp_path / client.name / "releases.ledger") as ledger:
                known = ledger.events()[: number + 1]
            total = total_of(known, client.process, known[-1].aggregate_at)
            worst[number] = tuple(map(max, worst[number], (total.aged, total.classical)))
    told = [result.train_metrics_clientapp[number] for number in (1, 2, 3)]
    spent = [(one["present-epsilon"], one["classical-epsilon"]) for one in told]
    assert spent == [pytest.approx(one) for one in worst]
    assert spent[0][1] < spent[1][1] < spent[2][1]
    assert max(present for present, _ in spent) <= PROBLEM.epsilon * (1 + 1e-6)
    assert result.arrays["w"].numpy().shape == (3,)


def test_evaluation_is_untouched(grid):
    result = AgedStrategy(fedavg(), PLAN, "learn").start(grid, START, num_rounds=1)
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(0.75)
    assert all("agewise" in one.content for one in kinds(grid, "train"))
    assert all("agewise" not in one.content for one in kinds(grid, "evaluate"))


def test_a_client_that_refuses_is_left_out_with_its_word(tmp_path, grid):
    poor = aw.Policy(max_classical_epsilon=1e-3)
    FlowerNode.of(tmp_path, PROBLEM, NAMES[0], policy=poor)
    strategy = AgedStrategy(fedavg(), PLAN, "learn")
    result = strategy.start(grid, START, num_rounds=2)
    assert strategy.refused == {1: {NAMES[0]: "budget"}, 2: {NAMES[0]: "budget"}}
    assert [result.train_metrics_clientapp[n]["refused-budget"] for n in (1, 2)] == [1, 1]
    assert [len(events(tmp_path, name)) for name in NAMES] == [0, 2, 2]


def test_whoever_rests_in_a_round_gets_no_train_message(tmp_path, grid):
    turns = zip(PROBLEM.clients, (2, 1, 1), strict=True)
    problem = PROBLEM.replace(level=None, clients=[replace(c, turn=turn) for c, turn in turns])
    for name in NAMES:
        client = next(c for c in problem.clients if c.name == name)
        FlowerNode.of(tmp_path, problem, name, policy=Profile.of(client, problem, None).policy)
    strategy = AgedStrategy(fedavg(), aw.plan(problem), "learn")
    strategy.start(grid, START, num_rounds=3)
    assert strategy.refused == {1: {}, 2: {}, 3: {}}
    assert [len(events(tmp_path, name)) for name in NAMES] == [2, 3, 3]


def test_a_round_in_which_everybody_refuses_changes_nothing(grid):
    failing = ClientApp(mods=[age_dp_mod(clip=1.0)])
    failing.query("agewise")(introduce)
    failing.train()(lambda *_: 1 / 0)
    for node in grid.nodes.values():
        node.app = failing
    strategy = AgedStrategy(fedavg(fraction_evaluate=0.0), PLAN, "learn")
    result = strategy.start(grid, START, num_rounds=1)
    assert result.train_metrics_clientapp[1] == {"refused-records": 3}
    assert not result.arrays


def test_begun_again_under_its_name_a_run_gets_what_was_released(tmp_path, grid):
    first, again = (
        AgedStrategy(fedavg(), PLAN, "learn").start(grid, START, num_rounds=1) for _ in range(2)
    )
    # FedAvg adds them up in any order
    assert first.arrays["w"].numpy() == pytest.approx(again.arrays["w"].numpy(), rel=1e-12)
    assert len(events(tmp_path, NAMES[0])) == 1


def test_nodes_that_are_no_clients_get_no_order(tmp_path, grid):
    keyed = dict(zip(NAMES[:2], grid.nodes, strict=False))
    strategy = AgedStrategy(fedavg(), PLAN, "learn", keyed)
    strategy.start(grid, START, num_rounds=1)
    assert {m.metadata.dst_node_id for m in kinds(grid, "train")} == set(keyed.values())


def test_more_rounds_than_planned_are_refused_before_the_first(grid):
    with pytest.raises(aw.InvalidInput, match="num_rounds is 5; allowed: 1 to 4"):
        AgedStrategy(fedavg(), PLAN, "learn").start(grid, START, num_rounds=5)
    once = aw.plan(aw.scenarios.london())
    with pytest.raises(aw.InvalidInput, match="num_rounds is 3; allowed: 1 to 1"):
        AgedStrategy(fedavg(), once, "learn").start(grid, START)
    assert not grid.pushed


def test_gaussian_rounds_keep_to_the_target_together(tmp_path):
    """A plan for three rounds; a fourth, after them, is more than any node allows."""
    problem = PROBLEM.replace(mechanism="gaussian", delta=1e-6, rounds=3, estimator="plain")
    nodes = []
    for client in problem.clients:
        own = Profile.of(client, problem, None).policy
        nodes.append(FlowerNode.of(tmp_path, problem, client.name, policy=own, app=app))
    here = FlowerGrid(nodes)
    result = AgedStrategy(fedavg(), aw.plan(problem), "learn").start(here, START, num_rounds=3)
    told = [result.train_metrics_clientapp[number] for number in (1, 2, 3)]
    spent = [one["present-epsilon"] for one in told]
    assert all(0.5 < one / problem.epsilon <= 1 + 1e-9 for one in spent)
    assert 0 < told[-1]["present-delta"] <= problem.delta * (1 + 1e-9)
    for name in NAMES:
        assert [event.kind for event in events(tmp_path, name)] == ["gaussian"] * 3
    late = AgedStrategy(fedavg(), aw.plan(problem), "more", starts_at=3 * EVERY)
    late.start(here, START, num_rounds=1)
    assert late.refused[1].keys() == set(NAMES)


def test_a_server_cannot_go_back_or_out_of_step(tmp_path, grid):
    """Nodes hold the server to their own rounds."""
    AgedStrategy(fedavg(), PLAN, "learn", starts_at=2 * EVERY).start(grid, START, num_rounds=1)
    for starts_at in (0, 2 * EVERY + 1, 4 * EVERY):
        strategy = AgedStrategy(fedavg(), PLAN, f"from {starts_at}", starts_at=starts_at)
        strategy.start(grid, START, num_rounds=1)
        assert strategy.refused == {1: dict.fromkeys(NAMES, "order")}
    message = kinds(grid, "train")[0]
    odd = {**message.content["agewise"], "before": "soon"}
    told = RecordDict({**message.content, "agewise": ConfigRecord(odd)})
    (reply,) = grid.send_and_receive([Message(told, 101, "train")])
    assert reply.error.reason == "order"
    assert [len(events(tmp_path, name)) for name in NAMES] == [1, 1, 1]
