"""How a run is carried out, whatever engine does it."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args
from urllib.parse import quote

import numpy as np
from pydantic import ConfigDict, Field

from agewise.checks import one_of, positive
from agewise.errors import InvalidInput
from agewise.federation.happened import ON_MISSING, OnMissing
from agewise.loss.simulation import checked_generator
from agewise.planning import Plan
from agewise.privacy.account import Policy

Engine = Literal["local", "flower"]
Clock = Literal["virtual", "wall"]
CLOCKS: tuple[str, ...] = get_args(Clock)
ENGINES: tuple[str, ...] = get_args(Engine)
LONGEST_SLOT = 1e7
"""Seconds of a slot by the wall clock, at most: four months."""


@dataclass(frozen=True)
class Settings:
    """How a run is carried out: everything that a resumed run must know again."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)
    run: str
    seed: Annotated[int, Field(ge=0)]
    stand_in: bool
    clock: Clock = "virtual"
    slot_seconds: Annotated[float, Field(ge=0, le=1e7)] = 0.0
    started: Annotated[float, Field(ge=0, le=1e11)] = 0.0
    on_missing: OnMissing = "fail"
    starts_at: Annotated[int, Field(ge=0)] = 0
    policy: Policy | None = None
    readings: str | None = None
    own_sources: bool = False
    ledgers: str | None = None
    drop: tuple[str, ...] = ()
    engine: Engine = "local"
    deployment: str | None = None
    wait: float = 0.0
    slot_timeout: float = 0.0
    at_once: int = 100
    submitted: bool = False


def refuse_other_engine(engine: Engine, local: dict[str, Any], flower: dict[str, Any]) -> None:
    """Refuse choices that only the other engine knows, by their names; None: not given."""
    one_of("engine", engine, ENGINES)
    other: Engine = "local" if engine == "flower" else "flower"
    for name, value in (local if engine == "flower" else flower).items():
        if value is not None:
            raise InvalidInput(name, str(value), f"none with engine {engine!r}", f"Use {other!r}.")


def make_settings(
    plan: Plan,
    rng: np.random.Generator | None,
    on_missing: OnMissing,
    clock: Clock,
    slot_seconds: float,
) -> Settings:
    """Check what all engines are told, and name the run."""
    one_of("on_missing", on_missing, ON_MISSING)
    one_of("clock", clock, CLOCKS)
    return Settings(
        run=f"{quote(plan.problem.name, safe='')[:60] or 'run'}-{secrets.token_hex(8)}",
        seed=int(checked_generator(rng).integers(2**63)),
        stand_in=rng is not None,
        clock=clock,
        slot_seconds=_slot_length(slot_seconds) if clock == "wall" else 0.0,
        started=time.time(),
        on_missing=on_missing,
    )


def _slot_length(seconds: float) -> float:
    if not positive("slot_seconds", seconds) <= LONGEST_SLOT:
        raise InvalidInput("slot_seconds", seconds, f"up to {LONGEST_SLOT:g}")
    return seconds
