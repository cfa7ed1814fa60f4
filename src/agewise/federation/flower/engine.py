"""Run a plan on Flower: lay out, bring up, submit, and build the result from what it published."""

from __future__ import annotations

import contextlib
import json
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from agewise.checks import positive, whole
from agewise.errors import InvalidInput
from agewise.federation.client import OrderRefused
from agewise.federation.flower import require_flower
from agewise.federation.flower.app import write_app
from agewise.federation.flower.certificates import refuse_plain_text
from agewise.federation.flower.commands import answers, healthy
from agewise.federation.flower.deployment import (
    Deployment,
    busy_ports,
    change_layout,
    checked_address,
    elsewhere,
    init_deployment,
)
from agewise.federation.flower.node import Node
from agewise.federation.flower.publication import Published
from agewise.federation.flower.submission import Submission, submit
from agewise.federation.flower.supervisor import bring_down, bring_up, read_state
from agewise.federation.journal import RunFolder, how_to_retry
from agewise.federation.one_draw import OneDraw
from agewise.federation.result import RunResult, Watcher, conclude
from agewise.federation.server import OnMissing, RunIncomplete, Server, Step
from agewise.federation.settings import Clock, Settings, make_settings
from agewise.federation.sources import DataSource, SimulatedRecords
from agewise.planning import Plan
from agewise.privacy.account import BudgetExceeded, Policy
from agewise.privacy.ledger import LedgerDamaged

SUBMISSION = "submission.json"
"""The file of a run's folder that names a submission whose result is not in the record yet."""


def run_on_flower(
    plan: Plan,
    rng: np.random.Generator | None = None,
    *,
    folder: Path | str | None = None,
    deployment: Path | str | None = None,
    superlink: str | None = None,
    root_certificates: Path | str | None = None,
    policy: Policy | None = None,
    sources: Path | str | None = None,
    on_missing: OnMissing = "fail",
    clock: Clock = "virtual",
    slot_seconds: float = 60.0,
    starts_at: int = 0,
    wait: float = 120.0,
    slot_timeout: float = 180.0,
    at_once: int = 100,
    watch: Watcher | None = None,
) -> RunResult:
    """Run a plan on Flower. See `agewise.run`.

    Without a `deployment`, a federation is laid out in the run's folder, brought up on loopback
    with TLS and node keys, and taken down at the end. With one, its nodes decide about records,
    limits and noise by their own configuration. So do the nodes of a `superlink` elsewhere
    (HOST:PORT), which is reached by TLS if `root_certificates` names its CA.
    """
    require_flower()
    if folder is None:
        raise InvalidInput("folder", "None", "a folder for the run", "Flower needs one.")
    place = Path(folder)
    RunFolder.refuse_used(place)
    settings = replace(
        make_settings(plan, rng, on_missing, clock, slot_seconds),
        engine="flower",
        started=0.0,
        wait=positive("wait", wait),
        slot_timeout=positive("slot_timeout", slot_timeout),
        at_once=whole("at_once", at_once, 1),
        deployment=None if deployment is None else str(Path(deployment).resolve()),
    )
    if superlink is not None:
        if deployment is not None:
            raise InvalidInput("superlink", "given with a deployment", "one or the other")
        _refuse_choices(policy=policy, sources=sources, starts_at=starts_at or None, rng=rng)
        checked_address(superlink, root_certificates)
        refuse_plain_text(plan.problem, root_certificates is not None)
        if not answers(superlink, root_certificates):
            raise _nobody_at(superlink)
        connection = elsewhere(place / "deployment", superlink, root_certificates)
        settings = replace(settings, deployment=str(connection.folder))
    elif deployment is None:
        if sources is not None and rng is None:
            raise InvalidInput(
                "deployment",
                "None",
                "a deployment whose nodes have the readings and keep ledgers",
                "Lay one out with: agewise deploy init",
            )
        init_deployment(
            place / "deployment",
            plan.problem,
            policy=policy,
            readings=sources,
            seed=settings.seed,
            stand_in=settings.stand_in,
            starts_at=starts_at,
        )
    else:
        _refuse_choices(policy=policy, sources=sources, starts_at=starts_at or None, rng=rng)
        there = Deployment.load(deployment)
        refuse_plain_text(plan.problem, there.tls)
        seed = _stand_in_seed(there, plan)
        if seed is not None:
            settings = replace(settings, stand_in=True, seed=seed)
        if on_missing == "fail":
            _refuse_other(there, plan)
        _refuse_down(there)
    return _follow(RunFolder.create(place, plan, settings), plan, settings, watch)


