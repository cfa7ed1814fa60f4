"""Other people's apps: the mod, the helper, the example."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from grid import InProcessGrid, Node

import agewise as aw
from agewise.federation.flower import mod
from agewise.federation.flower.client_app import introduce
from agewise.federation.flower.mod import PlanHelper, _clipped, age_dp_mod
from agewise.federation.flower.node import write_node

PROBLEM = aw.scenarios.london().replace(epsilon=0.5)
PLAN = aw.plan(PROBLEM)
ROOT = Path(__file__).parents[3]


def config(folder, name="client 3", **changes):
    path = folder / name / "node.toml"
    facts = {"records": {"kind": "simulated", "seed": 5}, "policy": aw.Policy(), **changes}
    write_node(path, PROBLEM, name, **facts)
    return {"agewise-config": str(path)}


def app_that_returns(update, clip=1.0):
    app = ClientApp(mods=[age_dp_mod(clip=clip)])
    app.query("agewise")(introduce)
    calls = []

    @app.train()
    def train(message, context):
        calls.append(1)
        start = message.content["arrays"]["w"].numpy()
        content = RecordDict(
            {
                "arrays": ArrayRecord({"w": Array((start + update).astype(start.dtype))}),
                "metrics": MetricRecord({"loss": 0.123}),
            }
        )
        return Message(content, reply_to=message)

    return app, calls


def ask(app, node_config, order, start):
    message = Message(
        RecordDict({"arrays": ArrayRecord({"w": Array(start)}), "agewise": order}),
        7,
        MessageType.TRAIN,
    )
    message.metadata.__dict__["_message_id"] = "m"
    return app(message, Context(1, 7, node_config, RecordDict(), {}))


def refusal(reply):
    """The one word with which a client refuses, as strategies of Flower take it."""
    assert reply.error.code == 6
    return reply.error.reason


def events(folder, name="client 3"):
    with aw.Ledger.read(folder / name / "releases.ledger") as ledger:
        return ledger.events()


def test_guarantee_the_update_is_bounded_noised_and_recorded(tmp_path):
    app, _ = app_that_returns(np.full((2, 3), 1e6))
    start = np.ones((2, 3), dtype=np.float32)
    order = PlanHelper(PLAN, "round-1").order("client 3")
    reply = ask(app, config(tmp_path), order, start)
    (event,) = events(tmp_path)
    planned = PLAN.assignments[2]
    assert event.private
    assert event.sensitivity == pytest.approx(2.0)
    assert event.aged_epsilon <= PROBLEM.epsilon
    assert event.classical_epsilon == pytest.approx(planned.classical_epsilon, rel=1e-6)
    assert event.scale >= 2.0 / planned.classical_epsilon * (1 - 1e-9)
    out = reply.content["arrays"]["w"].numpy()
    assert out.shape == (2, 3)
    assert out.dtype == np.float32
    assert np.abs(out - start).max() < 1e3  # a million was clipped
    assert dict(reply.content["metrics"]) == {"num-examples": 100}  # the loss stays home


def test_a_retry_sends_the_same_update_and_does_not_train(tmp_path):
    app, calls = app_that_returns(np.zeros(4))
    order, where = PlanHelper(PLAN, "round-1").order("client 3"), config(tmp_path)
    first, again = (ask(app, where, order, np.zeros(4)) for _ in range(2))
    assert (first.content["arrays"]["w"].numpy() == again.content["arrays"]["w"].numpy()).all()
    assert len(calls) == len(events(tmp_path)) == 1
    ask(app, where, PlanHelper(PLAN, "round-2").order("client 3"), np.zeros(4))
    assert len(events(tmp_path)) == 2


def test_a_budget_holds_over_rounds(tmp_path):
    app, _ = app_that_returns(np.zeros(4))
    where = config(tmp_path, policy=aw.Policy(max_aged_epsilon=PROBLEM.epsilon))
    ask(app, where, PlanHelper(PLAN, "round-1").order("client 3"), np.zeros(4))
    reply = ask(app, where, PlanHelper(PLAN, "round-2").order("client 3"), np.zeros(4))
    assert refusal(reply) == "budget"
    assert len(events(tmp_path)) == 1


def test_the_noise_has_the_scale_that_is_recorded(tmp_path):
    size = 4_000
    app, _ = app_that_returns(np.zeros(size))
    reply = ask(app, config(tmp_path), PlanHelper(PLAN, "r").order("client 3"), np.zeros(size))
    drawn, scale = reply.content["arrays"]["w"].numpy(), events(tmp_path)[0].scale
    assert np.abs(drawn).mean() == pytest.approx(scale, rel=0.1)  # six standard errors
    assert np.abs(drawn).mean() != pytest.approx(1.3 * scale, rel=0.1)


@pytest.mark.parametrize("update", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_counts_as_nothing(tmp_path, update):
    app, _ = app_that_returns(np.array([update, 0.0]))
    reply = ask(app, config(tmp_path), PlanHelper(PLAN, "r").order("client 3"), np.zeros(2))
    assert np.isfinite(reply.content["arrays"]["w"].numpy()).all()


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_clipping_bounds_the_norm(size, scale):
    update = np.random.default_rng(0).normal(size=size) * scale
    clipped = _clipped(update, 1.0)
    assert np.abs(clipped).sum() <= 1 + 1e-9
    if np.abs(update).sum() <= 1:
        assert (clipped == update).all()


def test_without_an_order_nothing_leaves(tmp_path):
    app, calls = app_that_returns(np.zeros(2))
    message = Message(
        RecordDict({"arrays": ArrayRecord({"w": Array(np.zeros(2))})}), 7, MessageType.TRAIN
    )
    reply = app(message, Context(1, 7, config(tmp_path), RecordDict(), {}))
    assert refusal(reply) == "order"
    assert not calls


def test_an_order_for_another_client_is_refused(tmp_path):
    app, _ = app_that_returns(np.zeros(2))
    reply = ask(app, config(tmp_path), PlanHelper(PLAN, "r").order("client 1"), np.zeros(2))
    assert refusal(reply) == "order"


@pytest.mark.parametrize("clip", [0, -1, float("nan"), float("inf")])
def test_bad_bounds_are_refused(clip):
    with pytest.raises(aw.InvalidInput, match="clip"):
        age_dp_mod(clip=clip)


def test_the_helper_knows_who_is_due_and_who_is_who(tmp_path):
    app, _ = app_that_returns(np.zeros(2))
    nodes = [Node(app, config(tmp_path, c.name)) for c in PROBLEM.clients]
    grid = InProcessGrid(nodes)
    helper = PlanHelper(PLAN, "r")
    assert helper.nodes(grid) == {"client 1": 101, "client 2": 102, "client 3": 103}
    for one in PLAN.assignments:
        assert one.client in helper.due(one.collect_at)
    with pytest.raises(aw.InvalidInput, match="a client of the plan"):
        helper.order("nobody")
    grid.nodes[104] = nodes[0]
    with pytest.raises(aw.InvalidInput, match="both claim client 'client 1'"):
        helper.nodes(grid)


def test_the_helper_believes_keys_rather_than_names(tmp_path):
    app, _ = app_that_returns(np.zeros(2))
    impostor = Node(app, config(tmp_path, "client 1"))
    nodes = [impostor, *(Node(app, config(tmp_path, c.name)) for c in PROBLEM.clients[:2])]
    grid = InProcessGrid(nodes)
    keyed = {"client 1": 102, "client 2": 103, "client 3": 999, "other": 101}
    assert PlanHelper(PLAN, "r", keyed).nodes(grid) == {"client 1": 102, "client 2": 103}
    assert not grid.pushed  # nobody was asked


def test_the_example_app_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "flower"))
    from agewise_example import client_app
    from agewise_example import server_app as example

    nodes = [Node(client_app.app, config(tmp_path, c.name)) for c in PROBLEM.clients]
    context = Context(
        1, 1, {}, RecordDict(), {"epsilon": 0.5, "run": "histogram-1", "deployment": ""}
    )
    example.app(InProcessGrid(nodes), context)
    assert "shares of records" in capsys.readouterr().out
    for client in PROBLEM.clients:
        assert len(events(tmp_path, client.name)) == 1
    sys.modules.pop("agewise_example", None)


def misbehaving(reply):
    app = ClientApp(mods=[age_dp_mod(clip=1.0)])

    @app.train()
    def train(message, context):
        return reply(message)

    @app.evaluate()
    def evaluate(message, context):
        return Message(RecordDict({"m": MetricRecord({"secret": 123.4})}), reply_to=message)

    return app


def arrays(**parts):
    return lambda m: Message(
        RecordDict({"arrays": ArrayRecord({k: Array(v) for k, v in parts.items()})}), reply_to=m
    )


@pytest.mark.parametrize(
    "reply",
    [
        lambda m: float("reading 123.4 Wh of flat 7"),
        lambda m: Message(Error(2, "reading 123.4"), reply_to=m),
        arrays(**{"reading=123.4": np.zeros(2)}),
        arrays(w=np.zeros(37)),
        arrays(w=np.zeros(2, dtype=np.float32)),
        arrays(w=np.zeros(2, dtype=np.int64)),
        lambda m: Message(RecordDict({"other": MetricRecord({"x": 123.4})}), reply_to=m),
    ],
)
def test_nothing_but_the_update_leaves(tmp_path, reply):
    order = PlanHelper(PLAN, "r").order("client 3")
    told = ask(misbehaving(reply), config(tmp_path), order, np.zeros(2))
    assert refusal(told) == "records"
    assert not events(tmp_path)


@pytest.mark.parametrize("kind", ["evaluate", "query", "query.odd"])
def test_other_messages_pass_untouched(kind):
    """Even on a node that has no configuration of ours."""
    message, answer = Message(RecordDict(), 7, kind), object()
    seen = []

    def call_next(*given):
        seen.append(given)
        return answer

    context = Context(1, 7, {}, RecordDict(), {})
    assert age_dp_mod(clip=1.0)(message, context, call_next) is answer
    assert seen == [(message, context)]


def test_the_mod_keeps_to_the_nodes_own_aggregation(tmp_path):
    app, calls = app_that_returns(np.zeros(2))
    far = PlanHelper(aw.plan(PROBLEM.replace(aggregate_at=500)), "r").order("client 3")
    assert refusal(ask(app, config(tmp_path), far, np.zeros(2))) == "order"
    assert not calls  # refused before anything is computed


def test_tiny_bounds_and_huge_updates():
    clipped = _clipped(np.full(3, 1e308), 3e-16)
    assert np.abs(clipped).sum() <= 3e-16 * (1 + 1e-9)


def mirrored(**moves):
    """An app that moves the arrays it is sent by so much, and evaluates."""
    app = ClientApp(mods=[age_dp_mod(clip=1.0)])

    @app.train()
    def train(message, context):
        sent = {key: one.numpy() for key, one in message.content["arrays"].items()}
        moved = {key: np.asarray(old + moves[key], old.dtype) for key, old in sent.items()}
        return arrays(**moved)(message)

    @app.evaluate()
    def evaluate(message, context):
        metrics = MetricRecord({"num-examples": 1, "accuracy": 0.75})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def send(app, node_config, order, **parts):
    record = ArrayRecord({key: Array(value) for key, value in parts.items()})
    message = Message(RecordDict({"arrays": record, "agewise": order}), 7, MessageType.TRAIN)
    message.metadata.__dict__["_message_id"] = "m"
    return app(message, Context(1, 7, node_config, RecordDict(), {}))


def test_scalars_and_counters_come_back(tmp_path):
    """As batch normalisation has them: a number without axes, and counts."""
    app = mirrored(w=0.1, scale=0.1, batches=7, seen=7, on=True)
    parts = {
        "w": np.ones((2, 2), dtype=np.float32),
        "scale": np.asarray(1.0),
        "batches": np.asarray(3, dtype=np.int64),
        "seen": np.arange(2, dtype=np.uint8),
        "on": np.asarray([False]),
    }
    where, order = config(tmp_path), PlanHelper(PLAN, "r").order("client 3")
    for reply in (send(app, where, order, **parts), send(app, where, order, **parts)):
        found = {key: one.numpy() for key, one in reply.content["arrays"].items()}
        for key, old in parts.items():
            assert (found[key].shape, found[key].dtype) == (old.shape, old.dtype)
            assert (found[key] == old).all() == (old.dtype.kind != "f")  # counts cannot be noised
    (event,) = events(tmp_path)
    assert len(event.payload) == 8 * 5  # the floats


@pytest.mark.parametrize("odd", [np.zeros(2, dtype=complex), np.asarray(["a"]), None])
def test_arrays_that_cannot_be_noised_are_refused_before_training(tmp_path, odd):
    app, calls = app_that_returns(np.zeros(2))
    parts = {"w": np.zeros(2)} if odd is not None else {}
    extra = np.zeros(2, dtype=int) if odd is None else odd
    reply = send(app, config(tmp_path), PlanHelper(PLAN, "r").order("client 3"), x=extra, **parts)
    assert refusal(reply) == "order"
    assert not calls
    assert not (tmp_path / "client 3" / "releases.ledger").exists()


def test_nothing_is_recorded_that_cannot_be_sent(tmp_path, monkeypatch):
    def broken(_):
        raise TypeError("no such array")

    app, where = mirrored(w=0.1), config(tmp_path)
    order = PlanHelper(PLAN, "r").order("client 3")
    with monkeypatch.context() as patch:
        patch.setattr(mod, "FlowerArray", broken)
        assert refusal(send(app, where, order, w=np.zeros(2))) == "records"
    assert not events(tmp_path)
    assert not send(app, where, order, w=np.zeros(2)).has_error()


def test_short_floats_hold_what_they_can(tmp_path):
    """Noise beyond the largest float16 ends there: infinity would spoil every average."""
    tiny = config(tmp_path)
    app = ClientApp(mods=[age_dp_mod(clip=1e9)])
    app.train()(lambda message, _: arrays(w=np.zeros(50, dtype=np.float16))(message))
    order = PlanHelper(PLAN, "r").order("client 3")
    reply = send(app, tiny, order, w=np.zeros(50, dtype=np.float16))
    found = reply.content["arrays"]["w"].numpy()
    assert np.isfinite(found).all()
    assert np.abs(found).max() == np.finfo(np.float16).max


class PlannedFedAvg(FedAvg):
    """FedAvg, with each client's order in its message."""

    def __init__(self, helper, nodes, **choices):
        super().__init__(**choices)
        self.helper, self.names = helper, {node: name for name, node in nodes.items()}
        self.counts = []

    def configure_train(self, *given):
        for message in super().configure_train(*given):
            node = message.metadata.dst_node_id
            order = self.helper.order(self.names[node])
            content = RecordDict({**message.content, "agewise": order})
            yield Message(content, node, message.metadata.message_type)

    def aggregate_train(self, server_round, replies):
        told = list(replies)
        self.counts.append([message.has_error() for message in told])
        return super().aggregate_train(server_round, told)


