"""Asking a SuperLink: whether it is there, and by Flower's own commands, answered in JSON."""

from __future__ import annotations

import json
import ssl
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from agewise.federation.flower.deployment import Deployment

PATIENCE = 120
"""Seconds for which a command of Flower may take its time."""


def ask_flower(deployment: Deployment, *arguments: str) -> dict[str, Any]:
    """Run a `flwr` command against a deployment's SuperLink; return what it answers."""
    try:
        done = subprocess.run(
            ["flwr", *arguments, "--format", "json"],
            env=deployment.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return {"success": False, "error-message": f"no answer within {PATIENCE} s"}
    try:
        document: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no answer"]
        return {"success": False, "error-message": lines[-1]}
    return document


def healthy(deployment: Deployment) -> bool:
    """Whether the SuperLink of a deployment answers."""
    authority = deployment.folder / "ca" / "ca.crt" if deployment.tls else None
    return answers(deployment.address, authority)


def answers(address: str, authority: Path | str | None) -> bool:
    """Whether there is a SuperLink at an address; by TLS if its CA is given."""
    scheme, context = "http", None
    try:
        if authority is not None:
            scheme, context = "https", ssl.create_default_context(cafile=str(authority))
        with urllib.request.urlopen(
            f"{scheme}://{address}/health", timeout=2, context=context
        ) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
