"""The orders of a plan: clients alike get the same one but for the name."""

from __future__ import annotations

from typing import Any

from agewise.federation.messages import Order
from agewise.planning import Assignment
from agewise.problem import Client, Problem, Target


class Orders:
    """Makes the orders of a run, each kind once."""

    def __init__(self, run: str, problem: Problem) -> None:
        self.run, self.problem = run, problem
        self._made: dict[Any, Order] = {}

    def order(self, plan: str, one: Assignment, client: Client, target: Target) -> Order:
        """What a client is asked to do by a plan of this digest."""
        own = one.collect_at, one.noise_scale, one.fingerprint
        kind = plan, own, client.samples, client.members, target
        if kind not in self._made:
            self._made[kind] = self._make(plan, one, client, target)
        return self._made[kind].model_copy(update={"client": one.client})

    def _make(self, plan: str, one: Assignment, client: Client, target: Target) -> Order:
        problem = self.problem
        return Order(
            run=self.run,
            client=one.client,
            plan=plan,
            collect_at=one.collect_at,
            aggregate_at=problem.aggregate_at,
            samples=client.samples,
            members=client.members,
            epsilon=target.epsilon,
            mixing=problem.mixing,
            estimator=problem.estimator,
            calibration=problem.calibration,
            learner=problem.learner.to_dict(),
            mechanism=problem.mechanism,
            delta=problem.delta or 0.0,
            noise=problem.noise,
            noise_scale=one.noise_scale,
            rounds=target.rounds,
            every=target.every,
            promise=problem.promise,
            fingerprint=one.fingerprint,
        )
