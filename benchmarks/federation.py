"""The local engine with 10,000 clients (or AGEWISE_CLIENTS), beside the same work in a plain loop.

The last row is the reference: a ledger file for each client, and each client by itself.
"""

import os
import tempfile
import time
from pathlib import Path

import numpy as np

import agewise as aw
from agewise.planning import Plan
from benchmarks.recording import Row, Tables

CLIENTS = int(os.environ.get("AGEWISE_CLIENTS", "10000"))
FEW = 300


def plain_loop(plan: Plan) -> float:
    """What a run computes, without messages, checks, ledgers or a statement."""
    rng = np.random.default_rng(0)
    problem, model = plan.problem, 0.0
    for client, weight, one in zip(problem.clients, problem.weights, plan.assignments, strict=True):
        process = client.process
        forward = process.kernel(one.collect_at, problem.aggregate_at) @ process.states
        drawn = rng.choice(process.states.size, size=client.samples, p=client.law_at(1))
        model += weight * (forward[drawn].mean() + rng.laplace(0, one.noise_scale))
    return float(model)


def main() -> Tables:
    rng = np.random.default_rng(0)
    rates = rng.uniform(0.05, 0.45, (50, 2)).tolist()
    chains = [aw.birth_death(up, down, [20, 50, 100, 200]) for up, down in rates]
    clients = [aw.Client(f"client {i}", chains[i % 50], samples=100) for i in range(CLIENTS)]
    begun = time.perf_counter()
    plan = aw.plan(aw.Problem(clients, aggregate_at=48, epsilon=0.5))
    print(f"planned {CLIENTS} clients in {time.perf_counter() - begun:.1f} s")
    begun = time.perf_counter()
    plain_loop(plan)
    loop = time.perf_counter() - begun
    rows: list[Row] = [
        {
            "": "plain loop",
            "clients": CLIENTS,
            "times the plain loop": 1.0,
            "clients per second": CLIENTS / loop,
        }
    ]
    print(f"{'plain loop':34} {CLIENTS / loop:8.0f} clients/s")
    few = aw.plan(aw.Problem(clients[:FEW], aggregate_at=48, epsilon=0.5))
    aw.run(few)  # what is done once
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        kept = {"ledgers": place / "all.ledger", "policy": aw.Policy(9.0)}
        for name, chosen, choices in (
            ("seeded stand-in, in memory", plan, {"rng": np.random.default_rng(1)}),
            ("OpenDP noise, in memory", plan, {}),
            ("OpenDP noise, accounts in one file", plan, {"folder": place / "run"}),
            ("the same, ledgers that outlive the run", plan, {**kept, "starts_at": 0}),
            ("again on these ledgers", plan, {**kept, "starts_at": 100}),
            ("OpenDP noise, a ledger file each", few, {"ledgers": place / "each"}),
        ):
            number, begun = len(chosen.assignments), time.perf_counter()
            result = aw.run(chosen, **choices)
            took = time.perf_counter() - begun
            times = took / loop * CLIENTS / number
            print(
                f"{name:34} {number / took:8.0f} clients/s   {times:5.1f} × the plain loop"
                f"   loss {result.realised_loss:.3g}, expected {chosen.gap:.3g}",
                flush=True,
            )
            rows.append(
                {
                    "": name,
                    "clients": number,
                    "times the plain loop": times,
                    "clients per second": number / took,
                }
            )
    return {"runs": rows}
