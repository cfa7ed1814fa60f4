"""Audits of ten thousand correct mechanisms, with claims as tight as can be: who is accused?"""

import numpy as np
from rich.progress import track

from benchmarks.correct_mechanisms import accused, random_case
from benchmarks.recording import Row, Tables

CORRECT, FEW, LOOSE = 10_000, 2_000, 0.05


def false_alarms() -> list[Row]:
    """Correct mechanisms with the tightest claims they can make, and how many were accused."""
    errors = [LOOSE, LOOSE / CORRECT]
    tally: dict[str, list[int]] = {}
    for number in track(range(CORRECT), "correct mechanisms"):
        rng = np.random.default_rng([20, number])
        case = random_case(rng)
        exactly, found = accused(case, FEW, errors, rng)
        counts = tally.setdefault(case.kind, [0, 0, 0, 0])
        for place, one in enumerate([True, exactly, *found]):
            counts[place] += one
    return [
        {
            "mechanism": kind,
            "audited": counts[0],
            "accused exactly": counts[1],
            f"accused by {FEW:,} draws at error {LOOSE:g} each": counts[2],
            f"at error {LOOSE:g} for all {CORRECT:,} together": counts[3],
        }
        for kind, counts in sorted(tally.items())
    ]


def main() -> Tables:
    rows = false_alarms()
    for row in rows:
        print(row)
    return {"false_alarms": rows}
