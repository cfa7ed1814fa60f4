"""Every test of this folder goes by a clock of its own."""

import contextlib
from collections import defaultdict

import pytest
from clock import Clock
from flwr.app import Context, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from grid import InProcessGrid, Node
from london import NAMES, node

import agewise as aw
from agewise.federation.flower import client_app, engine, transport
from agewise.federation.flower import federation as nodes_of
from agewise.federation.flower.server_app import make_server_app
from agewise.federation.flower.submission import Submission
from agewise.privacy.ledger import LedgerDamaged


@pytest.fixture(autouse=True)
def identity():
    """Messages made outside of a Flower process need to be told whose they are."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Server and nodes go by one clock, which only waiting moves on."""
    made = Clock()
    monkeypatch.setattr(transport, "time", made)
    monkeypatch.setattr(client_app, "time", made)
    return made


@pytest.fixture
def nodes(tmp_path):
    return {name: node(tmp_path, name) for name in NAMES}


@pytest.fixture
def federation(monkeypatch):
    """Nodes by client; what is submitted runs on them at once, and publishes as it would."""
    nodes, grids = defaultdict(lambda: Node(client_app.app, None)), []
    monkeypatch.setattr(nodes_of, "bring_up", lambda *_, **__: None)
    monkeypatch.setattr(nodes_of, "bring_down", lambda _: None)
    monkeypatch.setattr(Submission, "_status", lambda _: "finished:completed")

    def submit(deployment, app):
        for one in deployment.nodes:
            path = deployment.folder / one.folder / "node.toml"
            nodes[one.name].config = {"agewise-config": str(path)}
        grids.append(InProcessGrid(nodes[one.name] for one in deployment.nodes))
        context = Context(len(grids), 0, {}, RecordDict(), {})
        monkeypatch.setenv("FLWR_HOME", deployment.environment["FLWR_HOME"])
        with contextlib.suppress(aw.RunIncomplete, LedgerDamaged):
            make_server_app(app / "agewise_run")(grids[-1], context)
        return str(len(grids))

    monkeypatch.setattr(engine, "submit", submit)
    return nodes, grids
