"""A real federation on loopback: SuperLink, SuperExec and SuperNodes as processes, TLS and keys on.

Every test runs the London plan on it and expects the local engine's model, whatever is killed.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import agewise as aw
from agewise.federation.flower.node import write_node
from deployments import bring_down, bring_up, init_deployment, read_state, wait_for_nodes

PROBLEM = aw.scenarios.london()
PLAN = aw.plan(PROBLEM)
STATISTICS = aw.Statistics([[1, 20], [1, 50], [0, 100], [0, 200]])
ANYTHING = aw.Policy(max_delta=0.5)
SEED = int(np.random.default_rng(11).integers(2**63))


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    made = init_deployment(
        tmp_path_factory.mktemp("flower") / "fed", PROBLEM, tls=True, seed=SEED, stand_in=True
    )
    try:
        bring_up(made, 600)
        wait_for_nodes(made, 600)
        yield made
    finally:
        bring_down(made)


@pytest.fixture(scope="module")
def expected():
    return aw.run(PLAN, rng=np.random.default_rng(11))


def run(federation, folder, when=None, plan=PLAN):
    """Run a plan; call `when(step)` as steps are told."""
    steps = []

    def watch(step, *_):
        steps.append(step)
        if when is not None:
            when(step)

    result = aw.run(
        plan,
        "flower",
        folder=folder,
        deployment=federation.folder,
        watch=watch,
        wait=300,
        slot_timeout=300,
    )
    return result, steps


def ledger_of(federation, name):
    node = next(node for node in federation.nodes if node.name == name)
    return federation.folder / node.folder / "releases.ledger"


def events(federation, name):
    if not ledger_of(federation, name).exists():
        return []
    with aw.Ledger.read(ledger_of(federation, name)) as ledger:
        return ledger.events()


def same_as(expected, result, federation):
    """The local engine's model and uploads, each released once in this run."""
    assert result.aggregate == expected.aggregate
    assert result.realised_loss == expected.realised_loss
    assert result.participants == expected.participants
    for row in result.statement.clients:
        made = [e for e in events(federation, row.client) if e.key == result.run]
        assert len(made) == 1, row.client


@contextlib.contextmanager
def configured(federation, problem, policy):
    """The nodes have another scenario, which they read anew for every message."""
    files = {}
    for node in federation.nodes:
        path = federation.folder / node.folder / "node.toml"
        files[path] = path.read_text()
        write_node(
            path,
            problem,
            node.name,
            records={"kind": "simulated", "seed": SEED},
            policy=policy,
            stand_in_seed=SEED,
        )
    try:
        yield
    finally:
        for path, text in files.items():
            path.write_text(text)


def intruder(federation, tmp_path, name, *arguments):
    """A node that should not be let in, though it claims to be client 1."""
    config = federation.folder / federation.nodes[0].folder / "node.toml"
    command = [
        "flower-supernode",
        *arguments,
        "--superlink",
        federation.address,
        "--max-retries",
        "1",
        "--port",
        "0",
        "--node-config",
        f'agewise-config="{config}"',
    ]
    with (tmp_path / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            command,
            env=federation.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def test_guarantee_a_real_federation_gives_the_local_engines_model(federation, expected, tmp_path):
    other = init_deployment(tmp_path / "other", PROBLEM)
    ca = ["--root-certificates", str(federation.folder / "ca" / "ca.crt")]
    wrong_ca = ["--root-certificates", str(other.folder / "ca" / "ca.crt")]
    unknown = [
        "--auth-supernode-private-key",
        str(other.folder / other.nodes[0].folder / "node.key"),
    ]
    attempts = {
        "unknown key": intruder(federation, tmp_path, "unknown key", *ca, *unknown),
        "no key": intruder(federation, tmp_path, "no key", *ca),
        "wrong CA": intruder(federation, tmp_path, "wrong CA", *wrong_ca, *unknown),
        "plaintext": intruder(federation, tmp_path, "plaintext", "--insecure"),
    }
    try:
        result, steps = run(federation, tmp_path / "run")
        same_as(expected, result, federation)
        assert not result.private
        uploads = [
            {(s.slot, s.client) for s in one.steps if s.what == "uploaded"}
            for one in (result, expected)
        ]
        assert uploads[0] == uploads[1]
        assert not [step for step in steps if step.what in ("stranger", "returned")]
        for name, process in attempts.items():
            code = process.wait(timeout=300)
            assert code != 0, (name, (tmp_path / f"{name}.log").read_text()[-500:])
    finally:
        for process in attempts.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"learner": aw.Histogram()},
        {"learner": STATISTICS, "mechanism": "gaussian", "delta": 1e-6},
        {"noise": "server", "estimator": "best", "mixing": "exact"},
    ],
    ids=["histogram", "gaussian statistics", "one draw by the server"],
)
def test_guarantee_vectors_gaussian_noise_and_one_draw_give_the_local_engines_model(
    federation, tmp_path, changes
):
    problem = PROBLEM.replace(**changes)
    plan = aw.plan(problem)
    with configured(federation, problem, ANYTHING):
        result, _ = run(federation, tmp_path / "run", plan=plan)
        same_as(aw.run(plan, rng=np.random.default_rng(11)), result, federation)


