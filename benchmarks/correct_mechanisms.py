"""Mechanisms that are as private as they claim and no more, by the thousand: who is accused?"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import agewise as aw
from agewise.auditing.black_box import BlackBox, Runs
from agewise.auditing.bounding import Counts, refutes
from agewise.auditing.findings import judged
from agewise.auditing.losses import Loss, Sent, loss_about
from agewise.auditing.paths import Path
from agewise.auditing.tails import choose
from agewise.privacy import aged_loss

Array = NDArray[np.float64]
GRID = 2.0**-12
"""Noised values are rounded to its multiples, so that their low bits tell nothing."""


@dataclass(frozen=True)
class Case:
    """A mechanism on a chain at an age, its true ε by formulas of its own, and the exact tier's."""

    box: BlackBox
    loss: Loss
    kind: str


def random_chain(rng: np.random.Generator) -> aw.MarkovChain:
    """Two to five states, dense or birth and death."""
    size = int(rng.integers(2, 6))
    states = np.sort(rng.uniform(0, 100, size))
    if rng.random() < 0.5:
        up, down = rng.uniform(0.05, 0.45, 2)
        return aw.birth_death(float(up), float(down), states)
    return aw.MarkovChain(rng.dirichlet(np.ones(size), size), states)


def random_case(rng: np.random.Generator) -> Case:
    """A mechanism that claims exactly its true ε: Laplace noise, or answers at random."""
    chain, age = random_chain(rng), int(rng.integers(0, 10))
    epsilon = float(rng.choice([0.1, 0.3, 1.0, 3.0]))
    if rng.random() < 0.5:
        scale = float(np.ptp(chain.states)) / epsilon
        loss = loss_about(Path(chain), [Sent(1, chain.states[:, None], scale)], 1 + age)
        true = aged_loss(chain.joint(1, 1 + age), chain.states, 1, scale)

        def release(records: Array, rng: np.random.Generator) -> Array:
            drawn = records[:, 0] + rng.laplace(0.0, scale, len(records))
            return np.asarray(np.rint(drawn / GRID) * GRID)

        kind = "Laplace noise"
    else:
        release, table = randomised(chain.states, epsilon, rng)
        given = chain.joint(1, 1 + age).backward @ table
        pairs = itertools.permutations(given, 2)
        true = max(float(np.log(one / other).max()) for one, other in pairs)
        loss, kind = Loss(true, true), "randomised response"
    claim = max(true * (1 + 1e-9), 1e-9)
    box = BlackBox(release, chain, claim, about=1 + age, batched=True, name=kind)
    return Case(box, loss, kind)


def randomised(
    states: Array, epsilon: float, rng: np.random.Generator
) -> tuple[Callable[..., Array], Array]:
    """An answer that is the truth more often than any other one, and its table of chances."""
    size = len(states)
    chance = np.exp(epsilon) / (np.exp(epsilon) + size - 1)
    table = np.full((size, size), (1 - chance) / max(size - 1, 1))
    np.fill_diagonal(table, chance)
    answers = rng.permutation(size).astype(float)

    def release(records: Array, rng: np.random.Generator) -> Array:
        place = np.searchsorted(states, records[:, 0])
        below = np.cumsum(table, axis=1)[place, :-1]
        return np.asarray(answers[(rng.random(len(records))[:, None] >= below).sum(axis=1)])

    return release, table


def accused(
    case: Case, draws: int, errors: list[float], rng: np.random.Generator
) -> tuple[bool, list[bool]]:
    """Whether the exact tier refutes a claim, and whether the sampled one does at each error."""
    exactly = judged(case.box.epsilon, case.loss.reached, case.loss.bound) == "refuted"
    runs = Runs(case.box, rng, None, lambda _done, _total: None, draws)
    values = len(runs.draws.values)
    pilot = draws // 5 // values
    rest = (draws - pilot * values) // 2
    choice = choose([runs.outputs(place, pilot) for place in range(values)], rest, errors[0])
    counts = Counts(
        choice.event.hits(runs.outputs(choice.likely, rest)),
        rest,
        choice.event.hits(runs.outputs(choice.rare, rest)),
        rest,
    )
    found = [refutes(counts, case.box.epsilon, one, guess=choice.sure) for one in errors]
    return exactly, found
