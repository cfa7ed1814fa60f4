"""Laying out a federation: files, keys, certificates, and what is refused."""

import socket
import ssl
import stat
import tomllib

import numpy as np
import pytest
from flwr.common.config import parse_config_args

import agewise as aw
from agewise.federation.flower import membership
from agewise.federation.flower.node import Node
from deployments import (
    Deployment,
    bring_down,
    bring_up,
    change_layout,
    elsewhere,
    healthy,
    init_deployment,
    read_state,
)

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
    nodes = list((tmp_path / "fed" / "nodes").glob("*/node.toml"))
    assert len(nodes) == len(LONDON.clients)
    for path in nodes:
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
    with pytest.raises(aw.InvalidInput, match="version is 9; allowed: 1"):
        Deployment.load(tmp_path)
    init_deployment(tmp_path / "fed", LONDON)
    path = tmp_path / "fed" / "deployment.json"
    path.write_text(path.read_text().replace('"port": ', '"prot": ', 1))
    with pytest.raises(aw.InvalidInput, match=r"prot is not a known key \(did you mean port\?\)"):
        Deployment.load(tmp_path / "fed")


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


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"epsilon": 0.5}, "its own target ε = 0.1"),
        ({"learner": aw.Histogram()}, "learner is .*histogram"),
        ({"aggregate_at": 12}, "aggregate_at is 12"),
    ],
)
def test_a_plan_that_nodes_would_refuse_is_not_submitted(tmp_path, change, why):
    init_deployment(tmp_path / "fed", LONDON, tls=False)
    plan = aw.plan(LONDON.replace(**change))
    with pytest.raises(aw.InvalidInput, match=f"node.toml states.*{why}"):
        aw.run(plan, "flower", folder=tmp_path / "run", deployment=tmp_path / "fed")
    assert not (tmp_path / "run").exists()


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


def test_a_node_is_laid_out_with_its_own_part_of_what_the_server_knows(tmp_path):
    chain = aw.birth_death(0.3, 0.3, [0, 10, 20])
    clients = [aw.Client(name, chain, samples=20) for name in "ab"]
    level = aw.Level([3.0, 4.0], 0.9)
    own = np.broadcast_to(0.01 * np.eye(3), (2, 4, 3, 3))
    moments = np.broadcast_to([0.2, 0.3, 0.5], (2, 4, 3)), [], own, own / 2
    measured = aw.knowledge.Measured(["a", "b"], *moments, days=40)
    for number, known in enumerate(({"level": level}, {"knowledge": measured})):
        problem = aw.Problem(clients, 4, 0.7, **known)
        made = init_deployment(tmp_path / f"{number}", problem, tls=False)
        nodes = [Node(made.folder / one.folder / "node.toml", None) for one in made.nodes]
        alone = [problem.keep([client]) for client in clients]
        assert [node.problem for node in nodes] == alone


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("version = 2", "version"),
        ("ledger = 5", "ledger"),
        ('records = { kind = "rumour" }', "kind is 'rumour'; allowed: 'readings' or 'simulated'"),
        ("not toml", "valid TOML"),
        ("policy = { max_aged_epsilon = -1.0 }", r"toml: policy\.max_aged_epsilon is -1"),
        ("policy = { max_age = 1.0 }", r"policy\.max_age is not a known key.*allowed: max_aged_e"),
        ("ledgers = 5", r"ledgers is not a known key \(did you mean ledger\?\)"),
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
        Node(path)


def test_a_fault_in_the_scenario_of_a_node_names_its_file(tmp_path):
    deployment = init_deployment(tmp_path / "fed", LONDON, tls=False)
    path = tmp_path / "fed" / deployment.nodes[0].folder / "node.toml"
    path.write_text(path.read_text().replace("\nepsilon = 0.1", "\nepsilon = -1.0"))
    with pytest.raises(aw.InvalidInput, match=rf"{path}: scenario: epsilon is -1"):
        Node(path)


def test_choices_that_the_nodes_make_are_refused(tmp_path):
    init_deployment(tmp_path / "fed", LONDON, tls=False)
    plan = aw.plan(LONDON)
    with pytest.raises(aw.InvalidInput, match="each node's own configuration decides"):
        aw.run(
            plan,
            "flower",
            folder=tmp_path / "run",
            deployment=tmp_path / "fed",
            policy=aw.Policy(1.0),
        )
    with pytest.raises(aw.InvalidInput, match="a folder for the run"):
        aw.run(plan, "flower")
    other = aw.plan(aw.scenarios.slow_and_fast())
    with pytest.raises(aw.InvalidInput, match="without a node for"):
        aw.run(other, "flower", folder=tmp_path / "run", deployment=tmp_path / "fed")


