"""What a bound on continual release costs, by the number of joint states.

Of two chains: habits (level classes with two states each; a release of the state in every slot)
and steps (a birth-death chain, a release of the mean every fourth slot).
"""

import time
from typing import Any

import numpy as np

import agewise as aw
from agewise.privacy import estimated_seconds, reached_epsilon
from benchmarks.recording import Row, Tables

SIZES = {"habits": (6, 8, 12, 24, 36, 48), "steps": (4, 6, 7, 8, 12, 16)}


def habits(size: int) -> dict[str, Any]:
    """Classes that move by one at most, in each of which a record is high with its own chance."""
    classes = size // 2
    moves = aw.birth_death(0.15, 0.15, range(classes)).transition
    high = np.linspace(0.1, 0.9, classes)
    joint = (moves[:, :, None] * np.stack([1 - high, high], axis=1)).reshape(classes, size)
    rows = np.repeat(joint, 2, axis=0)
    chain = aw.MarkovChain(rows / rows.sum(axis=1, keepdims=True), range(size))
    state = np.tile([0.0, 1.0], classes)[:, None]
    return {"process": chain, "every": 1, "classical_epsilon": 0.5, "release": state}


def steps(size: int) -> dict[str, Any]:
    chain = aw.birth_death(0.2, 0.25, range(size))
    return {"process": chain, "every": 4, "classical_epsilon": 0.1}


def measured(kind: str, size: int) -> Row:
    given = {"habits": habits, "steps": steps}[kind](size)
    start = time.perf_counter()
    lower = reached_epsilon(**given)
    reached = time.perf_counter() - start
    start, busy = time.perf_counter(), time.process_time()
    bound = aw.continual_epsilon(**given)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    return {
        "joint states": size,
        "of": kind,
        "ε, at most": bound,
        "over the lower bound": f"{bound / lower - 1:.0e}",
        "processor seconds": busy,
        "estimated": estimated_seconds(**given),
        "seconds": seconds,
        "lower bound (ms)": 1000 * reached,
    }


def main() -> Tables:
    rows = []
    for kind, sizes in SIZES.items():
        for size in sizes:
            rows.append(measured(kind, size))
            print(rows[-1], flush=True)
    return {"costs": rows}
