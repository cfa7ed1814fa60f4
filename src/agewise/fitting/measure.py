"""Which entities of a client take part, and which law their readings follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from agewise.arrays import Array
from agewise.fitting.defaults import DayKind, Limits, Sampled
from agewise.fitting.given import Classes, class_masks, weekends
from agewise.fitting.knowledge import daily_shares, measure_knowledge
from agewise.fitting.laws import (
    Codes,
    CountNoise,
    LagLaw,
    fit_chain,
    fit_lag_law,
    fit_periodic,
    lag_pairs,
)
from agewise.knowledge import Measured
from agewise.problem import Problem
from agewise.process import MeasuredLaw, Process
from agewise.process.asymptotic import critical_value
from agewise.progress import Progress
from agewise.readings import Readings

KNOWS = {
    "household": "an adversary who knows each entity's own law, but nothing of the others or of "
    "what sort of day it is",
    "population": "an adversary who knows the law of a client's entities together, but not which "
    "of them has which habits, nor what sort of day it is",
}
DRAWN = {
    "pairs": "every day of every entity is independent of every other",
    "days": "days are independent of each other but for readings that their windows share",
    "weeks": "weeks are independent of each other but for readings that their windows share",
    "entities": "entities are independent of each other, nothing moving them all together",
}
"""What limits rest on, in words: they go with the law into statements."""
WEEKS_APART = "weeks being independent of each other"
"""What the promised loss rests on beside, in words."""
STILL = "always in one state"
UNUSABLE = "readings that cannot be used"


@dataclass(frozen=True)
class ClientFit:
    """How one client's law was found. `limits` and `estimates` are Δ by slot, where measured."""

    name: str
    members: tuple[str, ...]
    pairs: int
    inflation: float
    estimates: tuple[float, ...]
    limits: tuple[float, ...]

    @property
    def entities(self) -> int:
        """How many entities take part."""
        return len(self.members)


@dataclass(frozen=True)
class Part:
    """A client's entities: rows that take part, those that do not, and how many cannot be used."""

    client: str
    rows: list[int]
    weak: list[int]
    """Their limit is too high."""
    still: list[int]
    """They are always in one state."""
    unusable: int


