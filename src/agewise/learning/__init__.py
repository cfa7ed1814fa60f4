"""What a client learns from its records and releases."""

from typing import Any

from agewise.errors import InvalidInput
from agewise.learning.histogram import Histogram, Shares
from agewise.learning.labelled import Labelled
from agewise.learning.learner import (
    ESTIMATORS,
    Accuracy,
    Estimator,
    Learner,
    average,
    averages,
    counts_together,
    judged,
    mean_rounding,
    release_table,
    sensitivities,
)
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
    "Mean",
    "Ridge",
    "RidgeModel",
    "Shares",
    "Statistics",
    "average",
    "averages",
    "counts_together",
    "fit_ridge",
    "judged",
    "learner_of",
    "mean_rounding",
    "release_table",
    "sensitivities",
]

LEARNED = {
    "mean": "the mean of the records",
    "histogram": "the share of the records in each state",
    "statistics": "the mean of a vector for each state of a record",
    "ridge": "the mean products of features, and of features and label, for a ridge regression",
}
"""What each kind of learner releases, in words."""

_KINDS: dict[str, tuple[type[Any], dict[str, str], tuple[str, ...]]] = {
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
}
"""The class of each kind, what it needs, in its order, and what else it takes by name."""


def learner_of(entry: dict[str, Any]) -> Learner:
    """Return the learner that plain data describe, as `Learner.to_dict` writes it."""
    given = dict(entry)
    kind = given.pop("kind", None)
    if kind not in _KINDS:
        raise InvalidInput("learner.kind", repr(kind), "one of " + ", ".join(_KINDS))
    make, needed, others = _KINDS[kind]
    for name in given:
        if name not in (*needed, *others):
            raise InvalidInput(f"learner.{name}", "not a known key", f"those of {kind}")
    for name, what in needed.items():
        if name not in given:
            raise InvalidInput(f"learner.{name}", "missing", what)
    first = [given.pop(name) for name in needed]
    learner: Learner = make(*first, **given)
    return learner
