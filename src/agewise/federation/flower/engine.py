"""Run a plan on Flower: lay out, bring up, submit, and build the result from what it published."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from agewise.checks import parse_json, positive, whole
from agewise.errors import InvalidInput
from agewise.federation.flower import require_flower
from agewise.federation.flower.app import write_app
from agewise.federation.flower.certificates import refuse_plain_text
from agewise.federation.flower.federation import Federation, find_nodes, not_ours
from agewise.federation.flower.publication import Published
from agewise.federation.flower.submission import Submission, submit
from agewise.federation.happened import OnMissing, RunIncomplete, Step
from agewise.federation.journal import RunFolder, how_to_retry
from agewise.federation.one_draw import OneDraw
from agewise.federation.result import RunResult, Watcher, conclude
from agewise.federation.server import Server
from agewise.federation.settings import Clock, Settings, make_settings
from agewise.federation.sources import DataSource, Simulated
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
    if starts_at and (deployment or superlink):
        raise not_ours("starts_at")
    settings = replace(
        make_settings(plan, rng, on_missing, clock, slot_seconds),
        engine="flower",
        started=0.0,
        wait=positive("wait", wait),
        slot_timeout=positive("slot_timeout", slot_timeout),
        at_once=whole("at_once", at_once, 1),
        deployment=None if deployment is None else str(Path(deployment).resolve()),
    )
    settings = find_nodes(
        place,
        plan,
        settings,
        superlink=superlink,
        root_certificates=root_certificates,
        policy=policy,
        sources=sources,
        starts_at=starts_at,
    )
    return _alone(RunFolder.create(place, plan, settings), plan, settings, watch)


def resume_on_flower(folder: Path, watch: Watcher | None = None) -> RunResult:
    """Go on with a run: the same orders again; who has released sends the same bytes."""
    require_flower()
    place, plan, settings = RunFolder.reopen(folder)
    return _alone(place, plan, settings, watch)


Source = Callable[[str], DataSource]


def _alone(place: RunFolder, plan: Plan, settings: Settings, watch: Watcher | None) -> RunResult:
    """Carry out a run that is no round among many."""
    try:
        federation = Federation(settings, place.path)
    except BaseException:
        place.close()
        raise
    clients, seeds = {c.name: c for c in plan.problem.clients}, federation.seeds()
    known = set(clients) <= set(seeds)
    drawn = {seed: Simulated(plan.problem, seed) for seed in set(seeds.values())}

    def simulated(name: str) -> DataSource:
        return drawn[seeds[name]](name)

    with contextlib.closing(federation):
        return follow(place, plan, settings, federation, simulated if known else None, watch)


def follow(
    place: RunFolder,
    plan: Plan,
    settings: Settings,
    federation: Federation,
    simulated: Source | None,
    watch: Watcher | None,
    before: int | None = None,
) -> RunResult:
    """Have a run carried out on a federation, or go on with it; build the result in its folder.

    `simulated` gives the records of nodes that simulate them, for the realised loss; `before` is
    how many slots lie before the run, where it is one round among many.
    """
    try:
        server = Server(plan, settings.run, settings.on_missing, private=not settings.stand_in)
        place.refuse_passed(settings)
        refuse_plain_text(plan.problem, federation.deployment.tls)
        watching = _keeping(place, settings, watch)
        found = _published(place, plan, settings, federation, before, watching)
        try:
            draw = place.draw(settings, found.draw)
            _take_over(server, found, draw)
            place.keep_only(server)
            return conclude(server, place, simulated, {}, draw)
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
    once = server.first_plan.problem.server_adds_noise
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
    place: RunFolder,
    plan: Plan,
    settings: Settings,
    federation: Federation,
    before: int | None,
    watch: Watcher,
) -> Published:
    """Submit the run and wait for its result; or go on with what was submitted before."""
    earlier = _submitted(place)
    if earlier is not None:
        submission = Submission(federation.deployment, earlier, settings.run, watch)
        if submission.has_result() or not (federation.own or submission.has_failed()):
            return submission.wait()
    up = federation.up()
    app = write_app(place.path / "app", plan, settings, up, before)
    number = submit(up, app)
    place.write(SUBMISSION, json.dumps({"flower_run": number}))
    place.write_settings(replace(settings, submitted=True))
    return Submission(up, number, settings.run, watch).wait()


def _submitted(place: RunFolder) -> str | None:
    """Flower's number of a run whose result has not been taken over yet."""
    try:
        number = parse_json((place.path / SUBMISSION).read_text(encoding="utf-8"))["flower_run"]
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
