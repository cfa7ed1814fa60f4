"""Compute the built-in scenario london_fitted anew from the readings.

    python examples/london_fitted/fit.py LONDON_FOLDER > src/agewise/london_fitted.json

LONDON_FOLDER holds lcl_2013_halfhourly.parquet and households.csv. Only figures are written.
"""

import json
import sys
from pathlib import Path

import polars as pl

import agewise as aw

STATES, FIRST, SLOTS, CONFIDENCE = [60, 250], 13, 24, 0.95
"""Two levels of use in Wh; slots from 06:30 to 18:00, half-hourly."""


def main(folder):
    table = pl.read_csv(folder / "households.csv").filter(pl.col("tariff") == "Std")
    found = aw.read_readings(
        folder / "lcl_2013_halfhourly.parquet", entities=table["household"].to_list()
    )
    groups = {
        name.lower(): table.filter(pl.col("acorn_grouped") == name)["household"].to_list()
        for name in ("Adversity", "Comfortable", "Affluent")
    }
    made = aw.fit(
        found,
        aw.fitting.given_states(STATES, found.values),
        epsilon=0.5,
        first_slot=FIRST,
        slots=SLOTS,
        ages=range(1, SLOTS),
        groups=groups,
        adversary="population",
        confidence=CONFIDENCE,
        unit="Wh",
    )
    return {
        "states": STATES,
        "confidence": CONFIDENCE,
        "origin": made.problem.origin,
        "assumes": made.problem.clients[0].process.assumes,
        "day": found.day,
        "clients": [
            {
                "name": c.name,
                "samples": c.samples,
                "joints": c.process.joints.round(9).tolist(),
                "limits": [min(1.0, round(x + 1e-6, 6)) for x in c.process.limits.tolist()],
            }
            for c in made.problem.clients
        ],
    }


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(json.dumps(main(Path(sys.argv[1])), indent=1))
