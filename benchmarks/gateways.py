"""Gateways of many clients alike, a thousand to a million of them, beside drawing their records."""

import math
import resource
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

import agewise as aw
from benchmarks.recording import Row, Tables

SAMPLES, KINDS = 100, 50


def problem(clients: int) -> aw.Problem:
    rng = np.random.default_rng(0)
    rates = rng.uniform(0.05, 0.45, (KINDS, 2)).tolist()
    return aw.Problem(
        [
            aw.Client(
                f"gateway {i}",
                aw.birth_death(up, down, [20, 50, 100, 200]),
                samples=SAMPLES,
                members=clients // KINDS,
            )
            for i, (up, down) in enumerate(rates)
        ],
        aggregate_at=48,
        epsilon=0.5,
    )


def drawn(clients: int) -> float:
    """Seconds to draw as many uniform numbers as there are records, and to look at each once."""
    rng, begun = np.random.default_rng(0), time.perf_counter()
    for start in range(0, clients, 2**14):
        chance = rng.random((min(2**14, clients - start), SAMPLES))
        np.count_nonzero(chance >= 0.5, axis=1)
    return time.perf_counter() - begun


def main() -> Tables:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for clients in (1_000, 10_000, 100_000, 1_000_000):
            plan = aw.plan(problem(clients))
            once = drawn(clients)
            begun = time.perf_counter()
            aw.run(plan, rng=np.random.default_rng(1))
            imitated = time.perf_counter() - begun
            begun = time.perf_counter()
            result = aw.run(plan, folder=Path(folder) / f"{clients}")
            durable = time.perf_counter() - begun
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            rows.append(
                {
                    "clients": clients,
                    "stand-in, times drawing the records": imitated / once,
                    "OpenDP noise and ledgers, times drawing the records": durable / once,
                    "stand-in, clients per second": clients / imitated,
                    "OpenDP noise and ledgers, clients per second": clients / durable,
                    "most memory (GiB)": memory,
                    "loss over expected": float(result.realised_loss or 0.0) / plan.gap,
                }
            )
            print(rows[-1], flush=True)
    grown = [
        math.log10(
            many["clients"] / many[name] / (few["clients"] / few[name])  # type: ignore[operator]
        )
        for few, many in pairwise(rows[1:])
        for name in (
            "stand-in, clients per second",
            "OpenDP noise and ledgers, clients per second",
        )
    ]
    print(f"time grows with the clients to the power {max(grown):.2f} at most, from 10,000 on")
    growth: list[Row] = [{"time grows with clients to the power, from 10,000 on": max(grown)}]
    return {"runs": rows, "growth": growth}


if __name__ == "__main__":
    main()
