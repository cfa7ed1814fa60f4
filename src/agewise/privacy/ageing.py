"""What a mechanism's privacy becomes as the data age, and the inverse: how much noise is needed.

By one number, the paper's Proposition 1 bounds the aged loss by the total variation Δ of the laws
of the collected record given two present values. Over *all* mechanisms that are ε_c-private the
worst aged loss is, for rows K of the collected record given the present one,

    s_K(ε_c) = max over rows q, d and sets A of ln[(1 + k q(A)) / (1 + k d(A))],  k = e^{ε_c} − 1

(Cao, Yoshikawa, Xiao and Xiong, ICDE 2017, for one release and its age). It is never above the
paper's bound and stays finite as ε_c grows, wherever all rows can reach the same states. Its
inverse is the paper's with Δ replaced by the hockey-stick divergence of order e^{ε̄}.
"""

from __future__ import annotations

import itertools
import math
import warnings
from typing import overload

import numpy as np
from numpy.typing import ArrayLike

from agewise.arrays import Array
from agewise.checks import fraction, numbers, positive, renamed, whole
from agewise.errors import InvalidInput
from agewise.mixing import MIXINGS, Method, Sharpness, total_variation
from agewise.process import JointLaw, Process

_ULP = float(np.finfo(float).eps)
_SHRINK = 1 - 8 * _ULP
"""More than the rounding of the inverse, so that its forward image stays below the target.

ε(a, ε_c) is convex in ε_c and 0 at 0: what is taken from ε_c, its image loses in proportion.
"""
ROWS_OFF = 4.0
"""How many times the relative error of a joint law the rows computed from it may be off."""
_BLOCK = 2**22
"""Numbers handled at once."""


@overload
def aged_epsilon(epsilon: float, total_variation: float) -> float: ...
@overload
def aged_epsilon(epsilon: ArrayLike, total_variation: ArrayLike) -> float | Array: ...
@renamed(delta="total_variation")
def aged_epsilon(epsilon: ArrayLike, total_variation: ArrayLike) -> float | Array:
    """Return ε(a, ε_c) = ln(1 + Δ(e^{ε_c} − 1)): the age-dependent privacy of an ε_c-DP mechanism.

    The paper's Proposition 1. `epsilon` is the classical ε_c of the mechanism (infinite: no noise
    at all), `total_variation` the Δ of the function of that name. Arrays broadcast.

    >>> round(aged_epsilon(1.0, total_variation=0.4), 4)
    0.5231
    >>> aged_epsilon(1.0, total_variation=1.0)
    1.0
    """
    shares = checked_shares(total_variation)
    return _plain(_forward(_checked_epsilon(epsilon, infinite=True), shares))


@overload
def classical_epsilon(epsilon: float, total_variation: float) -> float: ...
@overload
def classical_epsilon(epsilon: ArrayLike, total_variation: ArrayLike) -> float | Array: ...
@renamed(delta="total_variation")
def classical_epsilon(epsilon: ArrayLike, total_variation: ArrayLike) -> float | Array:
    """Return ε_c = ln(1 + (e^{ε̄} − 1)/Δ): the classical ε that suffices for the aged target ε̄.

    Guarantees
        `aged_epsilon(classical_epsilon(e, d), d) <= e`, both as computed and in exact arithmetic,
        and short of `e` by a few ulps only. Δ = 1 returns the target itself. Δ = 0 returns
        infinity: the collected data say nothing about the present, so no noise is needed.

    >>> round(classical_epsilon(0.5, total_variation=0.4), 4)
    0.9639
    """
    target = _checked_epsilon(epsilon, infinite=False)
    deltas = checked_shares(total_variation)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        odds = np.expm1(target) / deltas
        needed = np.log1p(odds)
        if (~np.isfinite(odds) & (deltas > 0)).any():
            # Beyond the range of floats the 1 does not count: ln(e^ε̄ − 1) − ln Δ.
            beyond = target + np.log(-np.expm1(-target)) - np.log(deltas)
            needed = np.where(np.isfinite(odds), needed, beyond)
    return _plain(np.where(deltas == 1, target, needed * _SHRINK))


