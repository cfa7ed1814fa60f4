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
    counts_together,
    judged,
    mean_rounding,
    release_table,
    sensitivities,
)
from agewise.learning.mean import Mean
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
    "Shares",
    "Statistics",
    "average",
    "counts_together",
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
}
"""What each kind of learner releases, in words."""


def learner_of(entry: dict[str, Any]) -> Learner:
    """Return the learner that plain data describe, as `Learner.to_dict` writes it."""
    given = dict(entry)
    kind = given.pop("kind", None)
    allowed = {"mean": set(), "histogram": set(), "statistics": {"table", "counts", "names"}}
    if kind not in allowed:
        raise InvalidInput("learner.kind", repr(kind), "mean, histogram or statistics")
    for name in given:
        if name not in allowed[kind]:
            raise InvalidInput(f"learner.{name}", "not a known key", f"those of {kind}")
    if kind == "mean":
        return Mean()
    if kind == "histogram":
        return Histogram()
    if "table" not in given:
        raise InvalidInput("learner.table", "missing", "one row of numbers per state")
    names = given.get("names")
    return Statistics(given["table"], given.get("counts"), None if names is None else tuple(names))
