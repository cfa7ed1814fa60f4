"""The Flower engine from outside: a run's folder, what it keeps, and how a failed run goes on.

Flower's processes are left out: what is submitted runs on a grid in this process.
"""

import contextlib
import json

import numpy as np
import pytest
from flwr.app import Context, Error, Message, RecordDict
from grid import InProcessGrid, Node
from typer.testing import CliRunner

import agewise as aw
from agewise.cli import app
from agewise.federation.flower import client_app, engine
from agewise.federation.flower.deployment import Deployment
from agewise.federation.flower.publication import RESULT, STEPS, folder_in
from agewise.federation.flower.server_app import make_server_app
from agewise.federation.flower.submission import Submission

PROBLEM = aw.scenarios.london()
PLAN = aw.plan(PROBLEM)
NAMES = [c.name for c in PROBLEM.clients]


@pytest.fixture
def federation(monkeypatch):
    """Nodes by client; what is submitted runs on them at once, and publishes as it would."""
    nodes, grids = {name: Node(client_app.app, None) for name in NAMES}, []
    monkeypatch.setattr(engine, "bring_up", lambda *_, **__: None)
    monkeypatch.setattr(engine, "bring_down", lambda _: None)
    monkeypatch.setattr(Submission, "_status", lambda _: "finished:completed")

    def submit(deployment, app):
        for one in Deployment.load(deployment.folder).nodes:
            path = deployment.folder / one.folder / "node.toml"
            nodes[one.name].config = {"agewise-config": str(path)}
        grids.append(InProcessGrid(nodes.values()))
        context = Context(len(grids), 0, {}, RecordDict(), {})
        monkeypatch.setenv("FLWR_HOME", deployment.environment["FLWR_HOME"])
        with contextlib.suppress(aw.RunIncomplete):
            make_server_app(app / "agewise_run")(grids[-1], context)
        return str(len(grids))

    monkeypatch.setattr(engine, "submit", submit)
    return nodes, grids


def refusing(kind, word):
    def fault(message):
        asked = "order" in message.content["agewise"]
        refused = asked and message.metadata.message_type.startswith(kind)
        return Message(Error(6, word), reply_to=message) if refused else None

    return fault


def events(folder, name):
    number = NAMES.index(name) + 1
    (path,) = (folder / "deployment" / "nodes").glob(f"{number:03d}-*/releases.ledger")
    with aw.Ledger.read(path) as ledger:
        return ledger.events()


def ordered(grid):
    return {n for n, m in grid.pushed if m.metadata.message_type == "train"}


@pytest.mark.parametrize("kind", ["train", "query"])
def test_guarantee_a_failed_run_is_resumed_once_its_reason_is_repaired(tmp_path, federation, kind):
    nodes, _ = federation
    folder, last = tmp_path / "run", NAMES[int(np.argmax(PLAN.collect_at))]
    nodes[last].fault = refusing(kind, "records")
    with pytest.raises(aw.RunIncomplete, match=rf"{last}.*records.* --resume {folder}"):
        aw.run(PLAN, "flower", folder=folder)
    record = json.loads((folder / "record.json").read_text())
    assert not record["complete"]
    heard = set(NAMES) - {last} if kind == "train" else set()
    released = {name: events(folder, name) for name in heard}
    nodes[last].fault = None
    result = aw.resume(folder)
    assert result.participants == tuple(NAMES)
    for name in NAMES:
        assert len(events(folder, name)) == 1
        assert events(folder, name) == released.get(name, events(folder, name))
    record = json.loads((folder / "record.json").read_text())
    assert record["complete"]
    assert len(record["earlier_failures"]) == 1
    assert last in record["earlier_failures"][0]
    app = "".join(p.read_text() for p in (folder / "app").rglob("*") if p.is_file())
    for name in heard:  # every node gets the app
        assert str(json.loads(released[name][0].payload)["value"][0]) not in app
    with pytest.raises(aw.InvalidInput, match="of a run that has ended"):
        aw.resume(folder)


