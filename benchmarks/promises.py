"""What plans promise against what their runs lose: records through clients and server, no formula."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

import agewise as aw
from agewise.federation.sources import Simulated, present_sum
from agewise.loss import Estimate, nothing_collected
from agewise.paper.reproduction import ESTIMATES
from agewise.scenarios import BUILT_IN
from benchmarks.recording import Row, Tables

RUNS = 1000


@dataclass(frozen=True)
class Promise:
    """A loss that is promised, and the pages that print it."""

    problem: aw.Problem
    pages: str = ""
    """README, pages of docs, and the explorer as it opens, with spaces between them."""
    slots: tuple[int, ...] | None = None
    """Of each client; None: those that are planned."""
    heard: bool = True
    """False: nobody is heard, and the mean that is expected is published."""

    @cached_property
    def plan(self) -> aw.Plan:
        return (
            aw.plan(self.problem) if self.slots is None else aw.evaluate(self.problem, self.slots)
        )

    @property
    def loss(self) -> float:
        if self.heard:
            return self.plan.gap
        return nothing_collected(self.problem, self.plan.ages)

    def measure(self, runs: int, rng: np.random.Generator) -> Estimate:
        """The mean loss of runs."""
        if self.heard:
            return aw.rehearse(self.plan, runs, rng)
        return unheard(self.plan, runs, rng)


def unheard(plan: aw.Plan, runs: int, rng: np.random.Generator) -> Estimate:
    """The mean loss of publishing what is expected, of the records that runs of a plan draw."""
    problem, last = plan.problem, plan.problem.aggregate_at
    weights = dict(zip((c.name for c in problem.clients), problem.weights.tolist(), strict=True))
    slots = dict(zip(weights, plan.collect_at, strict=True))
    expected = sum(
        weights[c.name]
        * (c.law_at(slots[c.name]) @ c.process.kernel(slots[c.name], last) @ c.process.states)
        for c in problem.clients
    )
    drawn = (Simulated(problem, int(rng.integers(2**63))) for _ in range(runs))
    truths = [float(present_sum(problem, one, weights, slots)[0]) for one in drawn]
    losses = np.square(np.array(truths) - expected)
    return Estimate(float(losses.mean()), float(losses.std(ddof=1)) / math.sqrt(runs), runs)


def fresh(problem: aw.Problem, pages: str = "") -> Promise:
    """Everybody in the last slot, with classical noise."""
    return Promise(problem, pages, (problem.aggregate_at,) * len(problem.clients))


def nothing(problem: aw.Problem, pages: str = "") -> Promise:
    """Nobody is heard, and records are of the laws that hold now."""
    return replace(fresh(problem, pages), heard=False)


def of_the_paper() -> Iterator[tuple[str, Promise]]:
    """The paper's clients, with a level and without."""
    shared, london = BUILT_IN["common_level"](), BUILT_IN["london"]()
    careful = shared.replace(mixing="any_prior")
    read = "README index worth"
    yield "common_level, any prior", Promise(careful, read)
    yield "common_level, everybody fresh", fresh(shared, f"{read} explorer")
    yield "common_level, nothing collected", nothing(shared, f"{read} explorer")
    yield "... under the law of these ages", Promise(careful, "worth", (10, 10, 5), heard=False)
    yield "common_level, one early", Promise(shared, "worth", (10, 10, 6))
    trusting = shared.replace(noise="server")
    yield "common_level, noise by the server", Promise(trusting)
    yield "common_level, weighted mean", Promise(shared.replace(estimator="plain"))
    two = [aw.Level([9, -4, 20], 0.9), aw.Level(12, 0.5)]
    yield "common_level, two levels", Promise(shared.replace(level=two))
    yield "london, nothing collected", nothing(london, "README worth")
    known = london.replace(mixing="exact", estimator="best")
    for epsilon in (0.03, 0.1, 0.3, 1.0):
        asked = known.replace(epsilon=epsilon)
        yield f"worth, no level, ε = {epsilon:g}", Promise(asked, "worth")
    for epsilon in (0.03, 0.1, 0.3, 1.0):
        asked = known.replace(epsilon=epsilon, level=shared.level)
        yield f"worth, a level, ε = {epsilon:g}", Promise(asked, "worth")
    strict = known.replace(epsilon=0.03, level=shared.level)
    yield "worth, a level, ε = 0.03, everybody fresh", fresh(strict, "worth")
    for samples in (10, 1000):
        crowd = [replace(client, samples=samples) for client in careful.clients]
        asked = careful.replace(clients=crowd)
        yield f"worth, {samples:,} samples", Promise(asked, "worth")
        if samples == 10:
            yield "worth, 10 samples, everybody fresh", fresh(asked, "worth")
    for loading in (28, 100):
        asked = pictured(loading)
        yield f"worth's picture, {loading} Wh", Promise(asked)
        yield f"worth's picture, {loading} Wh, everybody fresh", fresh(asked)


