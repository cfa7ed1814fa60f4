"""Many rounds on Flower: the local engine's numbers, nodes that keep the pace, and crashes.

Flower's processes are left out: what is submitted runs on a grid in this process.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Error, Message

import agewise as aw
import in_process
from agewise import resume_rounds, run_rounds
from agewise.federation import check_rounds, check_run
from agewise.federation.flower import federation as nodes_of
from agewise.federation.flower.node import Node, write_node
from agewise.federation.flower.submission import Submission
from agewise.testing import Killed
from deployments import init_deployment
from parties import OrderRefused, RunFolder, Server

PROBLEM = aw.scenarios.for_ever()
PLAN = aw.plan(PROBLEM)
EVERY = PROBLEM.every
NAMES = [c.name for c in PROBLEM.clients]


def rounds_of(result):
    """What came of the rounds, but for their names."""
    return [replace(one, run="") for one in result.rounds]


def events(folder, name):
    number = NAMES.index(name) + 1
    (path,) = (folder / "nodes").glob(f"{number:03d}-*/releases.ledger")
    with aw.Ledger.read(path) as ledger:
        return ledger.events()


def slots(folder, name):
    return [(one.collect_at, one.aggregate_at) for one in events(folder, name)]


def planned(name, rounds, starts_at=0):
    """The slots in which a client collects and is published, by the plan."""
    (one,) = (a for a in PLAN.assignments if a.client == name)
    shifts = [starts_at + number * EVERY for number in rounds]
    return [(shift + one.collect_at, shift + PROBLEM.aggregate_at) for shift in shifts]


def taking_turns(*turns):
    members = zip(PROBLEM.clients, turns, strict=True)
    return PROBLEM.replace(level=None, clients=[replace(c, turn=turn) for c, turn in members])


@pytest.mark.parametrize(
    "problem",
    [PROBLEM, PROBLEM.replace(noise="server", aggregate_at=5), taking_turns(2, 1, 4)],
    ids=["client", "server", "turns"],
)
def test_guarantee_rounds_on_flower_give_the_local_engines_numbers(tmp_path, federation, problem):
    _, grids = federation
    plan = aw.plan(problem)
    result = run_rounds(
        plan, np.random.default_rng(11), engine="flower", rounds=4, folder=tmp_path / "run"
    )
    alone = run_rounds(plan, np.random.default_rng(11), rounds=4, folder=tmp_path / "local")
    assert rounds_of(result) == rounds_of(alone)
    assert len(grids) == 4
    assert not check_run(tmp_path / "run" / "00003").differences
    checked = check_rounds(tmp_path / "run")  # it finds the nodes' ledgers by itself
    assert checked.verified == sum(one.participants for one in result.rounds)
    assert not checked.differences
    for name in NAMES:
        with aw.Ledger.read(tmp_path / "local" / "ledgers" / f"{name}.ledger") as ledger:
            expected = ledger.events()
        found = events(tmp_path / "run" / "deployment", name)
        for one, other in zip(found, expected, strict=True):
            assert json.loads(one.payload)["value"] == json.loads(other.payload)["value"]
            alike = {"key": "run", "hash": "", "made_at": "", "payload": b""}
            assert replace(one, **alike) == replace(other, **alike)


def test_guarantee_a_node_answers_in_its_turn_only(tmp_path):
    problem, path = taking_turns(2, 1, 4), tmp_path / "node.toml"
    policy = aw.Policy(1.0)
    write_node(path, problem, NAMES[0], records={"kind": "simulated", "seed": 5}, policy=policy)
    for number, allowed in ((1, True), (2, False), (3, True), (4, False)):
        before = (number - 1) * EVERY
        node = Node(path, before)
        (order,) = (
            order
            for slot in range(1, problem.aggregate_at + 1)
            for order in Server(aw.plan(problem), f"run-{number}").orders(slot)
            if order.client == NAMES[0]
        )
        if allowed:
            node.refuse_round(order, None)
        else:
            with pytest.raises(OrderRefused, match=f"multiples of {2 * EVERY}"):
                node.refuse_round(order, None)


def test_guarantee_a_model_trained_on_flower_is_the_local_engines(tmp_path, federation):
    chain = aw.birth_death(0.3, 0.4, [1, 2, 5])
    clients = [aw.Client(name, chain, samples=50) for name in ("north", "south")]
    learner = aw.Logistic([[1.0], [-1.5], [0.5]], ["no", "yes", "yes"], clip=0.5)
    problem = aw.Problem(clients, 3, 1.0, estimator="plain", learner=learner, rounds=3, every=3)
    plan, rng = aw.plan(problem), np.random.default_rng
    result = run_rounds(plan, rng(11), engine="flower", folder=tmp_path / "run")
    alone = run_rounds(plan, rng(11), folder=tmp_path / "local")
    assert rounds_of(result) == rounds_of(alone)
    assert result.model == alone.model
    assert not check_run(tmp_path / "run" / "00003").differences


def test_guarantee_private_rounds_on_flower_have_the_local_engines_totals(tmp_path, federation):
    result = run_rounds(PLAN, engine="flower", rounds=3, folder=tmp_path / "run", starts_at=EVERY)
    alone = run_rounds(PLAN, rounds=3, folder=tmp_path / "local", starts_at=EVERY)
    assert result.private
    spent = [[(one.epsilon, one.classical) for one in each.rounds] for each in (result, alone)]
    assert spent[0] == spent[1]
    assert all(0 < epsilon <= PROBLEM.epsilon * (1 + 1e-6) for epsilon, _ in spent[0])
    for name in NAMES:
        assert slots(tmp_path / "run" / "deployment", name) == planned(name, range(3), EVERY)


def test_the_federation_of_a_run_stays_up_from_round_to_round(tmp_path, federation, monkeypatch):
    calls = []
    monkeypatch.setattr(nodes_of, "bring_up", lambda *_, **__: calls.append("up"))
    monkeypatch.setattr(nodes_of, "bring_down", lambda _: calls.append("down"))
    run_rounds(PLAN, engine="flower", rounds=3, folder=tmp_path / "run")
    assert calls == ["down", "up", "down"]  # first, whatever is left of an earlier one


def in_round(number, answer):
    """A fault in one round only."""

    def fault(message):
        order = message.content["agewise"].get("order", "")
        return answer(message) if f"-{number:05d}" in order else None

    return fault


def refuses(message):
    return Message(Error(6, "records"), reply_to=message)


def test_guarantee_rounds_are_resumed_in_the_round_that_failed(tmp_path, federation):
    nodes, grids = federation
    folder, rng = tmp_path / "run", np.random.default_rng(11)
    nodes[NAMES[1]].fault = in_round(3, refuses)
    with pytest.raises(aw.RunIncomplete, match=rf"{NAMES[1]}.*agewise rounds --resume {folder}"):
        run_rounds(PLAN, rng, engine="flower", rounds=4, folder=folder)
    assert len(json.loads((folder / "record.json").read_text())["rounds"]) == 2
    nodes[NAMES[1]].fault = None
    result = resume_rounds(folder)
    assert len(grids) == 5  # the third once more
    assert check_rounds(folder).differences == ()  # orders may name what was heard before it failed
    assert rounds_of(result) == rounds_of(run_rounds(PLAN, np.random.default_rng(11), rounds=4))
    longer = resume_rounds(folder, rounds=5)
    assert rounds_of(longer)[:4] == rounds_of(result)
    for name in NAMES:
        assert slots(folder / "deployment", name) == planned(name, range(5))


def test_guarantee_a_round_is_taken_over_though_its_submitter_was_killed(
    tmp_path, federation, monkeypatch
):
    _, grids = federation
    folder, wait = tmp_path / "run", Submission.wait

    def killed(submission):
        if submission.number == "2":
            raise Killed
        return wait(submission)

    with monkeypatch.context() as patch:
        patch.setattr(Submission, "wait", killed)
        with pytest.raises(Killed):
            run_rounds(PLAN, np.random.default_rng(11), engine="flower", rounds=3, folder=folder)
    result = resume_rounds(folder)
    assert len(grids) == 3  # nobody was asked again
    assert rounds_of(result) == rounds_of(run_rounds(PLAN, np.random.default_rng(11), rounds=3))


def test_a_client_that_misses_a_round_is_left_out_of_that_one(tmp_path, federation):
    nodes, _ = federation
    nodes[NAMES[0]].fault = in_round(2, lambda _: False)
    folder = tmp_path / "run"
    result = run_rounds(PLAN, engine="flower", rounds=3, folder=folder, on_missing="renormalise")
    assert [one.missing for one in result.rounds] == [(), (NAMES[0],), ()]
    assert slots(folder / "deployment", NAMES[0]) == planned(NAMES[0], [0, 2])


def test_by_the_wall_clock_rounds_follow_the_first(tmp_path, federation):
    folder = tmp_path / "run"
    timed = {"clock": "wall", "slot_seconds": 20.0}
    run_rounds(PLAN, engine="flower", rounds=3, folder=folder, **timed)
    began = [RunFolder.load(folder / f"{number:05d}")[1].started for number in (1, 2, 3)]
    assert began[0] > 0
    assert np.diff(began).tolist() == [EVERY * 20.0] * 2


@pytest.fixture
def there(tmp_path, monkeypatch):
    """A deployment that is up, as far as can be seen."""
    monkeypatch.setattr(nodes_of, "healthy", lambda _: True)
    return init_deployment(tmp_path / "fed", PROBLEM)


def test_guarantee_a_second_run_on_a_deployment_begins_after_the_first(tmp_path, federation, there):
    def run(name, **choices):
        place = {"folder": tmp_path / name, "deployment": there.folder}
        return run_rounds(PLAN, engine="flower", rounds=2, **place, **choices)

    run("first")
    with pytest.raises(aw.InvalidInput, match=rf"one for slot {2 * EVERY}.*--starts-at"):
        run("again")
    with pytest.raises(aw.InvalidInput, match=f"starts_at is 7; allowed: a multiple of {EVERY}"):
        run("between", starts_at=7)
    run("second", starts_at=2 * EVERY)
    for name in NAMES:
        assert slots(there.folder, name) == planned(name, range(4))


def test_a_plan_with_another_pace_is_not_submitted(tmp_path, federation, there):
    _, grids = federation
    for number, changes in enumerate(({"every": EVERY + 1}, {"rounds": 5})):
        plan = aw.plan(PROBLEM.replace(**changes))
        with pytest.raises(aw.InvalidInput, match="not what the nodes of"):
            run_rounds(
                plan,
                engine="flower",
                rounds=3,
                folder=tmp_path / f"run {number}",
                deployment=there.folder,
            )
    assert not grids


def orders(plan, run="run"):
    server = Server(plan, run)
    found = [o for slot in range(1, PROBLEM.aggregate_at + 1) for o in server.orders(slot)]
    return {order.client: order for order in found}


def node_for(folder, problem, before):
    path = folder / "node.toml"
    if not path.exists():
        records = {"kind": "simulated", "seed": 1}
        write_node(path, problem, NAMES[0], records=records, policy=aw.Policy())
    return Node(path, before)


@pytest.mark.parametrize(
    ("rounds", "before", "why"),
    [
        (3, EVERY // 2, f"allows multiples of {EVERY} up to {2 * EVERY}"),
        (3, -EVERY, f"allows multiples of {EVERY}"),
        (3, 3 * EVERY, f"allows multiples of {EVERY} up to {2 * EVERY}"),
        (None, EVERY + 1, f"allows multiples of {EVERY}$"),
        (1, EVERY, "allows one round only"),
    ],
)
def test_guarantee_a_node_follows_no_other_pace_than_its_own(tmp_path, rounds, before, why):
    many = {"rounds": rounds, "every": None if rounds == 1 else EVERY}
    problem = PROBLEM.replace(**many)
    order = orders(aw.plan(problem))[NAMES[0]]
    for act in ("check", "rehearse", "answer"):
        with pytest.raises(OrderRefused, match=why):
            getattr(node_for(tmp_path, problem, before), act)(order)
    with aw.Ledger(node_for(tmp_path, problem, 0).ledger) as ledger:
        assert not ledger.events()


def test_guarantee_a_node_refuses_a_round_before_one_that_it_has_answered(tmp_path):
    sent, _ = node_for(tmp_path, PROBLEM, 5 * EVERY).answer(orders(PLAN, "sixth")[NAMES[0]])
    early = orders(PLAN, "second")[NAMES[0]]
    for act in ("rehearse", "answer"):
        for before in (EVERY, None):
            with pytest.raises(OrderRefused, match=f"has answered one for slot {6 * EVERY}"):
                getattr(node_for(tmp_path, PROBLEM, before), act)(early)
    again, _ = node_for(tmp_path, PROBLEM, EVERY).answer(orders(PLAN, "sixth")[NAMES[0]])
    assert again == sent


def test_readings_go_on_over_rounds(tmp_path, federation, monkeypatch):
    """A file that ends with the first round has nothing for the second."""
    monkeypatch.setattr(nodes_of, "healthy", lambda _: True)
    lines = ["client,slot,value"]
    for client in PROBLEM.clients:
        for slot in range(1, EVERY + 1):
            states = client.process.states
            lines += [f"{client.name},{slot},{states[i % 4]}" for i in range(client.samples)]
    (tmp_path / "meters.csv").write_text("\n".join(lines))
    made = init_deployment(tmp_path / "fed", PROBLEM, readings=tmp_path / "meters.csv")
    place = {"folder": tmp_path / "run", "deployment": made.folder}
    with pytest.raises(aw.RunIncomplete, match=r"-00002 .*\(records\)"):
        run_rounds(PLAN, engine="flower", rounds=2, **place)
    for name in NAMES:
        assert slots(made.folder, name) == planned(name, [0])


def test_the_command_runs_rounds_on_flower(tmp_path, federation):
    common = ["rounds", "--now", "2", "--seed", "11", "--json"]
    told = []
    for number, more in enumerate((["--engine", "flower"], [])):
        done = in_process.command(*common, *more, "--out", tmp_path / str(number))
        assert done.returncode == 0, done.stderr
        told.append(json.loads(done.stdout)["rounds"])
    assert [one["estimate"] for one in told[0]] == [one["estimate"] for one in told[1]]


@pytest.mark.parametrize(
    ("choices", "field"),
    [
        ({"engine": "flower", "ledgers": "ledgers", "folder": "run"}, "ledgers"),
        ({"engine": "flower", "drop": NAMES[:1], "folder": "run"}, "drop"),
        ({"engine": "flower"}, "folder"),
        ({"engine": "flower", "sources": {}, "folder": "run"}, "sources"),
        ({"deployment": "fed"}, "deployment"),
        ({"engine": "smoke"}, "engine"),
    ],
)
def test_choices_of_the_other_engine_are_refused(tmp_path, monkeypatch, choices, field):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(aw.InvalidInput, match=field):
        run_rounds(PLAN, rounds=2, **choices)
    assert not list(tmp_path.iterdir())
