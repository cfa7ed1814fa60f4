"""Plans: who collects when and adds how much noise, what that costs, and the proof of it."""

from agewise.planning.compare import Comparison, ComparisonRow, compare
from agewise.planning.plan import Assignment, Plan
from agewise.planning.price import price
from agewise.planning.search import SEARCH_METHODS, SearchMethod, plan, replan
from agewise.planning.turns import take_turns

__all__ = [
    "SEARCH_METHODS",
    "Assignment",
    "Comparison",
    "ComparisonRow",
    "Plan",
    "SearchMethod",
    "compare",
    "plan",
    "price",
    "replan",
    "take_turns",
]
