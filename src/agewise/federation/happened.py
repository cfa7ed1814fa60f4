"""What happens in a run, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from agewise.errors import AgewiseError
from agewise.federation.statement import Statement
from agewise.planning import Plan

OnMissing = Literal["fail", "renormalise", "replan"]
ON_MISSING: tuple[str, ...] = get_args(OnMissing)


class RunIncomplete(AgewiseError):
    """A run that ended without a model. What was released stays in the clients' ledgers."""

    exit_code = 4


class Step(NamedTuple):
    """Something that happened: in which slot, to whom, what, and why."""

    slot: int
    client: str
    what: str
    why: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a finished run published, and about whom.

    The model estimates the mean of all clients' records by these `weights`; `collected` is the slot
    in which each collects.
    """

    model: float | list[float]
    aggregate: tuple[float, ...]
    plan: Plan
    participants: tuple[str, ...]
    weights: dict[str, float]
    collected: dict[str, int]
    statement: Statement
