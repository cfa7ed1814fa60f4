"""The London plan on nodes in this process."""

import tempfile
from pathlib import Path

import numpy as np

import agewise as aw
from agewise.federation.flower import server_app
from agewise.federation.flower.publication import Publisher
from agewise.federation.flower.transport import FlowerSettings
from agewise.testing import FlowerGrid, FlowerNode, releases

PROBLEM = aw.scenarios.london()
PLAN = aw.plan(PROBLEM)
SEED = int(np.random.default_rng(11).integers(2**63))
SIMULATED = {"kind": "simulated", "seed": SEED}
NAMES = [c.name for c in PROBLEM.clients]


def node(folder, name, stand_in=True, policy=None, problem=PROBLEM):
    choices = {"policy": policy, "stand_in_seed": SEED if stand_in else None}
    return FlowerNode.of(folder, problem, name, records=SIMULATED, **choices)


def settings(**changes):
    base = {"run": "run", "private": False, "wait": 60.0, "slot_timeout": 60.0}
    return FlowerSettings(**{**base, **changes})


def carry_out(grid, plan, settings, folder=None):
    """The ServerApp's work, published in a folder, or nowhere that anybody looks."""
    with tempfile.TemporaryDirectory() as away:
        return server_app.carry_out(grid, plan, settings, Publisher(folder or Path(away)))


def run(nodes, plan=PLAN, **changes):
    return carry_out(FlowerGrid(nodes.values()), plan, settings(**changes))


def events(tmp_path, name):
    return releases(tmp_path / name).get(name, [])


def kinds(grid, kind):
    """To which nodes messages of a type went, and what they carried."""
    return [
        (n, set(m.content["agewise"])) for n, m in grid.pushed if m.metadata.message_type == kind
    ]
