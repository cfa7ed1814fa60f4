"""What a target asks of clients in each slot: noise, and what that spends and achieves."""

from agewise.calibration.own import (
    Terms,
    adversary,
    outside_terms,
    slot_table,
    terms,
    terms_of,
)
from agewise.calibration.rules import Cell, classical_failures
from agewise.calibration.tables import Calibration, SlotTable, calibrate

__all__ = [
    "Calibration",
    "Cell",
    "SlotTable",
    "Terms",
    "adversary",
    "calibrate",
    "classical_failures",
    "outside_terms",
    "slot_table",
    "terms",
    "terms_of",
]
