"""The check of schedules with gains for one draw of noise."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.knowledge.estimate import GainTables
from agewise.knowledge.one_draw import gains_of_one_draw, least_losses, unknown_factors
from agewise.scheduling.certificate import Certificate, verdict
from agewise.scheduling.exhaustive import all_schedules
from agewise.scheduling.gain_certificate import claimed, doubts
from agewise.scheduling.schedule import Bands, Draw, Leaf, Schedule

ENUMERABLE = 200_000
"""Schedules up to which a claim without multipliers is checked by trying all of them."""


def check_gains_once(
    found: Schedule, tables: GainTables, draw: Draw, capacity: int | None = None
) -> Certificate:
    """Recompute objective and bound of a schedule with gains for one draw of noise.

    The bands must begin at 0 and leave no scale out; above the last one its multipliers must show
    as much without any limit on the gains.
    """
    clients, slots = tables.base.shape
    columns, gains = claimed(found, tables)
    objective, size = _objective(tables, draw, columns, gains[:, 0])
    problems, scale = doubts(found, columns, capacity, objective, size)
    if isinstance(found.proof, Bands):
        bound, parts = _banded(found.proof, tables, draw), len(found.proof.bands)
        how = f"bound over slots and gains recomputed from {parts} bands of noise"
    elif found.proof is None and clients * math.log(slots) <= math.log(ENUMERABLE):
        at = unknown_factors(tables, columns, gains[:, 0])
        bound = _best_of_all(tables, draw, capacity, at, objective)
        parts = slots**clients
        how = f"all {parts} schedules tried, each with its best gains"
    else:
        bound, parts, how = -math.inf, 0, ""
        problems.append("there is no proof to check")
    return verdict(found, objective, bound, parts, scale, problems, how)


def _objective(
    tables: GainTables, draw: Draw, columns: NDArray[np.intp], gains: Array
) -> tuple[float, float]:
    """The loss, term by term as it is defined, and the size of its terms."""
    own, left, largest = [], np.zeros(tables.heard.shape[-1]), 0.0
    for i, (t, k) in enumerate(zip(columns.tolist(), gains.tolist(), strict=True)):
        own += [tables.base[i, t], -2 * k * tables.cross[i, t, 0], k * k * tables.power[i, t, 0]]
        left = left + tables.common[i, 0] - k * tables.heard[i, t, 0]
        largest = max(largest, abs(k) * draw.scales[i, t])
    total = math.fsum(own) + float(left @ left) + draw.power * largest**2
    return total, math.fsum(map(abs, own))


def _best_of_all(
    tables: GainTables, draw: Draw, capacity: int | None, at: Array, known: float
) -> float:
    """The least objective of all schedules; gains are sought where it might be below `known`."""
    best = known
    for block in all_schedules(tables.clients, tables.slots, capacity, ENUMERABLE):
        least = least_losses(tables, block, draw.scales, draw.power, at)
        for columns in block[least < best]:
            needed = draw.scales[np.arange(len(columns)), columns]
            gains, _ = gains_of_one_draw(tables, columns, needed, draw.power)
            best = min(best, _objective(tables, draw, columns, gains)[0])
    return best


def _banded(proof: Bands, tables: GainTables, draw: Draw) -> float:
    """What the bands show; nothing where they leave a scale out."""
    lowest, reached, beyond = math.inf, 0.0, -math.inf
    for band in proof.bands:
        leaf, wide = band.proof, band.high - band.low
        if not isinstance(leaf, Leaf) or len(leaf.multipliers) != tables.heard.shape[-1]:
            return -math.inf
        if not 0 <= band.low <= reached or not wide > 0:
            return -math.inf
        at = np.array(leaf.multipliers)
        fixed = 2 * float(tables.common[:, 0].sum(axis=0) @ at) - float(at @ at)
        told = tables.cross[:, :, 0] + tables.heard[:, :, 0] @ at
        own, scales = tables.power[:, :, 0], draw.scales
        with np.errstate(divide="ignore"):
            limit = np.where(scales > 0, band.high / scales, np.inf)
        gain = np.minimum(np.abs(told) / own, limit)
        loss = tables.base - 2 * gain * np.abs(told) + gain**2 * own
        # What a gain at its limit costs for each unit that the scale falls short of `high`.
        steep = np.zeros_like(loss)
        np.divide(2 * (np.abs(told) - gain * own), scales, out=steep, where=gain == limit)
        top, bottom = loss.min(axis=1).sum(), (loss + steep * wide).min(axis=1).sum()
        turn = (bottom - top) / wide / (2 * draw.power) if draw.power > 0 else band.high
        scale = float(np.clip(turn, band.low, band.high))
        share = (scale - band.low) / wide
        chord = (1 - share) * bottom + share * top
        lowest = min(lowest, fixed + draw.power * scale**2 + float(chord))
        if band.high > reached:
            reached = band.high
            unlimited = (tables.base - told**2 / own).min(axis=1).sum()
            beyond = fixed + draw.power * reached**2 + float(unlimited)
    return min(lowest, beyond)
