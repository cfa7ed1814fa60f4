"""A federation's folder: certificates, node keys, configurations and ready commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote

import tomli_w

from agewise.errors import InvalidInput, whole
from agewise.federation.flower import require_flower
from agewise.federation.flower.node import write_node
from agewise.federation.journal import probe_folder
from agewise.federation.local import refuse_stand_in
from agewise.privacy.account import Policy
from agewise.problem import Problem

VERSION = 1
HOST = re.compile(r"[A-Za-z0-9.:\[\]-]{1,63}")
PROFILE = "agewise"
"""The name of the SuperLink connection in the deployment's Flower configuration."""
VALID_DAYS = 825
LOOPBACK = "127.0.0.1"
REGISTERED = "server/registered.json"
RESERVED = ("superlink", "superexec", "register", "supervisor")
"""Names of processes, which no client may have."""


@dataclass(frozen=True)
class Node:
    """One client's place in a deployment."""

    name: str
    folder: str
    port: int


@dataclass(frozen=True)
class Deployment:
    """A SuperLink and its nodes, as laid out in a folder."""

    folder: Path
    host: str
    port: int
    tls: bool
    nodes: tuple[Node, ...]

    @classmethod
    def load(cls, folder: Path | str) -> Deployment:
        """Read the layout of a deployment."""
        place = Path(folder).absolute()
        try:
            document = json.loads((place / "deployment.json").read_text(encoding="utf-8"))
            if document["version"] != VERSION:
                raise InvalidInput(
                    "deployment", f"{folder} of version {document['version']}", f"version {VERSION}"
                )
            nodes = tuple(Node(**node) for node in document["nodes"])
            return cls(place, document["host"], document["port"], document["tls"], nodes)
        except FileNotFoundError:
            raise InvalidInput(
                "deployment", str(folder), "a folder made by: agewise deploy init"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(
                "deployment", f"{folder} ({error})", "a folder made by: agewise deploy init"
            ) from None

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"{self.host}:{self.port}"

    def node_numbers(self) -> dict[str, int] | None:
        """The number that each node's key has been registered under; None without keys."""
        if not self.tls or not self.nodes:
            return None
        try:
            known = json.loads((self.folder / REGISTERED).read_text(encoding="utf-8"))
            return {str(name): int(number) for name, number in known.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return None

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

    def superlink_command(self) -> list[str]:
        """The command of the SuperLink: apps run outside of it, so that it may be restarted."""
        safe = [
            "--ssl-certfile", str(self.folder / "server" / "server.crt"),
            "--ssl-keyfile", str(self.folder / "server" / "server.key"),
            "--ssl-ca-certfile", str(self.folder / "ca" / "ca.crt"),
            "--enable-supernode-auth",
        ]  # fmt: skip
        return [
            "flower-superlink", *(safe if self.tls else ["--insecure"]),
            "--isolation", "process", "--host", self.host, "--port", str(self.port),
            "--database", str(self.folder / "server" / "superlink.db"),
            "--superexec-auth-secret-file", str(self.folder / "server" / "superexec.secret"),
            "--disable-runtime-dependency-installation",
        ]  # fmt: skip

    def superexec_command(self) -> list[str]:
        """The command of the process that starts ServerApps."""
        trust = ["--root-certificates", str(self.folder / "ca" / "ca.crt")]
        return [
            "flower-superexec", "--runtime-api-address", self.address,
            *(trust if self.tls else ["--insecure"]),
            "--superexec-auth-secret-file", str(self.folder / "server" / "superexec.secret"),
        ]  # fmt: skip

    def node_command(self, node: Node) -> list[str]:
        """The command of one client's SuperNode."""
        place = self.folder / node.folder
        safe = [
            "--root-certificates", str(self.folder / "ca" / "ca.crt"),
            "--auth-supernode-private-key", str(place / "node.key"),
        ]  # fmt: skip
        return [
            "flower-supernode", *(safe if self.tls else ["--insecure"]),
            "--superlink", self.address, "--port", str(node.port),
            "--node-config", f"agewise-config={json.dumps(str(place / 'node.toml'))}",
        ]  # fmt: skip


def init_deployment(
    folder: Path | str,
    problem: Problem,
    *,
    tls: bool = True,
    host: str = LOOPBACK,
    port: int = 0,
    policy: Policy | None = None,
    readings: Path | str | None = None,
    seed: int | None = None,
    stand_in: bool = False,
    starts_at: int = 0,
) -> Deployment:
    """Lay out a federation for the clients of a problem; refuse a folder that is not empty.

    Port 0 takes free ports. Each node gets simulated records (from `seed`) unless `readings`
    names a file. `stand_in` makes the noise reproducible, and the nodes say so.
    """
    require_flower()
    refuse_stand_in(stand_in, readings)
    place = Path(folder).absolute()
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InvalidInput("deployment folder", str(folder), "a new or empty folder")
    _refuse_names(place, host, problem)
    probe_folder("deployment folder", place)
    whole("port", port, 0, 65535 - len(problem.clients))
    ports = [port, *range(port + 1, port + 1 + len(problem.clients))] if port else _free_ports(
        len(problem.clients) + 1
    )  # fmt: skip
    nodes = tuple(
        Node(c.name, f"nodes/{index:03d}-{quote(c.name, safe='')[:60]}", at)
        for index, (c, at) in enumerate(zip(problem.clients, ports[1:], strict=True), start=1)
    )
    made = Deployment(place, host, ports[0], tls, nodes)
    (place / "server").mkdir(parents=True)
    (place / "flwr").mkdir()
    _write_private(place / "server" / "superexec.secret", os.urandom(32).hex().encode())
    base = int.from_bytes(os.urandom(7)) if seed is None else seed
    records: dict[str, Any] = {"kind": "simulated", "seed": base}
    if readings is not None:
        records = {"kind": "readings", "path": str(Path(readings).absolute())}
    for node in nodes:
        write_node(
            place / node.folder / "node.toml", problem, node.name, records=records,
            policy=Policy(max_aged_epsilon=problem.epsilon) if policy is None else policy,
            stand_in_seed=base if stand_in else None, starts_at=starts_at,
        )  # fmt: skip
    if tls:
        _certificates(place, host)
        for node in nodes:
            _node_key(place / node.folder)
    _write_units(made)
    _write_connection(made)
    return made


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
    place = Path(folder).absolute()
    if authority is not None:
        (place / "ca").mkdir(parents=True)
        (place / "ca" / "ca.crt").write_bytes(authority)
    made = Deployment(place, host, port, authority is not None, ())
    (place / "flwr").mkdir(parents=True)
    _write_connection(made)
    return made


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


def _write_connection(made: Deployment) -> None:
    """Write what Flower's commands and ours need to know, the latter last."""
    connection: dict[str, Any] = {"address": made.address, "insecure": True}
    if made.tls:
        authority = str(made.folder / "ca" / "ca.crt")
        connection = {"address": made.address, "root-certificates": authority}
    home = {"superlink": {"default": PROFILE, PROFILE: connection}}
    (made.folder / "flwr" / "config.toml").write_text(tomli_w.dumps(home), encoding="utf-8")
    document = {
        "version": VERSION, "host": made.host, "port": made.port, "tls": made.tls,
        "nodes": [vars(node) for node in made.nodes],
    }  # fmt: skip
    (made.folder / "deployment.json").write_text(json.dumps(document, indent=2), encoding="utf-8")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind((LOOPBACK, 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _write_private(path: Path, content: bytes) -> None:
    """Write a secret that only its owner may read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def _certificates(place: Path, host: str) -> None:
    """Make a CA and the SuperLink's certificate, signed by it."""
    from cryptography import x509  # noqa: PLC0415  (comes with Flower)
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # noqa: PLC0415

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.now(UTC)
    ca_key, key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    start = (
        x509.CertificateBuilder()
        .issuer_name(name("Agewise deployment CA"))
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=VALID_DAYS))
    )
    usage = {
        "content_commitment": False, "key_encipherment": False, "data_encipherment": False,
        "key_agreement": False, "encipher_only": False, "decipher_only": False,
    }  # fmt: skip
    ca = (
        start.subject_name(name("Agewise deployment CA"))
        .serial_number(x509.random_serial_number())
        .public_key(ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **usage),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), False)
        .sign(ca_key, hashes.SHA384())
    )
    try:
        other: list[x509.GeneralName] = [x509.IPAddress(ip_address(host))]
    except ValueError:
        other = [x509.DNSName(host)]
    names = [x509.DNSName("localhost"), x509.IPAddress(ip_address(LOOPBACK))]
    names += [one for one in other if one not in names]
    server = (
        start.subject_name(name(host))
        .serial_number(x509.random_serial_number())
        .public_key(key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(digital_signature=True, key_cert_sign=False, crl_sign=False, **usage),
            critical=True,
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), False
        )
        .sign(ca_key, hashes.SHA384())
    )
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.PKCS8
    plain = serialization.NoEncryption()
    (place / "ca").mkdir()
    (place / "ca" / "ca.crt").write_bytes(ca.public_bytes(pem))
    _write_private(place / "ca" / "ca.key", ca_key.private_bytes(pem, form, plain))
    (place / "server" / "server.crt").write_bytes(server.public_bytes(pem))
    _write_private(place / "server" / "server.key", key.private_bytes(pem, form, plain))


