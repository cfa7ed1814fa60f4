"""Many rounds on a real federation: processes of Flower, with TLS and keys on."""

import json
import os
import signal
import subprocess
from dataclasses import replace

import numpy as np
import pytest

import agewise as aw
from agewise import run_rounds
from deployments import bring_down, bring_up, init_deployment, read_state, wait_for_nodes

PROBLEM = aw.scenarios.for_ever()
PLAN = aw.plan(PROBLEM)
NAMES = [c.name for c in PROBLEM.clients]
SEED = int(np.random.default_rng(11).integers(2**63))
TEN = 10


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flower") / "fed"
    made = init_deployment(folder, PROBLEM, tls=True, seed=SEED, stand_in=True)
    try:
        bring_up(made, 600)
        wait_for_nodes(made, 600)
        yield made
    finally:
        bring_down(made)


def recorded(path):
    """What a ledger holds, but for the name of the run and the time."""
    with aw.Ledger.read(path) as ledger:
        events = ledger.events()
    alike = {"key": "run", "hash": "", "made_at": "", "payload": b""}
    values = [json.loads(event.payload)["value"] for event in events]
    return values, [replace(event, **alike) for event in events]


@pytest.mark.slow
def test_ten_rounds_give_the_local_engines_numbers_though_a_node_is_killed(federation, tmp_path):
    """Numbers and ledgers; without processes `federation/flower/test_rounds_engine.py` has them."""
    killed = []

    def heard(one, _):
        if one.number == 4:
            process = read_state(federation)["processes"][NAMES[1]]
            os.killpg(process["pid"], signal.SIGKILL)
            killed.append(process)

    result = run_rounds(
        PLAN,
        engine="flower",
        rounds=TEN,
        folder=tmp_path / "run",
        deployment=federation.folder,
        wait=600,
        slot_timeout=600,
        heard=heard,
    )
    alone = run_rounds(PLAN, np.random.default_rng(11), rounds=TEN, folder=tmp_path / "local")
    assert [replace(one, run="") for one in result.rounds] == [
        replace(one, run="") for one in alone.rounds
    ]
    after = read_state(federation)["processes"][NAMES[1]]
    assert after["restarts"] > killed[0]["restarts"]
    for name, node in zip(NAMES, federation.nodes, strict=True):
        found = recorded(federation.folder / node.folder / "releases.ledger")
        assert found == recorded(tmp_path / "local" / "ledgers" / f"{name}.ledger")
        assert len(found[1]) == TEN


APP = """\
[project]
name = "ordinary-app"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "somebody"

[tool.flwr.app.components]
serverapp = "ordinary.server_app:app"
clientapp = "ordinary.client_app:app"

[tool.flwr.app.config]
"""

CLIENT = """\
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from agewise.federation.flower.client_app import introduce
from agewise.federation.flower.mod import age_dp_mod

app = ClientApp(mods=[age_dp_mod(clip=1.0)])
app.query("agewise")(introduce)


@app.train()
def train(message, context):
    moved = message.content["arrays"]["w"].numpy() + 0.1
    content = {
        "arrays": ArrayRecord({"w": Array(moved)}),
        "metrics": MetricRecord({"collected-at": message.content["agewise"]["collect-at"]}),
    }
    return Message(RecordDict(content), reply_to=message)
"""

SERVER = """\
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

import agewise as aw
from agewise.federation.flower.deployment import Deployment
from agewise.federation.flower.strategy import AgedStrategy

app = ServerApp()


@app.main()
def main(grid, context):
    plan = aw.plan(aw.scenarios.for_ever())
    keyed = Deployment.load("{folder}").node_numbers()
    ordinary = FedAvg(fraction_evaluate=0.0, min_available_nodes=3)
    strategy = AgedStrategy(ordinary, plan, "ordinary", keyed, starts_at={starts_at})
    result = strategy.start(grid, ArrayRecord({{"w": Array(np.zeros(3))}}), num_rounds=2)
    print("refused:", strategy.refused, "rounds:", sorted(result.train_metrics_clientapp))
"""


@pytest.mark.slow
def test_an_ordinary_app_follows_a_plan_over_rounds(federation, tmp_path):
    code = tmp_path / "ordinary"
    code.mkdir()
    (tmp_path / "pyproject.toml").write_text(APP)
    (code / "__init__.py").write_text("")
    (code / "client_app.py").write_text(CLIENT)
    starts_at = TEN * PROBLEM.every
    (code / "server_app.py").write_text(
        SERVER.format(folder=federation.folder, starts_at=starts_at)
    )
    wait_for_nodes(federation, 600)
    done = subprocess.run(
        ["flwr", "run", str(tmp_path), "agewise", "--stream"],
        env=federation.environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert "refused: {1: {}, 2: {}} rounds: [1, 2]" in done.stdout, done.stdout[-3000:]
    for node, one in zip(federation.nodes, PLAN.assignments, strict=True):
        with aw.Ledger.read(federation.folder / node.folder / "releases.ledger") as ledger:
            found = {e.key: e.collect_at for e in ledger.events() if e.key.startswith("ordinary")}
        first = starts_at + one.collect_at
        assert found == {"ordinary-00001": first, "ordinary-00002": first + PROBLEM.every}
