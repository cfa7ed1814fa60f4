"""What the server makes of what it hears: gains, offset, and the noise that it may have to draw."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array
from agewise.calibration import SlotTable
from agewise.knowledge import Levels
from agewise.knowledge.estimate import GainTables, best_gains, gap_of
from agewise.knowledge.one_draw import collapsed, gains_of_one_draw
from agewise.learning import Accuracy, counts_together
from agewise.loss.kinds import kinds_of
from agewise.loss.tables import (
    KnownTables,
    all_moments,
    cost_tables,
    known_at,
    known_tables,
    noise_power,
    one_draw_of,
    picked,
    schedule_cells,
    shared_costs,
    shared_tables,
)
from agewise.loss.training import is_trained, rehearsals, training_tables
from agewise.mechanism import MECHANISMS
from agewise.problem import Problem


@dataclass(frozen=True)
class Estimator:
    """What is published of a schedule: `offset` `[C]` + Σ `gains` `[m, C]` × release.

    `gap` is its loss; clients of whom nothing was heard have gain 0. `draw` is the scale of the
    noise that the server adds to it, None where each client adds its own.
    """

    gains: Array
    offset: Array
    gap: float
    draw: float | None = None

    def of(self, releases: Array) -> Array:
        """The estimate from the clients' releases `[m, C]`; those not heard count for nothing."""
        return np.asarray(self.offset + (self.gains * releases).sum(axis=0))


def estimator_of(
    problem: Problem,
    slots: Sequence[int],
    unheard: Collection[str] = (),
    promised: Mapping[str, float] | None = None,
    *,
    alone: bool = False,
) -> Estimator:
    """Return what the server does with clients that collect in these slots, one per client.

    Weights and no offset, or with the estimator `best` the best linear estimate. `promised` are
    noise scales that some clients' means were promised by the server's one draw, where that is
    more than their target needs. `alone`: of a round by itself, where clients take turns.
    """
    columns = np.asarray(slots) - 1
    if problem.uses_knowledge:
        known = known_at(problem, columns, alone=alone)
        return best_of(problem, known, columns, unheard, promised or {})
    gains = np.repeat(problem.weights[:, None], problem.width, axis=1)
    if isinstance(problem.known, Levels):
        gap, slots_of = _with_levels(problem, columns), kinds_of(problem).slots()
    else:
        tables = shared_costs(problem)
        row = tables.rows.row
        bias = tables.b[row, columns].sum(axis=0)
        gap = float(tables.u[row, columns].sum() + np.square(bias).sum())
        slots_of = tables.rows.each(tables.slots)
    draw = None
    if problem.server_adds_noise:
        needs = needed_scales(problem, slots_of, columns, promised or {})
        draw = float((problem.weights * needs).max())
        gap += one_draw_of(problem) * draw**2
    return Estimator(gains, np.zeros(problem.width), gap, draw)


def searched_estimate(
    problem: Problem,
    columns: NDArray[np.intp],
    unheard: Collection[str] = (),
    promised: Mapping[str, float] | None = None,
) -> Estimator:
    """Return the best estimate and its loss as a search sees them: of levels the largest factors.

    Its gains are what the proof of a search is about; `estimator_of` has those that are used.
    """
    known = shared_tables(problem)
    known = known if known.rows.own else picked(known, columns)
    return best_of(problem, known, columns, unheard, promised or {})


def known_mean(problem: Problem, ages: ArrayLike) -> Array:
    """Return what the server expects of the target `[C]` before anything is collected."""
    _, columns = schedule_cells(problem, ages)
    if is_trained(problem):
        return np.zeros(problem.width)
    known = known_at(problem, columns)
    means = known.target_mean[known.kind, known.places(columns)]
    return np.asarray((problem.weights[:, None] * means).sum(axis=0))


def levels_left(problem: Problem, ages: ArrayLike) -> tuple[float, float]:
    """Return what is unknown of the clients' weighted levels, before and after a release.

    Standard deviations, in the records' unit; after: given everything that reaches the server, or
    with noise by the server given what it publishes.
    """
    _, columns = schedule_cells(problem, ages)
    known = known_at(problem, columns)
    tables, places = known.gains, known.places(columns)
    level = tables.common.sum(axis=0)
    before = float(np.square(level).sum())
    if problem.server_adds_noise:
        estimate = estimator_of(problem, (columns + 1).tolist())
        rows, gains = np.arange(len(columns)), estimate.gains
        moved = (gains[..., None] * tables.heard[rows, places]).sum(axis=0)
        noise = one_draw_of(problem) * (estimate.draw or 0.0) ** 2
        power = float((gains**2 * tables.power[rows, places]).sum() + (moved**2).sum()) + noise
        after = before - float((moved * level).sum()) ** 2 / power if power > 0 else before
    else:
        alone = replace(tables, base=np.zeros_like(tables.base), cross=np.zeros_like(tables.cross))
        after = gap_of(alone, places, best_gains(alone, places))
    return math.sqrt(before), math.sqrt(max(after, 0.0))


def _with_levels(problem: Problem, columns: NDArray[np.intp]) -> float:
    """What weighted means of clients that share levels lose, noise by the server not counted."""
    known, places = known_at(problem, columns), np.zeros_like(columns)
    off = (known.mean - known.target_mean)[known.kind, 0, 0]
    loss = gap_of(known.gains, places, problem.weights[:, None])
    return loss + float(problem.weights @ off) ** 2


