"""Sums of independent records on a lattice, for Theorem 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array

LEVELS = 64
"""Grid cells across the widest range of a release that lies on no common lattice."""


LARGEST_LATTICE = 2**17
"""Lattice points of the aggregate beyond which a coarser grid is used, at a stated error."""


NEGLIGIBLE = 1e-20
"""Probability that the window of the FFT may leave out (Bernstein's inequality)."""


@dataclass(frozen=True, eq=False)
class Sum:
    """A weighted sum of all records of all clients, each value on a lattice of one step.

    `index[i][t]` `[S]` are the lattice points of client i's values in slot t, `offset[i, t]` the
    value of lattice point 0, `size` the length of the FFT window.
    """

    step: float
    index: list[NDArray[np.int64]]
    offset: Array
    size: int
    complete: bool


def on_lattice(total: Sum, client: int) -> Array:
    """The values of a client's records, as multiples of the step."""
    return np.asarray(total.offset[client][:, None] + total.step * total.index[client])


def lattice_sum(
    values: list[Array], laws: list[Array], samples: NDArray[np.int64]
) -> tuple[Sum, bool]:
    """Put the values on a lattice; say whether they were on one already."""
    lowest = np.stack([v.min(axis=1) for v in values])
    widest = max(float(np.ptp(v, axis=1).max()) for v in values)
    step = _common_step(
        np.concatenate([(v - v.min(axis=1, keepdims=True)).ravel() for v in values])
    )
    exact = step is not None and samples.sum() * widest / step < LARGEST_LATTICE
    if step is None or not exact:
        step = (widest or 1.0) / LEVELS
    index = [np.rint((v - v.min(axis=1, keepdims=True)) / step).astype(np.int64) for v in values]
    reach = sum(int(n) * int(k.max()) for n, k in zip(samples, index, strict=True))
    size, complete = _window(index, laws, samples, reach)
    return Sum(step, index, lowest, size, complete), exact


def _common_step(gaps: Array) -> float | None:
    """The largest step of which all gaps are multiples, or None if there is no sensible one."""
    positive = np.unique(gaps[gaps > 0])
    if positive.size == 0:
        return 1.0
    smallest = float(positive[0])
    parts = [Fraction(g / smallest).limit_denominator(1000) for g in positive.tolist()]
    if any(abs(float(p) * smallest - g) > 1e-9 * g for p, g in zip(parts, positive, strict=True)):
        return None
    divisor = math.lcm(*(p.denominator for p in parts))
    return smallest / divisor if divisor <= 10_000 else None


def _window(
    index: list[NDArray[np.int64]], laws: list[Array], samples: NDArray[np.int64], reach: int
) -> tuple[int, bool]:
    """An FFT length outside of which the sum has negligible probability, by Bernstein."""
    from scipy.fft import next_fast_len  # noqa: PLC0415  (a tenth of a second to import)

    variance, largest = 0.0, 0.0
    for k, law, n in zip(index, laws, samples, strict=True):
        mean = (k * law).sum(axis=1, keepdims=True)
        variance += int(n) * float(((k - mean) ** 2 * law).sum(axis=1).max())
        largest = max(largest, float(np.abs(k - mean).max()))
    weight = math.log(2 / NEGLIGIBLE)
    half = weight * largest / 3 + math.sqrt((weight * largest / 3) ** 2 + 2 * weight * variance)
    needed = 2 * math.ceil(half) + 3
    if needed >= reach + 1:
        return int(next_fast_len(reach + 1, real=True)), True
    return int(next_fast_len(needed, real=True)), False
