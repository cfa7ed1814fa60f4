"""A level that all clients share and that moves slowly: what is unknown and worth learning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from agewise.arrays import Array, frozen
from agewise.checks import finite_array, fraction
from agewise.errors import InvalidInput
from agewise.knowledge.passed import Report, covariances
from agewise.records import Read, list_of, plain, record

LARGEST = 1e100
"""Loadings are squared; beyond this floats overflow."""

MOST_ROWS = 600
"""Own states of distinct reports that are looked at jointly in a search; beyond, only how reports
move with the level on average is, and the rest counts as a client's own."""

MOST_FACTORS = 64
"""Factors that a search follows, the largest of those there are."""

MOST_REPORTS = 400
"""Distinct reports of a schedule whose covariances are worked out: 80,000 pairs take 20 s."""


def _loading(given: Any) -> float | tuple[float, ...]:
    allowed = "one number, or one per client"
    loading = finite_array("", given, allowed)
    if loading.ndim > 1:
        raise InvalidInput("", f"of shape {loading.shape}", allowed)
    if np.abs(loading).max() > LARGEST:
        raise InvalidInput("", float(np.abs(loading).max()), f"at most {LARGEST:g} in size")
    plain_ones = loading.tolist()
    return tuple(plain_ones) if loading.ndim else plain_ones


def _correlation(given: Any) -> float | tuple[float, ...]:
    if isinstance(given, Mapping):
        raise InvalidInput("", given, "a number, or a list of them")
    if isinstance(given, Iterable) and not isinstance(given, str):
        kept = [
            fraction(f"[{lag}]", one, with_zero=True, with_one=True)
            for lag, one in enumerate(given)
        ]
        if not kept or kept[0] != 1:
            first = kept[0] if kept else "empty"
            raise InvalidInput("", first, "a list that starts with 1, at lag 0")
        return tuple(kept)
    number: Any = given
    return fraction("", number, with_zero=True, with_one=True)


def _one_or_more() -> dict[str, Any]:
    return {"anyOf": [{"type": "number"}, list_of(1)]}


Loading = Annotated[float | Sequence[float], Read(_loading, _one_or_more)]
Correlation = Annotated[float | Sequence[float], Read(_correlation, _one_or_more)]


@record
class Level:
    """Something that moves all records of a client alike, and clients together.

    It is added to the state of each record, and reported as far as the client's clip lets it pass:
    see `agewise.knowledge.passed`. It is normal with mean 0, and standard deviation `loading` in
    the unit of the records: one number, or one per client in their order. `correlation` is what
    remains of it from one slot to the next (ρ, so ρ^lag over `lag` slots), or one number per lag
    from 0 on, the first of which is 1.

    >>> Level(loading=20.0, correlation=0.98)
    Level(loading=20.0, correlation=0.98)
    """

    loading: Loading
    """Standard deviation in the unit of the records, or one per client."""
    correlation: Correlation
    """What remains from slot to slot, 0 to 1; or one number per lag."""

    @staticmethod
    def called(name: str, given: Mapping[str, Any]) -> str:  # noqa: ARG004
        """What messages call a field."""
        return f"level.{name}"

    def __repr__(self) -> str:
        loading, correlation = (
            f"[{value[0]:g} to {value[-1]:g}: {len(value)}]" if isinstance(value, tuple) else value
            for value in (self.loading, self.correlation)
        )
        return f"Level(loading={loading}, correlation={correlation})"

    def loading_of(self, client: int) -> float:
        """The loading of a client, by its place."""
        return self.loading[client] if isinstance(self.loading, tuple) else float(self.loading)  # type: ignore[arg-type]

    def remains(self, lags: NDArray[np.int64]) -> Array:
        """What remains of it after so many slots."""
        lags, kept = np.asarray(lags), np.asarray(self.correlation, float)
        if kept.ndim == 0:
            return np.asarray(np.power(kept, lags))  # 0⁰ is 1
        if lags.max(initial=0) >= kept.size:
            raise InvalidInput(
                "level.correlation",
                f"{kept.size} lags",
                f"one number, or {int(lags.max()) + 1}: one per lag up to the first slot",
            )
        return np.asarray(kept[lags])

    def root(self) -> Array:
        """A root of the correlations of as many slots as lags are listed."""
        kept = np.asarray(self.correlation, float)
        return _columns(self.correlation, kept.size)

    def to_dict(self) -> dict[str, Any]:
        """The level as plain data."""
        told: dict[str, Any] = plain(self)
        return told


