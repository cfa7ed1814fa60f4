"""A private mean of 100 records per client: ours beside pfl-research and Flower's simulation.

The peers are installed in environments of their own below `.venv-peers`, which are made if they are
not there. Ours and pfl take turns in one run, three times, and the best of each counts; Flower comes
last, once. Ours goes from a plan to a checked statement: with the seeded stand-in, or with OpenDP's
noise and accounts on disk; the clients are of fifty kinds, or each has a process of its own. In each turn
it goes again until it took as long as pfl does, and counts by its mean.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import agewise as aw
from agewise.planning import Plan
from benchmarks.recording import ROOT, Row, Tables

CLIENTS = int(os.environ.get("AGEWISE_CLIENTS", "10000"))
SAMPLES, KINDS, TURNS, LEAST = 100, 50, 3, 2.0
FLOWER = "Flower's simulation, no noise"
PEERS = ROOT / ".venv-peers"
SCRIPTS = Path(__file__).parent / "peers"
PACKAGES = {"pfl": "pfl==0.6.0", "flwr": "flwr[simulation]"}


def installed(name: str) -> str | None:
    """Install a peer; return why that failed."""
    python = PEERS / name / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEERS / name)], check=True)
    quiet = ["--quiet", "--disable-pip-version-check"]
    command = [str(python), "-m", "pip", "install", *quiet, PACKAGES[name]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return None if done.returncode == 0 else (errors or ["pip failed"])[0]


def peer(name: str, script: str) -> dict[str, float]:
    """Seconds of a peer, by way."""
    command = [str(PEERS / name / "bin" / "python"), str(SCRIPTS / script), str(CLIENTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{script}: {(done.stderr.splitlines() or ['no word'])[-1]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def plans() -> dict[str, Plan]:
    rates = np.random.default_rng(0).uniform(0.05, 0.45, (CLIENTS, 2)).tolist()
    chains = [aw.birth_death(up, down, [20, 50, 100, 200]) for up, down in rates]

    def named(kinds: int) -> list[aw.Client]:
        every = range(CLIENTS)
        return [aw.Client(f"client {i}", chains[i % kinds], samples=SAMPLES) for i in every]

    gateways = [
        aw.Client(f"gateway {i}", chain, samples=SAMPLES, members=CLIENTS // KINDS)
        for i, chain in enumerate(chains[:KINDS])
    ]
    groups = {
        f"named clients of {KINDS} kinds": named(KINDS),
        "named clients, each of its own kind": named(CLIENTS),
        f"gateways of {KINDS} kinds": gateways,
    }
    return {
        name: aw.plan(aw.Problem(clients, aggregate_at=48, epsilon=0.5))
        for name, clients in groups.items()
    }


def seconds(work: Callable[[], object]) -> float:
    """How long it takes on the average, over two seconds or more."""
    begun, times = time.perf_counter(), 0
    while (spent := time.perf_counter() - begun) < LEAST:
        work()
        times += 1
    return spent / times


def ours(made: dict[str, Plan], folder: Path) -> dict[str, float]:
    def rehearsed(plan: Plan) -> None:
        aw.run(plan, rng=np.random.default_rng(1))

    def recorded(plan: Plan) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            aw.run(plan, folder=Path(place) / "run")

    ways = {"stand-in": rehearsed, "OpenDP and accounts on disk": recorded}
    return {
        f"{name}, {way}": seconds(partial(run, plan))
        for name, plan in made.items()
        for way, run in ways.items()
    }


def main() -> Tables:
    missing = {name: why for name in PACKAGES if (why := installed(name)) is not None}
    made, turns, some = plans(), [], 0
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TURNS):
            found = ours(made, Path(folder))
            if "pfl" not in missing:
                spent = peer("pfl", "pfl_mean.py")
                found["pfl, noise by the server"] = spent["central"]
                found["pfl, noise by each client"] = spent["local"]
            turns.append(found)
            print(
                f"turn {turn + 1} of {TURNS}:",
                {k: f"{CLIENTS / v:,.0f}/s" for k, v in found.items()},
            )
    if "flwr" not in missing:  # last: what it leaves behind takes a while to end
        try:
            spent = peer("flwr", "flower_mean.py")
            some = int(spent["clients"])  # fewer; seconds as if all went as fast
            turns[-1][FLOWER] = spent["simulation"] * CLIENTS / some
        except RuntimeError as error:
            missing["flwr"] = str(error)
    best = {name: min(turn[name] for turn in turns if name in turn) for name in turns[-1]}
    rows: list[Row] = []
    for name, took in best.items():
        row: Row = {"": name, "clients": some if name == FLOWER else CLIENTS}
        for other in ("pfl, noise by each client", "pfl, noise by the server"):
            if other in best:
                row[f"times {other}"] = best[other] / took
        row["clients per second"] = CLIENTS / took
        rows.append(row)
    rows += [{"": f"{name}: {why}"[:200], "clients": 0} for name, why in missing.items()]
    return {"runs": rows}
