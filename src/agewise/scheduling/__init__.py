"""Which client collects when: searches that see only tables of costs."""

from agewise.knowledge.estimate import (
    GainTables,
    best_gains,
    gain_objective,
    gap_of,
    nothing_heard,
)
from agewise.scheduling.certificate import Certificate, check_gains, check_schedule
from agewise.scheduling.certified import (
    solve_gains,
    solve_schedule,
    solve_stream,
    try_all_gains,
)
from agewise.scheduling.exhaustive import LIMIT, all_schedules, exhaustive, table_objective
from agewise.scheduling.random import matched, random_schedule
from agewise.scheduling.schedule import Draw, Halved, Leaf, Schedule, Split

__all__ = [
    "LIMIT",
    "Certificate",
    "Draw",
    "GainTables",
    "Halved",
    "Leaf",
    "Schedule",
    "Split",
    "all_schedules",
    "best_gains",
    "check_gains",
    "check_schedule",
    "exhaustive",
    "gain_objective",
    "gap_of",
    "matched",
    "nothing_heard",
    "random_schedule",
    "solve_gains",
    "solve_schedule",
    "solve_stream",
    "table_objective",
    "try_all_gains",
]
