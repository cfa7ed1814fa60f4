"""The ServerApp: builds the run's server, has it carried out, publishes what it ends with."""

from __future__ import annotations

from dataclasses import fields
from logging import INFO
from pathlib import Path

from flwr.app import Context
from flwr.common.logger import log
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.utils import get_flwr_home

from agewise.checks import parse_json
from agewise.errors import AgewiseError
from agewise.federation.engine import Engine, Timetable
from agewise.federation.flower.publication import Published, Publisher, folder_in
from agewise.federation.flower.transport import FlowerSettings, FlowerTransport, some_of
from agewise.federation.happened import RunIncomplete, Step
from agewise.federation.server import Server
from agewise.planning import Plan
from agewise.privacy.account import BudgetExceeded
from agewise.privacy.ledger import LedgerDamaged


def make_server_app(folder: Path) -> ServerApp:
    """Return the ServerApp that runs the plan in a folder."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        plan = Plan.from_json((folder / "plan.json").read_text(encoding="utf-8"))
        told = parse_json((folder / "settings.json").read_text(encoding="utf-8"))
        known = {f.name for f in fields(FlowerSettings)}
        settings = FlowerSettings(**{k: v for k, v in told.items() if k in known})
        carry_out(grid, plan, settings, Publisher(folder_in(get_flwr_home(), context.run_id)))

    return app


def carry_out(grid: Grid, plan: Plan, settings: FlowerSettings, publisher: Publisher) -> Server:
    """Run a plan on the nodes of a grid, and publish its steps and its result."""
    server = Server(plan, settings.run, settings.on_missing, private=settings.private)
    log(INFO, "agewise: steps and result of run %s go to %s", server.run, publisher.folder)
    draw = publisher.draw(server.run, None if settings.private else settings.seed)
    once = plan.problem.server_adds_noise
    try:
        if once and settings.resumed:
            draw.refuse_unopened()
        elif once:
            draw.open(plan)
        server.remember(publisher.heads(server.run))
        _carry_out(grid, server, settings, publisher)
        outcome = server.finish(draw)
    except Exception as error:
        known = isinstance(error, AgewiseError)
        why = server.failure or (
            str(error) if known else f"{type(error).__name__} in the ServerApp"
        )
        over = isinstance(error, RunIncomplete) and _reasons(server) == {"budget"}
        code = BudgetExceeded.exit_code if over else RunIncomplete.exit_code
        code = LedgerDamaged.exit_code if isinstance(error, LedgerDamaged) else code
        publisher.result(Published(server.run, server.inputs, failure=why, exit_code=code))
        raise
    finally:
        publisher.remember(server)
    made = draw.record() if once else None
    publisher.result(Published(server.run, server.inputs, model=outcome.model, draw=made))
    return server


def _carry_out(grid: Grid, server: Server, settings: FlowerSettings, publisher: Publisher) -> None:
    """Gather the clients, have them try their orders, and take the server through its slots."""
    problem = server.first_plan.problem

    def notice(step: Step) -> None:
        publisher.step(step, server.closed, problem.aggregate_at)

    transport = FlowerTransport(grid, (c.name for c in problem.clients), settings, notice)
    engine = Engine(server, transport, watch=publisher.step)
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
            "no release was ordered"
        )
        return
    notice(Step(0, "", "ready", f"{len(transport.nodes)} clients"))
    timetable = Timetable(timeout=settings.slot_timeout)
    if settings.clock == "wall":  # slot 1 begins when the clients are there, or as it did before
        started = settings.started or transport.now()
        notice(Step(0, "", "began", repr(started)))
        timetable = Timetable(started, settings.slot_seconds)
    engine.carry_out(timetable)


def _reasons(server: Server) -> set[str]:
    """Why clients are missing: those of the slot in which the run failed, or all who refused."""
    due = {server.refused.get(order.client, "") for order in server.orders(server.closed)}
    return due or set(server.refused.values())
