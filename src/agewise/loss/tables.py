"""The tables that a scheduler works on: what each client adds to the loss in each slot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array, frozen
from agewise.calibration import SlotTable
from agewise.checks import whole
from agewise.errors import InvalidInput
from agewise.knowledge import Asked, Levels, Moments, independent_moments
from agewise.knowledge.estimate import GainTables
from agewise.knowledge.one_draw import collapsed
from agewise.learning import Learner, counts_together, judged, release_step
from agewise.loss.kinds import Kinds, kinds_of, told_at, told_of
from agewise.loss.size import refuse_large
from agewise.loss.training import is_trained, rehearsals, training_tables
from agewise.mechanism import MECHANISMS
from agewise.problem import Client, Problem, as_problem


@dataclass(frozen=True)
class Rows:
    """Which row of a table each client has: of its own, or shared with all that are alike."""

    row: NDArray[np.intp]  #: by client, `[m]`
    first: NDArray[np.intp]  #: the first client of each row

    @cached_property
    def count(self) -> NDArray[np.int64]:
        """How many clients each row stands for."""
        return np.bincount(self.row, minlength=len(self.first))

    @property
    def own(self) -> bool:
        """Whether each client has a row of its own."""
        return len(self.first) == len(self.row)

    def each(self, slots: tuple[SlotTable, ...]) -> tuple[SlotTable, ...]:
        """What clients must do, one by one, from what it is by row."""
        return slots if self.own else tuple([slots[row] for row in self.row.tolist()])

    def used(self, columns: NDArray[np.intp]) -> tuple[NDArray[np.intp], ...]:
        """The rows and columns `[k]` that clients take together, and how many take each."""
        slots = int(columns.max()) + 1
        taken, count = np.unique(self.row * slots + columns, return_counts=True)
        return taken // slots, taken % slots, count


def rows_of_each(problem: Problem) -> Rows:
    """A row for each client."""
    every = np.arange(len(problem.clients))
    return Rows(every, every)


@lru_cache(maxsize=8)
def rows_of(problem: Problem) -> Rows:
    """The rows that planning counts clients by: of very many those alike in all but name share one.

    Not with a capacity, where each has a place of its own, nor where a client is known by more than
    its kind.
    """
    each = rows_of_each(problem)
    few = len(each.row) < COUNTED or problem.capacity is not None
    if few or is_trained(problem) or not _are_simple(problem):
        return each
    if not problem.uses_knowledge and problem.known.shared:
        return each
    weights, weight = np.unique(problem.weights, return_inverse=True)
    both = told_of(problem).kind * len(weights) + weight
    _, first, row = np.unique(both, return_index=True, return_inverse=True)
    return each if MANY_ALIKE * len(first) > len(row) else Rows(row, first)


COUNTED = 2_000
"""Clients from which on those alike are counted."""

MANY_ALIKE = 8
"""How many clients there must be to a row, on average, for that."""


@dataclass(frozen=True)
class CostTables:
    """What each client adds to the gap in each collection slot, `[m, A]`, column t-1 for slot t.

    gap = Σ_i u[i, t_i] + ‖Σ_i b[i, t_i]‖², with u = p²(noise + Var[f(X) − φ(Y)]/n) and
    b = p·E[f(X) − φ(Y)], where noise and variance are summed over the coordinates of the learner
    with its weights; b is `[m, A]` for one coordinate and `[m, A, d]` for several, each scaled by
    the root of its weight. A learner with a metric L is judged by the coordinates of L·f and L·φ.
    What clients share is further coordinates of b: how far their release moves with each factor,
    less how far their fresh mean does. `spread` is p²·Var[f(X) − φ(Y)]/n,
    what of u noise leaves alone. Where the server draws noise once, u is the spread alone.
    """

    u: Array  #: own costs, `[m, A]`
    b: Array  #: biases, `[m, A]` or `[m, A, d]`
    spread: Array
    slots: tuple[SlotTable, ...]  #: what each client must do in each slot
    rows: Rows  #: which row each client has: its own, but in `shared_costs`


def cost_tables(problem: Problem) -> CostTables:
    """Return u and b of every client and slot, with the noise that meets the target there.

    Those of a training are for the whole of it, wherever it stands.
    """
    problem = problem.untrained()
    return _cost_tables(problem, rows_of_each(problem).own)


def shared_costs(problem: Problem) -> CostTables:
    """`cost_tables` in which those of very many clients that are alike share a row; see `rows_of`.

    What a row holds is what each of its clients adds.
    """
    problem = problem.untrained()
    return _cost_tables(problem, rows_of(problem).own)


@lru_cache(maxsize=16)
def _cost_tables(problem: Problem, own: bool) -> CostTables:
    rows = rows_of_each(problem) if own else rows_of(problem)
    kinds, learner, weights = kinds_of(problem, None), problem.learner, problem.weights[rows.first]
    kind = kinds.kind[rows.first]
    slots = kinds.slots(rows.first)
    if is_trained(problem):
        training = training_tables(problem, slots)
        bias, spread, counts = training.bias, training.spread, training.power
    else:
        each, moments = learner.weights(problem.clients[0].process.states), kinds.moments
        counts = float(each.sum())
        if counts_together(learner):
            told = [
                _moments(client, learner, table)
                for client, table in zip(kinds.clients, kinds.tables, strict=True)
            ]
            bias, spread = (np.stack(one) for one in zip(*told, strict=True))
        else:
            bias = (moments.mean - moments.target_mean) * np.sqrt(each)
            spread = (kinds.apart * each).sum(axis=2)
        bias = bias[kind] * weights[:, None, None]
        spread = spread[kind] * weights[:, None] ** 2
    with np.errstate(over="ignore"):
        noise = _noise_powers(problem, kinds)[kind] * counts * weights[:, None] ** 2
    if not np.isfinite(noise).all():
        raise InvalidInput(
            "epsilon", problem.epsilon, "a target that finite noise can meet", "Raise epsilon."
        )
    if problem.known.shared:
        bias, spread = _with_knowledge(problem, bias, spread)
    bias = bias[..., 0] if bias.shape[2] == 1 else bias
    u = spread.copy() if problem.server_adds_noise else spread + noise
    if isinstance(problem.known, Levels):
        levelled = told_of(problem)
        u = np.where(levelled.worth[levelled.kind], u, np.inf)
    return CostTables(frozen(u), frozen(bias), frozen(spread), slots, rows)


def _noise_powers(problem: Problem, kinds: Kinds) -> Array:
    """The variance of the noise in what each kind of client sends, by slot `[K, T]`."""
    both = zip(kinds.clients, kinds.scale, strict=True)
    return np.stack([noise_power(problem, client, scale) for client, scale in both])


def noise_power(problem: Problem, client: Client, scale: ArrayLike) -> Array:
    """The variance of the noise in what a client sends, if each member's noise has this scale."""
    step = release_step(problem.learner, problem.estimator, client.samples)
    with np.errstate(over="ignore"):
        power = MECHANISMS[problem.mechanism].variance(np.asarray(scale, float), step)
    return power / client.members


