"""How much memory the tables of a problem take, estimated before they are made."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from agewise.checks import refuse_size
from agewise.problem import Problem
from agewise.process import Process
from agewise.process.batch import batch_of, in_batches


def refuse_large(problem: Problem) -> None:
    """Refuse a problem whose tables would not fit; see `agewise.checks.MOST_BYTES`."""
    last = problem.aggregate_at
    remedy = "Use longer slots, so that there are fewer; or fewer clients, alike where they can be."
    refuse_size("aggregate_at", last, table_bytes(problem), remedy)


@lru_cache(maxsize=8)
def table_bytes(problem: Problem) -> float:
    """Bytes that planning holds at once, about: within a factor of two of what was measured.

    By client and slot: costs, biases, what they were made from, and how each moves with every
    factor of a level, of which there are as many as slots. By kind of client and distinct age: a
    kernel, and a law and a release by state. For levels, correlations of each two slots.
    """
    last, width = problem.aggregate_at, problem.width
    kinds: dict[int, Process] = {}
    for kind, client in zip(problem.kinds, problem.clients, strict=True):
        kinds.setdefault(kind, client.process)
    together: dict[tuple[int, int], list[Process]] = {}
    for process in kinds.values():
        together.setdefault((process.states.size, in_batches(process)), []).append(process)
    cells = 4.0 * (1 + width) * last * len(problem.clients)
    for (size, _), members in together.items():
        batch = batch_of(members, [None] * len(members), "any")
        distinct = np.minimum(last, batch.youngest(np.array([last - 1]))[:, 0] + 1)
        cells += float(distinct.sum()) * (size * (size + width) + 2)
    if problem.level:
        cells += 4.0 * last**2 + 3.0 * last**2 * len(problem.clients) * width
    return 8 * cells
