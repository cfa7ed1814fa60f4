"""What releases along a process really tell, from both sides.

*Reached* is what some string of outputs does tell two values apart by: nobody can argue with it.
*Bound* is what no string can exceed. Where noise is Laplace noise on one number and there is one
release, the two are the same but for rounding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.auditing.outward import Between, exponential, log_above, log_below
from agewise.auditing.paths import Path
from agewise.auditing.programs import aged_bounds

MOST_OUTPUTS = 4096
"""Outputs of one release that are tried, at most."""
KEPT = 48
"""Strings of outputs that are followed for each two values."""
MOST_ROUNDS = 2000
"""Releases after which nothing more is expected of further ones."""
STEADY = 1e-6
"""Relative room above the limit of an iteration, within which its bound is sought."""
_ULP = float(np.finfo(float).eps)

Rows = Callable[[int, int], Between]
"""(slot of a release, slot asked about) → the law of the value in the one, given the other's."""


@dataclass(frozen=True)
class Sent:
    """One release with Laplace noise: what each state contributes to it `[S, d]`, and the scale.

    `[G, S, d]`: it is one of several tables that the adversary knows but nobody planned for, as
    where a level moves records from state to state.
    """

    slot: int
    values: Array
    scale: float

    @property
    def tables(self) -> Array:
        """What states may contribute, `[G, S, d]`."""
        return self.values if self.values.ndim == 3 else self.values[None]

    def outputs(self, support: NDArray[np.intp]) -> Between:
        """Likelihoods `[O, s]` of the outputs at which most is told, for the states that occur.

        As a function of one coordinate of the output, with the others fixed, the ratio of two
        mixtures of Laplace densities is monotone between the values that occur, and constant beyond
        them: its largest value is at a corner of their grid.
        """
        found = [self._likelihood(_apart_from_corners(table[support])) for table in self.tables]
        return Between(
            np.concatenate([one.low for one in found]), np.concatenate([one.high for one in found])
        )

    def apart(self, support: NDArray[np.intp]) -> Array:
        """Upper bounds `[s, s]` on what an output tells two states apart by."""
        values = self.tables[:, support]
        distance = np.abs(values[:, :, None] - values[:, None]).sum(axis=-1).max(axis=0)
        if self.scale == 0:
            return np.where(distance == 0, 0.0, np.inf)
        return np.asarray(distance / self.scale * (1 + (values.shape[-1] + 4) * _ULP))

    @property
    def complete(self) -> bool:
        """Whether `outputs` holds the worst output for certain."""
        return all(_corners(table) <= MOST_OUTPUTS for table in self.tables)

    def _likelihood(self, apart: Array) -> Between:
        if self.scale == 0:
            return Between.exactly(np.where(apart == 0, 1.0, 0.0))
        with np.errstate(over="ignore"):
            exponent = -apart / self.scale
        off = (self.values.shape[-1] + 4) * _ULP
        return exponential(exponent * (1 + off), exponent * (1 - off))


def _corners(values: Array) -> int:
    """How many corners the grid of values has."""
    return math.prod(len(np.unique(column)) for column in values.T)


def _apart_from_corners(values: Array) -> Array:
    """How far the values `[s, d]` are from the corners of their grid, or from some: `[O, s]`."""
    if _corners(values) <= MOST_OUTPUTS:
        points = np.array(list(itertools.product(*(np.unique(column) for column in values.T))))
    else:
        points = np.vstack([values, values.min(axis=0), values.max(axis=0)])
    return np.asarray(np.abs(points[:, None] - values).sum(axis=-1))


@dataclass(frozen=True)
class Loss:
    """What is told: at least `reached`, at most `bound`."""

    reached: float
    bound: float


def loss_about(path: Path, sent: Sequence[Sent], about: int) -> Loss:
    """What releases tell about a record's value in slot `about`, whenever they were collected.

    Before and after that slot they are independent, given the value in it: losses of two values
    add up.

    Guarantees
        With records that follow `path`: some outputs tell at least `reached`, none tells more than
        `bound`. Both are rounded outward.
    """
    if not path.process.markov and len({one.slot for one in sent} | {about}) > 2:
        return Loss(0.0, math.fsum(float(one.apart(_all(path)).max()) for one in sent))
    past = sorted((one for one in sent if one.slot <= about), key=lambda one: one.slot)
    future = sorted((one for one in sent if one.slot > about), key=lambda one: -one.slot)
    if len(past) == 1 and not future and past[0].complete:
        rows = path.backward(past[0].slot, about)
        told = past[0].outputs(path.support(past[0].slot)) @ rows.transposed
        return Loss(float(_told(told).max()), float(_told(told, bound=True).max()))
    reached = reached_apart(path, past, about, path.backward)
    reached = reached + reached_apart(path, future, about, ahead_rows(path))
    bound = bounded_apart(path, past, about, path.backward)
    bound = bound + bounded_apart(path, future, about, ahead_rows(path))
    return Loss(
        max(float(reached.max()), 0.0) * (1 - 4 * _ULP), float(bound.max()) * (1 + 4 * _ULP)
    )


def _all(path: Path) -> NDArray[np.intp]:
    return np.arange(path.size)


def ahead_rows(path: Path) -> Rows:
    """Rows for releases that lie ahead: from the later slot back to the earlier one."""
    return lambda later, earlier: path.forward(earlier, later)


