"""A problem in a line, and as facts."""

from __future__ import annotations

import dataclasses
from typing import Any

from agewise.report.tables import MOST_SHOWN, counted, left_out, shorten

SAID_OTHERWISE = ("clients", "name", "unit", "origin", "aggregate_at", "epsilon")


def problem_line(problem: Any) -> str:
    """Name, size, deadline, target and the choices."""
    chosen = ", ".join(f"{name}={value}" for name, value in _choices(problem) if value != "none")
    return (
        f"Problem({shorten(problem.name, 40)!r}, {counted(len(problem.clients), 'client')}, "
        f"aggregate_at={problem.aggregate_at}, epsilon={problem.epsilon:g}, "
        f"{shorten(chosen, 90)})"
    )


def problem_facts(problem: Any) -> list[tuple[str, str]]:
    """Everything that a problem is made of, the clients by name."""
    names = [client.name for client in problem.clients]
    shown = ", ".join(names[:MOST_SHOWN])
    facts = [
        ("problem", problem.name),
        ("clients", f"{len(names):,}: {shown} {left_out(len(names))}".rstrip()),
        ("aggregate in slot", str(problem.aggregate_at)),
        ("target ε", f"{problem.epsilon:g}"),
        *_choices(problem),
    ]
    if problem.unit:
        facts.append(("unit", problem.unit))
    if problem.origin:
        facts.append(("laws", problem.origin))
    return facts


def _choices(problem: Any) -> list[tuple[str, str]]:
    return [
        (field.name, shorten(_shown(value), 60))
        for field in dataclasses.fields(problem)
        if field.name not in SAID_OTHERWISE
        for given in [getattr(problem, field.name)]
        for value in [given.kind if field.name == "learner" else given]
    ]


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "none" if value is None else str(value)
