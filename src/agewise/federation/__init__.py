"""Running a plan: one protocol, several transports."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agewise.federation.happened import RunIncomplete
    from agewise.federation.rehearsing import rehearse
    from agewise.federation.result import RunResult
    from agewise.federation.round_results import RoundsResult
    from agewise.federation.rounds import resume_rounds, run_rounds
    from agewise.federation.running import resume, run

__all__ = [
    "RoundsResult",
    "RunIncomplete",
    "RunResult",
    "rehearse",
    "resume",
    "resume_rounds",
    "run",
    "run_rounds",
]

_WHERE = {
    "RoundsResult": "round_results",
    "RunIncomplete": "happened",
    "RunResult": "result",
    "rehearse": "rehearsing",
    "resume": "running",
    "resume_rounds": "rounds",
    "run": "running",
    "run_rounds": "rounds",
}
"""The module of each name, loaded when it is asked for: a client needs no server."""


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"agewise.federation.{_WHERE[name]}"), name)
