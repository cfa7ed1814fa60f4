"""Noise that the server draws once: promises kept, one draw per run, and no mean let out."""

import contextlib
import hashlib
import json
import os
import sqlite3
import stat
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import agewise as aw
import in_process
from agewise.federation import SimulatedRecords, check_run, one_draw
from agewise.privacy import Ledger, LedgerDamaged, Policy
from parties import (
    DRAWS,
    ClientAgent,
    OneDraw,
    OrderRefused,
    Profile,
    RunFolder,
    Server,
    Upload,
    Uploads,
    private_noise,
    stand_in_noise,
    sum_up,
)

LONDON = aw.scenarios.london().replace(noise="server", mixing="exact", calibration="sharp")
PLAN = aw.plan(LONDON.replace(estimator="propagated"))
"""Of three clients that collect in different slots."""
RIDGE = aw.Ridge([[0, 1], [1, 1], [0, 2], [3, 0]], [20, 50, 100, 200])
KINDS = {
    "plain": {"estimator": "plain"},
    "propagated": {"estimator": "propagated"},
    "best": {"estimator": "best"},
    "gaussian": {"estimator": "best", "mechanism": "gaussian", "delta": 1e-6},
    "histogram": {"estimator": "propagated", "learner": aw.Histogram()},
    "best histogram": {"estimator": "best", "learner": aw.Histogram()},
    "ridge": {"estimator": "propagated", "learner": RIDGE},
    "best ridge": {"estimator": "best", "learner": RIDGE},
}


def agent(name="client 1", ledger=None, draw=private_noise, plan=PLAN, **profile):
    client = next(c for c in plan.problem.clients if c.name == name)
    mine = replace(Profile.of(client, plan.problem, profile.pop("policy", Policy())), **profile)
    return ClientAgent(mine, SimulatedRecords(client, 5), ledger, draw)


def order_for(name="client 1", plan=PLAN):
    slot = next(a.collect_at for a in plan.assignments if a.client == name)
    return next(o for o in Server(plan, "run").orders(slot) if o.client == name)


def mean_of(name, plan=PLAN):
    """What a client's mean is without noise."""
    one, order = agent(name, plan=plan), order_for(name, plan)
    records = one.source.collect(order.collect_at, order.samples)
    return one.train(one.check(order), records).tolist()


def drawn(folder):
    """The draws in the server's ledger of a run's folder."""
    with Ledger.read(folder / DRAWS) as ledger:
        events = ledger.events()
    assert events[0].key.endswith(" opened")
    return [json.loads(event.payload) for event in events if "aggregate" in event.payload.decode()]


def uploads(folder):
    entries = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    return [json.loads(e["payload"]) for e in entries if e["input"] == "received"]


# --- the client


def test_guarantee_a_client_records_its_mean_before_it_sends_it_without_noise(tmp_path):
    with Ledger(tmp_path / "one.ledger") as ledger:
        payload = agent(ledger=ledger).answer(order_for())
        (event,) = ledger.events()
        assert agent(ledger=ledger).answer(order_for()) == payload == event.payload
    upload = Upload.decode(payload)
    assert upload.value == mean_of("client 1")
    assert (upload.noise, event.noise, event.private) == ("server", "server", True)
    assert order_for().noise_scale <= upload.noise_scale == event.scale
    assert event.scale == pytest.approx(order_for().noise_scale, rel=1e-14)
    assert 0 < upload.aged_epsilon <= LONDON.epsilon
    assert upload.classical_epsilon == pytest.approx(event.sensitivity / event.scale)


def test_a_rehearsal_claims_nothing_for_what_the_server_will_draw():
    upload = Upload.decode(agent(draw=stand_in_noise(5, "client 1")).answer(order_for()))
    assert not upload.private
    assert upload.classical_epsilon is None
    assert upload.value == mean_of("client 1")


