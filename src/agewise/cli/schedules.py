"""Schedules as options say them."""

from __future__ import annotations

from agewise.errors import InvalidInput
from agewise.problem import Problem


def slots_of_ages(problem: Problem, ages: str) -> list[int]:
    """The slot of each client, from ages such as 0,9,9, or one age for all."""
    last, count = problem.aggregate_at, len(problem.clients)
    slots = [last - int(age) if age.strip().isdecimal() else 0 for age in ages.split(",")]
    slots = slots * count if len(slots) == 1 else slots
    if min(slots) < 1 or len(slots) != count:
        allowed = f"{count} ages from 0 to {last - 1}, with commas between them, or one for all"
        raise InvalidInput("--ages", repr(ages), allowed)
    return slots


def slots_of_clients(pairs: list[str] | None) -> dict[str, int]:
    """The slot that each client has collected in, from NAME=SLOT."""
    held = {}
    for pair in pairs or []:
        name, _, slot = pair.rpartition("=")
        if not name or not slot.strip().isdigit():
            raise InvalidInput("--collected", repr(pair), "NAME=SLOT")
        held[name] = int(slot)
    return held
