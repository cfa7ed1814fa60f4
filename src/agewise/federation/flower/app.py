"""The Flower app of a run, which every node gets; and one to begin one's own with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from agewise.errors import InvalidInput
from agewise.federation.files import probe_folder
from agewise.federation.flower.deployment import Deployment
from agewise.federation.settings import Settings
from agewise.planning import Plan

TEMPLATE = Path(__file__).parent / "template"
"""The examples with scikit-learn."""

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


def write_template(folder: Path) -> None:
    """Write the age-aware example and its scenario to a new or empty folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput("folder", str(folder), "a new or empty folder")
    probe_folder("folder", folder)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(TEMPLATE / "aged", folder, dirs_exist_ok=True, ignore=ignored)
    shutil.copyfile(TEMPLATE / "plants.toml", folder / "plants.toml")
