"""A federation's folder: certificates, node keys, configurations and ready commands."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import tomli_w

from agewise.checks import parse_json, whole
from agewise.documents import Entry, read_document
from agewise.errors import InvalidInput
from agewise.federation.files import probe_folder
from agewise.federation.flower import require_flower
from agewise.federation.flower.certificates import (
    LOOPBACK,
    make_certificates,
    make_node_key,
    refuse_plain_text,
    write_private,
)
from agewise.federation.flower.node import write_node
from agewise.federation.flower.node_config import checked_node_config
from agewise.federation.flower.units import PROFILE, write_units
from agewise.federation.local import refuse_stand_in
from agewise.federation.profile import own_policy
from agewise.privacy.account import Policy
from agewise.problem import Problem
from agewise.scenario import dump_scenario

VERSION = 1
HOST = re.compile(r"[A-Za-z0-9.:\[\]-]{1,63}")
REGISTERED = "server/registered.json"
RESERVED = ("superlink", "superexec", "register", "supervisor")
"""Names of processes, which no client may have."""


@dataclass(frozen=True)
class Node:
    """One client's place in a deployment."""

    name: str
    folder: str
    port: int


class _Layout(Entry):
    version: Literal[1]
    host: str
    port: int
    tls: bool
    nodes: list[Node]
    node_config: str = ""


