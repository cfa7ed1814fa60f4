"""What a schedule costs in accuracy: exactly, bounded from above, or simulated."""

from agewise.loss.bound import Bound, loss_bound, schedule_bounds
from agewise.loss.gap import loss_gap
from agewise.loss.tables import CostTables, cost_tables

__all__ = ["Bound", "CostTables", "cost_tables", "loss_bound", "loss_gap", "schedule_bounds"]
