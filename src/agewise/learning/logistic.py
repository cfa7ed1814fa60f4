"""Logistic regression by clipped gradients, a step in each round; softmax for several classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from agewise.arrays import Array
from agewise.checks import finite_array, positive, whole
from agewise.errors import InvalidInput
from agewise.learning.labelled import Labelled, Labels
from agewise.learning.learner import Accuracy
from agewise.records import Numbers, Positive, Rows, Words, call, plain

LARGEST_COEFFICIENT = 1e100
"""Coefficients are multiplied by features; beyond this floats overflow."""
PENALTY = 0.01
"""What half the squared length of the coefficients counts beside the loss, unless said."""
_ULP = float(np.finfo(float).eps)
Size = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class Progress:
    """Where training stands after so many `rounds`: the last iterate, and the mean of all of them.

    `spread` is what noise of the known variance has made of one coordinate: the variance of the
    iterate, its covariance with the mean, and the variance of the mean.
    """

    coefficients: tuple[float, ...]  #: the last iterate
    average: tuple[float, ...]  #: the mean of all iterates
    rounds: int
    spread: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def step(self, gradient: Array, rate: float, penalty: float, variance: float) -> Progress:
        """A step against a gradient with noise of this variance on each coordinate.

        Both steps and means are linear in the noise, which is carried along.
        """
        share, kept = average_share(self.rounds + 1), 1 - rate * penalty
        now = np.clip(
            kept * np.asarray(self.coefficients) - rate * gradient,
            -LARGEST_COEFFICIENT,
            LARGEST_COEFFICIENT,
        )
        mean = (1 - share) * np.asarray(self.average) + share * now
        own, shared, averaged = self.spread
        moved, crossed = kept**2 * own + rate**2 * variance, kept * shared
        spread = (
            moved,
            (1 - share) * crossed + share * moved,
            (1 - share) ** 2 * averaged + 2 * share * (1 - share) * crossed + share**2 * moved,
        )
        return Progress(tuple(now.tolist()), tuple(mean.tolist()), self.rounds + 1, spread)


@dataclass(frozen=True)
class LogisticModel:
    """What was learnt: `vector` has a row of coefficients and an intercept for each class.

    For two classes there is one row, for the second of them. `standard_error` is that of each
    coefficient and intercept. It covers the noise of all rounds, not the drawing of the records,
    and takes the records' pull back to the optimum as nothing, so that it is rather too large.
    """

    classes: tuple[Any, ...]  #: the labels that it tells apart
    names: tuple[str, ...]  #: those of the features
    vector: tuple[float, ...]
    standard_error: float
    rounds: int  #: gradient steps behind it

    @property
    def coefficients(self) -> Array:
        """One per feature, `[p]`; for more than two classes `[classes, p]`."""
        rows = self._rows[:, :-1]
        return rows[0] if len(self.classes) == 2 else rows

    @property
    def intercept(self) -> float | Array:
        """A number; for more than two classes one for each."""
        column = self._rows[:, -1]
        return float(column[0]) if len(self.classes) == 2 else column

    @property
    def standard_errors(self) -> Array:
        """The standard error of each of the coefficients."""
        return np.full(self.coefficients.shape, self.standard_error)

    @property
    def _rows(self) -> Array:
        return np.reshape(self.vector, (-1, len(self.names) + 1))

    def predict_probability(self, features: ArrayLike) -> Array:
        """The probability of each class, `[n, classes]`."""
        rows = finite_array("features", features, "one row of finite numbers each")
        rows = rows[:, None] if rows.ndim == 1 else rows
        if rows.ndim != 2 or rows.shape[1] != len(self.names):
            raise InvalidInput(
                "features", f"of shape {rows.shape}", f"{len(self.names)} columns, one per feature"
            )
        return np.exp(_log_probabilities(with_intercept(rows), self._rows))

    def predict(self, features: ArrayLike) -> NDArray[Any]:
        """The likeliest class of each row."""
        likeliest = self.predict_probability(features).argmax(axis=1)
        return np.asarray(np.asarray(self.classes)[likeliest])

    def loss(self, features: ArrayLike, labels: ArrayLike) -> float:
        """The mean log loss, in nats."""
        chance = self.predict_probability(features)
        places = self._places(labels, len(chance))
        own = np.maximum(chance[np.arange(len(chance)), places], np.finfo(float).tiny)
        return float(-np.log(own).mean())

    def accuracy(self, features: ArrayLike, labels: ArrayLike) -> float:
        """The share of rows whose class is predicted rightly."""
        chance = self.predict_probability(features)
        return float((chance.argmax(axis=1) == self._places(labels, len(chance))).mean())

    def _places(self, labels: ArrayLike, count: int) -> NDArray[np.intp]:
        given = np.asarray(labels).ravel().tolist()
        if len(given) != count:
            raise InvalidInput("labels", f"{len(given)} labels", f"{count}, one per row")
        known = {label: place for place, label in enumerate(self.classes)}
        for row, label in enumerate(given):
            if label not in known:
                raise InvalidInput(
                    f"labels[{row}]", repr(label), ", ".join(map(repr, self.classes))
                )
        return np.array([known[label] for label in given], dtype=np.intp)

    def to_dict(self) -> dict[str, Any]:
        """The model as plain data."""
        return {
            "classes": list(self.classes),
            "names": list(self.names),
            "coefficients": self.coefficients.tolist(),
            "intercept": np.asarray(self.intercept).tolist(),
            "standard_error": self.standard_error,
            "rounds": self.rounds,
        }


@dataclass(frozen=True, init=False)
class Logistic:
    """A classifier of what states stand for, trained by a gradient step in each round.

    The row of a state is the gradient of its log loss at the coefficients so far, scaled down to
    length `clip` in `norm` (1 fits Laplace noise, 2 Gaussian noise) where it is longer. The server
    steps against the mean of them, with `rate`/√k in round k (default: by the lengths of the
    features), `penalty` times the coefficients added, and keeps the mean of all
    iterates, the later ones counted more. `coefficients` are those to start from (default: 0), a
    row per class and the intercept last. `progress` is where training stands.

    Guarantees
        Two rows are never further apart than `reach`, whatever finite coefficients a server sends.
    """

    known: Labelled  #: features and label of each state
    clip: float
    rate: float | None
    penalty: float
    coefficients: tuple[float, ...] | None
    norm: Literal[1, 2]
    progress: Progress | None
    kind: ClassVar[str] = "logistic"

    def __init__(
        self,
        features: Rows,
        labels: Labels,
        clip: Positive = 1.0,
        rate: Positive | None = None,
        penalty: Size = PENALTY,
        coefficients: Numbers | None = None,
        names: Words | None = None,
        norm: Literal[1, 2] = 1,
        progress: Progress | None = None,
    ) -> None:
        known = Labelled(features, labels, names)
        if len(known.classes) < 2:
            raise InvalidInput("labels", f"{known.classes[0]!r} only", "2 classes or more")
        if isinstance(norm, np.ndarray) or norm not in (1, 2):
            raise InvalidInput("norm", norm, "1 or 2", "1 fits Laplace noise, 2 Gaussian noise.")
        self._set("known", known)
        self._set("clip", positive("clip", clip))
        self._set("rate", None if rate is None else positive("rate", rate))
        self._set("penalty", positive("penalty", penalty, with_zero=True))
        self._set("norm", norm)
        start = None if coefficients is None else self._checked("coefficients", coefficients)
        self._set("coefficients", start)
        if isinstance(progress, dict):  # of a file
            progress = call(Progress, progress, "progress.")
        self._set("progress", None if progress is None else self._checked_progress(progress))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _at(self, progress: Progress | None) -> Logistic:
        """The same learner at another point of its training."""
        return Logistic(
            self.known.features,
            self.known.labels,
            self.clip,
            self.rate,
            self.penalty,
            self.coefficients,
            self.known.names,
            self.norm,
            progress,
        )

    def _checked(self, name: str, given: ArrayLike) -> tuple[float, ...]:
        """Coefficients that fit: anything else a server might send is refused."""
        wanted = f"{self._width} finite numbers, an intercept after each class's coefficients"
        values = finite_array(name, given, wanted).ravel()
        if values.size != self._width:
            raise InvalidInput(name, f"{values.size} numbers", wanted)
        if np.abs(values).max() > LARGEST_COEFFICIENT:
            largest = float(np.abs(values).max())
            raise InvalidInput(name, largest, f"up to {LARGEST_COEFFICIENT:g} in size")
        return tuple(values.tolist())

    def _checked_progress(self, given: Progress) -> Progress:
        spread = finite_array("progress.spread", given.spread, "3 finite numbers")
        if spread.shape != (3,):
            raise InvalidInput("progress.spread", f"{spread.size} numbers", "3")
        own, shared, averaged = spread.tolist()
        return Progress(
            self._checked("progress.coefficients", given.coefficients),
            self._checked("progress.average", given.average),
            whole("progress.rounds", given.rounds, 1),
            (own, shared, averaged),
        )

    @cached_property
    def _inputs(self) -> Array:
        return with_intercept(self.known.rows)

    @cached_property
    def _classes(self) -> tuple[Any, ...]:
        return tuple(self.known.classes)

    @cached_property
    def _hits(self) -> Array:
        return class_hits(self.known.targets, self._classes)

    @cached_property
    def _width(self) -> int:
        return int(self._hits.shape[1] * self._inputs.shape[1])

    @property
    def current(self) -> Array:
        """The coefficients at which the next gradients are taken, `[d]`."""
        if self.progress is not None:
            return np.asarray(self.progress.coefficients)
        return np.zeros(self._width) if self.coefficients is None else np.asarray(self.coefficients)

    def gradients(self, coefficients: Array) -> Array:
        """The gradient of each state's log loss, not clipped, `[S, d]`."""
        return gradients_of(self._inputs, self._hits, coefficients)

    def clipped(self, coefficients: Array) -> Array:
        """The same, none of them longer than the clip."""
        return clipped_rows(self.gradients(coefficients), self.clip, self.norm)

    def table(self, states: Array) -> Array:
        if len(self._inputs) != states.size:
            raise InvalidInput(
                "features",
                f"{len(self._inputs)} rows",
                f"{states.size} rows, one per state of every client",
            )
        return self.clipped(self.current)

    def reach(self, norm: Literal[1, 2]) -> float:
        """No two rows are further apart in this norm, whatever the coefficients."""
        off = 1.0 if len(self._classes) == 2 else {1: 2.0, 2: math.sqrt(2.0)}[self.norm]
        longest = off * float(np.linalg.norm(self._inputs, self.norm, axis=1).max())
        wider = math.sqrt(self._width) if norm < self.norm else 1.0  # ‖x‖₁ ≤ √d‖x‖₂, ‖x‖₂ ≤ ‖x‖₁
        room = 1 + 4 * (self._width + len(self._inputs) + 8) * _ULP
        return 2 * wider * min(self.clip, longest) * room

    def weights(self, states: Array) -> Array:  # noqa: ARG002
        return np.ones(self._width)

    @cached_property
    def usual_rate(self) -> float:
        """Four over the largest curvature: over √k, steps that no law makes diverge after k = 4."""
        longest = float(np.square(self._inputs).sum(axis=1).max())
        return (16.0 if len(self._classes) == 2 else 8.0) / longest

    def rate_in(self, number: int) -> float:
        """The step of round `number`, from 1."""
        return (self.usual_rate if self.rate is None else self.rate) / math.sqrt(number)

    def step(self, aggregate: ArrayLike, variance: float = 0.0) -> Logistic:
        """The learner of the next round, after a mean gradient with noise of this variance."""
        gradient = finite_array("aggregate", aggregate, f"{self._width} finite numbers").ravel()
        if gradient.size != self._width:
            raise InvalidInput("aggregate", f"{gradient.size} numbers", f"{self._width} numbers")
        before = self.progress or Progress(tuple(self.current.tolist()), (0.0,) * self._width, 0)
        after = before.step(gradient, self.rate_in(before.rounds + 1), self.penalty, variance)
        return self._at(after)

    def untrained(self) -> Logistic:
        """The same learner before its first round."""
        return self if self.progress is None else self._at(None)

    @property
    def model(self) -> LogisticModel:
        """What has been learnt so far."""
        done = self.progress
        vector = tuple(self.current.tolist()) if done is None else done.average
        error = 0.0 if done is None else math.sqrt(max(0.0, done.spread[2]))
        count = 0 if done is None else done.rounds
        return LogisticModel(self._classes, tuple(self.known.feature_names), vector, error, count)

    def decode(
        self,
        aggregate: Array,
        states: Array,  # noqa: ARG002
        accuracy: Accuracy | None = None,  # noqa: ARG002  (known from the noise of the rounds)
    ) -> LogisticModel:
        return self.step(aggregate).model

    def labels(self, states: Array) -> list[str]:  # noqa: ARG002
        inputs = [*self.known.feature_names, "intercept"]
        if len(self._classes) == 2:
            return inputs
        return [f"{label}: {name}" for label in self._classes for name in inputs]

    def to_dict(self) -> dict[str, Any]:
        own = plain(self)
        return {"kind": self.kind, **own.pop("known"), **own}


