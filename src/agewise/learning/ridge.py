"""Ridge regression from noised sums: the entries of x·xᵀ and x·y, averaged over the records."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from agewise.arrays import Array, frozen
from agewise.checks import finite_array, positive
from agewise.errors import InvalidInput
from agewise.learning.labelled import Labelled, Labels
from agewise.learning.learner import Accuracy
from agewise.learning.ridge_model import RidgeModel, Scaling, entries, entry_names, solve, unpack
from agewise.records import Numbers, Positive, Rows, Words, plain

PENALTY = 1e-3
"""What the squared size of the scaled slopes adds to the loss, if nothing is said."""


@dataclass(frozen=True, init=False)
class Ridge:
    """Predict a number from features; `known` says what the states of a process stand for.

    `penalty` weighs the squared size of the slopes, with features scaled so that the longest row
    has length 1 and labels scaled to −1..1. The loss is the excess of the penalised mean squared
    error, to second order about records whose shares of the states are the `reference` (default:
    the same share each): schedules are best for records that are like that.

    Guarantees
        Everything that is released of a record is a row of `table`, a function of its state alone.
    """

    known: Labelled
    penalty: float
    reference: tuple[float, ...] | None
    kind: ClassVar[str] = "ridge"

    def __init__(
        self,
        features: Rows,
        labels: Labels,
        penalty: Positive = PENALTY,
        names: Words | None = None,
        reference: Numbers | None = None,
    ) -> None:
        """Take the features `[S, p]` and the label `[S]` of each state, and names of features."""
        known = Labelled(features, labels, names)
        if known.targets.dtype.kind == "U" or len(known.classes) < 2:
            raise InvalidInput("labels", f"{known.classes}", "numbers, two different ones or more")
        object.__setattr__(self, "known", known)
        object.__setattr__(self, "penalty", positive("penalty", penalty))
        object.__setattr__(self, "reference", _shares(reference, len(known.rows)))

    @cached_property
    def scaling(self) -> Scaling:
        """How features and labels are scaled: by the states, which everybody knows."""
        rows, labels = self.known.rows, self._labels
        box = Scaling.within(rows.min(axis=0), rows.max(axis=0), labels.min(), labels.max())
        return box.reaching(float(np.linalg.norm(box.scaled(rows), axis=1).max()))

    @property
    def _labels(self) -> Array:
        return np.asarray(self.known.targets, dtype=np.float64)

    @cached_property
    def _table(self) -> Array:
        scaled = self.scaling.scaled_labels(self._labels)
        return frozen(entries(self.scaling.scaled(self.known.rows), scaled))

    @cached_property
    def _metric(self) -> Array:
        """(A + Λ)^(−½)·(δb − δA·θ) in units of labels, for an error (δA, δb) at the reference."""
        size, width = self._table.shape
        shares = np.full(size, 1 / size) if self.reference is None else np.array(self.reference)
        moments, products = unpack(shares @ self._table)
        moments[1:, 1:] += self.penalty * np.eye(len(products) - 1)
        values, vectors = np.linalg.eigh(moments)
        moved, shifted = unpack(np.eye(width), 0.0)
        error = shifted - moved @ np.linalg.solve(moments, products)
        return frozen(self.scaling.label_half * (vectors / np.sqrt(values)) @ vectors.T @ error.T)

    def table(self, states: Array) -> Array:
        if len(self._table) != states.size:
            raise InvalidInput(
                "learner.features",
                f"{len(self._table)} rows",
                f"{states.size} rows, one per state of every client",
            )
        return self._table

    def weights(self, states: Array) -> Array:  # noqa: ARG002
        return np.asarray(np.square(self._metric).sum(axis=0))

    def metric(self, states: Array) -> Array:  # noqa: ARG002
        return self._metric

    def decode(
        self,
        aggregate: Array,
        states: Array,  # noqa: ARG002
        accuracy: Accuracy | None = None,
    ) -> RidgeModel:
        names = tuple(self.known.feature_names)
        return solve(aggregate, self.scaling, self.penalty, names, accuracy)

    def labels(self, states: Array) -> list[str]:  # noqa: ARG002
        return entry_names(self.known.feature_names)

    def to_dict(self) -> dict[str, Any]:
        own = plain(self)
        return {"kind": self.kind, **own.pop("known"), **own}


def _shares(given: Numbers | None, size: int) -> tuple[float, ...] | None:
    if given is None:
        return None
    shares = finite_array("reference", given, f"{size} shares, one per state")
    if shares.shape != (size,) or (shares < 0).any() or abs(shares.sum() - 1) > 1e-6:
        raise InvalidInput(
            "reference", f"{shares.tolist()}", f"{size} shares, one per state, that add up to 1"
        )
    return tuple(shares.tolist())