def one_draw_of(problem: Problem) -> float:
    """The loss of one draw of noise of scale 1, added to every coordinate of the model."""
    return float(MECHANISMS[problem.mechanism].variance(np.asarray(1.0))) * noise_counts(problem)


def noise_counts(problem: Problem) -> float:
    """What noise of variance 1 on every coordinate of what is aggregated costs."""
    if is_trained(problem):
        several = rehearsals(problem)
        return math.fsum(one.power for one in several) / len(several)
    return float(problem.learner.weights(problem.clients[0].process.states).sum())


def all_moments(
    problem: Problem,
    slots: tuple[int, ...] | None = None,
    *,
    by_loss: bool = False,
) -> Iterator[tuple[SlotTable, Moments]]:
    """Yield, client by client, its terms and what the server knows of it, in every slot or some.

    `by_loss`: moments are those of `judged` vectors, of which the loss is the plain sum of squares.
    """
    kinds, last = told_of(problem, slots), problem.aggregate_at
    known: dict[int, tuple[SlotTable, Moments, Asked]] = {}  # clients alike share what they can
    for place, client in enumerate(problem.clients):
        if isinstance(problem.known, Levels):
            yield kinds.tables[kinds.kind[place]], kinds.moments_of(int(kinds.kind[place]))
            continue
        kind = int(kinds.kind[place])
        if kind not in known:
            table, states = kinds.tables[kind], client.process.states
            values, own = problem.learner.table(states), kinds.moments_of(kind)
            release = table.release_rows
            if by_loss:
                values = judged(problem.learner, states, values)
                release = judged(problem.learner, states, release)
                own = independent_moments(
                    table.law_rows, table.kernel_rows, release, values, client.records, table.row
                )
            known[kind] = table, own, Asked(last - table.ages, last, release[table.row], values)
        table, own, asked = known[kind]
        yield table, problem.known.moments(place, own, asked)


