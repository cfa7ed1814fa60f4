"""Plans replayed on recorded days, others than the laws were fitted to: what they cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.calibration import slot_table
from agewise.checks import whole
from agewise.errors import InvalidInput
from agewise.federation.rehearsing import replay
from agewise.federation.sources import RecordedReadings
from agewise.fitting.laws import WEEK, window_starts
from agewise.fitting.states import States
from agewise.loss.estimator import estimator_of
from agewise.mechanism import MECHANISMS
from agewise.planning import Plan, evaluate
from agewise.planning import plan as make_plan
from agewise.problem import Problem
from agewise.progress import Progress
from agewise.readings import Readings
from agewise.scheduling import random_schedule

BEST = "best"
NOTHING = "nothing collected"
MISSED = 3.0
"""Standard errors by which a loss is beyond what was promised, before that is told of."""


@dataclass(frozen=True)
class Replayed:
    """A scheme over recorded days: mean loss against the present mean, and what was promised.

    Standard errors are over weeks, whose days may depend on each other. `beyond_best` is by how
    much the loss is above that of the best estimate on the same days, with its standard error.
    """

    scheme: str  #: what was replayed
    days: int  #: over how many days
    mean_loss: float  #: mean squared error, in the unit squared
    standard_error: float  #: of the mean loss
    promised: float  #: the loss that its plan expected
    ages: tuple[int, ...]  #: of each client's data, in slots
    beyond_best: float
    beyond_best_error: float  #: standard error of `beyond_best`

    @property
    def ratio(self) -> float:
        """What was realised for each unit that was promised."""
        return self.mean_loss / self.promised if self.promised else math.inf

    @property
    def missed(self) -> bool:
        """Whether the loss is surely above what was promised."""
        room = MISSED * self.standard_error + 1e-9 * self.promised
        return self.mean_loss > self.promised + room

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return {**asdict(self), "ratio": self.ratio}


def replay_plans(
    problem: Problem,
    readings: Readings,
    states: States,
    groups: Mapping[str, Sequence[str]],
    *,
    first_slot: int,
    rng: np.random.Generator,
    draws: int = 0,
    progress: Progress | None = None,
) -> list[Replayed]:
    """Carry plans out on recorded days, every one without gaps; nothing is recorded.

    `groups` names each client's entities, `first_slot` the slot of the day (from 0) that is slot
    1. The schemes: nothing collected; classical noise on fresh records, the server's knowledge
    used; records as collected, records moved forward, and the best estimate; and a random
    schedule. The loss is the squared distance to the weighted mean of the entities' states in the
    aggregation slot: with `draws`, the mean over so many runs of the local engine with OpenDP's
    noise; without, what that mean is expected to be, so that days are judged and not draws. For a
    fair judgement the problem's laws come from other days.
    """
    times, slots = whole("draws", draws, 0), problem.aggregate_at
    codes = states.index(readings.values)
    rows = {name: readings.rows(name, members) for name, members in groups.items()}
    taken = [row for members in rows.values() for row in members]
    begin = window_starts(
        codes.shape[1],
        readings.day,
        first_slot=first_slot,
        slots=slots,
        starts=readings.first_of_day,
    )
    schemes = _schemes(problem, rng)
    fresh = np.full(len(problem.clients), slots)
    names = [client.name for client in problem.clients]
    alone = problem.replace(estimator=BEST, capacity=None, objective="exact")
    known = float(estimator_of(alone, fresh.tolist(), names).offset[0])
    losses: dict[str, list[float]] = {NOTHING: [], **{name: [] for name in schemes}}
    week = []
    for number, start in enumerate(begin.tolist()):
        if (codes[taken, start : start + slots] >= 0).all():
            week.append(number // WEEK)
            window = states.values[codes[:, start : start + slots]]
            present = math.fsum(
                weight * float(window[rows[client.name], -1].mean())
                for weight, client in zip(problem.weights, problem.clients, strict=True)
            )
            sources = {
                name: RecordedReadings(name, None, dict(enumerate(window[members].T, start=1)))
                for name, members in rows.items()
            }
            losses[NOTHING].append((known - present) ** 2)
            for name, (plan, quiet) in schemes.items():
                if times:
                    drawn = [float(replay(plan, sources).model) for _ in range(times)]
                    losses[name].append(float(np.mean((np.array(drawn) - present) ** 2)))
                else:
                    expected = quiet.of({client: window[rows[client]] for client in rows})
                    losses[name].append((expected - present) ** 2 + quiet.noise)
        if progress is not None:
            progress(number + 1, len(begin))
    if len(week) < 2:
        raise InvalidInput("readings", "fewer than two whole days to replay", "more days")
    promised = {name: (plan.gap, tuple(plan.ages)) for name, (plan, _) in schemes.items()}
    promised[NOTHING] = (schemes["classical, fresh"][0].nothing_collected, ())
    weeks, best = np.array(week), np.array(losses[BEST])
    return [
        Replayed(
            name,
            len(found),
            float(np.mean(found)),
            _error(np.array(found), weeks),
            *promised[name],
            float(np.mean(found - best)),
            _error(np.array(found) - best, weeks),
        )
        for name, found in losses.items()
    ]


def pool_replays(parts: Sequence[Sequence[Replayed]]) -> list[Replayed]:
    """The same schemes over several sets of days, each with plans of its own, as one.

    Losses and promises are means over all days; ages are those of the first set.
    """
    pooled = []
    for rows in zip(*parts, strict=True):
        days = np.array([row.days for row in rows])
        share = days / days.sum()
        means = {
            name: float(share @ [getattr(row, name) for row in rows])
            for name in ("mean_loss", "promised", "beyond_best")
        }
        errors = {
            name: float(np.linalg.norm(share * [getattr(row, name) for row in rows]))
            for name in ("standard_error", "beyond_best_error")
        }
        pooled.append(replace(rows[0], days=int(days.sum()), **means, **errors))
    return pooled


def _error(losses: Array, week: NDArray[np.intp]) -> float:
    """The standard error of a mean over days that may depend on each other within weeks."""
    groups = week if np.unique(week).size > 1 else np.arange(len(week))
    place = np.unique(groups, return_inverse=True)[1]
    sums = np.bincount(place, losses - losses.mean())
    return math.sqrt(sums.size / (sums.size - 1) * float((sums**2).sum())) / len(losses)


@dataclass(frozen=True)
class _Quiet:
    """What a plan makes of records before any noise, and the variance that its noise adds."""

    plan: Plan
    gains: Array
    releases: tuple[Array, ...]
    noise: float

    def of(self, windows: Mapping[str, Array]) -> float:
        """The expected model, from the values of each client's records `[record, slot]`."""
        parts = zip(
            self.plan.problem.clients, self.plan.collect_at, self.gains, self.releases, strict=True
        )
        total = float(self.plan.offset[0])
        for client, slot, gain, release in parts:
            collected = windows[client.name][:, slot - 1]
            place = np.searchsorted(client.process.states, collected)
            total += float(gain) * float(release[place].mean())
        return total


