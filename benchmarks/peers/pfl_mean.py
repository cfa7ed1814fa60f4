# mypy: ignore-errors
# ruff: noqa: ARG002
"""A private mean of 100 records per client by pfl-research, in an environment of its own.

Run by `benchmarks.pfl`: `python pfl_mean.py CLIENTS`. Prints the seconds of each way as JSON.
"""

import json
import sys
import time

import numpy as np
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import FederatedAlgorithm
from pfl.common_types import Population
from pfl.context import CentralContext
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import AlgorithmHyperParams, ModelHyperParams
from pfl.metrics import Metrics
from pfl.model.base import Model
from pfl.privacy.laplace_mechanism import LaplaceMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism
from pfl.stats import MappedVectorStatistics

SAMPLES, STATES = 100, np.array([20.0, 50.0, 100.0, 200.0])
RNG = np.random.default_rng(0)


class NoModel(Model):
    """There is none: clients send their mean."""

    def apply_model_update(self, statistics):
        return self, Metrics()

    def evaluate(self, dataset, name_formatting_fn=None, eval_params=None):
        return Metrics()

    def save(self, dir_path):
        pass

    def load(self, dir_path):
        pass


class MeanOfRecords(FederatedAlgorithm):
    def simulate_one_user(self, model, user_dataset, central_context):
        value = np.array([user_dataset.raw_data[0].mean()])
        return MappedVectorStatistics({"mean": value}, weight=1.0), Metrics()

    def get_next_central_contexts(self, *_, **__):
        raise NotImplementedError

    def process_aggregated_statistics(self, *_, **__):
        raise NotImplementedError


def records(user):
    return Dataset((STATES[RNG.integers(4, size=SAMPLES)],), user_id=user)


def measured(clients, postprocessors):
    users = iter(range(10 * clients))
    data = FederatedDataset(records, lambda: str(next(users)))
    backend = SimulatedBackend(data, data, postprocessors)
    context = CentralContext(
        current_central_iteration=0,
        do_evaluation=False,
        cohort_size=clients,
        population=Population.TRAIN,
        algorithm_params=AlgorithmHyperParams(),
        model_train_params=ModelHyperParams(),
        seed=1,
    )
    begun = time.perf_counter()
    statistics, _ = backend.gather_results(NoModel(), MeanOfRecords(), central_context=context)
    took = time.perf_counter() - begun
    mean = float(statistics["mean"][0]) / clients
    if not abs(mean - STATES.mean()) < 20:
        raise ValueError(f"a mean of {mean}")
    return took


if __name__ == "__main__":
    many = int(sys.argv[1])
    noise = LaplaceMechanism(clipping_bound=200.0, epsilon=0.5 * many)
    ways = {"central": [CentrallyAppliedPrivacyMechanism(noise)], "local": [noise]}
    for way in ways.values():
        measured(max(100, many // 100), way)  # what is done once
    print(json.dumps({name: measured(many, way) for name, way in ways.items()}))
