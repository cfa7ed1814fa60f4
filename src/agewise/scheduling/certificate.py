"""Check a schedule and a claimed bound from the tables alone. Shares no code with the searches."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.errors import InvalidInput
from agewise.report.tables import html_facts, shorten, text_facts
from agewise.scheduling.schedule import Leaf, Schedule, Split

ENUMERABLE = 5_000_000
"""Schedules up to which all of them are tried where there is no other proof."""

BLOCK = 100_000

ROUNDING = 1e-9


@dataclass(frozen=True)
class Certificate:
    """What was recomputed. `holds` is the verdict, `reason` says why not, or how it was checked."""

    objective: float  #: the loss, recomputed
    lower_bound: float  #: that no schedule can beat
    relative_gap: float  #: how far from the best it can be at most
    parts: int  #: of the search space that were bounded one by one
    holds: bool
    reason: str

    def __repr__(self) -> str:
        verdict = "holds" if self.holds else "does not hold"
        numbers = f"objective {self.objective:.6g}, lower bound {self.lower_bound:.6g}"
        return f"Certificate({verdict}, {numbers}: {shorten(self.reason, 80)})"

    def __str__(self) -> str:
        return text_facts(self._facts())

    def _repr_html_(self) -> str:
        return html_facts(self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("holds", "yes" if self.holds else "no"),
            ("objective", f"{self.objective:.6g}"),
            ("lower bound", f"{self.lower_bound:.6g}"),
            ("relative gap", f"{self.relative_gap:.2g}"),
            ("how", self.reason),
        ]


def check_schedule(
    schedule: Schedule,
    u: ArrayLike,
    b: ArrayLike,
    capacity: int | None = None,
    counts: ArrayLike | None = None,
) -> Certificate:
    """Recompute the objective and the bound of a schedule, and compare them with what it claims.

    The objective is summed afresh. The bound follows from the proof: for each part of the search
    space, Σ_i min_t [u + 2λ·b + π_t] − ‖λ‖² − c·Σπ over the columns that the part allows; the
    least of these holds for all schedules. Where there is no proof, all schedules are tried, or
    the claim is not confirmed; nor is one that a search with several biases closed by enumeration
    beyond what its multipliers prove. `counts` are those the rows stand for.
    """
    costs = np.asarray(u, dtype=float)
    biases = np.asarray(b, dtype=float)
    biases = biases[..., None] if biases.ndim == 2 else biases
    columns, shares = np.asarray(schedule.columns), schedule.allocation
    _refuse_nonsense(costs, biases, columns, shares)
    clients, slots = costs.shape
    objective = _objective(costs, biases, columns, shares)
    problems = []
    members = None if counts is None else np.asarray(counts)
    if shares is not None and (members is None or not np.array_equal(shares.sum(axis=1), members)):
        problems.append("the allocation does not add up to the counts of the rows")
    if shares is not None and capacity is not None:
        problems.append("an allocation cannot be checked against a capacity")
    if capacity is not None and np.unique(columns, return_counts=True)[1].max() > capacity:
        problems.append("more clients in a slot than the capacity allows")
    if not math.isfinite(objective):
        problems.append("a client is in a slot that is forbidden to it")
    scale = ROUNDING * max(abs(objective), abs(schedule.objective), 1e-300)
    if shares is None and math.isfinite(objective):  # sums may be small and their terms large
        place = np.arange(clients), columns
        terms = np.abs(costs[place]).sum() + float(np.abs(biases[place]).sum()) ** 2
        scale = max(scale, 8 * clients * float(np.finfo(float).eps) * float(terms))
    if not abs(objective - schedule.objective) <= scale:
        problems.append(f"the objective is {objective!r}, not {schedule.objective!r}")
    count = np.ones(clients) if shares is None else shares.sum(axis=1).astype(float)
    if isinstance(schedule.proof, Leaf | Split):
        bound, parts = _bound(schedule.proof, costs, biases, count, capacity)
        how = f"bound recomputed from {parts} set{'s' * (parts > 1)} of multipliers"
    elif (
        schedule.proof is None
        and clients * math.log(slots) <= math.log(ENUMERABLE)
        and shares is None
    ):
        bound, parts = _best_of_all(costs, biases, capacity), slots**clients
        how = f"all {parts} schedules tried"
    else:
        bound, parts, how = -math.inf, 0, ""
        problems.append("there is no proof to check")
    return verdict(schedule, objective, bound, parts, scale, problems, how)


def verdict(
    schedule: Schedule,
    objective: float,
    bound: float,
    parts: int,
    room: float,
    problems: list[str],
    how: str,
) -> Certificate:
    """Judge a claimed bound by what was recomputed; `problems` are those found before."""
    wrong = list(problems)
    if schedule.lower_bound is None or not schedule.lower_bound <= bound + room:
        wrong.append(f"the bound is {bound!r}, not {schedule.lower_bound!r}")
    size = max(abs(objective), abs(bound))
    gap = max(0.0, objective - bound) / size if 0 < size < math.inf else 0.0
    return Certificate(objective, bound, gap, parts, not wrong, "; ".join(wrong) or how)


def _refuse_nonsense(
    u: NDArray[np.float64],
    b: NDArray[np.float64],
    columns: NDArray[np.intp],
    shares: NDArray[np.int64] | None,
) -> None:
    """Refuse tables and schedules that nothing can be said about."""
    if u.ndim != 2 or b.shape[:2] != u.shape:
        raise InvalidInput("b", f"of shape {b.shape}", f"a table that goes with {u.shape}")
    if np.isnan(u).any() or np.isneginf(u).any() or not np.isfinite(b).all():
        raise InvalidInput("u, b", "tables with NaN or infinite entries", "numbers (u may be inf)")
    if columns.dtype.kind not in "iu":
        raise InvalidInput("columns", f"of type {columns.dtype}", "whole numbers")
    if shares is not None:
        if shares.shape != u.shape or shares.dtype.kind not in "iu" or (shares < 0).any():
            raise InvalidInput(
                "allocation", f"of shape {shares.shape}", f"whole numbers, shape {u.shape}"
            )
    elif columns.shape != u.shape[:1] or columns.min() < 0 or columns.max() >= u.shape[1]:
        raise InvalidInput(
            "columns", f"of shape {columns.shape}", f"{u.shape[0]} columns below {u.shape[1]}"
        )


def _objective(
    u: NDArray[np.float64],
    b: NDArray[np.float64],
    columns: NDArray[np.intp],
    shares: NDArray[np.int64] | None,
) -> float:
    if shares is None:
        every = range(u.shape[0])
        cost = math.fsum(u[i, columns[i]] for i in every)
        sums = [math.fsum(b[i, columns[i], k] for i in every) for k in range(b.shape[2])]
    else:
        used = np.argwhere(shares > 0)
        cost = math.fsum(shares[i, t] * u[i, t] for i, t in used)
        sums = [math.fsum(shares[i, t] * b[i, t, k] for i, t in used) for k in range(b.shape[2])]
    return cost + math.fsum(s * s for s in sums)


def restricted_bound(
    proof: Leaf | Split | None,
    u: NDArray[np.float64],
    b: NDArray[np.float64],
    capacity: int | None,
) -> float:
    """What a proof shows for columns of finite cost; infinite where none is left.

    Without one all schedules are tried, or nothing is shown where there are too many.
    """
    if not np.isfinite(u).any(axis=1).all():
        return math.inf
    if proof is not None:
        return _bound(proof, u, b, np.ones(len(u)), capacity)[0]
    few = len(u) * math.log(u.shape[1]) <= math.log(ENUMERABLE)
    return _best_of_all(u, b, capacity) if few else -math.inf


def _bound(
    proof: Leaf | Split,
    u: NDArray[np.float64],
    b: NDArray[np.float64],
    count: NDArray[np.float64],
    capacity: int | None,
) -> tuple[float, int]:
    """The least bound over all leaves, and how many there are. Walks the cuts with a stack."""
    lowest, leaves = math.inf, 0
    whole = np.tile(np.array([[-math.inf], [math.inf]]), (1, u.shape[0]))
    stack: list[tuple[Leaf | Split, NDArray[np.float64]]] = [(proof, whole)]
    while stack:
        part, box = stack.pop()
        if isinstance(part, Split):
            below, above = box.copy(), box.copy()
            below[1, part.client] = min(box[1, part.client], part.threshold)
            above[0, part.client] = max(box[0, part.client], np.nextafter(part.threshold, math.inf))
            stack += [(part.below, below), (part.above, above)]
            continue
        leaves += 1
        inside = (b[:, :, 0] >= box[0][:, None]) & (b[:, :, 0] <= box[1][:, None])
        allowed = np.where(inside, u, math.inf)
        if not np.isfinite(allowed).any(axis=1).all():
            continue  # no schedule here, so none to bound
        numbers = (*part.multipliers, *(part.prices or ()))
        if len(part.multipliers) not in (0, b.shape[2]) or not all(map(math.isfinite, numbers)):
            lowest = -math.inf  # proves nothing
            continue
        if not part.multipliers:
            if not _infeasible(np.isfinite(allowed), capacity):
                lowest = -math.inf
            continue
        reduced = allowed
        for k, multiplier in enumerate(part.multipliers):
            reduced = reduced + 2.0 * multiplier * b[:, :, k]
        total = -math.fsum(x * x for x in part.multipliers)
        if part.prices is not None:
            if len(part.prices) != u.shape[1] or min(part.prices) < 0 or capacity is None:
                lowest = -math.inf  # a negative price would prove nothing
                continue
            reduced = reduced + np.array(part.prices)
            total -= capacity * math.fsum(part.prices)
        total += math.fsum((reduced.min(axis=1) * count).tolist())
        lowest = min(lowest, total) if math.isfinite(total) else -math.inf
    return lowest, leaves


def _infeasible(allowed: NDArray[np.bool_], capacity: int | None) -> bool:
    """Whether no schedule exists within the capacity, by augmenting paths (Kuhn)."""
    if capacity is None:
        return False
    places: list[list[int]] = [[] for _ in range(allowed.shape[1])]

    def seat(client: int, tried: set[int]) -> bool:
        for slot in np.flatnonzero(allowed[client]).tolist():
            if slot in tried:
                continue
            tried.add(slot)
            if len(places[slot]) < capacity:
                places[slot].append(client)
                return True
            for other in list(places[slot]):
                if seat(other, tried):
                    places[slot].remove(other)
                    places[slot].append(client)
                    return True
        return False

    return not all(seat(client, set()) for client in range(allowed.shape[0]))


def _best_of_all(u: NDArray[np.float64], b: NDArray[np.float64], capacity: int | None) -> float:
    """The least objective: the choices of the last clients are one block, the first a loop."""
    clients, slots = u.shape
    if slots == 1:
        return _objective(u, b, np.zeros(clients, dtype=np.intp), None)
    block = max(1, min(clients, int(math.log(max(BLOCK // b.shape[2], 1), slots))))
    first = clients - block
    flat = np.arange(slots**block)
    cost, bias = np.zeros(flat.size), np.zeros((flat.size, b.shape[2]))
    most = clients if capacity is None else capacity
    crowd = np.zeros((flat.size, slots), dtype=np.int16) if most < clients else None
    for client, columns in enumerate(np.unravel_index(flat, (slots,) * block), start=first):
        cost += u[client, columns]
        bias += b[client, columns]
        if crowd is not None:
            crowd[flat, columns] += 1
    best = math.inf
    for begun in itertools.product(range(slots), repeat=first):
        total = bias + sum((b[i, t] for i, t in enumerate(begun)), start=np.zeros(b.shape[2]))
        values = cost + math.fsum(u[i, t] for i, t in enumerate(begun)) + (total**2).sum(axis=1)
        if crowd is not None:
            taken = np.bincount(np.array(begun, dtype=np.intp), minlength=slots)
            values[(crowd + taken > most).any(axis=1)] = math.inf
        best = min(best, float(values.min()))
    return best
