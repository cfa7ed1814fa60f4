"""Named clients that are all unlike each other, beside as many in fifty kinds.

Clients alike answer together; clients of kinds of their own are worked out one by one. Both take turns,
the least of each counts, and what counts is processor time, which hardly depends on what else runs.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import agewise as aw
from benchmarks.named_clients import KINDS, problem
from benchmarks.recording import Row, Tables

TURNS = {1_000: 3, 10_000: 1}
"""How often each number of clients is run."""


def spent(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def one_turn(clients: int, kinds: int) -> dict[str, float]:
    """Seconds of processor time of each step."""
    asked = problem(clients, kinds)
    begun = time.process_time()
    plan = aw.plan(asked)
    found = {"planned": time.process_time() - begun}
    found["stand-in"] = spent(lambda: aw.run(plan, rng=np.random.default_rng(1)))
    with tempfile.TemporaryDirectory() as folder:
        durable = spent(lambda: aw.run(plan, folder=Path(folder) / "run"))
    found["OpenDP noise and accounts"] = durable
    return {**found, "all": sum(found.values())}


def main() -> Tables:
    one_turn(1_000, KINDS)  # what is done once
    rows: list[Row] = []
    for clients, turns in TURNS.items():
        both: dict[int, list[dict[str, float]]] = {KINDS: [], clients: []}
        for _ in range(turns):
            for kinds, times in both.items():
                times.append(one_turn(clients, kinds))
        least = {
            kinds: {step: min(one[step] for one in times) for step in times[0]}
            for kinds, times in both.items()
        }
        row: Row = {"named clients, as many kinds": clients}
        for step, took in least[clients].items():
            row[f"{step}, times {KINDS} kinds"] = took / least[KINDS][step]
        row["all, processor seconds"] = least[clients]["all"]
        rows.append(row)
        print(row, flush=True)
    return {"runs": rows}
