"""What a fitted chain assumes, tested on the readings: effect sizes first, p-values beside them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array, states_at
from agewise.fitting.halves import Halves, compare_halves
from agewise.fitting.laws import WEEK, Codes, fit_chain, pair_counts, tally
from agewise.mixing import total_variation
from agewise.process.limits import table_delta

MATTERS = 0.1
"""A difference in Δ or in total variation above this is told as one that matters."""
TOGETHER = 2.0
"""A mean that varies this many times as much as one of independent entities is told of."""
BALANCED = 0.025
"""Entities in which every state takes at least this share count for the medians."""
LONGEST_WALK = 5_000
"""Steps that a simulation takes in a row; longer ones are put together from several."""
HELD = 2**24
"""Numbers that are drawn at a time, for as many simulations side by side as they are enough for."""


@dataclass(frozen=True)
class LagCheck:
    """Δ at a lag: as the readings have it, and as powers of the fitted chain say (medians)."""

    lag: int
    measured: float
    chain: float
    time: str = ""
    """The lag in hours, days or weeks."""

    @property
    def understated(self) -> float:
        """By how much the chain promises more than there is."""
        return self.measured - self.chain


@dataclass(frozen=True)
class Assumptions:
    """How far readings are from a homogeneous first-order chain.

    `memory` is the mean total variation between the next state's law given one and given two
    states before it, and `memory_control` what a chain simulated from the fit shows. `day_night`
    is the largest total variation between rows of the matrices of two quarters of the day,
    `season` of the two halves of the time, and `control` of odd and even days, which chance alone
    makes. Each `_p` is the share of simulations of the fitted chain that show as much. `together`
    is how many times the variance of the entities' mean, from day to day at the same time of day,
    is that of independent entities, and `halves` how the two halves of the time differ.
    """

    entities: int  #: households, meters: whose readings they are
    balanced: int  #: entities that are in every state often enough for `lags`
    memory: float
    memory_control: float
    memory_p: float  #: of `memory`
    day_night: float
    day_night_p: float  #: of `day_night`
    season: float
    season_p: float  #: of `season`
    control: float
    together: float
    lags: tuple[LagCheck, ...]  #: measured Δ against that of the chain, lag by lag
    halves: Halves
    verdict: tuple[str, ...]  #: what all this says, in plain words

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as plain data."""
        return {**asdict(self), "halves": self.halves.to_dict()}


