"""Plans of clients that are objects, no two alike: from a problem to a plan with its proof."""

import time

import numpy as np

import agewise as aw
from benchmarks.recording import Row, Tables

STATES = [20, 50, 100, 200]


def main() -> Tables:
    rows: list[Row] = []
    for estimator in ("best", "plain", "propagated"):
        for clients in (1_000, 10_000):
            rates = np.random.default_rng(0).uniform(0.05, 0.45, (clients, 2)).tolist()
            members = [
                aw.Client(f"client {i}", aw.birth_death(rate[0], rate[1], STATES), samples=100)
                for i, rate in enumerate(rates)
            ]
            problem = aw.Problem(members, 48, 0.5, estimator=estimator)
            begun = time.perf_counter()
            plan = aw.plan(problem)
            seconds = time.perf_counter() - begun
            print(
                f"{clients} clients that differ, {estimator}: planned in {seconds:.1f} s",
                flush=True,
            )
            rows.append(
                {
                    "clients, no two alike": clients,
                    "slots": 48,
                    "estimator": estimator,
                    "relative gap": plan.relative_gap or 0.0,
                    "clients per second": clients / seconds,
                    "seconds": seconds,
                }
            )
    return {"plans": rows}
