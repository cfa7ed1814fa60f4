"""Whether the two halves of the readings are alike: clocks that were changed, and drift."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.fitting.laws import WEEK, Codes

FEWEST_WEEKS = 10
"""Weeks below which their random halves are too few to tell drift from weeks that differ."""
BY_CHANCE = 0.01
"""What chance does more often than this is not told of."""
DRIFT = 0.05
"""A total variation above that of random halves by more than this is told of."""
ALIKE = 0.8
"""How well shifted profiles have to agree (correlation)."""
FARTHEST = 3
"""Hours by which clocks are taken to be wrong at most."""


@dataclass(frozen=True)
class Halves:
    """How the second half of the time differs from the first.

    `drift` is the total variation between the shares of the states, `drift_control` its mean over
    random halves: weeks exchanged at random. With fewer than ten weeks no drift is told of, and
    shifts are judged by exchanging days, since weeks move levels and not clocks. `shift_minutes`
    is by how much the mean day of the second half comes later for the best agreement, `agreement`
    and `agreement_unshifted` the correlations with and without it. Each `_p` is the share of
    random halves that show as much.
    """

    drift: float
    drift_control: float
    drift_p: float
    shift_minutes: float
    agreement: float
    agreement_unshifted: float
    shift_p: float

    @property
    def drifted(self) -> bool:
        """Whether the states' shares differ more than chance makes them, and enough to matter."""
        return self.drift_p <= BY_CHANCE and self.drift > self.drift_control + DRIFT

    @property
    def shifted(self) -> bool:
        """Whether a shift explains most of what the mean days differ by."""
        left, was = 1 - self.agreement, 1 - self.agreement_unshifted
        return self.shift_p <= BY_CHANCE and self.agreement >= ALIKE and left <= was / 2

    @property
    def verdict(self) -> tuple[str, ...]:
        """What to conclude, in plain words; nothing where the halves are alike."""
        said = []
        if self.shifted:
            way = "later" if self.shift_minutes > 0 else "earlier"
            said.append(
                f"The days of the second half run {abs(self.shift_minutes):g} min {way} than those "
                f"of the first (their means agree at {self.agreement:.2f} with that shift, at "
                f"{self.agreement_unshifted:.2f} without): were the clocks changed? Correct the "
                "times, or fit to one half."
            )
        if self.drifted:
            said.append(
                f"The states' shares drift between the halves of the time (by {self.drift:.2f}, "
                f"random halves {self.drift_control:.2f}): days to come may be unlike the average "
                "of those measured."
            )
        return tuple(said)

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as plain data."""
        return {**asdict(self), "verdict": list(self.verdict)}


def compare_halves(
    codes: Codes, values: Array, day: int, *, exchanges: int = 199, seed: int = 0
) -> Halves:
    """Compare the first half of the days with the second, and both with random halves.

    If nothing changes over time, the halves as they are look like any others.
    """
    days = codes.shape[1] // day
    part = codes[:, : days * day].reshape(len(codes), days, day)
    known = part >= 0
    counts, total = known.sum(axis=0), np.where(known, values[part], 0.0).sum(axis=0)
    shares = np.stack([(part == s).sum(axis=(0, 2)) for s in range(values.size)], axis=1)
    rng = np.random.default_rng(seed)
    by_week = _halves(days, WEEK, exchanges, rng)
    by_block = by_week if days >= FEWEST_WEEKS * WEEK else _halves(days, 1, exchanges, rng)
    laws = [_rows(side @ shares) for side in (by_week, 1 - by_week)]
    drift = np.abs(laws[0] - laws[1]).sum(axis=1) / 2
    agreement = _agreement(
        *((side @ total) / np.maximum(side @ counts, 1) for side in (by_block, 1 - by_block))
    )
    near = np.arange(-(FARTHEST * day // 24), FARTHEST * day // 24 + 1)
    best = near[agreement[:, near].argmax(axis=1)]
    won = agreement[np.arange(len(best)), best] - agreement[:, 0]
    return Halves(
        drift=float(drift[0]),
        drift_control=float(drift[1:].mean()),
        drift_p=_p(drift),
        shift_minutes=float(best[0]) * 24 * 60 / day,
        agreement=float(agreement[0, best[0]]),
        agreement_unshifted=float(agreement[0, 0]),
        shift_p=_p(won),
    )


def _halves(days: int, length: int, exchanges: int, rng: np.random.Generator) -> Array:
    """Which days are in the first half, `[line, day]`: as they are, then blocks at random."""
    block = np.arange(days) // length
    first = np.zeros((exchanges + 1, int(block[-1]) + 1))
    first[:, : days // 2 // length] = 1
    first[1:] = rng.permuted(first[1:], axis=1)
    return np.asarray(first[:, block])


def _rows(counts: Array) -> Array:
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))


def _p(statistic: Array) -> float:
    """The share of the lines that show as much as the first."""
    return float((statistic >= statistic[0]).mean())


def _agreement(one: NDArray[np.float64], other: NDArray[np.float64]) -> Array:
    """Correlations of profiles, `[line, by how many slots the second is later]`."""
    parts = [side - side.mean(axis=1, keepdims=True) for side in (one, other)]
    size = np.sqrt((parts[0] ** 2).sum(axis=1) * (parts[1] ** 2).sum(axis=1))
    spectra = [np.fft.rfft(side, axis=1) for side in parts]
    both = np.fft.irfft(spectra[0].conj() * spectra[1], n=one.shape[1], axis=1)
    return np.asarray(both / np.maximum(size, 1e-300)[:, None])
