"""What several releases of a client add up to: about one slot, or about what is promised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from agewise.arrays import Array
from agewise.errors import InvalidInput
from agewise.mechanism.gaussian import ROOM
from agewise.mixing import MIXINGS, Method, slot_delta
from agewise.privacy.ageing import aged_epsilon
from agewise.privacy.composition import Losses, Release, Total, composed, composed_totals
from agewise.privacy.continual import LONGEST_GAP, Promise, rule_bound
from agewise.privacy.events import Event
from agewise.privacy.gaps import Between
from agewise.privacy.standing import Standing, recent_losses, standing_of
from agewise.process import Process


def total_of(
    events: Sequence[Event],
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
    return totals_about(counted, process, [aggregate_at], method, law)[0]


def promised_total(
    known: Sequence[Event],
    new: Event,
    process: Process,
    promise: Promise,
    method: Method = "exact",
    law: ArrayLike | None = None,
) -> Total:
    """Return what the private releases add up to with a new one, about what is promised.

    That is the record's value in the slot that the new one is published in, with a promise of H
    the values of the H slots before it too, by what is published until then. With `every_moment` it
    is a bound on what the releases so far tell about any slot, and all that would follow at their
    smallest gap and with their largest losses; never more than the classical sum.

    Guarantees
        An upper bound, as `composed_epsilon`. Where the known events carry their account on, no
        more of them are read than were collected in the last H slots, and one.
    """
    before = None if law is not None else standing_of(known, process, method)
    after = None if before is None else before.after(new, process)
    if before is None or after is None or not published_in_order(before, new):
        return promised_anew(known, new, process, promise, method, law, new.aggregate_at)
    if promise == "every_moment":
        return _counted(after, _own_rule(after, process))
    since = new.aggregate_at - (0 if promise == "present" else int(promise))
    each = recent_losses(known, new, after, process, since)
    if each is None:
        return promised_anew(known, new, process, promise, method, law, new.aggregate_at)
    if not each:
        return _counted(after, 0.0)
    at = sorted(each)
    slots = list(range(max(since, at[0]), new.aggregate_at + 1))
    own = [Losses.of(each[slot]) for slot in at]
    both = composed(own, at, slots, Between(process, method)).guarantees(slots)
    told = [one.epsilon for one in both]
    if before.collect_at is None and new.mixing == method:  # as in `totals_about`
        told[-1] = min(told[-1], new.aged_epsilon)
    return _counted(after, max(told))


def published_in_order(before: Standing, new: Event) -> bool:
    """Whether all releases so far are published when a new one is."""
    return before.published is None or before.published <= new.aggregate_at


def _counted(standing: Standing, told: float) -> Total:
    """The total where the own releases tell so much, and the others count in full."""
    aged = min(told + standing.outside, standing.classical)
    return Total(aged, standing.classical, standing.delta, standing.delta)


def _own_rule(standing: Standing, process: Process) -> float:
    """What releases tell about any moment if they go on as they were."""
    largest = np.array(standing.largest)
    if standing.gap is None:
        return float(largest.max(initial=0.0))
    return every_moment(process, standing.gap, largest, standing.method)


def every_moment(process: Process, every: int, losses: Array, method: Method) -> float:
    """What releases at this gap or longer ones tell about any moment; infinite if unbounded."""
    key = (process.fingerprint, every, losses.tobytes(), method)
    if key not in _RULES:
        try:
            _RULES[key] = rule_bound(process, min(every, LONGEST_GAP), losses, method)
        except InvalidInput:  # the process never forgets, or two were collected in one slot
            _RULES[key] = math.inf
    return _RULES[key]


_RULES: dict[tuple[str, int, bytes, Method], float] = {}
"""Bounds that were worked out before: each takes some tenths of a second."""


def promised_anew(
    known: Sequence[Event],
    new: Event,
    process: Process,
    promise: Promise,
    method: Method,
    law: ArrayLike | None,
    published: int,
) -> Total:
    """`promised_total` about the publication in some slot, from all events."""
    ever = promise == "every_moment"
    events = [e for e in (*known, new) if ever or e.aggregate_at <= published]
    first = min((e.collect_at for e in events if e.private), default=published)
    back = 0 if isinstance(promise, str) else int(promise)
    last = max([published, *(e.collect_at for e in events)])
    slots = range(first if ever else max(published - back, first), last + 1)
    totals = totals_about(events, process, slots, method, law, promised=True)
    return Total(
        max(total.aged for total in totals),
        totals[0].classical,
        max(total.aged_delta for total in totals),
        totals[0].classical_delta,
    )


LEAST_MOVED = 1e-7
"""Deviations of Gaussian noise that a record moves a release by, where its curve is counted."""


def mu_of(event: Event) -> float:
    """By how many deviations of its Gaussian noise one record moves a release; 0: other noise.

    Beyond noise ten million times that move the grid of long vectors counts: such noise is known by
    its ε and δ only.
    """
    if event.kind != "gaussian" or event.scale == 0:
        return 0.0
    moved = event.sensitivity / event.scale * (1 + ROOM)
    return moved if moved >= LEAST_MOVED else 0.0


def totals_about(
    events: Sequence[Event],
    process: Process,
    slots: Sequence[int],
    method: Method,
    law: ArrayLike | None,
    promised: bool = False,
) -> list[Total]:
    """`total_of` about each of several slots; for a promise by what each release tells."""
    counted = [event for event in events if event.private and event.classical_epsilon > 0]
    own = [event for event in counted if event.fingerprint == process.fingerprint]
    strange = [event for event in counted if event.fingerprint != process.fingerprint]
    other = math.fsum(event.classical_epsilon for event in strange)
    failing = math.fsum(event.delta for event in strange)
    if MIXINGS[method].takes_stated_law and len(counted) > 1:
        method, law = "any_prior", None
    releases = [
        Release(
            e.collect_at,
            e.classical_epsilon,
            e.delta,
            e.metric if promised else None,
            mu_of(e),
        )
        for e in own
    ]
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
        for event in (event for event in own if event.aggregate_at == slot and not promised):
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
