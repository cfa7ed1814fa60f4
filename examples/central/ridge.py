"""Ridge regression on records that are nobody's states: fresh, classical privacy, no ageing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from agewise.arrays import Array
from agewise.checks import finite_array, fraction, positive
from agewise.errors import InvalidInput, quoted
from agewise.learning.labelled import checked_matrix, checked_names
from agewise.learning.learner import Accuracy
from agewise.learning.ridge import PENALTY
from agewise.learning.ridge_model import EMPHASIS, RidgeModel, Scaling, entries, solve
from agewise.mechanism import MECHANISMS, Noised

ANGLES = 4096
"""Angles between two rows at which the reach is evaluated; its slope bounds it in between."""
ROUNDING = 1e-9
"""Relative room for the rounding of scaled rows, and of what is computed from them."""


def fit_ridge(
    features: ArrayLike,
    labels: ArrayLike,
    *,
    bounds: tuple[ArrayLike, ArrayLike],
    label_bounds: tuple[float, float],
    epsilon: float,
    delta: float | None = None,
    penalty: float = PENALTY,
    names: Sequence[str] | None = None,
    rng: np.random.Generator | None = None,
) -> RidgeModel:
    """Fit a ridge regression to records: `epsilon`-DP, or with `delta` (`epsilon`, `delta`)-DP.

    `bounds` are the least and the largest value of each feature, `label_bounds` those of a label:
    public knowledge, never taken from the records. Records are moved into them, and rows that are
    longer than √((p + 2)/3), with features scaled to −1..1, are shortened to that: few are. With
    `rng` the noise is a seeded stand-in, and the model **not** private.

    Guarantees
        Replacing one record moves what is released by at most `record_reach`/n in the norm of the
        mechanism, whatever the records say. Their number n is taken as public.

    >>> rng = np.random.default_rng(1)
    >>> x = rng.uniform(0, 10, 2000)
    >>> model = fit_ridge(x, 3 * x + 5, bounds=(0, 10), label_bounds=(0, 40), epsilon=1, rng=rng)
    >>> round(float(model.predict([4.0])[0]))
    17
    """
    rows = checked_matrix("features", features)
    width = rows.shape[1]
    words = checked_names(names, width) or tuple(f"x{k + 1}" for k in range(width))
    low, high = _bounds("bounds", bounds, width)
    least, most = _bounds("label_bounds", label_bounds, 1)
    scaling = Scaling.within(low, high, least[0], most[0]).reaching(math.sqrt((width + 2) / 3))
    weight, given = positive("penalty", penalty), finite_array("labels", labels, "finite numbers")
    if given.shape != (len(rows),):
        raise InvalidInput("labels", f"of shape {given.shape}", f"{len(rows)} numbers, one per row")
    scaled = scaling.scaled(np.clip(rows, low, high))
    scaled_labels = scaling.scaled_labels(np.clip(given, least, most))
    noised = release_sums(scaled, scaled_labels, epsilon, delta, rng)
    mechanism = MECHANISMS["laplace" if delta is None else "gaussian"]
    sums = np.asarray(noised.value, dtype=np.float64)
    noise = np.full(sums.size, float(mechanism.variance(np.asarray(noised.scale))))
    return solve(sums, scaling, weight, words, Accuracy(noise, np.diag(noise)))


def release_sums(
    features: Array,
    labels: Array,
    epsilon: float,
    delta: float | None = None,
    rng: np.random.Generator | None = None,
) -> Noised:
    """Release the mean entries of records, scaled; rows longer than 1 are shortened to 1.

    Guarantees
        Labels count as −1..1 and rows as of length 1 at most, so that replacing one record moves
        the mean by at most `record_reach`/n in the norm of the mechanism; the noise is for that.
    """
    rows = features / np.maximum(1.0, np.linalg.norm(features, axis=1, keepdims=True))
    told = entries(rows, np.clip(labels, -1.0, 1.0))
    mean = np.array([math.fsum(column) for column in told.T.tolist()]) / len(rows)
    mechanism = MECHANISMS["laplace" if delta is None else "gaussian"]
    failure = 0.0 if delta is None else fraction("delta", delta)
    # The sums are exact; dividing them and rounding twice is off by less than the second part.
    reach = record_reach(rows.shape[1], mechanism.norm) / len(rows)
    reach += mean.size * 4 * float(np.spacing(EMPHASIS))
    wanted = np.asarray(positive("epsilon", epsilon))
    scale = float(mechanism.calibrate(np.asarray(reach), wanted, np.asarray(failure)))
    if rng is None:
        return mechanism.draw(mean, sensitivity=reach, scale=scale, failure=failure)
    return mechanism.imitate(mean, scale=scale, rng=rng)


def record_reach(width: int, norm: Literal[1, 2]) -> float:
    """Return how far apart the entries of two records can be, rows of length 1 at most.

    Guarantees
        Never too small. For rows x, x′ with x·x′ = c, ‖x − x′‖² ≤ 2 − 2c, ‖x + x′‖² ≤ 2 + 2c and
        ‖xxᵀ − x′x′ᵀ‖² ≤ 2 − 2c², all of them attained by rows of length 1. Entries are convex in
        the label, so the worst are −1 and 1. An ℓ1 norm is at most √(entries) times the ℓ2 norm.
    """
    angle = np.linspace(0, math.pi / 2, ANGLES)  # half of that between the rows
    apart, together, squares = (
        2 * np.sin(angle),
        2 * np.cos(angle),
        math.sqrt(2) * np.sin(2 * angle),
    )
    linear, both, products = (
        (math.sqrt(2 * width), math.sqrt(width * (width + 1) / 2), EMPHASIS * math.sqrt(width))
        if norm == 1
        else (math.sqrt(2), 1.0, EMPHASIS)
    )
    one = np.stack([linear * apart, both * squares, products * apart])  # the same label
    other = np.stack([linear * apart, both * squares, products * together])  # −1 and 1
    middle = 2 * EMPHASIS * np.ones(ANGLES)
    if norm == 1:
        far = np.maximum(one.sum(axis=0), other.sum(axis=0) + middle)
    else:
        far = np.sqrt(np.maximum((one**2).sum(axis=0), (other**2).sum(axis=0) + middle**2))
    steepest = 2 * (linear + products) + 2 * math.sqrt(2) * both
    between = steepest * (math.pi / 2) / (ANGLES - 1) / 2
    return float((far.max() + between) * (1 + ROUNDING))


def _bounds(field: str, given: tuple[ArrayLike, ArrayLike], width: int) -> tuple[Array, Array]:
    """The least and the largest value of each column."""
    allowed = f"(least, largest), one number each or {width}, the least below the largest"
    try:
        low, high = (np.broadcast_to(finite_array(field, one, allowed), width) for one in given)
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(field, quoted(given), allowed) from None
    if not (low < high).all():
        raise InvalidInput(field, quoted(given), allowed, "Take them from what is publicly known.")
    return low, high