@pytest.mark.parametrize(
    ("change", "profile", "words"),
    [
        ({"noise_scale": 0.5}, {}, "asks client 'client 1' for a noise scale of 0.5"),
        ({"noise": "client"}, {}, "noise is client in the order; client 'client 1' allows server"),
        ({}, {"noise": "client"}, "noise is server in the order; client 'client 1' allows client"),
        (
            {},
            {"policy": Policy(allow_server_noise=False)},
            r"noise is server in the order; the policy .* \(allow_server_noise\)",
        ),
    ],
)
def test_a_client_refuses_other_noise_than_its_own(tmp_path, change, profile, words):
    with Ledger(tmp_path / "one.ledger") as ledger:
        one = agent(ledger=ledger, **profile)
        with pytest.raises(OrderRefused, match=words):
            one.answer(order_for().model_copy(update=change))
        assert not ledger.events()


def test_the_command_line_can_forbid_noise_by_the_server(tmp_path):
    command = ["run", "--noise", "server", "--forbid-server-noise", "--out", str(tmp_path)]
    done = in_process.command(*command)
    assert "allow_server_noise" in done.stderr
    assert done.returncode == 4
    assert not list(tmp_path.iterdir())


def test_clients_of_one_scenario_cannot_differ_in_whom_they_trust(tmp_path):
    text = aw.dump_scenario(LONDON).replace(
        'name = "client 2"', 'name = "client 2"\nnoise = "client"'
    )
    (tmp_path / "mixed.toml").write_text(text)
    with pytest.raises(aw.InvalidInput, match="noise"):
        aw.load_scenario(tmp_path / "mixed.toml")


# --- the server


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"value": [200.1]}, "out of range"),
        ({"value": [19.9]}, "out of range"),
        ({"value": [float("nan")]}, "not finite"),
        ({"noise": "client"}, "wrong noise"),
        ({"noise": None}, "malformed"),
        ({"noise_scale": 1e9}, "false claim"),
        ({"noise_scale": 0.1}, "too little noise"),
    ],
)
def test_uploads_that_no_client_makes_are_rejected(change, reason):
    plan = aw.plan(LONDON.replace(estimator="plain"))
    server, order = Server(plan, "run"), order_for("client 2", plan)
    for slot in range(1, order.collect_at):
        server.close(slot)
    payload = agent("client 2", plan=plan).answer(order)
    odd = json.dumps({**json.loads(payload), **change}).encode()
    assert server.receive(odd, order.collect_at) == reason
    assert server.receive(payload, order.collect_at) is None


def test_the_range_is_that_of_what_is_released_in_the_slot():
    """Moved forward in time, records have a narrower range than their states."""
    server, order = Server(PLAN, "run"), order_for("client 2")
    odd = json.loads(agent("client 2").answer(order)) | {"value": [190.0]}
    assert server.receive(json.dumps(odd).encode(), order.collect_at) == "out of range"


@pytest.mark.parametrize("on_missing", ["fail", "renormalise", "replan"])
@pytest.mark.parametrize("kind", KINDS)
def test_guarantee_one_draw_keeps_every_promise(tmp_path, kind, on_missing):
    plan = aw.plan(LONDON.replace(**KINDS[kind]))
    gone = [] if on_missing == "fail" else ["client 2"]
    result = aw.run(plan, folder=tmp_path / "run", on_missing=on_missing, drop=gone)
    (record,) = drawn(tmp_path / "run")
    assert tuple(record["aggregate"]) == result.aggregate
    assert len(result.participants) == 3 - len(gone)
    rows = {row.client: row for row in result.statement.clients}
    for upload in uploads(tmp_path / "run"):
        gain, row = record["gains"][upload["client"]], rows[upload["client"]]
        effective = Fraction(record["drawn_scale"]) / abs(Fraction(gain))
        assert effective >= Fraction(upload["noise_scale"]) == Fraction(row.noise_scale)
        assert row.aged_epsilon <= LONDON.epsilon
    assert result.statement.draw_scale <= record["drawn_scale"]
    assert not check_run(tmp_path / "run").differences


