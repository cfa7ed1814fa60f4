"""From ageing to noise: what a mechanism guarantees, what several add up to, how much to add."""

import warnings
from importlib import import_module
from typing import Any

from agewise.mechanism import Gaussian, Laplace, Noised, laplace, seeded_laplace
from agewise.mixing import delta_table, joint_delta
from agewise.privacy.account import BudgetExceeded, Event, Policy
from agewise.privacy.ageing import Ageing, aged_approximate, aged_epsilon, classical_epsilon
from agewise.privacy.calibration import Noise, aged_loss, noise_scale, sensitivity
from agewise.privacy.composition import Release, Total, composed_epsilon
from agewise.privacy.continual import (
    continual_epsilon,
    estimated_seconds,
    per_release_epsilon,
    reached_epsilon,
    rule_epsilon,
)
from agewise.privacy.guarantee import Guarantee
from agewise.privacy.ledger import Ledger, LedgerDamaged
from agewise.privacy.witness import LedgerForked, LedgerReplaced, LedgerRolledBack

__all__ = [
    "Ageing",
    "BudgetExceeded",
    "Event",
    "Gaussian",
    "Guarantee",
    "Laplace",
    "Ledger",
    "LedgerDamaged",
    "LedgerForked",
    "LedgerReplaced",
    "LedgerRolledBack",
    "Noise",
    "Noised",
    "Policy",
    "Release",
    "Total",
    "aged_approximate",
    "aged_epsilon",
    "aged_loss",
    "classical_epsilon",
    "composed_epsilon",
    "continual_epsilon",
    "delta_table",
    "estimated_seconds",
    "joint_delta",
    "laplace",
    "noise_scale",
    "per_release_epsilon",
    "reached_epsilon",
    "rule_epsilon",
    "seeded_laplace",
    "sensitivity",
]

_RENAMED = {
    "affordable_epsilon": "per_release_epsilon",
    "steady_epsilon": "continual_epsilon",
}
"""Old names, and what they are called now."""


def __getattr__(name: str) -> Any:
    if name in ("lumped_epsilon", "lumped_reached"):
        return getattr(import_module("agewise.privacy.lumped"), name)
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    told = f"{name} is now {_RENAMED[name]}"
    warnings.warn(told, DeprecationWarning, stacklevel=2)
    return globals()[_RENAMED[name]]
