"""Carry a plan out, or go on with that, by either engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from agewise.checks import as_path
from agewise.errors import InvalidInput
from agewise.federation.happened import OnMissing
from agewise.federation.journal import RunFolder
from agewise.federation.local import resume_locally, run_locally
from agewise.federation.result import RunResult, Watcher
from agewise.federation.settings import Clock, Engine, check_choices
from agewise.federation.sources import DataSource
from agewise.planning import Plan
from agewise.planning.plan import as_plan
from agewise.privacy.account import Policy


def run(
    plan: Plan,
    engine: Engine = "local",
    rng: np.random.Generator | None = None,
    *,
    folder: Path | str | None = None,
    sources: Mapping[str, DataSource] | Path | str | None = None,
    ledgers: Path | str | None = None,
    policy: Policy | None = None,
    on_missing: OnMissing = "fail",
    clock: Clock = "virtual",
    slot_seconds: float = 60.0,
    starts_at: int = 0,
    drop: Iterable[str] = (),
    deployment: Path | str | None = None,
    superlink: str | None = None,
    root_certificates: Path | str | None = None,
    wait: float = 120.0,
    slot_timeout: float = 180.0,
    at_once: int = 100,
    watch: Watcher | None = None,
) -> RunResult:
    """Carry a plan out: clients collect, train, add noise, record and upload, slot by slot.

    Without `rng` the noise is OpenDP's and private. With it, records and noise are reproducible,
    and the result says that nothing is private. The choices are named as on the command line:

    - `folder`: where the run lives (settings, journal, ledgers, record); `resume` goes on there.
      Without one, simulated records are accounted for in memory.
    - `sources`: a CSV or Parquet file of readings, or a `DataSource` per client; None: simulated.
    - `ledgers`: a folder of ledgers that outlives the run, needed for real records (local engine);
      or one file for all clients, if its name ends in .ledger.
    - `starts_at`: how many slots of the clients' own time lie before slot 1, so that releases of
      several runs line up.
    - `policy`: what each client allows itself in all (None: its target, for all its releases).
    - `on_missing`: `fail`, `renormalise` (go on with the others) or `replan`.
    - `clock`: `virtual`, or `wall` with `slot_seconds`; `drop`: clients that never answer (local).
    - for the engine `flower`: `deployment` (None: one of its own, on loopback with TLS and node
      keys) or `superlink` with `root_certificates`, `wait` seconds for the nodes to appear,
      `slot_timeout` seconds for a slot by the virtual clock, `at_once` messages under way at most;
      a `folder` is needed.
    - `watch`: called with each `Step`, the slots closed and the slots in all.

    Guarantees
        Each client's release and its exact bytes are in its ledger before the server sees them.
        With the same `rng`, two runs give the same model, whatever was interrupted.

    >>> from agewise import plan, scenarios
    >>> london = plan(scenarios.london())
    >>> first = run(london, rng=np.random.default_rng(1))
    >>> first.model == run(london, rng=np.random.default_rng(1)).model, first.private
    (True, False)
    """
    as_plan(plan)
    gone = check_choices(
        [client.name for client in plan.problem.clients],
        engine,
        private=rng is None,
        drop=drop,
        sources=sources,
        policy=policy,
        superlink=superlink,
        on_missing=on_missing,
        clock=clock,
        slot_seconds=slot_seconds,
        starts_at=starts_at,
        folder=folder,
        ledgers=ledgers,
        deployment=deployment,
        root_certificates=root_certificates,
    )
    if plan.problem.rounds != 1:
        raise InvalidInput(
            "plan", "for many rounds", "a plan for one", "Use run_rounds, or agewise rounds."
        )
    if engine == "local":
        return run_locally(
            plan,
            rng,
            folder=folder,
            sources=sources,
            ledgers=ledgers,
            policy=policy,
            on_missing=on_missing,
            clock=clock,
            slot_seconds=slot_seconds,
            starts_at=starts_at,
            drop=gone,
            watch=watch,
        )
    from agewise.federation.flower.engine import run_on_flower  # noqa: PLC0415

    if isinstance(sources, Mapping):
        raise InvalidInput(
            "sources", "objects", "a file of readings, on Flower", "Nodes read their own records."
        )
    return run_on_flower(
        plan,
        rng,
        folder=folder,
        deployment=deployment,
        superlink=superlink,
        root_certificates=root_certificates,
        policy=policy,
        sources=sources,
        on_missing=on_missing,
        clock=clock,
        slot_seconds=slot_seconds,
        starts_at=starts_at,
        wait=wait,
        slot_timeout=slot_timeout,
        at_once=at_once,
        watch=watch,
    )


def resume(
    folder: Path | str,
    *,
    sources: Mapping[str, DataSource] | None = None,
    watch: Watcher | None = None,
) -> RunResult:
    """Go on with a run that was interrupted or that failed, by the engine that it began with.

    Clients that have released in this run send the same bytes again; slots that have passed by
    the wall clock meanwhile are closed, and whoever is missing is dealt with as the run was told.
    After a failure, the clients that were not heard are asked again (virtual clock only).
    `sources` must be given again if the run was begun with `DataSource` objects.
    """
    place = as_path("folder", folder)
    if RunFolder.engine_of(place) == "flower":
        from agewise.federation.flower.engine import resume_on_flower  # noqa: PLC0415

        return resume_on_flower(place, watch)
    return resume_locally(place, sources=sources, watch=watch)