@dataclass(frozen=True)
class Measure:
    """How measured laws are found, the same for all clients."""

    readings: Readings
    codes: Codes
    values: Array
    first_slot: int
    slots: int
    adversary: str
    sampled: Sampled
    limits: Limits
    ages: tuple[int, ...]
    classes: Classes | None
    targets: tuple[float, ...]
    confidence: float
    claims: int
    worst_limit: float
    noise: CountNoise | None
    known_days: DayKind
    progress: Progress | None
    critical: float | None = None
    """Of asymptotic limits, for all laws together."""
    alone: dict[int, LagLaw] = field(default_factory=dict)
    """The laws of entities by themselves, as far as they were needed."""

    def _lag_law(self, rows: list[int]) -> LagLaw:
        return fit_lag_law(
            self.codes[rows],
            self.values,
            self.readings.day,
            first_slot=self.first_slot,
            slots=self.slots,
            starts=self.readings.first_of_day,
            confidence=self.confidence,
            claims=self.claims,
            sampled=self.sampled,
            limits=self.limits,
            ages=self.ages,
            classes=class_masks(self.classes, rows),
            targets=self.targets,
            critical=self.critical,
            noise=self.noise,
        )

    def for_all(self, parts: list[Part]) -> Measure:
        """The same with asymptotic limits, if such are wanted, that hold for all laws together."""
        if self.limits != "asymptotic":
            return self
        alone = self.adversary == "household"
        groups = [[[row] for row in part.rows] if alone else [part.rows] for part in parts]
        tables = (
            table
            for rows in (rows for one in groups for rows in one if rows)
            for table in lag_pairs(
                self.codes[rows],
                self.values.size,
                self.readings.day,
                first_slot=self.first_slot,
                slots=self.slots,
                starts=self.readings.first_of_day,
                ages=self.ages,
                classes=class_masks(self.classes, rows),
            ).weekly_tables()
        )
        orders = [0.0, *self.targets]
        return replace(self, critical=critical_value(tables, orders, 1 - self.confidence))

    def part(self, client: str, entities: Sequence[str]) -> Part:
        """Who of a client's entities can take part."""
        unusable = dict(self.readings.quality.left_out)
        usable = [entity for entity in entities if entity not in unusable]
        rows = self.readings.rows(client, usable) if usable or not entities else []
        still = list[int]()
        if self.noise is None:  # with noise, whom to leave out would be told without
            seen = {row: self.codes[row][self.codes[row] >= 0] for row in rows}
            still = [row for row in rows if np.unique(seen[row]).size < 2]
            rows = [row for row in rows if row not in still]
        return Part(client, rows, [], still, len(entities) - len(usable))

    def fit_for_a_limit(self, part: Part) -> Part:
        """Leave out entities whose limit will not do in the slot where most do.

        All limits hold together, so that choosing among them costs no confidence.
        """
        rows = part.rows
        if self.adversary != "household" or not rows:
            return part
        for row in rows:
            self.alone[row] = self._lag_law([row])
            if self.progress is not None:
                self.progress(len(self.alone), self.claims)
        will_do = np.array([self.alone[r].law.limits[:-1] <= self.worst_limit for r in rows])
        best = int(will_do.sum(axis=0).argmax())
        kept = [row for row, good in zip(rows, will_do[:, best], strict=True) if good]
        return replace(part, rows=kept, weak=[row for row in rows if row not in kept])

    def names(self, rows: list[int]) -> tuple[str, ...]:
        """The entities of some rows."""
        return tuple(self.readings.entities[row] for row in rows)

    def process(self, client: str, rows: list[int], kind: str) -> tuple[Process, ClientFit]:
        """A client's law or chain, and how it was found."""
        if kind == "measured":
            return self.law(client, rows)
        codes, day = self.codes[rows], self.readings.day
        shift = (self.readings.first_of_day - self.first_slot) % day
        chain = (
            fit_chain(codes, self.values)
            if kind == "chain"
            else fit_periodic(codes, self.values, day, shift)
        )
        return chain, ClientFit(client, self.names(rows), codes.size, 1.0, (), ())

    def knowledge(
        self, problem: Problem, rows: Sequence[list[int]], factors: int | None
    ) -> Measured:
        """What the readings say of the clients together; `rows` are those of each."""
        wanted, assumes, kind = None, WEEKS_APART, self.known_days
        if kind != "all":
            wanted = weekends(self.readings, self.first_slot, self.slots) == (kind == "weekends")
            assumes = f"{kind} only; {WEEKS_APART}"
        days = daily_shares(
            self.codes,
            {client.name: mine for client, mine in zip(problem.clients, rows, strict=True)},
            self.values.size,
            self.readings.day,
            first_slot=self.first_slot,
            slots=self.slots,
            starts=self.readings.first_of_day,
            wanted=wanted,
        )
        return measure_knowledge(days, self.values, problem.weights, factors, assumes)

    def law(self, client: str, rows: list[int]) -> tuple[MeasuredLaw, ClientFit]:
        """A client's law, and how it was found."""
        group = self._lag_law(rows)
        limits, sticks, inflation = group.law.limits, group.law.sticks, group.inflation
        if self.adversary == "household":
            each = [self.alone[row] for row in rows]
            limits = np.maximum(np.max([one.law.limits for one in each], axis=0), group.estimate)
            sticks = np.max([one.law.sticks for one in each], axis=0)
            inflation = max(one.inflation for one in each)
        law = MeasuredLaw(
            group.law.joints,
            limits,
            self.values,
            confidence=self.confidence,
            day=self.readings.day,
            assumes=self._assumes(),
            basis=self.limits,
            weeks=group.law.weeks,
            targets=group.law.targets,
            sticks=sticks,
        )
        how = ClientFit(
            client,
            self.names(rows),
            group.pairs,
            inflation,
            tuple(group.estimate.tolist()),
            tuple(limits.tolist()),
        )
        return law, how

    def _assumes(self) -> str:
        """What the limits rest on, in words."""
        known = "" if self.classes is None else f", but for {self.classes.known}"
        widened = ""
        if self.sampled == "days" and self.noise is None:
            widened = " (the limits were widened as far as weeks vary more than that)"
        return (
            f"{KNOWS[self.adversary]}{known}; that {DRAWN[self.sampled]}{widened}; that "
            "gaps do not depend on what would have been read; and that the days to come are like "
            "those measured"
        )
