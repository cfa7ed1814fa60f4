"""Making plans: the searches for when each client collects, and planning anew on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from agewise.arrays import Array
from agewise.checks import as_names, generator_or_fresh, instance, one_of, whole
from agewise.errors import AgewiseError, InvalidInput
from agewise.knowledge import Levels
from agewise.loss.kinds import PASSING, told_of
from agewise.loss.tables import cost_tables, known_tables
from agewise.planning.best import heard_rows, open_tables, search_best
from agewise.planning.counted import counted_tables, search_counted
from agewise.planning.evaluate import assemble
from agewise.planning.given import problem_of
from agewise.planning.objectives import best_by_objective
from agewise.planning.plan import Plan, as_plan
from agewise.planning.proof import draws_once, open_costs
from agewise.planning.turns import postpone
from agewise.problem import Problem
from agewise.progress import Progress
from agewise.report.tables import counted
from agewise.scheduling import (
    Certificate,
    Draw,
    Schedule,
    check_schedule,
    exhaustive,
    matched,
    random_schedule,
    solve_schedule,
    table_objective,
)

SearchMethod = Literal["certified", "exhaustive", "random"]
SEARCH_METHODS: tuple[str, ...] = get_args(SearchMethod)


def plan(
    problem: Problem | str | Path,
    method: SearchMethod = "certified",
    *,
    rng: np.random.Generator | None = None,
    trials: int = 20_000,
    keep_best: bool = False,
    progress: Progress | None = None,
) -> Plan:
    """Decide when each client collects, and how much noise it adds.

    `problem` may be the name of a built-in scenario or the file of one, as on the command line.
    `method`: `certified` searches in near-linear time and proves how good its schedule is,
    `exhaustive` tries every schedule (the paper's search), `random` draws one. With the estimator
    `best` the server's gains are chosen together with the schedule. Certified search
    minimises the closed form, whatever the objective: Theorem 1 and simulation do not separate
    by client. With `keep_best`, Ctrl-C ends it with the best schedule so far. `rng` is for
    `random` and for exhaustive search by the objective `simulated`, which draws `trials`.

    Guarantees
        Every client's aged ε is at most the problem's, under the assumptions of its `mixing`.
        `lower_bound` bounds what was minimised, over all schedules that keep to the capacity.

    >>> from agewise import scenarios
    >>> best = plan(scenarios.london().replace(epsilon=0.03), method="exhaustive")
    >>> best.ages, round(best.gap, 3)
    ([9, 9, 8], 1045.025)
    """
    one_of("method", method, SEARCH_METHODS)
    problem = problem_of(problem)
    _refuse_useless_levels(problem)
    counted = counted_tables(problem) if method == "certified" else None
    if counted is not None:
        both = search_counted(counted, keep_best=keep_best, progress=progress)
        return assemble(problem, both[0], method, both[1])
    if problem.uses_knowledge and method != "random":
        return _with_gains(problem, method, progress)
    tables = cost_tables(problem)
    clients, slots = tables.u.shape
    once = draws_once(problem, tables.slots, {})
    exact = table_objective(tables.u, tables.b, once)
    if method == "certified":
        schedule = _solved(problem, tables.u, tables.b, once, None, keep_best, progress)
        checked = _checked(schedule, tables.u, tables.b, once, problem)
        return assemble(problem, schedule, method, checked)
    if method == "random":
        worth = None
        if isinstance(problem.known, Levels):
            told = told_of(problem)
            worth = told.worth[told.kind]
        columns = random_schedule(clients, slots, generator_or_fresh(rng), problem.capacity, worth)
        return assemble(problem, Schedule(columns, np.nan, None, 1), method)
    if problem.objective == "exact":
        schedule = exhaustive(exact, clients, slots, problem.capacity)
        checked = _checked(schedule, tables.u, tables.b, once, problem)
        return assemble(problem, schedule, method, checked)
    schedule, shown = best_by_objective(problem, trials, rng, progress)
    return assemble(problem, schedule, method, shown)


def replan(
    current: Plan,
    now: int,
    collected: Mapping[str, int] | None = None,
    lost: Iterable[str] = (),
    *,
    progress: Progress | None = None,
) -> Plan:
    """Plan the rest of the `current` plan, which is under way, from slot `now` on.

    `collected` maps the clients that have collected to the slot they did it in; they stay there.
    The others may collect from `now` on. `lost` clients drop out and the weights of the rest are
    scaled up. The search starts from what the old plan knew. Of a plan for many rounds only those
    move who have missed their slot, and nothing is proven of the result.

    >>> from agewise import scenarios
    >>> first = plan(scenarios.london())
    >>> replan(first, now=4, collected={"client 2": 1}).collect_at
    [10, 1, 4]
    """
    problem, gone = as_plan(current, "current").problem, set(as_names("lost", lost))
    slot_of = {} if collected is None else collected
    held = dict(instance("collected", slot_of, Mapping, "slots by name of client"))
    as_names("collected", held)
    if gone & set(held):
        raise InvalidInput("client", repr(min(gone & set(held))), "either collected or lost")
    names = {c.name for c in problem.clients}
    for name in (*held, *gone):
        if name not in names:
            raise InvalidInput("client", repr(name), "one of " + ", ".join(sorted(names)))
    last = problem.aggregate_at
    first = whole("now", now, 1, last, "Later than that nothing can be planned.")
    slots = {n: whole(f"slot of client {n!r}", t, 1, first) for n, t in held.items()}
    crowd = Counter(slots.values()).most_common(1)
    if problem.capacity is not None and crowd and crowd[0][1] > problem.capacity:
        raise InvalidInput(
            "collected",
            f"{crowd[0][1]} clients in slot {crowd[0][0]}",
            f"{problem.capacity} at most, the capacity",
        )
    if problem.rounds != 1:
        return postpone(current, first, slots, gone)
    if problem.uses_knowledge:
        return _again_with_gains(current, first, slots, gone, progress)
    kept = [c for c in problem.clients if c.name not in gone]
    if gone and kept and kept[0].weight is not None:
        total = sum(float(c.weight or 0) for c in kept)
        kept = [replace(c, weight=float(c.weight or 0) / total) for c in kept]
    rest = problem.keep(kept)
    tables = cost_tables(rest)
    u = open_costs(rest, tables, [slots.get(c.name, 1) for c in kept], first, slots)
    old = cost_tables(problem)
    columns = np.array(current.collect_at) - 1
    guess = old.b[np.arange(len(columns)), columns].sum(axis=0)
    promised = _promised(current, slots)
    once = draws_once(rest, tables.slots, promised)
    schedule = _solved(rest, u, tables.b, once, np.atleast_1d(guess), False, progress)
    certificate = _checked(schedule, u, tables.b, once, rest)
    return assemble(
        rest, schedule, "certified", certificate, first, tuple(slots), promised=promised
    )


def _refuse_useless_levels(problem: Problem) -> None:
    """Refuse levels that next to nothing shows of in any client's reports, fresh or aged."""
    if not isinstance(problem.known, Levels):
        return
    told = told_of(problem)
    passes = told.passes
    if passes is not None and passes.max() < PASSING:
        raise InvalidInput(
            "level",
            f"of which reports show {100 * passes.max():.2g} % of the variance",
            f"one of which {100 * PASSING:g} % or more passes the clip of some client",
            "Fresh reports show more of it if the states span more, aged ones if they are finer.",
        )
    worth = told.worth[told.kind]
    if problem.capacity is None or worth.all():
        return
    left = int((matched(worth, problem.capacity) < 0).sum())
    if left:
        raise InvalidInput(
            "capacity",
            problem.capacity,
            f"room for {counted(left, 'client')} more in slots whose reports show "
            f"{100 * PASSING:g} % or more of the level",
            "Of other slots nearest states show next to nothing of what clients share. Raise the "
            "capacity; finer states would let more of the level pass.",
        )


def _promised(current: Plan, collected: Iterable[str]) -> dict[str, float]:
    """The noise that the server's one draw has been promised to have on clients' means."""
    if not current.problem.server_adds_noise:
        return {}
    ordered = {one.client: one.noise_scale for one in current.assignments}
    return {name: current.promised.get(name, ordered[name]) for name in collected}


def _with_gains(problem: Problem, method: str, progress: Progress | None) -> Plan:
    """A plan for the best estimate: the schedule and its gains are searched for together."""
    known, every = known_tables(problem), method == "exhaustive"
    found, checked = search_best(
        known.gains,
        problem.capacity,
        draws_once(problem, known.slots, {}),
        every=every,
        progress=progress,
    )
    return assemble(problem, found, method, checked)


def _again_with_gains(
    current: Plan, first: int, slots: dict[str, int], gone: set[str], progress: Progress | None
) -> Plan:
    """The rest of a plan for the best estimate, whose target stays that of all clients."""
    problem = current.problem
    silent = tuple(c.name for c in problem.clients if c.name in gone or c.name in current.unheard)
    if len(silent) == len(problem.clients):
        raise InvalidInput("lost", "all clients", "clients of which some still send")
    held = {a.client: a.collect_at for a in current.assignments} | slots
    places = [held[c.name] for c in problem.clients]
    tables = open_tables(problem, places, first, slots, silent)
    promised, heard = _promised(current, slots), heard_rows(problem, silent)
    once = draws_once(problem, known_tables(problem).slots, promised)
    if once is not None:
        once = replace(once, scales=once.scales[heard])
    found, checked = search_best(tables, problem.capacity, once, progress=progress)
    columns = np.array(places) - 1
    columns[heard] = found.columns
    found = replace(found, columns=columns)
    return assemble(problem, found, "certified", checked, first, tuple(slots), silent, promised)


def _solved(
    problem: Problem,
    u: Array,
    b: Array,
    once: Draw | None,
    start: Array | None,
    keep_best: bool,
    progress: Progress | None,
) -> Schedule:
    """The certified search: with noise by each client, or drawn once by the server."""
    capacity = problem.capacity
    return solve_schedule(
        u, b, capacity, draw=once, start=start, keep_best=keep_best, progress=progress
    )


def _checked(
    schedule: Schedule, u: Array, b: Array, once: Draw | None, problem: Problem
) -> Certificate:
    """What the independent check of a schedule says; a failed one is an error of ours."""
    checked = check_schedule(schedule, u, b, problem.capacity, draw=once)
    if not checked.holds:
        raise AgewiseError(f"the search made a schedule that its check refuses: {checked.reason}")
    return checked