@renamed(delta="total_variation")
def aged_approximate(epsilon: float, failure: float, total_variation: float) -> tuple[float, float]:
    """Return the aged (ε, δ) of an (ε_c, δ_c)-DP mechanism: δ becomes Δ·δ_c, ε as before.

    By the joint convexity of the hockey-stick divergence (Balle, Barthe and Gaboardi 2018,
    Theorem 2): the two laws of the collected record share all but a part Δ of their mass.
    `failure` is δ_c, from 0 to below 1.

    >>> aged_approximate(1.0, 1e-6, total_variation=0.5)[1]
    5e-07
    """
    fraction("failure", failure, with_zero=True)
    share = fraction("total_variation", total_variation, with_zero=True, with_one=True)
    aged = share * float(failure)
    if aged == 0 and failure > 0 and share > 0:  # underflow must not turn δ into none
        aged = 5e-324
    return aged_epsilon(epsilon, share), aged


class Ageing:
    """What ageing between two slots makes of privacy, for any mechanism: both ways, exactly.

    `Ageing(process, age)` is for a process whose slots are alike; one that depends on the slot
    needs `aggregate_at`. `method` and `law` are those of `agewise.total_variation`.

    Guarantees
        `aged_epsilon` bounds the loss about the record at aggregation of *every* mechanism with
        that classical ε, under the assumptions of `method`; for `exact` and `own_law`, and for the
        worst prior of `any_prior`, some mechanism reaches it. Never above the paper's formula.
        `aged_epsilon(classical_epsilon(e)) <= e`, as computed and in exact arithmetic.

    >>> from agewise import birth_death
    >>> ageing = Ageing(birth_death(up=0.1, down=0.2, states=[20, 50, 100, 200]), age=9)
    >>> round(ageing.total_variation, 3), round(ageing.aged_epsilon(3.0), 6)
    (0.295, 0.850571)
    >>> round(ageing.classical_epsilon(0.5), 6), ageing.classical_epsilon(1.5)
    (1.618279, inf)
    """

    def __init__(
        self,
        process: Process,
        age: int,
        method: Method = "exact",
        law: ArrayLike | None = None,
        *,
        aggregate_at: int | None = None,
    ) -> None:
        self.age = whole("age", age, 0)
        self.method = method
        found = total_variation(process, self.age, method, law, aggregate_at=aggregate_at)
        self.total_variation = float(found)
        self._kind: Sharpness = MIXINGS[method].sharpness
        self._rows: Array | None = None
        self._rounding = 0.0
        self._measured: JointLaw | None = None
        if self._kind == "rows" and 0 < self.total_variation < 1 and self.age > 0:
            until = self.age + 1 if aggregate_at is None else aggregate_at
            joint = process.joint(until - self.age, until, law)
            if not joint.underflowed and joint.uncertainty == 0:
                self._rows, self._rounding = joint.backward, ROWS_OFF * joint.rounding
            if joint.stick_limits is not None:
                self._measured = joint

    @property
    def delta(self) -> float:
        """Δ, by its earlier name."""
        told = "Ageing.delta is now Ageing.total_variation"
        warnings.warn(told, DeprecationWarning, stacklevel=2)
        return self.total_variation

    def __repr__(self) -> str:
        return f"Ageing(age={self.age}, method={self.method!r}, Δ={self.total_variation:.6g})"

    def aged_epsilon(self, epsilon: float) -> float:
        """The largest aged ε of any mechanism with this classical ε (infinite: no noise)."""
        spent = np.asarray(epsilon if epsilon == math.inf else positive("epsilon", epsilon))
        aged = float(
            sharp_forward(self._kind, spent, self.total_variation, self._rows, self._rounding)
        )
        if self._measured is not None and self._measured.stick_limits is not None:
            known, limits = self._measured.stick_limits
            aged = min(aged, float(measured_forward(spent, known, limits)))
        return aged

    def classical_epsilon(self, epsilon: float) -> float:
        """The classical ε that suffices for this aged one; infinite where no noise is needed."""
        target = np.asarray([positive("epsilon", epsilon)])
        sticks = None
        if self._measured is not None:
            sticks = np.array([self._measured.stick_limit(epsilon)])
        if self._rows is not None:
            sticks = hockey_sticks(self._rows[None], target, np.array([self._rounding]))
        inverse = sharp_inverse(self._kind, target, np.array([self.total_variation]), sticks)
        needed, step = float(inverse[0]), _ULP
        while self.aged_epsilon(needed) > epsilon:  # by rounding only: a step or two
            needed, step = needed * (1 - step), 2 * step
            if math.isinf(needed):
                needed = 700.0
        return needed


