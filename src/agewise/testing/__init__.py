"""What tests of plans and runs need: stand-ins, kills, damage, and contracts for your own parts.

A contract is a class of tests that says what every implementation of a seam must do. Inherit it
under a name that pytest looks for, say how yours is made, and its tests are yours.
"""

from importlib import import_module
from typing import Any

__all__ = [
    "STEPS",
    "Clock",
    "FlowerGrid",
    "FlowerInProcess",
    "FlowerNode",
    "Kill",
    "Killed",
    "LedgerMode",
    "LedgerStoreContract",
    "RunContract",
    "RunMode",
    "TransportContract",
    "damaged",
    "failing",
    "identified",
    "killed_at",
    "leaves",
    "releases",
]

_MODULES = {
    "accounts": "releases",
    "clock": "Clock",
    "flower": "FlowerGrid FlowerInProcess FlowerNode failing identified",
    "killing": "STEPS Kill Killed killed_at",
    "damage": "damaged leaves",
    "ledger_contract": "LedgerMode LedgerStoreContract",
    "run_contract": "RunContract RunMode",
    "transport_contract": "TransportContract",
}
"""The names of each module, which is loaded when one is asked for: Flower is not always there."""

_WHERE = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"agewise.testing.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return __all__
