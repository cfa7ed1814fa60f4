"""How a run is carried out, whatever engine does it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args
from urllib.parse import quote

import numpy as np
from pydantic import ConfigDict, Field

from agewise.checks import (
    as_names,
    as_path,
    generator_or_fresh,
    instance,
    one_of,
    positive,
    refuse_unwritable,
    whole,
)
from agewise.errors import Faults, InvalidInput, quoted
from agewise.federation.happened import ON_MISSING, OnMissing
from agewise.planning import Plan
from agewise.privacy.account import Policy

Engine = Literal["local", "flower"]
Clock = Literal["virtual", "wall"]
CLOCKS: tuple[str, ...] = get_args(Clock)
ENGINES: tuple[str, ...] = get_args(Engine)
FOR_ONE: dict[Engine, tuple[str, ...]] = {
    "local": ("ledgers", "drop"),
    "flower": ("deployment", "superlink", "root_certificates"),
}
"""Choices that only one engine knows."""
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


def check_choices(
    clients: Iterable[str],
    engine: Engine,
    *,
    private: bool,
    drop: Iterable[str],
    sources: object,
    policy: Policy | None,
    superlink: str | None,
    on_missing: OnMissing,
    clock: Clock,
    slot_seconds: float,
    starts_at: int,
    **places: Path | str | None,
) -> tuple[str, ...]:
    """Refuse all that is wrong with the choices of a run; return the names in `drop`."""
    faults = Faults()
    gone: tuple[str, ...] = ()
    with faults.noted():
        one_of("engine", engine, ENGINES)
    with faults.noted():
        one_of("on_missing", on_missing, ON_MISSING)
    with faults.noted():
        one_of("clock", clock, CLOCKS)
    with faults.noted():
        _slot_length(slot_seconds)
    with faults.noted():
        whole("starts_at", starts_at, 0)
    with faults.noted():
        gone = as_names("drop", drop)
        known = sorted(clients)
        for name in gone:
            if name not in known:
                raise InvalidInput("drop", repr(name), "one of " + ", ".join(known))
    if policy is not None:
        with faults.noted():
            instance("policy", policy, Policy, "a Policy, or None for each client's own")
    if superlink is not None:
        with faults.noted():
            instance("superlink", superlink, str, "HOST:PORT")
    if sources is not None and not isinstance(sources, Mapping):
        with faults.noted():
            _check_file(sources)
    for name, place in places.items():
        if place is not None:
            with faults.noted():
                path = as_path(name, place)
                if name == "ledgers" and not path.is_file():
                    refuse_unwritable(name, path.parent if path.suffix == ".ledger" else path)
    if engine == "local" and sources is not None and private and places["ledgers"] is None:
        with faults.noted():
            raise InvalidInput(
                "ledgers",
                "missing",
                "a folder that keeps the clients' accounts from run to run",
                "Records that are not simulated need one: --ledgers FOLDER.",
            )
    if engine in ENGINES:
        with faults.noted():
            _refuse_other(engine, {**places, "drop": gone or None, "superlink": superlink})
    faults.refuse()
    return gone


def _check_file(sources: object) -> None:
    if not isinstance(sources, str | Path):
        allowed = "a file of readings, or a DataSource by name of client"
        raise InvalidInput("sources", quoted(sources), allowed)
    if not as_path("sources", sources).is_file():
        raise InvalidInput("readings", str(sources), "an existing file")


def _refuse_other(engine: Engine, given: Mapping[str, object]) -> None:
    """Refuse choices that only the other engine knows."""
    other: Engine = "local" if engine == "flower" else "flower"
    for name in FOR_ONE[other]:
        if given.get(name) is not None:
            allowed = f"none with engine {engine!r}"
            raise InvalidInput(name, given[name], allowed, f"Use {other!r}.")


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
    length = _slot_length(slot_seconds)
    return Settings(
        run=f"{quote(plan.problem.name, safe='')[:60] or 'run'}-{secrets.token_hex(8)}",
        seed=int(generator_or_fresh(rng).integers(2**63)),
        stand_in=rng is not None,
        clock=clock,
        slot_seconds=length if clock == "wall" else 0.0,
        started=time.time(),
        on_missing=on_missing,
    )


def _slot_length(seconds: float) -> float:
    if not positive("slot_seconds", seconds) <= LONGEST_SLOT:
        raise InvalidInput("slot_seconds", seconds, f"up to {LONGEST_SLOT:g}")
    return seconds
