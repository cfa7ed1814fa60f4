"""Audits: jax_privacy's auditor and ours on the same scores; the gallery of planted faults."""

import importlib.util
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

import agewise as aw
from agewise.auditing import BlackBox, bound_from_scores
from agewise.auditing.any_prior import worst_law
from agewise.auditing.losses import Sent, loss_about
from agewise.auditing.paths import EveryValue
from agewise.auditing.paths import Path as Way
from agewise.auditing.sampled import sample
from agewise.privacy import noise_scale
from benchmarks.correct_mechanisms import GRID
from benchmarks.recording import ROOT, Row, Tables

PEER = ROOT / ".venv" / "peers" / "audit"
"""The peer's own environment: its dependencies are not ours."""
STATES = np.array([20.0, 50.0, 100.0, 200.0])
CLIENTS = {1: (0.1, 0.2), 2: (0.2, 0.1), 3: (0.4, 0.4)}
SAMPLES, EPSILON, ERROR = 100, 1.0, 0.01
SCORES, SETS = 50_000, 8

ASK = """
import json, sys
import numpy as np
from jax_privacy import auditing
ways = {
    "bonferroni": auditing.Bonferroni(),
    "half": auditing.Split(threshold_estimation_frac=0.5, seed=1),
    "fifth": auditing.Split(threshold_estimation_frac=0.2, seed=1),
}
error = float(sys.argv[1])
found = []
for file in sys.argv[2:]:
    scores = np.load(file)
    auditor = auditing.CanaryScoreAuditor(scores["likely"], scores["rare"])
    bounds = {
        name: float(auditor.epsilon_clopper_pearson(significance=error, threshold_strategy=way))
        for name, way in ways.items()
    }
    found.append(bounds)
print(json.dumps(found))
"""


def peer_python() -> Path:
    """The interpreter of the peer's environment, made on the first run."""
    python = PEER / "bin" / "python"
    if not python.exists():
        venv.create(PEER, with_pip=True)
    ready = subprocess.run([python, "-c", "import jax_privacy"], check=False, capture_output=True)
    if ready.returncode:
        subprocess.run([python, "-m", "pip", "install", "-q", "jax-privacy"], check=True)
    return python


def peer_bounds(files: list[Path]) -> list[dict[str, float]]:
    """What jax_privacy's Clopper–Pearson auditor says of the same scores."""
    command = [str(peer_python()), "-c", ASK, str(ERROR), *map(str, files)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: list[dict[str, float]] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def mechanism(chain: aw.MarkovChain, age: int, prior: str) -> tuple[BlackBox, float]:
    """The Laplace mechanism of one of the paper's clients at ε = 1, and its exact ε.

    Tight for the stationary law, or sharp for any prior, and then audited with the worst one.
    """
    law = None
    if prior == "stationary":
        joint = chain.joint(1, 1 + age)
        scale = noise_scale(joint, STATES, SAMPLES, EPSILON, calibration="tight").scale
        sent = Sent(1, STATES[:, None] / SAMPLES, scale)
        exact = loss_about(Way(chain), [sent], 1 + age).reached
    else:
        spent = aw.Ageing(chain, age=age, method="any_prior").classical_epsilon(EPSILON)
        scale = 0.0 if np.isinf(spent) else float(np.ptp(STATES)) / SAMPLES / spent
        sent = Sent(1, STATES[:, None] / SAMPLES, scale)
        law = worst_law(EveryValue(chain), sent, 1 + age) if age else None
        exact = loss_about(Way(chain, law, 1), [sent], 1 + age).reached

    def release(records: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
        means = records[:, 0] / SAMPLES
        drawn = means + (rng.laplace(0.0, scale, len(means)) if scale else 0.0)
        return np.asarray(np.rint(drawn / GRID) * GRID)

    box = BlackBox(
        release,
        chain,
        EPSILON,
        about=1 + age,
        law=law,
        batched=True,
        noiseless=scale == 0,
        name=f"age {age}",
    )
    return box, exact


def beside_peer() -> list[Row]:
    """Both auditors on the same scores: mean bounds over several sets of them."""
    with tempfile.TemporaryDirectory() as folder:
        return _beside_peer(Path(folder))


def _beside_peer(folder: Path) -> list[Row]:
    rows: list[Row] = []
    files, ours = [], []
    cases = [(name, age) for name in CLIENTS for age in range(10)]
    for name, age in track(cases, "beside the peer"):
        chain = aw.birth_death(*CLIENTS[name], STATES)
        box, exact = mechanism(chain, age, "stationary")
        given = chain.joint(1, 1 + age).backward
        rows.append({"client": str(name), "age (slots)": age, "exact ε": exact})
        for number in range(SETS):
            rng = np.random.default_rng([name, age, number])
            likely, rare = (
                box.mechanism(STATES[rng.choice(4, SCORES, p=given[y])][:, None], rng)
                for y in (3, 0)
            )
            files.append(folder / f"{name}-{age}-{number}.npz")
            np.savez(files[-1], likely=likely, rare=rare)
            ours.append(bound_from_scores(likely, rare, ERROR))
        print(rows[-1], np.mean(ours[-SETS:]), flush=True)
    peer = peer_bounds(files)
    for place, row in enumerate(rows):
        part = slice(SETS * place, SETS * (place + 1))
        own = float(np.mean(ours[part]))
        means = {way: float(np.mean([one[way] for one in peer[part]])) for way in peer[0]}
        row["ours"] = own
        row["jax_privacy, all thresholds"] = means["bonferroni"]
        row["jax_privacy, half chooses"] = means["half"]
        row["jax_privacy, a fifth chooses"] = means["fifth"]
        row["ours / its default"] = own / means["bonferroni"]
        row["ours / its best way"] = own / max(means.values())
    return rows


def gallery() -> list[Row]:
    """Every planted fault, and the fewest draws of a ladder with which it was refuted."""
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "examples" / "audit_gallery.py")
    if spec is None or spec.loader is None:
        raise RuntimeError("the gallery is not there")
    faults = importlib.util.module_from_spec(spec)
    sys.modules["gallery"] = faults
    spec.loader.exec_module(faults)
    rows: list[Row] = []
    for name, box in track(list(faults.SAMPLED.items()), "gallery"):
        for draws in (1_000, 3_000, 10_000, 30_000, 100_000):
            found = sample(box, draws, ERROR, np.random.default_rng(draws))
            if found.refuted:
                break
        rows.append(
            {
                "fault": name,
                "claimed ε": found.claimed or 0.0,
                "at least": found.at_least or 0.0,
                "draws": draws if found.refuted else "not refuted",
            }
        )
    return rows


def main() -> Tables:
    tables = {"peer": beside_peer(), "gallery": gallery()}
    for name, rows in tables.items():
        print(f"\n{name}")
        for row in rows:
            print("  ", row)
    for way in ("default", "best way"):
        ratio = min(float(row[f"ours / its {way}"]) for row in tables["peer"])
        print(f"least ratio to the peer's {way}: {ratio:.4f}")
    return tables
