"""Noise by each client, or once by the server: what is left of it, and what a run takes.

10,000 clients (or AGEWISE_CLIENTS) of a hundred kinds: plans, runs in memory, statements.
"""

import os
import time

import numpy as np

import agewise as aw
from benchmarks.recording import Row, Tables

CLIENTS = int(os.environ.get("AGEWISE_CLIENTS", "10000"))
KINDS, SLOTS, EPSILON = 100, 12, 0.1


def main() -> Tables:
    rows: list[Row] = []
    rng = np.random.default_rng(1)
    rates = rng.uniform(0.05, 0.45, (KINDS, 2))
    chains = [aw.birth_death(up, down, [20.0, 50.0, 100.0, 200.0]) for up, down in rates]
    clients = [
        aw.Client(f"meter {i:05d}", process=chains[i % KINDS], samples=20) for i in range(CLIENTS)
    ]
    for estimator in ("plain", "best"):
        problem = aw.Problem(clients, SLOTS, EPSILON, estimator=estimator)
        losses = {}
        for trust in ("client", "server"):
            start = time.perf_counter()
            plan = aw.plan(problem.replace(noise=trust))
            planned = time.perf_counter() - start
            start = time.perf_counter()
            result = aw.run(plan, rng=np.random.default_rng(2))
            ran = time.perf_counter() - start
            losses[trust] = plan.noise_gap
            ages = f"ages {min(plan.ages)} to {max(plan.ages)}"
            print(
                f"{CLIENTS:,} clients, {estimator}, noise by the {trust}: {ages}, loss "
                f"{plan.gap:.4g} of which noise {plan.noise_gap:.4g} "
                f"({100 * plan.noise_gap / plan.gap:.2g} %); nothing collected "
                f"{plan.nothing_collected:.4g}, classical fresh {plan.classical_fresh:.4g}; gap "
                f"{plan.relative_gap:.1e}, planned in {planned:.1f} s, run in {ran:.1f} s, "
                f"statement of {len(result.statement.clients):,} clients, this run lost "
                f"{result.realised_loss:.4g}",
                flush=True,
            )
            rows.append(
                {
                    "clients": CLIENTS,
                    "estimator": estimator,
                    "noise by": f"the {trust}" if trust == "server" else "each client",
                    "ages": f"{min(plan.ages)} to {max(plan.ages)}",
                    "loss (Wh²)": plan.gap,
                    "of which noise (Wh²)": plan.noise_gap,
                    "nothing collected (Wh²)": plan.nothing_collected,
                    "classical, fresh (Wh²)": plan.classical_fresh,
                    "run (s)": ran,
                }
            )
        print(f"  noise of each over once: {losses['client'] / losses['server']:.0f}")
    return {"clients": rows}


if __name__ == "__main__":
    main()
