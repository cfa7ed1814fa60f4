"""Orders name the newest release that the server holds: a client that lacks it notices."""

import json
import shutil
from functools import partial

import numpy as np
import pytest

import agewise as aw
from agewise.federation import Order, SimulatedRecords, check_rounds, check_run
from agewise.privacy import Ledger, LedgerForked, LedgerRolledBack
from parties import BadMessage, ClientAgent, Profile, Server, Upload, private_noise

CHAIN = aw.birth_death(0.2, 0.3, [1, 2, 3])


def problem(clients=3, rounds=3):
    crowd = [aw.Client(f"c{i}", CHAIN, samples=5) for i in range(clients)]
    every = None if rounds == 1 else 5
    return aw.Problem(crowd, 4, 0.5, calibration="sharp", rounds=rounds, every=every)


def orders_in(folder):
    lines = (folder / "journal.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("own", [True, False])
def test_each_round_is_told_what_the_earlier_ones_have_heard(tmp_path, own):
    where = None if own else tmp_path / "all.ledger"
    aw.run_rounds(aw.plan(problem()), folder=tmp_path / "run", ledgers=where)
    first, *others = (orders_in(tmp_path / "run" / f"0000{i}") for i in (1, 2, 3))
    assert first[0]["input"] != "heads"
    for number, entries in enumerate(others, start=1):
        assert entries[0]["input"] == "heads"
        assert entries[0]["heads"].keys() == {"c0", "c1", "c2"}
        assert all(one.endswith(f"-0000{number}") for one in entries[0]["heads"].values())
    assert not check_rounds(tmp_path / "run").differences


@pytest.mark.parametrize("many", [False, True])
def test_guarantee_a_ledger_that_was_set_back_between_rounds_is_refused(tmp_path, many):
    """Ledgers in the run's own folder, of which this machine remembers nothing."""
    folder, clients = tmp_path / "run", 105 if many else 3
    kept = folder / ("clients.ledger" if many else "ledgers")
    plan = aw.plan(problem(clients))
    aw.run_rounds(plan, rounds=1, folder=folder)
    copy = shutil.copy if many else shutil.copytree
    copy(kept, tmp_path / "old")
    aw.resume_rounds(folder, rounds=2)
    (shutil.rmtree if not many else type(kept).unlink)(kept)
    copy(tmp_path / "old", kept)
    with pytest.raises((LedgerRolledBack, aw.RunIncomplete), match="is an old copy: the server"):
        aw.resume_rounds(folder, rounds=3)
    assert not (folder / "00003").exists()  # before anything was released


def order(plan, run, heads=None):
    server = Server(plan, run)
    server.remember(heads or {})
    slot = next(a.collect_at for a in plan.assignments if a.client == "c0")
    return server, next(one for one in server.orders(slot) if one.client == "c0")


def test_guarantee_a_client_notices_by_the_order_alone(tmp_path):
    plan = aw.plan(problem(rounds=1))
    policy = aw.Policy(9.0)
    client = plan.problem.clients[0]
    profile = Profile.of(client, plan.problem, policy, 0)

    def answer(path, one):
        with Ledger(path, witnessed=False) as ledger:
            who = ClientAgent(profile, SimulatedRecords(client, 1), ledger, private_noise)
            who.rehearse(one)
            return who.answer(one)

    path, copy = tmp_path / "north.ledger", tmp_path / "copy.ledger"
    server, first = order(plan, "first")
    Ledger(path, witnessed=False).close()
    shutil.copy(path, copy)
    assert first.head == ""
    server.receive(answer(path, first), 4)
    heads = server.newest()
    _, second = order(plan, "second", heads)
    assert second.head == heads["c0"]
    with pytest.raises(LedgerRolledBack, match="holds a release of client 'c0' in run 'first'"):
        answer(copy, second)
    answer(copy, first)  # the other copy in use: other bytes for the same run
    with pytest.raises(LedgerForked, match="a copy of it are both in use"):
        answer(copy, second)
    answer(path, second)


def test_a_late_upload_counts_and_journals_play_again():
    plan = aw.plan(problem(rounds=1))
    server, _ = order(plan, "first", {"c0": "digest earlier", "c9": "digest earlier"})
    again = Server(plan, "first")
    for entry in json.loads(json.dumps(server.inputs)):
        again.feed(entry)
    assert again.heads == server.heads == again.newest()
    groups = server.orders(max(a.collect_at for a in plan.assignments)).groups
    for alike in groups:
        for name in alike.names:
            assert alike.of(name).head == server.heads.get(name, "")
            assert alike.only([name]).first.head == server.heads.get(name, "")


def test_messages_of_version_3_in_both_shapes_are_read(tmp_path):
    """The first had no rounds and no members; both had no head."""
    plan = aw.plan(problem(rounds=1))
    _, new = order(plan, "first")
    assert new.version == 4
    document = json.loads(new.encode())
    second = {k: v for k, v in document.items() if k != "head"} | {"version": 3}
    first = {k: v for k, v in second.items() if k not in ("rounds", "every", "promise", "members")}
    for one in (first, second):
        read = Order.decode(json.dumps(one).encode())
        assert (read.rounds, read.every, read.promise, read.members) == (1, None, "present", 1)
        assert read.head == ""
    with pytest.raises(BadMessage, match="version"):
        Order.decode(json.dumps({**document, "version": 2}).encode())
    with Ledger(tmp_path / "a.ledger", witnessed=False) as ledger:
        client = plan.problem.clients[0]
        profile = Profile.of(client, plan.problem, aw.Policy(9.0), 0)
        payload = ClientAgent(profile, SimulatedRecords(client, 1), ledger, private_noise).answer(
            new
        )
    upload = json.loads(payload)
    del upload["members"]
    read = Upload.decode(json.dumps({**upload, "version": 3}).encode())
    assert (read.version, read.members) == (3, 1)


def test_a_run_with_uploads_of_version_3_is_checked_as_it_was_written(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    with monkeypatch.context() as before:
        before.setattr("agewise.federation.client.Upload", partial(Upload, version=3))
        aw.run(aw.plan(aw.scenarios.london()), rng=np.random.default_rng(0), folder=folder)
    assert '\\"version\\":3' in (folder / "journal.jsonl").read_text()
    settings = folder / "run.json"
    settings.write_text(settings.read_text().replace('"version": 5', '"version": 4'))
    assert not check_run(folder).differences


def test_guarantee_clients_that_answer_together_notice_too(tmp_path):
    """Where nobody tries beforehand, since whoever is missing is left out."""
    folder, kept = tmp_path / "run", tmp_path / "run" / "clients.ledger"
    plan = aw.plan(problem(105))
    aw.run_rounds(plan, rounds=1, folder=folder, on_missing="renormalise")
    shutil.copy(kept, tmp_path / "old")
    aw.resume_rounds(folder, rounds=2)
    kept.unlink()
    shutil.copy(tmp_path / "old", kept)
    with pytest.raises(aw.RunIncomplete):
        aw.resume_rounds(folder, rounds=3)
    inputs = [one["input"] for one in orders_in(folder / "00003")]
    assert inputs.count("refused") == 105
    assert not {"received", "received alike"} & set(inputs)
