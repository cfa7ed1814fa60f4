"""From readings to a scenario whose privacy claim is true."""

from importlib import import_module
from typing import Any

__all__ = [
    "Assumptions",
    "Attack",
    "Fit",
    "Replayed",
    "RoundsBacktest",
    "RoundsFit",
    "States",
    "backtest_rounds",
    "check_assumptions",
    "compare_halves",
    "delta_limit",
    "fit_rounds",
    "given_states",
    "least_error_states",
    "pool_replays",
    "quantile_states",
    "record_fit",
    "replay_adversary",
    "replay_plans",
    "weigh_adversary",
]

_MODULES = {
    "Assumptions": "fitting.assumptions",
    "Attack": "fitting.adversary",
    "Fit": "fitting.report",
    "Replayed": "fitting.backtest",
    "RoundsBacktest": "fitting.rounds",
    "RoundsFit": "fitting.rounds",
    "States": "fitting.states",
    "backtest_rounds": "fitting.rounds",
    "check_assumptions": "fitting.assumptions",
    "compare_halves": "fitting.halves",
    "delta_limit": "process",
    "fit_rounds": "fitting.rounds",
    "given_states": "fitting.states",
    "least_error_states": "fitting.states",
    "pool_replays": "fitting.backtest",
    "quantile_states": "fitting.states",
    "record_fit": "fitting.record",
    "replay_adversary": "fitting.adversary",
    "replay_plans": "fitting.backtest",
    "weigh_adversary": "fitting.adversary",
}
"""The module of each name: imported when it is asked for, since polars takes long to import."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"agewise.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
