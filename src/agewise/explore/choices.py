"""What the sliders of the page say, as frozen data: from a query, and into a problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any

from agewise.checks import whole
from agewise.errors import InvalidInput
from agewise.knowledge import Level
from agewise.privacy.continual import Promise
from agewise.problem import FOREVER, LARGEST_SLOT, Problem
from agewise.records import read_text

PLANNED = "planned"
"""The word for ages that Agewise chooses."""
MOST_RECORDS = 10**9


@dataclass(frozen=True)
class Choices:
    """What was chosen on the page; everything that is not there is as in the scenario.

    `age` None: planned. `rounds` None: for ever. `every` counts with several rounds only. `loading`
    and `memory` are those of the one common level, None where the scenario's knowledge is of
    another kind and stays as it is. `records` is the mean number of records of a client.
    """

    source: str
    epsilon: float
    age: int | None
    rounds: int | None
    every: int
    promise: Promise
    loading: float | None
    memory: float | None
    records: int
    mixing: str
    estimator: str
    calibration: str
    noise: str

    @classmethod
    def of(cls, source: str, base: Problem) -> Choices:
        """The choices that a scenario makes itself."""
        loading, memory = _one_level(base)
        return cls(
            source=source,
            epsilon=base.epsilon,
            age=None,
            rounds=base.rounds,
            every=base.every or base.aggregate_at,
            promise=base.promise,
            loading=loading,
            memory=memory,
            records=_mean_records(base),
            mixing=base.mixing,
            estimator=base.estimator,
            calibration=base.calibration,
            noise=base.noise,
        )

    @classmethod
    def read(cls, query: Mapping[str, str], source: str, base: Problem) -> Choices:
        """The scenario's choices, with those of a query in their place; refuse what is no value."""
        given: dict[str, Any] = {}
        for name in (one.name for one in fields(cls) if one.name != "source"):
            text = query.get(name)
            if text is not None:
                read = _READ.get(name, partial(read_text, Problem))
                given[name] = read(name, text.strip())
        own = cls.of(source, base)
        if own.loading is None:
            given = {k: v for k, v in given.items() if k not in ("loading", "memory")}
        return replace(own, **given)

    def query(self) -> dict[str, str]:
        """The query that reads to these choices."""
        written = asdict(self) | {
            "age": PLANNED if self.age is None else self.age,
            "rounds": FOREVER if self.rounds is None else self.rounds,
        }
        return {
            name: repr(value) if isinstance(value, float) else str(value)
            for name, value in written.items()
            if value is not None
        }

    def changes(self, base: Problem) -> dict[str, Any]:
        """The fields of the scenario that are to be replaced, only those that differ."""
        own, found = Choices.of(self.source, base), dict[str, Any]()
        for name in ("epsilon", "rounds", "promise", "mixing", "estimator", "calibration", "noise"):
            if getattr(self, name) != getattr(own, name):
                found[name] = getattr(self, name)
        every = None if self.rounds == 1 else self.every
        if every != base.every:
            found["every"] = every
        if (self.loading, self.memory) != (own.loading, own.memory):
            none = self.loading is None or self.memory is None or self.loading == 0
            level = None if none else Level(self.loading or 0.0, self.memory or 0.0)
            if level is not None or base.level is not None:
                found["level"] = level
        clients = base.clients
        if self.records != own.records:
            share = self.records / _mean_records(base)
            clients = [replace(c, samples=max(1, round(c.samples * share))) for c in clients]
        if self.rounds != 1 and any(client.law is not None for client in clients):
            clients = [replace(client, law=None) for client in clients]
        if clients is not base.clients:
            found["clients"] = clients
        return found

    def leaves_out_laws(self, base: Problem) -> bool:
        """Whether laws that clients state are left out, as many rounds need."""
        return self.rounds != 1 and any(client.law is not None for client in base.clients)

    def problem(self, base: Problem) -> Problem:
        """The problem that was chosen, checked."""
        return base.replace(**self.changes(base))

    def slots(self, base: Problem) -> list[int] | None:
        """The slot that each client collects in, where one age was chosen for all."""
        if self.age is None:
            return None
        whole("age", self.age, 0, base.aggregate_at - 1)
        return [base.aggregate_at - self.age] * len(base.clients)


def _one_level(base: Problem) -> tuple[float | None, float | None]:
    """Size and memory of the one common level; 0 for none, and None where it is not so simple."""
    levels = tuple(base.level or ())  # type: ignore[arg-type]
    if not levels and base.knowledge is None:
        return 0.0, 0.98
    if len(levels) == 1:
        one = levels[0]
        if isinstance(one.loading, float) and isinstance(one.correlation, float):
            return one.loading, one.correlation
    return None, None


def _mean_records(base: Problem) -> int:
    return max(1, round(sum(client.samples for client in base.clients) / len(base.clients)))


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(name, repr(text), "a number") from None


def _size(name: str, text: str) -> float:
    value = _number(name, text)
    if not value >= 0:
        raise InvalidInput(name, value, "0 or more", "0 is no common level.")
    return value


def _whole(name: str, text: str, low: int, high: int) -> int:
    value: Any = int(text) if text.isdecimal() and len(text) < 19 else _number(name, text)
    return whole(name, value, low, high)


_READ: dict[str, Any] = {
    "age": lambda n, t: None if t == PLANNED else _whole(n, t, 0, LARGEST_SLOT),
    "loading": _size,
    "memory": _number,
    "records": lambda n, t: _whole(n, t, 1, MOST_RECORDS),
}
"""How values of a query are read that are no fields of a problem."""
