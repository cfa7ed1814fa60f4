"""Plans replayed on recorded days, after those that the laws were fitted to: what they cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from agewise.checks import whole
from agewise.errors import InvalidInput
from agewise.federation.local import replay
from agewise.federation.sources import RecordedReadings
from agewise.fitting.states import States
from agewise.planning import Plan, price
from agewise.planning import plan as make_plan
from agewise.problem import Problem
from agewise.progress import Progress
from agewise.readings import Readings
from agewise.scheduling import random_schedule


@dataclass(frozen=True)
class Replayed:
    """A scheme over recorded days: mean loss against the present mean, and what was promised."""

    scheme: str
    days: int
    mean_loss: float
    standard_error: float
    promised: float
    ages: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return asdict(self)


def replay_plans(
    problem: Problem,
    readings: Readings,
    states: States,
    groups: Mapping[str, Sequence[str]],
    *,
    first_slot: int,
    rng: np.random.Generator,
    draws: int | None = None,
    progress: Progress | None = None,
) -> list[Replayed]:
    """Carry plans out on recorded days: the local engine with OpenDP's noise, nothing recorded.

    `groups` names each client's entities, `first_slot` the slot of the day (from 0) that is slot
    1. Every day without gaps is `draws` runs, whose mean loss counts (None: 5, or fewer for many
    clients, which average over noise by themselves). The schemes: records as collected, records
    moved forward, everything fresh, and a random schedule. The loss is the squared distance to
    the weighted mean of the entities' states in the aggregation slot. For a fair judgement the
    problem's laws come from other days.
    """
    slots, day = problem.aggregate_at, readings.day
    times = max(1, 5 // len(problem.clients)) if draws is None else whole("draws", draws, 1)
    codes = states.index(readings.values)
    rows = {name: readings.rows(name, members) for name, members in groups.items()}
    taken = [row for members in rows.values() for row in members]
    begin = (first_slot - readings.first_of_day) % day
    starts = range(begin, codes.shape[1] - slots + 1, day)
    schemes = _schemes(problem, rng)
    losses: dict[str, list[float]] = {name: [] for name in schemes}
    for number, start in enumerate(starts):
        if (codes[taken, start : start + slots] >= 0).all():
            window = states.values[codes[:, start : start + slots]]
            present = math.fsum(
                w * float(window[rows[c.name], -1].mean())
                for w, c in zip(problem.weights, problem.clients, strict=True)
            )
            sources = {
                name: RecordedReadings(name, None, dict(enumerate(window[members].T, start=1)))
                for name, members in rows.items()
            }
            for name, plan in schemes.items():
                models = [replay(plan, sources).model for _ in range(times)]
                losses[name].append(float(np.mean((np.array(models) - present) ** 2)))
        if progress is not None:
            progress(number + 1, len(starts))
    if min(len(daily) for daily in losses.values()) < 2:
        raise InvalidInput("readings", "fewer than two whole days to replay", "more days")
    return [
        Replayed(
            name,
            len(daily),
            float(np.mean(daily)),
            float(np.std(daily, ddof=1)) / math.sqrt(len(daily)),
            schemes[name].gap,
            tuple(schemes[name].ages),
        )
        for name, daily in losses.items()
    ]


def _schemes(problem: Problem, rng: np.random.Generator) -> dict[str, Plan]:
    plain, moved = problem.replace(estimator="plain"), problem.replace(estimator="propagated")
    clients, slots = len(problem.clients), problem.aggregate_at
    fresh = np.full(clients, slots)
    drawn = random_schedule(clients, slots, rng, problem.capacity)

    return {
        "plain": make_plan(plain),
        "propagated": make_plan(moved),
        "classical, fresh": price(plain.replace(capacity=None), fresh, "fresh"),
        "random": price(plain, drawn + 1, "random"),
    }
