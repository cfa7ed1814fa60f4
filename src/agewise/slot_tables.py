"""What a client must do in each slot, as tables: its law, its release, its noise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array, frozen
from agewise.clients import Client
from agewise.learning import Estimator, Learner, Trained, guard_table, release_table


class SlotRows:
    """Kernels, laws and releases of one client, by age: made when they are asked for.

    `young` `[A]` are the ages, each the least that stands for it. Ages that are the same share a
    row of `kernels` `[R, S, S]`, `laws` `[R, S]` (the client's law at collection) and `release`
    `[R, S, d]` (f of each state), oldest first; `row` `[A]` says which. `guard` `[R, S, d]` is what
    noise is set for: f, unless that depends on a model.
    """

    def __init__(
        self,
        client: Client,
        learner: Learner,
        estimator: Estimator,
        young: NDArray[np.int64],
        aggregate_at: int,
        norm: Literal[1, 2],
    ) -> None:
        self.client, self.learner, self.estimator = client, learner, estimator
        self.young, self.aggregate_at, self.norm = young, aggregate_at, norm

    @cached_property
    def _distinct(self) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        ages, row = np.unique(-self.young, return_inverse=True)
        row.setflags(write=False)
        return -ages, row  # oldest first, as the slots are

    @property
    def ages(self) -> NDArray[np.int64]:
        """The distinct ages `[R]`."""
        return self._distinct[0]

    @property
    def row(self) -> NDArray[np.intp]:
        """The row of each age."""
        return self._distinct[1]

    @property
    def starts(self) -> list[int]:
        """The slot of collection of each row."""
        return (self.aggregate_at - self.ages).tolist()  # type: ignore[no-any-return]

    @cached_property
    def kernels(self) -> Array:
        process, last = self.client.process, self.aggregate_at
        return frozen(np.stack([process.kernel(t, last) for t in self.starts]))

    @cached_property
    def laws(self) -> Array:
        return frozen(np.stack([self.client.law_at(t) for t in self.starts]))

    @cached_property
    def release(self) -> Array:
        return frozen(np.stack([self.release_from(t) for t in self.starts]))

    @cached_property
    def guard(self) -> Array:
        if not isinstance(self.learner, Trained):
            return self.release
        return frozen(np.stack([self.guard_from(t) for t in self.starts]))

    def release_from(self, collect_at: int) -> Array:
        """f `[S, d]` of what was collected in one slot."""
        process, last = self.client.process, self.aggregate_at
        return release_table(self.learner, process, collect_at, last, self.estimator)

    def guard_from(self, collect_at: int) -> Array:
        """What noise is set for `[S, d]`, of what was collected in one slot."""
        process, last = self.client.process, self.aggregate_at
        return guard_table(self.learner, process, collect_at, last, self.estimator, self.norm)


@dataclass(frozen=True)
class SlotTable:
    """For one client, by collection slot (1..A unless asked for others): law, release and noise.

    By slot, `[A]` each: `delta`, `sensitivity`, `scale`, `classical_epsilon`, `classical_delta` and
    `ages`. Slots in which records are so old that nothing changes any more share a row of
    `kernel_rows` `[R, S, S]`, `law_rows` `[R, S]` (the client's law at collection) and
    `release_rows` `[R, S, d]` (f of each state); `row` `[A]` says which. `kernels`, `laws` and
    `release` are the same by slot. `guard_rows` `[R, S, d]` are what noise was set for: f, unless
    that depends on a model.
    """

    rows: SlotRows  #: what the tables below are of, by distinct age
    delta: Array
    sensitivity: Array
    scale: Array
    classical_epsilon: Array
    classical_delta: Array
    ages: NDArray[np.int64]

    @property
    def row(self) -> NDArray[np.intp]:
        """The row of each slot."""
        return self.rows.row

    @property
    def kernel_rows(self) -> Array:
        """The kernels of the distinct ages."""
        return self.rows.kernels

    @property
    def law_rows(self) -> Array:
        """The client's laws at collection, of the distinct ages."""
        return self.rows.laws

    @property
    def release_rows(self) -> Array:
        """What each state of a record contributes, of the distinct ages."""
        return self.rows.release

    @property
    def guard_rows(self) -> Array:
        """What noise was set for, of the distinct ages."""
        return self.rows.guard

    @cached_property
    def kernels(self) -> Array:
        """The kernel of each slot, `[A, S, S]`."""
        return frozen(self.kernel_rows[self.row])

    @cached_property
    def laws(self) -> Array:
        """The client's law at collection in each slot, `[A, S]`."""
        return frozen(self.law_rows[self.row])

    @cached_property
    def release(self) -> Array:
        """What each state of a record contributes in each slot: `[A, S]`, or `[A, S, d]`."""
        rows = self.release_rows[self.row]
        return frozen(rows[..., 0] if rows.shape[-1] == 1 else rows)
