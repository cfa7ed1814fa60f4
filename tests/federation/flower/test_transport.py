"""The ServerApp and the ClientApp, on a grid in this process."""

import json

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from london import NAMES, PLAN, PROBLEM, carry_out, events, kinds, node, run, settings

import agewise as aw
from agewise.federation.flower import client_app
from agewise.federation.flower.publication import Publication
from agewise.federation.flower.transport import FlowerTransport
from agewise.testing import FlowerGrid, FlowerNode, failing


def test_guarantee_the_model_is_the_local_engines(nodes):
    server = run(nodes)
    local = aw.run(PLAN, rng=np.random.default_rng(11))
    assert server.finish().model == local.model
    assert [s for s in server.steps if s.what == "uploaded"] == [
        s for s in local.steps if s.what == "uploaded"
    ]


@pytest.mark.parametrize("mechanism", [{}, {"mechanism": "gaussian", "delta": 1e-6}])
@pytest.mark.parametrize(
    "learner",
    [
        aw.Mean(),
        aw.Histogram(),
        aw.Statistics([[1, 20], [1, 50], [0, 100], [0, 200]]),
        aw.Ridge([[0, 1], [1, 1], [0, 2], [3, 0]], [20, 50, 100, 200]),
    ],
)
def test_guarantee_every_learner_and_mechanism_gives_the_local_engines_model(
    tmp_path, learner, mechanism
):
    problem = PROBLEM.replace(learner=learner, **mechanism)
    policy, plan = aw.Policy(max_delta=1e-6), aw.plan(problem)
    nodes = {name: node(tmp_path, name, policy=policy, problem=problem) for name in NAMES}
    grid, folder = FlowerGrid(nodes.values()), tmp_path / "published"
    outcome = carry_out(grid, plan, settings(), folder).finish()
    assert outcome.aggregate == aw.run(plan, rng=np.random.default_rng(11)).aggregate
    assert Publication(folder, "run").result().model == outcome.model


def test_what_is_published_builds_the_server_anew(nodes, tmp_path):
    grid, folder = FlowerGrid(nodes.values()), tmp_path / "published"
    server = carry_out(grid, PLAN, settings(), folder)
    found = Publication(folder, "run")
    result = found.result()
    again = aw.federation.server.Server(PLAN, "run", private=False)
    for entry in result.journal:
        again.feed(entry)
    assert again.finish().model == server.finish().model == result.model
    told = [step for step, *_ in found.steps()]
    assert [s for s in told if s.what == "uploaded"] == [
        s for s in server.steps if s.what == "uploaded"
    ]


@pytest.mark.parametrize("code", [2, 5, 8])
def test_a_node_that_fails_once_is_asked_again(nodes, tmp_path, code):
    victim = nodes["client 2"]
    faults = [failing(code)]

    def fault(message):
        if message.metadata.message_type == "train" and faults:
            return faults.pop()(message)
        return None

    victim.fault = fault
    assert run(nodes).finish().model == aw.run(PLAN, rng=np.random.default_rng(11)).model
    assert len(events(tmp_path, "client 2")) == 1


def test_an_answer_that_got_lost_is_sent_again_the_same(tmp_path):
    nodes = {name: node(tmp_path, name, stand_in=False) for name in NAMES}
    grid = FlowerGrid(nodes.values())
    lost = []

    def fault(message):
        if message.metadata.message_type == "train" and not lost:
            context = client_app.Context(1, 1, nodes["client 3"].config, RecordDict(), {})
            lost.append(client_app.app(message, context))
            return False
        return None

    nodes["client 3"].fault = fault
    server = carry_out(grid, PLAN, settings(private=True))
    (event,) = events(tmp_path, "client 3")
    assert str(lost[0].content["agewise"]["upload"]).encode() == event.payload
    assert server.received["client 3"][1] == event.payload


def test_a_node_that_returns_under_a_new_number_is_recognised(nodes, monkeypatch):
    grid = FlowerGrid(nodes.values())
    old = next(k for k, v in grid.nodes.items() if v is nodes["client 1"])
    send = FlowerTransport.send

    def send_after_crash(self, orders, until):
        if "client 1" in {order.client for order in orders} and old in grid.nodes:
            grid.nodes[999] = grid.nodes.pop(old)
        send(self, orders, until)

    monkeypatch.setattr(FlowerTransport, "send", send_after_crash)
    server = carry_out(grid, PLAN, settings())
    assert 999 not in {one for one, _ in grid.pushed[: len(NAMES)]}
    assert 999 in {one for one, _ in grid.pushed}
    assert server.finish().model == aw.run(PLAN, rng=np.random.default_rng(11)).model


def test_a_ghost_of_a_crashed_node_does_not_claim_its_name(nodes):
    grid = FlowerGrid(nodes.values())
    ghost = FlowerNode(client_app.app, nodes["client 1"].config)
    ghost.alive = False
    grid.nodes[50] = ghost
    assert carry_out(grid, PLAN, settings()).finish().participants == tuple(NAMES)


