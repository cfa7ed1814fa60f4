"""Runs that leave nothing behind: a plan many times with the stand-in, or on recorded readings."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from agewise.checks import generator_or_fresh, whole
from agewise.errors import InvalidInput
from agewise.federation.local import LocalRun
from agewise.federation.result import RunResult
from agewise.federation.settings import Settings
from agewise.federation.size import refuse_many_records
from agewise.federation.sources import NOT_REHEARSED, DataSource
from agewise.loss import Estimate
from agewise.planning import Plan
from agewise.planning.plan import as_plan
from agewise.progress import Progress

MOST_REPETITIONS = 10**7
"""Runs of one rehearsal, at most: the losses of more would be worth no further digit."""


def rehearse(
    plan: Plan,
    repetitions: int = 1_000,
    rng: np.random.Generator | None = None,
    progress: Progress | None = None,
) -> Estimate:
    """Run a plan many times with simulated records and the stand-in; return the mean loss.

    Every repetition goes through the whole protocol, but nothing is recorded. The mean estimates
    `plan.gap`; refused with measured knowledge. Cost grows with repetitions × clients.

    >>> from agewise import plan, scenarios
    >>> london = plan(scenarios.london())
    >>> loss = rehearse(london, 200, np.random.default_rng(3))
    >>> abs(loss - london.gap) < 4 * loss.standard_error
    True
    """
    generator = generator_or_fresh(rng)
    as_plan(plan)
    count = whole("repetitions", repetitions, 2, MOST_REPETITIONS)
    if not plan.problem.known.drawable:
        raise InvalidInput("plan", "with measured knowledge", "none, or levels", NOT_REHEARSED)
    refuse_many_records(plan.problem)
    losses = np.empty(count)
    for index in range(count):
        seed = int(generator.integers(2**63))
        settings = Settings(run="rehearsal", seed=seed, stand_in=True)
        run = LocalRun(plan, settings, None, None, recording=False)
        losses[index] = run.carry_out(None, None).realised_loss
        if progress is not None:
            progress(index + 1, count)
    error = float(losses.std(ddof=1)) / math.sqrt(count)
    return Estimate(float(losses.mean()), error, count)


def replay(plan: Plan, sources: Mapping[str, DataSource]) -> RunResult:
    """Run a plan on recorded readings, with private noise, for back-tests: nothing is recorded.

    The result must not leave the machine: no ledger knows of it.
    """
    settings = Settings(run="replay", seed=0, stand_in=False)
    return LocalRun(plan, settings, sources, None, recording=False).carry_out(None, None)
