"""How a target becomes the noise of a release, and what noise achieves: each rule both ways."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.errors import InvalidInput
from agewise.learning import mean_rounding
from agewise.mechanism import MECHANISMS
from agewise.mechanism.gaussian import largest_mu
from agewise.mixing import MIXINGS, Aged, Method
from agewise.privacy.ageing import (
    ROWS_OFF,
    aged_epsilon,
    classical_epsilon,
    hockey_sticks,
    measured_forward,
    sharp_forward,
    sharp_inverse,
    worst_each,
)
from agewise.privacy.calibration import aged_losses, sensitivities, tight_scales
from agewise.privacy.composition import (
    affordable_pair,
    composed_pair,
    gap_delta,
    gaussian_rounds,
)
from agewise.privacy.continual import continual_epsilon, per_release_epsilon
from agewise.problem import Client, Target
from agewise.process.chains import Laws

LARGEST_FAILURE = 0.5
"""A release of any age fails with at most this probability."""
_ULP = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Cell:
    """Releases of clients whose targets differ in ε only, all of one age; groups last.

    `samples` are the records of one of a client's members, `records` those of all.
    `release` `[S, d, G]` is what each state contributes. `told_apart` are the vectors that states
    can be told apart by, client by client, where a rule asks for them. `asked` says for whom the
    age stands.
    """

    clients: Sequence[Client]
    target: Target
    epsilons: Array
    samples: Array
    records: Array
    laws: Laws
    aged: Aged
    release: Array
    asked: NDArray[np.bool_]
    told_apart: Sequence[Array] = ()

    @property
    def age(self) -> int:
        """The least age that stands for that of the releases."""
        return self.laws.age

    @property
    def delta(self) -> Array:
        """Δ `[G]`."""
        return self.aged.total_variation

    def failures(self) -> Array:
        """δ_c `[G]` of the target."""
        return classical_failures(self.target.delta, self.delta)

    def rows(self, which: NDArray[np.bool_]) -> Array:
        """Rows of the collected record given the present one, of some groups, `[c, Y, S]`."""
        rows = self.aged.rows
        some = rows if which.all() else np.compress(which, rows, axis=-1)  # type: ignore[arg-type]
        return np.moveaxis(some, -1, 0)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Noise:
    """What releases get, `[G]`, and what they need: a scale and the classical ε that it spends."""

    scale: Array
    spent: Array
    needed_scale: Array
    allowed: Array
    failure: Array  #: δ_c


def classical_failures(failure: float, deltas: Array) -> Array:
    """δ_c = δ̄/Δ, rounded down: the failure that ageing brings to the target."""
    if failure == 0:
        return np.zeros_like(deltas)
    with np.errstate(divide="ignore"):
        return np.minimum(failure / deltas * (1 - 4 * _ULP), LARGEST_FAILURE)


def method_of(client: Client, mixing: Method) -> Method:
    """The method by which Δ is computed: a client without a stated law has its process's own."""
    return "exact" if MIXINGS[mixing].takes_stated_law and client.law is None else mixing


class Formula:
    """The paper's Proposition 1, and its inverse."""

    def allowed(self, cell: Cell) -> tuple[Array, Array]:
        """The classical (ε, δ) that meets the target, rounded down."""
        return np.asarray(classical_epsilon(cell.epsilons, cell.delta)), cell.failures()

    def lowered(self, cell: Cell, scale: Array) -> Array:  # noqa: ARG002  (for those who can)
        """A smaller scale that does, too."""
        return scale

    def achieved(self, cell: Cell, noise: Noise) -> Array:
        """The aged ε, rounded up; no more than the target, with the noise that it needs."""
        aged = np.zeros(len(noise.spent))
        some = noise.spent > 0
        aged[some] = aged_epsilon(noise.spent[some], cell.delta[some])
        return aged


class Sharp(Formula):
    """Exactly, for the worst of all mechanisms (`agewise.privacy.ageing`)."""

    def allowed(self, cell: Cell) -> tuple[Array, Array]:
        kind, sticks = MIXINGS[cell.target.mixing].sharpness, cell.delta
        if kind == "rows":
            sticks = _sticks(cell)
        return sharp_inverse(kind, cell.epsilons, cell.delta, sticks), cell.failures()

    def achieved(self, cell: Cell, noise: Noise) -> Array:
        aged, spent = super().achieved(cell, noise), noise.spent
        if cell.age == 0:
            return aged
        kind = MIXINGS[cell.target.mixing].sharpness
        if kind == "rows":
            known = cell.aged.trusted & (spent > 0) & (cell.delta > 0) & (cell.delta < 1)
            if known.any():
                room = (ROWS_OFF * cell.laws.off[known])[:, None, None]
                own = worst_each(cell.rows(known), spent[known], room)  # type: ignore[arg-type]
                aged[known] = np.minimum(own, aged[known])
            for group, one in enumerate(cell.laws.joints):
                if one.stick_limits is not None and spent[group] > 0:
                    limit = float(measured_forward(spent[group], *one.stick_limits))
                    aged[group] = min(limit, aged[group])
        elif kind == "cross_ratio":
            for group in np.flatnonzero(spent > 0).tolist():
                own = sharp_forward(kind, spent[group], float(cell.delta[group]), None, 0.0)
                aged[group] = min(float(own), aged[group])
        return _kept(cell, noise, aged)