def average_share(number: int) -> float:
    """What iterate k counts in the mean of the first k, each counted in proportion to its place."""
    return 2 / (number + 1)


def gradients_of(inputs: Array, hits: Array, coefficients: Array) -> Array:
    """The gradient of the log loss of each row, `[n, d]`; `hits` is 1 where a row has a class."""
    rows = coefficients.reshape(hits.shape[1], -1)
    chance = np.exp(_log_probabilities(inputs, rows))
    off = (chance[:, 1:] if len(rows) == 1 else chance) - hits
    return np.asarray((off[:, :, None] * inputs[:, None]).reshape(len(off), -1))


def clipped_rows(rows: Array, clip: float, norm: Literal[1, 2]) -> Array:
    """Rows scaled down to length `clip` where they are longer."""
    length = np.linalg.norm(rows, norm, axis=1, keepdims=True)
    return np.asarray(rows * np.where(length > clip, clip / np.maximum(length, clip), 1.0))


def class_hits(labels: NDArray[Any], classes: Sequence[Any]) -> Array:
    """1 where a row has a class, `[n, classes]`; of two classes the second one only."""
    hits = labels[:, None] == np.asarray(classes)
    return np.asarray(hits[:, -1:] if len(classes) == 2 else hits, dtype=float)


def with_intercept(rows: Array) -> Array:
    """Rows with a 1 at the end of each."""
    return np.hstack([rows, np.ones((len(rows), 1))])


def _log_probabilities(inputs: Array, rows: Array) -> Array:
    """Log probabilities of the classes `[n, K]`; one row of coefficients: of two classes."""
    scores = inputs @ rows.T
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    scores = scores - scores.max(axis=1, keepdims=True)
    return np.asarray(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))
