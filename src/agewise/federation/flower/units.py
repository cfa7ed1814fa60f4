"""systemd units and plain commands of a deployment."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agewise.federation.flower.deployment import Deployment


PROFILE = "agewise"
"""Flower's name for the connection of a deployment."""


def write_units(deployment: Deployment) -> None:
    """Write systemd units and plain commands for those who do not want our supervisor."""
    units = deployment.folder / "systemd"
    units.mkdir(exist_ok=True)
    lines = {
        "agewise-superlink": deployment.superlink_command(),
        "agewise-superexec": deployment.superexec_command(),
        **{
            f"agewise-node-{index:03d}": deployment.node_command(node)
            for index, node in enumerate(deployment.nodes, start=1)
        },
    }
    kept = ("PATH", "FLWR_HOME", "FLWR_TELEMETRY_ENABLED", "FLWR_DISABLE_UPDATE_CHECK")
    settings = "\n".join(f'Environment="{k}={deployment.environment[k]}"' for k in kept)
    programs = Path(sys.executable).parent
    exports = "\n".join(f"export {k}={shlex.quote(deployment.environment[k])}" for k in kept)
    registered = (
        [
            shlex.join(
                [
                    "flwr",
                    "supernode",
                    "register",
                    str(deployment.folder / n.folder / "node.pub"),
                    PROFILE,
                ]
            )
            for n in deployment.nodes
        ]
        if deployment.tls
        else []
    )
    commands = [
        *map(shlex.join, list(lines.values())[:2]),
        *registered,
        *map(shlex.join, list(lines.values())[2:]),
    ]
    (deployment.folder / "commands.txt").write_text(
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
