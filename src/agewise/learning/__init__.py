"""What a client learns from its records and releases."""

from agewise.learning.mean import ESTIMATORS, Estimator, estimate_mean, release_values

__all__ = ["ESTIMATORS", "Estimator", "estimate_mean", "release_values"]
