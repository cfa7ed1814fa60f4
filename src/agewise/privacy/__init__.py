"""From ageing to noise: what a mechanism guarantees, what several add up to, how much to add."""

from agewise.mechanism import Noised, laplace, seeded_laplace
from agewise.mixing import delta_table, joint_delta
from agewise.privacy.account import BudgetExceeded, Event, Policy
from agewise.privacy.ageing import aged_approximate, aged_epsilon, classical_epsilon
from agewise.privacy.calibration import Noise, aged_loss, noise_scale, sensitivity
from agewise.privacy.composition import Release, Total, composed_epsilon
from agewise.privacy.ledger import Ledger, LedgerDamaged
from agewise.privacy.lumped import lumped_epsilon
from agewise.privacy.sharp import Ageing
from agewise.privacy.steady import affordable_epsilon, rule_epsilon, steady_epsilon

__all__ = [
    "Ageing",
    "BudgetExceeded",
    "Event",
    "Ledger",
    "LedgerDamaged",
    "Noise",
    "Noised",
    "Policy",
    "Release",
    "Total",
    "affordable_epsilon",
    "aged_approximate",
    "aged_epsilon",
    "aged_loss",
    "classical_epsilon",
    "composed_epsilon",
    "delta_table",
    "joint_delta",
    "laplace",
    "lumped_epsilon",
    "noise_scale",
    "rule_epsilon",
    "seeded_laplace",
    "sensitivity",
    "steady_epsilon",
]
