"""What clients must do and would tell in each slot, worked out once for those alike.

Kinds whose records follow chains of one size are worked out together, as arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.calibration import Calibration, Cell, SlotTable, calibrate
from agewise.knowledge import Levels, Moments, Reported, Seen
from agewise.problem import Client, Problem
from agewise.process.chains import product


@dataclass(frozen=True)
class Kinds:
    """The kinds of clients of a problem: `kind` `[m]` says which each client is.

    By kind: its row `own` `[K]` of the `calibration`, and the `moments` `[K, T, C]` of what it
    releases by slot and coordinate, were all records independent. `apart` `[K, T, C]` is the
    variance of how far that is from the fresh mean.
    """

    kind: NDArray[np.intp]
    calibration: Calibration
    own: NDArray[np.intp]
    moments: Moments
    apart: Array
    passes: Array | None = None  #: share `[K, T]` of a level's variance that reports show

    @cached_property
    def clients(self) -> list[Client]:
        """One of each kind."""
        return [self.calibration.clients[row] for row in self.own.tolist()]

    @cached_property
    def tables(self) -> list[SlotTable]:
        """What each kind must do in each slot."""
        return [self.calibration.tables[row] for row in self.own.tolist()]

    @property
    def scale(self) -> Array:
        """The noise that each kind needs in each slot, `[K, T]`."""
        return self.calibration.scale[self.own]

    @property
    def worth(self) -> NDArray[np.bool_]:
        """Slots `[K, T]` in which a report is fresh, or shows enough of the level."""
        ages = self.calibration.ages
        shown = np.ones((len(self.own), len(ages))) if self.passes is None else self.passes
        return np.asarray((shown >= PASSING) | (ages == 0))

    def slots(self, clients: NDArray[np.intp] | slice = slice(None)) -> tuple[SlotTable, ...]:
        """The tables of all clients, or of some."""
        return tuple([self.tables[kind] for kind in self.kind[clients].tolist()])

    def moments_of(self, kind: int) -> Moments:
        """The moments of one kind."""
        return Moments(*(getattr(self.moments, one.name)[kind] for one in fields(Moments)))


PASSING = 0.1
"""Share of a level's variance that an aged report must show on average to be worth anything."""


def told_of(problem: Problem, slots: tuple[int, ...] | None = None) -> Kinds:
    """Return the kinds of clients as a search sees them: what clients share included.

    Where that is a level, clients are of one kind if their loadings are the same, too, and an aged
    report of which the level moves next to nothing is not worth collecting.
    """
    if not isinstance(problem.known, Levels):
        return kinds_of(problem, slots)
    return _told_of(problem, slots)


@lru_cache(maxsize=8)
def _told_of(problem: Problem, slots: tuple[int, ...] | None) -> Kinds:
    kinds = kinds_of(problem, slots)
    ages = kinds.calibration.ages
    among, first = _with_loadings(problem, kinds.kind)
    each = kinds.kind[first]
    cells = np.repeat(first, len(ages)), np.tile(np.arange(len(ages)), len(first))
    found = problem.known.reported(_seen(problem, kinds, *cells), searched=True)  # type: ignore[union-attr]
    moments = _moments(kinds.moments, each[:, None], np.arange(len(ages)), found)
    passes = found.passes.reshape(len(first), len(ages))
    return Kinds(among, kinds.calibration, each, moments, _apart(moments), passes)


def told_at(problem: Problem, columns: NDArray[np.intp]) -> Kinds:
    """Return the kinds of clients that collect in these columns, one slot each, levels exact."""
    kinds = kinds_of(problem, None)
    among, first = _with_loadings(problem, kinds.kind, columns)
    each, chosen = kinds.kind[first], columns[first]
    found = problem.known.reported(_seen(problem, kinds, first, chosen), searched=False)  # type: ignore[union-attr]
    moments = _moments(kinds.moments, each[:, None], chosen[:, None], found)
    return Kinds(among, kinds.calibration, each, moments, _apart(moments))


def _with_loadings(problem: Problem, *numbers: NDArray[np.intp]) -> tuple[Any, Any]:
    """Of each client a number for its loadings and all these, and the first of each number."""
    loadings = problem.known.loadings(len(problem.clients))  # type: ignore[union-attr]
    _, first, among = np.unique(
        np.column_stack([loadings, *numbers]), axis=0, return_index=True, return_inverse=True
    )
    return among.ravel(), first


