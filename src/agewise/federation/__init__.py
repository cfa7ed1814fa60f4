"""Running a plan: one protocol, several transports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from agewise.checks import one_of
from agewise.federation.journal import RunFolder
from agewise.federation.local import rehearse, resume_locally, run_locally
from agewise.federation.result import RunResult, Watcher
from agewise.federation.server import RunIncomplete
from agewise.federation.sources import DataSource
from agewise.plan import Plan

Engine = Literal["local", "flower"]
ENGINES: tuple[str, ...] = get_args(Engine)

__all__ = ["RunIncomplete", "RunResult", "rehearse", "resume", "run"]


def run(
    plan: Plan, engine: Engine = "local", rng: np.random.Generator | None = None, **choices: Any
) -> RunResult:
    """Carry a plan out: clients collect, train, add noise, record and upload, slot by slot.

    Without `rng` the noise is OpenDP's and private. With it, records and noise are reproducible,
    and the result says that nothing is private. Further choices:

    - `folder`: where the run lives (settings, journal, ledgers, record); `resume` goes on there.
      Without one, simulated records are accounted for in memory.
    - `sources`: a CSV or Parquet file of readings, or a `DataSource` a client; None: simulated.
    - `ledgers`: a folder of ledgers that outlives the run, needed for real records.
    - `starts_at`: how many slots of the clients' own time lie before slot 1, so that releases of
      several runs line up.
    - `policy`: what each client allows itself in all (None: the target, for all its releases).
    - `on_missing`: `fail`, `renormalise` (go on with the others) or `replan`.
    - `clock`: `virtual`, or `wall` with `slot_seconds`; `drop`: clients that never answer.
    - for the engine `flower`: `deployment` (None: one of its own, on loopback with TLS and node
      keys), `wait` seconds for the nodes to appear, `slot_timeout` seconds for a slot by the
      virtual clock, `at_once` messages under way at most; a `folder` is needed.
    - `watch`: called with each `Step`, the slots closed and the slots in all.

    Guarantees
        Each client's release and its exact bytes are in its ledger before the server sees them.
        With the same `rng`, two runs give the same model, whatever was interrupted.

    >>> from agewise import plan, scenarios
    >>> made = plan(scenarios.london())
    >>> first = run(made, rng=np.random.default_rng(1))
    >>> first.model == run(made, rng=np.random.default_rng(1)).model, first.private
    (True, False)
    """
    one_of("engine", engine, ENGINES)
    if engine == "flower":
        from agewise.federation.flower.engine import run_on_flower  # noqa: PLC0415

        return run_on_flower(plan, rng, **choices)
    return run_locally(plan, rng, **choices)


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
    if RunFolder.engine_of(Path(folder)) == "flower":
        from agewise.federation.flower.engine import resume_on_flower  # noqa: PLC0415

        return resume_on_flower(Path(folder), watch)
    return resume_locally(folder, sources=sources, watch=watch)
