"""What a release is, what several add up to, and what a client allows itself to spend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from numpy.typing import ArrayLike

from agewise.checks import one_of, positive
from agewise.errors import AgewiseError, InvalidInput
from agewise.mechanism import MECHANISMS
from agewise.mixing import Method, slot_delta
from agewise.privacy.ageing import aged_epsilon
from agewise.privacy.composition import Release, Total, composed_totals
from agewise.process import Process

ROOM = 1e-9
"""Limits hold to nine digits: what is long past never vanishes entirely from a float."""


NUMBERS = (
    "classical_epsilon",
    "aged_epsilon",
    "sensitivity",
    "scale",
    "delta",
    "aged_delta",
)
"""The fields of an event that are floats."""


class BudgetExceeded(AgewiseError):
    """A release that the client's own policy does not allow. Nothing was released."""

    exit_code = 3


@dataclass(frozen=True)
class Policy:
    """What a client allows itself to spend, at most; None is no limit.

    `max_delta` limits the aged δ of all releases together (default: 0, so that only noise which
    needs no δ may be used). `window` limits what is collected in any so many
    slots in a row (None: all there ever was). Without `allow_server_noise` the client never sends a
    result to which the server is to add the noise.
    """

    max_aged_epsilon: float | None = None
    max_classical_epsilon: float | None = None
    window: int | None = None
    max_delta: float = 0.0
    allow_server_noise: bool = True

    def __post_init__(self) -> None:
        for name in ("max_aged_epsilon", "max_classical_epsilon"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        if not 0 <= self.max_delta < 1:
            raise InvalidInput("max_delta", self.max_delta, "0 or more and below 1")
        if self.window is not None and not (isinstance(self.window, int) and self.window >= 1):
            raise InvalidInput("window", self.window, "a whole number of slots, 1 or more")


@dataclass(frozen=True)
class Event:
    """One release, as it stands in the ledger. Slots are counted over all runs of the client.

    `aged_epsilon` is what this release alone guarantees about the records in slot `aggregate_at`;
    `delta` and `aged_delta` are the δ's that go with both ε's, 0 for Laplace noise. All are only
    what the noise would give where `private` is false. `kind` names the mechanism, `noise` who adds
    it: where that is the server, all rests on its one draw of the scale that it has announced.
    """

    key: str
    client: str
    collect_at: int
    aggregate_at: int
    classical_epsilon: float
    aged_epsilon: float
    sensitivity: float
    scale: float
    private: bool
    mixing: str
    fingerprint: str
    made_at: str
    payload: bytes
    kind: str = "laplace"
    delta: float = 0.0
    aged_delta: float = 0.0
    noise: str = "client"
    number: int = 0
    hash: str = ""

    def __post_init__(self) -> None:
        if not self.collect_at <= self.aggregate_at:
            raise InvalidInput("collect_at", self.collect_at, f"up to {self.aggregate_at}")
        for name in NUMBERS:
            if not getattr(self, name) >= 0:
                raise InvalidInput(name, getattr(self, name), "0 or more")
        one_of("kind", self.kind, tuple(MECHANISMS))
        one_of("noise", self.noise, ("client", "server"))
        if not max(self.delta, self.aged_delta) < 1:
            raise InvalidInput("delta", max(self.delta, self.aged_delta), "below 1")
        if not isinstance(self.payload, bytes) or not isinstance(self.private, bool):
            raise InvalidInput("payload, private", repr(self.payload), "bytes, and true or false")
        if not self.key.isprintable() or not self.key:
            raise InvalidInput("key", repr(self.key), "printable letters")

    def facts(self) -> dict[str, Any]:
        """Everything but the payload, for people and programs."""
        return {k: v for k, v in vars(self).items() if k != "payload"}


def now() -> str:
    """The time of an event, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def total_of(
    events: list[Event],
    process: Process,
    aggregate_at: int,
    method: Method = "exact",
    law: ArrayLike | None = None,
    window: int | None = None,
) -> Total:
    """Return what the private releases among `events` add up to, about slot `aggregate_at`.

    A single release that was reckoned for that very slot, by this method and process, keeps the
    aged ε proven for its own mechanism; several compose by `composed_epsilon`, which knows only
    their classical ε's, and are never reported below what one of them states. With `own_law`, the
    law is stated for each collection by itself, so that several compose by `any_prior`. A release
    that was made under another process counts in full: how it aged is not known.
    """
    counted = [e for e in events if window is None or e.collect_at > aggregate_at - window]
    return _totals(counted, process, [aggregate_at], method, law)[0]


def _totals(
    events: list[Event],
    process: Process,
    slots: Sequence[int],
    method: Method,
    law: ArrayLike | None,
) -> list[Total]:
    """`total_of` about each of several slots."""
    counted = [event for event in events if event.private and event.classical_epsilon > 0]
    own = [event for event in counted if event.fingerprint == process.fingerprint]
    strange = [event for event in counted if event.fingerprint != process.fingerprint]
    other = math.fsum(event.classical_epsilon for event in strange)
    failing = math.fsum(event.delta for event in strange)
    if method == "own_law" and len(counted) > 1:
        method, law = "any_prior", None
    releases = [Release(event.collect_at, event.classical_epsilon, event.delta) for event in own]
    totals = composed_totals(releases, process, slots, method, law)
    if len(own) == 1 and own[0].mixing == method:
        proven = own[0]
        totals = [
            replace(total, aged=min(total.aged, proven.aged_epsilon))
            if proven.aggregate_at == slot
            else total
            for slot, total in zip(slots, totals, strict=True)
        ]
    for place, slot in enumerate(slots):  # not below what one of them states, if by the formula
        for event in (event for event in own if event.aggregate_at == slot):
            delta = slot_delta(process, event.collect_at, slot, method, law)
            stated = min(event.aged_epsilon, aged_epsilon(event.classical_epsilon, delta))
            totals[place] = replace(totals[place], aged=max(totals[place].aged, stated))
    return [
        Total(
            total.aged + other,
            total.classical + other,
            total.aged_delta + failing,
            total.classical_delta + failing,
        )
        for total in totals
    ]


def enforce(
    policy: Policy,
    known: list[Event],
    new: Event,
    process: Process,
    method: Method,
    law: ArrayLike | None,
) -> None:
    """Refuse an event that would take the total over the policy; say what remains.

    The total must keep to the policy in *every* slot that some release was reckoned for, earlier
    ones too: what is collected later also tells about them. With a window, this holds for the
    releases collected in any so many slots in a row.
    """
    if not new.private:
        return
    limits = (policy.max_aged_epsilon, policy.max_classical_epsilon, policy.window)
    if limits == (None, None, None) and new.delta == 0:
        return  # no limit on ε, and no δ
    slots = sorted({event.aggregate_at for event in (*known, new) if event.private})
    for group in _groups(known, new, policy.window):
        after = _totals([*group, new], process, slots, method, law)
        if not all(_within(policy, total) for total in after):
            before = _totals(group, process, slots, method, law)
            for slot, spent, wanted in zip(slots, before, after, strict=True):
                _refuse_over(policy, new, slot, spent, wanted)


def _groups(known: list[Event], new: Event, window: int | None) -> list[list[Event]]:
    """The earlier events that count together with a new one, for each window that holds it."""
    if window is None:
        return [known]
    ends = {new.collect_at} | {
        e.collect_at for e in known if new.collect_at < e.collect_at < new.collect_at + window
    }
    return [[e for e in known if end - window < e.collect_at <= end] for end in sorted(ends)]


def _within(policy: Policy, total: Total) -> bool:
    """Whether a total keeps to both limits, to nine digits."""
    return all(
        limit is None or spent <= limit * (1 + ROOM)
        for limit, spent in (
            (policy.max_aged_epsilon, total.aged),
            (policy.max_classical_epsilon, total.classical),
            (policy.max_delta, total.aged_delta),
        )
    )


def _refuse_over(policy: Policy, new: Event, slot: int, before: Total, after: Total) -> None:
    for name, limit, spent, wanted in (
        ("aged ε", policy.max_aged_epsilon, before.aged, after.aged),
        ("classical ε", policy.max_classical_epsilon, before.classical, after.classical),
        ("aged δ", policy.max_delta, before.aged_delta, after.aged_delta),
    ):
        if limit is None or wanted <= limit * (1 + ROOM):
            continue
        if slot < new.collect_at and spent > limit and not wanted > spent + ROOM * limit:
            continue  # over a limit that was lowered since, and this release adds nothing to it
        left = limit - spent if spent < limit * (1 - ROOM) else 0.0
        about = f" about slot {slot}" if slot != new.aggregate_at else ""
        raise BudgetExceeded(
            f"client {new.client!r} would reach {name} {wanted:.6g}{about}, its policy allows "
            f"{limit:.6g}: {left:.6g} remains. Nothing was released. Wait until earlier releases "
            "have aged, collect long after the slots they were reckoned for, or change the "
            "client's policy (--max-aged-epsilon, --max-classical-epsilon, --max-delta, or "
            "--window to count only so many slots)."
        )
