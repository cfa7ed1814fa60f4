"""Laws measured at each lag from records: no Markov property, and a limit on what they may hide."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.errors import InvalidInput, finite_array, whole
from agewise.process.joint import (
    Array,
    JointLaw,
    as_states,
    fingerprint,
    frozen,
    refuse_negative,
)


class MeasuredLaw:
    """The joint law of a record at collection and at aggregation, one table a collection slot.

    `joints[t - 1, x, y]` is the law of (value in slot t, value in slot A), A the number of
    tables, as it was measured at that lag and time of day. `limits[t - 1]` is an upper confidence
    limit on Δ there, and `confidence` its level, for all slots together: noise is calibrated to
    the limit, never to the estimate. `day` is the number of slots after which it all repeats.

    Nothing is known about three slots at once, so several releases get no credit for ageing.
    """

    def __init__(
        self,
        joints: ArrayLike,
        limits: ArrayLike,
        states: ArrayLike,
        *,
        confidence: float,
        day: int = 48,
    ) -> None:
        self.states = as_states(states)
        size = self.states.size
        tables = finite_array("joints", joints, f"tables of {size} x {size} probabilities")
        if tables.ndim != 3 or tables.shape[1:] != (size, size):
            raise InvalidInput("joints", f"of shape {tables.shape}", f"shape (A, {size}, {size})")
        refuse_negative("joints", tables)
        sums = tables.sum(axis=(1, 2))
        if (abs(sums - 1) > 1e-6).any():
            slot = int(abs(sums - 1).argmax())
            raise InvalidInput(
                f"joints[{slot}]", f"a table that sums to {sums[slot]:.9g}", "a sum of 1"
            )
        upper = finite_array("limits", limits, "one number from 0 to 1 a slot")
        if upper.shape != (len(tables),) or (upper < 0).any() or (upper > 1).any():
            raise InvalidInput("limits", limits, f"{len(tables)} numbers from 0 to 1")
        if not 0 < confidence < 1:
            raise InvalidInput("confidence", confidence, "above 0 and below 1")
        sums = np.where(abs(sums - 1) < 1e-12, 1.0, sums)  # what travelled comes back bit by bit
        self.joints = frozen(tables / sums[:, None, None])
        self.confidence = float(confidence)
        self.day = whole("day", day, 1)
        self.limits = frozen(upper.copy())
        last = self.joints[-1]
        if (last - np.diag(np.diag(last)) > 0).any():
            raise InvalidInput(
                f"joints[{len(tables) - 1}]", "a table with entries off the diagonal",
                "a diagonal one: in the last slot a record is what it is",
            )  # fmt: skip
        for slot, joint in enumerate(self.joints):
            widest = table_delta(joint)
            if upper[slot] < widest - 1e-12 and slot < len(tables) - 1:
                raise InvalidInput(
                    f"limits[{slot}]", float(upper[slot]), f"at least the measured {widest:.6g}"
                )

    def __repr__(self) -> str:
        slots = len(self.joints)
        return f"MeasuredLaw({slots} slots, states={self.states.tolist()})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MeasuredLaw) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @property
    def fingerprint(self) -> str:
        """A hash of the exact values."""
        facts = np.array([self.confidence, self.day])
        return fingerprint(self.joints, self.limits, self.states, facts)

    @property
    def markov(self) -> bool:
        """Whether the past says no more than the present: not known here."""
        return False

    def kernel(self, collect_at: int, aggregate_at: int) -> Array:
        """Where a record is at aggregation, given where it was at collection.

        A value that never occurred at collection moves like any other record.
        """
        if collect_at == aggregate_at:
            return np.eye(self.states.size)
        joint = self.joints[self._index(collect_at, aggregate_at)]
        law = joint.sum(axis=1)
        rows = np.where(law[:, None] > 0, joint, joint.sum(axis=0))
        return np.asarray(rows / rows.sum(axis=1, keepdims=True))

    def reachable(self, collect_at: int, aggregate_at: int) -> NDArray[np.bool_]:
        """Which moves were ever seen."""
        return self.kernel(collect_at, aggregate_at) > 0

    def law(self, slot: int) -> Array:
        """The law of a record in a slot."""
        index = (slot - 1) % self.day
        if slot <= len(self.joints):
            index = slot - 1
        if not 0 <= index < len(self.joints):
            raise InvalidInput("slot", slot, f"1 to {len(self.joints)}, or whole days later")
        return np.asarray(self.joints[index].sum(axis=1))

    def joint(self, collect_at: int, aggregate_at: int, law: ArrayLike | None = None) -> JointLaw:
        """The measured joint law, with its uncertainty; for the measured law of records only."""
        if law is not None:
            raise InvalidInput(
                "law", law, "none: a measured law holds for the law it was measured with",
                "Use mixing exact.",
            )  # fmt: skip
        if collect_at == aggregate_at:
            return JointLaw(np.diag(self.law(collect_at)), self.states)
        index = self._index(collect_at, aggregate_at)
        made = JointLaw(self.joints[index], self.states)
        room = float(self.limits[index] - table_delta(made.matrix))
        made.uncertainty = max(room, 1e-15)  # measured is never certain
        return made

    def knows(self, collect_at: int, aggregate_at: int) -> bool:
        """Whether the law of these two slots was measured."""
        last = len(self.joints)
        shift = aggregate_at - last
        return shift % self.day == 0 and 1 <= collect_at - shift <= last

    def _index(self, collect_at: int, aggregate_at: int) -> int:
        last = len(self.joints)
        slot = collect_at - (aggregate_at - last)
        if not self.knows(collect_at, aggregate_at):
            raise InvalidInput(
                "collect_at, aggregate_at", f"{collect_at}, {aggregate_at}",
                f"slots that were measured: 1 to {last}, aggregated in {last}, or whole days later",
            )  # fmt: skip
        return slot - 1


def table_delta(joint: Array) -> float:
    """Return Δ of a table `[x, y]` of probabilities or counts, as it stands: no allowance at all.

    The widest distance of two laws of the collected value, each given one of the later values.
    """
    columns = joint[:, joint.sum(axis=0) > 0]
    rows = (columns / columns.sum(axis=0)).T
    return max((float(abs(a - b).sum()) / 2 for a in rows for b in rows), default=0.0)


def delta_limit(counts: ArrayLike, failure: float, inflation: ArrayLike = 1.0) -> float:
    """Return an upper confidence limit on Δ from counts of (value at collection, at aggregation).

    `counts[x, y]`; `failure` is the probability that the limit is below the truth, at most;
    `inflation` (one number, or one for each y) divides the numbers of pairs, for pairs that are
    not independent.

    Guarantees
        For independent pairs, the probability that the limit is below the true Δ is at most
        `failure`, whatever the law and however rare its values: each backward law is off by at
        most √(ln((2^S − 2)·Y/failure)/(2N)) in total variation (Weissman et al. 2003, Theorem
        2.1, and a union over the Y values at aggregation), two of them by the sum. A value that
        was seen too rarely, or never, gives the limit 1.

    >>> round(delta_limit([[800, 200], [200, 800]], failure=0.05), 3)
    0.694
    """
    table = finite_array("counts", counts, "a square table of counts")
    size = table.shape[0]
    if table.ndim != 2 or table.shape[1] != size or (table < 0).any():
        raise InvalidInput("counts", f"of shape {table.shape}", "a square table, none negative")
    if not 0 < failure < 1:
        raise InvalidInput("failure", failure, "above 0 and below 1")
    factor = np.broadcast_to(np.asarray(inflation, dtype=float), (size,))
    if not (factor >= 1).all():
        raise InvalidInput("inflation", inflation, "1 or more")
    seen = table.sum(axis=0) / factor
    if size == 1:
        return 0.0
    if (seen <= 0).any():
        return 1.0
    off = np.sqrt(math.log(max(2.0**size - 2, 1.0) * size / failure) / (2 * seen))
    backward = (table / table.sum(axis=0)).T
    distance = np.abs(backward[:, None] - backward[None]).sum(axis=2) / 2
    room = distance + off[:, None] + off[None]
    np.fill_diagonal(room, 0.0)
    return float(min(1.0, room.max()))


def block_inflation(blocks: ArrayLike) -> Array:
    """How much less than independent pairs say pairs that come in blocks, for each later value.

    `blocks[b, x, y]` are the counts of each block (a week, say). The variance of the backward
    law's estimate by blocks, over what it would be for independent pairs; at least 1.
    """
    tables = finite_array("blocks", blocks, "tables of counts")
    if tables.ndim != 3 or tables.shape[1] != tables.shape[2]:
        raise InvalidInput("blocks", f"of shape {tables.shape}", "shape (blocks, S, S)")
    total = tables.sum(axis=0)
    seen = tables.sum(axis=1)
    share = total / np.maximum(total.sum(axis=0), 1e-300)
    rest = tables - share * seen[:, None, :]
    count = len(tables)
    correction = count / (count - 1) if count > 1 else np.inf
    between = (rest**2).sum(axis=(0, 1)) * correction
    alone = total.sum(axis=0) * (share * (1 - share)).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(alone > 0, between / alone, 1.0)
    return np.asarray(np.maximum(np.nan_to_num(ratio, nan=1.0, posinf=np.inf), 1.0))
