"""Check a schedule with gains from the tables alone. Shares no code with the search."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.errors import InvalidInput
from agewise.knowledge.estimate import GainTables
from agewise.scheduling.certificate import ENUMERABLE, ROUNDING, Certificate, verdict
from agewise.scheduling.schedule import Leaf, Schedule

BLOCK = 10_000

CANCELLED = 1e-13
"""What rounding leaves of terms that cancel, relative to them: where there is hardly any noise."""


def check_gains(found: Schedule, tables: GainTables, capacity: int | None = None) -> Certificate:
    """Recompute objective and bound of a schedule with gains, and compare them with its claims.

    The objective is that of the gains that the schedule gives, so gains that are not the best only
    make it larger. The bound is Σ_i min_t [base + 2λ·common − (cross + λ·heard)²/power + π_t]
    − ‖λ‖² − c·Σπ from its multipliers and prices; where there are none, all schedules are tried.
    """
    clients, slots = tables.base.shape
    columns, gains = claimed(found, tables)
    objective, size = _objective(tables, columns.tolist(), gains)
    problems, scale = doubts(found, columns, capacity, objective, size)
    if isinstance(found.proof, Leaf):
        bound, parts = _bound(found.proof, tables, capacity), 1
        how = "bound over slots and gains recomputed from 1 set of multipliers"
    elif found.proof is None and clients * math.log(slots) <= math.log(ENUMERABLE):
        bound, parts = _best_of_all(tables, capacity), slots**clients
        how = f"all {parts} schedules tried, each with its best gains"
    else:
        bound, parts, how = -math.inf, 0, ""
        problems.append("there is no proof to check")
    return verdict(found, objective, bound, parts, scale, problems, how)


def claimed(found: Schedule, tables: GainTables) -> tuple[NDArray[np.intp], Array]:
    """The columns and gains of a schedule, or a refusal of what is none."""
    clients, slots = tables.base.shape
    columns, gains = np.asarray(found.columns), found.gains
    if columns.shape != (clients,) or not ((columns >= 0) & (columns < slots)).all():
        raise InvalidInput(
            "columns", "no column for each client", f"{clients} from 0 to {slots - 1}"
        )
    if gains is None or np.shape(gains) != (clients, tables.cross.shape[2]):
        raise InvalidInput("gains", "missing or of another shape", "one per client and coordinate")
    return columns, np.asarray(gains, float)


def doubts(
    found: Schedule,
    columns: NDArray[np.intp],
    capacity: int | None,
    objective: float,
    size: float,
) -> tuple[list[str], float]:
    """What is wrong with a schedule before its bound is looked at, and the room for rounding."""
    problems = []
    if capacity is not None and np.unique(columns, return_counts=True)[1].max() > capacity:
        problems.append("more clients in a slot than the capacity allows")
    if not math.isfinite(objective):
        problems.append("a client is in a slot that is forbidden to it")
    scale = ROUNDING * max(abs(objective), abs(found.objective), 1e-300) + CANCELLED * size
    if not abs(objective - found.objective) <= scale:
        problems.append(f"the objective is {objective!r}, not {found.objective!r}")
    return problems, scale


def _objective(tables: GainTables, columns: list[int], gains: np.ndarray) -> tuple[float, float]:
    """The loss, term by term as it is defined, and the size of its terms."""
    taken = (np.arange(len(columns)), columns)
    heard_alone = gains * (gains * tables.power[taken] - 2 * tables.cross[taken])
    own = [*tables.base[taken].tolist(), *heard_alone.ravel().tolist()]
    left = (tables.common - gains[:, :, None] * tables.heard[taken]).sum(axis=0)
    return math.fsum(own) + float((left**2).sum()), math.fsum(map(abs, own))


def _bound(proof: Leaf, tables: GainTables, capacity: int | None) -> float:
    shape = tables.common.shape[1:]
    if len(proof.multipliers) != shape[0] * shape[1]:
        return -math.inf
    with np.errstate(over="ignore", invalid="ignore"):  # multipliers may be anything
        return _shown(proof, tables, capacity, np.array(proof.multipliers).reshape(shape))


def _shown(proof: Leaf, tables: GainTables, capacity: int | None, at: np.ndarray) -> float:
    """L at the multipliers and prices of a proof."""
    prices = np.zeros(tables.base.shape[1])
    if proof.prices is not None:
        if capacity is None or len(proof.prices) != len(prices) or min(proof.prices) < 0:
            return -math.inf
        prices = np.array(proof.prices)
    parts = []
    for start in range(0, len(tables.base), BLOCK):  # all at once might not fit in memory
        rows = slice(start, start + BLOCK)
        told = tables.cross[rows] + (tables.heard[rows] * at).sum(axis=3)
        cost = tables.base[rows] - (told * told / tables.power[rows]).sum(axis=2) + prices
        parts += (cost.min(axis=1) + 2 * (at * tables.common[rows]).sum(axis=(1, 2))).tolist()
    taken = 0.0 if capacity is None else capacity * float(prices.sum())
    return math.fsum(parts) - float((at * at).sum()) - taken


def _best_of_all(tables: GainTables, capacity: int | None) -> float:
    """The least objective of all schedules: the textbook gains, one schedule at a time."""
    clients, slots = tables.base.shape
    rows = np.arange(clients)
    total = tables.common.sum(axis=0)
    best = math.inf
    for columns in itertools.product(range(slots), repeat=clients):
        if capacity is not None and max(map(columns.count, columns)) > capacity:
            continue
        picked = list(columns)
        gains = np.empty((clients, tables.cross.shape[2]))
        for c in range(tables.cross.shape[2]):
            heard = tables.heard[rows, picked, c]
            told = tables.cross[rows, picked, c] + heard @ total[c]
            law = np.diag(tables.power[rows, picked, c]) + heard @ heard.T
            gains[:, c] = np.linalg.solve(law, told)
        best = min(best, _objective(tables, picked, gains)[0])
    return best
