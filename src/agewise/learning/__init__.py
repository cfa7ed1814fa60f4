"""What a client learns from its records and releases."""

from typing import Any

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
    moves_records,
    release_step,
    release_table,
    reports,
    sensitivities,
    under_levels,
    unexplained,
)
from agewise.learning.logistic import Logistic, LogisticModel, Progress
from agewise.learning.mean import Mean
from agewise.learning.ridge import Ridge
from agewise.learning.ridge_model import RidgeModel
from agewise.learning.statistics import Statistics
from agewise.records import Numbers, Rows, Words, read_tagged, tagged_schema

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
    "Progress",
    "Ridge",
    "RidgeModel",
    "Shares",
    "Statistics",
    "Trained",
    "average",
    "averages",
    "counts_together",
    "guard_table",
    "guarded_sensitivities",
    "judged",
    "learner_of",
    "learner_schema",
    "mean_rounding",
    "moves_records",
    "release_step",
    "release_table",
    "reports",
    "sensitivities",
    "under_levels",
    "unexplained",
]

LEARNED = {
    "mean": "the mean of the records",
    "histogram": "the share of the records in each state",
    "statistics": "the mean of a vector for each state of a record",
    "ridge": "the mean products of features, and of features and label, for a ridge regression",
    "logistic": "the mean of clipped gradients of the log loss at the model so far",
}
"""What each kind of learner releases, in words."""


def _statistics(
    table: Rows, counts: Numbers | None = None, names: Words | None = None
) -> Statistics:
    """As a scenario file says it, where `rows` are a table."""
    return Statistics(table, counts, names)


KINDS: dict[str, Any] = {
    "mean": Mean,
    "histogram": Histogram,
    "statistics": _statistics,
    "ridge": Ridge,
    "logistic": Logistic,
}
"""What is called with the table of each kind of learner."""


def learner_of(entry: dict[str, Any]) -> Learner:
    """Return the learner that plain data describe, as `Learner.to_dict` writes it."""
    learner: Learner = read_tagged("learner", entry, KINDS)
    return learner


def learner_schema() -> dict[str, Any]:
    """What editors are told of the table of a learner."""
    return tagged_schema(KINDS, LEARNED)
