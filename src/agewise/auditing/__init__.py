"""Audits: whether what is claimed of a mechanism, a plan or a run is true.

Three tiers, and each finding says which one it is of. *exact*: the true loss along finite chains.
*replay*: a run's steps done again from its folder and ledgers. *sampled*: any function as a black
box, run many times, with a lower confidence bound on its ε.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agewise.auditing.auditor import audit
    from agewise.auditing.black_box import BlackBox
    from agewise.auditing.findings import Audit, Finding
    from agewise.auditing.sampled import bound_from_scores
    from agewise.auditing.subjects import resolve

__all__ = [
    "Audit",
    "BlackBox",
    "Finding",
    "audit",
    "bound_from_scores",
    "resolve",
]

_MODULES = {
    "Audit": "findings",
    "BlackBox": "black_box",
    "Finding": "findings",
    "audit": "auditor",
    "bound_from_scores": "sampled",
    "resolve": "subjects",
}
"""The module of each name: imported when it is asked for, since SciPy takes long to import."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"agewise.auditing.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