def _seen(
    problem: Problem, kinds: Kinds, clients: NDArray[np.intp], columns: NDArray[np.intp]
) -> Seen:
    """What the moments of these clients in these columns rest on."""
    parts: list[list[Any]] = [[], []]
    laws, later = parts
    known: dict[tuple[int, int], tuple[Array, Array]] = {}
    for kind, column in zip(kinds.kind[clients].tolist(), columns.tolist(), strict=True):
        if (kind, column) not in known:
            table, states = kinds.tables[kind], kinds.clients[kind].process.states
            row = table.row[column]
            moved = table.kernel_rows[row] @ states
            known[kind, column] = table.law_rows[row], moved - table.law_rows[row] @ moved
        law, own = known[kind, column]
        laws.append(law)
        later.append(own)
    members = [problem.clients[place] for place in clients.tolist()]
    return Seen(
        states=[tuple(one.process.states.tolist()) for one in members],
        loadings=problem.known.loadings(len(problem.clients))[clients],  # type: ignore[union-attr]
        ages=kinds.calibration.ages[columns],
        samples=np.array([one.records for one in members]),
        law=laws,
        later=later,
    )


def _moments(own: Moments, kind: Any, column: Any, found: Reported) -> Moments:
    """Moments `[K, T, 1]` of what is reported; those of the target but for levels stay."""
    mean, variance, covariance = (
        one.reshape(np.broadcast_shapes(kind.shape, np.shape(column)))[..., None]
        for one in (found.mean, found.variance, found.covariance)
    )
    factors = found.factors.reshape(*mean.shape, -1)
    return Moments(
        target_mean=own.target_mean[kind, column],
        mean=mean,
        target_variance=own.target_variance[kind, column],
        covariance=covariance,
        variance=variance,
        target_factors=found.target_factors.reshape(*mean.shape, -1)[:, 0],
        factors=factors,
    )


def _apart(moments: Moments) -> Array:
    """The own variance of how far a report is from the fresh mean."""
    both = moments.target_variance - 2 * moments.covariance + moments.variance
    return np.maximum(both, 0.0)


@lru_cache(maxsize=8)
def kinds_of(problem: Problem, slots: tuple[int, ...] | None = None) -> Kinds:
    """Return the kinds of clients, with their terms in every slot or in some."""
    kind = np.array(problem.kinds, dtype=np.intp)
    first = np.unique(kind, return_index=True)[1]
    clients, last = [problem.clients[place] for place in first.tolist()], problem.aggregate_at
    calibration = calibrate(
        clients,
        [problem.target_of(client) for client in clients],
        problem.learner,
        problem.estimator,
        np.arange(1, last + 1) if slots is None else np.asarray(slots, dtype=np.int64),
        last,
        independent,
    )
    told = np.moveaxis(calibration.told, 0, -1)  # [6, K, T, C]
    target_mean, mean, target_variance, covariance, variance, apart = told
    moments = Moments(
        target_mean,
        mean,
        target_variance,
        covariance,
        variance,
        target_factors=np.zeros((*told.shape[1::2], 0)),
        factors=np.zeros((*apart.shape, 0)),
    )
    return Kinds(kind, calibration, np.arange(len(clients)), moments, apart)


def independent(cell: Cell, law: Array, values: Array) -> Array:
    """Moments of what clients with independent records release, `[C, 6, G]`.

    Those of `independent_moments`, and the variance of how far release and fresh value are apart.
    """
    kernel = cell.laws.kernel
    moved, present = product(kernel, values), np.einsum("xg,xyg->yg", law, kernel)
    found = np.empty((values.shape[1], 6, values.shape[2]))
    for c in range(values.shape[1]):  # one at a time keeps memory small
        release, fresh, later = cell.release[:, c], values[:, c], moved[:, c]
        target_mean, mean = (present * fresh).sum(axis=0), (law * release).sum(axis=0)
        off, error = release - mean, release - later
        within = np.einsum("xyg,xyg->xg", kernel, (fresh - later[:, None]) ** 2)
        found[c] = (
            target_mean,
            mean,
            (present * (fresh - target_mean) ** 2).sum(axis=0),
            (law * off * (later - target_mean)).sum(axis=0),
            (law * off**2).sum(axis=0),
            (law * ((error - (mean - target_mean)) ** 2 + within)).sum(axis=0),
        )
    found[:, 2:] /= cell.records
    return found
