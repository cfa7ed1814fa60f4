"""Agewise on Flower with many nodes on one machine: 50, or as many as AGEWISE_NODES says."""

import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import agewise as aw
from agewise.federation.flower.deployment import Deployment, init_deployment
from agewise.federation.flower.supervisor import bring_down, bring_up, read_state
from agewise.federation.happened import Step
from benchmarks.flower import federation_of
from benchmarks.recording import Row, Tables

NODES = int(os.environ.get("AGEWISE_NODES", "50"))


def memory(deployment: Deployment) -> tuple[float, float]:
    """MiB of a node, with what it has started (proportional share), and of the SuperLink."""
    state = read_state(deployment) or {"processes": {}}
    sizes: dict[int, float] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            group = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[2])
            text = (entry / "smaps_rollup").read_text()
            sizes[group] = sizes.get(group, 0.0) + int(text.split("Pss:")[1].split()[0]) / 1024
        except (OSError, IndexError, ValueError):
            continue
    pids = {name: one["pid"] for name, one in state["processes"].items()}
    nodes = [sizes.get(p, 0.0) for n, p in pids.items() if n not in ("superlink", "superexec")]
    return statistics.median(nodes), sizes.get(pids["superlink"], 0.0)


def crowd(folder: Path) -> list[Row]:
    plan = aw.plan(federation_of(NODES))
    deployment = init_deployment(folder / "many", plan.problem, tls=True, seed=1, stand_in=True)
    begun = time.time()
    bring_up(deployment, wait=300)
    started = time.time() - begun
    print(f"{NODES} nodes with keys started in {started:.0f} s", flush=True)
    try:
        begun = time.time()
        told: dict[str, float] = {}

        def watch(step: Step, *_: int) -> None:
            told.setdefault(step.what, time.time())

        result = aw.run(
            plan,
            "flower",
            folder=folder / "run",
            deployment=deployment.folder,
            wait=900,
            at_once=6,
            slot_timeout=900,
            watch=watch,
        )
        took = time.time() - begun
        node, link = memory(deployment)
        messages = 2 * NODES  # an introduction and an order each
        work = time.time() - told["waiting"]
        print(
            f"{len(result.participants)} of {NODES} clients uploaded in {took:.0f} s: "
            f"{messages / work:.2f} messages/s once the app ran; a node takes {node:.0f} MiB, "
            f"the SuperLink {link:.0f} MiB"
        )
        local = aw.run(plan, rng=_Seeded(1))
        print("model equal to the local engine's:", result.model == local.model)
        return [
            {
                "nodes": NODES,
                "started with keys (s)": started,
                "one run (s)": took,
                "messages per second": messages / work,
                "memory of a node (MiB)": node,
                "of the SuperLink (MiB)": link,
                "model": "as local" if result.model == local.model else "not as local",
            }
        ]
    finally:
        bring_down(deployment)


class _Seeded(np.random.Generator):
    """A generator whose first draw is a given seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.PCG64(0))
        self.seed = seed

    def integers(self, *_: object, **__: object) -> int:  # type: ignore[override]
        return self.seed


def main() -> Tables:
    with tempfile.TemporaryDirectory() as folder:
        return {"crowd": crowd(Path(folder))}
