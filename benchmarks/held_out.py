"""The certified scheduler on many kinds of random tables, two draws each that set nothing in it."""

import numpy as np

import agewise as aw
from agewise.scheduling import check_schedule
from benchmarks.families import FAMILIES
from benchmarks.recording import Row, Tables
from benchmarks.scheduling import timed


def main() -> Tables:
    rows: list[Row] = []
    for kind, make in FAMILIES.items():
        passes, gaps, holds = [], [], True
        for seed in (51, 52):
            u, b = make(1_000_000, 48, np.random.default_rng(seed))
            base = min(timed(lambda u=u, b=b: (u + b).sum())[1] for _ in range(3))  # type: ignore[misc]
            runs = [timed(lambda u=u, b=b: aw.solve_schedule(u, b)) for _ in range(2)]  # type: ignore[misc]
            found, seconds = min(runs, key=lambda run: run[1])
            passes.append(seconds / base)
            gaps.append(found.relative_gap or 0.0)
            holds &= check_schedule(found, u, b).holds
        name = kind.replace("_", " ")
        print(
            f"{name}: {passes[0]:.1f} and {passes[1]:.1f} passes, gap {max(gaps):.1e}", flush=True
        )
        rows.append(
            {
                "1,000,000 clients × 48 slots": name,
                "passes, first draw": passes[0],
                "second draw": passes[1],
                "largest relative gap": max(gaps),
                "certificates": "hold" if holds else "FAIL",
            }
        )
    return {"families": rows}
