"""The ServerApp: builds the run's server, has it carried out, publishes what it ends with."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import asdict, fields
from logging import INFO
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.common.logger import log
from flwr.serverapp import Grid, ServerApp

from agewise.errors import AgewiseError
from agewise.federation.engine import Engine, Timetable
from agewise.federation.flower.transport import FlowerSettings, FlowerTransport, some_of
from agewise.federation.server import RunIncomplete, Server, Step
from agewise.planning import Plan

STEP = "agewise-step"
"""The word that begins the lines of the log by which a run is followed from outside."""
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
        _carry_out(grid, server, settings)
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


def _carry_out(grid: Grid, server: Server, settings: FlowerSettings) -> None:
    """Gather the clients, have them try their orders, and take the server through its slots."""
    problem = server.first_plan.problem

    def notice(step: Step) -> None:
        _log_step(step, server.closed, problem.aggregate_at)

    transport = FlowerTransport(grid, (c.name for c in problem.clients), settings, notice)
    engine = Engine(server, transport, watch=_log_step)
    absent = transport.gather()
    if absent and (settings.on_missing == "fail" or len(absent) == len(problem.clients)):
        server.failure = f"no node answers for {some_of(absent)}"
        return
    if absent:
        notice(Step(0, "", "absent", some_of(absent)))
    orders = [o for slot in range(1, problem.aggregate_at + 1) for o in server.orders(slot)]
    unready = transport.rehearse(orders, lambda client, why: engine.refuse(client, 0, why))
    if unready:
        reasons = ", ".join(sorted(set(unready.values())))
        server.failure = (
            f"asked beforehand, {some_of(set(unready))} would not follow the plan ({reasons}); "
            "nobody was told to release"
        )
        return
    notice(Step(0, "", "ready", f"{len(transport.nodes)} clients"))
    timetable = Timetable(timeout=settings.slot_timeout)
    if settings.clock == "wall":  # slot 1 begins when the clients are there, or as it did before
        started = settings.started or transport.now()
        notice(Step(0, "", "began", repr(started)))
        timetable = Timetable(started, settings.slot_seconds)
    engine.carry_out(timetable)


def _log_step(step: Step, closed: int, last: int) -> None:
    log(INFO, "%s %s", STEP, json.dumps([asdict(step), closed, last]))


def _reasons(server: Server) -> set[str]:
    """Why clients are missing: those of the slot in which the run failed, or all who refused."""
    due = {server.refused.get(order.client, "") for order in server.orders(server.closed)}
    return due or set(server.refused.values())


def _publish(server: Server, **facts: Any) -> None:
    document = {**facts, "journal": server.inputs}
    packed = base64.b64encode(zlib.compress(json.dumps(document).encode())).decode()
    log(INFO, "%s %s", RESULT, packed)
