"""Theorem 1 for every schedule of the paper; Monte Carlo against simulating every record."""

import itertools
import time

import numpy as np

import agewise as aw
from agewise.loss import cost_tables
from agewise.paper.bound import schedule_bounds
from agewise.problem import Problem
from benchmarks.recording import Row, Tables

TRIALS = 20_000
AGES = (4, 9, 2)


def record_by_record(
    problem: Problem, ages: tuple[int, ...], rng: np.random.Generator, *, walk: bool
) -> float:
    """Every record of every client, as one would write it first.

    `walk` moves records slot by slot with the one-step matrix; else they jump with the kernel.
    """
    tables = cost_tables(problem)
    error = np.zeros(TRIALS)
    for i, (client, age) in enumerate(zip(problem.clients, ages, strict=True)):
        slot = problem.aggregate_at - age
        states = client.process.states
        x = rng.choice(states.size, p=client.law_at(slot), size=(TRIALS, client.samples))
        y = x
        for at in range(slot, problem.aggregate_at) if walk else [slot]:
            until = at + 1 if walk else problem.aggregate_at
            cumulative = np.cumsum(client.process.kernel(at, until), axis=1)
            y = (rng.random(y.shape)[..., None] >= cumulative[y]).sum(axis=2)
        noise = rng.laplace(0, tables.slots[i].scale[slot - 1], TRIALS)
        error += problem.weights[i] * (states[x].mean(axis=1) - states[y].mean(axis=1) + noise)
    return float((error**2).mean())


def main() -> Tables:
    problem = aw.scenarios.london()
    schedules = np.array(list(itertools.product(range(10), repeat=3)))
    start = time.perf_counter()
    schedule_bounds(problem, schedules)
    bounds = time.perf_counter() - start
    print(f"Theorem 1 for all 1,000 schedules of the paper: {bounds:.2f} s")

    rng = np.random.default_rng(0)
    start = time.perf_counter()
    counted = aw.simulate_gap(problem, AGES, TRIALS, rng)
    fast = time.perf_counter() - start
    print(
        f"Monte Carlo, {TRIALS:,} trials, ages {AGES}; closed form {aw.loss_gap(problem, AGES):.2f}"
    )
    print(f"  counts of cells      {fast:7.3f} s              gap {counted:.1f}")
    rows: list[Row] = [
        {"Monte Carlo": "counts of cells", "times that": 1.0, "gap": counted, "seconds": fast}
    ]
    for name, walk in (("records walk", True), ("records jump", False)):
        start = time.perf_counter()
        gap = record_by_record(problem, AGES, rng, walk=walk)
        slow = time.perf_counter() - start
        print(f"  {name:20} {slow:7.3f} s  {slow / fast:5.1f} x   gap {gap:.1f}")
        rows.append({"Monte Carlo": name, "times that": slow / fast, "gap": gap, "seconds": slow})
    return {"monte_carlo": rows, "bounds": [{"schedules": 1000, "seconds": bounds}]}
