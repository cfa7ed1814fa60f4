"""Any vector of statistics: a row of numbers for each state."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from agewise.arrays import Array
from agewise.checks import as_names, finite_array
from agewise.errors import InvalidInput, quoted
from agewise.learning.learner import Accuracy, checked_table
from agewise.records import Numbers, Rows, Words, plain, record

LARGEST = 1e100
"""Entries are squared; beyond this floats overflow."""


@record
class Statistics:
    """The mean over the records of `table[state]`, a vector of any kind; one row per state.

    `counts` says what the squared error of each coordinate counts (default: 1 each), `names` what
    they are called.
    """

    rows: Rows
    """The table: one row of numbers per state."""
    counts: Numbers | None = None
    names: Words | None = None
    kind: ClassVar[str] = "statistics"

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
            names = as_names("names", self.names)
            if len(names) != table.shape[1]:
                raise InvalidInput("names", quoted(names), f"{table.shape[1]} words")
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
        own = plain(self)
        return {"kind": self.kind, "table": own.pop("rows"), **own}
