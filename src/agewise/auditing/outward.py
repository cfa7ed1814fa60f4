"""Arithmetic that errs outward: pairs of floats between which the true number lies.

Everything here is 0 or more, so that a sum, product or quotient of lower ends is a lower end, and
every operation moves its result one float further out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from agewise.arrays import Array
from agewise.errors import InvalidInput

FUNCTION_OFF = 4
"""Floats by which an exponential or a logarithm of NumPy may be off."""


@dataclass(frozen=True)
class Between:
    """Numbers that are at least `low` and at most `high`: arrays of one shape, 0 or more."""

    low: Array
    high: Array

    @classmethod
    def exactly(cls, numbers: Array) -> Between:
        """Floats as they are."""
        return cls(np.asarray(numbers, float), np.asarray(numbers, float))

    def __add__(self, other: Between) -> Between:
        nothing = (self.high == 0) & (other.high == 0)
        return Between(_down(self.low + other.low), _up(self.high + other.high, nothing))

    def __mul__(self, other: Between) -> Between:
        nothing = (self.high == 0) | (other.high == 0)
        with np.errstate(under="ignore"):
            return Between(_down(self.low * other.low), _up(self.high * other.high, nothing))

    def __truediv__(self, other: Between) -> Between:
        nothing = self.high == 0
        with np.errstate(divide="ignore", invalid="ignore", under="ignore", over="ignore"):
            low = np.where(self.low == 0, 0.0, self.low / other.high)
            high = np.where(nothing, 0.0, self.high / other.low)
        return Between(_down(low), _up(high, nothing))

    def __getitem__(self, place: Any) -> Between:
        return Between(self.low[place], self.high[place])

    def __matmul__(self, other: Between) -> Between:
        """The product of two matrices; a row of numbers counts as a matrix of one."""
        terms = [self[..., k, None] * other[k] for k in range(other.low.shape[0])]
        return reduce(Between.__add__, terms)

    @property
    def transposed(self) -> Between:
        """Rows for columns."""
        return Between(self.low.T, self.high.T)

    def total(self) -> Between:
        """The sum over the last axis."""
        return reduce(Between.__add__, (self[..., k] for k in range(self.low.shape[-1])))


def exponential(low: Array, high: Array) -> Between:
    """e to the power of numbers between two floats."""
    with np.errstate(over="ignore", under="ignore"):
        ends = np.exp(low), np.exp(high)
    above = np.where(np.isneginf(high), 0.0, _moved(ends[1], np.inf, FUNCTION_OFF))
    return Between(np.maximum(_moved(ends[0], -np.inf, FUNCTION_OFF), 0.0), above)


def log_below(numbers: Array) -> Array:
    """A lower end of the logarithms of floats."""
    return _log(numbers, -np.inf)


def log_above(numbers: Array) -> Array:
    """An upper end of the logarithms of floats."""
    return _log(numbers, np.inf)


def _log(numbers: Array, to: float) -> Array:
    with np.errstate(divide="ignore"):
        return _moved(np.log(numbers), to, FUNCTION_OFF)


def _down(value: Array) -> Array:
    return np.maximum(np.nextafter(value, -np.inf), 0.0)


def _up(value: Array, nothing: NDArray[np.bool_]) -> Array:
    """The next float above, but for numbers of which it is known that they are 0."""
    return np.where(nothing, 0.0, np.nextafter(value, np.inf))


def _moved(value: Array, to: float, times: int) -> Array:
    for _ in range(times):
        value = np.nextafter(value, to)
    return value


def power(step: Between, times: int) -> Between:
    """A matrix of probabilities to a power, by squaring."""
    size = step.low.shape[0]
    result = Between.exactly(np.eye(size))
    while times:
        if times % 2:
            result = result @ step
        step, times = step @ step, times // 2
    return result


def product(steps: Sequence[Between], size: int) -> Between:
    """The product of several matrices, in order."""
    return reduce(Between.__matmul__, steps, Between.exactly(np.eye(size)))


def stationary(step: Between) -> Between:
    """The law that a matrix of probabilities leaves as it is.

    State after state is left out, and its ways through are given to the others (Grassmann, Taksar
    and Heyman): nothing is ever subtracted, so that both ends stay close. States that are left for
    good have no share. Several classes that are never left have no one law.
    """
    size = step.low.shape[0]
    _, label = connected_components(step.high > 0, directed=True, connection="strong")
    closed = [
        one
        for one in np.unique(label)
        if not (step.high[np.ix_(label == one, label != one)] > 0).any()
    ]
    if len(closed) != 1:
        raise InvalidInput(
            "process",
            f"{len(closed)} classes of states that are never left",
            "one",
            "It has no single stationary law: state the client's law, and use mixing own_law.",
        )
    inside = np.flatnonzero(label == closed[0])
    table = {(i, j): step[i, j] for i in inside for j in inside}
    zero = Between.exactly(np.zeros(()))
    out: dict[int, Between] = {}
    for place in range(len(inside) - 1, 0, -1):
        last, others = inside[place], inside[:place]
        out[last] = reduce(Between.__add__, (table[last, j] for j in others), zero)
        for i in others:
            through = table[i, last] / out[last]
            for j in others:
                table[i, j] = table[i, j] + through * table[last, j]
    weights = {inside[0]: Between.exactly(np.ones(()))}
    for place in range(1, len(inside)):
        last, others = inside[place], inside[:place]
        inflow = (weights[i] * table[i, last] for i in others)
        weights[last] = reduce(Between.__add__, inflow, zero) / out[last]
    shares = [weights.get(state, zero) for state in range(size)]
    law = Between(np.array([one.low for one in shares]), np.array([one.high for one in shares]))
    return law / law.total()[..., None]


def backward(law: Between, kernel: Between) -> Between:
    """The law of an earlier value given each later one, one row per later value.

    `law` is that of the earlier value, `kernel` the way to the later one. Values that cannot occur
    later have a row of zeros.
    """
    joint = law[:, None] * kernel
    return (joint / joint.transposed.total()[None]).transposed
