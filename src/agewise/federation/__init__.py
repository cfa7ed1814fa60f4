"""Running a plan: one protocol, several transports."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from agewise.errors import one_of
from agewise.federation.local import RunResult, rehearse, resume, run_locally
from agewise.federation.server import RunIncomplete
from agewise.plan import Plan

Engine = Literal["local"]
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
    return run_locally(plan, rng, **choices)