@dataclass(frozen=True)
class Deployment:
    """A SuperLink and its nodes, as laid out in a folder."""

    folder: Path
    host: str
    port: int
    tls: bool
    nodes: tuple[Node, ...]
    node_config: str = ""
    """What Flower apps find in `context.node_config` beside the node's own place."""

    @classmethod
    def load(cls, folder: Path | str) -> Deployment:
        """Read the layout of a deployment, however its folder is spelled."""
        place = Path(folder).resolve()
        try:
            document = parse_json((place / "deployment.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InvalidInput(
                "deployment", str(folder), "a folder made by: agewise deploy init"
            ) from None
        except (OSError, ValueError) as error:
            raise InvalidInput(
                "deployment", f"{folder} ({error})", "a folder made by: agewise deploy init"
            ) from None
        layout = read_document(_Layout, document, str(place / "deployment.json"))
        where = layout.host, layout.port, layout.tls
        return cls(place, *where, tuple(layout.nodes), layout.node_config)

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"{self.host}:{self.port}"

    def node_numbers(self) -> dict[str, int] | None:
        """The number that each node's key has been registered under; None without keys."""
        if not self.tls or not self.nodes:
            return None
        try:
            known = parse_json((self.folder / REGISTERED).read_text(encoding="utf-8"))
            return {str(name): int(number) for name, number in known.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return None

    @property
    def scenario(self) -> Path:
        """The scenario that it was laid out with."""
        return self.folder / "server" / "scenario.toml"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of Flower's commands: its own home, no telemetry, our programs."""
        programs = str(Path(sys.executable).parent)
        return {
            **os.environ,
            "PATH": programs + os.pathsep + os.environ.get("PATH", ""),
            "FLWR_HOME": str(self.folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
        }

    def log_of(self, name: str) -> Path:
        """Where a process of the deployment writes its log."""
        stems = {node.name: Path(node.folder).name for node in self.nodes}
        return self.folder / "logs" / f"{stems.get(name, name)}.log"

    def superlink_command(self) -> list[str]:
        """The command of the SuperLink: apps run outside of it, so that it may be restarted."""
        safe = [
            "--ssl-certfile",
            str(self.folder / "server" / "server.crt"),
            "--ssl-keyfile",
            str(self.folder / "server" / "server.key"),
            "--ssl-ca-certfile",
            str(self.folder / "ca" / "ca.crt"),
            "--enable-supernode-auth",
        ]
        return [
            "flower-superlink",
            *(safe if self.tls else ["--insecure"]),
            "--isolation",
            "process",
            "--host",
            self.host,
            "--port",
            str(self.port),
            "--database",
            str(self.folder / "server" / "superlink.db"),
            "--superexec-auth-secret-file",
            str(self.folder / "server" / "superexec.secret"),
            "--disable-runtime-dependency-installation",
        ]

    def superexec_command(self) -> list[str]:
        """The command of the process that starts ServerApps."""
        trust = ["--root-certificates", str(self.folder / "ca" / "ca.crt")]
        return [
            "flower-superexec",
            "--runtime-api-address",
            self.address,
            *(trust if self.tls else ["--insecure"]),
            "--superexec-auth-secret-file",
            str(self.folder / "server" / "superexec.secret"),
        ]

    def node_command(self, node: Node) -> list[str]:
        """The command of one client's SuperNode."""
        place, number = self.folder / node.folder, self.nodes.index(node)
        safe = [
            "--root-certificates",
            str(self.folder / "ca" / "ca.crt"),
            "--auth-supernode-private-key",
            str(place / "node.key"),
        ]
        config = f"agewise-config={json.dumps(str(place / 'node.toml'))} partition-id={number} "
        config += f"num-partitions={len(self.nodes)} {self.node_config}"
        return [
            "flower-supernode",
            *(safe if self.tls else ["--insecure"]),
            "--superlink",
            self.address,
            "--port",
            str(node.port),
            "--node-config",
            config.strip(),
        ]


def init_deployment(
    folder: Path | str,
    problem: Problem,
    *,
    tls: bool = True,
    host: str = LOOPBACK,
    port: int = 0,
    policy: Policy | None = None,
    slot_seconds: float | None = None,
    readings: Path | str | None = None,
    seed: int | None = None,
    stand_in: bool = False,
    starts_at: int = 0,
    node_config: str = "",
) -> Deployment:
    """Lay out a federation for the clients of a problem; refuse a folder that is not empty.

    Port 0 takes free ports. Records are simulated (from `seed`) unless `readings` names a file;
    `stand_in` noise is reproducible. `node_config` ("key=value ...") is for apps. `slot_seconds`
    goes into every node's policy: slots that have not passed by its clock are not believed.
    """
    require_flower()
    refuse_stand_in(stand_in, readings)
    refuse_plain_text(problem, tls)
    further = checked_node_config(node_config)
    place = Path(folder).resolve()
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InvalidInput("deployment folder", str(folder), "a new or empty folder")
    _refuse_names(place, host, problem)
    probe_folder("deployment folder", place)
    ports = _ports(port, len(problem.clients))
    nodes = tuple(
        Node(c.name, f"nodes/{index:03d}-{quote(c.name, safe='')[:60]}", at)
        for index, (c, at) in enumerate(zip(problem.clients, ports[1:], strict=True), start=1)
    )
    deployment = Deployment(place, host, ports[0], tls, nodes, further)
    (place / "server").mkdir(0o700, parents=True)
    deployment.scenario.write_text(dump_scenario(problem), encoding="utf-8")
    (place / "flwr").mkdir(0o700)  # it will hold what clients have uploaded
    write_private(place / "server" / "superexec.secret", os.urandom(32).hex().encode())
    base = int.from_bytes(os.urandom(7)) if seed is None else seed
    records: dict[str, Any] = {"kind": "simulated", "seed": base}
    if readings is not None:
        records = {"kind": "readings", "path": str(Path(readings).absolute())}
    for node, client in zip(nodes, problem.clients, strict=True):
        write_node(
            place / node.folder / "node.toml",
            problem,
            node.name,
            records=records,
            policy=replace(policy or own_policy(client, problem), slot_seconds=slot_seconds),
            stand_in_seed=base if stand_in else None,
            starts_at=starts_at,
        )
    if tls:
        make_certificates(place, host)
        for node in nodes:
            make_node_key(place / node.folder)
    write_units(deployment)
    _write_connection(deployment)
    return deployment


def change_layout(
    deployment: Deployment, *, port: int | None = None, node_config: str | None = None
) -> Deployment:
    """Give a deployment that is down other ports or further node configuration.

    Keys, certificates, node files and ledgers stay; commands and systemd units are written anew.
    """
    if node_config is not None:
        deployment = replace(deployment, node_config=checked_node_config(node_config))
    if port is not None:
        ports = _ports(port, len(deployment.nodes))
        nodes = [replace(n, port=at) for n, at in zip(deployment.nodes, ports[1:], strict=True)]
        deployment = replace(deployment, port=ports[0], nodes=tuple(nodes))
    write_units(deployment)
    _write_connection(deployment)
    return deployment


def busy_ports(deployment: Deployment) -> dict[int, str]:
    """The ports of a deployment that cannot be listened on now, and why."""
    wanted = {deployment.port: (deployment.host.strip("[]"), "the SuperLink")}
    wanted |= {n.port: (LOOPBACK, f"the node of {n.name!r}") for n in deployment.nodes}
    busy = {}
    for port, (host, who) in wanted.items():
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
        except OSError as error:
            busy[port] = f"{error.strerror}; {who} needs it"
    return busy


def _refuse_names(place: Path, host: str, problem: Problem) -> None:
    """Refuse what the commands and files of Flower and systemd cannot spell."""
    text = str(place)
    if not text.isascii() or not text.isprintable() or any(mark in text for mark in "\"'\\"):
        raise InvalidInput("deployment folder", text, "a path of plain letters, without quotes")
    if not HOST.fullmatch(host):
        raise InvalidInput("host", repr(host), "an address or a name of a machine")
    for client in problem.clients:
        if client.name in RESERVED:
            raise InvalidInput(
                "client name", repr(client.name), "not one of " + ", ".join(RESERVED)
            )


def elsewhere(
    folder: Path | str, address: str, root_certificates: Path | str | None = None
) -> Deployment:
    """Lay out the connection to a SuperLink that somebody else runs."""
    require_flower()
    host, port, authority = checked_address(address, root_certificates)
    place = Path(folder).resolve()
    (place / "flwr").mkdir(0o700, parents=True)
    if authority is not None:
        (place / "ca").mkdir()
        (place / "ca" / "ca.crt").write_bytes(authority)
    deployment = Deployment(place, host, port, authority is not None, ())
    _write_connection(deployment)
    return deployment


def checked_address(
    address: str, root_certificates: Path | str | None
) -> tuple[str, int, bytes | None]:
    """Return host, port and CA of a SuperLink, or say what is wrong with them."""
    host, _, port = address.rpartition(":")
    if (
        not HOST.fullmatch(host)
        or not re.fullmatch("[0-9]{1,5}", port)
        or not 0 < int(port) < 65536
    ):
        raise InvalidInput("superlink", repr(address), "HOST:PORT")
    if root_certificates is None:
        return host, int(port), None
    try:
        authority = Path(root_certificates).read_bytes()
    except OSError as error:
        raise InvalidInput(
            "root_certificates", f"{root_certificates} ({error.strerror})", "a PEM file"
        ) from None
    if b"BEGIN CERTIFICATE" not in authority:
        raise InvalidInput("root_certificates", str(root_certificates), "a PEM file")
    return host, int(port), authority


def _write_connection(deployment: Deployment) -> None:
    """Write what Flower's commands and ours need to know, the latter last."""
    connection: dict[str, Any] = {"address": deployment.address, "insecure": True}
    if deployment.tls:
        authority = str(deployment.folder / "ca" / "ca.crt")
        connection = {"address": deployment.address, "root-certificates": authority}
    home = tomli_w.dumps({"superlink": {"default": PROFILE, PROFILE: connection}})
    (deployment.folder / "flwr" / "config.toml").write_text(home, encoding="utf-8")
    document = {
        "version": VERSION,
        "host": deployment.host,
        "port": deployment.port,
        "tls": deployment.tls,
        "nodes": [vars(node) for node in deployment.nodes],
        "node_config": deployment.node_config,
    }
    (deployment.folder / "deployment.json").write_text(
        json.dumps(document, indent=2), encoding="utf-8"
    )


def _ports(first: int, nodes: int) -> list[int]:
    """The SuperLink's port and the nodes'; free ones if `first` is 0."""
    whole("port", first, 0, 65535 - nodes)
    return list(range(first, first + 1 + nodes)) if first else _free_ports(nodes + 1)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind((LOOPBACK, 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
