"""Other people's apps: the mod and the helper."""

import json

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

import agewise as aw
from agewise.federation.flower import updates
from agewise.federation.flower.client_app import introduce
from agewise.federation.flower.mod import PlanHelper, age_dp_mod
from agewise.federation.flower.updates import clipped_mean, mean_sensitivity
from agewise.privacy import Laplace
from agewise.testing import FlowerGrid, FlowerNode
from parties import client_generator

PROBLEM = aw.scenarios.london().replace(epsilon=0.5)
PLAN = aw.plan(PROBLEM)


def config(folder, name="client 3", **changes):
    return FlowerNode.of(folder, PROBLEM, name, **changes).config


def slot_in(message):
    return message.content["agewise"]["collect-at"]


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
                "metrics": MetricRecord({"loss": 0.123, "collected-at": slot_in(message)}),
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
    clipped = clipped_mean(update[None], 1.0, 1)
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
    nodes = [FlowerNode(app, config(tmp_path, c.name)) for c in PROBLEM.clients]
    grid = FlowerGrid(nodes)
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
    impostor = FlowerNode(app, config(tmp_path, "client 1"))
    nodes = [impostor, *(FlowerNode(app, config(tmp_path, c.name)) for c in PROBLEM.clients[:2])]
    grid = FlowerGrid(nodes)
    keyed = {"client 1": 102, "client 2": 103, "client 3": 999, "other": 101}
    assert PlanHelper(PLAN, "r", keyed).nodes(grid) == {"client 1": 102, "client 2": 103}
    assert not grid.pushed  # nobody was asked


def misbehaving(reply):
    app = ClientApp(mods=[age_dp_mod(clip=1.0)])

    @app.train()
    def train(message, context):
        return reply(message)

    @app.evaluate()
    def evaluate(message, context):
        return Message(RecordDict({"m": MetricRecord({"secret": 123.4})}), reply_to=message)

    return app


def arrays(record="arrays", **parts):
    def reply(message):
        found = ArrayRecord({key: Array(value) for key, value in parts.items()})
        metrics = MetricRecord({"collected-at": slot_in(message)})
        return Message(RecordDict({record: found, "metrics": metrics}), reply_to=message)

    return reply


def slot_only(message, **metrics):
    return Message(RecordDict({"m": MetricRecord(metrics)}), reply_to=message)


@pytest.mark.parametrize(
    ("reply", "word"),
    [
        (lambda m: float("reading 123.4 Wh of flat 7"), "records"),
        (lambda m: Message(Error(2, "reading 123.4"), reply_to=m), "records"),
        (arrays(**{"reading=123.4": np.zeros(2)}), "arrays"),
        (arrays(w=np.zeros(37)), "arrays"),
        (arrays(w=np.zeros(0)), "arrays"),
        (arrays(w=np.zeros(2, dtype=np.float32)), "arrays"),
        (arrays(w=np.zeros(2, dtype=np.int64)), "arrays"),
        (lambda m: slot_only(m, **{"collected-at": slot_in(m)}), "arrays"),
        (lambda m: slot_only(m, x=123.4), "slot"),
        (lambda m: slot_only(m, **{"collected-at": slot_in(m) + 1}), "slot"),
    ],
)
def test_nothing_but_the_update_leaves(tmp_path, reply, word):
    order = PlanHelper(PLAN, "r").order("client 3")
    told = ask(misbehaving(reply), config(tmp_path), order, np.zeros(2))
    assert refusal(told) == word
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
    clipped = clipped_mean(np.full((1, 3), 1e308), 3e-16, 1)
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


@pytest.mark.parametrize(
    "parts",
    [
        {"w": np.zeros(2), "x": np.zeros(2, dtype=complex)},
        {"w": np.zeros(2), "x": np.asarray(["a"])},
        {"x": np.zeros(2, dtype=int)},
        {"w": np.zeros((0, 3))},
        {},
    ],
)
def test_arrays_that_cannot_be_noised_are_refused_before_training(tmp_path, parts):
    app, calls = app_that_returns(np.zeros(2))
    reply = send(app, config(tmp_path), PlanHelper(PLAN, "r").order("client 3"), **parts)
    assert refusal(reply) == "arrays"
    assert not calls
    assert not (tmp_path / "client 3" / "releases.ledger").exists()