def hockey_sticks(rows: Array, targets: Array, rounding: Array) -> Array:
    """Return E `[c]`: max over rows q, d of Σ_x (q(x) − e^{ε̄} d(x))₊, for rows `[c, Y, S]`.

    `rounding` `[c]` bounds the relative error of the rows, and E is rounded up by it: it is 0 only
    where no true row exceeds e^{ε̄} times another anywhere.
    """
    result = np.empty(len(rows))
    block = max(1, _BLOCK // (rows.shape[1] * rows.shape[2]))
    for start in range(0, len(rows), block):
        part = np.moveaxis(rows[start : start + block], 0, -1)  # batch last: long inner loops
        room = rounding[start : start + block] + 4 * _ULP
        with np.errstate(over="ignore", invalid="ignore"):
            factor = np.exp(targets[start : start + block]) * (1 - room)
            covered = part * factor
        if not np.isfinite(factor).all():  # beyond floats any probability is covered, but for 0
            covered = np.where(part > 0, np.minimum(covered, 2.0), 0.0)
        high = part * (1 + room)
        worst, excess = np.zeros(part.shape[2]), np.empty(part.shape[1:])
        for q, d in itertools.permutations(range(rows.shape[1]), 2):
            np.maximum(high[q], covered[d], out=excess)
            np.maximum(worst, np.subtract(excess, covered[d], out=excess).sum(axis=0), out=worst)
        result[start : start + block] = worst
    return np.asarray(np.minimum(result * (1 + rows.shape[2] * _ULP), 1.0))


def worst_losses(rows: Array, epsilons: Array, rounding: float) -> Array:
    """Return s_K `[e]` of rows `[Y, S]` at each of several classical ε's, rounded up.

    The best set for two rows is a prefix of the states sorted by the ratio of the rows.
    """
    each = np.ravel(epsilons)
    found = worst_each(np.broadcast_to(rows, (each.size, *rows.shape)), each, rounding)
    return found.reshape(np.shape(epsilons))


def worst_each(rows: Array, epsilons: Array, rounding: float) -> Array:
    """`worst_losses` `[c]` of each of several sets of rows `[c, Y, S]` at its own classical ε."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        base = 1 / np.expm1(epsilons)[:, None, None]  # infinite at ε = 0, 0 where there is no noise
    room = rounding + (8 + rows.shape[2]) * _ULP
    worst = np.zeros(len(rows))
    for d in range(rows.shape[1]):
        low = np.broadcast_to(rows[:, d : d + 1], rows.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(rows > 0, rows / low, -1.0)
        order = np.argsort(-ratio, axis=2, kind="stable")
        above = np.cumsum(np.take_along_axis(rows, order, axis=2), axis=2) * (1 + room)
        below = np.cumsum(np.take_along_axis(low, order, axis=2), axis=2) * (1 - room)
        gain = above - below
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            odds = np.where(
                gain > 0, gain / (base + below), 0.0
            )  # 0/0 cannot be: a gain needs mass
        worst = np.maximum(worst, np.log1p(odds.max(axis=(1, 2))))
    return np.asarray(worst * (1 + 4 * _ULP))


def sharp_inverse(kind: Sharpness, targets: Array, deltas: Array, sticks: Array | None) -> Array:
    """The classical ε `[c]` that suffices for aged targets, by what is known of the ageing.

    `rows`: `sticks` are the E of `hockey_sticks`. `cross_ratio`: for every prior,
    tanh(ε/4) = Δ·tanh(ε_c/4), Δ = tanh(D/4). `delta`: the formula, all that a limit on Δ allows.

    Guarantees
        The aged loss of any mechanism with this classical ε is at most the target, also in exact
        arithmetic. Never below `classical_epsilon(targets, deltas)`. Infinite where no noise is
        needed.
    """
    if kind == "rows" and sticks is not None:
        return np.asarray(classical_epsilon(targets, np.minimum(sticks, deltas)))
    if kind == "cross_ratio":
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.tanh(targets / 4) / deltas * (1 - 8 * _ULP)
            needed = 4 * np.arctanh(np.minimum(ratio, 1.0)) * (1 - 8 * _ULP)
        needed = np.where(ratio >= 1, np.inf, needed)
        return np.where(deltas == 1, targets, np.where(deltas == 0, np.inf, needed))
    return np.asarray(classical_epsilon(targets, deltas))


def sharp_forward(
    kind: Sharpness, spent: Array, delta: float, rows: Array | None, rounding: float
) -> Array:
    """The aged loss of the worst mechanism with these classical ε's, rounded up."""
    by_formula = np.asarray(aged_epsilon(spent, delta))
    if kind == "rows" and rows is not None:
        exact = worst_losses(rows, np.asarray(spent), rounding)
        return np.asarray(np.minimum(exact, by_formula))
    if kind == "cross_ratio" and delta < 1:
        inside = delta * np.tanh(np.asarray(spent) / 4) * (1 + 4 * _ULP)
        with np.errstate(divide="ignore"):
            aged = 4 * np.arctanh(np.minimum(inside, 1.0)) * (1 + 8 * _ULP)
        return np.asarray(np.minimum(aged, by_formula))
    return by_formula


def measured_forward(spent: Array, targets: Array, limits: Array) -> Array:
    """The aged loss of the worst mechanism, by limits on E at `targets` ε̄ that rise from 0.

    The ε̄ at which k·E = e^ε̄ − 1, k = e^{ε_c} − 1, with E, as a function of e^ε̄, by chords between
    the limits and constant beyond the last. Never below it: all terms of e^ε̄ − 1 are positive.
    """
    steps = np.expm1(targets)
    with np.errstate(over="ignore"):
        gain = np.expm1(np.asarray(spent, dtype=float))[..., None]
    enough = gain * limits <= steps
    place = np.where(enough.any(axis=-1), enough.argmax(axis=-1), len(steps))
    left = np.clip(place - 1, 0, len(steps) - 2)
    slope = (limits[left] - limits[left + 1]) / (steps[left + 1] - steps[left])
    base = 1 / gain[..., 0]  # 0 where there is no noise
    with np.errstate(divide="ignore", invalid="ignore"):
        within = (limits[left] + slope * steps[left]) / (base + slope)
        beyond = gain[..., 0] * limits[-1]
    reached = np.where(place < len(steps), np.minimum(within, steps[left + 1]), beyond)
    return np.asarray(np.log1p(reached) * (1 + 16 * _ULP))


def _forward(epsilon: Array, delta: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        half = np.exp(epsilon / 2)  # two factors, since e^ε_c may overflow where Δe^ε_c does not
        odds = np.where(epsilon < 700, delta * np.expm1(epsilon), delta * half * half)
        aged = np.where(np.isfinite(odds), np.log1p(odds), epsilon + np.log(delta))
    aged = np.where(delta == 1, epsilon, aged)
    return np.where(delta == 0, 0.0, aged)


def _checked_epsilon(epsilon: ArrayLike, *, infinite: bool) -> Array:
    values = numbers("epsilon", epsilon, "numbers above 0")
    wrong = ~(values > 0) | (False if infinite else np.isinf(values))
    if wrong.any():
        raise InvalidInput(
            "epsilon",
            float(values[wrong].flat[0]),
            "a number above 0" if infinite else "a finite number above 0",
        )
    return values


def checked_shares(total_variation: ArrayLike) -> Array:
    """Return Δ as an array, refusing anything outside [0, 1]."""
    values = numbers("total_variation", total_variation, "numbers from 0 to 1")
    wrong = ~((values >= 0) & (values <= 1))
    if wrong.any():
        raise InvalidInput("total_variation", float(values[wrong].flat[0]), "0 to 1")
    return values


def _plain(values: Array) -> float | Array:
    return float(values) if np.ndim(values) == 0 else values