def _with_knowledge(problem: Problem, bias: Array, spread: Array) -> tuple[Array, Array]:
    """The tables of clients that share something: their moments, and factors as biases."""
    shared = []
    bias, spread = bias.copy(), spread.copy()
    for i, (_, known) in enumerate(all_moments(problem, by_loss=True)):
        weight = problem.weights[i]
        apart = weight * (known.factors - known.target_factors)
        shared.append(apart.reshape(len(apart), -1))
        off = known.target_variance - 2 * known.covariance + known.variance
        spread[i] = weight**2 * np.maximum(off, 0.0).sum(axis=1)
        bias[i] = weight * (known.mean - known.target_mean)
    return np.concatenate([bias, np.stack(shared)], axis=2), spread


@dataclass(frozen=True)
class KnownTables:
    """The tables of the best estimate, and the means that it starts from.

    `gains` has one row per client, or per row of `rows`, and one column per slot; `target_mean` and
    `mean` `[K, A, C]` are those of the fresh mean and of the release, not weighted, by the `kind`
    `[m]` of each client. With `columns` the tables hold one slot of each client only: these.
    """

    gains: GainTables
    target_mean: Array
    mean: Array
    kind: NDArray[np.intp]
    slots: tuple[SlotTable, ...]
    rows: Rows
    columns: NDArray[np.intp] | None = None

    def places(self, columns: NDArray[np.intp]) -> NDArray[np.intp]:
        """Where the tables have these columns."""
        if self.columns is None:
            return columns
        if not np.array_equal(self.columns, columns):
            raise InvalidInput("columns", "others than these tables hold", "the same ones")
        return np.zeros_like(columns)


def known_at(problem: Problem, columns: NDArray[np.intp], *, alone: bool = False) -> KnownTables:
    """Return what the server knows of clients that collect in these columns, one per client.

    Where clients share a level, all covariances of their reports, of which a search follows
    the largest only; otherwise what `known_tables` say of these columns.
    """
    if isinstance(problem.known, Levels):
        return _known_at(problem, tuple(columns.tolist()))
    if rows_of(problem).own:
        return known_tables(problem, alone=alone)
    return picked(shared_tables(problem), columns)


def picked(known: KnownTables, columns: NDArray[np.intp]) -> KnownTables:
    """What shared tables say of one column for each client, a row for each client."""
    row, gains = known.rows.row, known.gains
    base, cross, power, heard = (
        one[row, columns][:, None] for one in (gains.base, gains.cross, gains.power, gains.heard)
    )
    gains = GainTables(base, cross, power, gains.common[row], heard)
    mean, target = (one[known.kind, columns][:, None] for one in (known.mean, known.target_mean))
    each = Rows(np.arange(len(row)), np.arange(len(row)))
    return KnownTables(gains, target, mean, each.row, known.rows.each(known.slots), each, columns)


@lru_cache(maxsize=16)
def _known_at(problem: Problem, columns: tuple[int, ...]) -> KnownTables:
    taken = np.array(columns, dtype=np.intp)
    told, rows = told_at(problem, taken), rows_of_each(problem)
    loud = told.moments.variance
    if not problem.server_adds_noise:
        first = np.unique(told.kind, return_index=True)[1]
        both = zip(told.clients, told.scale, taken[first].tolist(), strict=True)
        loud = loud + [[noise_power(problem, one, scale[[t]])] for one, scale, t in both]
    return _gain_tables(problem, told, loud, kinds_of(problem, None).slots(), rows, taken)


