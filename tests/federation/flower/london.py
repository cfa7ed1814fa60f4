"""The London plan on nodes in this process."""

import tempfile
from pathlib import Path

import numpy as np
from grid import InProcessGrid, Node

import agewise as aw
from agewise.federation.flower import client_app, server_app
from agewise.federation.flower.node import write_node
from agewise.federation.flower.publication import Publisher
from agewise.federation.flower.transport import FlowerSettings

PROBLEM = aw.scenarios.london()
PLAN = aw.plan(PROBLEM)
SEED = int(np.random.default_rng(11).integers(2**63))
NAMES = [c.name for c in PROBLEM.clients]


def node(folder, name, stand_in=True, policy=aw.Policy(), problem=PROBLEM):  # noqa: B008
    path = folder / name / "node.toml"
    write_node(
        path,
        problem,
        name,
        records={"kind": "simulated", "seed": SEED},
        policy=policy,
        stand_in_seed=SEED if stand_in else None,
    )
    return Node(client_app.app, {"agewise-config": str(path)})


def settings(**changes):
    base = {"run": "run", "private": False, "wait": 60.0, "slot_timeout": 60.0}
    return FlowerSettings(**{**base, **changes})


def carry_out(grid, plan, settings, folder=None):
    """The ServerApp's work, published in a folder, or nowhere that anybody looks."""
    with tempfile.TemporaryDirectory() as away:
        return server_app.carry_out(grid, plan, settings, Publisher(folder or Path(away)))


def run(nodes, plan=PLAN, **changes):
    return carry_out(InProcessGrid(nodes.values()), plan, settings(**changes))


def events(tmp_path, name):
    with aw.Ledger.read(tmp_path / name / "releases.ledger") as ledger:
        return ledger.events()


def kinds(grid, kind):
    """To which nodes messages of a type went, and what they carried."""
    return [
        (n, set(m.content["agewise"])) for n, m in grid.pushed if m.metadata.message_type == kind
    ]
