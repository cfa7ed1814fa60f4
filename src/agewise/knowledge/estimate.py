"""The best linear estimate from what the server knows and what it hears: tables and gains.

The loss of a schedule t with gains k, one per client and coordinate of the learner, is

    Σ_i [base_i(t_i) − 2k_i cross_i(t_i) + k_i² power_i(t_i)]
    + ‖Σ_i (common_i − k_i heard_i(t_i))‖²,

added up over coordinates. For given columns the best gains are those of the best linear estimate,
found with matrices no larger than the number of factors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array
from agewise.errors import InvalidInput

REFINED = 5
"""Solutions on the way to the gains: releases all but without noise make the equations stiff."""

Evaluate = Callable[[NDArray[np.intp]], Array]


@dataclass(frozen=True)
class GainTables:
    """What the server knows of each client and column: covariances with the target, and factors.

    `base` `[m, T]` is what a client adds where it is not heard (infinite: the column is forbidden),
    `cross` and `power` `[m, T, C]` the covariance of its release with its part of the target and
    the variance of the release, noise included, `common` `[m, C, F]` and `heard` `[m, T, C, F]`
    how its part and its release move with the common factors.
    """

    base: Array
    cross: Array
    power: Array
    common: Array
    heard: Array

    def __post_init__(self) -> None:
        shape = (*self.base.shape, *self.cross.shape[2:])
        factors = self.heard.shape[-1:]
        wanted = {
            "base": self.base.shape[:2],
            "cross": shape,
            "power": shape,
            "common": (shape[0], *shape[2:], *factors),
            "heard": (*shape, *factors),
        }
        for name, expected in wanted.items():
            array = getattr(self, name)
            if array.shape != expected or 0 in array.shape[:2]:
                raise InvalidInput(name, f"of shape {array.shape}", f"shape {expected}, not empty")
            bad = np.isnan(array) | np.isneginf(array) if name == "base" else ~np.isfinite(array)
            if bad.any():
                raise InvalidInput(name, float(array[bad][0]), "finite numbers")
        if not (self.power > 0).all():
            raise InvalidInput("power", float(self.power.min()), "above 0")
        if np.isposinf(self.base).all(axis=1).any():
            row = int(np.isposinf(self.base).all(axis=1).argmax())
            raise InvalidInput(f"base[{row}]", "infinite in every slot", "one allowed slot or more")

    def times(self, counts: ArrayLike) -> GainTables:
        """The tables where each row stands for so many clients, alike in column and gain."""
        many = np.asarray(counts, float)
        by = [many.reshape(-1, *[1] * (k - 1)) for k in range(5)]
        return GainTables(
            self.base * by[2],
            self.cross * by[3],
            self.power * by[3],
            self.common * by[3],
            self.heard * by[4],
        )

    @property
    def clients(self) -> int:
        """How many rows there are."""
        return len(self.base)

    @property
    def slots(self) -> int:
        """How many columns there are."""
        return int(self.base.shape[1])


def gain_objective(tables: GainTables) -> Evaluate:
    """Return the evaluation of schedules `[k, m]`, each with its best gains."""
    total = tables.common.sum(axis=0)  # [C, F]

    def evaluate(schedules: NDArray[np.intp]) -> Array:
        count = len(schedules)
        start = np.broadcast_to(total, (count, *total.shape))
        solve = _shared_solver(tables, schedules)
        unknown, value = np.zeros(start.shape), np.zeros(count)
        for _ in range(REFINED if total.size else 1):
            value, left = np.zeros(count), start.copy()
            for i in range(tables.clients):
                picked = schedules[:, i]
                power, own, heard = (
                    x[i, picked] for x in (tables.power, tables.cross, tables.heard)
                )
                gain = (own + (heard * unknown).sum(axis=2)) / power
                alone = gain * (gain * power - 2 * own)
                value += tables.base[i, picked] + alone.sum(axis=1)
                left -= gain[..., None] * heard
            value += (left**2).sum(axis=(1, 2))
            unknown = unknown + solve(left - unknown)
        return np.asarray(value)

    return evaluate


def _shared_solver(tables: GainTables, schedules: NDArray[np.intp]) -> Callable[[Array], Array]:
    """How to solve (I + Σ heard·heardᵀ/power)·x = y, `[k, C, F]`, for each of some schedules.

    Of fewer clients than factors through a matrix of clients: x = y − Hᵀ(P + HHᵀ)⁻¹Hy. Rounding
    errors are for the caller to refine.
    """
    count, (width, factors) = len(schedules), tables.common.shape[1:]
    every = range(tables.clients)
    if tables.clients < factors:
        heard = np.stack([tables.heard[i, schedules[:, i]] for i in every], axis=2)  # [k, C, m, F]
        power = np.stack([tables.power[i, schedules[:, i]] for i in every], axis=2)
        back = np.swapaxes(heard, 2, 3)
        room = power + 1e-15 * np.square(heard).sum(axis=(2, 3))[..., None]  # what has no inverse
        small = np.linalg.inv(heard @ back + room[..., None] * np.eye(tables.clients))
        return lambda y: y - (back @ (small @ (heard @ y[..., None])))[..., 0]
    shared = np.broadcast_to(np.eye(factors), (count, width, factors, factors)).copy()
    for i in every:  # client by client: all at once would not fit in memory
        power, heard = tables.power[i, schedules[:, i]], tables.heard[i, schedules[:, i]]
        shared += np.einsum("kcf,kcg,kc->kcfg", heard, heard, 1 / power)
    inverse = np.linalg.inv(shared)
    return lambda y: np.asarray((inverse @ y[..., None])[..., 0])


def best_gains(tables: GainTables, columns: NDArray[np.intp]) -> Array:
    """Return the gains `[m, C]` of the best linear estimate at these columns.

    With s = Σ(common − gain·heard), what stays unknown of the factors, gain = (cross + s·heard)/
    power and (I + Σ heard·heardᵀ/power)·s = Σ(common − cross·heard/power).
    """
    rows = np.arange(tables.clients)
    power, cross, heard = (x[rows, columns] for x in (tables.power, tables.cross, tables.heard))
    total = tables.common.sum(axis=0)
    shared = np.eye(total.shape[1]) + np.einsum("icf,icg,ic->cfg", heard, heard, 1 / power)
    unknown = np.zeros(total.shape)
    gains = cross / power
    for _ in range(REFINED if total.size else 0):
        left = total - np.einsum("ic,icf->cf", gains, heard)
        unknown = unknown + np.linalg.solve(shared, (left - unknown)[..., None])[..., 0]
        gains = (cross + np.einsum("icf,cf->ic", heard, unknown)) / power
    return np.asarray(gains)


def gap_of(tables: GainTables, columns: NDArray[np.intp], gains: Array) -> float:
    """Return the objective at columns and gains, whether the gains are the best or not."""
    rows = np.arange(tables.clients)
    cross, power = tables.cross[rows, columns], tables.power[rows, columns]
    own = tables.base[rows, columns].sum() + (gains**2 * power - 2 * gains * cross).sum()
    left = (tables.common - gains[..., None] * tables.heard[rows, columns]).sum(axis=0)
    return float(own + (left**2).sum())


def nothing_heard(tables: GainTables, columns: NDArray[np.intp]) -> float:
    """Return the objective where every gain is 0: the server publishes what it knows."""
    common = tables.common.sum(axis=0)
    return float(tables.base[np.arange(tables.clients), columns].sum() + (common**2).sum())
