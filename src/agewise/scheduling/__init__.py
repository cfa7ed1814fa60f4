"""Which client collects when: searches that see only tables of costs."""

from agewise.scheduling.exhaustive import LIMIT, all_schedules, exhaustive, table_objective
from agewise.scheduling.random import random_schedule
from agewise.scheduling.schedule import Schedule

__all__ = [
    "LIMIT",
    "Schedule",
    "all_schedules",
    "exhaustive",
    "random_schedule",
    "table_objective",
]