def _node_key(place: Path) -> None:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    _write_private(place / "node.key", private)
    (place / "node.pub").write_bytes(public + b"\n")


def _write_units(made: Deployment) -> None:
    """Write systemd units and plain commands for those who do not want our supervisor."""
    units = made.folder / "systemd"
    units.mkdir()
    lines = {
        "agewise-superlink": made.superlink_command(),
        "agewise-superexec": made.superexec_command(),
        **{
            f"agewise-node-{index:03d}": made.node_command(node)
            for index, node in enumerate(made.nodes, start=1)
        },
    }
    kept = ("PATH", "FLWR_HOME", "FLWR_TELEMETRY_ENABLED", "FLWR_DISABLE_UPDATE_CHECK")
    settings = "\n".join(f'Environment="{k}={made.environment[k]}"' for k in kept)
    programs = Path(sys.executable).parent
    exports = "\n".join(f"export {k}={shlex.quote(made.environment[k])}" for k in kept)
    registered = [
        shlex.join(["flwr", "supernode", "register", str(made.folder / n.folder / "node.pub"),
                    PROFILE])
        for n in made.nodes
    ] if made.tls else []  # fmt: skip
    commands = [*map(shlex.join, list(lines.values())[:2]), *registered,
                *map(shlex.join, list(lines.values())[2:])]  # fmt: skip
    (made.folder / "commands.txt").write_text(
        "# What agewise deploy up starts, a shell each; registrations once, when the SuperLink\n"
        f"# answers.\n{exports}\n\n" + "\n\n".join(commands) + "\n",
        encoding="utf-8",
    )
    for name, command in lines.items():
        spelled = shlex.join([str(programs / command[0]), *command[1:]])
        spelled = spelled.replace("%", "%%").replace("$", "$$")
        (units / f"{name}.service").write_text(
            f"[Unit]\nDescription={name}\nAfter=network-online.target\n\n"
            f"[Service]\n{settings}\nExecStart={spelled}\n"
            "Restart=always\nRestartSec=10\nNoNewPrivileges=yes\n"
            "# Apps are code that others submit: give each service a user of its own.\n"
            "# User=agewise\n\n[Install]\nWantedBy=multi-user.target\n",
            encoding="utf-8",
        )
