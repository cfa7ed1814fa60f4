"""What a common level moves in what clients report: it passes their clip.

A record is its own state plus the level, X = z + σW with W normal. A client reports the clamped
reading where its data are fresh, and the nearest state where their age earns credit; so the level
moves a report only as far as the clip lets it. Everything that a server knows of such reports
follows from two tables by own state: the expected report, and the covariances of reports.

Each report is a function of X that is linear between a few breaks. Expectations over one normal
variable are sums over panels between the breaks, by Gauss-Legendre quadrature; over two of them the
inner one is known in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from agewise.arrays import Array, frozen

NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)
PANELS = np.arange(-9.0, 10.0)
"""Standard deviations at which a panel ends anyway; what lies beyond is not followed."""
BREAKS = np.array([-8.0, -5.0, -2.5, -1.0, 0.0, 1.0, 2.5, 5.0, 8.0])
"""Where panels end around a break that noise of standard deviation 1 has smoothed."""


def _below(beyond: Array) -> Array:
    """The standard normal distribution function."""
    from scipy.special import ndtr  # noqa: PLC0415  (slow to import)

    return np.asarray(ndtr(beyond))


@dataclass(frozen=True)
class Report:
    """What a client reports of readings X = z + σW, by its own state z.

    `fresh`: the reading itself, clamped to the range of the states; else the nearest one.
    """

    states: tuple[float, ...]
    fresh: bool
    spread: float  #: σ, of the level in the records' unit

    @cached_property
    def _own(self) -> Array:
        return np.array(self.states)

    @cached_property
    def _sorted(self) -> Array:
        return np.sort(self._own)

    @cached_property
    def breaks(self) -> Array:
        """Where the report changes its slope or jumps, in readings."""
        own = self._sorted
        return own[[0, -1]] if self.fresh else (own[1:] + own[:-1]) / 2

    @cached_property
    def _steps(self) -> Array:
        return np.diff(self._sorted)

    def of(self, readings: Array) -> Array:
        """The reports of readings."""
        if self.fresh:
            return np.clip(readings, *self.breaks)
        return np.asarray(self._sorted[np.searchsorted(self.breaks, readings)])

    def expected(self, middle: Array, width: float) -> Array:
        """E of the report of a normal reading with these means and this standard deviation."""
        if width == 0:
            return self.of(middle)
        beyond = (middle[..., None] - self.breaks) / width
        if not self.fresh:
            return np.asarray(self._sorted[0] + _below(beyond) @ self._steps)
        density = np.exp(-(beyond**2) / 2) / np.sqrt(2 * np.pi)
        above = beyond * _below(beyond) + density  # the integral of the distribution function
        return np.asarray(self.breaks[0] + width * (above[..., 0] - above[..., 1]))

    @cached_property
    def mean(self) -> Array:
        """E of the report by own state `[S]`."""
        return self.expected(self._own, self.spread)

    @cached_property
    def slope(self) -> Array:
        """E of report × W by own state `[S]`: how the report moves with the level, on average."""
        if self.spread == 0:
            return np.zeros(len(self.states))
        beyond = (self.breaks - self._own[:, None]) / self.spread
        if self.fresh:
            below = _below(beyond)
            return np.asarray(self.spread * (below[:, 1] - below[:, 0]))
        return np.asarray(np.exp(-(beyond**2) / 2) / np.sqrt(2 * np.pi) @ self._steps)


@lru_cache(maxsize=2**15)
def covariances(one: Report, other: Report, correlation: float) -> Array:
    """Cov(one's report, the other's) by own states `[S, S']`, own states given.

    `correlation` is that of the two levels that move them.
    """
    if one.spread == 0 or other.spread == 0 or correlation == 0:
        return frozen(np.zeros((len(one.states), len(other.states))))
    left = float(np.sqrt(max(0.0, 1 - correlation**2)))
    moved = other.spread * correlation
    one_state, other_state = np.array(one.states)[:, None], np.array(other.states)
    outer = (one.breaks - one_state) / one.spread
    inner = (other.breaks - other_state[:, None]) / moved
    smoothed = (inner[..., None] + left / abs(correlation) * BREAKS).reshape(len(inner), -1)
    pairs = len(outer), len(inner)
    parts = (PANELS[None, None], outer[:, None], smoothed[None])
    edges = np.concatenate([np.broadcast_to(one, (*pairs, one.shape[-1])) for one in parts], axis=2)
    edges = np.sort(np.clip(edges, PANELS[0], PANELS[-1]), axis=2)
    half = np.diff(edges)[..., None] / 2
    at = edges[..., :-1, None] + half * (1 + NODES)
    density = np.exp(-(at**2) / 2) / np.sqrt(2 * np.pi) * half * WEIGHTS
    first = one.of(one_state[..., None, None] + one.spread * at) - one.mean[:, None, None, None]
    second = other.expected(other_state[:, None, None] + moved * at, other.spread * left)
    return frozen((density * first * (second - other.mean[:, None, None])).sum(axis=(2, 3)))
