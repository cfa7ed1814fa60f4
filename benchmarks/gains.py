"""Schedules with gains: the certified search against brute force and a plain local search.

Same instances, one run. `python -m benchmarks gains`; a few minutes on two cores.
"""

import resource
import time

import numpy as np
from rich.progress import track

from agewise.arrays import Array
from agewise.knowledge.estimate import GainTables, gain_objective
from agewise.scheduling import certified, check_gains, exhaustive, solve_gains
from benchmarks.recording import Row, Tables


def small(rng: np.random.Generator) -> GainTables:
    """A few clients whose releases share one to three factors, in one or two coordinates."""
    m, t = int(rng.integers(2, 6)), int(rng.integers(2, 7))
    c, f = int(rng.choice([1, 1, 2])), int(rng.integers(1, 4))
    weight = rng.dirichlet(np.ones(m))[:, None, None]
    own, told = rng.uniform(0.1, 2, (2, m, t, c))
    common = rng.normal(size=(m, c, f))
    heard = common[:, None] * rng.uniform(0, 1, (m, t, 1, f)) + 0.3 * rng.normal(size=(m, t, c, f))
    return GainTables(
        base=(weight**2 * own).sum(axis=2),
        cross=weight * rng.uniform(0, 1, (m, t, c)) * np.sqrt(own * told),
        power=told + np.exp(rng.uniform(-3, 4, (m, t, 1))),
        common=weight * common,
        heard=heard,
    )


def large(clients: int, slots: int, factors: int) -> GainTables:
    """Many clients whose common part fades at different speeds, and whose noise falls with age."""
    rng = np.random.default_rng(clients)
    age = np.linspace(0, 1, slots)[None, :, None]
    own = rng.uniform(0.1, 2, (clients, 1, 1)) * np.ones((1, slots, 1))
    noise = 10 * np.exp(rng.uniform(-3, 4, (clients, 1, 1))) * (0.02 + age**2)
    common = rng.normal(1, 0.3, (clients, 1, factors))
    fades: Array = (0.5 + age / 2)[..., None] ** rng.uniform(0.2, 2, (clients, 1, 1, 1))
    return GainTables(
        base=own[..., 0] / clients,
        cross=own * (0.1 + 0.9 * age) / np.sqrt(clients),
        power=own + noise,
        common=common / clients,
        heard=common[:, None] * fades,
    )


def small_problems(count: int = 1000) -> Row:
    tried, certified.EXHAUSTIVE = certified.EXHAUSTIVE, 0  # else they are simply tried
    rng = np.random.default_rng(2)
    optimal = above = 0
    worst, open_gaps = 0.0, []
    for _ in track(range(count), "small problems", transient=True):
        tables = small(rng)
        best = exhaustive(gain_objective(tables), tables.clients, tables.slots).objective
        found = solve_gains(tables)
        excess = found.objective / best - 1
        optimal, worst = optimal + (excess <= 1e-9), max(worst, excess)
        above += (found.lower_bound or 0) > best * (1 + 1e-9)
        open_gaps.append(1 - (found.lower_bound or 0) / best)
    certified.EXHAUSTIVE = tried
    print(
        f"{count:,} random small problems: optimum found in {optimal}, worst {worst:.2g} above it; "
        f"bound above the optimum in {above}, below it by {np.median(open_gaps):.1g} (median), "
        f"{max(open_gaps):.2g} (most)"
    )
    return {
        "random small problems": count,
        "optimum found": optimal,
        "worst above it": worst,
        "bound above the optimum": above,
        "bound below it, median": float(np.median(open_gaps)),
        "bound below it, most": max(open_gaps),
    }


def large_problems() -> list[Row]:
    rows: list[Row] = []
    print("clients  slots  factors  relative gap  passes  seconds  check (s)  GiB")
    for clients, slots, factors in ((1_000, 48, 2), (10_000, 48, 6), (1_000_000, 48, 1)):
        tables = large(clients, slots, factors)
        start = time.perf_counter()
        found = solve_gains(tables)
        middle = time.perf_counter()
        checked = check_gains(found, tables)
        end = time.perf_counter()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{clients:>9,}  {slots}  {factors}  {found.relative_gap:.1e}  {found.iterations}  "
            f"{middle - start:.1f}  {end - middle:.1f} {'holds' if checked.holds else 'FAILS'}  "
            f"{memory:.2f}"
        )
        rows.append(
            {
                "clients": clients,
                "slots": slots,
                "factors": factors,
                "relative gap": found.relative_gap or 0.0,
                "passes": found.iterations,
                "certificate": "holds" if checked.holds else "FAILS",
                "search (s)": middle - start,
                "check (s)": end - middle,
                "memory so far (GiB)": memory,
            }
        )
        del tables
    return rows


def main() -> Tables:
    return {"large": large_problems(), "small": [small_problems()]}


if __name__ == "__main__":
    main()