def test_nothing_is_recorded_that_cannot_be_sent(tmp_path, monkeypatch):
    def broken(_):
        raise TypeError("no such array")

    app, where = mirrored(w=0.1), config(tmp_path)
    order = PlanHelper(PLAN, "r").order("client 3")
    with monkeypatch.context() as patch:
        patch.setattr(updates, "FlowerArray", broken)
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
    nodes = [FlowerNode(app, config(tmp_path, n, **(poor if n == names[0] else {}))) for n in names]
    grid = FlowerGrid(nodes)
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
    where = FlowerNode.of(tmp_path, once, "client 3").config
    order = json.loads(PlanHelper(PLAN, "run").order("client 3")["order"]) | {"noise": "server"}
    app, calls = app_that_returns(np.ones(2))
    record = ConfigRecord({"order": json.dumps(order)})
    reply = ask(app, where, record, np.zeros(2))
    assert refusal(reply) == "order"
    assert not calls
    assert not events(tmp_path)


SAMPLES = PROBLEM.clients[2].samples


def per_record_app(rows, clip=1.0):
    app = ClientApp(mods=[age_dp_mod(clip=clip, per_record=True)])
    app.train()(lambda message, _: arrays("per-record", **rows)(message))
    return app


def test_guarantee_each_record_is_clipped_and_counts_as_one_of_n(tmp_path):
    """Rows of several arrays have one norm together; the mean of the clipped ones is released."""
    rng = np.random.default_rng(3)
    rows = {"w": rng.normal(size=(SAMPLES, 2, 2)) * 1e3, "b": rng.normal(size=(SAMPLES, 1)) * 1e3}
    rows["w"][0] = 1e-4
    rows["b"][0] = 2e-4  # the only one that is short enough
    where = config(tmp_path, stand_in_seed=5)
    start = {"w": np.ones((2, 2), dtype=np.float32), "b": np.zeros(1), "seen": np.arange(2)}
    order = PlanHelper(PLAN, "r").order("client 3")
    reply = send(per_record_app(rows), where, order, **start)
    (event,) = events(tmp_path)
    assert event.sensitivity == pytest.approx(2 / SAMPLES)
    assert reply.content["agewise"]["clipped"] == "record"
    assert reply.content["agewise"]["sensitivity"] == event.sensitivity
    together = np.concatenate([rows["w"].reshape(SAMPLES, 4), rows["b"]], axis=1)
    norms = np.abs(together).sum(axis=1, keepdims=True)
    expected = (together / np.maximum(norms, 1)).mean(axis=0)
    noise = (
        Laplace()
        .imitate(np.zeros(5), scale=event.scale, rng=client_generator(5, "client 3/r", "noise"))
        .value
    )
    assert np.frombuffer(event.payload) == pytest.approx(expected + noise, abs=1e-12)
    assert (reply.content["arrays"]["seen"].numpy() == start["seen"]).all()


def test_the_noise_of_records_falls_with_their_number(tmp_path):
    scales = []
    for app, name in (
        (app_that_returns(np.zeros(3))[0], "whole"),
        (per_record_app({"w": np.zeros((SAMPLES, 3))}), "records"),
    ):
        ask(app, config(tmp_path / name), PlanHelper(PLAN, "r").order("client 3"), np.zeros(3))
        scales.append(events(tmp_path / name)[0].scale)
    assert scales[0] / scales[1] == pytest.approx(SAMPLES, rel=1e-6)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
@pytest.mark.parametrize("norm", [1, 2])
def test_guarantee_one_record_moves_the_mean_by_its_share(odd, norm):
    """Whatever it is replaced by; one that is not finite counts as zeros."""
    rows = np.random.default_rng(4).normal(size=(50, 7)) * 10
    other, zero = rows.copy(), rows.copy()
    other[3], zero[3] = -1e300, 0.0
    moved = clipped_mean(rows, 0.5, norm) - clipped_mean(other, 0.5, norm)
    assert 0.01 < np.linalg.norm(moved, norm) <= mean_sensitivity(0.5, 50)
    rows[3, 2] = odd
    assert (clipped_mean(rows, 0.5, norm) == clipped_mean(zero, 0.5, norm)).all()


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        ({"w": np.zeros((SAMPLES - 1, 3))}, "records"),
        ({"w": np.zeros((SAMPLES, 4))}, "arrays"),
        ({"w": np.zeros((SAMPLES, 3), dtype=int)}, "arrays"),
        ({"w": np.zeros(3)}, "arrays"),
        ({"v": np.zeros((SAMPLES, 3))}, "arrays"),
        ({}, "arrays"),
    ],
)
def test_rows_that_are_not_one_for_each_record_are_refused(tmp_path, rows, word):
    order = PlanHelper(PLAN, "r").order("client 3")
    assert refusal(ask(per_record_app(rows), config(tmp_path), order, np.zeros(3))) == word
    assert not events(tmp_path)


