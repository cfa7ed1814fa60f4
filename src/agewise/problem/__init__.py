"""What is to be planned: clients, a target, a deadline and the choices, each declared once."""

from agewise.problem.client import LARGEST_SLOT, Client, likeness, nameless
from agewise.problem.problem import (
    FOREVER,
    OBJECTIVES,
    TRUSTS,
    Objective,
    Problem,
    Trust,
    as_problem,
)
from agewise.problem.target import Target

__all__ = [
    "FOREVER",
    "LARGEST_SLOT",
    "OBJECTIVES",
    "TRUSTS",
    "Client",
    "Objective",
    "Problem",
    "Target",
    "Trust",
    "as_problem",
    "likeness",
    "nameless",
]