def test_fedavg_counts_a_refusal_as_a_failure_and_goes_on(tmp_path):
    names = [c.name for c in PROBLEM.clients]
    app = mirrored(w=0.1)
    poor = {"policy": aw.Policy(max_classical_epsilon=1e-3)}
    nodes = [Node(app, config(tmp_path, n, **(poor if n == names[0] else {}))) for n in names]
    grid = InProcessGrid(nodes)
    helper = PlanHelper(PLAN, "r", dict(zip(names, grid.nodes, strict=True)))
    strategy = PlannedFedAvg(helper, helper.nodes(grid), min_available_nodes=3)
    result = strategy.start(grid, ArrayRecord({"w": Array(np.zeros(3))}), num_rounds=1)
    assert sorted(strategy.counts[0]) == [False, False, True]
    assert result.arrays["w"].numpy().shape == (3,)
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(0.75)
    assert [len(events(tmp_path, name)) for name in names] == [0, 1, 1]


def test_an_app_of_ones_own_cannot_leave_the_noise_to_the_server(tmp_path):
    """Nobody would draw it: neither the helper nor the mod follows such a plan."""
    once = PROBLEM.replace(noise="server")
    with pytest.raises(aw.InvalidInput, match="Nobody would draw the noise"):
        PlanHelper(aw.plan(once), "run")
    path = tmp_path / "client 3" / "node.toml"
    facts = {"records": {"kind": "simulated", "seed": 5}, "policy": aw.Policy()}
    write_node(path, once, "client 3", **facts)
    order = json.loads(PlanHelper(PLAN, "run").order("client 3")["order"]) | {"noise": "server"}
    app, calls = app_that_returns(np.ones(2))
    record = ConfigRecord({"order": json.dumps(order)})
    reply = ask(app, {"agewise-config": str(path)}, record, np.zeros(2))
    assert refusal(reply) == "order"
    assert not calls
    assert not events(tmp_path)
