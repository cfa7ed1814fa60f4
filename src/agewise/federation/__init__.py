"""Running a plan: one protocol, several transports."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agewise.federation.checking import check_run
    from agewise.federation.checking_rounds import check_rounds
    from agewise.federation.engine import Reply, Transport
    from agewise.federation.happened import RunIncomplete
    from agewise.federation.messages import Order
    from agewise.federation.rehearsing import rehearse
    from agewise.federation.result import RunResult
    from agewise.federation.round_results import RoundsResult
    from agewise.federation.rounds import resume_rounds, run_rounds
    from agewise.federation.running import resume, run
    from agewise.federation.sources import DataSource, SimulatedRecords

__all__ = [
    "DataSource",
    "Order",
    "Reply",
    "RoundsResult",
    "RunIncomplete",
    "RunResult",
    "SimulatedRecords",
    "Transport",
    "check_rounds",
    "check_run",
    "rehearse",
    "resume",
    "resume_rounds",
    "run",
    "run_rounds",
]

_WHERE = {
    "DataSource": "sources",
    "Order": "messages",
    "Reply": "engine",
    "RoundsResult": "round_results",
    "RunIncomplete": "happened",
    "RunResult": "result",
    "SimulatedRecords": "sources",
    "Transport": "engine",
    "check_rounds": "checking_rounds",
    "check_run": "checking",
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
