"""The Python and the command that make a picture of the page."""

from __future__ import annotations

import math
import shlex
from typing import Any

from agewise.explore.choices import Choices
from agewise.explore.model import GRID, Source
from agewise.knowledge import Level
from agewise.problem import FOREVER

SAVED = "explored.toml"
"""The scenario as the page gives it to save."""
PICTURES = ("loss", "ages", "timeline", "spent")

AGES_OPTIONS = ("epsilon", "mixing", "estimator", "calibration")
"""What `agewise ages` can be told."""


def needs_file(choices: Choices, source: Source) -> bool:
    """Whether options cannot say it all, so that the scenario has to be saved first."""
    changes = choices.changes(source.problem)
    removed = changes.get("level", math.nan) is None
    return source.argument is None or "clients" in changes or removed


def recipe(picture: str, choices: Choices, source: Source) -> tuple[str, str]:
    """Python and command for one picture, to be run where the scenario was saved, if need be."""
    return _python(picture, choices, source), _command(picture, choices, source)


def _python(picture: str, choices: Choices, source: Source) -> str:
    lines = ["import agewise as aw", ""]
    if needs_file(choices, source):
        lines.append(f'problem = aw.load_scenario("{SAVED}")')
    else:
        lines.append(f"problem = aw.load_scenario({source.argument!r})")
        changes = choices.changes(source.problem)
        if changes:
            said = ", ".join(f"{name}={_literal(value)}" for name, value in changes.items())
            lines.append(f"problem = problem.replace({said})")
    slots = choices.slots(source.problem)
    call = "aw.plan({})" if slots is None else f"aw.evaluate({{}}, {slots})"
    if picture == "loss":
        targets = ", ".join(f"{one:g}" for one in sorted({*GRID, choices.epsilon}))
        lines += [
            f"for epsilon in ({targets}):",
            f"    plan = {call.format('problem.replace(epsilon=epsilon)')}",
            "    print(epsilon, plan.gap, plan.nothing_collected, plan.classical_fresh)",
        ]
        return "\n".join(lines)
    if picture == "ages":
        lines += [
            "for client in problem.clients:",
            "    print(client.name, aw.slot_table(client, problem).delta[::-1])",
        ]
        return "\n".join(lines)
    lines.append(f"plan = {call.format('problem')}")
    if picture == "timeline":
        return "\n".join([*lines, "print(plan)", 'plan.plot("plan.png")'])
    if choices.rounds == 1:
        lines += [
            "print(max(one.aged_epsilon for one in plan.assignments))  # about the present",
            "print(max(plan.classical_epsilons))  # about every moment",
        ]
        return "\n".join(lines)
    lines[1:1] = ["from agewise.planning.promise import epsilon_after"]
    last = 100 if choices.rounds is None else choices.rounds
    lines += [
        f"for rounds in (1, {last}):",
        '    print(rounds, epsilon_after(plan, rounds, "present"),',
        '          epsilon_after(plan, rounds, "every_moment"))',
    ]
    return "\n".join(lines)


def _literal(value: Any) -> str:
    if isinstance(value, Level):
        return f"aw.Level({value.loading!r}, {value.correlation!r})"
    return repr(value)


def options(choices: Choices, source: Source) -> dict[str, str]:
    """What is chosen as options of a command, but for what only a file can say."""
    given = {}
    for name, value in choices.changes(source.problem).items():
        if isinstance(value, Level):
            given[name] = f"{value.loading!r},{value.correlation!r}"
        elif name == "rounds":
            given[name] = FOREVER if value is None else str(value)
        elif value is not None:
            given[name] = repr(value) if isinstance(value, float) else str(value)
    return given


def _command(picture: str, choices: Choices, source: Source) -> str:
    saved = needs_file(choices, source)
    scenario = SAVED if saved else shlex.quote(str(source.argument))
    given = {} if saved else options(choices, source)
    if picture == "ages":
        given = {name: value for name, value in given.items() if name in AGES_OPTIONS}
        return f"agewise ages {scenario}{_written(given)} --out out"
    if picture == "spent" and choices.rounds != 1 and choices.age is None:
        known = {"epsilon", "rounds", "every", "promise", "estimator", "level", "noise"}
        if {*given} <= known:
            return f"agewise rounds {scenario}{_written(given)}"
    if choices.age is not None:
        given["ages"] = ",".join([str(choices.age)] * len(source.problem.clients))
    if picture == "loss":
        targets = " ".join(f"{one:g}" for one in sorted({*GRID, choices.epsilon}))
        rest = _written({name: value for name, value in given.items() if name != "epsilon"})
        return (
            f"for epsilon in {targets}; do\n"
            f"  agewise plan {scenario}{rest} --epsilon $epsilon --json\ndone"
        )
    return f"agewise plan {scenario}{_written(given)} --out out"


def _written(given: dict[str, str]) -> str:
    return "".join(f" --{name.replace('_', '-')} {shlex.quote(v)}" for name, v in given.items())
