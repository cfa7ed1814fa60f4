"""Built-in scenarios."""

from __future__ import annotations

from agewise.problem import Client, Problem
from agewise.process import birth_death

WATT_HOURS = (20, 50, 100, 200)


def london() -> Problem:
    """Return the paper's three London clients with the paper's choices: spectral, plain, formula.

    Lin, Lin, Hsu and Huang, arXiv 2405.05962, section IV-A: half-hourly electricity use in Wh.
    """
    rates = ((0.1, 0.2), (0.2, 0.1), (0.4, 0.4))
    laws = ((0.8, 0.2, 0, 0), (0, 0.1, 0.5, 0.4), (0.2, 0.3, 0.5, 0))
    clients = [
        Client(f"client {i}", birth_death(up, down, WATT_HOURS), law, samples=100)
        for i, ((up, down), law) in enumerate(zip(rates, laws, strict=True), start=1)
    ]
    return Problem(
        clients, aggregate_at=10, epsilon=0.1, mixing="spectral", estimator="plain", name="london"
    )
