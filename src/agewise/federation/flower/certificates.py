"""Secrets of a deployment: a CA, the SuperLink's certificate, and a key for each node."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from agewise.errors import InvalidInput
from agewise.problem import Problem

VALID_DAYS = 825
LOOPBACK = "127.0.0.1"


def write_private(path: Path, content: bytes) -> None:
    """Write a secret that only its owner may read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def make_certificates(place: Path, host: str) -> None:
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
        "content_commitment": False,
        "key_encipherment": False,
        "data_encipherment": False,
        "key_agreement": False,
        "encipher_only": False,
        "decipher_only": False,
    }
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
    write_private(place / "ca" / "ca.key", ca_key.private_bytes(pem, form, plain))
    (place / "server" / "server.crt").write_bytes(server.public_bytes(pem))
    write_private(place / "server" / "server.key", key.private_bytes(pem, form, plain))


def refuse_plain_text(problem: Problem, tls: bool) -> None:
    """Refuse to send means without noise over a connection that others can read."""
    if problem.server_adds_noise and not tls:
        raise InvalidInput(
            "noise",
            "'server' without TLS",
            "noise by each client, or TLS",
            "The clients' means would travel as they are. Lay the deployment out with --tls, or "
            "name the SuperLink's CA with --root-certificates.",
        )


def make_node_key(place: Path) -> None:
    """Make the key pair by which the SuperLink knows a node."""
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
    write_private(place / "node.key", private)
    (place / "node.pub").write_bytes(public + b"\n")
