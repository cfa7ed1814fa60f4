"""Cost tables of a million chains, beside one multiply-add over all kernels [clients, slots, 4, 4].

The multiply-add goes over a twentieth of them twenty times; both take turns, and the best counts.
"""

from typing import Any

import numpy as np

from agewise.loss.batch import chain_tables
from benchmarks.recording import Row, Tables
from benchmarks.scheduling import STATES, population, timed


def main() -> Tables:
    clients, slots, parts = 1_000_000, 48, 20
    kernels = np.random.default_rng(4).random((clients // parts, slots, 4, 4))
    out = np.empty_like(kernels)

    def multiply_add() -> None:
        for _ in range(parts):
            np.multiply(kernels, 0.5, out=out)
            np.add(out, 0.25, out=out)

    chains, laws, samples = population(clients, np.random.default_rng(1))
    rows: list[Row] = []
    for calibration in ("formula", "sharp"):

        def build(calibration: Any = calibration) -> None:
            chain_tables(chains, STATES, samples, slots, 0.1, laws=laws, calibration=calibration)

        pairs = [(timed(multiply_add)[1], timed(build)[1]) for _ in range(3)]
        base, seconds = (min(times) for times in zip(*pairs, strict=True))
        print(
            f"tables of {clients:,} four-state clients x {slots} slots ({calibration}): "
            f"{seconds:.1f} s = {seconds / base:.1f} x one multiply-add over their kernels"
        )
        rows.append(
            {
                "calibration": calibration,
                "clients": clients,
                "slots": slots,
                "multiply-adds over all kernels": seconds / base,
                "seconds": seconds,
            }
        )
    return {"tables": rows}