def rehearsed_gaps(problem: Problem, slots: Sequence[int]) -> list[float]:
    """The gap of a schedule of a training by each of its rehearsals; their mean is the gap."""
    tables = cost_tables(problem)
    rows, columns, gaps = np.arange(len(slots)), np.asarray(slots) - 1, []
    variance = MECHANISMS[problem.mechanism].variance
    scales = problem.weights * np.array(
        [table.scale[t] for table, t in zip(tables.slots, columns.tolist(), strict=True)]
    )
    if problem.server_adds_noise:
        scales = scales.max(keepdims=True)
    for one in rehearsals(problem):
        own = training_tables(problem, tables.slots, [one])
        bias = own.bias[rows, columns].sum(axis=0)
        noise = own.power * float(variance(scales).sum())
        gaps.append(noise + float(own.spread[rows, columns].sum() + np.square(bias).sum()))
    return gaps


def best_of(
    problem: Problem,
    known: KnownTables,
    columns: NDArray[np.intp],
    unheard: Collection[str],
    promised: Mapping[str, float],
) -> Estimator:
    """Return the best linear estimate at these columns of the tables."""
    tables, places = heard_tables(problem, known, unheard), known.places(columns)
    draw, noise = None, 0.0
    if problem.server_adds_noise:
        needs = needed_scales(problem, known.slots, columns, promised)
        power = one_draw_of(problem)
        single, draw = gains_of_one_draw(collapsed(tables), places, needs, power)
        found, noise = np.repeat(single[:, None], tables.cross.shape[2], axis=1), power * draw**2
    else:
        found = best_gains(tables, places)
    gains = found if found.shape[1] > 1 else np.repeat(found, problem.width, axis=1)
    expected = (problem.weights[:, None] * known.target_mean[known.kind, places]).sum(axis=0)
    offset = expected - (gains * known.mean[known.kind, places]).sum(axis=0)
    gap = max(0.0, gap_of(tables, places, found)) + noise  # but for rounding
    return Estimator(gains, offset, gap, draw)


def needed_scales(
    problem: Problem,
    slots: Sequence[SlotTable],
    columns: NDArray[np.intp],
    promised: Mapping[str, float],
) -> Array:
    """The noise that each client's mean needs in its column, or was promised if that is more."""
    members = zip(problem.clients, slots, columns.tolist(), strict=True)
    return np.array(
        [max(float(table.scale[t]), promised.get(client.name, 0.0)) for client, table, t in members]
    )


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

    Summed with the learner's weights they are `loss_gap`, unless coordinates count together; their
    roots are error bars.
    """
    _, columns = schedule_cells(problem, ages)
    estimate = estimator_of(problem, (columns + 1).tolist(), unheard, alone=True)
    if isinstance(problem.known, Levels):
        return np.array([estimate.gap])
    gains, draw = estimate.gains, estimate.draw
    variance = MECHANISMS[problem.mechanism].variance
    bias, shared = 0.0, 0.0
    own = 0.0 if draw is None else float(variance(np.asarray(draw)))
    for i, (table, known) in enumerate(all_moments(problem)):
        weight, gain, slot = problem.weights[i], gains[i], columns[i]
        loud = known.variance[slot]
        if draw is None:
            loud = loud + float(noise_power(problem, problem.clients[i], table.scale[slot]))
        together = 2 * weight * gain * known.covariance[slot]
        own = own + weight**2 * known.target_variance[slot] - together + gain**2 * loud
        bias = bias + gain * known.mean[slot] - weight * known.target_mean[slot]
        shared = shared + gain[:, None] * known.factors[slot] - weight * known.target_factors
    off = 0.0 if problem.uses_knowledge else np.square(bias)  # the offset takes the bias away
    return np.asarray(own + off + np.square(shared).sum(axis=-1))


def accuracy_of(
    problem: Problem, ages: ArrayLike, unheard: Collection[str] = ()
) -> Accuracy | None:
    """Return what is known of the errors of an aggregate, for learners that count it together.

    With measured knowledge, errors of different coordinates are taken to be unrelated.
    """
    if not counts_together(problem.learner):
        return None
    _, columns = schedule_cells(problem, ages)
    estimate = estimator_of(problem, (columns + 1).tolist(), unheard)
    best = problem.uses_knowledge
    slots = known_tables(problem).slots if best else cost_tables(problem).slots
    variance, gains, width = MECHANISMS[problem.mechanism].variance, estimate.gains, problem.width
    if estimate.draw is None:
        scales = needed_scales(problem, slots, columns, {})
        noise = np.asarray(np.square(gains).T @ variance(scales))
    else:
        noise = np.full(width, float(variance(np.asarray(estimate.draw))))
    if problem.known.shared:
        return Accuracy(noise, np.diag(coordinate_gaps(problem, ages, unheard)))
    error, bias = np.diag(noise), np.zeros(width)
    parts = zip(problem.clients, problem.weights, gains, slots, columns.tolist(), strict=True)
    for client, weight, gain, table, slot in parts:
        row, law = table.row[slot], table.law_rows[table.row[slot]]
        heard = gain * table.release_rows[row]
        fresh = weight * problem.learner.table(client.process.states)
        joint = law[:, None] * table.kernel_rows[row]
        off = law @ heard - joint.sum(axis=0) @ fresh
        heard, fresh = heard - law @ heard, fresh - joint.sum(axis=0) @ fresh
        mixed = heard.T @ joint @ fresh
        squares = (law * heard.T) @ heard + (joint.sum(axis=0) * fresh.T) @ fresh
        error = error + (squares - mixed - mixed.T) / client.samples
        bias = bias + off
    if not best:  # whose offset takes the bias away
        error = error + np.outer(bias, bias)
    return Accuracy(noise, error)
