"""What many runs of a plan lost, over what was expected: whether that is spread as chance has it."""

import math

import numpy as np

import agewise as aw
from benchmarks.named_clients import problem
from benchmarks.recording import Row, Tables

RUNS = {1_000: 1_000, 10_000: 400, 100_000: 500}
"""Clients, and how many runs of their plan, each with a seed of its own."""
ODD = {3.84: 0.05, 8.76: 0.0031}
"""Losses over the expected one, and how often the square of a standard normal number is above."""


def losses(number: int, runs: int) -> Row:
    plan = aw.plan(problem(number))
    some = [
        aw.run(plan, rng=np.random.default_rng([2, seed])).realised_loss or 0.0
        for seed in range(runs)
    ]
    ratios = np.array(some) / plan.gap
    error = ratios.std(ddof=1) / math.sqrt(runs)
    row: Row = {
        "named clients": number,
        "runs": runs,
        "loss over expected, mean ± standard error": f"{ratios.mean():.2f} ± {error:.2f}",
        "by chance": f"1 ± {math.sqrt(2 / runs):.2f}",
        "median (0.455 by chance)": float(np.median(ratios)),
    }
    for limit, chance in ODD.items():
        share = 100 * float((ratios > limit).mean())
        row[f"above {limit} ({100 * chance:.2g} % by chance)"] = f"{share:.2g} %"
    return {**row, "largest": float(ratios.max())}


def main() -> Tables:
    rows = []
    for number, runs in RUNS.items():
        rows.append(losses(number, runs))
        print(rows[-1], flush=True)
    return {"runs": rows}
