"""A model trained over rounds: the steps that follow from what the rounds have published."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from agewise.learning import Trained
from agewise.mechanism import MECHANISMS
from agewise.planning import Plan


class Training:
    """The learner after the rounds so far, and the plan of the next one."""

    def __init__(self, plan: Plan, learner: Trained) -> None:
        self._plan, self.learner = plan, learner

    @property
    def plan(self) -> Plan:
        """The plan of the next round, at the model so far."""
        return self._plan.at(self.learner)

    def add(self, aggregate: tuple[float, ...], missing: Collection[str]) -> None:
        """Take a step against what a round has published, of all but those who were missing."""
        self.learner = self.learner.step(aggregate, self._variance(missing))

    def _variance(self, missing: Collection[str]) -> float:
        """The variance of the noise on each coordinate, as planned."""
        plan, variance = self._plan, MECHANISMS[self._plan.problem.mechanism].variance
        if plan.draw_scale is not None:
            return float(variance(np.asarray(plan.draw_scale)))
        here = np.array([client.name not in missing for client in plan.problem.clients])
        shares = np.where(here, plan.problem.weights, 0.0)
        shares = shares / shares.sum()
        many = np.array([client.members for client in plan.problem.clients])
        return float((variance(shares * np.array(plan.noise_scales)) / many).sum())

    def estimate(self) -> tuple[tuple[float, ...], float]:
        """The coefficients of the model so far, and the squared standard error of each."""
        model = self.learner.model
        return model.vector, model.standard_error**2


def training_of(plan: Plan) -> Training | None:
    """The training that a plan is for, before its first round; None: it trains nothing."""
    learner = plan.problem.learner
    return Training(plan, learner) if isinstance(learner, Trained) else None