@dataclass(frozen=True)
class Levels:
    """Independent records, moved by one or more levels that are independent of each other."""

    levels: tuple[Level, ...]  #: one or more
    kind: Literal["level"] = "level"  #: its name in scenarios
    shared: ClassVar[bool] = True
    drawable: ClassVar[bool] = True

    def check(self, clients: Sequence[str], aggregate_at: int, states: Array, width: int) -> None:  # noqa: ARG002
        """Refuse loadings for another number of clients, and correlations of too few slots."""
        for level in self.levels:
            if isinstance(level.loading, tuple) and len(level.loading) != len(clients):
                raise InvalidInput(
                    "level.loading",
                    f"{len(level.loading)} numbers",
                    f"one number, or {len(clients)}, one per client",
                )
            _columns(level.correlation, aggregate_at)

    def loadings(self, clients: int) -> Array:
        """The loadings `[m, L]` of each client on each level."""
        each = [np.broadcast_to(np.asarray(one.loading, float), clients) for one in self.levels]
        return np.stack(each, axis=1)

    def correlations(self, lags: NDArray[np.int64]) -> Array:
        """What remains of each level after so many slots, `[..., L]`."""
        return np.stack([level.remains(lags) for level in self.levels], axis=-1)

    def reported(self, seen: Seen, *, searched: bool) -> Reported:
        """Return the moments of what clients report, levels included.

        `searched`: with no more factors than a search can follow, and what is left out as part of
        each client's own variance. Otherwise all covariances are exact, but for quadrature.
        """
        rows = Rows.of(self, seen.states, seen.loadings, seen.ages, seen.ages == 0)
        return rows.reported(seen, *rows.factors(rows.uses(seen) if searched else None))

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


@dataclass(frozen=True)
class Seen:
    """Whose reports moments are asked of: N entries, each a kind of client in one slot.

    `law` `[N]` are the laws `[S]` of a record's own state at collection, and `later` what each
    state is expected to count for at aggregation, less the mean of that.
    """

    states: Sequence[tuple[float, ...]]  #: those of its process
    loadings: Array  #: `[N, L]`
    ages: NDArray[np.int64]  #: slots from collection to aggregation
    samples: NDArray[np.int64]  #: records in each report
    law: Sequence[Array]
    later: Sequence[Array]


@dataclass(frozen=True)
class Reported:
    """Moments of the mean report of each entry: `mean`, own `variance`, own `covariance` `[N]`.

    `factors` `[N, F]` is how it moves with factors of mean 0 and variance 1, `target_factors`
    `[N, F]` how the mean of the records at aggregation does. `passes` is the share of the level's
    variance that a report shows on average; 1 where there is no level.
    """

    mean: Array
    variance: Array
    covariance: Array
    factors: Array
    target_factors: Array
    passes: Array