def test_two_nodes_with_one_name_are_refused(nodes):
    grid = FlowerGrid([*nodes.values(), FlowerNode(client_app.app, nodes["client 1"].config)])
    with pytest.raises(aw.RunIncomplete, match="both claim to be client 'client 1'"):
        carry_out(grid, PLAN, settings())


def test_a_stranger_is_left_alone(nodes, tmp_path):
    other = aw.Problem([aw.Client("stranger", PROBLEM.clients[0].process)], 10, 0.1)
    nodes["stranger"] = node(tmp_path, "stranger", problem=other)
    server = run(nodes)
    assert server.finish().participants == tuple(NAMES)
    assert not (tmp_path / "stranger" / "releases.ledger").exists()


def test_absent_clients_are_named(nodes):
    del nodes["client 2"]
    with pytest.raises(aw.RunIncomplete, match="no node answers for client 2"):
        run(nodes, wait=20.0)
    server = run(nodes, wait=20.0, on_missing="renormalise", slot_timeout=60.0)
    assert server.finish().participants == ("client 1", "client 3")


def test_a_node_without_configuration_is_nobody(nodes):
    nodes["odd"] = FlowerNode(client_app.app, {})
    assert run(nodes).finish().participants == tuple(NAMES)


def test_a_silent_client_is_replanned_then_left_out(nodes):
    nodes["client 3"].fault = lambda m: False if m.metadata.message_type == "train" else None
    server = run(nodes, on_missing="replan", slot_timeout=60.0)
    assert server.missing == {"client 3": "no upload by the deadline"}
    assert any(step.what == "replanned" for step in server.steps)


def test_a_budget_is_refused_in_one_word(tmp_path):
    nodes = {
        name: node(tmp_path, name, stand_in=False, policy=aw.Policy(max_classical_epsilon=0.11))
        for name in NAMES
    }
    with pytest.raises(aw.RunIncomplete, match="budget"):
        run(nodes, private=True)
    server = run(nodes, private=True, run="other", on_missing="renormalise")
    assert server.finish().participants == ("client 1",)
    assert set(server.missing.values()) == {"budget"}


def test_answers_that_make_no_sense_are_counted(nodes):
    def fault(message):
        if message.metadata.message_type != "train":
            return None
        return Message(RecordDict({"agewise": ConfigRecord({"odd": 1})}), reply_to=message)

    nodes["client 3"].fault = fault
    server = run(nodes, on_missing="renormalise", slot_timeout=60.0)
    assert server.rejected["malformed"] >= 1
    assert "client 3" in server.missing


def test_a_clock_that_is_off_by_more_than_a_slot_is_refused(nodes, clock):
    def fault(message):
        if message.metadata.message_type != "query.agewise":
            return None
        return client_app.reply_to(message, client="client 2", time=clock.time() - 3600)

    nodes["client 2"].fault = fault
    with pytest.raises(aw.RunIncomplete, match=r"clock of client 'client 2' is off by 3600 s"):
        run(nodes, clock="wall", slot_seconds=60.0, started=clock.time())
    assert run(nodes).finish().participants  # the virtual clock does not mind


def test_the_wall_clock_keeps_its_slots(tmp_path, clock):
    short = PROBLEM.replace(aggregate_at=3)
    nodes, plan = {name: node(tmp_path, name, problem=short) for name in NAMES}, aw.plan(short)
    begun = clock.time()
    server = run(nodes, plan, clock="wall", slot_seconds=1.5)
    assert 4.5 <= clock.time() - begun < 6.0
    assert server.finish().participants == tuple(NAMES)


@pytest.mark.parametrize("shown", ["abc", [1.0, 2.0], b"x", "nan"])
def test_an_introduction_that_makes_no_sense_is_nobodys(nodes, tmp_path, shown):
    odd = FlowerNode(client_app.app, nodes["client 1"].config)
    odd.fault = lambda m: Message(
        RecordDict({"agewise": ConfigRecord({"client": "client 1", "time": shown})}), reply_to=m
    )
    server = run({"odd": odd, **nodes})
    assert server.finish().participants == tuple(NAMES)


def test_nobody_uploads_in_anothers_name(nodes):
    honest = {}

    def fault(message):
        if message.metadata.message_type != "train":
            return None
        order = json.loads(str(message.content["agewise"]["order"]))
        forged = json.loads(honest["client 2"]) if "client 2" in honest else {"client": "client 2"}
        return client_app.reply_to(message, upload=json.dumps({**forged, "run": order["run"]}))

    def listen(message):
        if message.metadata.message_type == "train":
            context = client_app.Context(1, 1, nodes["client 2"].config, RecordDict(), {})
            reply = client_app.app(message, context)
            honest["client 2"] = str(reply.content["agewise"]["upload"])
            return reply
        return None

    nodes["client 2"].fault, nodes["client 3"].fault = listen, fault
    server = run(nodes, on_missing="renormalise", slot_timeout=60.0)
    assert server.finish().participants == ("client 1", "client 2")
    assert server.rejected["wrong sender"] + server.rejected["malformed"] >= 1


