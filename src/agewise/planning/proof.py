"""Why no schedule is better than a plan's by more than it says: the proof as data, and its check.

The check is `check_schedule`, which shares no code with the searches.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.calibration import SlotTable
from agewise.checks import whole
from agewise.errors import InvalidInput
from agewise.loss.tables import CostTables, one_draw_of
from agewise.problem import Problem
from agewise.scheduling import (
    Certificate,
    Draw,
    Halved,
    Leaf,
    Schedule,
    Split,
)
from agewise.scheduling.certificate import CANCELLED
from agewise.scheduling.schedule import Proof as Shown

ROUNDING = 1e-9
"""Relative room for rounding, and for another machine's arithmetic."""


@dataclass(frozen=True)
class AllTried:
    """Every schedule was looked at: that is proof enough, and is checked by doing it again."""


Proof = AllTried | Shown


def proof_of(schedule: Schedule) -> Proof | None:
    """What a search can show for its lower bound; None where it claims none."""
    if schedule.lower_bound is None:
        return None
    return AllTried() if schedule.proof is None else schedule.proof


def open_costs(
    problem: Problem,
    tables: CostTables,
    slots: Sequence[int],
    first: int | None,
    collected: Collection[str],
) -> Array:
    """The table u as a plan made in slot `first` had it: slots that were past cost infinity.

    Clients that had `collected` by then are held in their slot of `slots`.
    """
    if first is None:
        return tables.u
    columns = np.arange(tables.u.shape[1])
    held = np.array([client.name in collected for client in problem.clients])
    past = np.where(held[:, None], columns != np.asarray(slots)[:, None] - 1, columns < first - 1)
    return np.where(past, np.inf, tables.u)


def stated_bound(schedule: Schedule, checked: Certificate) -> float:
    """The bound to state: what was claimed if that is what its check shows, else the latter."""
    proven = proven_bound(checked, schedule.objective)
    claimed = proven if schedule.lower_bound is None else schedule.lower_bound
    return claimed if same_bound(claimed, proven, schedule.objective) else proven


def draws_once(
    problem: Problem,
    slots: Sequence[SlotTable],
    promised: Mapping[str, float],
    clients: NDArray[np.intp] | slice = slice(None),
) -> Draw | None:
    """What the means of all `clients`, or some, need of one draw, where the server adds noise."""
    if not problem.server_adds_noise:
        return None
    scales = np.stack([table.scale for table in slots])
    if promised:
        for place, client in enumerate(problem.clients):
            scales[place] = np.maximum(scales[place], promised.get(client.name, 0.0))
    if not problem.uses_knowledge:
        scales = scales * problem.weights[clients, None]
    return Draw(scales, one_draw_of(problem))


def proven_bound(checked: Certificate, objective: float) -> float:
    """What a check shows, but not below 0: an expected square is never that."""
    return min(max(checked.lower_bound, 0.0), objective)


def same_bound(claimed: float, proven: float, objective: float, unknown: float = 0.0) -> bool:
    """Whether two bounds of one objective, what is left of `unknown`, differ by rounding only."""
    room = ROUNDING * max(abs(objective), 1e-300) + CANCELLED * unknown
    return 0 <= claimed <= objective and abs(claimed - proven) <= room


def proof_to_data(proof: Proof | None) -> dict[str, Any] | None:
    """The proof as plain data.

    `parts` lists the parts of the search space. A cut comes before the two parts it makes: a client
    and some of its columns, which it keeps to or avoids, or a scale of the draw of noise, which is
    not exceeded or is. The others have multipliers and prices.
    """
    if proof is None:
        return None
    if isinstance(proof, AllTried):
        return {"all_schedules_tried": True}
    parts: list[dict[str, Any]] = []
    stack: list[Shown] = [proof]
    while stack:  # a tree may be deeper than Python nests calls
        part = stack.pop()
        if isinstance(part, Split):
            parts.append({"client": part.client, "columns": sorted(part.columns)})
            stack += [part.outside, part.inside]
        elif isinstance(part, Halved):
            parts.append({"scale": part.scale})
            stack += [part.above, part.below]
        else:
            entry: dict[str, Any] = {"multipliers": list(part.multipliers)}
            if part.prices is not None:
                entry["prices"] = list(part.prices)
            parts.append(entry)
    return {"parts": parts}


def proof_from_data(data: Any, clients: int) -> Proof | None:
    """Read what `proof_to_data` wrote; refuse what is none of it."""
    if data is None:
        return None
    if data == {"all_schedules_tried": True}:
        return AllTried()
    parts = data.get("parts") if isinstance(data, dict) and set(data) == {"parts"} else None
    if not isinstance(parts, list) or not parts:
        raise _no_proof("neither parts nor all schedules tried")
    stack: list[Shown] = []
    for entry in reversed(parts):  # the parts of a cut come after it
        if not isinstance(entry, dict):
            raise _no_proof("a part that is not an object")
        if set(entry) in ({"client", "columns"}, {"scale"}):
            if len(stack) < 2:
                raise _no_proof("a cut without its two parts")
            one, two = stack.pop(), stack.pop()
            if "scale" in entry:
                (scale,) = _finite([entry["scale"]])
                stack.append(Halved(scale, one, two))
                continue
            client = whole("plan: proof: client", entry["client"], 0, clients - 1)
            if not isinstance(entry["columns"], list):
                raise _no_proof("a cut without a list of columns")
            columns = frozenset(
                whole("plan: proof: columns", column, 0) for column in entry["columns"]
            )
            stack.append(Split(client, columns, one, two))
        elif {"multipliers"} <= set(entry) <= {"multipliers", "prices"}:
            prices = _finite(entry["prices"]) if "prices" in entry else None
            stack.append(Leaf(_finite(entry["multipliers"]), prices))
        else:
            raise _no_proof(f"a part with {', '.join(map(str, entry)) or 'nothing'}")
    if len(stack) != 1:
        raise _no_proof(f"{len(stack)} parts that no cut joins")
    return stack[0]


def _finite(values: Any) -> tuple[float, ...]:
    if not isinstance(values, list) or not all(
        isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x) for x in values
    ):
        raise _no_proof("a part whose numbers are not finite")
    return tuple(float(x) for x in values)


def _no_proof(what: str) -> InvalidInput:
    return InvalidInput("plan: proof", what, "the proof as the search wrote it", REMEDY)


REMEDY = "Make the plan again."
