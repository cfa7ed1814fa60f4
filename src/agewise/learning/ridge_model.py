"""The sums that ridge regression needs, and the model that noised sums give.

With z = (1, x) of scaled features and a scaled label y, records are summed up by A = mean of z·zᵀ
and b = mean of z·y; the slopes solve (A + Λ)·θ = b. Entries off the diagonal of A, which count
twice, are released √2 times as large, so that distances are those of the matrices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from agewise.arrays import Array
from agewise.checks import finite_array
from agewise.errors import InvalidInput
from agewise.learning.learner import Accuracy
from agewise.report.tables import html_facts, shorten, text_facts

EMPHASIS = 1.5
"""How much larger than A the sums b are released: under much noise all rests on them."""
SPREAD = 2.0
"""The largest eigenvalue of a noise matrix, in roots of the variance in one of its rows."""


@dataclass(frozen=True)
class Scaling:
    """How features and labels are scaled: rows to length 1 at most, labels to −1..1."""

    centre: Array
    half: Array
    label_centre: float
    label_half: float

    @classmethod
    def within(cls, low: Array, high: Array, label_low: float, label_high: float) -> Scaling:
        """Features and labels scaled to −1..1 each, whatever the length of a row."""
        centre, half = low / 2 + high / 2, high / 2 - low / 2
        middle, width = label_low / 2 + label_high / 2, label_high / 2 - label_low / 2
        return cls(centre, half, float(middle), float(width))

    def reaching(self, length: float) -> Scaling:
        """The scaling by which rows of this length, as scaled now, have length 1."""
        return Scaling(self.centre, self.half * length, self.label_centre, self.label_half)

    def scaled(self, features: Array) -> Array:
        """Features `[n, p]` as scaled."""
        return np.asarray((features - self.centre) / self.half)

    def scaled_labels(self, labels: Array) -> Array:
        """Labels `[n]` as scaled."""
        return np.asarray((labels - self.label_centre) / self.label_half)


def entries(features: Array, labels: Array) -> Array:
    """Return what is released of each record `[n, d]`, from scaled features and labels.

    The upper triangle of z·zᵀ without its first entry, which is 1 for everybody, then z·y.
    """
    rows = np.column_stack([np.ones(len(features)), features])
    first, second = _places(rows.shape[1])
    squares = rows[:, first] * rows[:, second] * _scales(rows.shape[1])
    return np.column_stack([squares, EMPHASIS * rows * labels[:, None]])


def unpack(vectors: Array, first: float = 1.0) -> tuple[Array, Array]:
    """Return A `[..., q, q]` and b `[..., q]` of released vectors `[..., d]`.

    `first` is the entry of A that is not released: 1, or 0 for differences.
    """
    size = (math.isqrt(9 + 8 * (vectors.shape[-1] + 1)) - 3) // 2  # d = q(q + 1)/2 − 1 + q
    one, other = _places(size)
    moments = np.zeros((*vectors.shape[:-1], size, size))
    moments[..., 0, 0] = first
    moments[..., one, other] = vectors[..., : one.size] / _scales(size)
    moments[..., other, one] = moments[..., one, other]
    return moments, vectors[..., one.size :] / EMPHASIS


def entry_names(names: list[str]) -> list[str]:
    """A name for each entry, from those of the features."""
    words = ["1", *names]
    pairs = zip(*(place.tolist() for place in _places(len(words))), strict=True)
    squares = [words[j] if i == 0 else f"{words[i]}·{words[j]}" for i, j in pairs]
    return [*squares, "y", *(f"{name}·y" for name in names)]


def _places(size: int) -> tuple[Array, Array]:
    """Rows and columns of the upper triangle of A that are released."""
    first, second = np.triu_indices(size)
    return first[1:], second[1:]  # type: ignore[return-value]


def _scales(size: int) -> Array:
    first, second = _places(size)
    return np.where(first == second, 1.0, math.sqrt(2))


@dataclass(frozen=True)
class RidgeModel:
    """A fitted ridge regression, in the units of features and labels.

    `standard_errors` (of the coefficients) and `intercept_error` come from the noise and the age
    of the data, by the delta method at the penalty used; None where nothing is known of them.
    `regularisation` is that penalty, on scaled features and labels. `note` says in words how far
    noise drowned the statistics; empty if it did not. `labels_within` is known of the labels.
    """

    names: tuple[str, ...]  #: those of the features
    coefficients: tuple[float, ...]  #: one per feature
    intercept: float  #: the label where all features are 0
    standard_errors: tuple[float, ...] | None
    intercept_error: float | None
    regularisation: float
    labels_within: tuple[float, float]
    note: str = ""

    def predict(self, features: ArrayLike) -> Array:
        """The label expected of each row of features, kept within what labels can be."""
        rows = finite_array("features", features, "one row of finite numbers each")
        rows = rows[:, None] if rows.ndim == 1 and len(self.names) == 1 else np.atleast_2d(rows)
        if rows.ndim != 2 or rows.shape[1] != len(self.names):
            raise InvalidInput(
                "features", f"of shape {rows.shape}", f"{len(self.names)} numbers per row"
            )
        expected: Array = self.intercept + rows @ np.array(self.coefficients)
        return expected.clip(*self.labels_within)

    def loss(self, features: ArrayLike, labels: ArrayLike) -> float:
        """The mean squared error of the predictions for these labels."""
        expected = self.predict(features)
        given = finite_array("labels", labels, "one finite number per row")
        if given.shape != expected.shape:
            raise InvalidInput("labels", f"of shape {given.shape}", f"shape {expected.shape}")
        return float(np.square(expected - given).mean())

    def facts(self) -> list[tuple[str, str]]:
        """Each coefficient with its standard error, and what noise has done."""
        values = [self.intercept, *self.coefficients]
        errors = [self.intercept_error, *(self.standard_errors or [None] * len(self.names))]
        facts = [
            (name, f"{value:.4g}" + ("" if error is None else f" ± {error:.2g}"))
            for name, value, error in zip(["intercept", *self.names], values, errors, strict=True)
        ]
        facts.append(("regularisation", f"{self.regularisation:.3g}"))
        return [*facts, ("note", self.note)] if self.note else facts

    def to_dict(self) -> dict[str, Any]:
        """The model as plain data."""
        return {
            "names": list(self.names),
            "coefficients": list(self.coefficients),
            "intercept": self.intercept,
            "standard_errors": None if self.standard_errors is None else list(self.standard_errors),
            "intercept_error": self.intercept_error,
            "regularisation": self.regularisation,
            "note": self.note,
        }

    def __repr__(self) -> str:
        slopes = ", ".join(
            f"{name} {value:.4g}" for name, value in zip(self.names, self.coefficients, strict=True)
        )
        return f"RidgeModel({shorten(slopes, 120)}, intercept {self.intercept:.4g})"

    def __str__(self) -> str:
        return text_facts(self.facts())

    def _repr_html_(self) -> str:
        return html_facts(self.facts())


def solve(
    aggregate: Array,
    scaling: Scaling,
    penalty: float,
    names: tuple[str, ...],
    accuracy: Accuracy | None,
) -> RidgeModel:
    """Make the model of noised sums, with as much regularisation as their noise asks for.

    In the manner of AdaSSP (Wang 2018, Algorithm 2): every eigenvalue of A + Λ is lifted to the
    size that noise alone can give one, from the smallest of the noised matrix itself. All of it is
    a function of what was released and of the noise that everybody knows: post-processing.
    """
    moments, products = unpack(np.asarray(aggregate, float))
    size, level = len(products), 0.0
    if accuracy is not None:
        variance = np.square(unpack(np.sqrt(accuracy.noise), 0.0)[0])
        level = SPREAD * math.sqrt(variance.sum(axis=1).max())
    ridge = penalty * np.diag([0.0, *np.ones(size - 1)])
    values: Array = np.linalg.eigvalsh(moments + ridge).astype(np.float64)
    # Without noise no eigenvalue is below that, for rows have length 1 at most.
    least = min(penalty, 1.0) / 4
    lift = max(0.0, max(level, least) - float(values[0]))
    inverse = np.linalg.inv(moments + ridge + lift * np.eye(size))
    found = inverse @ products
    to_units = _to_units(scaling)
    fitted = to_units @ found
    errors = None
    if accuracy is not None:
        moved, shifted = unpack(np.eye(len(aggregate)), 0.0)
        slopes = to_units @ inverse @ (shifted - moved @ found).T  # d model / d aggregate
        errors = np.sqrt(np.einsum("id,de,ie->i", slopes, accuracy.error, slopes).clip(0.0))
    middle, half = scaling.label_centre, scaling.label_half
    return RidgeModel(
        names=names,
        coefficients=tuple(fitted[1:].tolist()),
        intercept=float(middle + fitted[0]),
        standard_errors=None if errors is None else tuple(errors[1:].tolist()),
        intercept_error=None if errors is None else float(errors[0]),
        regularisation=penalty + lift,
        labels_within=(middle - half, middle + half),
        note=_note(level, values),
    )


def _to_units(scaling: Scaling) -> Array:
    """The matrix that takes the scaled model to the units of features and labels."""
    matrix = np.diag([1.0, *(1 / scaling.half)])
    matrix[0, 1:] = -scaling.centre / scaling.half
    return np.asarray(scaling.label_half * matrix)


def _note(level: float, values: Array) -> str:
    """How far noise of this level drowned a matrix with these eigenvalues."""
    if level >= 1:  # the eigenvalues of the features' own part add up to 1 at most
        return (
            "the noise drowns the statistics: no feature can stand out of it, and predictions are "
            "drawn to the middle of the labels. Raise epsilon, or take more records."
        )
    drowned = int((values < level).sum())
    if drowned == 0:
        return ""
    return f"the noise drowns {drowned} of {len(values)} directions of the features: shrunk"
