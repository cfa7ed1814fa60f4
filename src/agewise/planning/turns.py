"""Clients that take part in every so-many-th round only, and clients that come later than planned.

A client that releases less often may spend more each time. In between, its last release gets older.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from agewise.checks import whole
from agewise.errors import InvalidInput
from agewise.knowledge.estimate import GainTables
from agewise.loss.estimator import estimator_of
from agewise.loss.tables import known_tables
from agewise.planning.best import search_best
from agewise.planning.evaluate import evaluate
from agewise.planning.given import problem_of
from agewise.planning.plan import Plan
from agewise.problem import Problem
from agewise.progress import Progress

MOST_TURNS = 64
"""The rarest turn that is looked at."""


def take_turns(
    problem: Problem | str | Path, most: int = 8, *, progress: Progress | None = None
) -> Problem:
    """Return the problem with the `turn` of each client that loses least, from 1 to `most`.

    Turns and slots are searched for together, for the mean loss over all rounds of an estimate
    from each client's last release. Time grows with clients × slots × `most`.

    Guarantees
        No other turns up to `most`, in whatever slots the capacity allows, lose less than a plan
        of the returned problem, but for what that plan's certificate leaves open.

    >>> import agewise as aw
    >>> slow = aw.Client("slow", aw.birth_death(0.02, 0.02, [1, 2, 3, 4]))
    >>> fast = aw.Client("fast", aw.birth_death(0.3, 0.3, [1, 2, 3, 4]))
    >>> every_day = aw.Problem([slow, fast], 5, 1.0, rounds=None, every=5)
    >>> turns = aw.take_turns(every_day)
    >>> [client.turn for client in turns.clients]
    [7, 1]
    >>> aw.plan(turns).gap < 0.85 * aw.plan(every_day).gap
    True
    """
    problem, last = problem_of(problem), whole("turns", most, 1, MOST_TURNS)
    try:
        kinds = [_tables(problem, turn) for turn in range(last, 0, -1)][::-1]
    except InvalidInput as error:
        if error.field != "turn":
            raise
        raise InvalidInput("turns", most, error.allowed, error.remedy) from None
    losses = np.stack([t.base - (t.cross**2 / t.power).sum(axis=2) for t in kinds])
    best = losses.argmin(axis=0)  # [m, A]: the turn of each client in each slot, less 1
    rows, columns = np.indices(best.shape)
    cross = np.stack([t.cross for t in kinds])[best, rows, columns]
    power = np.stack([t.power for t in kinds])[best, rows, columns]
    chosen = GainTables(kinds[0].base, cross, power, kinds[0].common, kinds[0].heard)
    found, _ = search_best(chosen, problem.capacity, progress=progress)
    turns = best[np.arange(len(best)), found.columns] + 1
    members = zip(problem.clients, turns.tolist(), strict=True)
    return problem.replace(clients=[replace(client, turn=turn) for client, turn in members])


def _tables(problem: Problem, turn: int) -> GainTables:
    members = [replace(client, turn=turn) for client in problem.clients]
    return known_tables(problem.replace(clients=members)).gains


def resting(problem: Problem, number: int) -> list[str]:
    """The clients that take no part in a round."""
    return [client.name for client in problem.clients if (number - 1) % client.turn]


def plan_of_round(plan: Plan, number: int, slots: Mapping[str, int]) -> Plan | None:
    """Return the plan of one round: who takes part, each in its slot; None if nobody does.

    `slots` are those of clients that have come later than planned, and stay there.
    """
    problem = plan.problem
    places = [slots.get(one.client, one.collect_at) for one in plan.assignments]
    absent = resting(problem, number)
    if len(absent) == len(places):
        return None
    if places == plan.collect_at and all(client.turn == 1 for client in problem.clients):
        return plan
    return evaluate(problem, places, "in turn", absent)


def postpone(
    plan: Plan, first: int, collected: Collection[str] = (), lost: Collection[str] = ()
) -> Plan:
    """Return the plan with those who missed their slot moved to the best one from `first` on.

    Nobody else moves: from round to round a client may come later but not sooner, or two of its
    releases would be closer than its rule allows.
    """
    problem, best = plan.problem, plan.problem.uses_knowledge
    slots = {one.client: one.collect_at for one in plan.assignments}
    silent = [name for name in slots if name in plan.unheard or (best and name in lost)]
    gone = {*silent, *collected, *lost}
    for name in [name for name, slot in slots.items() if slot < first and name not in gone]:
        crowd = Counter(slot for other, slot in slots.items() if other != name)
        open_slots = [
            slot
            for slot in range(first, problem.aggregate_at + 1)
            if problem.capacity is None or crowd[slot] < problem.capacity
        ]
        if not open_slots:
            raise InvalidInput("capacity", problem.capacity, "room for those who missed their slot")
        losses = [
            estimator_of(problem, list({**slots, name: slot}.values()), silent, alone=True)
            for slot in open_slots
        ]
        slots[name] = open_slots[int(np.argmin([one.gap for one in losses]))]
    return evaluate(problem, list(slots.values()), "in turn", silent)
