"""Plans: who collects when and adds how much noise, what that costs, and the proof of it."""

from agewise.planning.compare import Comparison, ComparisonRow, compare
from agewise.planning.evaluate import evaluate
from agewise.planning.plan import Assignment, Plan
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
    "evaluate",
    "plan",
    "replan",
    "take_turns",
]
