"""How many of the records are in each state, and the quantiles that follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.errors import InvalidInput
from agewise.learning.learner import Accuracy
from agewise.records import record


@dataclass(frozen=True)
class Shares:
    """The share of records in each state, in rising order of the states, as estimated.

    Noise can make a share negative or above one; `cumulative` and `quantile` use the nearest
    thing that is a distribution: running totals made rising, between 0 and 1.
    """

    states: tuple[float, ...]  #: the values that a record can take
    shares: tuple[float, ...]  #: the share of the records in each of them

    @property
    def cumulative(self) -> NDArray[np.float64]:
        """The share of records up to each state."""
        rising = np.maximum.accumulate(np.clip(np.cumsum(self.shares), 0, 1))
        rising[-1] = 1.0
        return np.asarray(rising)

    def quantile(self, probability: float) -> float:
        """The least state that at least this share of the records does not exceed."""
        if not 0 < probability <= 1:
            raise InvalidInput("probability", probability, "above 0, up to 1")
        place = int(np.searchsorted(self.cumulative, probability - 1e-12))
        return self.states[min(place, len(self.states) - 1)]


@record
class Histogram:
    """The share of the records in each state of the process; every client has the same states."""

    kind: ClassVar[str] = "histogram"
    whole: ClassVar[bool] = True

    def table(self, states: Array) -> Array:
        return np.eye(states.size)

    def weights(self, states: Array) -> Array:
        return np.ones(states.size)

    def decode(
        self,
        aggregate: Array,
        states: Array,
        accuracy: Accuracy | None = None,  # noqa: ARG002
    ) -> Shares:
        order = np.argsort(states)
        return Shares(tuple(states[order].tolist()), tuple(aggregate[order].tolist()))

    def labels(self, states: Array) -> list[str]:
        return [f"{value:g}" for value in states.tolist()]

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "histogram"}
