"""Audits: the bound from a million draws over the exact ε, for the paper's clients."""

import numpy as np
from rich.progress import track

import agewise as aw
from agewise.auditing.sampled import sample
from benchmarks.audit import CLIENTS, ERROR, STATES, mechanism
from benchmarks.recording import Row, Tables

DRAWS = 1_000_000


def sharpness() -> list[Row]:
    """The sampled bound over the exact ε, for either prior."""
    rows: list[Row] = []
    cases = [(name, age) for name in CLIENTS for age in range(10)]
    for name, age in track(cases, "sharpness"):
        row: Row = {"client": str(name), "age (slots)": age}
        for prior in ("any prior", "stationary"):
            chain = aw.birth_death(*CLIENTS[name], STATES)
            box, exact = mechanism(chain, age, prior)
            found = sample(box, DRAWS, ERROR, np.random.default_rng([name, age]))
            row[f"{prior}: exact ε"] = exact
            row[f"sampled / exact, {prior}"] = (found.at_least or 0.0) / exact
        rows.append(row)
        print(row, flush=True)
    return rows


def main() -> Tables:
    rows = sharpness()
    shares = [float(value) for row in rows for name, value in row.items() if "/" in name]
    print(f"least share of the exact ε: {min(shares):.3f}")
    return {"sharpness": rows}
