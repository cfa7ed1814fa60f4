"""Theorem 1: the age-dependent upper bound on the loss gap, in its corrected form.

gap ≤ Σ_i p_i [ψ*⁻¹_i(I(W; Z_i)) + φ*⁻¹_i(I(W^A; Z_i))] + E[Risk], where W is the aggregate before
noise, W^A the one of fresh data, and Z_i a record of client i, all at aggregation.

As printed, ψ bounds the cumulant generating function of (W + N − Z)² with Laplace N, which is
infinite for every λ > 0. N is independent of everything, so the Donsker–Varadhan step applies to
E_N[(w + N − z)²] = (w − z)² + Var N instead, and the variance cancels in the centring: the same
theorem, finite, and tighter.

W is a sum of independent records on a lattice, so its law, and its law given one record, come
from products of characteristic functions and one FFT; the mutual informations and both generating
functions are then plain sums, and each inverse is a one-dimensional convex minimisation.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array
from agewise.checks import refuse_size
from agewise.errors import InvalidInput
from agewise.loss import cost_tables
from agewise.loss.tables import schedule_cells
from agewise.paper.lattice import NEGLIGIBLE, Sum, lattice_sum, on_lattice
from agewise.problem import Problem
from agewise.progress import Progress
from agewise.scheduling import Schedule, exhaustive

Evaluation = Literal["exact", "quantised"]

BOUND_LIMIT = 25_000
"""Schedules beyond which exhaustive search over Theorem 1 refuses (about 2 ms each)."""

_CHUNK = 8
_AT_HAND = 80
"""Bytes by state and lattice point while a schedule is worked out, about."""


class Bound(float):
    """The value of Theorem 1, and how it was evaluated.

    `evaluation` is "exact" where the released values share a lattice (up to rounding, some 1e-10
    relative), or "quantised": released values were moved to a grid, `error` is the root mean
    square by which that moves the aggregate, and the value is (√bound + error)², still an upper
    bound on the gap of the release as it is (Minkowski's inequality).
    """

    evaluation: Evaluation
    error: float

    def __new__(cls, value: float, evaluation: Evaluation, error: float) -> Self:
        self = super().__new__(cls, value)
        self.evaluation, self.error = evaluation, error
        return self

    def __getnewargs__(self) -> tuple[float, Evaluation, float]:  # type: ignore[override]
        return float(self), self.evaluation, self.error


def has_bound(problem: Problem) -> bool:
    """Whether Theorem 1 is about this problem: weighted means of independent records."""
    return why_no_bound(problem) is None


def why_no_bound(problem: Problem) -> InvalidInput | None:
    """The first choice of a problem that Theorem 1 does not know; None: it is about the problem."""
    members = max(client.members for client in problem.clients)
    shared = "level" if problem.level else "knowledge"
    needs: tuple[tuple[str, object, bool, str], ...] = (
        ("learner", problem.learner.kind, problem.learner.kind == "mean", "mean"),
        ("estimator", problem.estimator, not problem.uses_knowledge, "plain or propagated"),
        (shared, "given", not problem.known.shared, "none"),
        ("noise", problem.noise, not problem.server_adds_noise, "client"),
        ("members", members, members == 1, "1"),
        ("rounds", problem.rounds, problem.rounds == 1, "1"),
        ("promise", problem.promise, problem.promise == "present", "present"),
    )
    for field, value, fits, allowed in needs:
        if not fits:
            return InvalidInput(field, value, f"{allowed}, for Theorem 1")
    return None


def bound_bytes(problem: Problem, schedules: int = 1) -> float:
    """Bytes that Theorem 1 takes at once for so many schedules, about, reckoned high.

    The lattice on which sums of records lie grows with the root of their number.
    """
    setting = _setting(problem)
    size = max(setting.release.size, setting.fresh.size)
    states = max(client.process.states.size for client in problem.clients)
    waves = 8.0 * (4 + 2 * states) * size * len(problem.clients)
    slots = min(schedules, setting.column.max() + 1)
    return float(slots * waves + min(schedules, 2 * _CHUNK) * (waves + _AT_HAND * states * size))


def loss_bound(problem: Problem, ages: ArrayLike) -> Bound:
    """Return Theorem 1's upper bound on the loss gap of a schedule; one age a client.

    Guarantees
        Never below `loss_gap` for the same problem and ages.

    >>> from agewise import scenarios
    >>> bound = loss_bound(scenarios.london().replace(epsilon=0.03), ages=[9, 9, 9])
    >>> round(bound, 2), bound.evaluation
    (1301.35, 'exact')
    """
    _, columns = schedule_cells(problem, ages)
    outside = why_no_bound(problem)
    if outside is not None:
        raise outside
    values, errors = schedule_bounds(problem, columns[None])
    evaluation: Evaluation = "quantised" if _setting(problem).quantised else "exact"
    return Bound(float(values[0]), evaluation, float(errors[0]))


def schedule_bounds(
    problem: Problem,
    schedules: NDArray[np.intp],
    noise: Array | None = None,
    progress: Progress | None = None,
) -> tuple[Array, Array]:
    """Return the bounds `[k]` of schedules `[k, m]` (slot - 1 of each client), and the errors.

    The information terms do not depend on the noise; they are kept, so that the same schedules
    at another ε̄ cost next to nothing. `noise` `[k]` is the variance that noise adds to each
    schedule's aggregate; by default that of the problem's own calibration.
    """
    setting = _setting(problem)
    refuse_size(
        "samples",
        f"{max(client.samples for client in problem.clients):,}",
        bound_bytes(problem, len(schedules)),
        "Theorem 1 goes through all sums of records; the objective 'exact' does not.",
    )
    cells = setting.column[schedules]
    terms = _information_terms(setting, cells, progress)
    clients = np.arange(schedules.shape[1])
    if noise is None:
        tables = cost_tables(problem)
        noise = (tables.u - tables.spread)[clients, schedules].sum(axis=1)
    moments = setting.moments[clients, cells].sum(axis=1)  # of W, W^A and the rounding
    mean, variance, fresh_mean, fresh_variance, off_mean, off_variance = moments.T
    risk = noise + variance - fresh_variance + (mean - fresh_mean) ** 2
    error = (
        np.sqrt(np.maximum(off_variance, 0) + off_mean**2)
        if setting.quantised
        else (np.zeros(len(schedules)))
    )
    tables = cost_tables(problem)
    bias = tables.b[clients, schedules].sum(axis=1)
    gap = noise + tables.spread[clients, schedules].sum(axis=1) + bias**2
    value = terms + risk
    if setting.quantised:
        value = (np.sqrt(np.maximum(value, 0)) + error) ** 2
    return np.maximum(value, gap), error  # never below the gap, not even by rounding


def exhaustive_bound(problem: Problem, progress: Progress | None = None) -> Schedule:
    """Return the best schedule by Theorem 1, of all of them."""
    clients, slots = len(problem.clients), problem.aggregate_at

    def evaluate(schedules: NDArray[np.intp]) -> Array:
        return schedule_bounds(problem, schedules, progress=progress)[0]

    return exhaustive(evaluate, clients, slots, problem.capacity, BOUND_LIMIT)


@dataclass(frozen=True, eq=False)
class _Setting:
    """By column: slots in which all clients' records are as in another one share theirs."""

    problem: Problem
    column: NDArray[np.intp]  # [A], of each slot; C different ones
    release: Sum
    fresh: Sum
    laws: list[Array]  # [C, S] of each client, at collection
    later: list[Array]  # [C, S], at aggregation
    backward: list[Array]  # [C, Y, X]
    moments: Array  # [m, C, 6]
    quantised: bool
    known: dict[bytes, float]


@lru_cache(maxsize=4)
def _prepared(problem: Problem) -> _Setting:
    slots = cost_tables(problem).slots
    share = problem.weights / [c.samples for c in problem.clients]
    by_slot = np.stack([t.row for t in slots])
    rows, column = np.unique(by_slot, axis=1, return_inverse=True)
    released = [w * t.release_rows[r][..., 0] for w, t, r in zip(share, slots, rows, strict=True)]
    fresh = [
        np.tile(w * c.process.states, (rows.shape[1], 1))
        for w, c in zip(share, problem.clients, strict=True)
    ]
    laws = [t.law_rows[r] for t, r in zip(slots, rows, strict=True)]
    kernels = [t.kernel_rows[r] for t, r in zip(slots, rows, strict=True)]
    later = [np.einsum("tx,txy->ty", law, k) for law, k in zip(laws, kernels, strict=True)]
    backward = []
    for law, kernel, nu in zip(laws, kernels, later, strict=True):
        possible = (nu > 0)[:, None, :]  # what cannot occur gets weight 0, so any row will do
        joint = np.where(possible, law[:, :, None] * kernel, law[:, :, None])
        backward.append((joint / joint.sum(axis=1, keepdims=True)).swapaxes(1, 2))
    samples = np.array([c.samples for c in problem.clients])
    moved, collected = lattice_sum(released, laws, samples)
    fresh_moved, present = lattice_sum(fresh, later, samples)
    moments = np.stack(
        [
            *_moments([on_lattice(moved, i) for i in range(len(samples))], laws, samples),
            *_moments(fresh, later, samples),
            *_moments([on_lattice(moved, i) - v for i, v in enumerate(released)], laws, samples),
        ],
        axis=-1,
    )
    if not present:  # states of no common lattice: W^A is moved too, and both errors count
        off = _moments(
            [on_lattice(fresh_moved, i) - v for i, v in enumerate(fresh)], later, samples
        )
        moments[..., 2:4] = np.stack(
            _moments([on_lattice(fresh_moved, i) for i in range(len(samples))], later, samples),
            axis=-1,
        )
        moments[..., 4] = np.abs(moments[..., 4]) + np.abs(off[0])
        moments[..., 5] = (np.sqrt(moments[..., 5]) + np.sqrt(off[1])) ** 2
    return _Setting(
        problem,
        column.ravel(),
        moved,
        fresh_moved,
        laws,
        later,
        backward,
        moments,
        quantised=not (collected and present),
        known={},
    )


def _setting(problem: Problem) -> _Setting:
    """What noise has no part in, shared by all problems that differ only in their noise."""
    markov = all(client.process.markov for client in problem.clients)
    mixing = "any_prior" if markov else "exact"  # one that every such process admits
    return _prepared(
        problem.replace(
            epsilon=1.0, mixing=mixing, calibration="formula", objective="exact", capacity=None
        )
    )


def _moments(values: list[Array], laws: list[Array], samples: NDArray[np.int64]) -> list[Array]:
    """Mean and variance `[m, A]` of each client's part of a sum."""
    mean = np.stack([(v * p).sum(axis=1) for v, p in zip(values, laws, strict=True)])
    square = np.stack(
        [
            ((v - mu[:, None]) ** 2 * p).sum(axis=1)
            for v, p, mu in zip(values, laws, mean, strict=True)
        ]
    )
    return [mean * samples[:, None], square * samples[:, None]]


def _information_terms(
    setting: _Setting, schedules: NDArray[np.intp], progress: Progress | None
) -> Array:
    """Σ_i p_i [ψ*⁻¹_i(I(W; Z_i)) + φ*⁻¹_i(I(W^A; Z_i))] of each schedule, known ones looked up."""
    keys = [row.tobytes() for row in np.ascontiguousarray(schedules, dtype=np.int64)]
    fresh = {key: row for row, key in enumerate(keys) if key not in setting.known}
    rows = np.array(list(fresh.values()), dtype=np.intp)
    chunks = [rows[start : start + _CHUNK] for start in range(0, rows.size, _CHUNK)]
    done = 0
    if chunks:
        spectra = _Spectra.of(setting, schedules[rows])
        with ThreadPoolExecutor(max_workers=2) as pool:
            for chunk, values in zip(
                chunks, pool.map(lambda c: _chunk_terms(spectra, schedules[c]), chunks), strict=True
            ):
                for row, value in zip(chunk.tolist(), values.tolist(), strict=True):
                    setting.known[keys[row]] = value
                done += chunk.size
                if progress is not None:
                    progress(done, rows.size)
    return np.array([setting.known[key] for key in keys])


@dataclass(frozen=True, eq=False)
class _Spectra:
    """Characteristic functions of what the schedules at hand need, by client and slot."""

    setting: _Setting
    every: list[dict[int, tuple[NDArray[np.complex128], ...]]]

    @classmethod
    def of(cls, setting: _Setting, schedules: NDArray[np.intp]) -> _Spectra:
        every: list[dict[int, tuple[NDArray[np.complex128], ...]]] = []
        for i, client in enumerate(setting.problem.clients):
            by_slot: dict[int, tuple[NDArray[np.complex128], ...]] = {}
            for t in np.unique(schedules[:, i]).tolist():
                collected = _waves(setting.release, i, t)  # [S, F]
                present = _waves(setting.fresh, i, t)
                one = setting.laws[i][t] @ collected
                other = setting.later[i][t] @ present
                by_slot[t] = (
                    _power(one, client.samples),
                    _power(one, client.samples - 1),
                    setting.backward[i][t] @ collected,
                    _power(other, client.samples),
                    _power(other, client.samples - 1),
                    present,
                )
            every.append(by_slot)
        return cls(setting, every)


def _power(base: NDArray[np.complex128], count: int) -> NDArray[np.complex128]:
    """By repeated squaring: NumPy's complex power goes through logarithms and fails at zero."""
    result = np.ones_like(base)
    while count:
        if count & 1:
            result = result * base
        base = base * base
        count >>= 1
    return result


def _waves(total: Sum, client: int, slot: int) -> NDArray[np.complex128]:
    frequency = np.arange(total.size // 2 + 1)
    turns = (total.index[client][slot][:, None] * frequency) % total.size
    return np.asarray(np.exp(-2j * np.pi / total.size * turns))


def _chunk_terms(spectra: _Spectra, schedules: NDArray[np.intp]) -> Array:
    from scipy.fft import irfft  # noqa: PLC0415
    from scipy.special import rel_entr  # noqa: PLC0415

    setting = spectra.setting
    clients = setting.problem.clients
    samples = np.array([c.samples for c in clients])
    picked = [
        [
            np.stack(part)
            for part in zip(*(spectra.every[i][t] for t in schedules[:, i]), strict=True)
        ]
        for i in range(len(clients))
    ]
    result = np.zeros(len(schedules))
    for total, first, sign in ((setting.release, 0, 1.0), (setting.fresh, 3, -1.0)):
        powers = [p[first] for p in picked]
        values, order = _lattice_values(total, schedules, samples, setting, sign)
        for i, client in enumerate(clients):
            others = [p for k, p in enumerate(powers) if k != i]
            rest = picked[i][first + 1] * math.prod(others) if others else picked[i][first + 1]
            given = irfft(rest[:, None] * picked[i][first + 2], n=total.size, axis=2)
            given = np.maximum(np.take_along_axis(given, order[:, None], axis=2), 0)
            given /= np.maximum(given.sum(axis=2, keepdims=True), 1e-300)
            law = np.stack([setting.later[i][t] for t in schedules[:, i]])
            marginal = np.einsum("ky,kyw->kw", law, given)
            possible = law[:, :, None] > 0
            divergence = np.where(possible, rel_entr(given, marginal[:, None]), 0)
            information = np.einsum("ky,kyw->k", law, divergence)
            used = np.flatnonzero(marginal.max(axis=0) > NEGLIGIBLE)
            used = np.arange(used[0], used[-1] + 1)
            loss = sign * (values[:, None, used] - client.process.states[None, :, None]) ** 2
            weight = law[:, :, None] * marginal[:, None, used]
            cap = 700.0 if total.complete else 23.0  # what the window leaves out stays negligible
            flat = len(schedules), -1
            result += setting.problem.weights[i] * _inverse(
                information, loss.reshape(flat), weight.reshape(flat), cap
            )
    return result


def _lattice_values(
    total: Sum,
    schedules: NDArray[np.intp],
    samples: NDArray[np.int64],
    setting: _Setting,
    sign: float,
) -> tuple[Array, NDArray[np.intp]]:
    """The values of the sum in increasing order, and where in the FFT window each one stands."""
    clients = np.arange(schedules.shape[1])
    laws = setting.laws if sign > 0 else setting.later
    centre = np.zeros(len(schedules))
    for i in clients:
        mean = (total.index[i] * laws[i]).sum(axis=1)
        centre += samples[i] * mean[schedules[:, i]]
    start = np.zeros(len(schedules), dtype=np.int64)
    if not total.complete:
        start = np.rint(centre).astype(np.int64) - total.size // 2
    points = start[:, None] + np.arange(total.size)
    base = (total.offset[clients, schedules] * samples).sum(axis=1)
    return base[:, None] + total.step * points, points % total.size


def _inverse(information: Array, loss: Array, weight: Array, cap: float) -> Array:
    """inf over λ > 0 of (x + ψ(λ))/λ, ψ the cumulant generating function of the centred loss.

    Newton's method on λψ′ − ψ = x, which is increasing in λ, kept inside a bracket. Every λ
    gives a valid bound, so stopping early costs tightness, never truth.
    """
    x = np.maximum(information, 0) + 1e-15  # more than the rounding of the sums behind it
    weight /= weight.sum(axis=1, keepdims=True)
    loss -= np.einsum("kn,kn->k", weight, loss)[:, None]
    variance = np.einsum("kn,kn,kn->k", weight, loss, loss)
    most = loss.max(axis=1)
    width = np.maximum(most - loss.min(axis=1), 1e-150)
    highest = cap / width
    low, high = np.zeros_like(x), highest.copy()
    rate = np.minimum(np.sqrt(2 * x / np.maximum(variance, 1e-300)), highest)
    best, done = np.full_like(x, np.inf), np.zeros(x.shape, bool)
    tilted = np.empty_like(loss)
    for _ in range(30):
        np.multiply(loss - most[:, None], rate[:, None], out=tilted)
        np.exp(tilted, out=tilted)
        tilted *= weight
        mass = tilted.sum(axis=1)
        slope = np.einsum("kn,kn->k", tilted, loss) / mass
        tilted *= loss
        curve = np.einsum("kn,kn->k", tilted, loss) / mass - slope**2
        # ψ is never negative; what rounding may have taken from it is put back.
        generating = np.maximum(np.log(mass) + rate * most, 0) + 1e-15 * (1 + rate * width)
        best = np.where(done, best, np.minimum(best, (x + generating) / rate))
        excess = rate * slope - generating - x
        low, high = np.where(excess < 0, rate, low), np.where(excess < 0, high, rate)
        step = rate - excess / np.maximum(rate * curve, 1e-300)
        following = np.where((step > low) & (step < high), step, (low + high) / 2)
        # Each schedule stops by itself, so that its bound is the same in whatever company.
        done |= np.abs(following - rate) <= 1e-3 * rate
        if done.all():
            break
        rate = np.where(done, rate, following)
    return np.where(variance > 0, best, 0.0)