def test_a_run_keeps_the_clip_and_the_shapes_it_was_released_with(tmp_path):
    where, order = config(tmp_path), PlanHelper(PLAN, "r").order("client 3")
    ask(app_that_returns(np.zeros(3))[0], where, order, np.zeros(3))
    assert refusal(ask(app_that_returns(np.zeros(3), 2.0)[0], where, order, np.zeros(3))) == "order"
    assert refusal(ask(app_that_returns(np.zeros(4))[0], where, order, np.zeros(4))) == "arrays"
    assert len(events(tmp_path)) == 1


def test_the_app_is_told_the_slot_of_its_own_count(tmp_path):
    """Whatever the server says it is."""
    told = []
    app = ClientApp(mods=[age_dp_mod(clip=1.0)])
    app.train()(
        lambda message, _: (told.append(slot_in(message)), arrays(w=np.zeros(2))(message))[1]
    )
    order = PlanHelper(PLAN, "r").order("client 3")
    order["collect-at"] = 77
    ask(app, config(tmp_path, starts_at=5), order, np.zeros(2))
    (event,) = events(tmp_path)
    assert told == [event.collect_at] == [5 + PLAN.assignments[2].collect_at]


GAUSSIAN = PROBLEM.replace(mechanism="gaussian", delta=1e-6)


def gaussian(folder, policy):
    return FlowerNode.of(folder, GAUSSIAN, "client 3", policy=policy).config


@pytest.mark.parametrize("size", [3, 100_000])
def test_gaussian_updates_are_clipped_in_the_other_norm(tmp_path, size):
    """Long enough to be drawn in pieces; the arrays are a model's, of short floats."""
    app, _ = app_that_returns(np.full(size, 1e6))
    where = gaussian(tmp_path, aw.Policy(max_delta=1e-6))
    order = PlanHelper(aw.plan(GAUSSIAN), "r").order("client 3")
    reply = ask(app, where, order, np.zeros(size, dtype=np.float32))
    (event,) = events(tmp_path)
    assert (event.kind, event.private) == ("gaussian", True)
    assert event.sensitivity == pytest.approx(2.0)
    assert event.aged_epsilon <= GAUSSIAN.epsilon
    assert 0 < event.aged_delta <= GAUSSIAN.delta
    out = reply.content["arrays"]["w"].numpy()
    if size > 3:  # the mean of a vector of ℓ2 norm 1, with noise of the recorded scale
        error = 6 * event.scale / np.sqrt(size)
        assert abs(out.mean() - 1 / np.sqrt(size)) < error
        assert out.std() == pytest.approx(event.scale, rel=0.05)


def test_several_gaussian_releases_add_up_and_the_policy_decides(tmp_path):
    """Runs that are planned one by one; what the ledger proves of them is their sum."""
    app, plan = app_that_returns(np.zeros(4))[0], aw.plan(GAUSSIAN)
    where = gaussian(tmp_path, aw.Policy(max_aged_epsilon=5.0, max_delta=2.5e-6))
    replies = [
        ask(app, where, PlanHelper(plan, f"r{number}").order("client 3"), np.zeros(4))
        for number in range(3)
    ]
    assert refusal(replies[2]) == "budget"
    spent = [dict(reply.content["agewise"]) for reply in replies[:2]]
    assert spent[1]["total_delta"] >= 2 * events(tmp_path)[0].aged_delta
    assert spent[1]["total_aged"] > spent[0]["total_aged"]
    assert spent[1]["total_classical"] == pytest.approx(2 * spent[0]["total_classical"])
    assert len(events(tmp_path)) == 2


