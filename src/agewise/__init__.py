"""Agewise: when each client collects its data, and how much noise it adds.

Data change over time, so what was collected some time ago says less about its owner now: ageing
is itself privacy. Agewise weighs that against the accuracy that ageing costs.
"""

from agewise import scenarios
from agewise.errors import AgewiseError, InvalidInput
from agewise.mixing import delta, delta_table, joint_delta
from agewise.noise import SlotTable, slot_table
from agewise.privacy.ageing import aged_approximate, aged_epsilon, classical_epsilon
from agewise.privacy.calibration import Noise, aged_loss, noise_scale, sensitivity
from agewise.privacy.composition import Release, Total, composed_epsilon
from agewise.privacy.mechanisms import Noised, laplace, seeded_laplace
from agewise.problem import Client, Problem
from agewise.process import JointLaw, MarkovChain, PeriodicChain, Process, birth_death

__version__ = "0.1.0"

__all__ = [
    "AgewiseError",
    "Client",
    "InvalidInput",
    "JointLaw",
    "MarkovChain",
    "Noise",
    "Noised",
    "PeriodicChain",
    "Problem",
    "Process",
    "Release",
    "SlotTable",
    "Total",
    "aged_approximate",
    "aged_epsilon",
    "aged_loss",
    "birth_death",
    "classical_epsilon",
    "composed_epsilon",
    "delta",
    "delta_table",
    "joint_delta",
    "laplace",
    "noise_scale",
    "scenarios",
    "seeded_laplace",
    "sensitivity",
    "slot_table",
]
