"""plants: data and model."""

import numpy as np
from sklearn.linear_model import LogisticRegression

# A machine is in one of six conditions: its vibration, temperature, and whether it needs service.
CONDITIONS = np.array(
    [[-1.0, -0.8], [-0.7, -0.6], [-0.5, -0.4], [-0.2, -0.3], [0.6, 0.8], [1.0, 0.7]]
)
NEEDS_SERVICE = np.array([0, 1, 0, 0, 1, 1])
WORSE, BETTER = 0.3, 0.3  # how likely it is in the next or previous condition one slot later


def load_data(partition_id: int, num_partitions: int, slot: int, machines: int = 250):
    """Load one plant's machines as they are in a slot, in place of its database."""
    rng = np.random.default_rng([partition_id, num_partitions])
    last = len(CONDITIONS) - 1
    condition = rng.integers(last + 1, size=machines)
    for _ in range(slot):
        luck = rng.random(machines)
        condition = np.abs(condition + (luck < WORSE) - (luck > 1 - BETTER))
        condition = last - np.abs(last - condition)  # whoever is at an end turns back
    X, y = CONDITIONS[condition], NEEDS_SERVICE[condition]
    split = int(0.8 * machines)
    return X[:split], X[split:], y[:split], y[split:]


def get_model(penalty: str, local_epochs: int):
    """A model of all zeros, before anything is fitted."""
    ratio = {"l2": 0.0, "l1": 1.0}[penalty]
    model = LogisticRegression(l1_ratio=ratio, max_iter=local_epochs, warm_start=True)
    model.classes_ = np.array([0, 1])
    model.coef_ = np.zeros((1, CONDITIONS.shape[1]))
    model.intercept_ = np.zeros(1)
    return model


def get_model_params(model):
    return [model.coef_, model.intercept_]


def set_model_params(model, params):
    model.coef_, model.intercept_ = params
    return model
