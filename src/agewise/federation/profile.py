"""What a client knows about itself and demands, and what it allows itself if nothing is said."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from agewise.arrays import Array
from agewise.calibration import adversary, calibrate
from agewise.checks import positive
from agewise.errors import AgewiseError
from agewise.federation.messages import Order
from agewise.knowledge import Levels
from agewise.learning import Estimator, Learner, moves_records
from agewise.mechanism import Kind
from agewise.mixing import Method
from agewise.privacy.account import Policy
from agewise.privacy.calibration import Rule
from agewise.privacy.continual import Promise
from agewise.problem import Client, Problem, Target, Trust

AFFORDABLE_ROOM = 1e-7
"""Relative room above what a release may spend: that is worked out to seven digits."""


class OrderRefused(AgewiseError):
    """An order that this client will not follow. Nothing was released."""

    exit_code = 4


@dataclass(frozen=True)
class Profile:
    """What a client knows about itself and demands: its records, its target, its limits.

    `target_epsilon` is the aged ε that one release may reach, `mixing` the knowledge it grants an
    adversary, `policy` what all its releases together may reach. `starts_at` is the number of
    slots of its own time that lie before slot 1 of the run. `aggregate_at`, `estimator`,
    `calibration` and `learner` are the only ones that it accepts (None: whatever is ordered). A
    server that may choose the aggregation slot chooses the age, and with it how little noise is
    enough. `mechanism` is the only noise that it accepts, and `delta` the δ of its target with it;
    `noise` the only one it lets add that: itself, or the server, which then sees its mean as it is.
    It takes part in `rounds` releases (None: for ever), one `every` so many slots, and its target
    is about what `promise` says, of records with or without a common `level`; it accepts no others.
    `spread` is the standard deviation of what levels add to its readings.
    """

    client: Client
    target_epsilon: float
    mixing: Method
    policy: Policy
    starts_at: int = 0
    aggregate_at: int | None = None
    estimator: Estimator | None = None
    calibration: Rule | None = None
    mechanism: Kind = "laplace"
    delta: float = 0.0
    learner: Learner | None = None
    noise: Trust = "client"
    rounds: int | None = 1
    every: int | None = None
    promise: Promise = "present"
    level: bool = False
    spread: float = 0.0

    @classmethod
    def of(
        cls, client: Client, problem: Problem, policy: Policy | None, starts_at: int = 0
    ) -> Profile:
        """The profile of a client whose own scenario is `problem`; no policy: `own_policy`."""
        target = problem.target_of(client)
        return cls(
            client,
            target.epsilon,
            problem.mixing,
            own_policy(client, problem) if policy is None else policy,
            starts_at,
            problem.aggregate_at,
            problem.estimator,
            problem.calibration,
            problem.mechanism,
            problem.delta or 0.0,
            problem.learner,
            problem.noise,
            target.rounds,
            target.every,
            problem.promise,
            target.level,
            dict(zip([one.name for one in problem.clients], spreads_of(problem), strict=False)).get(
                client.name, 0.0
            ),
        )

    def __post_init__(self) -> None:
        positive("target_epsilon", self.target_epsilon)

    def target(self, calibration: Rule) -> Target:
        """What its release must guarantee, under the calibration that was ordered."""
        return Target(
            self.target_epsilon,
            self.mixing,
            calibration,
            self.mechanism,
            self.delta,
            self.rounds,
            self.every,
            self.promise,
            self.level,
        )

    @property
    def law(self) -> Array | None:
        """The law that an adversary is taken to know, where that is the client's own."""
        return adversary(self.client, self.mixing)[1]

    @property
    def method(self) -> Method:
        """The mixing that totals are reckoned with."""
        return adversary(self.client, self.mixing)[0]

    def refuse_other(self, order: Order) -> None:
        """Raise if an order is for another aggregation or another way of averaging than its own."""
        if not order.collect_at <= order.aggregate_at:
            raise OrderRefused(
                f"collect_at is {order.collect_at}; allowed: 1 to {order.aggregate_at}"
            )
        learner = None if self.learner is None else _untrained(self.learner.to_dict())
        accepted = {**vars(self), "learner": learner}
        for name in ("aggregate_at", "estimator", "calibration", "mechanism", "learner", "noise"):
            own, ordered = accepted[name], getattr(order, name)
            ordered = _untrained(ordered) if name == "learner" else ordered
            if own is not None and ordered != own:
                raise OrderRefused(
                    f"{name} is {ordered} in the order; client {self.client.name!r} allows {own} "
                    "only"
                )
        for name in ("rounds", "every", "promise", "level"):
            if getattr(order, name) != getattr(self, name):
                raise OrderRefused(
                    f"{name} is {getattr(order, name)} in the order; client {self.client.name!r} "
                    f"allows {getattr(self, name)} only"
                )
        if order.noise == "server" and not self.policy.allow_server_noise:
            raise OrderRefused(
                f"noise is server in the order; the policy of client {self.client.name!r} does not "
                "allow that (allow_server_noise): the server would see its mean as it is"
            )


def _untrained(learner: dict[str, Any]) -> dict[str, Any]:
    """A learner but for the state of its training, at which no noise depends on it."""
    return {name: value for name, value in learner.items() if name != "progress"}


def spreads_of(problem: Problem) -> list[float]:
    """The standard deviation of what levels add to each client's readings; empty without."""
    if not isinstance(problem.known, Levels):
        return []
    loadings = problem.known.loadings(len(problem.clients))
    return np.sqrt(np.square(loadings).sum(axis=1)).tolist()  # type: ignore[no-any-return]


def own_policy(client: Client, problem: Problem) -> Policy:
    """What a client allows itself if nothing else is said: its target, for all its releases.

    Of many rounds its target is about their promise, and no release may be larger or sooner than
    that lets it afford.
    """
    target = problem.target_of(client)
    policy = Policy(target.epsilon, max_delta=target.delta)
    if not target.lasting:
        return policy
    if target.rounds == 1 and problem.promise == "every_moment":  # no ageing helps one release
        return replace(policy, max_classical_epsilon=target.epsilon)
    if target.rounds == 1:
        return replace(policy, promise=problem.promise)
    return replace(
        policy,
        promise=problem.promise,
        every=target.every,
        max_release_epsilon=_affordable(client, problem) or _any(problem, target.epsilon),
    )


def _any(problem: Problem, epsilon: float) -> float | None:
    """A limit where no noise is needed: none, but a rule about every moment needs one."""
    return epsilon if problem.promise == "every_moment" else None


@lru_cache(maxsize=64)
def _affordable(client: Client, problem: Problem) -> float | None:
    """The largest classical ε that its target affords in any slot; None: no noise is needed."""
    last = problem.aggregate_at
    target = problem.target_of(client)
    # Older data never afford less, unless what is released changes with its age.
    slots = range(1, last + 1) if moves_records(problem.estimator) else [1]
    slots = sorted({1, last}) if target.level else slots
    found = calibrate([client], [target], problem.learner, problem.estimator, slots, last)
    most = float(found.classical_epsilon.max())
    return most * (1 + AFFORDABLE_ROOM) if 0 < most < math.inf else None