def known_tables(
    problem: Problem, slots: tuple[int, ...] | None = None, *, alone: bool = False
) -> KnownTables:
    """Return what the server knows of every client in every slot (or those given).

    Clients release as their problem's estimator says; noise is what meets the target there, and
    none where the server adds it. Of a learner with a metric the tables have one coordinate: one
    gain per client, for the loss of all coordinates together. Of clients that take part in every
    so-many-th round only, the loss is the mean over all rounds, of an estimate from their last
    release; `alone`: of a round that they take part in.
    """
    return _known_tables(problem, slots, alone and any(one.turn > 1 for one in problem.clients))


@lru_cache(maxsize=8)
def shared_tables(problem: Problem, slots: tuple[int, ...] | None = None) -> KnownTables:
    """`known_tables` in which very many clients that are alike share a row; see `rows_of`.

    What a row holds is what each of its clients adds.
    """
    rows = rows_of(problem)
    return known_tables(problem, slots) if rows.own else _simple_tables(problem, slots, rows)


@lru_cache(maxsize=16)
def _known_tables(problem: Problem, slots: tuple[int, ...] | None, alone: bool) -> KnownTables:
    if _are_simple(problem):
        return _simple_tables(problem, slots, rows_of_each(problem))
    states, learner = problem.clients[0].process.states, problem.learner
    found = list(all_moments(problem, slots))
    tables = tuple(table for table, _ in found)
    counts, together = learner.weights(states), counts_together(learner)
    if together:
        counts = np.square(judged(learner, states, np.eye(counts.size))).sum(axis=0)
        lossy = [moments for _, moments in all_moments(problem, slots, by_loss=True)]
    else:
        lossy = [_weighed(moments, counts) for _, moments in found]
    parts: list[list[Any]] = [[] for _ in range(5)]
    base, cross, power, common, heard = parts
    members = zip(problem.clients, problem.weights, found, lossy, strict=True)
    for client, weight, (table, moments), known in members:
        noise = np.zeros((len(table.scale), 1))
        if not problem.server_adds_noise:
            noise = noise_power(problem, client, table.scale)[:, None]
        loud = known.variance + counts * noise
        base.append(weight**2 * known.target_variance.sum(axis=1))
        own = known.covariance
        if client.turn > 1 and not alone:
            own = counts * _over_turns(problem, client, table, moments)
        cross.append(weight * own)
        # A release without noise or variance of its own tells its factors but for rounding.
        power.append(np.maximum(loud, 1e-13 * (known.factors**2).sum(axis=-1) + 1e-290))
        common.append(weight * known.target_factors)
        heard.append(known.factors)
    stacked = [np.stack(one) for one in (base, cross, power, common, heard)]
    if not np.isfinite(stacked[2]).all():
        raise InvalidInput(
            "epsilon", problem.epsilon, "a target that finite noise can meet", "Raise epsilon."
        )
    gains = GainTables(*stacked)
    return KnownTables(
        collapsed(gains) if together else gains,
        np.stack([moments.target_mean for _, moments in found]),
        np.stack([moments.mean for _, moments in found]),
        np.arange(len(tables)),
        tables,
        rows_of_each(problem),
    )


def _are_simple(problem: Problem) -> bool:
    """Whether what is known of a client is what is known of its kind, but for its loadings."""
    return (
        problem.known.drawable
        and not counts_together(problem.learner)
        and all(client.turn == 1 for client in problem.clients)
    )


def _simple_tables(problem: Problem, slots: tuple[int, ...] | None, rows: Rows) -> KnownTables:
    """`known_tables` of independent records, or such that share levels: as arrays."""
    kinds = told_of(problem, slots)
    loud = kinds.moments.variance
    if not problem.server_adds_noise:
        loud = loud + _noise_powers(problem, kinds)[..., None]
    return _gain_tables(problem, kinds, loud, kinds.slots(rows.first), rows)


