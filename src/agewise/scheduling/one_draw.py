"""Schedules where noise is drawn once, for the client that needs most of it.

Minimise F = c·max_i r_i(t_i)² + Σ_i u_i(t_i) + ‖Σ_i b_i(t_i)‖², r being the scale that a client's
slot asks of the one draw. For a level B clients keep to columns with r ≤ B, and the rest is the
problem without r. Whatever has max r in a band [B₁, B₂] costs at least c·B₁² plus the bound of the
problem restricted by B₂; bands are cut in two until the best schedule is proven.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array
from agewise.checks import finite_array
from agewise.errors import InvalidInput
from agewise.progress import Progress
from agewise.scheduling.certificate import (
    ENUMERABLE,
    ROUNDING,
    Certificate,
    check_schedule,
    restricted_bound,
    verdict,
)
from agewise.scheduling.certified import EXHAUSTIVE, solve_schedule
from agewise.scheduling.exhaustive import Evaluate, exhaustive, table_objective
from agewise.scheduling.schedule import Band, Bands, Draw, Leaf, Schedule, Split

PROVEN = 1e-9
"""Relative gap at which a schedule counts as proven optimal."""

MOST_BANDS = 400
"""Bands after which the search ends with the gap that it has."""


def one_draw_objective(u: Array, b: Array, draw: Draw) -> Evaluate:
    """Return the evaluation c·max r² + Σu + ‖Σb‖² of schedules `[k, m]`."""
    rest, rows = table_objective(u, b), np.arange(len(u))

    def evaluate(schedules: NDArray[np.intp]) -> Array:
        return np.asarray(
            rest(schedules) + draw.power * draw.scales[rows, schedules].max(axis=1) ** 2
        )

    return evaluate


def solve_one_draw(
    u: ArrayLike,
    b: ArrayLike,
    draw: Draw,
    capacity: int | None = None,
    *,
    progress: Progress | None = None,
) -> Schedule:
    """Choose a column for each row: minimise power·max scales² + Σu + ‖Σb‖².

    `u` and `b` as for `solve_schedule`, without noise; `draw` is what each cell asks
    of the one draw.

    Guarantees
        No schedule that keeps to the capacity has an objective below `lower_bound` (to rounding).
        `check_one_draw` recomputes it.
    """
    costs, biases, scales = _checked(u, b, draw.scales)
    power = draw.power
    clients, slots = costs.shape
    evaluate = one_draw_objective(costs, biases, draw)
    if clients * math.log(slots) <= math.log(EXHAUSTIVE):
        return exhaustive(evaluate, clients, slots, capacity)
    levels = _levels(costs, scales)
    solved: dict[int, Schedule | None] = {}
    best: Schedule | None = None

    def solve(place: int) -> float:
        """The bound of the problem restricted to a level, after trying its schedule."""
        nonlocal best
        if place not in solved:
            allowed = np.where(scales <= levels[place], costs, np.inf)
            try:
                solved[place] = solve_schedule(allowed, biases, capacity)
            except InvalidInput:  # no schedule in the capacity
                solved[place] = None
        found = solved[place]
        if found is None:
            return math.inf
        value = float(evaluate(found.columns[None])[0])
        if best is None or value < best.objective:
            best = replace(found, objective=value)
        if found.proof is None:
            return -math.inf if found.lower_bound is None else found.lower_bound
        # Enumeration may have closed a gap beyond what multipliers show: state what can be checked.
        allowed = np.where(scales <= levels[place], costs, np.inf)
        return restricted_bound(_proof_of(found), allowed, biases, capacity)

    last = len(levels) - 1
    queue = [(power * levels[0] ** 2 + solve(last), 0, last)]
    if best is None:
        raise InvalidInput("u", "infinite in too many slots", "a schedule in the capacity")
    closed: list[tuple[float, int, int]] = []
    for step in range(MOST_BANDS):
        bound, low, high = queue[0]
        if low == high or bound >= best.objective * (1 - PROVEN):
            break
        heapq.heappop(queue)
        aim = int(np.searchsorted(levels, (levels[low] + levels[high]) / 2)) - 1
        middle = min(max(aim, low), high - 1)
        for first, end in ((low, middle), (middle + 1, high)):
            heapq.heappush(queue, (power * levels[first] ** 2 + solve(end), first, end))
        if progress is not None:
            progress(step + 1, step + 2)
    closed += queue
    bands = tuple(
        Band(float(levels[low]), float(levels[high]), _proof_of(solved[high]))
        for _, low, high in sorted(closed, key=lambda band: band[1])
    )
    bound = min(bound for bound, _, _ in closed)
    return replace(
        best,
        lower_bound=min(bound, best.objective),
        proof=Bands(bands),
        iterations=len(solved),
        multipliers=None,
        prices=None,
    )


def check_one_draw(
    found: Schedule,
    u: ArrayLike,
    b: ArrayLike,
    draw: Draw,
    capacity: int | None = None,
) -> Certificate:
    """Recompute objective and bound of a schedule with one draw, and compare with its claims.

    Every level that a schedule can have must lie in one of the bands of the proof; each band
    bounds its own by power·low² plus what the multipliers show for columns up to high.
    """
    costs, biases, scales = _checked(u, b, draw.scales)
    power = draw.power
    clients, slots = costs.shape
    columns = np.asarray(found.columns)
    alone = check_schedule(
        Schedule(columns, 0.0, -math.inf, 0, proof=Leaf((0.0,) * biases.shape[2])),
        costs,
        biases,
        capacity,
    )
    largest = float(scales[np.arange(clients), columns].max())
    objective = alone.objective + power * largest**2
    problems = [one for one in alone.reason.split("; ") if "capacity" in one or "forbidden" in one]
    scale = ROUNDING * max(abs(objective), abs(found.objective), 1e-300)
    if not abs(objective - found.objective) <= scale:
        problems.append(f"the objective is {objective!r}, not {found.objective!r}")
    if isinstance(found.proof, Bands):
        parts = len(found.proof.bands)
        bound = _banded(found.proof, costs, biases, scales, power, capacity)
        how = f"bound recomputed from {parts} bands of noise"
    elif found.proof is None and clients * math.log(slots) <= math.log(ENUMERABLE):
        evaluate = one_draw_objective(costs, biases, draw)
        bound, parts = exhaustive(evaluate, clients, slots, capacity).objective, slots**clients
        how = f"all {parts} schedules tried"
    else:
        bound, parts, how = -math.inf, 0, ""
        problems.append("there is no proof to check")
    return verdict(found, objective, bound, parts, scale, problems, how)


def _banded(
    proof: Bands, u: Array, b: Array, reach: Array, power: float, capacity: int | None
) -> float:
    levels = _levels(u, reach)
    covered = np.zeros(len(levels), dtype=bool)
    lowest = math.inf
    for band in proof.bands:
        covered |= (levels >= band.low) & (levels <= band.high)
        allowed = np.where(reach <= band.high, u, np.inf)
        rest = restricted_bound(band.proof, allowed, b, capacity)
        lowest = min(lowest, power * max(band.low, 0.0) ** 2 + rest)
    return lowest if covered.all() else -math.inf


def _levels(u: Array, reach: Array) -> Array:
    """What the largest scale of a schedule can be, in rising order."""
    allowed = np.isfinite(u)
    least = np.where(allowed, reach, np.inf).min(axis=1).max()
    found = np.unique(reach[allowed])
    return np.asarray(found[found >= least])


def _proof_of(found: Schedule | None) -> Leaf | Split | None:
    """What shows the bound of a restricted problem; where there is no schedule, an empty leaf."""
    if found is None:
        return Leaf(())
    return found.proof if isinstance(found.proof, Leaf | Split) else None


def _checked(u: ArrayLike, b: ArrayLike, reach: ArrayLike) -> tuple[Array, Array, Array]:
    costs, biases = np.asarray(u, float), np.asarray(b, float)
    biases = biases[..., None] if biases.ndim == 2 else biases
    scales = finite_array("scales", reach, "finite scales, 0 or more")
    if scales.shape != costs.shape or (scales < 0).any():
        raise InvalidInput("scales", f"of shape {scales.shape}", f"0 or more, shape {costs.shape}")
    return costs, biases, scales
