"""What the states of a process stand for in a model: features and a label each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array
from agewise.checks import finite_array, several
from agewise.errors import InvalidInput, quoted
from agewise.records import Read, Rows, Words, list_of, record

LARGEST_ENTRY = 1e30
"""Losses are of the fourth order in the entries; beyond this floats overflow."""
LEAST_RANGE = 1e-9
"""A feature that varies by less than this share of its size is constant, but for rounding."""


Labels = Annotated[ArrayLike, Read(lambda given: given, lambda: list_of(1, {}))]
"""Numbers, or words for classes; whoever takes them checks that."""


@record
class Labelled:
    """Row k of `features` `[S, p]` and `labels[k]` are what the k-th state of a process stands for.

    Labels are numbers, or words for classes; `names` are those of the features (default: x1, x2,
    ...). No column may be constant: models add their own intercept.
    """

    features: Rows
    labels: Labels
    """One per state."""
    names: Words | None = None

    def __post_init__(self) -> None:
        rows = checked_matrix("features", self.features)
        if len(rows) < 2:
            raise InvalidInput("features", f"{len(rows)} state", "2 states or more, one row each")
        object.__setattr__(self, "features", tuple(map(tuple, rows.tolist())))
        object.__setattr__(self, "names", checked_names(self.names, rows.shape[1]))
        _refuse_constant(rows, self.feature_names)
        labels = _column("labels", self.labels, len(rows))
        object.__setattr__(self, "labels", tuple(labels.tolist()))

    @property
    def rows(self) -> Array:
        """The features of each state, `[S, p]`."""
        return np.asarray(self.features)

    @property
    def targets(self) -> NDArray[np.float64] | NDArray[np.str_]:
        """The label of each state, `[S]`."""
        return np.asarray(self.labels)

    @property
    def classes(self) -> list[float] | list[str]:
        """The labels that occur, each once, in rising order."""
        return list(np.unique(self.targets).tolist())

    @property
    def feature_names(self) -> list[str]:
        """A name for each feature."""
        if self.names is None:
            return [f"x{k + 1}" for k in range(self.rows.shape[1])]
        return list(self.names)

    def nearest(
        self, features: ArrayLike, labels: ArrayLike, *, classes: bool = False
    ) -> NDArray[np.intp]:
        """Return the place of the state nearest to each record, of equally near ones the first.

        Distances are Euclidean, each feature and the label divided by its range over the states.
        With `classes`, or labels that are words, only states with the record's own label count.
        """
        given = checked_matrix("features", features)
        if given.shape[1] != self.rows.shape[1]:
            raise InvalidInput(
                "features", f"of {given.shape[1]} columns", f"{self.rows.shape[1]}, as the states"
            )
        wanted = _column("labels", labels, len(given))
        exact = classes or self.targets.dtype.kind == "U"
        if exact or wanted.dtype.kind == "U":
            self._refuse_outside(wanted)
        columns = [*zip(given.T, self.rows.T, strict=True)]
        if not exact:
            columns.append((wanted, self.targets))
        distance = np.zeros((len(given), len(self.rows)))
        for own, state in columns:
            width = float(np.ptp(state)) or 1.0
            distance += ((own[:, None] - state) / width) ** 2
        if exact:
            distance[wanted[:, None] != self.targets] = np.inf
        return np.asarray(distance.argmin(axis=1), dtype=np.intp)

    def _refuse_outside(self, labels: NDArray[np.float64] | NDArray[np.str_]) -> None:
        known = set(self.classes)
        for row, label in enumerate(labels.tolist()):
            if label not in known:
                raise InvalidInput(
                    f"labels[{row}]", repr(label), ", ".join(map(repr, self.classes))
                )


def checked_matrix(field: str, given: ArrayLike) -> Array:
    """Finite numbers in rows, a single column where there is one number per row."""
    rows = finite_array(field, given, "one row of finite numbers each")
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2:
        raise InvalidInput(field, f"of shape {rows.shape}", "one row of finite numbers each")
    _refuse_huge(field, rows)
    return rows


def _column(field: str, given: ArrayLike, size: int) -> NDArray[np.float64] | NDArray[np.str_]:
    """One label per row: all of them finite numbers, or all of them words."""
    allowed = f"{size} labels, one per row: numbers, or words"
    plain = np.asarray(given, dtype=object)
    labels: NDArray[np.float64] | NDArray[np.str_]
    if plain.size > 0 and all(isinstance(label, str) for label in plain.ravel()):
        labels = plain.astype(np.str_)
    else:
        labels = numbers = finite_array(field, given, allowed)
        _refuse_huge(field, numbers)
    if labels.shape != (size,):
        raise InvalidInput(field, f"of shape {labels.shape}", allowed)
    return labels


def _refuse_huge(field: str, numbers: Array) -> None:
    largest = float(np.abs(numbers).max())
    if largest > LARGEST_ENTRY:
        raise InvalidInput(field, largest, f"up to {LARGEST_ENTRY:g} in size", "Rescale it.")


def _refuse_constant(rows: Array, names: Sequence[str]) -> None:
    flat = np.ptp(rows, axis=0) <= LEAST_RANGE * np.abs(rows).max(axis=0)
    if flat.any():
        where = int(np.flatnonzero(flat)[0])
        raise InvalidInput(
            f"feature {names[where]!r}",
            f"{float(rows[0, where]):g} in every state",
            "features that differ between states",
            "Leave it out: an intercept is added by itself.",
        )


def checked_names(names: Sequence[str] | None, width: int) -> tuple[str, ...] | None:
    """Names of features, all different; None stays None."""
    if names is None:
        return None
    allowed = f"{width} different words, one per feature"
    words = (names,) if isinstance(names, str) else several("names", names, allowed)
    if len(words) != width or not all(isinstance(n, str) for n in words) or len(set(words)) < width:
        raise InvalidInput("names", quoted(words), allowed)
    return words
