"""Every test of this folder goes by a clock of its own."""

import pytest
from clock import Clock
from flwr.supercore.task_identity import TaskIdentity
from london import NAMES, node

from agewise.federation.flower import client_app, transport


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
