"""Named clients, a thousand to a million of them in fifty kinds: planned, run, each with its row.

Each size runs in a process of its own, whose most memory is that of this size.
"""

import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

import agewise as aw
from benchmarks.recording import ROOT, Row, Tables

SIZES = (1_000, 10_000, 100_000, 1_000_000)
KINDS, SAMPLES = 50, 100


def problem(number: int, kinds: int = KINDS) -> aw.Problem:
    rates = np.random.default_rng(0).uniform(0.05, 0.45, (kinds, 2)).tolist()
    chains = [aw.birth_death(up, down, [20, 50, 100, 200]) for up, down in rates]
    clients = [aw.Client(f"client {i}", chains[i % kinds], samples=SAMPLES) for i in range(number)]
    return aw.Problem(clients, aggregate_at=48, epsilon=0.5)


def one_size(number: int) -> Row:
    asked = problem(number)
    begun = time.perf_counter()
    plan = aw.plan(asked)
    planned = time.perf_counter() - begun
    begun = time.perf_counter()
    aw.run(plan, rng=np.random.default_rng(1))
    imitated = time.perf_counter() - begun
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        aw.run(plan, folder=Path(folder) / "run")
        durable = time.perf_counter() - begun
    return {
        "named clients": number,
        "planned (s)": planned,
        "stand-in (s)": imitated,
        "OpenDP noise and accounts (s)": durable,
        "all, clients per second": number / (planned + imitated + durable),
        "most memory (GiB)": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "relative gap": plan.relative_gap or 0.0,
    }


def main() -> Tables:
    rows: list[Row] = []
    for number in SIZES:
        command = [sys.executable, "-m", "benchmarks.named_clients", str(number)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    timed = ("planned (s)", "stand-in (s)", "OpenDP noise and accounts (s)")
    growth: list[Row] = []
    for name in timed:
        steps = [math.log10(float(many[name]) / float(few[name])) for few, many in pairwise(rows)]
        growth.append(
            {
                "grows with clients to the power": name.removesuffix(" (s)"),
                "10,000 to 1,000,000": sum(steps[1:]) / 2,
                "10,000 to 100,000": steps[1],
                "100,000 to 1,000,000": steps[2],
            }
        )
    print(growth)
    return {"runs": rows, "growth": growth}


if __name__ == "__main__":
    print(json.dumps(one_size(int(sys.argv[1]))))
