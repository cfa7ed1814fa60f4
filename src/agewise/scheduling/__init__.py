"""Which client collects when: searches that see only tables of costs."""

from agewise.knowledge.estimate import (
    GainTables,
    best_gains,
    gain_objective,
    gap_of,
    nothing_heard,
)
from agewise.scheduling.certificate import Certificate, check_schedule
from agewise.scheduling.certified import solve_schedule, solve_stream
from agewise.scheduling.exhaustive import LIMIT, all_schedules, exhaustive, table_objective
from agewise.scheduling.gain_certificate import check_gains
from agewise.scheduling.gain_search import solve_gain_stream, solve_gains, try_all_gains
from agewise.scheduling.random import random_schedule
from agewise.scheduling.schedule import Leaf, Schedule, Split

__all__ = [
    "LIMIT",
    "Certificate",
    "GainTables",
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
    "nothing_heard",
    "random_schedule",
    "solve_gain_stream",
    "solve_gains",
    "solve_schedule",
    "solve_stream",
    "table_objective",
    "try_all_gains",
]