class SharpApproximate(Formula):
    """Exactly, for the worst of all mechanisms with a δ, by the rows of the adversary."""

    def lowered(self, cell: Cell, scale: Array) -> Array:
        sticks = np.minimum(_sticks(cell), cell.delta)
        allowed = sharp_inverse("rows", cell.epsilons, cell.delta, sticks)
        fails = classical_failures(cell.target.delta, sticks)
        return _with_mu(scale, self.allowed(cell), _mus(allowed, fails))

    def achieved(self, cell: Cell, noise: Noise) -> Array:
        return _kept(cell, noise, super().achieved(cell, noise))


def _sticks(cell: Cell) -> Array:
    """E `[G]` at the target's ε; where a law is not known whole, by limits."""
    limits = [
        one.stick_limit(target)
        for one, target in zip(cell.laws.joints, cell.epsilons.tolist(), strict=False)
    ]
    sticks = np.minimum(cell.delta, limits) if limits else cell.delta.copy()
    if (known := cell.aged.trusted & (cell.delta > 0)).any():
        off = ROWS_OFF * cell.laws.off[known]
        sticks[known] = hockey_sticks(cell.rows(known), cell.epsilons[known], off)
    return np.asarray(sticks)


def _mus(allowed: Array, fails: Array) -> Array:
    """The deviations of Gaussian noise that this classical (ε, δ) lets a record move it by."""
    mus = np.full(len(allowed), np.inf)
    some = np.isfinite(allowed)
    mus[some] = largest_mu(allowed[some], fails[some])
    return mus


def _with_mu(scale: Array, known: tuple[Array, Array], mus: Array) -> Array:
    """A scale that was set for one classical (ε, δ), set for so many deviations instead."""
    before = _mus(*known)
    with np.errstate(invalid="ignore"):
        share = np.where(np.isinf(mus), 0.0, before / mus)
    return np.where(scale > 0, scale * np.minimum(share, 1.0), scale)


