"""Noise on long vectors, beside OpenDP called directly on the same vector in the same run."""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import agewise as aw
from agewise.mechanism import MECHANISMS
from agewise.mechanism.mechanism import opendp
from agewise.privacy.account import Event
from benchmarks.recording import Row, Tables

SIZES = (1_000, 10_000, 100_000, 1_000_000)
SENSITIVITY, SCALE, FAILURE = 0.01, 1.0, 1e-6


def direct(kind: str) -> Any:
    """OpenDP's measurement as one makes it without further choices."""
    dp = opendp()
    domain = dp.vector_domain(dp.atom_domain(T="f64", nan=False))
    if kind == "laplace":
        return dp.m.make_laplace(domain, dp.l1_distance(T="f64"), scale=SCALE)
    return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=SCALE)


def seconds(work: Callable[[], object], times: int) -> float:
    """The median of several goes."""
    took = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        took.append(time.perf_counter() - begun)
    return statistics.median(took)


def recorded(size: int) -> tuple[float, float]:
    """Seconds to write a release of so many floats to a ledger, and to open it again."""
    chain = aw.birth_death(0.3, 0.3, [0, 1, 2])
    payload = np.zeros(size).tobytes()
    event = Event(
        "run", "client", 1, 1, 0.1, 0.1, 1.0, 10.0, True, "exact", chain.fingerprint, "", payload
    )
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        with aw.Ledger(Path(folder) / "ledger") as ledger:
            ledger.release("run", lambda _: event, aw.Policy(), chain)
        written = time.perf_counter()
        with aw.Ledger(Path(folder) / "ledger"):
            return written - begun, time.perf_counter() - written


def main() -> Tables:
    rows: list[Row] = []
    for kind, mechanism in MECHANISMS.items():
        measurement = direct(kind)
        for size in SIZES:
            value = np.zeros(size)
            times = 1 if size > 10_000 else 5
            failure = FAILURE if kind == "gaussian" else 0.0

            def draw(mechanism: Any = mechanism, value: Any = value, delta: float = failure) -> Any:
                return mechanism.draw(value, sensitivity=SENSITIVITY, scale=SCALE, failure=delta)

            def alone(measurement: Any = measurement, value: Any = value) -> Any:
                return measurement(value.tolist())

            draw()
            ours, theirs = seconds(draw, times), seconds(alone, times)
            print(
                f"{kind:9} {size:9,} coordinates: {ours:8.3f} s, {size / ours:9,.0f} draws/s; "
                f"OpenDP directly {theirs:8.3f} s, {theirs / ours:.1f} times as long",
                flush=True,
            )
            rows.append(
                {
                    "noise": kind,
                    "coordinates": size,
                    "OpenDP directly, times ours": theirs / ours,
                    "ours (s)": ours,
                    "draws per second": size / ours,
                }
            )
    ledgers: list[Row] = []
    for size in SIZES[2:]:
        write, opening = recorded(size)
        ledgers.append({"floats": size, "written (s)": write, "opened and checked (s)": opening})
        print(
            f"ledger with a release of {size:,} floats ({8e-6 * size:g} MB): written in "
            f"{write:.3f} s, opened and checked in {opening:.3f} s"
        )
    return {"draws": rows, "ledgers": ledgers}
