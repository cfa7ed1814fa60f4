"""What a client must do in a slot: its release function, sensitivity, noise, and what it spends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array, frozen
from agewise.errors import InvalidInput
from agewise.learning import (
    Estimator,
    Learner,
    Mean,
    Trained,
    guarded_sensitivities,
    mean_rounding,
    release_step,
    release_table,
)
from agewise.mechanism import MECHANISMS, Mechanism
from agewise.mixing import MIXINGS, Method, delta
from agewise.privacy.ageing import aged_epsilon, classical_epsilon
from agewise.privacy.calibration import aged_loss, tight_scales
from agewise.privacy.failing import affordable_pair, composed_pair, gap_delta
from agewise.privacy.sharp import ROWS_OFF, Ageing, hockey_sticks, sharp_inverse
from agewise.privacy.steady import affordable_epsilon, steady_epsilon
from agewise.problem import Client, Problem, Target
from agewise.process import JointLaw, Process
from agewise.process.joint import backward_rows, youngest
from agewise.slot_tables import SlotRows, SlotTable

LARGEST_FAILURE = 0.5
"""A release of any age fails with at most this probability."""
_ULP = float(np.finfo(float).eps)


def slot_table(client: Client, problem: Problem, slots: Sequence[int] | None = None) -> SlotTable:
    """Return a client's Δ, release function and noise in every slot it could collect in.

    `slots` names the slots wanted; None: all of them. Time and memory grow with the ages at which
    records still move on, not with all slots.
    """
    last = problem.aggregate_at
    wanted = range(1, last + 1) if slots is None else slots
    target = problem.target_of(client)
    return tabulate(client, target, problem.learner, problem.estimator, wanted, last)


def tabulate(
    client: Client,
    target: Target,
    learner: Learner,
    estimator: Estimator,
    slots: Sequence[int],
    aggregate_at: int,
) -> SlotTable:
    """Return the terms of one client for each of the slots, for aggregation in one slot."""
    process, last = client.process, aggregate_at
    asked = last - np.asarray(slots, dtype=np.int64)
    mechanism: Mechanism = MECHANISMS[target.mechanism]
    rows = SlotRows(client, learner, estimator, youngest(process, asked), last, mechanism.norm)
    ages, row, starts = rows.ages, rows.row, rows.starts
    kernels, release, guard = rows.kernels, rows.release, rows.guard
    method, prior = adversary(client, target.mixing)
    deltas = np.atleast_1d(delta(process, ages, method, prior, aggregate_at=last))
    norm = mechanism.norm
    reach = guarded_sensitivities(guard, np.asarray(client.samples), learner, process.states, norm)
    targets = np.full(len(starts), target.epsilon)
    failure = classical_failures(target.delta, deltas)
    needs_rows = target.calibration != "formula" and target.mechanism == "laplace"
    joints = [process.joint(t, last, prior) for t in starts] if needs_rows and _rows(method) else []
    backward = _backward(joints, kernels)
    usable = np.array([a > 0 and _usable(j) for a, j in zip(ages, joints, strict=False)], bool)
    allowed = classical_epsilon(targets, deltas)
    if target.lasting and target.mechanism != "laplace":
        again = gap_delta(process, target.every or 1, method)
        told = target.rounds or 1, target.epsilon, target.delta
        pairs = [affordable_pair(again, share, *told) for share in deltas.tolist()]
        allowed, failure = np.array(pairs).T
    elif target.lasting:
        allowed = _affordable(process, target, method, ages, guard)
    elif target.calibration == "sharp" and needs_rows:
        allowed = _sharp(method, targets, deltas, joints, backward, usable)
    scale = mechanism.calibrate(reach, np.asarray(allowed), failure)
    scale = np.where(reach == 0, 0.0, scale)
    if target.calibration == "tight":
        if any(joint.uncertainty > 0 for joint in joints):
            raise InvalidInput(
                "calibration",
                "'tight' for a measured law",
                "formula or sharp",
                "Only Δ has a confidence limit, not the whole law.",
            )
        count = int(usable.sum())
        if count:
            scale[usable] = tight_scales(
                backward[usable],
                release[usable][..., 0],
                np.full(count, client.samples),
                targets[usable],
                scale[usable],
                np.array([joint.rounding for joint in joints])[usable],
            )
    spent = mechanism.spent(reach, scale, failure)
    return SlotTable(
        rows,
        delta=frozen(deltas[row]),
        sensitivity=frozen(reach[row]),
        scale=frozen(scale[row]),
        classical_epsilon=frozen(spent[row]),
        classical_delta=frozen(failure[row]),
        ages=asked,
    )


def adversary(client: Client, mixing: Method) -> tuple[Method, Array | None]:
    """The method by which Δ is computed for a client, and the law that it takes as known."""
    if mixing != "own_law":
        return mixing, None
    return ("exact", None) if client.law is None else ("own_law", np.asarray(client.law))


def _rows(method: Method) -> bool:
    return MIXINGS[method].sharpness == "rows"


def _usable(joint: JointLaw) -> bool:
    """Whether the whole law is known, not only a limit on Δ."""
    return not joint.underflowed and joint.uncertainty == 0


def _backward(joints: list[JointLaw], kernels: Array) -> Array:
    """The laws of the collected record given the present one, `[R, Y, S]`."""
    if not joints:
        return np.empty((0, 0, 0))
    known = np.stack([joint.law for joint in joints])
    return np.moveaxis(backward_rows(np.moveaxis(known[:, :, None] * kernels, 0, -1)), -1, 0)


def _sharp(
    method: Method,
    targets: Array,
    deltas: Array,
    joints: list[JointLaw],
    backward: Array,
    usable: NDArray[np.bool_],
) -> Array:
    """The classical ε by what the method knows; where a law is not known whole, by limits."""
    if not _rows(method):
        return sharp_inverse(MIXINGS[method].sharpness, targets, deltas, None)
    limits = [j.stick_limit(target) for j, target in zip(joints, targets.tolist(), strict=True)]
    sticks = np.minimum(deltas, limits)
    if usable.any():
        off = np.array([ROWS_OFF * joint.rounding for joint in joints])
        sticks[usable] = hockey_sticks(backward[usable], targets[usable], off[usable])
    return sharp_inverse("rows", targets, deltas, sticks)


def _affordable(
    process: Process, target: Target, method: Method, ages: NDArray[np.int64], guard: Array
) -> Array:
    """The classical ε that each of many releases may have, by age."""
    spent = [
        affordable_epsilon(
            process,
            target.every or 1,
            target.epsilon,
            age,
            target.promise,
            table,
            method,
            target.counted_rounds,
        )
        for age, table in zip(ages.tolist(), guard, strict=True)
    ]
    return np.array(spent)


def classical_failures(failure: float, deltas: Array) -> Array:
    """δ_c = δ̄/Δ, rounded down: the failure that ageing brings to the target."""
    if failure == 0:
        return np.zeros_like(deltas)
    with np.errstate(divide="ignore"):
        return np.minimum(failure / deltas * (1 - 4 * _ULP), LARGEST_FAILURE)


@dataclass(frozen=True)
class Terms:
    """What a client itself holds to be right for one collection and aggregation.

    `release` `[S, d]` is f, `guard` vectors that are as far apart as f can tell two states apart
    by (empty: nothing but ε is known), `scale` the least noise for `sensitivity` (in the
    mechanism's norm), `classical_epsilon` and `classical_delta` what that spends. `step` is the
    distance of the grid that means without noise lie on; 0: none.
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
        age = self.aggregate_at - self.collect_at
        if spent == 0:
            return 0.0
        method, prior = adversary(self.client, self.target.mixing)
        if self.target.lasting:
            return self._steady(spent, method)
        formula = aged_epsilon(spent, self.delta)
        if self.target.calibration == "formula" or self.target.mechanism != "laplace" or age == 0:
            return formula
        if self.target.calibration == "sharp":
            ageing = Ageing(self.client.process, age, method, prior, aggregate_at=self.aggregate_at)
            loss = min(ageing.aged_epsilon(spent), formula)
            # With the noise that was calibrated the target is proven; the rest is rounding.
            return min(loss, self.target.epsilon) if spent <= self.classical_epsilon else loss
        joint = self.client.process.joint(self.collect_at, self.aggregate_at, prior)
        values = self.release[:, 0]
        loss = aged_loss(joint, values, self.client.samples, scale)
        if scale > 0:  # what rounding of the mean and of the law can add
            loss += 2 * float(mean_rounding(values)) / scale + 4 * joint.rounding
        return min(loss, formula)

    def _steady(self, spent: float, method: Method) -> float:
        """The ε of all rounds, each of them spending this, about what is promised."""
        every, age = self.target.every or 1, self.aggregate_at - self.collect_at
        if math.isinf(spent):
            return self.target.epsilon if math.isinf(self.classical_epsilon) else math.inf
        if self.target.mechanism != "laplace":
            again = gap_delta(self.client.process, every, method)
            rounds = self.target.rounds or 1
            loss, _ = composed_pair(again, self.delta, rounds, spent, self.classical_delta)
            return min(loss, self.target.epsilon) if spent <= self.classical_epsilon else loss
        loss = steady_epsilon(
            self.client.process,
            every,
            spent,
            age,
            self.target.promise,
            self.guard if self.guard.size else "any",
            method,
            self.target.counted_rounds,
        )
        return min(loss, self.target.epsilon) if spent <= self.classical_epsilon else loss

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
    table = tabulate(client, target, learner, estimator, [collect_at], aggregate_at)
    own = terms_of(client, target, table, 0, aggregate_at)
    return replace(own, step=release_step(learner, estimator, client.samples))


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
    if target.lasting and target.mechanism == "laplace":
        method, _ = adversary(client, target.mixing)
        allowed = affordable_epsilon(
            client.process,
            target.every or 1,
            target.epsilon,
            aggregate_at - collect_at,
            target.promise,
            "any",
            method,
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


def terms_of(
    client: Client, target: Target, table: SlotTable, column: int, aggregate_at: int
) -> Terms:
    """Return one column of a table as terms."""
    start = aggregate_at - int(table.rows.young[column])
    return Terms(
        client=client,
        target=target,
        collect_at=aggregate_at - int(table.ages[column]),
        aggregate_at=aggregate_at,
        release=frozen(table.rows.release_from(start)),
        guard=frozen(table.rows.guard_from(start)),
        delta=float(table.delta[column]),
        sensitivity=float(table.sensitivity[column]),
        scale=float(table.scale[column]),
        classical_epsilon=float(table.classical_epsilon[column]),
        classical_delta=float(table.classical_delta[column]),
    )