def usual_lags(day: int) -> tuple[int, ...]:
    """One slot; 2, 4 and 10 hours, a day, two days and a week, as far as slots can tell them."""
    hours = (2, 4, 10, 24, 48, 24 * 7)
    return tuple(sorted({1, *(day * h // 24 for h in hours if day * h % 24 == 0)}))


def spoken_time(lag: int, day: int) -> str:
    """A lag in the largest unit of which it is a whole number, such as 2 days."""
    seconds = lag * 24 * 60 * 60 // day
    for unit, length in (("week", 604_800), ("day", 86_400), ("hour", 3600), ("min", 60)):
        if seconds % length == 0:
            plural = "s" if seconds > length and unit != "min" else ""
            return f"{seconds // length} {unit}{plural}"
    return f"{seconds} s"


def check_assumptions(
    codes: Codes,
    values: Array,
    day: int,
    *,
    starts: int = 0,
    lags: Sequence[int] | None = None,
    simulations: int = 19,
    seed: int = 0,
) -> Assumptions:
    """Test order and homogeneity, and compare measured Δ with the chain's at several lags.

    Without `lags`, those of some hours, a day, two days and a week (`usual_lags`).
    """
    size = values.size
    share = np.stack([(codes == s).mean(axis=1) for s in range(size)])
    chosen = codes[share.min(axis=0) >= BALANCED]
    used = chosen if len(chosen) else codes
    pooled = fit_chain(codes, values)
    rng = np.random.default_rng(seed)
    effects = _effects(codes, size, day, starts)
    simulated = np.array(
        [
            _effects(walked, size, day, starts)
            for walked in _simulate(pooled.transition, codes, day, rng, simulations)
        ]
    )
    memory_p, day_night_p, season_p = (1 + (simulated >= effects).sum(axis=0)) / (simulations + 1)
    memory, day_night, season = effects
    memory_control = float(simulated[:, 0].mean())
    date = (np.arange(codes.shape[1] - 1) + starts) // day
    control = _between(codes, size, date % 2)
    together = _together(values[codes], codes >= 0, day)
    chains = [fit_chain(one[None], values) for one in used]
    checks = tuple(
        LagCheck(
            lag,
            float(np.median([table_delta(c) for c in pair_counts(used, lag, size)])),
            float(np.median([float(total_variation(chain, lag)) for chain in chains])),
            spoken_time(lag, day),
        )
        for lag in (usual_lags(day) if lags is None else lags)
        if lag < codes.shape[1] // 2
    )
    halves = compare_halves(codes, values, day, seed=seed)
    said = _verdict(memory, memory_control, day_night, season, control, together, checks)
    said += halves.verdict
    return Assumptions(
        entities=len(codes),
        balanced=len(chosen),
        memory=memory,
        memory_control=memory_control,
        memory_p=float(memory_p),
        day_night=day_night,
        day_night_p=float(day_night_p),
        season=season,
        season_p=float(season_p),
        control=control,
        together=together,
        lags=checks,
        halves=halves,
        verdict=said or ("Nothing speaks against the homogeneous chain at these lags.",),
    )


def _verdict(
    memory: float,
    simulated: float,
    day_night: float,
    season: float,
    control: float,
    together: float,
    checks: tuple[LagCheck, ...],
) -> tuple[str, ...]:
    """What to conclude, in plain words."""
    said = []
    worst = max(checks, key=lambda one: one.understated, default=None)
    if worst is not None and worst.understated > MATTERS:
        said.append(
            f"The homogeneous chain understates Δ at lag {worst.lag} ({worst.time}) by "
            f"{worst.understated:.2f} "
            f"({worst.chain:.2f} instead of {worst.measured:.2f}): use the measured law."
        )
    if memory > simulated + MATTERS / 2:
        said.append(
            f"Readings remember more than one step (effect {memory:.2f}, a first-order chain "
            f"shows {simulated:.2f})."
        )
    for name, effect in (("time of day", day_night), ("season", season)):
        if effect > control + MATTERS:
            said.append(
                f"Moves depend on the {name} (effect {effect:.2f}, odd against even days "
                f"{control:.2f})."
            )
    if together > TOGETHER:
        said.append(
            f"Entities move together: their mean varies {together:.1f} times as much from day to "
            "day as that of independent ones, for which losses are promised and ε is stated: who "
            "knows the others learns what sort of day it is."
        )
    return tuple(said)


def _effects(codes: Codes, size: int, day: int, starts: int) -> tuple[float, float, float]:
    """Memory beyond one step, and differences by time of day and by half of the time."""
    at = np.arange(codes.shape[1] - 1) + starts
    half = np.arange(at.size) * 2 // at.size
    return (
        _memory(codes, size),
        _between(codes, size, at % day * 4 // day),
        _between(codes, size, half),
    )


def _together(values: Array, known: NDArray[np.bool_], day: int) -> float:
    """The variance of the mean over entities, over what it would be if they were independent.

    Entities' own habits at each time of day are taken away first.
    """
    days = values.shape[1] // day
    table = np.where(known, values, np.nan)[:, : days * day].reshape(len(values), days, day)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an entity without a reading there
        rest = np.nan_to_num(table - np.nanmean(table, axis=1, keepdims=True))
    alone = float((rest**2).sum())
    return float((rest.sum(axis=0) ** 2).sum()) / alone if alone else 1.0


def _memory(codes: Codes, size: int) -> float:
    """Mean total variation between P(next | now) and P(next | now, before)."""
    before, now, after = codes[:, :-2], codes[:, 1:-1], codes[:, 2:]
    good = (before >= 0) & (now >= 0) & (after >= 0)
    code = (before[good].astype(np.intp) * size + now[good]) * size + after[good]
    counts = np.bincount(code, minlength=size**3).reshape(size, size, size).astype(float)
    pairs = counts.sum(axis=0)
    first = pairs / np.maximum(pairs.sum(axis=1, keepdims=True), 1)
    seen = counts.sum(axis=2)
    second = counts / np.maximum(seen[..., None], 1)
    distance = np.abs(second - first[None]).sum(axis=2) / 2
    return float((distance * seen).sum() / max(seen.sum(), 1))


def _between(codes: Codes, size: int, part: Any) -> float:
    """The largest total variation between rows of the matrices of any two parts of the steps."""
    matrices = []
    for label in np.unique(part):
        now, after = codes[:, :-1][:, part == label], codes[:, 1:][:, part == label]
        counts = tally(now, after, size).sum(axis=0)
        matrices.append(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))
    return max(
        float((np.abs(one - other).sum(axis=1) / 2).max()) for one in matrices for other in matrices
    )


def _simulate(
    transition: Array, codes: Codes, day: int, rng: np.random.Generator, simulations: int
) -> Iterator[Codes]:
    """Entities that follow a chain, as many and as long as the readings (at most two weeks).

    Two weeks or 5,000 slots, whichever is more. Long ones are several walks one after the other:
    each seam is one step in thousands that does not follow the chain.
    """
    slots = min(codes.shape[1], max(LONGEST_WALK, 2 * WEEK * day))
    walks = -(-slots // LONGEST_WALK)
    steps = -(-slots // walks)
    cumulative = np.cumsum(transition, axis=1)
    begun = np.repeat(np.maximum(codes[:, 0], 0), walks)
    most = max(1, HELD // (begun.size * steps))
    for first in range(0, simulations, most):
        together = min(most, simulations - first)
        shares = rng.random((together, steps - 1, begun.size))  # one simulation after the other
        walked = np.empty((steps, together * begun.size), dtype=np.int8)
        walked[0] = np.tile(begun, together)
        for t in range(1, steps):
            walked[t] = states_at(cumulative[walked[t - 1]], shares[:, t - 1].ravel())
        yield from walked.T.reshape(together, len(codes), -1)[:, :, :slots]
