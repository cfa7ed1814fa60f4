"""What a schedule costs in accuracy."""

from agewise.loss.gap import Estimate, classical_fresh, loss_gap, nothing_collected
from agewise.loss.tables import CostTables, cost_tables

__all__ = [
    "CostTables",
    "Estimate",
    "classical_fresh",
    "cost_tables",
    "loss_gap",
    "nothing_collected",
]
