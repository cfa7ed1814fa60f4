"""The best linear estimate where the server draws noise once, for the client that needs most.

A client whose own release would need noise of scale s, heard with gain k, asks |k|·s of the one
draw. With noise of scale B the gains keep to |k_i| ≤ B/s_i, and

    Σ_i [base_i − 2k_i cross_i + k_i² power_i] + ‖Σ_i (common_i − k_i heard_i)‖² + c·B²

is convex in k and B together. Coordinates share one gain per client, since they share one draw.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.knowledge.estimate import GainTables

STEPS = 200
"""Newton steps, and steps for the scale, at most."""


BANDS = 64
"""Bands of scales in which a loss is bounded from below."""


def collapsed(tables: GainTables) -> GainTables:
    """The same tables with one gain per client for all coordinates."""
    clients, slots, _, _ = tables.heard.shape
    return GainTables(
        tables.base,
        tables.cross.sum(axis=2, keepdims=True),
        tables.power.sum(axis=2, keepdims=True),
        tables.common.reshape(clients, 1, -1),
        tables.heard.reshape(clients, slots, 1, -1),
    )


def gains_of_one_draw(
    tables: GainTables, columns: NDArray[np.intp], needed: Array, power: float
) -> tuple[Array, float]:
    """Return the best gains `[m]` at these columns, and the scale of the one draw.

    `needed` `[m]` is the noise that each client's own mean needs, `power` the loss of a draw of
    scale 1. `tables` have one coordinate.

    Guarantees
        |gain|·needed is at most the scale, for every client.
    """
    rows = np.arange(tables.clients)
    cross, own = tables.cross[rows, columns, 0], tables.power[rows, columns, 0]
    heard = tables.heard[rows, columns, 0]
    total = tables.common[:, 0].sum(axis=0)
    at = np.zeros(heard.shape[1])

    def solve(draw: float) -> tuple[Array, float]:
        """Gains for a scale, and how much the loss falls where the scale rises, per unit."""
        nonlocal at
        with np.errstate(divide="ignore"):
            limit = np.where(needed > 0, draw / np.where(needed > 0, needed, 1.0), np.inf)
        at = _settled(cross, own, heard, total, limit, at)
        told = cross + heard @ at
        gains = np.clip(told / own, -limit, limit)
        short = np.abs(told) - np.abs(gains) * own
        held = (np.abs(gains) >= limit) & (needed > 0) & (short > 0)
        slope = 2 * float((short[held] / needed[held]).sum())
        return gains, slope

    free, _ = solve(np.inf)
    high = float((np.abs(free) * needed).max())
    if high == 0:
        return free, 0.0

    def rise(part: float) -> float:  # how fast the loss rises with the scale; it is convex
        return 2 * power * high * part - solve(high * part)[1]

    part = 1.0
    if rise(1.0) > 0:
        low = 0.5
        while rise(low) > 0 and low > 1e-300:
            low /= 8
        from scipy.optimize import brentq  # noqa: PLC0415  (slow to import)

        part = brentq(rise, low, 1.0, xtol=1e-15 * low, rtol=1e-14) if low > 1e-300 else 0.0
    gains, _ = solve(high * part)
    return gains, float((np.abs(gains) * needed).max())


def _settled(
    cross: Array, own: Array, heard: Array, total: Array, limit: Array, start: Array
) -> Array:
    """The multipliers of gains within limits: Newton's method on a concave function."""
    at, factors = start, heard.shape[1]
    if not factors:
        return at

    def off(point: Array) -> tuple[Array, NDArray[np.bool_], float]:
        told = cross + heard @ point
        gains = np.clip(told / own, -limit, limit)
        value = float((gains**2 * own - 2 * gains * told).sum() + 2 * point @ total - point @ point)
        return total - gains @ heard - point, np.abs(told) < limit * own, value

    slope, free, value = off(at)
    for _ in range(STEPS):
        if float(slope @ slope) <= 1e-28 * max(float(total @ total), float(at @ at), 1e-300):
            break
        loose = heard[free]
        step = np.linalg.solve(np.eye(factors) + (loose / own[free, None]).T @ loose, slope)
        size = 1.0
        while size > 1e-10:
            tried = at + size * step
            new_slope, new_free, new_value = off(tried)
            if new_value >= value:
                break
            size /= 2
        if new_value <= value:
            at = tried if new_value == value else at
            break
        at, slope, free, value = tried, new_slope, new_free, new_value
    return at


def least_losses(
    tables: GainTables, schedules: NDArray[np.intp], scales: Array, power: float, at: Array
) -> Array:
    """Return what schedules `[k, m]` lose at least, whatever their gains, by multipliers λ.

    With λ given, what a client loses in a column is convex in the scale of the draw, hence above
    its tangent at the upper end of each of a few bands of scales; above the last band no gain is
    held back.
    """
    told = tables.cross[:, :, 0] + tables.heard[:, :, 0] @ at
    own = tables.power[:, :, 0]
    common = 2 * tables.common[:, 0] @ at
    least = tables.base + common[:, None] - told**2 / own
    wanted = np.abs(told) / own * scales
    inverse = np.divide(1.0, scales, out=np.zeros_like(scales), where=scales > 0)
    top = float(wanted.max())
    rows, fixed = np.arange(tables.clients), float(at @ at)
    found = least[rows, schedules].sum(axis=1) + power * top**2
    edges = [0.0, *np.geomspace(top * 1e-3, top, BANDS)] if top > 0 else []
    for low, high in pairwise(edges):
        short = np.maximum(wanted - high, 0.0) * inverse
        end = (least + own * short**2)[rows, schedules].sum(axis=1)
        steep = (2 * own * short * inverse)[rows, schedules].sum(axis=1)
        scale = np.clip(steep / (2 * power), low, high)
        found = np.minimum(found, power * scale**2 + end + steep * (high - scale))
    return np.asarray(found - fixed)


def unknown_factors(tables: GainTables, columns: NDArray[np.intp], gains: Array) -> Array:
    """What of the factors gains `[m]` leave unknown: the multipliers of the best ones."""
    heard = tables.heard[np.arange(tables.clients), columns, 0]
    return np.asarray(tables.common[:, 0].sum(axis=0) - gains @ heard)