class Tight(Formula):
    """For the Laplace mechanism itself, by the law of what is collected."""

    def lowered(self, cell: Cell, scale: Array) -> Array:
        if (cell.laws.uncertain > 0).any():
            raise InvalidInput(
                "calibration",
                "'tight' for a measured law",
                "formula or sharp",
                "Only Δ has a confidence limit, not the whole law.",
            )
        if (known := cell.aged.trusted).any():
            scale = scale.copy()
            scale[known] = tight_scales(
                cell.rows(known),
                cell.release[:, 0].T[known],
                cell.samples[known],
                cell.epsilons[known],
                scale[known],
                cell.laws.off[known],
            )
        return scale

    def achieved(self, cell: Cell, noise: Noise) -> Array:
        aged, scale = super().achieved(cell, noise), noise.scale
        if cell.age == 0:
            return aged
        values, known = cell.release[:, 0].T, cell.aged.trusted & (noise.spent > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = sensitivities(values, cell.samples) / scale
            if known.any():
                told = values[known], cell.samples[known], scale[known]
                loss[known] = aged_losses(cell.rows(known), *told)
            # what rounding of the mean and of the law can add
            more = 2 * mean_rounding(values) / scale + 4 * cell.laws.off
        loss = np.where(scale > 0, loss + more, loss)
        aged = np.where(noise.spent > 0, np.fmin(loss, aged), 0.0)
        return np.where(scale >= noise.needed_scale, np.minimum(aged, cell.epsilons), aged)


class Continual(Formula):
    """For ever, or so many rounds, by losses for each pair of states."""

    def allowed(self, cell: Cell) -> tuple[Array, Array]:
        def affordable(group: int) -> float:
            client, every = cell.clients[group], cell.target.every or 1
            target = float(cell.epsilons[group])
            return per_release_epsilon(client.process, every, target, *_promised(cell, group))

        return _each(cell, cell.asked, affordable), cell.failures()

    def achieved(self, cell: Cell, noise: Noise) -> Array:
        def reached(group: int) -> float:
            client, spent = cell.clients[group], float(noise.spent[group])
            if math.isinf(spent):
                proven = math.isinf(noise.allowed[group])
                return float(cell.epsilons[group]) if proven else math.inf
            return continual_epsilon(
                client.process, cell.target.every or 1, spent, *_promised(cell, group)
            )

        return _kept(cell, noise, _each(cell, noise.spent > 0, reached, noise.spent))


class ApproximateRounds(Formula):
    """So many (ε, δ) releases, about the present (`agewise.privacy.composition`)."""

    def allowed(self, cell: Cell) -> tuple[Array, Array]:
        def affordable(group: int) -> tuple[float, float]:
            target, own = cell.target, float(cell.epsilons[group])
            return affordable_pair(*_deltas(cell, group), target.rounds or 1, own, target.delta)

        pairs = _each(cell, cell.asked, affordable)
        return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])

    def lowered(self, cell: Cell, scale: Array) -> Array:
        target, known = cell.target, self.allowed(cell)
        rows = MIXINGS[target.mixing].sharpness == "rows"
        sticks, mus = np.minimum(_sticks(cell), cell.delta) if rows else cell.delta, _mus(*known)

        def largest(group: int) -> float:
            client, own, failure = cell.clients[group], float(cell.epsilons[group]), target.delta
            every, rounds = target.every or 1, target.rounds or 1
            if (fails := float(known[1][group])) == LARGEST_FAILURE:  # the target allows more
                failure = min(failure, composed_pair(*_deltas(cell, group), rounds, own, fails)[1])
            told = own, failure
            method = method_of(client, target.mixing)
            ladder = gaussian_rounds(client.process, every, rounds, method, told)  # type: ignore[arg-type]
            return ladder.largest_mu(float(sticks[group]), float(mus[group]))

        return _with_mu(scale, known, _each(cell, cell.asked & (mus > 0), largest))

    def achieved(self, cell: Cell, noise: Noise) -> Array:
        def reached(group: int) -> float:
            spent, failure = float(noise.spent[group]), float(noise.failure[group])
            if math.isinf(spent):
                proven = math.isinf(noise.allowed[group])
                return float(cell.epsilons[group]) if proven else math.inf
            rounds = cell.target.rounds or 1
            return composed_pair(*_deltas(cell, group), rounds, spent, failure)[0]

        return _kept(cell, noise, _each(cell, noise.spent > 0, reached, noise.spent))


def _kept(cell: Cell, noise: Noise, aged: Array) -> Array:
    """With the noise that was calibrated the target is proven; the rest is rounding."""
    return np.where(noise.spent <= noise.allowed, np.minimum(aged, cell.epsilons), aged)


def _promised(cell: Cell, group: int) -> Any:
    """What a client's account over rounds is about."""
    target, guard = cell.target, cell.told_apart[group]
    method = method_of(cell.clients[group], target.mixing)
    release = guard if guard.size else "any"
    return cell.age, target.promise, release, method, target.counted_rounds


def _deltas(cell: Cell, group: int) -> tuple[float, float]:
    """Δ from one round to the next, and that of the age."""
    client, target = cell.clients[group], cell.target
    method = method_of(client, target.mixing)
    return gap_delta(client.process, target.every or 1, method), float(cell.delta[group])


def _each(
    cell: Cell, which: NDArray[np.bool_], ask: Callable[[int], Any], *numbers: Array
) -> Array:
    """What is found of each of some groups, once of those alike; 0 of the others."""
    known: dict[Any, Any] = {}
    keys = [
        (id(client), *told)
        for client, *told in zip(cell.clients, cell.epsilons, *numbers, strict=True)
    ]
    for group in np.flatnonzero(which).tolist():
        if keys[group] not in known:
            known[keys[group]] = ask(group)
    none = np.zeros_like(next(iter(known.values()), 0.0))
    both = zip(keys, which.tolist(), strict=True)
    return np.array([known[key] if asked else none for key, asked in both])


FORMULA, SHARP, TIGHT = Formula(), Sharp(), Tight()
CONTINUAL, APPROXIMATE_ROUNDS = Continual(), ApproximateRounds()
SHARP_APPROXIMATE = SharpApproximate()


def rule_of(target: Target) -> Formula:
    """The rule by which a target is met."""
    approximate = MECHANISMS[target.mechanism].approximate
    if target.lasting:
        return APPROXIMATE_ROUNDS if approximate else CONTINUAL
    if target.calibration == "formula":
        return FORMULA
    if approximate:
        return SHARP_APPROXIMATE if MIXINGS[target.mixing].sharpness == "rows" else FORMULA
    return TIGHT if target.calibration == "tight" else SHARP