def app_with_metrics(values, metrics, clip=1.0, per_record=True, name="loss"):
    """An app that asks for nothing, and says how it did."""
    app = ClientApp(mods=[age_dp_mod(clip=clip, per_record=per_record, metrics=metrics)])

    @app.train()
    def train(message, context):
        record = MetricRecord({"collected-at": slot_in(message), name: values})
        rows = Array(np.zeros((SAMPLES, 2)))
        content = {"arrays": message.content["arrays"], "metrics": record}
        content["per-record"] = ArrayRecord({"w": rows})
        return Message(RecordDict(content), reply_to=message)

    return app


@pytest.mark.parametrize("per_record", [True, False])
def test_guarantee_metrics_leave_noised_and_count_in_the_sensitivity(tmp_path, per_record):
    """Each record's metric is cut off at its bounds; the noise is that of the whole release."""
    values = [-50.0, 9.0, float("nan")] + [1.0] * (SAMPLES - 3) if per_record else 9.0
    kept = np.r_[0.0, 2.0, 1.0, np.ones(SAMPLES - 3)] if per_record else np.array([2.0])
    app = app_with_metrics(values, {"loss": (0.0, 2.0)}, clip=3.0, per_record=per_record)
    where = config(tmp_path, stand_in_seed=5)
    reply = ask(app, where, PlanHelper(PLAN, "r").order("client 3"), np.zeros(2))
    (event,) = events(tmp_path)
    count = SAMPLES if per_record else 1
    assert event.sensitivity == pytest.approx(2 * 3.0 * 1.1 / count)
    noise = (
        Laplace()
        .imitate(np.zeros(3), scale=event.scale, rng=client_generator(5, "client 3/r", "noise"))
        .value
    )
    told = dict(reply.content["metrics"])
    assert told.keys() == {"num-examples", "loss"}
    assert told["loss"] == pytest.approx(kept.mean() + noise[2] / 0.3)
    assert reply.content["arrays"]["w"].numpy() == pytest.approx(noise[:2])
    again = ask(app, where, PlanHelper(PLAN, "r").order("client 3"), np.zeros(2))
    assert dict(again.content["metrics"]) == told


@pytest.mark.parametrize(
    ("values", "name"), [([1.0] * 3, "loss"), (0.5, "loss"), ([1.0] * SAMPLES, "accuracy")]
)
def test_metrics_that_were_asked_for_and_are_not_there_are_refused(tmp_path, values, name):
    app = app_with_metrics(values, {"loss": (0.0, 2.0)}, name=name)
    order = PlanHelper(PLAN, "r").order("client 3")
    assert refusal(ask(app, config(tmp_path), order, np.zeros(2))) == "records"
    assert not events(tmp_path)


@pytest.mark.parametrize(
    "metrics",
    [
        {"loss": (2.0, 2.0)},
        {"loss": (0.0, np.inf)},
        {"loss": (0.0, np.nan)},
        {"loss": (1.0,)},
        {"num-examples": (0.0, 1.0)},
    ],
)
def test_metrics_need_bounds(metrics):
    with pytest.raises(aw.InvalidInput, match="metrics"):
        age_dp_mod(clip=1.0, metrics=metrics)


def test_another_set_of_metrics_is_no_retry(tmp_path):
    where, order = config(tmp_path), PlanHelper(PLAN, "r").order("client 3")
    ask(app_with_metrics([1.0] * SAMPLES, {"loss": (0.0, 2.0)}), where, order, np.zeros(2))
    reply = ask(app_with_metrics([1.0] * SAMPLES, None), where, order, np.zeros(2))
    assert refusal(reply) == "order"


def test_a_retry_with_other_names_or_bounds_does_not_relabel_what_was_released(tmp_path):
    where, order = config(tmp_path), PlanHelper(PLAN, "r").order("client 3")
    values = [1.0] * SAMPLES
    ask(app_with_metrics(values, {"loss": (0.0, 2.0)}), where, order, np.zeros(2))
    for metrics in ({"accuracy": (0.0, 2.0)}, {"loss": (0.0, 1000.0)}):
        reply = ask(app_with_metrics(values, metrics), where, order, np.zeros(2))
        assert refusal(reply) == "order"
    assert len(events(tmp_path)) == 1
