"""Laws measured at each lag from records: no Markov property, and a limit on what they may hide."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agewise.arrays import Array, frozen
from agewise.checks import finite_array, fraction, one_of, whole
from agewise.errors import InvalidInput, quoted
from agewise.process.joint import JointLaw, as_states, fingerprint, in_a_line, refuse_negative
from agewise.process.limits import table_delta

Basis = Literal["proven", "asymptotic"]
"""Whether limits are proven for what they assume, or right as weeks grow many."""
BASES: tuple[str, ...] = get_args(Basis)


class MeasuredLaw:
    """The joint law of a record at collection and at aggregation, one table a collection slot.

    `joints[t - 1, x, y]` is the law of (value in slot t, value in slot A), A the number of
    tables, as it was measured at that lag and time of day. `limits[t - 1]` is an upper confidence
    limit on Δ there, and `confidence` its level, for all slots together: noise is calibrated to
    the limit, never to the estimate. `sticks[t - 1, j]` is the same for E (the hockey-stick
    divergence) at the target ε `targets[j]`. `basis` says whether limits are proven or asymptotic,
    `weeks` from how many weeks of readings (0: not known), `assumes` in words what the confidence
    rests on. `day` is the number of slots after which it all repeats.

    Nothing is known about three slots at once, so several releases get no credit for ageing.
    """

    kind = "measured"
    markov = False
    homogeneous = None

    def __init__(
        self,
        joints: ArrayLike,
        limits: ArrayLike,
        states: ArrayLike,
        *,
        confidence: float,
        day: int = 48,
        assumes: str = "",
        basis: Basis = "proven",
        weeks: int = 0,
        targets: ArrayLike = (),
        sticks: ArrayLike | None = None,
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
        upper = finite_array("limits", limits, "one number from 0 to 1 per slot")
        if upper.shape != (len(tables),) or (upper < 0).any() or (upper > 1).any():
            raise InvalidInput("limits", limits, f"{len(tables)} numbers from 0 to 1")
        sums = np.where(abs(sums - 1) < 1e-12, 1.0, sums)  # what travelled comes back bit by bit
        self.joints = frozen(tables / sums[:, None, None])
        self.confidence = fraction("confidence", confidence)
        if not isinstance(assumes, str) or len(assumes.splitlines()) > 1:
            raise InvalidInput("assumes", quoted(assumes), "one line of text")
        self.assumes = assumes
        self.day = whole("day", day, 1)
        self.limits = frozen(upper.copy())
        one_of("basis", basis, BASES)
        self.basis: Basis = basis
        self.weeks = whole("weeks", weeks, 0)
        self.targets, self.sticks = _sticks(targets, sticks, upper)
        last = self.joints[-1]
        if (last - np.diag(np.diag(last)) > 0).any():
            raise InvalidInput(
                f"joints[{len(tables) - 1}]",
                "a table with entries off the diagonal",
                "a diagonal one: in the last slot a record is what it is",
            )
        for slot, joint in enumerate(self.joints):
            widest = table_delta(joint)
            if upper[slot] < widest - 1e-12 and slot < len(tables) - 1:
                raise InvalidInput(
                    f"limits[{slot}]", float(upper[slot]), f"at least the measured {widest:.6g}"
                )

    def __repr__(self) -> str:
        return f"MeasuredLaw({len(self.joints)} slots, {in_a_line(self.states)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MeasuredLaw) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @property
    def fingerprint(self) -> str:
        """A hash of the exact values, and of what they rest on."""
        facts = np.array([self.confidence, self.day])
        words = np.frombuffer(self.assumes.encode(), dtype=np.uint8).astype(float)
        known = (self.joints, self.limits, self.states, facts, words)
        if self.basis == "proven" and not self.weeks and not self.targets.size:
            return fingerprint(*known)
        more = np.array([BASES.index(self.basis), self.weeks])
        return fingerprint(*known, more, self.targets, self.sticks)

    def to_dict(self) -> dict[str, Any]:
        """The law as plain data, without its states."""
        return {
            "kind": self.kind,
            "joints": self.joints.tolist(),
            "limits": self.limits.tolist(),
            "confidence": self.confidence,
            "day": self.day,
            "assumes": self.assumes,
            "basis": self.basis,
            "weeks": self.weeks,
            **({"targets": self.targets.tolist()} if self.targets.size else {}),
            **({"sticks": self.sticks.tolist()} if self.targets.size else {}),
        }

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
                "law",
                "stated",
                "none: a measured law holds for the law it was measured with",
                "Use mixing exact.",
            )
        if collect_at == aggregate_at:
            return JointLaw(np.diag(self.law(collect_at)), self.states)
        index = self._index(collect_at, aggregate_at)
        joint = JointLaw(self.joints[index], self.states)
        room = float(self.limits[index] - table_delta(joint.matrix))
        joint.uncertainty = max(room, 1e-15)  # measured is never certain
        if self.targets.size:
            joint.stick_limits = (
                np.concatenate([[0.0], self.targets]),
                np.concatenate([[self.limits[index]], self.sticks[index]]),
            )
        return joint

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
                "collect_at, aggregate_at",
                f"{collect_at}, {aggregate_at}",
                f"slots that were measured: 1 to {last}, aggregated in {last}, or whole days later",
            )
        return slot - 1


def _sticks(targets: ArrayLike, sticks: ArrayLike | None, limits: Array) -> tuple[Array, Array]:
    """Check limits on E: a row per slot, which falls with the target from the limit on Δ."""
    if sticks is None and np.asarray(targets, dtype=object).size == 0:
        return frozen(np.empty(0)), frozen(np.empty((len(limits), 0)))
    known = finite_array("targets", targets, "target ε's above 0, rising")
    if known.ndim != 1 or known.size == 0 or (np.diff(known, prepend=0.0) <= 0).any():
        raise InvalidInput("targets", known.tolist(), "target ε's above 0, rising")
    given = () if sticks is None else sticks
    table = finite_array("sticks", given, "one number from 0 to 1 per slot and target")
    if table.shape != (len(limits), known.size) or (table < 0).any():
        shape = (len(limits), known.size)
        raise InvalidInput("sticks", f"of shape {table.shape}", f"shape {shape}, none negative")
    if (np.diff(table, axis=1, prepend=limits[:, None]) > 1e-12).any():
        raise InvalidInput("sticks", "rising with the target", "limits that fall, from that on Δ")
    return frozen(known.copy()), frozen(table.copy())