def kill_when(condition, pid):
    """Kill a process and what it started as soon as a condition holds."""

    def work():
        until = time.time() + 300
        while time.time() < until:
            if condition():
                os.killpg(pid(), signal.SIGKILL)
                killed.append(time.time())
                return
            time.sleep(0.02)  # a look takes processor time: at all processes, or into a ledger

    killed = []
    threading.Thread(target=work, daemon=True).start()
    return killed


def running_in(groups):
    """The processes of some groups that have not ended."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            ended = process.status() == psutil.STATUS_ZOMBIE
            if os.getpgid(process.pid) in groups and not ended:
                found.append(process)
    return found


def works(pid):
    """Whether a node has a ClientApp at work."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            group = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[2])
            if group == pid and b"flwr-clientapp" in (entry / "cmdline").read_bytes():
                return True
    return False


def test_guarantee_killed_nodes_come_back_and_release_nothing_twice(federation, expected, tmp_path):
    before = {name: len(events(federation, name)) for name in ("client 2", "client 3")}
    killed = {}

    def pid(name):
        return lambda: read_state(federation)["processes"][name]["pid"]

    def when(step):
        if step.what == "ready":  # both are due in slot 1
            killed["while training"] = kill_when(lambda: works(pid("client 2")()), pid("client 2"))
            killed["after commit"] = kill_when(
                lambda: len(events(federation, "client 3")) > before["client 3"], pid("client 3")
            )

    result, _ = run(federation, tmp_path / "run", when)
    assert killed["while training"]
    assert killed["after commit"]
    same_as(expected, result, federation)
    for name in ("client 2", "client 3"):
        until = time.time() + 300  # the run may have ended before it is started again
        while time.time() < until and not read_state(federation)["processes"][name]["restarts"]:
            time.sleep(0.1)
        assert read_state(federation)["processes"][name]["restarts"] >= 1


def test_guarantee_a_killed_superlink_comes_back_and_the_run_completes(
    federation, expected, tmp_path
):
    killed = []

    def when(step):
        if step.what == "uploaded" and not killed:
            killed.append(step)
            os.killpg(read_state(federation)["processes"]["superlink"]["pid"], signal.SIGKILL)

    result, _ = run(federation, tmp_path / "run", when)
    assert killed
    same_as(expected, result, federation)
    assert read_state(federation)["processes"]["superlink"]["restarts"] >= 1


@pytest.mark.slow
def test_guarantee_an_interrupted_run_is_resumed_with_the_same_bytes(
    federation, expected, tmp_path
):
    def when(step):
        if step.what == "uploaded":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(federation, tmp_path / "run", when)
    names = [c.name for c in PROBLEM.clients]
    sent = {name: [(e.key, e.payload) for e in events(federation, name)] for name in names}
    result = aw.resume(tmp_path / "run")
    same_as(expected, result, federation)
    for name in names:
        assert [(e.key, e.payload) for e in events(federation, name)][: len(sent[name])] == sent[
            name
        ]


@pytest.mark.slow
def test_guarantee_a_refused_run_releases_nothing_and_is_resumed_once_repaired(
    federation, expected, tmp_path
):
    names = [c.name for c in PROBLEM.clients]
    before = {name: len(events(federation, name)) for name in names}
    config = federation.folder / federation.nodes[2].folder / "node.toml"
    config.rename(config.with_suffix(".away"))
    try:
        with pytest.raises(aw.RunIncomplete, match=r"client 3 would not follow the plan.*--resume"):
            run(federation, tmp_path / "run")
    finally:
        config.with_suffix(".away").rename(config)
    assert {name: len(events(federation, name)) for name in names} == before
    same_as(expected, aw.resume(tmp_path / "run"), federation)


@pytest.mark.slow
def test_the_commands_find_a_deployment_however_it_is_spelled(tmp_path):
    """Laid out, brought up, looked at and taken down under four spellings of one folder."""
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to("fed")

    def agewise(*arguments):
        return subprocess.run(
            [str(Path(sys.executable).parent / "agewise"), "deploy", *arguments],
            cwd=tmp_path / "here",
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )

    config = 'data="/srv/meters" batch-size=32'
    made = agewise("init", "../fed", "london", "--insecure", "--node-config", config)
    assert made.returncode == 0, made.stderr
    try:
        up = agewise("up", "../link", "--wait", "600")
        assert up.returncode == 0, up.stderr
        assert "3 nodes have joined" in up.stderr
        told = agewise("status", "../here/../fed/", "--json")
        assert told.returncode == 0, told.stderr
        facts = json.loads(told.stdout)
        assert (facts["nodes"], facts["nodes_joined"]) == (3, 3)
        assert all(facts["processes"][c.name]["joined"] for c in PROBLEM.clients)
        command = Path(f"/proc/{facts['processes']['client 1']['pid']}/cmdline").read_text()
        assert f"partition-id=0 num-partitions=3 {config}" in command
    finally:
        down = agewise("down", str(tmp_path / "fed"))
    assert down.returncode == 0, down.stderr
    assert not running_in({one["pid"] for one in facts["processes"].values()})
    assert agewise("down", "../link").returncode == 2  # there is nothing left