def _quiet(plan: Plan) -> _Quiet:
    problem, gains = plan.problem, np.asarray(plan.gains, dtype=float)
    releases, noise = [], 0.0
    for client, slot, gain in zip(problem.clients, plan.collect_at, gains, strict=True):
        table = slot_table(client, problem)
        releases.append(table.release_rows[table.row][slot - 1, :, 0])
        variance = MECHANISMS[problem.mechanism].variance(table.scale[slot - 1])
        noise += float(gain) ** 2 * float(variance)
    return _Quiet(plan, gains, tuple(releases), noise)


def _schemes(problem: Problem, rng: np.random.Generator) -> dict[str, tuple[Plan, _Quiet]]:
    plain, moved, best = (problem.replace(estimator=e) for e in ("plain", "propagated", BEST))
    clients, slots = len(problem.clients), problem.aggregate_at
    fresh = np.full(clients, slots)
    drawn = random_schedule(clients, slots, rng, problem.capacity)
    plans = {
        "classical, fresh": evaluate(best.replace(capacity=None), fresh, "fresh"),
        "plain": make_plan(plain),
        "propagated": make_plan(moved),
        BEST: make_plan(best),
        "random": evaluate(plain, drawn + 1, "random"),
    }
    return {name: (plan, _quiet(plan)) for name, plan in plans.items()}
