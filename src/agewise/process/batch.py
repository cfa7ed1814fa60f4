"""Many homogeneous chains at once: their kernels, age by age, and Δ at each age."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.errors import InvalidInput
from agewise.process.chain import boolean_power, closed_class
from agewise.process.distance import any_prior_distance, rounded_up, widest
from agewise.process.joint import TINY, backward_rows, rounding

MANY_STATES = 16
"""With more states BLAS multiplies matrices one by one faster than NumPy does all of them."""


class ChainBatch:
    """Chains `[m, S, S]` and an adversary's priors `[m, S]` (None: any), age by age.

    Kernels and rows have the batch last, `[S, S, m]`: long contiguous inner loops.
    """

    def __init__(self, chains: Array, prior: Array | None) -> None:
        self.chains, self.prior = chains, prior
        self._step = np.ascontiguousarray(np.moveaxis(chains, 0, -1))
        self._prior = None if prior is None else np.ascontiguousarray(prior.T)
        self._rarest = np.zeros(len(chains))  # logarithms, as of the smallest move
        self._redrawn = (self._step == self._step[:1]).all(axis=(0, 1))  # each slot, by one law
        self._smallest = np.log(np.where(self._step > 0, self._step, 1).min(axis=(0, 1)))
        self._tiny = np.zeros(len(chains), dtype=bool)
        if self._prior is not None:
            self._rarest = np.log(np.where(self._prior > 0, self._prior, 1).min(axis=0))
            self._tiny = np.asarray((self._prior < TINY).any(axis=0))

    def only(self, which: NDArray[np.bool_]) -> ChainBatch:
        """Some of the chains."""
        prior = None if self.prior is None else self.prior[which]
        return ChainBatch(self.chains[which], prior)

    def kernels(
        self, ages: Iterable[int], kernel: Array | None = None, reached: int = 0
    ) -> Iterator[tuple[Array, int]]:
        """Yield the kernels `[S, S, m]` of rising ages, with each age; from one `reached` on."""
        if kernel is None:
            size = len(self._step)
            kernel = np.zeros_like(self._step)
            kernel[np.arange(size), np.arange(size)] = 1
        for age in ages:
            if age - reached > 1:
                jump = np.linalg.matrix_power(self.chains, age - reached)
                kernel = _products(kernel, np.ascontiguousarray(np.moveaxis(jump, 0, -1)))
            elif age > reached:
                kernel = _products(kernel, self._step) if reached else self._step
            reached = age
            yield kernel, age

    def moved(self, values: Array, ages: int) -> Iterator[Array]:
        """Yield E `[S, k, m]` of `values` `[k, S]`, age by age, given each state at collection."""
        later = np.repeat(values.T[..., None], len(self.chains), axis=2)
        for age in range(ages):
            later = _products(self._step, later) if age else later
            yield later

    def ageing(
        self, kernel: Array, age: int, *, measured: bool = True
    ) -> tuple[Array, Array | None]:
        """Return Δ `[m]` at an age, and the backward rows `[y, x, m]`; None where any prior is.

        With rows and not `measured` Δ is left to whoever has the rows: 1 where a law underflowed,
        so that they say nothing, and 0 elsewhere.
        """
        rows = None if self._prior is None else backward_rows(self._prior[:, None] * kernel)
        if age == 0:
            return np.ones(kernel.shape[2]), rows
        if rows is None or measured:
            value = any_prior_distance(kernel) if rows is None else widest(rows)
            value = rounded_up(value, rounding(age, len(kernel)))
        else:
            value = np.zeros(kernel.shape[2])
        value[self._redrawn] = 0
        doubtful = self._tiny | (self._smallest * age + self._rarest < np.log(TINY))
        for index in np.flatnonzero(doubtful & (value < 1)):
            prior = None if self.prior is None else self.prior[index]
            if _underflows(self.chains[index], kernel[..., index], age, prior):
                value[index] = 1
        return value, rows


def _products(left: Array, right: Array) -> Array:
    """The products of matrices `[S, S, m]`: few states by whole batches, many by BLAS."""
    if len(left) > MANY_STATES:
        first, second = (np.ascontiguousarray(np.moveaxis(one, -1, 0)) for one in (left, right))
        return np.ascontiguousarray(np.moveaxis(first @ second, 0, -1))
    return np.asarray(np.einsum("xzm,zym->xym", left, right))


def _underflows(chain: Array, kernel: Array, age: int, prior: Array | None) -> bool:
    """Whether something that is possible got a probability too small for a float to hold well."""
    possible = boolean_power(chain > 0, age)
    if prior is None:
        return bool((kernel[possible] < TINY).any())
    occurs = prior > 0
    if not occurs.all():  # a stationary law that underflowed has zeros that are none
        occurs |= _recurrent(chain, prior)
    possible &= occurs[:, None]
    return bool(((prior[:, None] * kernel)[possible] < TINY).any())


def _recurrent(chain: Array, law: Array) -> NDArray[np.bool_]:
    """The closed class, where `law` is the chain's own; nothing where it is another law."""
    if np.allclose(law @ chain, law, rtol=1e-9, atol=0):
        with suppress(InvalidInput):  # of several classes: such a chain has no law of its own
            return closed_class(chain)
    return np.zeros(len(law), dtype=bool)
