"""Laying out a federation: files, keys, certificates, and what is refused."""

import os
import ssl
import stat
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

import agewise as aw
from agewise.federation.flower.deployment import Deployment, elsewhere, init_deployment
from agewise.federation.flower.node import Node
from agewise.federation.flower.supervisor import bring_down, healthy, read_state

LONDON = aw.scenarios.london()


def test_a_deployment_has_all_that_its_processes_need(tmp_path):
    made = init_deployment(tmp_path / "fed", LONDON, tls=True)
    assert Deployment.load(tmp_path / "fed") == made
    for node, client in zip(made.nodes, LONDON.clients, strict=True):
        place = tmp_path / "fed" / node.folder
        read = Node(place / "node.toml")
        assert read.client.process == client.process
        assert read.client.name == node.name
        assert read.problem.epsilon == LONDON.epsilon
        assert stat.S_IMODE((place / "node.key").stat().st_mode) == 0o600
        assert (place / "node.pub").read_text().startswith("ecdsa-sha2-nistp384 ")
    for secret in ("ca/ca.key", "server/server.key", "server/superexec.secret"):
        assert stat.S_IMODE((tmp_path / "fed" / secret).stat().st_mode) == 0o600
    assert len({made.port, *(node.port for node in made.nodes)}) == 4
    units = {p.name for p in (tmp_path / "fed" / "systemd").iterdir()}
    assert {
        "agewise-superlink.service",
        "agewise-superexec.service",
        "agewise-node-003.service",
    } <= units
    profile = tomllib.loads((tmp_path / "fed" / "flwr" / "config.toml").read_text())
    assert profile["superlink"]["agewise"]["root-certificates"].endswith("ca.crt")


def test_the_certificate_is_good_for_its_host_and_no_other(tmp_path):
    init_deployment(tmp_path / "fed", LONDON, host="127.0.0.1")
    context = ssl.create_default_context(cafile=str(tmp_path / "fed" / "ca" / "ca.crt"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    place = tmp_path / "fed" / "server"
    server.load_cert_chain(place / "server.crt", place / "server.key")

    def shake(name):
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(to_client, to_server, server_hostname=name)
        other = server.wrap_bio(to_server, to_client, server_side=True)
        for _ in range(4):
            for end in (client, other):
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        return client.version()

    assert shake("127.0.0.1") == shake("localhost") == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        shake("example.org")


def test_the_stand_in_is_written_down(tmp_path):
    init_deployment(tmp_path / "fed", LONDON, tls=False, stand_in=True, seed=4)
    for path in (tmp_path / "fed" / "nodes").glob("*/node.toml"):
        assert tomllib.loads(path.read_text())["stand_in_seed"] == 4


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"port": -1}, "port is -1"),
        ({"port": 70_000}, "port is 70000"),
        ({"stand_in": True, "readings": "r.csv"}, "simulated records only"),
    ],
)
def test_bad_layouts_are_refused(tmp_path, choices, words):
    with pytest.raises(aw.InvalidInput, match=words):
        init_deployment(tmp_path / "fed", LONDON, **choices)
    assert not (tmp_path / "fed").exists()


def test_folders_that_are_not_empty_are_left_alone(tmp_path):
    (tmp_path / "thing").write_text("mine")
    with pytest.raises(aw.InvalidInput, match="a new or empty folder"):
        init_deployment(tmp_path, LONDON)
    with pytest.raises(aw.InvalidInput, match="agewise deploy init"):
        Deployment.load(tmp_path)
    (tmp_path / "deployment.json").write_text("{")
    with pytest.raises(aw.InvalidInput, match="agewise deploy init"):
        Deployment.load(tmp_path)
    (tmp_path / "deployment.json").write_text('{"version": 9}')
    with pytest.raises(aw.InvalidInput, match="version 9"):
        Deployment.load(tmp_path)


@pytest.mark.parametrize(
    "address", ["", "host", ":8000", "host:", "host:x", "host:0", "host:70000"]
)
def test_odd_addresses_are_refused(tmp_path, address):
    with pytest.raises(aw.InvalidInput, match="HOST:PORT"):
        elsewhere(tmp_path / "d", address)


def test_a_certificate_must_be_one(tmp_path):
    (tmp_path / "ca.crt").write_text("no certificate")
    for name, words in (("ca.crt", "a PEM file"), ("none.crt", "No such file")):
        with pytest.raises(aw.InvalidInput, match=words):
            elsewhere(tmp_path / "d", "127.0.0.1:9", tmp_path / name)