def resume_on_flower(folder: Path, watch: Watcher | None = None) -> RunResult:
    """Go on with a run: the same orders again; who has released sends the same bytes."""
    require_flower()
    place, plan, settings = RunFolder.reopen(folder)
    return _follow(place, plan, settings, watch)


def _refuse_choices(**choices: Any) -> None:
    for name, value in choices.items():
        if value is not None:
            raise InvalidInput(
                name,
                "given with a deployment",
                "one or the other",
                "With a deployment, each node's own configuration decides about that.",
            )


def _follow(place: RunFolder, plan: Plan, settings: Settings, watch: Watcher | None) -> RunResult:
    try:
        server = Server(plan, settings.run, settings.on_missing, private=not settings.stand_in)
        place.refuse_passed(settings)
        own = settings.deployment is None
        deployment = Deployment.load(place.path / "deployment" if own else str(settings.deployment))
        refuse_plain_text(plan.problem, deployment.tls)
        found = _published(place, plan, settings, deployment, _keeping(place, settings, watch))
        try:
            draw = place.draw(settings, found.draw)
            _take_over(server, found, draw)
            place.keep_only(server)
            return conclude(server, place, _simulated(plan, deployment), {}, draw)
        except RunIncomplete as failure:
            again = how_to_retry(place, settings)
            if found.exit_code == BudgetExceeded.exit_code:
                why = f"{failure} The client's own log says what remains. {again}"
                raise BudgetExceeded(why.rstrip()) from None
            if found.exit_code == LedgerDamaged.exit_code:
                raise LedgerDamaged(str(failure)) from None
            raise RunIncomplete(f"{failure} {again}".rstrip()) from None
        finally:  # a resumed run is to ask again
            (place.path / SUBMISSION).unlink(missing_ok=True)
    finally:
        place.close()


def _take_over(server: Server, found: Published, draw: OneDraw) -> None:
    """Feed a server with all that reached the ServerApp's; refuse a result that is not its."""
    once = server.first_plan.problem.noise == "server"
    try:
        for entry in found.journal:
            server.feed(entry)
        server.failure = found.failure or server.failure
        if server.failure is None and once and found.draw is None:
            raise KeyError("draw")
        if server.failure is None and server.finish(draw).model != found.model:
            raise KeyError("model")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RunIncomplete(
            f"what the ServerApp published makes no sense ({error!r}). What was released is in "
            "the ledgers."
        ) from None


def _published(
    place: RunFolder, plan: Plan, settings: Settings, deployment: Deployment, watch: Watcher
) -> Published:
    """Submit the run and wait for its result; or go on with what was submitted before."""
    own = settings.deployment is None
    earlier = _submitted(place)
    if earlier is not None:
        submission = Submission(deployment, earlier, settings.run, watch)
        if submission.has_result() or not (own or submission.has_failed()):
            return submission.wait()
    with _up(deployment, own) as up:
        app = write_app(place.path / "app", plan, settings, up)
        number = submit(up, app)
        place.write(SUBMISSION, json.dumps({"flower_run": number}))
        place.write_settings(replace(settings, submitted=True))
        return Submission(up, number, settings.run, watch).wait()


