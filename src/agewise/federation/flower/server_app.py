"""The ServerApp: builds the run's server, has it carried out, publishes what it ends with."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import fields
from logging import INFO
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.common.logger import log
from flwr.serverapp import Grid, ServerApp

from agewise.errors import AgewiseError
from agewise.federation.flower.conductor import Conductor, FlowerSettings
from agewise.federation.server import RunIncomplete, Server
from agewise.planning import Plan

RESULT = "agewise-result"
"""The word that begins the line of the log that holds a run's result."""


def make_server_app(folder: Path) -> ServerApp:
    """Return the ServerApp that runs the plan in a folder."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:  # noqa: ARG001
        plan = Plan.from_json((folder / "plan.json").read_text(encoding="utf-8"))
        told = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
        known = {f.name for f in fields(FlowerSettings)}
        settings = FlowerSettings(**{k: v for k, v in told.items() if k in known})
        carry_out(grid, plan, settings)

    return app


def carry_out(grid: Grid, plan: Plan, settings: FlowerSettings) -> Server:
    """Run a plan on the nodes of a grid, and write its result to the log."""
    server = Server(plan, settings.run, settings.on_missing, private=settings.private)
    try:
        conductor = Conductor(grid, server, settings)
        conductor.gather()
        conductor.rehearse()
        conductor.begin()
        while server.closed < plan.problem.aggregate_at and server.failure is None:
            conductor.slot(server.closed + 1)
        outcome = server.finish()
    except Exception as error:
        known = isinstance(error, AgewiseError)
        why = server.failure or (
            str(error) if known else f"{type(error).__name__} in the ServerApp"
        )
        code = 3 if isinstance(error, RunIncomplete) and _reasons(server) == {"budget"} else 4
        _publish(server, complete=False, failure=why, exit_code=code)
        raise
    _publish(server, complete=True, model=outcome.model)
    return server


def _reasons(server: Server) -> set[str]:
    """Why clients are missing: those of the slot in which the run failed, or all who refused."""
    due = {server.refused.get(order.client, "") for order in server.orders(server.closed)}
    return due or set(server.refused.values())


def _publish(server: Server, **facts: Any) -> None:
    document = {**facts, "journal": server.inputs}
    packed = base64.b64encode(zlib.compress(json.dumps(document).encode())).decode()
    log(INFO, "%s %s", RESULT, packed)
