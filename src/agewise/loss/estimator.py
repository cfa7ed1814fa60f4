"""What the server makes of what it hears: gains and offset of the best linear estimate."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from agewise.arrays import Array
from agewise.knowledge.estimate import GainTables, best_gains, gap_of
from agewise.loss.gap import KnownTables, all_moments, known_tables, schedule_cells
from agewise.mechanism import MECHANISMS
from agewise.problem import Problem


@dataclass(frozen=True)
class Estimator:
    """The best linear estimate of a schedule: `offset` `[C]` + Σ `gains` `[m, C]` × release.

    `gap` is its loss; clients of whom nothing was heard have gain 0.
    """

    gains: Array
    offset: Array
    gap: float

    def of(self, releases: Array) -> Array:
        """The estimate from the clients' releases `[m, C]`; those not heard count for nothing."""
        return np.asarray(self.offset + (self.gains * releases).sum(axis=0))


def estimator_of(
    problem: Problem, slots: Sequence[int], unheard: Collection[str] = ()
) -> Estimator:
    """Return the best linear estimate for clients that collect in these slots, one per client."""
    known = known_tables(problem)
    tables = heard_tables(problem, known, unheard)
    rows, columns = np.arange(len(slots)), np.asarray(slots) - 1
    gains = best_gains(tables, columns)
    expected = (problem.weights[:, None] * known.target_mean[rows, columns]).sum(axis=0)
    offset = expected - (gains * known.mean[rows, columns]).sum(axis=0)
    return Estimator(gains, offset, max(0.0, gap_of(tables, columns, gains)))  # but for rounding


def heard_tables(problem: Problem, known: KnownTables, unheard: Collection[str]) -> GainTables:
    """The tables of a problem in which nothing is heard of some clients."""
    if not unheard:
        return known.gains
    silent = np.array([client.name in unheard for client in problem.clients])
    return replace(
        known.gains,
        cross=np.where(silent[:, None, None], 0.0, known.gains.cross),
        heard=np.where(silent[:, None, None, None], 0.0, known.gains.heard),
    )


def coordinate_gaps(problem: Problem, ages: ArrayLike, unheard: Collection[str] = ()) -> Array:
    """Return the expected squared error of each coordinate of the model, `[C]`.

    Summed with the learner's weights they are `loss_gap`; their roots are error bars.
    """
    _, columns = schedule_cells(problem, ages)
    gains = np.repeat(problem.weights[:, None], problem.width, axis=1)
    if problem.estimator == "best":
        gains = estimator_of(problem, (columns + 1).tolist(), unheard).gains
    variance = MECHANISMS[problem.mechanism].variance
    own, bias, shared = 0.0, 0.0, 0.0
    for i, (table, known) in enumerate(all_moments(problem)):
        weight, gain, slot = problem.weights[i], gains[i], columns[i]
        loud = known.variance[slot] + float(variance(table.scale[slot]))
        together = 2 * weight * gain * known.covariance[slot]
        own = own + weight**2 * known.target_variance[slot] - together + gain**2 * loud
        bias = bias + gain * known.mean[slot] - weight * known.target_mean[slot]
        shared = shared + gain[:, None] * known.factors[slot] - weight * known.target_factors
    off = 0.0 if problem.estimator == "best" else np.square(bias)  # the offset takes the bias away
    return np.asarray(own + off + np.square(shared).sum(axis=-1))
