"""Agewise on Flower: messages per second against plain averaging on the same federation."""

import re
import statistics
import subprocess
import tempfile
from pathlib import Path

import agewise as aw
from agewise.federation.flower.deployment import Deployment, init_deployment
from agewise.federation.flower.supervisor import bring_down, bring_up
from benchmarks.recording import Row, Tables

OVERHEAD = ((3, 8, 2), (20, 3, 2))
"""Nodes, rounds of a run, and runs of each app, which take turns."""

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "bench-{name}"
version = "1.0.0"
description = ""
license = "Apache-2.0"
dependencies = []
[tool.hatch.build.targets.wheel]
packages = ["."]
[tool.flwr.app]
publisher = "bench"
[tool.flwr.app.components]
serverapp = "bench_{name}.server:app"
clientapp = "bench_{name}.client:app"
[tool.flwr.app.config]
"""

AT_ONCE = 4
"""Messages under way at a time: each starts a process at its node, and all share one machine."""

# The same loop for both: a few messages at a time, those that fail again, then average.
SERVER = """\
import time
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import ServerApp
{imports}
app = ServerApp()

@app.main()
def main(grid, context):
    while len(list(grid.get_node_ids())) < {nodes}:
        time.sleep(0.5)
    {setup}
    for number in range({rounds} + 1):
        begun = time.time()
        {before}
        to_ask, waiting, values = list(grid.get_node_ids()), dict(), []
        while to_ask or waiting:
            some = [to_ask.pop() for _ in range(min({at_once} - len(waiting), len(to_ask)))]
            sent = grid.push_messages([{message} for node in some]) if some else []
            waiting |= dict(zip(sent, some))
            for reply in grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id)
                if reply.has_error():
                    print("bench-failed", reply.error.reason, flush=True)
                    to_ask.append(node)
                else:
                    values.append({value})
            time.sleep(0.05)
        print("mean", np.mean(values), flush=True)
        if number:  # the first one also installs the app on the nodes
            print("bench-round", time.time() - begun, flush=True)
"""

PLAIN_CLIENT = """\
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
app = ClientApp()

@app.train()
def train(message, context):
    records = np.random.default_rng(1).choice([20.0, 50.0, 100.0, 200.0], size=100)
    content = RecordDict({
        "arrays": ArrayRecord({"mean": Array(np.array([records.mean()]))}),
        "metrics": MetricRecord({"num-examples": 100}),
    })
    return Message(content, reply_to=message)
"""

PLAIN = {
    "imports": "",
    "setup": "pass",
    "before": "pass",
    "message": 'Message(RecordDict({"arrays": ArrayRecord({"mean": Array(np.zeros(1))})}), node, '
    "MessageType.TRAIN, ttl=300.0)",
    "value": 'float(reply.content["arrays"]["mean"].numpy()[0])',
}
AGED = {
    "imports": "import agewise as aw, secrets, json\nfrom agewise.federation.server import Server\n"
    "from agewise.federation.flower.transport import introductions",
    "setup": "plan = aw.plan(aw.load_scenario({scenario!r})); "
    "names = dict()\n"
    "    while len(names) < {nodes}:  # on two cores twenty processes take long to start\n"
    "        asked = introductions(grid, set(grid.get_node_ids()) - set(names))\n"
    "        names |= {{n: v[0] for n, v in asked.items()}}",
    "before": 'server = Server(plan, f"bench-{number}-{secrets.token_hex(4)}"); '
    "orders = {o.client: o for s in range(1, plan.problem.aggregate_at + 1) for o in server.orders(s)}",
    "message": 'Message(RecordDict({"agewise": ConfigRecord({"order": '
    "orders[names[node]].encode().decode()})}), node, MessageType.TRAIN, ttl=300.0)",
    "value": 'json.loads(str(reply.content["agewise"]["upload"]))["value"][0]',
}


def write_app(
    folder: Path, name: str, parts: dict[str, str], client: str, nodes: int, rounds: int
) -> Path:
    code = folder / name / f"bench_{name}"
    code.mkdir(parents=True)
    (folder / name / "pyproject.toml").write_text(PYPROJECT.format(name=name))
    (code / "__init__.py").write_text("")
    (code / "server.py").write_text(
        SERVER.format(rounds=rounds, nodes=nodes, at_once=AT_ONCE, **parts)
    )
    (code / "client.py").write_text(client)
    return folder / name


def rounds_of(deployment: Deployment, app: Path) -> tuple[list[float], int]:
    """Seconds of each round, and how many messages had to be sent again."""
    done = subprocess.run(
        ["flwr", "run", str(app), "agewise", "--stream"],
        env=deployment.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    found = [float(x) for x in re.findall(r"bench-round ([0-9.]+)", done.stdout)]
    if not found:
        raise RuntimeError(done.stdout[-2000:])
    return found, done.stdout.count("bench-failed")


def federation_of(nodes: int) -> aw.Problem:
    chains = [aw.birth_death(u, 0.3, [20, 50, 100, 200]) for u in (0.1, 0.2, 0.3)]
    clients = [aw.Client(f"client {i}", chains[i % 3]) for i in range(nodes)]
    return aw.Problem(clients, aggregate_at=6, epsilon=0.5)


def overhead(folder: Path, nodes: int, rounds: int, turns: int) -> list[Row]:
    """Rounds of plain averaging and of ours, each with a message to every node."""
    problem, own = federation_of(nodes), folder / f"nodes-{nodes}"
    deployment = init_deployment(own, problem, tls=True, policy=aw.Policy())
    scenario = folder / f"{nodes}.toml"
    scenario.write_text(aw.dump_scenario(problem), encoding="utf-8")
    parts = {**AGED, "setup": AGED["setup"].format(scenario=str(scenario), nodes=nodes)}
    client = "from agewise.federation.flower import client_app\n\napp = client_app.app\n"
    plain = write_app(folder, f"plain{nodes}", PLAIN, PLAIN_CLIENT, nodes, rounds)
    aged = write_app(folder, f"aged{nodes}", parts, client, nodes, rounds)
    bring_up(deployment, wait=300)
    apps = {"plain averaging": plain, "age-aware": aged}
    times: dict[str, list[float]] = {name: [] for name in apps}
    again = dict.fromkeys(apps, 0)
    try:
        for _ in range(turns):
            for name, app in apps.items():
                found, failed = rounds_of(deployment, app)
                times[name] += found
                again[name] += failed
    finally:
        bring_down(deployment)
    rows: list[Row] = []
    base = statistics.median(times["plain averaging"])
    for name, found in times.items():
        middle = statistics.median(found)
        rows.append(
            {
                "": name,
                "nodes": nodes,
                "times plain averaging": middle / base,
                "seconds a round, median": middle,
                "least": min(found),
                "most": max(found),
                "messages per second": nodes / middle,
                "messages sent again": again[name],
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> Tables:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for choice in OVERHEAD:
            rows += overhead(Path(folder), *choice)
    return {"overhead": rows}
