"""What a mechanism is: noise of a scale, and what it guarantees about one record."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array
from agewise.errors import InvalidInput, quoted

LONG = 64
"""Coordinates beyond which a vector is drawn in pieces."""
PIECE = 10_000
"""Coordinates of a piece, at most."""
GRID_BITS = 60
"""How much finer than its noise the grid of a long vector is, as a power of two."""
FINEST = -1074
"""The power of two of the smallest float."""

Value = float | int | NDArray[np.float64] | NDArray[np.int64]


@dataclass(frozen=True)
class Noised:
    """A noised value and what is true of it.

    `private` says that the noise came from the real mechanism. It is false for what the seeded
    stand-in made, and `epsilon` is then None: a seed can be replayed, so nothing may be claimed
    for it. An infinite `epsilon` is a release without noise. `failure` is the δ of an (ε, δ)
    guarantee, 0 for ε alone. Vectors come back as float64 or int64.
    """

    value: Value  #: with its noise
    scale: float  #: of the noise
    epsilon: float | None
    private: bool
    failure: float = 0.0


class Mechanism(Protocol):
    """Additive noise on a vector whose ℓ1 or ℓ2 sensitivity is known.

    Everything but `draw` works on arrays that broadcast. `failure` is the δ of (ε, δ), and 0 for a
    mechanism that needs none. `step` is the distance of the grid that values without noise lie on,
    such as counts over their number; 0 where there is none. Noise may then stay on that grid.
    """

    @property
    def kind(self) -> str:
        """Its name in scenarios, messages and events."""
        ...

    @property
    def approximate(self) -> bool:
        """Whether its guarantees need a δ: then no account by pairs of states is kept of it."""
        ...

    @property
    def norm(self) -> Literal[1, 2]:
        """The norm in which sensitivities are measured."""
        ...

    @property
    def words(self) -> str:
        """What statements call it."""
        ...

    def calibrate(self, sensitivity: Array, epsilon: Array, failure: Array) -> Array:
        """The least scale at which a release is (ε, δ)-private, rounded up; 0 for ε = ∞."""
        ...

    def spent(self, sensitivity: Array, scale: Array, failure: Array) -> Array:
        """The ε of a scale at this δ, as far as `calibrate` goes back to at least that scale."""
        ...

    def variance(self, scale: Array, step: float = 0.0) -> Array:
        """The variance of the noise on one coordinate."""
        ...

    def pairwise(self, release: Array, samples: int, scale: float) -> Array | None:
        """L[x, x′]: the most that an output can tell a record in state x from one in x′.

        None where no finite ε bounds it.
        """
        ...

    def certified(self, sensitivity: float, scale: float, failure: float = 0.0) -> float:
        """The ε of a release of this scale, by OpenDP's own privacy map."""
        ...

    def draw(
        self,
        value: Array,
        *,
        sensitivity: float,
        scale: float,
        failure: float = 0.0,
        step: float = 0.0,
    ) -> Noised:
        """Add private noise of at least this scale; its ε is what OpenDP's own map says."""
        ...

    def imitate(
        self, value: Array, *, scale: float, rng: np.random.Generator, step: float = 0.0
    ) -> Noised:
        """Add reproducible noise of the same law. What it makes is **not** private."""
        ...

    def imitate_each(
        self,
        values: Array,
        *,
        scale: float,
        rngs: Iterable[np.random.Generator],
        step: float = 0.0,
        firsts: Array | None = None,
    ) -> Noised:
        """`imitate` for each row of values `[m, d]`, with a generator of its own.

        `firsts` is what `random()` of each generator would give first, where that is known.
        """
        ...


def checked_vector(value: Any) -> list[float]:
    """Refuse anything but finite numbers before a mechanism sees it."""
    array = np.atleast_1d(np.asarray(value, dtype=np.float64))
    if array.ndim != 1 or array.size == 0:
        raise InvalidInput("value", f"of shape {array.shape}", "a vector of numbers")
    if not np.isfinite(array).all():
        raise InvalidInput("value", quoted(value), "finite numbers", "Clip or drop what is not.")
    return array.tolist()  # type: ignore[no-any-return]


def imitated_one_by_one(
    mechanism: Mechanism,
    values: Array,
    scale: float,
    rngs: Iterable[np.random.Generator],
    step: float,
) -> Noised:
    """`imitate` for each row of values `[m, d]`."""
    drawn = [
        mechanism.imitate(value, scale=scale, rng=rng, step=step)
        for value, rng in zip(values, rngs, strict=True)
    ]
    return replace(drawn[0], value=np.stack([np.asarray(one.value) for one in drawn]))


def is_long(size: int) -> bool:
    """Whether a vector is drawn in pieces, on the grid of `grid_of`."""
    return size > LONG


def grid_of(scale: float) -> int:
    """The power of two whose multiples a long vector is rounded to before it is noised.

    OpenDP's default is the finest grid that floats have, which takes three to four times as long.
    What rounding adds to the sensitivity, OpenDP's own map counts.
    """
    return max(math.frexp(scale)[1] - GRID_BITS, FINEST)


def draw_in_pieces(make: Callable[[int], Any], payload: list[Any]) -> list[Any]:
    """Noise a long vector by `make(size)`, OpenDP's measurement of that many coordinates.

    Every coordinate has its own draw, so the pieces together are the measurement of the whole.
    OpenDP computes outside of Python's lock: the pieces use all cores.
    """
    cores = os.cpu_count() or 1
    size = min(PIECE, max(LONG, -(-len(payload) // cores)))
    pieces = [payload[at : at + size] for at in range(0, len(payload), size)]
    with ThreadPoolExecutor(cores) as threads:
        drawn = threads.map(lambda piece: make(len(piece))(piece), pieces)
        return [one for piece in drawn for one in piece]


@cache
def opendp() -> Any:
    """OpenDP, loaded when it is first needed.

    Not by its prelude, which loads scikit-learn and SciPy's statistics too where they are there.
    """
    from opendp import combinators, domains, measurements, metrics  # noqa: PLC0415
    from opendp.mod import enable_features  # noqa: PLC0415

    enable_features("contrib")
    return SimpleNamespace(**vars(domains), **_distances(metrics), m=measurements, c=combinators)


def _distances(metrics: Any) -> dict[str, Any]:
    return {name: one for name, one in vars(metrics).items() if name.endswith("_distance")}