def _gain_tables(
    problem: Problem,
    kinds: Kinds,
    loud: Array,
    slots: tuple[SlotTable, ...],
    rows: Rows,
    columns: NDArray[np.intp] | None = None,
) -> KnownTables:
    """The tables of clients by kind, whose releases have the variances `loud` `[K, T, C]`."""
    kind, own, weights = kinds.kind[rows.first], kinds.moments, problem.weights[rows.first]
    each = problem.learner.weights(problem.clients[0].process.states)
    root = np.sqrt(each)[:, None]
    heard, common = (root * own.factors)[kind], (root * own.target_factors)[kind]
    power = (each * loud)[kind]
    # A release without noise or variance of its own tells its factors but for rounding.
    least = 1e-13 * (heard**2).sum(axis=-1) if heard.size else 0.0
    np.maximum(power, least + 1e-290, out=power)
    if not np.isfinite(power).all():
        raise InvalidInput(
            "epsilon", problem.epsilon, "a target that finite noise can meet", "Raise epsilon."
        )
    base, cross = (each * own.target_variance).sum(axis=2)[kind], (each * own.covariance)[kind]
    base *= weights[:, None] ** 2  # in place: these are the largest of all
    cross *= weights[:, None, None]
    if kinds.passes is not None:
        base = np.where(kinds.worth[kind], base, np.inf)
    gains = GainTables(base, cross, power, weights[:, None, None] * common, heard)
    return KnownTables(gains, own.target_mean, own.mean, kinds.kind, slots, rows, columns)


def _weighed(moments: Moments, counts: Array) -> Moments:
    """Moments of coordinates that count by themselves, as the loss counts them."""
    root = np.sqrt(counts)
    return replace(
        moments,
        target_variance=counts * moments.target_variance,
        covariance=counts * moments.covariance,
        variance=counts * moments.variance,
        target_factors=root[:, None] * moments.target_factors,
        factors=root[:, None] * moments.factors,
    )


def _over_turns(problem: Problem, client: Client, table: SlotTable, moments: Moments) -> Array:
    """The covariance of a client's last release with its part of the target, over its turn.

    Its root mean square over the rounds: what a release takes off the loss goes with its square.
    """
    every = problem.every or 1
    rounds = client.turn if problem.rounds is None else problem.rounds
    values = problem.learner.table(client.process.states)
    total, kernels = np.zeros_like(moments.covariance), table.kernel_rows
    step = client.process.kernel(0, every)
    for since in range(min(client.turn, rounds)):
        older = independent_moments(
            table.law_rows, kernels, table.release_rows, values, client.records, table.row
        )
        seen = len(range(since, rounds, client.turn))
        total = total + seen / rounds * np.square(older.covariance)
        kernels = kernels @ step
    return np.asarray(np.sqrt(total))


def _moments(client: Client, learner: Learner, table: SlotTable) -> tuple[Array, Array]:
    """Mean `[A, d]` of f(X) − φ(Y), and the variance of its mean over n records `[A]`, weighted."""
    states = client.process.states
    joint = table.law_rows[:, :, None] * table.kernel_rows
    present = judged(learner, states, learner.table(states))
    release = judged(learner, states, table.release_rows)
    means, total = [], np.zeros(len(joint))
    for k in range(present.shape[1]):  # one at a time keeps memory small
        error = release[:, :, None, k] - present[:, k]
        mean = (joint * error).sum(axis=(1, 2))
        means.append(mean)
        total += (joint * (error - mean[:, None, None]) ** 2).sum(axis=(1, 2))
    return np.stack(means, axis=1)[table.row], total[table.row] / client.records


def schedule_cells(problem: Problem, ages: ArrayLike) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Check one age a client and return the cells of the tables that they select."""
    refuse_large(as_problem(problem))
    count, last = len(problem.clients), problem.aggregate_at - 1
    plain = ages if isinstance(ages, np.ndarray) and ages.dtype.kind == "i" else None
    if plain is not None and plain.shape == (count,) and 0 <= plain.min() <= plain.max() <= last:
        return np.arange(count), last - plain
    given: Sequence[int] = np.asarray(ages, dtype=object).ravel().tolist()
    if len(given) != count:
        raise InvalidInput("ages", f"{len(given)} ages", f"{count} ages, one per client")
    checked = [
        whole(f"age of client {client.name!r}", age, 0, last)
        for client, age in zip(problem.clients, given, strict=True)
    ]
    return np.arange(len(checked)), last - np.array(checked, dtype=np.intp)