def _told(vectors: Between, bound: bool = False) -> Array:
    """The most that one of the vectors `[V, Y]` tells each two values apart by, `[Y, Y]`."""
    low, high = log_below(vectors.low), log_above(vectors.high)
    with np.errstate(invalid="ignore"):
        apart = high[:, :, None] - low[:, None] if bound else low[:, :, None] - high[:, None]
    apart = np.where(np.isnan(apart), -np.inf, apart)  # an output that neither value has
    return np.asarray(np.nextafter(apart.max(axis=0), np.inf if bound else -np.inf))


def reached_apart(path: Path, sent: Sequence[Sent], about: int, rows: Rows) -> Array:
    """Follow the strings of outputs that tell most, release after release towards `about`."""
    if not sent:
        size = len(path.support(about))
        return np.zeros((size, size))
    vectors = Between.exactly(np.ones((1, len(path.support(sent[0].slot)))))
    for one, then in zip(sent, [*(o.slot for o in sent[1:]), about], strict=True):
        vectors = _after(vectors, one.outputs(path.support(one.slot)))
        if then != one.slot:
            vectors = vectors @ rows(one.slot, then).transposed
        vectors = _scaled(_kept(vectors))
    return _told(vectors)


def _after(vectors: Between, outputs: Between) -> Between:
    """The likelihoods of all strings so far with each of one more release's outputs."""
    together, size = vectors[:, None] * outputs[None], vectors.low.shape[-1]
    return Between(together.low.reshape(-1, size), together.high.reshape(-1, size))


def _kept(vectors: Between) -> Between:
    """The vectors that tell most, for each two values."""
    if len(vectors.low) <= KEPT:
        return vectors
    with np.errstate(divide="ignore"):
        logs = np.log(vectors.low)
    chosen: set[int] = set()
    for x, other in itertools.permutations(range(logs.shape[1]), 2):
        with np.errstate(invalid="ignore"):
            apart = np.nan_to_num(logs[:, x] - logs[:, other], nan=-np.inf)
        chosen |= set(np.argpartition(-apart, KEPT - 1)[:KEPT].tolist())
    return vectors[sorted(chosen)]


def _scaled(vectors: Between) -> Between:
    """The same vectors times powers of two, so that nothing is lost by underflow."""
    exponent = np.frexp(vectors.high.max(axis=1, keepdims=True))[1]
    return Between(np.ldexp(vectors.low, -exponent), np.ldexp(vectors.high, -exponent))


def bounded_apart(path: Path, sent: Sequence[Sent], about: int, rows: Rows) -> Array:
    """Upper bounds on what all of the releases tell, aged from slot to slot."""
    losses = np.zeros((len(path.support(about)),) * 2)
    ends = [*(one.slot for one in sent[1:]), about]
    for number, one in enumerate(sent):
        then = ends[number]
        own = one.apart(path.support(one.slot))
        losses = own if number == 0 else losses + own
        if then != one.slot:
            losses = aged_bounds(losses, rows(one.slot, then))
    return losses


class Lasting:
    """Releases like one of them, one `every` so many slots: `rounds` of them, or for ever (None).

    The one given is the last of them, and what they tell is about its slot or a later one; `ahead`,
    it is the first of them, and that is about its slot or an earlier one.
    """

    def __init__(
        self, path: Path, one: Sent, every: int, rounds: int | None, *, ahead: bool = False
    ) -> None:
        self.path, self.one, self.rounds = path, one, rounds
        self.rows: Rows = ahead_rows(path) if ahead else path.backward
        self.support = path.support(one.slot)
        self._before = one.slot + (every if ahead else -every)
        self.between = self.rows(self._before, one.slot)

    @cached_property
    def losses(self) -> Array:
        """Bounds about the own slot, all releases counted.

        For ever, they hold for every number of releases: the map from one release to the next
        never decreases, and takes what was told before to no more than itself.
        """
        own = self.one.apart(self.support)
        before = np.zeros_like(own)
        most = MOST_ROUNDS if self.rounds is None else self.rounds - 1
        for _ in range(most):
            more = aged_bounds(before + own, self.between)
            settled = bool((more <= before * (1 + STEADY / 10) + 1e-12).all())
            before = np.maximum(more, before)
            if settled:
                break
        else:
            if self.rounds is not None:
                return before + own
        for room in (STEADY, 10 * STEADY, 100 * STEADY):
            raised = before * (1 + room) + 1e-12
            if (aged_bounds(raised + own, self.between) <= raised).all():
                return raised + own
        return np.full_like(own, np.inf)

    @cached_property
    def vectors(self) -> Between:
        """Likelihoods of the strings of outputs that tell most about the own slot."""
        outputs, size = self.one.outputs(self.support), len(self.support)
        vectors, best = Between.exactly(np.ones((1, size))), -np.inf
        for number in range(self.rounds or MOST_ROUNDS):
            if number:
                vectors = vectors @ self.between.transposed
            vectors = _scaled(_kept(_after(vectors, outputs)))
            told = float(_told(vectors).max())
            if told <= best * (1 + 1e-9):
                break
            best = told
        return vectors

    def bound(self, about: int) -> Array:
        """What no string of outputs tells more than, about the value in a slot."""
        if about == self.one.slot:
            return self.losses
        return aged_bounds(self.losses, self.rows(self.one.slot, about))

    def reached(self, about: int) -> Array:
        """What some string of outputs tells about the value in a slot."""
        if about == self.one.slot:
            return _told(self.vectors)
        return _told(self.vectors @ self.rows(self.one.slot, about).transposed)