def test_a_name_belongs_to_its_key(nodes, tmp_path):
    grid = FlowerGrid([FlowerNode(client_app.app, nodes["client 1"].config), *nodes.values()])
    numbers = {name: 102 + i for i, name in enumerate(NAMES)}  # 101 is the impostor
    server = carry_out(grid, PLAN, settings(nodes=numbers), tmp_path / "published")
    steps = Publication(tmp_path / "published", "run").steps()
    told = [step.why for step, *_ in steps if step.what == "connected"]
    assert told == ["1 of 3", "2 of 3", "3 of 3"]
    assert server.finish().model == aw.run(PLAN, rng=np.random.default_rng(11)).model
    assert all(target != 101 for target, m in grid.pushed if m.metadata.message_type == "train")


def test_a_grid_that_fails_still_gets_a_result_published(nodes, tmp_path):
    grid = FlowerGrid(nodes.values())
    grid.get_node_ids = lambda: (_ for _ in ()).throw(OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        carry_out(grid, PLAN, settings(), tmp_path / "published")
    result = Publication(tmp_path / "published", "run").result()
    assert (result.failure, result.exit_code) == ("OSError in the ServerApp", 4)


def test_a_node_that_always_fails_is_not_stormed(nodes):
    grid = FlowerGrid(nodes.values())
    nodes["client 3"].fault = lambda m: (
        failing(2)(m) if "train" in m.metadata.message_type else None
    )
    carry_out(grid, PLAN, settings(on_missing="renormalise", slot_timeout=60.0))
    asked = [m for target, m in grid.pushed if target == 103 and "train" in m.metadata.message_type]
    assert len(asked) == 6  # after 1, 2, 4, 8, 16 seconds more each time


def test_what_was_released_is_sent_again_without_the_records(tmp_path):
    import polars as pl

    path = tmp_path / "r.csv"
    rows = [
        {"client": n, "slot": t, "value": 50.0}
        for n in NAMES
        for t in range(1, 11)
        for _ in range(100)
    ]
    pl.DataFrame(rows).write_csv(path)
    nodes = {}
    for name in NAMES:
        records = {"kind": "readings", "path": str(path)}
        nodes[name] = FlowerNode.of(tmp_path, PROBLEM, name, records=records)
    first = run(nodes, private=True)
    path.unlink()
    again = run(nodes, private=True)
    assert again.finish().model == first.finish().model


@pytest.mark.parametrize(
    "change", [{"aggregate_at": 100}, {"calibration": "tight"}, {"estimator": "propagated"}]
)
def test_the_server_does_not_choose_the_age(tmp_path, change):
    """Old enough, nearly no noise would do; but how old is for the client to say."""
    nodes = {name: node(tmp_path, name, stand_in=False) for name in NAMES}
    problem = PROBLEM.replace(mixing="exact", **change)
    for name in NAMES:
        nodes[name] = node(tmp_path, name, stand_in=False, problem=PROBLEM.replace(mixing="exact"))
    with pytest.raises(aw.RunIncomplete, match="order"):
        run(nodes, aw.plan(problem), private=True)
    assert not any(
        (tmp_path / name / "releases.ledger").exists() and events(tmp_path, name) for name in NAMES
    )


class QueueingGrid(FlowerGrid):
    """A grid that hands out no answer to an order before it was asked for so many times."""

    def pull_messages(self, message_ids):
        self.asked = getattr(self, "asked", 0) + 1
        ready = [i for i in message_ids if self.asked % 40 == 0 or i not in self.orders()]
        return super().pull_messages(ready)

    def orders(self):
        return {m.metadata.message_id for _, m in self.pushed if m.metadata.message_type == "train"}


def test_orders_that_merely_queue_are_not_sent_again(nodes):
    grid = QueueingGrid(nodes.values())
    server = carry_out(grid, PLAN, settings(slot_timeout=300.0))  # an order lives for 100 s
    assert server.finish().participants == tuple(NAMES)
    assert sorted(n for n, _ in kinds(grid, "train")) == sorted(grid.nodes)


def test_an_order_to_a_node_that_is_gone_does_not_wait_until_it_expires(nodes, clock):
    begun = clock.time()
    grid = FlowerGrid(nodes.values())
    old = next(k for k, v in grid.nodes.items() if v is nodes["client 1"])

    def fault(message):
        if message.metadata.message_type == "train" and old in grid.nodes:
            grid.nodes[999] = grid.nodes.pop(old)  # it crashes, and comes back as another one
            return False
        return None

    nodes["client 1"].fault = fault
    server = carry_out(grid, PLAN, settings(slot_timeout=3000.0))  # an order lives for 1000 s
    assert clock.time() - begun < 1000.0
    assert server.finish().participants == tuple(NAMES)
