"""Which client collects when: searches that see only tables of costs."""

from agewise.scheduling.certificate import Certificate, check_schedule
from agewise.scheduling.certified import solve_schedule, solve_stream
from agewise.scheduling.exhaustive import LIMIT, all_schedules, exhaustive, table_objective
from agewise.scheduling.random import random_schedule
from agewise.scheduling.schedule import Leaf, Schedule, Split

__all__ = [
    "LIMIT",
    "Certificate",
    "Leaf",
    "Schedule",
    "Split",
    "all_schedules",
    "check_schedule",
    "exhaustive",
    "random_schedule",
    "solve_schedule",
    "solve_stream",
    "table_objective",
]
