"""Rounds and promises in words."""

from __future__ import annotations

from agewise.problem import Problem
from agewise.report.tables import counted


def rounds_in_words(problem: Problem) -> str:
    """How often, and for how long."""
    if problem.rounds == 1:
        return "once"
    often = f"every {counted(problem.every or 1, 'slot')}"
    return f"{often} for ever" if problem.rounds is None else f"{often}, {problem.rounds:,} rounds"


def promise_in_words(problem: Problem) -> str:
    """What the ε of a plan is about, and what it counts."""
    counts = "the release" if problem.rounds == 1 else "all releases"
    if problem.promise == "present":
        return f"each record's value at every publication, {counts} up to then counted"
    if problem.promise == "every_moment":
        return f"each record's value at any time, {counts} before and after it counted"
    last = counted(int(problem.promise), "slot")
    return (
        f"each record's values in the last {last} at every publication, {counts} up to then counted"
    )