def _submitted(place: RunFolder) -> str | None:
    """Flower's number of a run whose result has not been taken over yet."""
    try:
        number = json.loads((place.path / SUBMISSION).read_text(encoding="utf-8"))["flower_run"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return number if isinstance(number, str) and number.isdecimal() else None


def _keeping(place: RunFolder, settings: Settings, watch: Watcher | None) -> Watcher:
    """Watch a run, and note when its first slot began, for the case that it is resumed."""

    def watching(step: Step, closed: int, total: int) -> None:
        if step.what == "began":
            with contextlib.suppress(ValueError):
                place.write_settings(replace(settings, started=float(step.why), submitted=True))
        if watch is not None:
            watch(step, closed, total)

    return watching


@contextlib.contextmanager
def _up(deployment: Deployment, own: bool) -> Iterator[Deployment]:
    """A federation that is up: our own for the time of the run, or the one that is there."""
    if not own:
        _refuse_down(deployment)
        yield deployment
        return
    bring_down(deployment)  # what is left of it, if the run was killed
    if busy_ports(deployment):  # others have taken them since the run began
        deployment = change_layout(deployment, port=0)
    try:
        bring_up(deployment, stays=False)
        yield deployment
    finally:
        bring_down(deployment)


def _refuse_down(deployment: Deployment) -> None:
    if healthy(deployment):
        return
    if not deployment.nodes:
        raise _nobody_at(deployment.address)
    word = "is down" if read_state(deployment) is None else "is starting"
    raise InvalidInput(
        "deployment",
        f"{deployment.folder}, which {word} (no SuperLink at {deployment.address})",
        "one that is up",
        f"agewise deploy up {deployment.folder}",
    )


def _nobody_at(address: str) -> InvalidInput:
    return InvalidInput(
        "superlink",
        f"{address}, where none answers",
        "the address of a SuperLink",
        "Check address, firewall, and whether it wants TLS (--root-certificates).",
    )


def _node_documents(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """What the nodes' files say, where they are on this machine."""
    configured = {}
    for node in deployment.nodes:
        with contextlib.suppress(OSError, ValueError):
            text = (deployment.folder / node.folder / "node.toml").read_text(encoding="utf-8")
            configured[node.name] = tomllib.loads(text)
    return configured


def _stand_in_seed(deployment: Deployment, plan: Plan) -> int | None:
    """The seed of the nodes' stand-in, of the first if they differ; refuse a mixture."""
    names = {c.name for c in plan.problem.clients}
    known = {node.name for node in deployment.nodes}
    if names - known:
        raise InvalidInput(
            "deployment",
            f"{deployment.folder} without a node for {min(names - known)!r}",
            "a node for every client of the plan",
        )
    here = _node_documents(deployment)
    seeds = [one.get("stand_in_seed") for name, one in here.items() if name in names]
    if len({seed is None for seed in seeds}) > 1:
        raise InvalidInput(
            "deployment",
            f"{deployment.folder}, where some nodes use a stand-in for noise",
            "all of them, or none",
        )
    return int(seeds[0]) if seeds and seeds[0] is not None else None


def _refuse_other(deployment: Deployment, plan: Plan) -> None:
    """Refuse a plan that nodes on this machine would refuse, before anything is submitted."""
    server, here = Server(plan, "run"), _node_documents(deployment)
    folders = {node.name: deployment.folder / node.folder for node in deployment.nodes}
    for slot in range(1, plan.problem.aggregate_at + 1):
        for order in server.orders(slot):
            if order.client not in here:
                continue
            try:
                Node(folders[order.client] / "node.toml").check(order)
            except OrderRefused as refusal:
                raise InvalidInput(
                    "plan",
                    f"not what the nodes of {deployment.folder} follow",
                    "the choices that each node's node.toml states",
                    f"{refusal}. Run what the deployment was laid out for, or lay out another one.",
                ) from None


def _simulated(plan: Plan, deployment: Deployment) -> Callable[[str], DataSource] | None:
    """The records of nodes that simulate them, for the realised loss."""
    clients = {c.name: c for c in plan.problem.clients}
    seeds = {
        name: document["records"]["seed"]
        for name, document in _node_documents(deployment).items()
        if document.get("records", {}).get("kind") == "simulated"
    }
    if not set(clients) <= set(seeds):
        return None
    return lambda name: SimulatedRecords(clients[name], seeds[name])
