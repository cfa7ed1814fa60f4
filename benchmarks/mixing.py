"""Δ of many chains at many ages: one vectorised call against a plain loop over the formula."""

import time
import tracemalloc

import numpy as np

import agewise as aw
from agewise.arrays import Array
from benchmarks.recording import Tables

CHAINS, STATES, AGES = 100_000, 4, 48
LOOPED = 400  # chains the loop gets through in a few seconds; its cost is linear in their number


def one_by_one(transition: Array, ages: int) -> list[float]:
    """The formula as the paper prints it, one chain and one age at a time."""
    law = aw.MarkovChain(transition, range(STATES)).stationary
    values = []
    for age in range(ages):
        kernel = np.linalg.matrix_power(transition, age)
        joint = law[:, None] * kernel
        back = (joint / joint.sum(axis=0)).T
        values.append(
            max(
                0.5 * float(np.abs(back[y] - back[z]).sum())
                for y in range(STATES)
                for z in range(y)
            )
        )
    return values


def main() -> Tables:
    rng = np.random.default_rng(0)
    chains = rng.dirichlet(np.ones(STATES), (CHAINS, STATES))
    start = time.perf_counter()
    table = aw.privacy.delta_table(chains, range(AGES))
    fast = time.perf_counter() - start
    start = time.perf_counter()
    looped = [one_by_one(chain, AGES) for chain in chains[:LOOPED]]
    slow = (time.perf_counter() - start) * CHAINS / LOOPED
    worst = np.abs(table[:LOOPED] - looped).max()
    tracemalloc.start()
    aw.privacy.delta_table(chains, range(AGES))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"Δ of {CHAINS:,} chains of {STATES} states at {AGES} ages")
    print(f"  one call          {fast:8.2f} s")
    print(f"  plain loop        {slow:8.2f} s (measured on {LOOPED} chains, scaled up)")
    print(f"  ratio             {slow / fast:8.0f} x")
    print(f"  largest difference {worst:.1e}")
    print(f"  peak memory       {peak / 2**20:8.0f} MiB, result {table.nbytes / 2**20:.0f} MiB")
    return {
        "delta": [
            {
                "chains": CHAINS,
                "states": STATES,
                "ages": AGES,
                "plain loop over one call": slow / fast,
                "largest difference": float(worst),
                "peak memory over the result": peak / table.nbytes,
                "one call (s)": fast,
            }
        ]
    }
