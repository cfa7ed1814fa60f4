"""Any vector of statistics: a row of numbers for each state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from agewise.arrays import Array
from agewise.checks import finite_array
from agewise.errors import InvalidInput
from agewise.learning.learner import Accuracy, checked_table

LARGEST = 1e100
"""Entries are squared; beyond this floats overflow."""


@dataclass(frozen=True)
class Statistics:
    """The mean over the records of `table[state]`, a vector of any kind; one row per state.

    `counts` says what the squared error of each coordinate counts (default: 1 each), `names` what
    they are called.
    """

    rows: ArrayLike  #: the table: one row of numbers per state
    counts: ArrayLike | None = None
    names: tuple[str, ...] | None = None
    kind: Literal["statistics"] = "statistics"  #: its name in scenarios and messages

    def __post_init__(self) -> None:
        table = finite_array("table", self.rows, "one row of finite numbers per state")
        table = checked_table(table, len(np.atleast_1d(table)))
        if np.abs(table).max() > LARGEST:
            raise InvalidInput("table", float(np.abs(table).max()), f"entries up to {LARGEST:g}")
        object.__setattr__(self, "rows", tuple(map(tuple, table.tolist())))
        if self.counts is not None:
            counts = finite_array("counts", self.counts, "one weight per coordinate")
            if counts.shape != table.shape[1:] or (counts < 0).any() or not counts.any():
                raise InvalidInput(
                    "counts",
                    f"{counts.tolist()}",
                    f"{table.shape[1]} weights, 0 or more, not all 0",
                )
            object.__setattr__(self, "counts", tuple(counts.tolist()))
        if self.names is not None:
            names = tuple(self.names)
            if len(names) != table.shape[1] or not all(isinstance(n, str) for n in names):
                raise InvalidInput("names", repr(names), f"{table.shape[1]} words")
            object.__setattr__(self, "names", names)

    def table(self, states: Array) -> Array:
        return checked_table(self.rows, states.size)

    def weights(self, states: Array) -> Array:  # noqa: ARG002
        width = len(np.atleast_2d(np.asarray(self.rows))[0])
        return np.ones(width) if self.counts is None else np.asarray(self.counts)

    def decode(
        self,
        aggregate: Array,
        states: Array,  # noqa: ARG002
        accuracy: Accuracy | None = None,  # noqa: ARG002
    ) -> Array:
        return np.asarray(aggregate)

    def labels(self, states: Array) -> list[str]:
        width = len(self.weights(states))
        return (
            [f"statistic {k + 1}" for k in range(width)] if self.names is None else list(self.names)
        )

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"kind": "statistics", "table": [list(r) for r in self.rows]}  # type: ignore[union-attr,arg-type]
        if self.counts is not None:
            plain["counts"] = list(self.counts)  # type: ignore[arg-type]
        if self.names is not None:
            plain["names"] = list(self.names)
        return plain
