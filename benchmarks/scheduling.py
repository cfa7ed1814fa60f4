"""The certified scheduler against exhaustive search, OR-tools CP-SAT and a greedy local search.

Same instances, one run. `python -m benchmarks scheduling`; some six minutes on two cores.
"""

import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from ortools.sat.python import cp_model
from rich.progress import track

import agewise as aw
from agewise.arrays import Array
from agewise.loss import cost_tables
from agewise.loss.batch import chain_tables
from agewise.report.drawing import COLOURS, MARKERS, save
from agewise.scheduling import Schedule, check_schedule, exhaustive, table_objective
from benchmarks.recording import Row, Tables

STATES = [20, 50, 100, 200]
PICTURE = Path(__file__).parents[1] / "docs" / "images"


def population(clients: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Birth–death chains, laws and sizes of a population of four-state clients."""
    up, down, _ = rng.dirichlet([1, 1, 4], clients).T
    chains = np.zeros((clients, 4, 4))
    for k in (1, 2):
        chains[:, k, k - 1], chains[:, k, k + 1], chains[:, k, k] = down, up, 1 - up - down
    for end, inner in ((0, 1), (3, 2)):
        chains[:, end, inner], chains[:, end, end] = up + down, 1 - up - down
    return chains, rng.dirichlet(np.ones(4), clients), rng.integers(50, 500, clients).astype(float)


def chain_built(
    clients: int,
    slots: int,
    rng: np.random.Generator,
    estimator: Any,
    calibration: Any = "formula",
) -> Any:
    chains, laws, samples = population(clients, rng)
    choices = {"estimator": estimator, "calibration": calibration}
    return chain_tables(chains, STATES, samples, slots, 0.1, laws=laws, **choices)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def cp_sat(u: Array, b: Array, capacity: int | None, seconds: float) -> tuple[float, float]:
    """CP-SAT on integer-scaled tables: the objective in floats of its schedule, and its gap."""
    clients, slots = u.shape
    reach = float(np.sqrt(u.min(axis=1).sum() + 4 * u.max(axis=1).sum()))
    scale = 3e8 / max(reach, float(np.abs(b).max()))
    costs, leans = np.rint(u * scale**2).astype(np.int64), np.rint(b * scale).astype(np.int64)
    model = cp_model.CpModel()
    picks = [[model.new_bool_var("") for _ in range(slots)] for _ in range(clients)]
    for row in picks:
        model.add_exactly_one(row)
    if capacity is not None:
        for t in range(slots):
            model.add(sum(row[t] for row in picks) <= capacity)
    total = model.new_int_var(-(10**9), 10**9, "")
    flat = [x for row in picks for x in row]
    model.add(total == cp_model.LinearExpr.weighted_sum(flat, leans.ravel().tolist()))
    square = model.new_int_var(0, 10**18, "")
    model.add_multiplication_equality(square, [total, total])
    model.minimize(cp_model.LinearExpr.weighted_sum(flat, costs.ravel().tolist()) + square)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 2
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return float("inf"), float("inf")
    columns = np.array([[int(solver.value(x)) for x in row] for row in picks]).argmax(axis=1)
    objective = float(table_objective(u, b)(columns[None])[0])
    return objective, max(0.0, 1 - solver.best_objective_bound / solver.objective_value)


def local_search(u: Array, b: Array) -> float:
    """Every client takes its cheapest slot, then one after the other its best answer, in rounds."""
    columns = u.argmin(axis=1)
    rows = np.arange(len(u))
    total = float(b[rows, columns].sum())
    for _ in range(20):
        changed = False
        for i in range(len(u)):
            rest = total - b[i, columns[i]]
            best = int(np.argmin(u[i] + (rest + b[i]) ** 2))
            if best != columns[i]:
                total, columns[i], changed = rest + b[i, best], best, True
        if not changed:
            break
    return float(u[rows, columns].sum() + total**2)


def small_problems() -> Tables:
    rng = np.random.default_rng(0)
    equal = proven = 0
    for _ in track(range(1000), "small problems", transient=True):
        clients, slots = int(rng.integers(1, 6)), int(rng.integers(2, 9))
        shape = (
            (clients, slots) if rng.random() < 0.5 else (clients, slots, int(rng.integers(2, 4)))
        )
        u, b = rng.random((clients, slots)), rng.normal(size=shape)
        capacity = None if rng.random() < 0.5 else max(1, -(-clients // slots))
        best = exhaustive(table_objective(u, b), clients, slots, capacity)
        found = aw.solve_schedule(u, b, capacity)
        equal += abs(found.objective - best.objective) <= 1e-12 * abs(best.objective)
        proven += found.relative_gap == 0
    print(f"1,000 random small problems: {equal} equal to exhaustive search, {proven} with gap 0")
    return {
        "small": [{"random small problems": 1000, "equal to exhaustive": equal, "gap 0": proven}]
    }


def thirty_clients() -> Tables:
    proven, worst, slowest, total = 0, 0.0, 0.0, 0.0
    peers = []
    for seed in track(range(100), "thirty clients", transient=True):
        rng = np.random.default_rng(seed)
        estimator = "plain" if seed % 2 else "propagated"
        u, b = varied_problem(rng, estimator)
        found, seconds = timed(lambda u=u, b=b: aw.solve_schedule(u, b))  # type: ignore[misc]
        gap = found.relative_gap
        proven += gap <= 1e-9
        worst, slowest, total = max(worst, gap), max(slowest, seconds), total + seconds
        if seed in range(1, 12, 2):
            (value, peer_gap), peer_time = timed(
                lambda u=u, b=b: cp_sat(u, b, None, 10.0)  # type: ignore[misc]
            )
            greedy = local_search(u, b)
            peers.append(
                (
                    gap,
                    seconds,
                    peer_gap,
                    peer_time,
                    value / found.objective,
                    greedy / found.objective,
                )
            )
    print(
        f"100 birth–death problems, 30 clients x 48 slots: {proven} proven to 1e-9, worst gap "
        f"{worst:.1e}, {total:.1f} s in all, slowest {slowest:.2f} s"
    )
    print("  six of them (plain)     ours: gap, s     CP-SAT: gap, s   its value/ours  greedy/ours")
    for gap, seconds, peer_gap, peer_time, ratio, greedy in peers:
        print(
            f"  {gap:22.1e} {seconds:6.2f} {peer_gap:14.1e} {peer_time:6.1f} {ratio:12.6f} "
            f"{greedy:12.4f}"
        )
    rows: list[Row] = [
        {
            "problem": number,
            "its objective over ours: CP-SAT": ratio,
            "greedy": greedy,
            "gap, ours": gap,
            "gap, CP-SAT": peer_gap,
            "ours (s)": seconds,
            "CP-SAT (s)": peer_time,
        }
        for number, (gap, seconds, peer_gap, peer_time, ratio, greedy) in enumerate(peers, 1)
    ]
    all_of_them: Row = {
        "problems": 100,
        "proven to 1e-9": proven,
        "worst gap": worst,
        "all (s)": total,
        "slowest (s)": slowest,
    }
    return {"thirty": [all_of_them], "thirty_peers": rows}


def varied_problem(rng: np.random.Generator, estimator: Any) -> tuple[Array, Array]:
    clients = []
    for i in range(30):
        size = int(rng.integers(3, 6))
        up, down = rng.dirichlet([1, 1, rng.choice([1, 4, 16])])[:2]
        states = np.sort(rng.choice(np.arange(1, 40), size, replace=False)) * 10
        chain = aw.birth_death(float(up), float(down), states)
        law = rng.dirichlet(np.ones(size))
        clients.append(aw.Client(str(i), chain, law, int(rng.integers(20, 400))))
    target = float(np.exp(rng.uniform(-4, 0)))
    tables = cost_tables(aw.Problem(clients, 48, target, estimator=estimator))
    return tables.u, tables.b


def one_upload_a_slot() -> Tables:
    u, b = chain_built(300, 300, np.random.default_rng(5), "plain")
    found, seconds = timed(lambda: aw.solve_schedule(u, b, capacity=1))
    limit = max(60.0, 40 * seconds)
    (value, gap), peer = timed(lambda: cp_sat(u, b, 1, limit))
    print(
        f"300 clients x 300 slots, one a slot: gap {found.relative_gap:.1e} in {seconds:.2f} s; "
        f"CP-SAT gap {gap:.1e} after {peer:.0f} s ({peer / seconds:.0f} times ours), its value "
        f"{value / found.objective:.6f} of ours"
    )
    row: Row = {
        "clients": 300,
        "slots": 300,
        "CP-SAT's objective over ours": value / found.objective,
        "CP-SAT's time over ours": peer / seconds,
        "gap, ours": found.relative_gap or 0.0,
        "gap, CP-SAT": gap,
        "ours (s)": seconds,
        "CP-SAT (s)": peer,
    }
    return {"one_a_slot": [row]}


def a_million() -> Tables:
    rows: list[Row] = []
    rng = np.random.default_rng(1)
    for estimator in ("plain", "propagated"):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        (u, b), built = timed(lambda e=estimator: chain_built(1_000_000, 48, rng, e))  # type: ignore[misc]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        base = min(timed(lambda u=u, b=b: (u + b).sum())[1] for _ in range(3))  # type: ignore[misc]
        runs = [timed(lambda u=u, b=b: aw.solve_schedule(u, b)) for _ in range(3)]  # type: ignore[misc]
        found, seconds = min(runs, key=lambda run: run[1])
        checked = check_schedule(found, u, b)
        print(
            f"1,000,000 clients x 48 slots ({estimator}): tables built in {built:.1f} s "
            f"(peak {peak / 2**20:.1f} GiB, {before / 2**20:.1f} before), solved in {seconds:.2f} s "
            f"= {seconds / base:.1f} x one NumPy pass ({base:.3f} s), gap "
            f"{found.relative_gap:.1e}, certificate {'holds' if checked.holds else 'FAILS'}"
        )
        name = f"{estimator}, 1,000,000 clients × 48 slots"
        rows.append(_solved(name, found, checked.holds, seconds / base, seconds))
        priced, seconds = timed(lambda u=u, b=b: aw.solve_schedule(u, b, capacity=25_000))  # type: ignore[misc]
        checked = check_schedule(priced, u, b, 25_000)
        print(
            f"  25,000 a slot: gap {priced.relative_gap:.1e} in {seconds:.1f} s, certificate "
            f"{'holds' if checked.holds else 'FAILS'}"
        )
        name += ", 25,000 per slot"
        rows.append(_solved(name, priced, checked.holds, seconds / base, seconds))
    return {"million": rows}


def _solved(name: str, found: Schedule, holds: bool, passes: float, seconds: float) -> Row:
    return {
        "": name,
        "NumPy passes (u + b).sum()": passes,
        "relative gap": found.relative_gap or 0.0,
        "certificate": "holds" if holds else "FAILS",
        "seconds": seconds,
    }


def a_nation() -> Tables:
    rng = np.random.default_rng(2)
    u, b = chain_built(3000, 48, rng, "plain")
    counts = rng.multinomial(30_000_000 - 3000, rng.dirichlet(np.ones(3000))) + 1
    share = 3000 / 30_000_000  # a client's weight in the whole, not in the sample of groups
    found, seconds = timed(lambda: aw.solve_schedule(u * share**2, b * share, counts=counts))
    print(f"30,000,000 clients as 3,000 groups: gap {found.relative_gap:.1e} in {seconds:.2f} s")
    rows: list[Row] = [
        {
            "30,000,000 clients": "as 3,000 groups",
            "relative gap": found.relative_gap or 0.0,
            "solving passes": found.iterations,
            "seconds": seconds,
        }
    ]

    base_u, base_b = chain_built(100_000, 48, rng, "plain")
    weights = rng.uniform(0.5, 2, 300)

    def blocks() -> Iterator[tuple[Array, Array]]:
        for weight in weights:
            scale = float(weight) / 300
            yield base_u * scale**2, base_b * scale

    found, seconds = timed(lambda: aw.scheduling.solve_stream(blocks))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"30,000,000 clients streamed in blocks: gap {found.relative_gap:.1e} in {seconds:.0f} s, "
        f"{found.iterations} solving passes, peak memory of this process so far {peak:.1f} GiB"
    )
    rows.append(
        {
            "30,000,000 clients": "streamed in blocks",
            "relative gap": found.relative_gap or 0.0,
            "solving passes": found.iterations,
            "seconds": seconds,
            "memory so far (GiB)": peak,
        }
    )
    return {"nation": rows}


def growth() -> Tables:
    from matplotlib.figure import Figure

    rng = np.random.default_rng(3)
    sizes = [1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000]
    u, b = chain_built(sizes[-1], 48, rng, "plain")
    ours, greedy, gaps = [], [], []
    for size in sizes:
        part, lean = u[:size] * 1e12 / size**2, b[:size] * 1e6 / size
        runs = [timed(lambda u=part, b=lean: aw.solve_schedule(u, b)) for _ in range(3)]  # type: ignore[misc]
        found, seconds = min(runs, key=lambda run: run[1])
        ours.append(seconds)
        gaps.append(found.relative_gap)
        if size <= 30_000:
            greedy.append(timed(lambda u=part, b=lean: local_search(u, b))[1])  # type: ignore[misc]
    large = slice(3, None)
    slope = np.polyfit(np.log(sizes[large]), np.log(ours[large]), 1)[0]
    whole = np.polyfit(np.log(sizes), np.log(ours), 1)[0]
    print(f"time grows as m^{whole:.2f} over 10^3..10^6 (m^{slope:.2f} from 30,000 on):")
    for size, seconds, gap in zip(sizes, ours, gaps, strict=True):
        print(f"  {size:>9,} clients {seconds:8.3f} s  gap {gap:.1e}")
    counts = [2, 3, 4, 5]
    tried = []
    for count in counts:
        small_u, small_b = u[:count, :20], b[:count, :20]
        tried.append(
            timed(
                lambda n=count, u=small_u, b=small_b: exhaustive(  # type: ignore[misc]
                    table_objective(u, b), n, 20
                )
            )[1]
        )
    figure = Figure(figsize=(7.5, 4.8), layout="constrained")
    axes = figure.subplots()
    curves = (
        ("certified (48 slots)", sizes, ours),
        ("greedy local search", sizes[: len(greedy)], greedy),
        ("exhaustive (20 slots)", counts, tried),
    )
    for k, (name, x, y) in enumerate(curves):
        axes.loglog(x, y, color=COLOURS[k], marker=MARKERS[k], label=name)
    axes.set_xlabel("clients")
    axes.set_ylabel("seconds")
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    axes.set_title("Time to a schedule")
    print(f"  picture: {save(figure, PICTURE, 'scheduling')[0]}")
    rows: list[Row] = [
        {"clients": size, "relative gap": gap or 0.0, "seconds": seconds}
        for size, seconds, gap in zip(sizes, ours, gaps, strict=True)
    ]
    slopes: Row = {"time grows as clients to the power": whole, "from 30,000 on": slope}
    return {"growth": rows, "slopes": [slopes]}


def main() -> Tables:
    parts = (
        small_problems,
        thirty_clients,
        one_upload_a_slot,
        a_million,
        a_nation,
        growth,
    )
    return {name: rows for part in parts for name, rows in part().items()}