def test_a_budget_that_is_refused_beforehand_has_its_exit_code(tmp_path, federation):
    nodes, grids = federation
    nodes["client 2"].fault = refusing("query", "budget")
    with pytest.raises(aw.BudgetExceeded, match=r"client 2 would not follow the plan \(budget\)"):
        aw.run(PLAN, "flower", folder=tmp_path / "run")
    assert not ordered(grids[0])
    nodes["client 2"].fault = refusing("query", "ledger")
    with pytest.raises(aw.RunIncomplete, match="ledger"):
        aw.resume(tmp_path / "run")


class Killed(BaseException):
    """What ends a process at once."""


def published_in(folder, number=1):
    return folder_in(folder / "deployment" / "flwr", number)


def test_guarantee_a_result_is_taken_over_though_its_submitter_was_killed(
    tmp_path, federation, monkeypatch
):
    _, grids = federation
    folder, told = tmp_path / "run", []

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Submission, "wait", killed)
        with pytest.raises(Killed):
            aw.run(PLAN, "flower", np.random.default_rng(11), folder=folder)
    result = aw.resume(folder, watch=lambda step, *_: told.append(step.what))
    assert result.model == aw.run(PLAN, rng=np.random.default_rng(11)).model
    assert len(grids) == 1  # nobody was asked again
    assert told.count("uploaded") == len(NAMES)


def test_a_run_that_left_no_result_is_submitted_again(tmp_path, federation, monkeypatch):
    _, grids = federation
    folder = tmp_path / "run"

    def die(*_):
        (published_in(folder) / RESULT).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Submission, "wait", die)
        with pytest.raises(KeyboardInterrupt):
            aw.run(PLAN, "flower", np.random.default_rng(11), folder=folder)
    result = aw.resume(folder)
    assert result.model == aw.run(PLAN, rng=np.random.default_rng(11)).model
    assert len(grids) == 2
    for name in NAMES:
        assert len(events(folder, name)) == 1


@pytest.mark.parametrize(
    ("name", "damage", "why"),
    [
        (RESULT, lambda text: text[: len(text) // 2], "EOF while parsing"),
        (RESULT, lambda text: text.replace('"run": "', '"run": "other '), "of run 'other "),
        (RESULT, lambda text: text.replace('"version": 2', '"version": 1'), "version"),
        (RESULT, lambda _: "[]", "should be an object"),
        (STEPS, lambda text: text + "{}\n", "line 19"),
    ],
)
def test_what_no_serverapp_of_this_run_wrote_is_refused(
    tmp_path, federation, monkeypatch, name, damage, why
):
    folder, wait = tmp_path / "run", Submission.wait

    def tampered(submission):
        path = published_in(folder) / name
        path.write_text(damage(path.read_text()))
        return wait(submission)

    with monkeypatch.context() as patch:
        patch.setattr(Submission, "wait", tampered)
        with pytest.raises(aw.RunIncomplete, match=why) as refusal:
            aw.run(PLAN, "flower", np.random.default_rng(11), folder=folder)
    assert str(published_in(folder) / name) in str(refusal.value)
    assert not (folder / "record.json").exists()
    (folder / "submission.json").unlink()  # as it says
    assert aw.resume(folder).model == aw.run(PLAN, rng=np.random.default_rng(11)).model


def test_a_result_on_another_machine_is_copied_and_taken_over(tmp_path, federation, monkeypatch):
    _, grids = federation
    there, wait = tmp_path / "there", Submission.wait

    def out_of_sight(submission):
        submission.publication.folder.rename(there)
        return wait(submission)

    with monkeypatch.context() as patch:
        patch.setattr(Submission, "wait", out_of_sight)
        command = ["run", "--engine", "flower", "--seed", "11", "--out", str(tmp_path / "runs")]
        told = str(CliRunner().invoke(app, command).exception)
    (folder,) = (tmp_path / "runs").iterdir()
    assert "not on this machine: it is where the ServerApp ran, in the folder agewise/1 of" in told
    assert f"Copy that folder to {published_in(folder)}, then resume the run" in told
    assert "Released already: nothing (as far as this folder tells" in told
    there.rename(published_in(folder))
    assert aw.resume(folder).participants == tuple(NAMES)
    assert len(grids) == 1
