"""The Flower engine from outside: a run's folder, what it keeps, and how a failed run goes on.

Flower's processes are left out: what is submitted runs on a grid in this process.
"""

import contextlib
import json

import numpy as np
import pytest
from flwr.app import Error, Message
from grid import InProcessGrid, Node

import agewise as aw
from agewise.federation.flower import client_app, engine, server_app
from agewise.federation.flower.deployment import Deployment
from agewise.federation.flower.server_app import make_server_app

PROBLEM = aw.scenarios.london()
PLAN = aw.plan(PROBLEM)
NAMES = [c.name for c in PROBLEM.clients]


@pytest.fixture
def federation(monkeypatch):
    """Nodes by client, made from the deployment's files when a run is first submitted."""
    nodes, grids = {}, []
    monkeypatch.setattr(engine, "bring_up", lambda _: None)
    monkeypatch.setattr(engine, "bring_down", lambda _: None)

    class Submission:
        def __init__(self, deployment, app, plan, watch):
            for one in Deployment.load(deployment.folder).nodes:
                path = deployment.folder / one.folder / "node.toml"
                made = nodes.setdefault(one.name, Node(client_app.app, None))
                made.config = {"agewise-config": str(path)}
            self.app, self.grid = app / "agewise_run", InProcessGrid(nodes.values())
            grids.append(self.grid)

        def wait(self):
            found = []
            with pytest.MonkeyPatch.context() as patch, contextlib.suppress(aw.RunIncomplete):
                publish = lambda server, **facts: found.append(  # noqa: E731
                    json.loads(json.dumps({**facts, "journal": server.inputs}))
                )
                patch.setattr(server_app, "_publish", publish)
                make_server_app(self.app)(self.grid, None)
            return found[0]

    monkeypatch.setattr(engine, "Submission", Submission)
    for name in NAMES:
        nodes[name] = Node(client_app.app, None)
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
