"""The paper's six schemes, side by side: {random, proposed, optimal} × {constant, adaptive}."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.checks import positive, several, whole
from agewise.errors import InvalidInput
from agewise.loss import CostTables, classical_fresh, cost_tables, nothing_collected
from agewise.mechanism import MECHANISMS
from agewise.paper.bound import BOUND_LIMIT, schedule_bounds, why_no_bound
from agewise.planning.given import problem_of
from agewise.privacy import aged_epsilon
from agewise.problem import Problem
from agewise.progress import Progress
from agewise.scheduling import all_schedules, table_objective

NAMES = {
    1: "random + constant",
    2: "random + adaptive",
    3: "proposed + constant",
    4: "proposed + adaptive",
    5: "optimal + constant",
    6: "optimal + adaptive",
}


@dataclass(frozen=True)
class SchemeRow:
    """One scheme at one ε; the fields read as attributes or as keys.

    Beside a scheme's numbers stands what its rivals lose. The random schemes have no ages; their
    numbers are means over all schedules that the capacity allows.
    """

    scheme: int  #: 1 to 6, as in the paper
    name: str  #: how it schedules, and how it sets the noise
    #: target of the adaptive schemes and of scheme 1; common classical ε of schemes 3 and 5
    epsilon: float
    achieved_epsilon: float  #: the aged ε that the scheme then has
    ages: list[int] | None  #: of each client's data, in slots; None for the random schemes
    gap: float  #: the expected loss gap
    bound: float  #: Theorem 1
    mean_noise: float  #: noise power 2η², averaged over clients
    mean_classical_epsilon: float  #: averaged over clients
    #: loss of a server that publishes the mean it knows, the same for every scheme
    nothing_collected: float
    #: loss of fresh data with classical noise, of which the server makes the best estimate
    classical_fresh: float
    #: at most so many clients in one slot; None: any number
    capacity: int | None = None

    @property
    def reading(self) -> str:
        """How many clients may upload in a slot, in words."""
        if self.capacity is None:
            return "any number of uploads per slot"
        return "one upload per slot" if self.capacity == 1 else f"{self.capacity} uploads per slot"

    def __getitem__(self, key: str) -> Any:
        return asdict(self)[key]


def compare_schemes(
    problem: Problem | str | Path,
    epsilons: Iterable[float] | None = None,
    schemes: Iterable[int] = (1, 2, 3, 4, 5, 6),
    progress: Progress | None = None,
) -> list[SchemeRow]:
    """Return the six schemes of the paper's section IV-B at each ε (default: the problem's).

    Adaptive: each client's ε_c from its own age, by the problem's calibration. Constant, by the
    formula: one ε_c for all; schemes 3 and 5 fix
    ε_c = ε and choose the schedule for it; scheme 1 takes, for each schedule, the largest ε_c
    that meets ε. Proposed minimises Theorem 1. Optimal minimises the expected loss gap: the paper
    estimates it by simulation, here it is its exact expectation, the closed form.

    A capacity holds for all six: random schedules are uniform over those that keep to it. The paper
    says that "only one client can upload [...] at a time" (`capacity=1`), and does not use it.

    >>> from agewise import scenarios
    >>> rows = compare_schemes(scenarios.london(), epsilons=[0.1], schemes=[5, 6])
    >>> [(row.scheme, row.ages, round(row.gap, 3)) for row in rows]
    [(5, [0, 0, 0], 216.0), (6, [0, 9, 9], 127.07)]
    """
    problem = problem_of(problem)
    given = (problem.epsilon,) if epsilons is None else several("epsilons", epsilons, "targets ε")
    targets = [positive("epsilon", e) for e in given]
    if not targets:
        raise InvalidInput("epsilons", "empty", "one or more targets")
    wanted = [whole("scheme", s, 1, 6) for s in several("schemes", schemes, "numbers from 1 to 6")]
    _refuse_others(problem)
    clients, slots = len(problem.clients), problem.aggregate_at
    blocks = all_schedules(clients, slots, problem.capacity, BOUND_LIMIT)
    schedules = np.concatenate(list(blocks))
    schedule_bounds(problem, schedules, np.zeros(len(schedules)), progress)  # the slow part, once
    nothing = nothing_collected(problem)
    rows = []
    for target in targets:
        fresh = classical_fresh(problem.replace(epsilon=target))
        adaptive = cost_tables(problem.replace(epsilon=target))
        plain = cost_tables(problem.replace(epsilon=target, calibration="formula"))
        rows += [
            _row(
                problem, adaptive if s in (2, 4, 6) else plain, schedules, s, target, nothing, fresh
            )
            for s in wanted
        ]
    return rows


def _refuse_others(problem: Problem) -> None:
    """Refuse what the paper's schemes are not about."""
    own = next((c.name for c in problem.clients if c.epsilon is not None), None)
    bad = why_no_bound(problem)
    if MECHANISMS[problem.mechanism].approximate:
        bad = InvalidInput("mechanism", problem.mechanism, "laplace, for the paper's schemes")
    elif own is not None:
        what = f"epsilon of client {own!r}"
        bad = InvalidInput(what, "its own", "one target for all, for the paper's schemes")
    if bad is not None:
        remedy = "Use aw.compare, or agewise compare."
        raise InvalidInput(bad.field, bad.value, bad.allowed, remedy)


def _row(
    problem: Problem,
    tables: CostTables,
    schedules: NDArray[np.intp],
    scheme: int,
    target: float,
    nothing: float,
    fresh: float,
) -> SchemeRow:
    clients = np.arange(schedules.shape[1])
    needed = np.stack([t.classical_epsilon for t in tables.slots])[clients, schedules]
    reach = np.stack([t.sensitivity for t in tables.slots])[clients, schedules]
    delta = np.stack([t.delta for t in tables.slots])[clients, schedules]
    if scheme in (2, 4, 6):
        scale = np.stack([t.scale for t in tables.slots])[clients, schedules]
        spent, achieved = needed, np.full(len(schedules), target)
        if problem.calibration == "formula":
            achieved = _reached(spent, delta)
    else:
        common = needed.min(axis=1) if scheme == 1 else np.full(len(schedules), target)
        spent = np.broadcast_to(common[:, None], needed.shape)
        scale = reach / spent
        achieved = _reached(spent, delta)
    power = 2 * scale**2
    noise = (problem.weights**2 * power).sum(axis=1)
    gap = noise + table_objective(tables.spread, tables.b)(schedules)
    bound = schedule_bounds(problem, schedules, noise)[0]
    if scheme <= 2:
        picked: Any = slice(None)
        ages = None
    else:
        place = int(np.argmin(bound if scheme <= 4 else gap))
        picked = slice(place, place + 1)
        ages = (problem.aggregate_at - 1 - schedules[place]).tolist()
    return SchemeRow(
        scheme=scheme,
        name=NAMES[scheme],
        epsilon=float(target),
        achieved_epsilon=float(achieved[picked].max()),
        ages=ages,
        gap=float(gap[picked].mean()),
        bound=float(bound[picked].mean()),
        mean_noise=float(power[picked].mean()),
        mean_classical_epsilon=float(spent[picked].mean()),
        nothing_collected=nothing,
        classical_fresh=fresh,
        capacity=problem.capacity,
    )


def _reached(spent: Array, delta: Array) -> Array:
    """The largest aged ε of any client, of each schedule; a release that spends nothing has 0."""
    safe = np.where(spent > 0, spent, 1.0)
    return np.asarray(np.where(spent > 0, aged_epsilon(safe, delta), 0.0).max(axis=1))