def test_guarantee_the_sum_is_what_the_gains_make_of_the_means(tmp_path):
    aw.run(PLAN, folder=tmp_path / "run")
    (record,) = drawn(tmp_path / "run")
    means = {one["client"]: one["value"][0] for one in uploads(tmp_path / "run")}
    weights = dict(zip(record["gains"], LONDON.weights, strict=True))
    assert record["gains"] == pytest.approx(weights)
    assert record["value"] == [pytest.approx(sum(weights[n] * means[n] for n in means))]


@pytest.mark.parametrize(
    ("draws", "off"), [(3_000, 0.1), pytest.param(20_000, 0.05, marks=pytest.mark.slow)]
)
def test_guarantee_the_noise_has_the_scale_that_it_states(draws, off):
    """The right scale passes a test, by over five standard errors, that twice as much fails."""
    server, total = Server(PLAN, "run"), None

    def remember(due):
        nonlocal total
        total = due
        return due.value

    for slot in range(1, LONDON.aggregate_at + 1):
        for order in server.orders(slot):
            server.receive(agent(order.client).answer(order), slot)
        server.close(slot)
    server.finish(remember)
    noise = [OneDraw("run", None)(total)[0] - total.value[0] for _ in range(draws)]
    sizes = np.abs(noise).mean() / total.scale  # of Laplace noise: 1, standard error 1/√draws
    assert abs(sizes - 1) < off
    assert abs(sizes / (1 - 2 * off) - 1) > off


def test_a_client_that_rounding_would_drown_is_left_out():
    """Its promise is for noise so large that rounding alone would break it."""
    plan = aw.plan(LONDON.replace(estimator="best"))
    several = [
        Upload.decode(agent(a.client, plan=plan).answer(order_for(a.client, plan)))
        for a in plan.assignments
    ]
    tiny = replace(plan, gains=[plan.gains[0], plan.gains[1], 1e-17])
    promised = plan.draw_scale / 1e-17
    several[2] = several[2].model_copy(update={"noise_scale": promised})
    due = sum_up(tiny, "run", several, {one.client: 200.0 for one in several})
    assert due.gains["client 3"] == 0.0
    assert due.scale == pytest.approx(plan.draw_scale)


@pytest.mark.parametrize("kind", ["best", "gaussian"])
def test_a_client_that_is_hardly_heard_can_still_follow(kind):
    """Its noise is beyond what OpenDP can reckon with; the run ends all the same."""
    plan = aw.plan(LONDON.replace(**KINDS[kind]))
    last = replace(plan.assignments[2], noise_scale=1e300, classical_epsilon=0.0, aged_epsilon=0.0)
    tiny = replace(plan, assignments=(*plan.assignments[:2], last), gains=[*plan.gains[:2], 1e-310])
    server = Server(tiny, "run")
    for slot in range(1, LONDON.aggregate_at + 1):
        for order in server.orders(slot):
            assert server.receive(agent(order.client, plan=plan).answer(order), slot) is None
        server.close(slot)
    assert server.finish(OneDraw("run", None)).statement.draw_scale < 2 * plan.draw_scale


def test_real_records_need_a_folder_for_the_servers_ledger(tmp_path):
    (tmp_path / "readings.csv").touch()
    with pytest.raises(aw.InvalidInput, match=r"folder is None.*where the server adds the noise"):
        aw.run(PLAN, sources=tmp_path / "readings.csv", ledgers=tmp_path)


# --- the server's ledger


def interrupted(folder, monkeypatch, step="write"):
    """A run that ends just before its record and statement are written."""

    class Stop(BaseException):
        pass

    plain = getattr(RunFolder, step)

    def stop(place, name, *rest):
        if name == "statement.md":
            raise Stop
        return plain(place, name, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, step, stop)
        with contextlib.suppress(Stop):
            aw.run(PLAN, folder=folder)
    assert not (folder / "record.json").exists()


