"""Noise: what it costs, what it guarantees, and how it is drawn."""

from typing import Literal

from agewise.mechanism.gaussian import Gaussian
from agewise.mechanism.laplace import Laplace, laplace, laplace_epsilon, seeded_laplace
from agewise.mechanism.mechanism import Mechanism, Noised

Kind = Literal["laplace", "gaussian"]
MECHANISMS: dict[str, Mechanism] = {"laplace": Laplace(), "gaussian": Gaussian()}
"""By the name that scenarios, messages and events give."""

__all__ = [
    "MECHANISMS",
    "Gaussian",
    "Kind",
    "Laplace",
    "Mechanism",
    "Noised",
    "laplace",
    "laplace_epsilon",
    "seeded_laplace",
]
