"""What a client learns from its records and releases."""

from dataclasses import fields
from typing import Any

from agewise.errors import InvalidInput
from agewise.learning.fit_logistic import PrivateFit, fit_logistic
from agewise.learning.histogram import Histogram, Shares
from agewise.learning.labelled import Labelled
from agewise.learning.learner import (
    ESTIMATORS,
    Estimator,
    Learner,
    Trained,
    average,
    guard_table,
    guarded_sensitivities,
    mean_rounding,
    release_table,
    sensitivities,
)
from agewise.learning.logistic import Logistic, LogisticModel, Progress
from agewise.learning.mean import Mean
from agewise.learning.statistics import Statistics

__all__ = [
    "ESTIMATORS",
    "LEARNED",
    "Estimator",
    "Histogram",
    "Labelled",
    "Learner",
    "Logistic",
    "LogisticModel",
    "Mean",
    "PrivateFit",
    "Progress",
    "Shares",
    "Statistics",
    "Trained",
    "average",
    "fit_logistic",
    "guard_table",
    "guarded_sensitivities",
    "learner_of",
    "mean_rounding",
    "release_table",
    "sensitivities",
]

LEARNED = {
    "mean": "the mean of the records",
    "histogram": "the share of the records in each state",
    "statistics": "the mean of a vector for each state of a record",
    "logistic": "the mean of clipped gradients of the log loss at the model so far",
}
"""What each kind of learner releases, in words."""


_KEYS: dict[str, set[str]] = {
    "mean": set(),
    "histogram": set(),
    "statistics": {"table", "counts", "names"},
    "logistic": {
        *("features", "labels", "clip", "rate", "penalty"),
        *("coefficients", "names", "norm", "progress"),
    },
}


def learner_of(entry: dict[str, Any]) -> Learner:
    """Return the learner that plain data describe, as `Learner.to_dict` writes it."""
    given = dict(entry)
    kind = given.pop("kind", None)
    if kind not in _KEYS:
        raise InvalidInput("learner.kind", repr(kind), "one of " + ", ".join(_KEYS))
    for name in given:
        if name not in _KEYS[kind]:
            raise InvalidInput(f"learner.{name}", "not a known key", f"those of {kind}")
    if kind == "mean":
        return Mean()
    if kind == "histogram":
        return Histogram()
    if kind == "logistic":
        return _logistic(given)
    if "table" not in given:
        raise InvalidInput("learner.table", "missing", "one row of numbers per state")
    names = given.get("names")
    return Statistics(given["table"], given.get("counts"), None if names is None else tuple(names))


def _logistic(given: dict[str, Any]) -> Logistic:
    for name in ("features", "labels"):
        if name not in given:
            raise InvalidInput(f"learner.{name}", "missing", "one row per state")
    told = given.pop("progress", None)
    progress = None
    if told is not None:
        names = [one.name for one in fields(Progress)]
        if not isinstance(told, dict) or set(told) != set(names):
            raise InvalidInput("learner.progress", repr(told), "a table of " + ", ".join(names))
        progress = Progress(**told)
    return Logistic(**given, progress=progress)