def test_guarantee_a_run_is_opened_in_the_ledger_before_any_order(tmp_path, monkeypatch):
    seen = []
    answer = ClientAgent.answer

    def looking(one, order):
        with Ledger.read(tmp_path / "run" / DRAWS) as ledger:
            seen.append([event.key for event in ledger.events()])
        return answer(one, order)

    monkeypatch.setattr(ClientAgent, "answer", looking)
    result = aw.run(PLAN, folder=tmp_path / "run")
    assert seen == [[f"{result.run} opened"]] * 3


def test_guarantee_a_resumed_run_publishes_the_draw_that_was_recorded(tmp_path, monkeypatch):
    interrupted(tmp_path / "run", monkeypatch)
    (record,) = drawn(tmp_path / "run")
    result = aw.resume(tmp_path / "run")
    assert list(result.aggregate) == record["aggregate"]
    assert drawn(tmp_path / "run") == [record]


def spoil(path, how):
    if how == "missing":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "another":
        path.unlink()
        Ledger(path).close()
    else:
        with sqlite3.connect(path) as database:
            database.execute("UPDATE events SET scale = scale + 1")
        database.close()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("missing", "is missing"),
        ("empty", "is damaged: the file is empty"),
        ("another", "does not hold the opening of run"),
        ("changed", "is not what was written"),
    ],
)
def test_guarantee_nothing_is_published_without_the_servers_ledger(
    tmp_path, monkeypatch, how, words
):
    folder = tmp_path / "run"
    answer = ClientAgent.answer

    def spoiling(one, order):
        payload = answer(one, order)
        if order.collect_at == max(PLAN.collect_at):
            spoil(folder / DRAWS, how)
        return payload

    with monkeypatch.context() as patch:
        patch.setattr(ClientAgent, "answer", spoiling)
        with pytest.raises(LedgerDamaged, match=f"{words}.*nothing is published") as refusal:
            aw.run(PLAN, folder=folder)
    assert refusal.value.exit_code == 2
    assert not (folder / "record.json").exists()
    with pytest.raises(LedgerDamaged, match=words):
        aw.resume(folder)
    assert not (folder / "record.json").exists()


