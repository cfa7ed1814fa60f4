"""The mean of the records: empirical risk minimisation for squared loss."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from agewise.arrays import Array
from agewise.learning.learner import Accuracy
from agewise.records import record


@record
class Mean:
    """The mean of the records' values; the paper's learner."""

    kind: ClassVar[str] = "mean"

    def table(self, states: Array) -> Array:
        return states[:, None]

    def weights(self, states: Array) -> Array:  # noqa: ARG002
        return np.ones(1)

    def decode(
        self,
        aggregate: Array,
        states: Array,  # noqa: ARG002
        accuracy: Accuracy | None = None,  # noqa: ARG002
    ) -> float:
        return float(aggregate[0])

    def labels(self, states: Array) -> list[str]:  # noqa: ARG002
        return ["mean"]

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "mean"}
