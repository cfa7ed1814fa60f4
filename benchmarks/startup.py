"""How long it takes until something is there: imports and short commands, beside importing NumPy."""

import subprocess
import sys
import time
from pathlib import Path

from benchmarks.recording import Row, Tables

TURNS = 7
AGEWISE = str(Path(sys.executable).with_name("agewise"))
WAYS = {
    "python -c 'import numpy'": [sys.executable, "-c", "import numpy"],
    "python -c 'import agewise'": [sys.executable, "-c", "import agewise"],
    "agewise --version": [AGEWISE, "--version"],
    "agewise --help": [AGEWISE, "--help"],
    "agewise ages": [AGEWISE, "ages"],
    "agewise plan": [AGEWISE, "plan"],
    "agewise run --help": [AGEWISE, "run", "--help"],
}


def seconds(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, capture_output=True, check=True)
    return time.perf_counter() - begun


def main() -> Tables:
    turns = [{name: seconds(command) for name, command in WAYS.items()} for _ in range(TURNS)]
    best = {name: min(turn[name] for turn in turns) for name in WAYS}
    numpy = best["python -c 'import numpy'"]
    rows: list[Row] = [
        {"": f"`{name}`", "times importing NumPy": took / numpy, "seconds": took}
        for name, took in best.items()
    ]
    for row in rows:
        print(row)
    return {"startup": rows}
