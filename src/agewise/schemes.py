"""The paper's six schemes, side by side: {random, proposed, optimal} × {constant, adaptive}."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.checks import positive, whole
from agewise.errors import InvalidInput
from agewise.loss.bound import schedule_bounds
from agewise.loss.gap import classical_fresh, nothing_collected
from agewise.loss.tables import CostTables, cost_tables
from agewise.planning import BOUND_LIMIT
from agewise.privacy.ageing import aged_epsilon
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
    numbers are means over all schedules.
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
    #: loss of a server that publishes the mean it knows, at the law of the scheme's ages (age 0
    #: for the random schemes)
    nothing_collected: float
    #: loss of fresh data with classical noise, of which the server makes the best estimate
    classical_fresh: float

    def __getitem__(self, key: str) -> Any:
        return asdict(self)[key]


def compare_schemes(
    problem: Problem,
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

    >>> from agewise import scenarios
    >>> rows = compare_schemes(scenarios.london(), epsilons=[0.1], schemes=[5, 6])
    >>> [(row.scheme, row.ages, round(row.gap, 3)) for row in rows]
    [(5, [0, 0, 0], 216.0), (6, [0, 9, 9], 127.07)]
    """
    targets = [problem.epsilon] if epsilons is None else [positive("epsilon", e) for e in epsilons]
    if not targets:
        raise InvalidInput("epsilons", "empty", "one or more targets")
    wanted = [whole("scheme", s, 1, 6) for s in schemes]
    if problem.mechanism != "laplace" or problem.learner.kind != "mean":
        raise InvalidInput(
            "schemes",
            f"a {problem.learner.kind} with {problem.mechanism} noise",
            "the paper's: means with Laplace noise",
            "Use aw.compare, or agewise compare.",
        )
    if problem.estimator == "best" or problem.known.kind != "independent":
        raise InvalidInput(
            "schemes",
            f"estimator {problem.estimator} with {problem.known.kind} records",
            "the paper's: plain or propagated means of independent records",
            "Use aw.compare, or agewise compare.",
        )
    if problem.noise != "client":
        raise InvalidInput(
            "noise", problem.noise, "client", "The paper's schemes are for noise by each client."
        )
    if any(client.epsilon is not None for client in problem.clients):
        raise InvalidInput("schemes", "clients with targets of their own", "one target for all")
    clients, slots = len(problem.clients), problem.aggregate_at
    blocks = all_schedules(clients, slots, problem.capacity, BOUND_LIMIT)
    schedules = np.concatenate(list(blocks))
    schedule_bounds(problem, schedules, np.zeros(len(schedules)), progress)  # the slow part, once
    rows = []
    for target in targets:
        fresh = classical_fresh(problem.replace(epsilon=target))
        adaptive = cost_tables(problem.replace(epsilon=target))
        plain = cost_tables(problem.replace(epsilon=target, calibration="formula"))
        rows += [
            _row(problem, adaptive if s in (2, 4, 6) else plain, schedules, s, target, fresh)
            for s in wanted
        ]
    return rows


def _row(
    problem: Problem,
    tables: CostTables,
    schedules: NDArray[np.intp],
    scheme: int,
    target: float,
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
        nothing_collected=nothing_collected(problem, ages or [0] * len(problem.clients)),
        classical_fresh=fresh,
    )


def _reached(spent: Array, delta: Array) -> Array:
    """The largest aged ε of any client, of each schedule; a release that spends nothing has 0."""
    safe = np.where(spent > 0, spent, 1.0)
    return np.asarray(np.where(spent > 0, aged_epsilon(safe, delta), 0.0).max(axis=1))