def pictured(loading: float) -> aw.Problem:
    """What the picture of docs/worth.md shows at ε = 0.1 and a level of that size."""
    base = BUILT_IN["london"]().replace(**ESTIMATES["planned, stationary prior"], epsilon=0.1)
    stationary = [replace(client, law=None) for client in base.clients]
    return base.replace(clients=stationary, level=aw.Level(loading, 0.98))


def of_the_tutorials() -> Iterator[tuple[str, Promise]]:
    """The districts of docs/tutorial.md, and the hospitals of docs/tutorial_beds.md."""
    slow = aw.birth_death(up=0.1, down=0.2, states=[20, 50, 100, 200])
    fast = aw.birth_death(up=0.4, down=0.4, states=[20, 50, 100, 200])
    clients = [aw.Client("north", slow, samples=100), aw.Client("south", fast, samples=250)]
    districts = aw.Problem(clients, 10, 0.05, level=aw.Level(loading=20.0, correlation=0.98))
    careful, simple = {"mixing": "any_prior"}, {"calibration": "formula"}
    yield "tutorial", Promise(districts, "tutorial")
    yield "tutorial, everybody fresh", fresh(districts, "tutorial")
    yield "tutorial, nothing collected", nothing(districts, "tutorial")
    yield "tutorial, any prior", Promise(districts.replace(**careful), "tutorial")
    yield "tutorial, formula", Promise(districts.replace(**simple), "tutorial")
    both = districts.replace(**careful, **simple)
    yield "tutorial, any prior, formula", Promise(both, "tutorial")
    small = districts.replace(level=aw.Level(10.0, 0.98), epsilon=0.1)
    yield "tutorial, a level of 10", Promise(small, "tutorial")
    without = districts.replace(level=None)
    yield "tutorial, no level, nothing collected", nothing(without, "tutorial")
    gateway = aw.Client("gateway", fast, samples=5, members=40)
    mixed = districts.replace(clients=[clients[0], gateway])
    yield "tutorial, a gateway", Promise(mixed)
    yield "beds", fresh(hospitals(), "tutorial_beds")
    yield "beds, nothing collected", nothing(hospitals(), "tutorial_beds")
    yield "beds, ε = 0.05", fresh(hospitals().replace(epsilon=0.05), "tutorial_beds")
    trusting = hospitals().replace(noise="server")
    yield "beds, noise by the server", fresh(trusting, "tutorial_beds")


def hospitals() -> aw.Problem:
    """The region of docs/tutorial_beds.md, whose plans are those of fresh data."""

    def patients(worse: float, better: float) -> aw.MarkovChain:
        rows = [
            [1 - worse, 0.9 * worse, 0.1 * worse],
            [0.8 * better, 1 - better, 0.2 * better],
            [0, better, 1 - better],
        ]
        return aw.MarkovChain(rows, states=[1, 3, 8])

    steady, acute = patients(0.02, 0.06), patients(0.03, 0.05)
    clients = [
        aw.Client("north", steady, samples=300),
        aw.Client("south", steady, samples=500),
        aw.Client("coast", acute, samples=150),
    ]
    wave = aw.Level(loading=0.6, correlation=0.995)
    return aw.Problem(clients, 24, 0.1, level=wave, mixing="any_prior", unit="h")


PRINTED = {"common_level": "worth explorer", "london": "README"}
"""The pages that print the losses of the built-in scenarios as they are."""


def promised() -> dict[str, Promise]:
    """Every promise that is held against runs, by name."""
    built_in = {name: Promise(make(), PRINTED.get(name, "")) for name, make in BUILT_IN.items()}
    return built_in | dict(of_the_paper()) | dict(of_the_tutorials())


def main() -> Tables:
    rows: list[Row] = []
    for number, (name, promise) in enumerate(promised().items()):
        found = promise.measure(RUNS, np.random.default_rng(number))
        unit = promise.plan.problem.release_unit
        rows.append(
            {
                "plan": name,
                "ages": ", ".join(map(str, promise.plan.ages)) if promise.heard else "",
                "promised": f"{promise.loss:.6g}",
                f"mean of {RUNS:,} runs": float(found),
                "standard error": found.standard_error,
                "off by (standard errors)": (found - promise.loss) / found.standard_error,
                "unit": f"{unit}²" if unit else "",
                "printed in": promise.pages.replace(" ", ", "),
            }
        )
        print(rows[-1], flush=True)
    return {"promises": rows}
