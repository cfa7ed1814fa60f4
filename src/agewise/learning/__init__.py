"""What a client learns from its records and releases."""

from dataclasses import fields
from typing import Any

from agewise.errors import InvalidInput
from agewise.learning.fit_logistic import PrivateFit, fit_logistic
from agewise.learning.histogram import Histogram, Shares
from agewise.learning.labelled import Labelled
from agewise.learning.learner import (
    ESTIMATORS,
    Accuracy,
    Estimator,
    Learner,
    Trained,
    average,
    averages,
    counts_together,
    guard_table,
    guarded_sensitivities,
    judged,
    mean_rounding,
    release_step,
    release_table,
    sensitivities,
)
from agewise.learning.logistic import Logistic, LogisticModel, Progress
from agewise.learning.mean import Mean
from agewise.learning.ridge import Ridge
from agewise.learning.ridge_model import RidgeModel
from agewise.learning.ridge_records import fit_ridge
from agewise.learning.statistics import Statistics

__all__ = [
    "ESTIMATORS",
    "LEARNED",
    "Accuracy",
    "Estimator",
    "Histogram",
    "Labelled",
    "Learner",
    "Logistic",
    "LogisticModel",
    "Mean",
    "PrivateFit",
    "Progress",
    "Ridge",
    "RidgeModel",
    "Shares",
    "Statistics",
    "Trained",
    "average",
    "averages",
    "counts_together",
    "fit_logistic",
    "fit_ridge",
    "guard_table",
    "guarded_sensitivities",
    "judged",
    "learner_of",
    "mean_rounding",
    "release_step",
    "release_table",
    "sensitivities",
]

LEARNED = {
    "mean": "the mean of the records",
    "histogram": "the share of the records in each state",
    "statistics": "the mean of a vector for each state of a record",
    "ridge": "the mean products of features, and of features and label, for a ridge regression",
    "logistic": "the mean of clipped gradients of the log loss at the model so far",
}
"""What each kind of learner releases, in words."""

KINDS: dict[str, tuple[type[Any], dict[str, str], tuple[str, ...]]] = {
    "mean": (Mean, {}, ()),
    "histogram": (Histogram, {}, ()),
    "statistics": (
        Statistics,
        {"table": "one row of numbers per state"},
        ("counts", "names"),
    ),
    "ridge": (
        Ridge,
        {"features": "one row of numbers per state", "labels": "one number per state"},
        ("penalty", "names", "reference"),
    ),
    "logistic": (
        Logistic,
        {"features": "one row of numbers per state", "labels": "one class per state"},
        ("clip", "rate", "penalty", "coefficients", "names", "norm", "progress"),
    ),
}
"""The class of each kind, what it needs, in its order, and what else it takes by name."""


def learner_of(entry: dict[str, Any]) -> Learner:
    """Return the learner that plain data describe, as `Learner.to_dict` writes it."""
    given = dict(entry)
    kind = given.pop("kind", None)
    if kind not in KINDS:
        raise InvalidInput("learner.kind", repr(kind), "one of " + ", ".join(KINDS))
    make, needed, others = KINDS[kind]
    for name in given:
        if name not in (*needed, *others):
            raise InvalidInput(f"learner.{name}", "not a known key", f"those of {kind}")
    for name, what in needed.items():
        if name not in given:
            raise InvalidInput(f"learner.{name}", "missing", what)
    if kind == "logistic":
        return _logistic(given)
    first = [given.pop(name) for name in needed]
    learner: Learner = make(*first, **given)
    return learner


def _logistic(given: dict[str, Any]) -> Logistic:
    told = given.pop("progress", None)
    progress = None
    if told is not None:
        names = [one.name for one in fields(Progress)]
        if not isinstance(told, dict) or set(told) != set(names):
            raise InvalidInput("learner.progress", repr(told), "a table of " + ", ".join(names))
        progress = Progress(**told)
    return Logistic(**given, progress=progress)
