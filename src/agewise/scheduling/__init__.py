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
from agewise.scheduling.one_draw import check_one_draw, one_draw_objective, solve_one_draw
from agewise.scheduling.one_draw_gain_check import check_gains_once
from agewise.scheduling.one_draw_gains import solve_gains_once
from agewise.scheduling.random import random_schedule
from agewise.scheduling.schedule import Band, Bands, Draw, Leaf, Schedule, Split

__all__ = [
    "LIMIT",
    "Band",
    "Bands",
    "Certificate",
    "Draw",
    "GainTables",
    "Leaf",
    "Schedule",
    "Split",
    "all_schedules",
    "best_gains",
    "check_gains",
    "check_gains_once",
    "check_one_draw",
    "check_schedule",
    "exhaustive",
    "gain_objective",
    "gap_of",
    "nothing_heard",
    "one_draw_objective",
    "random_schedule",
    "solve_gain_stream",
    "solve_gains",
    "solve_gains_once",
    "solve_one_draw",
    "solve_schedule",
    "solve_stream",
    "table_objective",
    "try_all_gains",
]