def test_what_is_down_is_down(tmp_path):
    made = init_deployment(tmp_path / "fed", LONDON, tls=False)
    assert read_state(made) is None
    assert not healthy(made)
    assert not bring_down(made)
    plan = aw.plan(LONDON)
    with pytest.raises(aw.InvalidInput, match="agewise deploy up"):
        aw.run(plan, "flower", folder=tmp_path / "run", deployment=tmp_path / "fed")
    with pytest.raises(aw.InvalidInput, match="where none answers"):
        aw.run(plan, "flower", folder=tmp_path / "run2", superlink="127.0.0.1:9")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("version = 2", "version"),
        ("ledger = 5", "ledger"),
        ('records = { kind = "rumour" }', "records"),
        ("not toml", "valid TOML"),
        ("policy = { max_aged_epsilon = -1.0 }", "max_aged_epsilon"),
    ],
)
def test_odd_node_configurations_are_refused(tmp_path, change, words):
    made = init_deployment(tmp_path / "fed", LONDON, tls=False)
    path = tmp_path / "fed" / made.nodes[0].folder / "node.toml"
    key = change.split(" ")[0]
    lines = path.read_text().splitlines()
    if key in ("policy", "records"):
        start = lines.index(f"[{key}]")
        del lines[start : start + 1 + lines[start + 1 :].index("")]
    else:
        lines = [line for line in lines if not line.startswith(f"{key} =")]
    path.write_text("\n".join([change, *lines]))
    with pytest.raises(aw.InvalidInput, match=words):
        Node(path).profile  # noqa: B018


def test_choices_that_the_nodes_make_are_refused(tmp_path):
    init_deployment(tmp_path / "fed", LONDON, tls=False)
    plan = aw.plan(LONDON)
    with pytest.raises(aw.InvalidInput, match="each node's own configuration decides"):
        aw.run(plan, "flower", folder=tmp_path / "run", deployment=tmp_path / "fed",
               policy=aw.Policy(1.0))  # fmt: skip
    with pytest.raises(aw.InvalidInput, match="a folder for the run"):
        aw.run(plan, "flower")
    other = aw.plan(aw.scenarios.slow_and_fast())
    with pytest.raises(aw.InvalidInput, match="without a node for"):
        aw.run(other, "flower", folder=tmp_path / "run", deployment=tmp_path / "fed")


def test_one_supervisor_a_folder_and_no_orphans(tmp_path, monkeypatch):
    """With programs that only sleep: two starts, a killed supervisor, and a stop."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("flower-superlink", "flower-superexec", "flower-supernode"):
        (programs / name).write_text(
            f"#!/bin/sh\nexec {sys.executable} -c 'import time; time.sleep(600)' $0 $@\n"
        )
        (programs / name).chmod(0o755)
    made = init_deployment(tmp_path / "fed", LONDON, tls=False)
    code = (
        "import sys; from agewise.federation.flower import supervisor as s;"
        "s.healthy = lambda d: True;"
        "s.Supervisor(s.Deployment.load(sys.argv[2])).run()"
    )
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    monkeypatch.setattr(Deployment, "environment", property(lambda self: environment))
    word = "agewise.federation.flower.supervisor"

    def start():
        wrapped = code.replace(
            "s.Supervisor",
            f"s.Deployment.environment = property(lambda d: {environment!r}); s.Supervisor",
        )
        return subprocess.Popen([sys.executable, "-c", wrapped, word, str(made.folder)])

    def wait(condition):
        until = time.time() + 20
        while time.time() < until and not condition():
            time.sleep(0.05)
        assert condition()

    def alive(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False

    first = start()
    wait(lambda: (read_state(made) or {}).get("ready"))
    wait(lambda: len((read_state(made) or {"processes": {}})["processes"]) == 5)
    second = start()
    assert second.wait(20) == 1  # the folder is taken
    children = [one["pid"] for one in read_state(made)["processes"].values()]
    assert all(alive(pid) for pid in children)
    first.kill()
    first.wait()
    assert read_state(made) is None
    assert not bring_down(made)  # there was no supervisor, but what it left is ended
    wait(lambda: not any(alive(pid) for pid in children))


@pytest.mark.parametrize(
    ("folder", "host", "name", "words"),
    [
        ('a"b', "127.0.0.1", "north", "without quotes"),
        ("ü", "127.0.0.1", "north", "plain letters"),
        ("fed", "ho st", "north", "a name of a machine"),
        ("fed", "é", "north", "a name of a machine"),
        ("fed", "127.0.0.1", "superlink", "not one of"),
    ],
)
def test_what_commands_cannot_spell_is_refused(tmp_path, folder, host, name, words):
    problem = aw.Problem([aw.Client(name, LONDON.clients[0].process)], 10, 0.1)
    with pytest.raises(aw.InvalidInput, match=words):
        init_deployment(tmp_path / folder, problem, host=host)


def test_units_are_spelled_for_systemd(tmp_path):
    init_deployment(tmp_path / "fed", LONDON)
    text = (tmp_path / "fed" / "systemd" / "agewise-node-001.service").read_text()
    assert "client%%201" in text
    assert "client%201" not in text.replace("%%", "")
