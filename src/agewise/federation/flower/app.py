"""The Flower app of a run, which every node gets."""

from __future__ import annotations

import json
from pathlib import Path

from agewise.federation.flower.deployment import Deployment
from agewise.federation.settings import Settings
from agewise.planning import Plan

APP = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "agewise-run"
version = "1.0.0"
description = "A plan made by Agewise, carried out on Flower."
license = "Apache-2.0"
dependencies = ["agewise"]

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "agewise"

[tool.flwr.app.components]
serverapp = "agewise_run.server_app:app"
clientapp = "agewise_run.client_app:app"

[tool.flwr.app.config]
"""


def write_app(
    folder: Path,
    plan: Plan,
    settings: Settings,
    deployment: Deployment,
    before: int | None = None,
) -> Path:
    """Write the Flower app of a run: the plan, and two modules that point to ours.

    Every node gets it, so nothing that a client has uploaded may be in it. `before`: the slots
    before it, where the run is one round among many.
    """
    code = folder / "agewise_run"
    code.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(APP, encoding="utf-8")
    (code / "__init__.py").write_text("", encoding="utf-8")
    (code / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    sent = {
        "run": settings.run,
        "private": not settings.stand_in,
        "on_missing": settings.on_missing,
        "clock": settings.clock,
        "slot_seconds": settings.slot_seconds,
        "wait": settings.wait,
        "slot_timeout": settings.slot_timeout,
        "started": settings.started,
        "nodes": deployment.node_numbers(),
        "at_once": settings.at_once,
        "seed": settings.seed if settings.stand_in else None,
        "resumed": settings.submitted,
        "before": before,
    }
    (code / "settings.json").write_text(json.dumps(sent), encoding="utf-8")
    (code / "client_app.py").write_text(
        "from agewise.federation.flower import client_app\n\napp = client_app.app\n",
        encoding="utf-8",
    )
    (code / "server_app.py").write_text(
        "from pathlib import Path\n\n"
        "from agewise.federation.flower.server_app import make_server_app\n\n"
        "app = make_server_app(Path(__file__).parent)\n",
        encoding="utf-8",
    )
    return folder
