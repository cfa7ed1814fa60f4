"""Flower's own commands, answered in JSON."""

from __future__ import annotations

import json
import subprocess
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
