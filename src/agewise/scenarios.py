"""Built-in scenarios."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files

import numpy as np

from agewise.knowledge import Level
from agewise.problem import Client, Problem
from agewise.process import MeasuredLaw, PeriodicChain, birth_death

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
        clients,
        aggregate_at=10,
        epsilon=0.1,
        mixing="spectral",
        estimator="plain",
        calibration="formula",
        name="london",
        unit="Wh",
    )


def common_level() -> Problem:
    """Return the paper's clients where they share a level that nobody knows and that moves slowly.

    Its standard deviation is 20 Wh, and 0.98 of it remains from slot to slot. A record's own value
    is forgotten sooner than that, so data that have aged still tell the level: here ageing pays.
    The level is made up; `london_fitted` is of real readings.
    """
    return london().replace(
        mixing="exact",
        estimator="best",
        calibration="sharp",
        level=Level(loading=20.0, correlation=0.98),
        name="common_level",
    )


def slow_and_fast() -> Problem:
    """Return four clients of equal size that differ only in how fast their records change.

    One upload per slot. Slow records stay accurate but need long to gain privacy, so they are
    collected first; fast ones need only a few slots.
    """
    speeds = {"very slow": 0.02, "slow": 0.08, "fast": 0.25, "very fast": 0.45}
    clients = [
        Client(name, birth_death(rate, rate, (0, 1, 2, 3)), samples=50)
        for name, rate in speeds.items()
    ]
    return Problem(
        clients,
        aggregate_at=12,
        epsilon=0.2,
        estimator="propagated",
        capacity=1,
        name="slow_and_fast",
    )


def day_profile() -> Problem:
    """Return three districts whose households are calm by night and lively in the evening.

    Hourly slots from midnight, aggregation at 20:00. How much privacy an hour of waiting gives
    depends on the hour: data collected before the evening have aged more than their hours tell.
    """
    clients = []
    for name, evening, samples in (("homes", 1.0, 400), ("flats", 0.8, 250), ("shops", 0.4, 150)):
        liveliness = np.full(24, 0.04)
        liveliness[6:9] = 0.15
        liveliness[16:22] = 0.3 * evening
        liveliness[9:16] = 0.08 if name != "shops" else 0.3
        matrices = [birth_death(r, 0.8 * r, WATT_HOURS).transition for r in liveliness]
        clients.append(Client(name, PeriodicChain(matrices, WATT_HOURS), samples=samples))
    return Problem(
        clients,
        aggregate_at=20,
        epsilon=0.1,
        estimator="propagated",
        name="day_profile",
        unit="Wh",
    )


def london_fitted() -> Problem:
    """Return three districts whose laws were measured on real half-hourly readings.

    60 London households (UK Power Networks, Low Carbon London trial, 2013) in three districts,
    two levels of use, slots from 06:30 to the aggregation at 18:00. Δ is an upper limit at 95 %
    for an adversary who knows the law of a district, not that of each household, and for days
    that are independent of each other; the figures come from `examples/london_fitted`.
    """
    document = json.loads((files("agewise") / "london_fitted.json").read_text(encoding="utf-8"))
    clients = [
        Client(
            one["name"],
            MeasuredLaw(
                one["joints"],
                one["limits"],
                document["states"],
                confidence=document["confidence"],
                day=document["day"],
                assumes=document["assumes"],
            ),
            samples=one["samples"],
        )
        for one in document["clients"]
    ]
    slots = len(document["clients"][0]["joints"])
    return Problem(
        clients,
        aggregate_at=slots,
        epsilon=0.5,
        estimator="propagated",
        name="london_fitted",
        unit="Wh",
        origin=document["origin"],
    )


def for_ever() -> Problem:
    """Return the paper's chains with a common level, aggregated every 10 slots without end.

    Records follow their stationary processes; ε = 0.1 is about the present at every publication,
    all earlier ones counted.
    """
    paper = common_level()
    return paper.replace(
        clients=[replace(client, law=None) for client in paper.clients],
        rounds=None,
        every=10,
        name="for_ever",
    )


BUILT_IN: dict[str, Callable[[], Problem]] = {
    "common_level": common_level,
    "day_profile": day_profile,
    "for_ever": for_ever,
    "london": london,
    "london_fitted": london_fitted,
    "slow_and_fast": slow_and_fast,
}
