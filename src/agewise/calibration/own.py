"""What a client must do in a slot: its release function, sensitivity, noise, and what it spends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from agewise.arrays import Array, frozen
from agewise.calibration.rules import Noise, method_of, rule_of
from agewise.calibration.tables import Part, SlotTable, calibrate, told_apart
from agewise.learning import Estimator, Learner, Mean, Trained, release_step, release_table
from agewise.mechanism import MECHANISMS
from agewise.mixing import MIXINGS, Method
from agewise.privacy.continual import per_release_epsilon
from agewise.problem import Client, Problem, Target


def slot_table(client: Client, problem: Problem, slots: Sequence[int] | None = None) -> SlotTable:
    """Return a client's Δ, release function and noise in every slot it could collect in.

    `slots` names the slots wanted; None: all of them. Time and memory grow with the ages at which
    records still move on, not with all slots.
    """
    last = problem.aggregate_at
    wanted = range(1, last + 1) if slots is None else slots
    target, learner = problem.target_of(client), problem.learner
    return calibrate([client], [target], learner, problem.estimator, wanted, last).tables[0]


def adversary(client: Client, mixing: Method) -> tuple[Method, Array | None]:
    """The method by which Δ is computed for a client, and the law that it takes as known."""
    method = method_of(client, mixing)
    return method, np.asarray(client.law) if MIXINGS[method].takes_stated_law else None


@dataclass(frozen=True)
class Terms:
    """What a client itself holds to be right for one collection and aggregation.

    `release` `[S, d]` is f, `guard` vectors that are as far apart as f can tell two states apart
    by (empty: nothing but ε is known; `[G, S, d]`: whichever of several), `scale` the least noise
    for `sensitivity` (in the mechanism's norm), `classical_epsilon` and `classical_delta` what that
    spends. `step` is the distance of the grid that means without noise lie on; 0: none.
    """

    client: Client
    target: Target
    collect_at: int
    aggregate_at: int
    release: Array
    guard: Array
    delta: float
    sensitivity: float
    scale: float
    classical_epsilon: float
    classical_delta: float
    step: float = 0.0

    def aged_epsilon(self, scale: float, spent: float) -> float:
        """The aged ε of a release of this scale and classical ε, by the target's calibration."""
        mean = Part([0], [self.client], [self.target], Mean(), "plain", self.aggregate_at)
        cell = replace(
            mean.cell(int(mean.batch.youngest(np.array([self.age]))[0, 0])),
            release=np.repeat(self.release[..., None], 2, axis=-1),
            told_apart=[self.guard, self.guard],
        )
        own = scale, spent, self.scale, self.classical_epsilon, self.classical_delta
        noise = Noise(*(np.full(2, one) for one in own))
        return float(rule_of(self.target).achieved(cell, noise)[0])

    @property
    def age(self) -> int:
        """Slots from collection to aggregation."""
        return self.aggregate_at - self.collect_at

    @property
    def as_read(self) -> bool:
        """Whether readings are reported as they are, within the range of the states.

        Fresh data whose records carry a level: no credit for age rests on states.
        """
        return self.target.level and self.age == 0

    def spent(self, scale: float) -> float:
        """The classical ε of a release with noise of this scale."""
        if scale == self.scale:
            return self.classical_epsilon
        numbers = map(np.asarray, (self.sensitivity, scale, self.classical_delta))
        return float(MECHANISMS[self.target.mechanism].spent(*numbers))

    def aged_delta(self, failure: float) -> float:
        """The aged δ of a release with this classical δ: Δ·δ_c, never lost by underflow."""
        aged = self.delta * failure
        return 5e-324 if aged == 0 and failure > 0 and self.delta > 0 else aged


@lru_cache(maxsize=2**16)
def terms(
    client: Client,
    target: Target,
    learner: Learner,
    estimator: Estimator,
    collect_at: int,
    aggregate_at: int,
) -> Terms:
    """Return a client's terms for collecting in one slot and aggregating in another."""
    if isinstance(learner, Trained) and learner != learner.untrained():
        own = terms(client, target, learner.untrained(), estimator, collect_at, aggregate_at)
        release = release_table(learner, client.process, collect_at, aggregate_at, estimator)
        return replace(own, release=frozen(release))  # the noise is that of every model
    [table] = calibrate([client], [target], learner, estimator, [collect_at], aggregate_at).tables
    return replace(terms_of(table, 0), step=release_step(learner, estimator, client.samples))


def outside_terms(
    client: Client, target: Target, sensitivity: float, collect_at: int, aggregate_at: int
) -> Terms:
    """Return terms for a vector that somebody else computes, of which only a bound is known.

    `sensitivity` is how far one record can move it, in the mechanism's norm. Ageing is credited as
    for any mechanism of that classical ε: by Δ, or sharply.
    """
    rule = "sharp" if target.calibration == "tight" else target.calibration
    plain = replace(target, calibration=rule)
    known = terms(client, plain, Mean(), "plain", collect_at, aggregate_at)
    mechanism = MECHANISMS[target.mechanism]
    reach, failure = np.asarray(sensitivity), np.asarray(known.classical_delta)
    allowed = known.classical_epsilon
    if target.lasting and not MECHANISMS[target.mechanism].approximate:
        allowed = per_release_epsilon(
            client.process,
            target.every or 1,
            target.epsilon,
            aggregate_at - collect_at,
            target.promise,
            "any",
            method_of(client, target.mixing),
            target.counted_rounds,
        )
    scale = mechanism.calibrate(reach, np.asarray(allowed), failure)
    return replace(
        known,
        release=np.empty((0, 0)),
        guard=np.empty((0, 0)),
        sensitivity=sensitivity,
        scale=float(scale),
        classical_epsilon=float(mechanism.spent(reach, scale, failure)),
    )


def terms_of(table: SlotTable, column: int) -> Terms:
    """Return one column of a table as terms."""
    client, target, last = table.client, table.target, table.aggregate_at
    part = Part([0], [client], [target], table.learner, table.estimator, last)
    cell = part.cell(int(table.young[column]))
    return Terms(
        client=client,
        target=target,
        collect_at=last - int(table.ages[column]),
        aggregate_at=last,
        release=frozen(cell.release[..., 0].copy()),
        guard=frozen(told_apart(target, client, part.guard(cell)[0].copy(), cell.age)),
        delta=float(table.delta[column]),
        sensitivity=float(table.sensitivity[column]),
        scale=float(table.scale[column]),
        classical_epsilon=float(table.classical_epsilon[column]),
        classical_delta=float(table.classical_delta[column]),
    )
