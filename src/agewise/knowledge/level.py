"""A level that all clients share and that moves slowly: what is unknown and worth learning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array, frozen
from agewise.checks import finite_array, fraction
from agewise.errors import InvalidInput
from agewise.knowledge.knowledge import Asked
from agewise.knowledge.moments import Moments

LARGEST = 1e100
"""Loadings are squared; beyond this floats overflow."""


@dataclass(frozen=True)
class Level:
    """Something that moves all records of a client alike, and clients together.

    It has mean 0, and standard deviation `loading` in the unit of the records: one number, or one
    per client in their order. `correlation` is what remains of it from one slot to the next (ρ, so
    ρ^lag over `lag` slots), or one number per lag from 0 on, the first of which is 1.

    >>> Level(loading=20.0, correlation=0.98)
    Level(loading=20.0, correlation=0.98)
    """

    loading: float | Sequence[float]
    correlation: float | Sequence[float]

    def __post_init__(self) -> None:
        loading = finite_array("level.loading", self.loading, "one number, or one per client")
        if loading.ndim > 1:
            raise InvalidInput(
                "level.loading", f"of shape {loading.shape}", "one number, or one per client"
            )
        if np.abs(loading).max() > LARGEST:
            raise InvalidInput(
                "level.loading", float(np.abs(loading).max()), f"at most {LARGEST:g} in size"
            )
        plain = loading.tolist()
        object.__setattr__(self, "loading", tuple(plain) if loading.ndim else plain)
        if isinstance(self.correlation, Mapping):
            raise InvalidInput("level.correlation", self.correlation, "a number, or a list of them")
        if isinstance(self.correlation, Iterable) and not isinstance(self.correlation, str):
            given = [
                fraction(f"level.correlation[{lag}]", one, with_zero=True, with_one=True)
                for lag, one in enumerate(self.correlation)
            ]
            if not given or given[0] != 1:
                first = given[0] if given else "empty"
                raise InvalidInput(
                    "level.correlation", first, "a list that starts with 1, at lag 0"
                )
            object.__setattr__(self, "correlation", tuple(given))
        else:
            number: Any = self.correlation
            one = fraction("level.correlation", number, with_zero=True, with_one=True)
            object.__setattr__(self, "correlation", one)

    def __repr__(self) -> str:
        loading, correlation = (
            f"[{value[0]:g} to {value[-1]:g}: {len(value)}]" if isinstance(value, tuple) else value
            for value in (self.loading, self.correlation)
        )
        return f"Level(loading={loading}, correlation={correlation})"

    def loading_of(self, client: int) -> float:
        """The loading of a client, by its place."""
        return self.loading[client] if isinstance(self.loading, tuple) else float(self.loading)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """The level as plain data."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
        }


@dataclass(frozen=True)
class Levels:
    """Independent records, moved by one or more levels that are independent of each other."""

    levels: tuple[Level, ...]  #: one or more
    kind: Literal["level"] = "level"  #: its name in scenarios

    def check(self, clients: Sequence[str], aggregate_at: int, states: Array, width: int) -> None:  # noqa: ARG002
        """Refuse loadings for another number of clients, and correlations of too few slots."""
        if width != 1:
            raise InvalidInput(
                "level",
                f"for {width} numbers per record",
                "a learner of one number per record",
                "Measure what is known instead: agewise fit.",
            )
        for level in self.levels:
            if isinstance(level.loading, tuple) and len(level.loading) != len(clients):
                raise InvalidInput(
                    "level.loading",
                    f"{len(level.loading)} numbers",
                    f"one number, or {len(clients)}, one per client",
                )
            _columns(level.correlation, aggregate_at)

    def moments(self, client: int, own: Moments, asked: Asked) -> Moments:
        factors, target = self._factors([client], asked.slots, asked.aggregate_at)
        return replace(own, target_factors=target[0], factors=factors[0])

    def factors(
        self, clients: int, slots: NDArray[np.int64], aggregate_at: int
    ) -> tuple[Array, Array]:
        """How each client's release moves with each factor `[m, T, 1, F]`, and its fresh mean."""
        return self._factors(range(clients), slots, aggregate_at)

    def _factors(
        self, clients: Sequence[int], slots: NDArray[np.int64], aggregate_at: int
    ) -> tuple[Array, Array]:
        parts = []
        for level in self.levels:
            loading = np.array([level.loading_of(client) for client in clients])
            parts.append(loading[:, None, None] * _columns(level.correlation, aggregate_at))
        factors = np.concatenate(parts, axis=2)
        return factors[:, slots - 1][:, :, None], factors[:, -1:]

    def subset(self, kept: Sequence[int]) -> Levels:
        return Levels(
            tuple(
                replace(level, loading=tuple(level.loading_of(i) for i in kept))
                if isinstance(level.loading, tuple)
                else level
                for level in self.levels
            )
        )

    def words(self) -> str:
        parts = []
        for level in self.levels:
            size = np.abs(level.loading).max()
            kept = level.correlation
            lasting = (
                f"{kept:g} of which remains per slot"
                if isinstance(kept, float)
                else "with the stated correlations over lags"
            )
            parts.append(f"a common level of standard deviation {size:g} (at most), {lasting}")
        return (
            "records are independent and follow the clients' stated laws, but for "
            + " and ".join(parts)
        )


@lru_cache(maxsize=64)
def _columns(correlation: float | tuple[float, ...], slots: int) -> Array:
    """G `[A, F]` with G·Gᵀ the correlations of a level between slots 1 to A."""
    if isinstance(correlation, tuple):
        if len(correlation) < slots:
            raise InvalidInput(
                "level.correlation",
                f"{len(correlation)} lags",
                f"one number, or {slots}: one per lag up to the first slot",
            )
        lags = np.array(correlation[:slots])
    else:
        lags = np.power(correlation, np.arange(slots))  # 0⁰ is 1
    apart = np.abs(np.subtract.outer(np.arange(slots), np.arange(slots)))
    values, vectors = np.linalg.eigh(lags[apart])
    if values[0] < -1e-9 * slots:
        raise InvalidInput(
            "level.correlation",
            f"with an eigenvalue of {values[0]:.3g}",
            "correlations that some process has (positive semi-definite)",
        )
    kept = values > 1e-15 * slots
    return frozen((vectors[:, kept] * np.sqrt(values[kept]))[:, ::-1].copy())
