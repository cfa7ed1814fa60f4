"""What a scheduler returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.report.tables import MOST_SHOWN, counted, html_facts, left_out, text_facts


@dataclass(frozen=True)
class Leaf:
    """A part of the search space that its multipliers (and prices) bound from below.

    Without multipliers, where there could be some: a part that holds no schedule.
    """

    multipliers: tuple[float, ...]  #: one for each dimension of what is squared
    prices: tuple[float, ...] | None = None  #: one per column, with a capacity; in a band of scales
    #: of a draw two, for its upper and its lower end


@dataclass(frozen=True)
class Split:
    """The search space cut in two: one client keeps to some columns, or to the others."""

    client: int  #: whose columns are parted, by its place
    columns: frozenset[int]  #: the columns of the first part
    inside: Proof  #: what bounds the part where the client takes one of them
    outside: Proof  #: what bounds the part where it takes another


@dataclass(frozen=True)
class Halved:
    """The search space cut in two by the scale of the one draw of noise."""

    scale: float  #: where it is cut
    below: Proof  #: what bounds the schedules that need no more
    above: Proof  #: what bounds those that need more


Proof = Leaf | Split | Halved


@dataclass(frozen=True, eq=False)
class Draw:
    """What one draw of noise is for: the scale that each client and column needs `[m, T]` of it.

    `power` is the loss of a draw of scale 1.
    """

    scales: Array  #: in the unit of the release
    power: float


@dataclass(frozen=True, eq=False)
class Schedule:
    """A column of the tables for each client, its objective, and what is proven about it.

    `lower_bound` is a value that no schedule can beat (None: nothing is proven). `proof` is what
    it can be checked with: multipliers (one for each dimension of b) and prices (one per column,
    with a capacity), for the whole search space or for parts that make it up; None where every
    schedule was looked at. `multipliers` and `prices` are those of the whole. For rows that stand
    for several clients, `allocation` `[m, T]` says how many of them take each column, and
    `columns` the column that most of them take. `complete` is false after an interruption.
    `gains` `[m, C]` are those of the best estimate, where the server uses what it knows.
    """

    columns: NDArray[np.intp]
    objective: float  #: the loss of this schedule
    lower_bound: float | None
    iterations: int  #: steps of the search
    multipliers: Array | None = None
    prices: Array | None = None
    allocation: NDArray[np.int64] | None = None
    proof: Proof | None = None
    complete: bool = True
    gains: Array | None = None

    @property
    def schedule(self) -> NDArray[np.intp]:
        """The columns, under another name."""
        return self.columns

    @property
    def relative_gap(self) -> float | None:
        """How far from the best it can be at most, as a share of the objective."""
        return relative_gap(self.objective, self.lower_bound)

    def __repr__(self) -> str:
        known = "nothing proven" if self.lower_bound is None else f"gap {self.relative_gap:.2g}"
        clients = counted(len(self.columns), "client")
        return f"Schedule({clients}, objective {self.objective:.6g}, {known})"

    def __str__(self) -> str:
        return text_facts(self._facts())

    def _repr_html_(self) -> str:
        return html_facts(self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        shown = ", ".join(map(str, self.columns[:MOST_SHOWN].tolist()))
        bound = self.lower_bound
        return [
            ("columns", f"{shown} {left_out(len(self.columns))}".rstrip()),
            ("objective", f"{self.objective:.6g}"),
            ("lower bound", "nothing proven" if bound is None else f"{bound:.6g}"),
            ("relative gap", "unknown" if bound is None else f"{self.relative_gap:.2g}"),
            ("search", "complete" if self.complete else "interrupted"),
        ]


def relative_gap(objective: float, lower_bound: float | None) -> float | None:
    """How far an objective is from a bound, as a share of it; None without a bound."""
    if lower_bound is None:
        return None
    if objective <= lower_bound:
        return 0.0
    return float((objective - lower_bound) / max(abs(objective), abs(lower_bound)))