def test_a_recorded_draw_is_never_published_for_another_sum(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    interrupted(folder, monkeypatch)
    run = json.loads((folder / "run.json").read_text())["run"]
    server = Server(PLAN, run)
    RunFolder.rebuilt(folder, server)
    upload, payload = server.received["client 1"]
    other = upload.model_copy(update={"value": [upload.value[0] + 1]})
    server.received.add(Uploads.single(other, payload))
    with pytest.raises(LedgerDamaged, match=r"for another sum .*\(value\)"):
        server.finish(OneDraw(run, folder / DRAWS))


def test_a_server_that_adds_the_noise_does_not_finish_without_a_draw():
    server = Server(PLAN, "run")
    for slot in range(1, LONDON.aggregate_at + 1):
        for order in server.orders(slot):
            server.receive(agent(order.client).answer(order), slot)
        server.close(slot)
    with pytest.raises(aw.InvalidInput, match="draw is none"):
        server.finish()


def test_a_check_finds_a_model_that_the_servers_ledger_does_not_hold(tmp_path):
    folder = tmp_path / "run"
    aw.run(PLAN, folder=folder)
    kept = (folder / DRAWS).read_bytes()
    (folder / DRAWS).unlink()
    with pytest.raises(aw.InvalidInput, match=r"server\.draws"):
        check_run(folder)
    Ledger(folder / DRAWS).close()
    assert any(one.where == DRAWS for one in check_run(folder).differences)
    (folder / DRAWS).write_bytes(kept)
    assert not check_run(folder).differences


def test_a_check_recomputes_the_draw_of_a_rehearsal(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    monkeypatch.setattr(one_draw, "client_generator", lambda *_: np.random.default_rng(8))
    aw.run(PLAN, folder=folder, rng=np.random.default_rng(1))
    monkeypatch.undo()
    assert any("aggregate" in one.where for one in check_run(folder).differences)


# --- what others can see


def readable(folder):
    """The texts of a run's files that others than their owner can read."""
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            yield path.name, path.read_bytes()


@pytest.mark.parametrize("complete", [True, False])
def test_guarantee_no_mean_without_noise_is_let_out(tmp_path, complete):
    told = []
    choices = {} if complete else {"drop": [PLAN.assignments[0].client]}
    folder = tmp_path / "run"
    old = os.umask(0o022)
    try:
        with contextlib.suppress(aw.RunIncomplete):
            aw.run(PLAN, folder=folder, watch=lambda *step: told.append(repr(step)), **choices)
    finally:
        os.umask(old)
    secret = []
    for upload in uploads(folder):
        payload = json.dumps(upload, separators=(",", ":"), ensure_ascii=False).encode()
        secret += [repr(upload["value"][0])[:12].encode()]
        secret += [hashlib.sha256(payload).hexdigest().encode()]
    assert secret
    seen = dict(readable(folder))
    assert {"record.json", "statement.md", "plan.json", "run.json"} <= set(seen)
    assert not {"journal.jsonl", DRAWS} & set(seen)
    assert not any(name.endswith(".ledger") for name in seen)
    for name, text in [*seen.items(), ("steps", "".join(told).encode())]:
        assert not any(one in text for one in secret), name
    statement = json.loads(seen["record.json"])["statement"]
    assert {row["upload_sha256"] for row in statement["clients"]} == {None}


def test_a_check_does_not_show_means_that_differ(tmp_path):
    folder = tmp_path / "run"
    aw.run(PLAN, folder=folder)
    journal = folder / "journal.jsonl"
    value = str(uploads(folder)[0]["value"][0])
    journal.write_text(journal.read_text().replace(value, value[:5]))
    found = [str(one) for one in check_run(folder).differences]
    assert any("other bytes" in one for one in found)
    assert not any(value[:7] in one for one in found)


def test_a_statement_says_first_who_is_trusted(tmp_path):
    once = aw.run(PLAN).statement
    each = aw.run(aw.plan(LONDON.replace(noise="client", estimator="plain"))).statement
    for statement, words in (
        (once, "The server is trusted: it sees the clients' means as they are"),
        (each, "Nobody is trusted with the records: each client adds its noise itself"),
    ):
        assert str(statement).splitlines()[2].startswith(f"**{words}")
        assert list(statement.to_dict())[:3] == ["version", "noise", "trust"]
        assert statement.to_dict()["trust"].startswith(words)
    assert "the classical ε is infinite" in once.trust
    assert f"drawn once by the server, scale {once.draw_scale:.6g} Wh" in str(once)
    with pytest.raises(aw.RunIncomplete):
        aw.run(PLAN, folder=tmp_path / "run", drop=["client 2"])
    assert "has drawn none: nothing was published" in (tmp_path / "run/statement.md").read_text()


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_thousands_of_clients_have_one_draw(count):
    chain = aw.birth_death(0.1, 0.2, [20, 50, 100, 200])
    members = [aw.Client(f"c{i}", chain, samples=50) for i in range(count)]
    problem = aw.Problem(members, 3, 0.5, estimator="plain", noise="server")
    plan = aw.evaluate(problem, [3] * len(members))
    result = aw.run(plan, rng=np.random.default_rng(2))
    assert len(result.statement.clients) == count
    # noise of each client's own would be √count times as large
    assert result.statement.draw_scale == pytest.approx(180 / 50 / 0.5 / count)
    assert result.realised_loss < 100 * plan.gap
