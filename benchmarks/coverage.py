"""How often asymptotic limits on Δ and E cover the truth, by simulation; writes what fits quote.

`python -m benchmarks coverage` writes src/agewise/fitting/coverage.json anew, the same every time.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import agewise.fitting.coverage as recorded
from agewise.arrays import Array
from agewise.process.asymptotic import asymptotic_limits, critical_value
from agewise.process.limits import table_sticks
from benchmarks.recording import Row, Tables

Kinds = NDArray[np.intp]
"""The kind of each day."""
Draw = Callable[[int, np.random.Generator], Kinds]
REPETITIONS, LEVEL = 500, 0.95
WEEKS = (10, 26, 52)
TARGETS = (0.0, 0.1, 1.0)
STAYS = 0.8 ** np.arange(1, 7)
"""How likely a record is still what it was, by age."""


@dataclass(frozen=True)
class Case:
    """Days of several kinds: on each, records are drawn anew by its law, or still what they were."""

    name: str
    entities: int
    laws: Array
    """One row per kind of day."""
    shares: Array
    draw: Draw
    """The kind of each day of so many weeks."""
    keeps: bool = True
    """Whether weeks are independent, as the limits take them to be."""

    def tables(self, weeks: int, rng: np.random.Generator) -> Array:
        """Draw weekly counts `[age, week, x, y]`."""
        kinds, size = self.draw(weeks, rng), self.laws.shape[1]
        later = rng.multinomial(self.entities, self.laws[kinds])
        counts = np.zeros((STAYS.size, weeks, size, size))
        for kind, law in enumerate(self.laws):
            mine = np.where((kinds == kind)[:, None], later, 0).reshape(weeks, 7, size).sum(axis=1)
            rows = STAYS[:, None, None] * np.eye(size) + (1 - STAYS)[:, None, None] * law
            counts += rng.multinomial(mine[None], rows[:, None]).swapaxes(2, 3)
        return counts

    def truth(self) -> Array:
        """E `[age, target]` of the law that a pair follows on average."""
        together = np.einsum("k,kx,ky->xy", self.shares, self.laws, self.laws)
        stayed = np.diag(self.shares @ self.laws)
        return np.array([table_sticks(s * stayed + (1 - s) * together, TARGETS) for s in STAYS])


def _alike(weeks: int, _: np.random.Generator) -> Kinds:
    return np.zeros(7 * weeks, dtype=np.intp)


def _days(share: float) -> Draw:
    return lambda weeks, rng: (rng.random(7 * weeks) < share).astype(np.intp)


def _weeks(share: float) -> Draw:
    return lambda weeks, rng: np.repeat((rng.random(weeks) < share).astype(np.intp), 7)


def _spells(weeks: int, rng: np.random.Generator) -> Kinds:
    """A week is like the one before with probability 0.6, else drawn anew."""
    kinds = (rng.random(weeks) < 0.3).astype(np.intp)
    for week in range(1, weeks):
        if rng.random() < 0.6:
            kinds[week] = kinds[week - 1]
    return np.repeat(kinds, 7)


def _drifting(weeks: int, _: np.random.Generator) -> Kinds:
    return np.arange(7 * weeks) * 10 // (7 * weeks)


def cases() -> Iterator[Case]:
    even, moved = np.array([[0.7, 0.3]]), np.array([[0.85, 0.15], [0.3, 0.7]])
    shares = np.array([0.7, 0.3])
    rising = np.linspace(0.1, 0.6, 10)
    drift = np.stack([1 - rising, rising], axis=1)
    cold = np.array([[0.9, 0.1], [0.1, 0.9]])
    yield Case("independent entities", 20, even, np.ones(1), _alike)
    yield Case("one entity", 1, even, np.ones(1), _alike)
    yield Case("days that move everybody", 20, moved, shares, _days(0.3))
    yield Case("weeks that move everybody", 20, moved, shares, _weeks(0.3))
    yield Case("rare days (1 in 50)", 20, moved, np.array([0.98, 0.02]), _days(0.02))
    yield Case("a drift", 20, drift, np.full(10, 0.1), _drifting)
    yield Case("three states, sparse", 20, np.array([[0.9, 0.08, 0.02]]), np.ones(1), _alike)
    yield Case("one entity, rare state", 1, np.array([[0.95, 0.05]]), np.ones(1), _alike)
    yield Case("rare weeks (1 in 33)", 20, cold, np.array([0.97, 0.03]), _weeks(0.03))
    yield Case("weeks that depend", 20, moved, shares, _spells, keeps=False)


def covered(case: Case, weeks: int, repetitions: int, seed: int = 0) -> recorded.Row:
    """How often no limit, at any age or target, was below the truth."""
    rng, truth, hits, oldest = np.random.default_rng(seed), case.truth(), 0, 0.0
    for _ in range(repetitions):
        tables = case.tables(weeks, rng)
        critical = critical_value(tables, TARGETS, 1 - LEVEL)
        limits = np.array([asymptotic_limits(one, TARGETS, critical) for one in tables])
        hits += bool((limits >= truth).all())
        oldest += float(limits[-1, 0]) / repetitions
    return recorded.Row(
        case=case.name,
        weeks=weeks,
        level=LEVEL,
        repetitions=repetitions,
        covered=hits / repetitions,
        delta=round(float(truth[-1, 0]), 3),
        mean_limit=round(oldest, 3),
        weeks_independent=case.keeps,
    )


def main() -> Tables:
    rows = [covered(case, weeks, REPETITIONS) for case in cases() for weeks in WEEKS]
    file = Path(recorded.__file__).with_name("coverage.json")
    lines = ",\n".join(f" {json.dumps(asdict(row))}" for row in rows)
    file.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(
        "| simulated | weeks | Δ at the oldest age | mean limit | covered |\n|---|---|---|---|---|"
    )
    for row in rows:
        print(
            f"| {row.case} | {row.weeks} | {row.delta:.2f} | {row.mean_limit:.2f} | {row.covered:.1%} |"
        )
    print(f"wrote {file}")
    shown: dict[str, Row] = {}
    for row in rows:
        line = shown.setdefault(row.case, {"simulated": row.case, "Δ": f"{row.delta:.2f}"})
        line[f"{row.weeks} weeks"] = f"{row.mean_limit:.2f}, {100 * row.covered:.1f} %"
    return {"covered": list(shown.values())}