def test_a_port_in_use_is_named_before_anything_starts(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for first, who in ((port, "the SuperLink"), (port - 1, "the node of 'client 1'")):
            made = init_deployment(tmp_path / str(first), LONDON, tls=False, port=first)
            with pytest.raises(aw.InvalidInput, match=rf"{port} \(.*{who} needs.* --port 0"):
                bring_up(made)
            assert not (made.folder / "logs").exists()
            moved = change_layout(made, port=0)
            assert port not in (moved.port, *(node.port for node in moved.nodes))
            assert Deployment.load(made.folder) == moved
            assert f"--port {moved.port}" in (made.folder / "commands.txt").read_text()


def test_ports_can_be_changed_and_keys_stay(tmp_path):
    made = init_deployment(tmp_path / "fed", LONDON)
    keys = [(made.folder / node.folder / "node.key").read_bytes() for node in made.nodes]
    moved = change_layout(made, port=23_000)
    assert [moved.port, *(node.port for node in moved.nodes)] == [23_000, 23_001, 23_002, 23_003]
    assert keys == [(made.folder / node.folder / "node.key").read_bytes() for node in moved.nodes]
    profile = tomllib.loads((made.folder / "flwr" / "config.toml").read_text())
    assert profile["superlink"]["agewise"]["address"] == "127.0.0.1:23000"


def told_to_nodes(made):
    """What Flower makes of the nodes' configuration."""
    commands = [made.node_command(node) for node in made.nodes]
    return [parse_config_args([c[c.index("--node-config") + 1]]) for c in commands]


def test_apps_find_their_node_configuration(tmp_path):
    made = init_deployment(
        tmp_path / "fe d", LONDON, tls=False, node_config="data='/srv/my meters'  batch-size=32"
    )
    assert told_to_nodes(Deployment.load(made.folder)) == [
        {
            "agewise-config": str(made.folder / node.folder / "node.toml"),
            "partition-id": number,
            "num-partitions": 3,
            "data": "/srv/my meters",
            "batch-size": 32,
        }
        for number, node in enumerate(made.nodes)
    ]
    changed = change_layout(made, node_config='fast=true rate=0.5 name="x=1"')
    assert told_to_nodes(changed)[0].items() >= {"fast": True, "rate": 0.5, "name": "x=1"}.items()
    assert "data" not in told_to_nodes(changed)[0]
    assert "fast=true" in (made.folder / "systemd" / "agewise-node-001.service").read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("meters", "key=value pairs"),
        ("a=1 b", "key=value pairs"),
        ("a=1,b=2", "a text in quotes"),
        ("a=text", "a text in quotes"),
        ("a=file.toml", "a text in quotes"),
        ("a=1 a=2", "each key once"),
        ("a=[1]", "a text in quotes"),
        ("a=2020-01-01", "a text in quotes"),
        ('a="x', "key=value pairs"),
        ("partition-id=4", "keys other than"),
        ('agewise-config="mine.toml"', "keys other than"),
    ],
)
def test_odd_node_configuration_is_refused(tmp_path, text, words):
    with pytest.raises(aw.InvalidInput, match=words):
        init_deployment(tmp_path / "fed", LONDON, tls=False, node_config=text)
    assert not (tmp_path / "fed").exists()


def entry(number, status="online", at="2026-01-01 12:00:00Z"):
    return {"node-id": str(number), "status": status, "online-at": at}


NOON = 1767268800.4
"""Noon of the first of January, and a little, in seconds."""


@pytest.mark.parametrize(
    ("one", "process", "there"),
    [
        (entry(7), {}, True),
        (entry(7, "offline"), {}, False),
        (entry(7, "registered", "N/A"), {}, False),
        (entry(7), {"started": NOON + 2}, False),  # the one before it, which was killed
        (entry(7), {"running": False}, False),
        (entry(8), {}, False),
        (None, {}, False),
    ],
)
@pytest.mark.parametrize("tls", [True, False])
def test_running_is_not_joined(tmp_path, monkeypatch, tls, one, process, there):
    made = init_deployment(tmp_path / "fed", LONDON, tls=tls)
    if tls:
        (made.folder / "server" / "registered.json").write_text('{"client 1": "7"}')
    else:
        (made.folder / "logs").mkdir()
        made.log_of("client 1").write_text("SuperNode ID: 3\n...\nINFO : SuperNode ID: 7\n")
    answer = {"success": True, "nodes": [one] if one else []}
    monkeypatch.setattr(membership, "ask_flower", lambda *_: answer)
    ours = {"running": True, "started": NOON, **process}
    found = membership.joined_nodes(made, {"processes": {"client 1": ours}})
    assert found == {"client 1": there, "client 2": False, "client 3": False}


def test_nodes_that_do_not_join_are_named_with_their_logs(tmp_path, monkeypatch):
    made = init_deployment(tmp_path / "fed", LONDON, tls=False)
    joined = iter([1, 2, 2, 3])

    def some(deployment, _):
        count = next(joined)
        return {node.name: i < count for i, node in enumerate(deployment.nodes)}

    monkeypatch.setattr(membership, "read_state", lambda _: {"processes": {}})
    monkeypatch.setattr(membership, "joined_nodes", some)
    monkeypatch.setattr(membership, "PAUSE", 0.0)
    with pytest.raises(aw.RunIncomplete) as failed:
        membership.wait_for_nodes(made, -1.0)
    assert "'client 2' (log: " in str(failed.value)
    assert str(made.log_of("client 3")) in str(failed.value)
    assert "client 1" not in str(failed.value)
    seen = []
    membership.wait_for_nodes(made, 60.0, lambda *count: seen.append(count))
    assert seen == [(2, 3), (2, 3), (3, 3)]


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