@dataclass(frozen=True)
class Rows:
    """Distinct reports, by how long ago they were made and by loadings.

    Each has a row for every own state, after one for each level now.
    """

    levels: Levels
    reports: tuple[Report, ...]
    loadings: Array  #: `[U, L]`
    ago: NDArray[np.int64]  #: `[U]`, in slots
    which: NDArray[np.intp]  #: of each entry, its report

    @staticmethod
    def of(
        levels: Levels,
        states: Sequence[tuple[float, ...]],
        loadings: Array,
        ago: NDArray[np.int64],
        fresh: NDArray[np.bool_],
    ) -> Rows:
        """The rows of reports of clients with these states, one entry each."""
        found: dict[Any, int] = {}
        first, which = [], np.empty(len(ago), dtype=np.intp)
        own = map(tuple, loadings.tolist())
        for place, key in enumerate(zip(states, own, ago.tolist(), fresh.tolist(), strict=True)):
            if key not in found:
                found[key] = len(found)
                first.append(place)
            which[place] = found[key]
        spreads = np.sqrt(np.square(loadings).sum(axis=1))
        reports = [Report(states[one], bool(fresh[one]), float(spreads[one])) for one in first]
        return Rows(levels, tuple(reports), loadings[first], ago[first], which)

    @cached_property
    def places(self) -> list[slice]:
        """The rows of each report."""
        starts = np.cumsum([len(self.levels.levels), *(len(one.states) for one in self.reports)])
        return [slice(*both) for both in pairwise(starts.tolist())]

    def correlation(self, one: int, other: int) -> float:
        """Of what moves two reports."""
        spreads = self.reports[one].spread * self.reports[other].spread
        if spreads == 0:
            return 0.0
        kept = self.levels.correlations(np.abs(self.ago[one] - self.ago[other]))
        among = float((self.loadings[one] * self.loadings[other]) @ kept) / spreads
        return min(1.0, max(-1.0, round(among, 14)))

    def covariance(self) -> Array:
        """The covariances of all rows, own states given."""
        levels, size = len(self.levels.levels), self.places[-1].stop
        result = np.eye(size)
        kept = self.loadings * self.levels.correlations(self.ago)
        for one, (report, here) in enumerate(zip(self.reports, self.places, strict=True)):
            towards = report.slope[:, None] * kept[one] / (report.spread or 1.0)
            result[here, :levels], result[:levels, here] = towards, towards.T
            for other in range(one, len(self.reports)):
                there = self.places[other]
                both = covariances(report, self.reports[other], self.correlation(one, other))
                result[here, there], result[there, here] = both, both.T
        return result

    def uses(self, seen: Seen) -> Array:
        """How much the rows are used together, `[R, R]`: Σ μμᵀ over all entries."""
        levels = len(self.levels.levels)
        result = np.zeros((self.places[-1].stop - levels,) * 2)
        for place, rows in enumerate(self.places):
            laws = np.stack([seen.law[one] for one in np.flatnonzero(self.which == place).tolist()])
            here = slice(rows.start - levels, rows.stop - levels)
            result[here, here] = laws.T @ laws
        return result

    def factors(self, uses: Array | None = None) -> tuple[Array, Array]:
        """Factors of each row `[R, F]`, and of each level now `[L, F]`.

        With `uses` only the largest as the rows are used, and no more than a search can follow.
        """
        levels = len(self.levels.levels)
        if uses is not None and self.places[-1].stop > MOST_ROWS:
            return self._average_factors()
        if len(self.reports) > MOST_REPORTS:
            raise InvalidInput(
                "level.loading",
                f"{len(self.reports)} distinct reports (by loading, states and age)",
                f"at most {MOST_REPORTS} in one schedule",
                "Round the loadings, so that more clients share one.",
            )
        covariance = self.covariance()
        now = covariance[levels:, :levels]
        values, vectors = np.linalg.eigh(covariance[levels:, levels:] - now @ now.T)
        kept = values > 1e-13 * max(float(values[-1]), float(np.abs(now).max()) ** 2, 1e-300)
        beside = vectors[:, kept] * np.sqrt(values[kept])
        if uses is not None and beside.shape[1] > MOST_FACTORS:
            _, turned = np.linalg.eigh(beside.T @ uses @ beside)
            beside = beside @ turned[:, -MOST_FACTORS:]
        target = np.eye(levels, levels + beside.shape[1])
        return np.concatenate([now, beside], axis=1), target

    def _average_factors(self) -> tuple[Array, Array]:
        """How rows move with the levels on average, whatever else they do."""
        roots = [_columns(one.correlation, int(self.ago.max()) + 1) for one in self.levels.levels]
        parts, target, width = [], [], 0
        total = sum(root.shape[1] for root in roots)
        for place, root in enumerate(roots):
            moved = [
                report.slope[:, None] * own[place] / (report.spread or 1.0) * root[ago]
                for report, own, ago in zip(self.reports, self.loadings, self.ago, strict=True)
            ]
            parts.append(np.concatenate(moved))
            target.append(np.pad(root[0], (width, total - width - root.shape[1])))
            width += root.shape[1]
        return np.concatenate(parts, axis=1), np.stack(target)

    def reported(self, seen: Seen, factors: Array, target: Array) -> Reported:
        """The moments of each entry, given the factors of each row and of each level."""
        mean, variance, covariance, passes = np.empty((4, len(self.which)))
        moved = np.empty((len(self.which), factors.shape[1]))
        for place, report in enumerate(self.reports):
            here = np.flatnonzero(self.which == place)
            law = np.stack([seen.law[one] for one in here.tolist()])
            later = np.stack([seen.later[one] for one in here.tolist()])
            same = covariances(report, report, 1.0)
            mean[here] = law @ report.mean
            shared = ((law @ same) * law).sum(axis=1)
            square = law @ (report.mean**2 + same.diagonal())
            samples = seen.samples[here]
            own = np.maximum(square - mean[here] ** 2 - shared, 0.0) / samples
            rows = self.places[place]
            moved[here] = law @ factors[rows.start - len(target) : rows.stop - len(target)]
            left = np.maximum(shared - np.square(moved[here]).sum(axis=1), 0.0)
            left[left < 1e-9 * shared] = 0.0  # nothing but rounding
            variance[here] = own + left
            off = law * (report.mean - mean[here, None])
            covariance[here] = (off * later).sum(axis=1) / samples
            spread = report.spread
            passes[here] = np.square(law @ report.slope / spread) if spread > 0 else 1.0
        return Reported(mean, variance, covariance, moved, seen.loadings @ target, passes)


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
