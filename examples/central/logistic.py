"""Logistic regression on records as they are: no states, no ageing, classical privacy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from agewise.arrays import Array
from agewise.checks import finite_array, positive, whole
from agewise.errors import InvalidInput, quoted
from agewise.learning.logistic import (
    LogisticModel,
    Progress,
    class_hits,
    clipped_rows,
    gradients_of,
    with_intercept,
)
from agewise.mechanism import MECHANISMS

MOST_ROUNDS = 30
_ULP = float(np.finfo(float).eps)


@dataclass(frozen=True)
class PrivateFit:
    """A model, and the classical (ε, δ) of all its rounds together, by OpenDP's own maps.

    A neighbour has another record in the place of one. `scale` is that of the noise in each of the
    rounds, on every coordinate of the mean of gradients no longer than `clip`.
    """

    model: LogisticModel  #: what was learnt
    epsilon: float  #: the ε of all rounds together
    delta: float  #: the δ that goes with it
    scale: float
    clip: float


def fit_logistic(
    features: ArrayLike,
    labels: ArrayLike,
    *,
    classes: Sequence[Any],
    bound: float,
    epsilon: float,
    delta: float | None = None,
    rounds: int | None = None,
    clip: float | None = None,
    rate: float | None = None,
    penalty: float = 0.0,
    names: Sequence[str] | None = None,
) -> PrivateFit:
    """Fit a model to private records by noised full-batch gradients; Laplace, or with δ Gaussian.

    `classes` and `bound` are public: what the labels can be, and the length (ℓ2) to which longer
    rows of features are scaled down. So is the number of records n. By default there are
    ε·n/(10·d) rounds, at least 1 and at most 30, gradients are clipped to a tenth of the bound
    (times √d in ℓ1, for Laplace noise), and the first step is 2/(bound/10) long per unit.

    Guarantees
        (ε, δ)-differential privacy for replacing one record, whatever the records say: all rounds
        share ε; Gaussian ones compose as one release of √rounds times the sensitivity.

    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=(2000, 2))
    >>> y = np.where(x[:, 0] + x[:, 1] > 0, "up", "down")
    >>> fit = fit_logistic(x, y, classes=("down", "up"), bound=3.0, epsilon=1.0)
    >>> fit.model.accuracy(x, y) > 0.9, fit.epsilon <= 1.0
    (True, True)
    """
    inputs, hits, known = _checked_records(features, labels, classes, positive("bound", bound))
    size, width = len(inputs), hits.shape[1] * inputs.shape[1]
    target = positive("epsilon", epsilon)
    mechanism = MECHANISMS["laplace" if delta is None else "gaussian"]
    if delta is not None and not 0 < delta < 1:
        raise InvalidInput("delta", delta, "above 0 and below 1, or none for Laplace noise")
    usual = min(max(round(target * size / (10 * width)), 1), MOST_ROUNDS)
    count = usual if rounds is None else whole("rounds", rounds, 1)
    norm: Literal[1, 2] = mechanism.norm
    tenth = bound / 10
    longest = tenth * math.sqrt(width if norm == 1 else 1)
    longest = longest if clip is None else positive("clip", clip)
    first = 2 / tenth if rate is None else positive("rate", rate)
    held = positive("penalty", penalty) if penalty != 0 else 0.0
    words = tuple(names or [f"x{k + 1}" for k in range(inputs.shape[1] - 1)])
    if len(words) != inputs.shape[1] - 1:
        raise InvalidInput("names", quoted(words), f"{inputs.shape[1] - 1} words, one per feature")
    reach = 2 * longest / size * (1 + 8 * (width + 8) * _ULP) + 8 * width * np.spacing(longest)
    shared = reach * (1 if norm == 1 else math.sqrt(count) * (1 + 4 * _ULP))
    each = target / count * (1 - 4 * _ULP) if norm == 1 else target
    failure = delta or 0.0
    scale = float(mechanism.calibrate(*map(np.asarray, (shared, each, failure))))
    variance = float(mechanism.variance(np.asarray(scale)))
    done = Progress((0.0,) * width, (0.0,) * width, 0)
    for number in range(1, count + 1):
        rows = clipped_rows(
            gradients_of(inputs, hits, np.asarray(done.coefficients)), longest, norm
        )
        mean = np.array([math.fsum(column) for column in rows.T.tolist()]) / size
        noised = mechanism.draw(mean, sensitivity=shared, scale=scale, failure=failure)
        step = first / math.sqrt(number)
        done = done.step(np.asarray(noised.value), step, held, variance)
    spent = mechanism.certified(shared, scale, failure) * (count if norm == 1 else 1)
    error = math.sqrt(max(0.0, done.spread[2]))
    model = LogisticModel(known, words, done.average, error, count)
    return PrivateFit(model, spent, failure, scale, longest)


def _checked_records(
    features: ArrayLike, labels: ArrayLike, classes: Sequence[Any], bound: float
) -> tuple[Array, Array, tuple[Any, ...]]:
    """Inputs and classes of records, rows no longer than the bound; refuse what does not fit."""
    rows = finite_array("features", features, "one row of finite numbers per record")
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2:
        raise InvalidInput("features", f"of shape {rows.shape}", "one row of numbers per record")
    known = tuple(classes)
    if len(known) < 2 or len(set(known)) < len(known):
        raise InvalidInput("classes", quoted(known), "2 or more, all different")
    given = np.asarray(labels)
    if given.shape != (len(rows),):
        raise InvalidInput("labels", f"of shape {given.shape}", f"{len(rows)}, one per record")
    outside = ~np.isin(given, np.asarray(known))
    if outside.any():
        place = int(np.flatnonzero(outside)[0])
        allowed = ", ".join(map(repr, known))
        raise InvalidInput(f"labels[{place}]", repr(given[place].item()), allowed)
    return with_intercept(clipped_rows(rows, bound, 2)), class_hits(given, known), known
