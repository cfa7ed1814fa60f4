"""Whether a client's policy allows one more release; and the names that go with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np
from numpy.typing import ArrayLike

from agewise.errors import InvalidInput
from agewise.mixing import MIXINGS, Method
from agewise.privacy.composition import Total
from agewise.privacy.continual import Promise, per_release_epsilon
from agewise.privacy.events import ROOM, BudgetExceeded, Event, Policy, now
from agewise.privacy.standing import Standing, losses_of, standing_of
from agewise.privacy.totals import (
    every_moment,
    promised_anew,
    promised_total,
    published_in_order,
    total_of,
    totals_about,
)
from agewise.process import Process

__all__ = [
    "BudgetExceeded",
    "Event",
    "Policy",
    "enforce",
    "now",
    "promised_total",
    "total_of",
]

RULE_ROOM = 1e-6
"""Relative room for the bound of a rule, an iteration that stops a little above its limit."""


def enforce(
    policy: Policy,
    known: Sequence[Event],
    new: Event,
    process: Process,
    method: Method,
    law: ArrayLike | None,
) -> None:
    """Refuse an event that would take the total over the policy; say what remains.

    The total must keep to the policy in *every* slot that some release was reckoned for, earlier
    ones too: what is collected later also tells about them. With a window, this holds for the
    releases collected in any so many slots in a row. With a promise, it must keep to the policy at
    every publication from that of the new release on, about what is promised (see `Policy`).
    """
    if not new.private:
        return
    if new.classical_epsilon > 0:
        _enforce_rule(policy, known, new)
    if policy.promise is not None:
        _enforce_promise(policy, policy.promise, known, new, process, method, law)
        return
    limits = (policy.max_aged_epsilon, policy.max_classical_epsilon, policy.window)
    if limits == (None, None, None) and new.delta == 0:
        return  # no limit on ε, and no δ
    slots = sorted({event.aggregate_at for event in (*known, new) if event.private})
    for group in _groups(known, new, policy.window):
        after = totals_about([*group, new], process, slots, method, law)
        if not all(_within(policy, total) for total in after):
            before = totals_about(group, process, slots, method, law)
            for slot, spent, wanted in zip(slots, before, after, strict=True):
                _refuse_over(policy, new, slot, spent, wanted)


def _enforce_rule(policy: Policy, known: Sequence[Event], new: Event) -> None:
    """Refuse a release that is too large or too close to another, whatever was ordered."""
    most, spent = policy.max_release_epsilon, new.classical_epsilon
    if most is not None and not spent <= most * (1 + ROOM):
        raise BudgetExceeded(
            f"client {new.client!r} would release at classical ε {spent:.6g}, its policy allows "
            f"{most:.6g} each time (max_release_epsilon). Nothing was released. Plan with more "
            "noise, or change the client's policy (--max-release-epsilon)."
        )
    if policy.slot_seconds is not None and known:
        _refuse_haste(policy.slot_seconds, known[-1], new)
    if policy.every is None:
        return
    near = _nearest(known, new.collect_at)
    if near is not None and abs(near - new.collect_at) < policy.every:
        raise BudgetExceeded(
            f"client {new.client!r} would collect in slot {new.collect_at}, and collects in slot "
            f"{near}: its policy allows one release in any {policy.every} slots (every). Nothing "
            f"was released. Collect in slot {near + policy.every} or later, or change the client's "
            "policy."
        )


def _refuse_haste(slot_seconds: float, last: Event, new: Event) -> None:
    """Refuse a release that counts more slots since the last one than have passed by the clock."""
    slots = new.collect_at - last.collect_at
    times = [datetime.fromisoformat(event.made_at) for event in (last, new)]
    passed = (times[1] - times[0]).total_seconds()
    # Both may lie anywhere in their slots, and times are kept to the second.
    if (slots - 1) * slot_seconds > passed + 1:
        raise BudgetExceeded(
            f"client {new.client!r} would collect in slot {new.collect_at}, {slots} slots after "
            f"its last release, which was made {passed:g} s ago; its policy says that a slot takes "
            f"{slot_seconds:g} s (slot_seconds). Nothing was released. Wait, or mend the clock "
            "that is wrong."
        )


def _nearest(known: Sequence[Event], slot: int) -> int | None:
    """The slot nearest to this one in which something was collected and released."""
    last = Standing.read(known[-1].account) if len(known) else None
    if last is not None and (last.latest is None or last.latest <= slot):
        return last.latest
    slots = [e.collect_at for e in known if e.private and e.classical_epsilon > 0]
    return min(slots, key=lambda other: abs(other - slot), default=None)


def _enforce_promise(
    policy: Policy,
    promise: Promise,
    known: Sequence[Event],
    new: Event,
    process: Process,
    method: Method,
    law: ArrayLike | None,
) -> None:
    """Refuse an event after which a promise would not be kept."""
    none = replace(new, classical_epsilon=0.0, aged_epsilon=0.0, delta=0.0, aged_delta=0.0)
    if promise == "every_moment":
        _enforce_ever(policy, known, new, process, method)
        policy, promise = replace(policy, max_aged_epsilon=None, promise=None), "present"
    wanted = promised_total(known, new, process, promise, method, law)
    if not _within(policy, wanted):
        spent = promised_total(known, none, process, promise, method, law)
        _refuse_over(policy, new, new.aggregate_at, spent, wanted)
    before = None if law is not None else standing_of(known, process, method)
    if before is not None and published_in_order(before, new):
        return
    for slot in sorted({e.aggregate_at for e in known if e.aggregate_at > new.aggregate_at}):
        wanted = promised_anew(known, new, process, promise, method, law, slot)
        if not _within(policy, wanted):
            spent = promised_anew(known, none, process, promise, method, law, slot)
            _refuse_over(policy, new, slot, spent, wanted)


def _enforce_ever(
    policy: Policy, known: Sequence[Event], new: Event, process: Process, method: Method
) -> None:
    """Refuse a release with which the rule does not keep the limit about every moment.

    What counts is what releases told apart so far, the new one included, again and again at the
    rule's smallest gap: a later release that tells more is held against the limit in its turn.
    Earlier releases that did not keep to the rule count in full beside it.
    """
    every, most, limit = (
        policy.every or 1,
        policy.max_release_epsilon or 0.0,
        policy.max_aged_epsilon or 0.0,
    )
    if new.classical_epsilon == 0:
        return
    largest, outside = losses_of(new, process), 0.0
    before = standing_of(known, process, method)
    fits = before is not None and (before.gap is None or before.gap >= every)
    if before is not None and fits and np.max(before.largest, initial=0.0) <= most * (1 + ROOM):
        outside = before.outside
        if before.losses:
            largest = np.maximum(largest, np.array(before.largest))
    else:
        last: int | None = None
        for event in sorted(known, key=lambda one: one.collect_at):
            if not event.private or event.classical_epsilon == 0:
                continue
            own = event.fingerprint == process.fingerprint and event.delta == 0
            spaced = last is None or event.collect_at - last >= every
            if own and spaced and event.classical_epsilon <= most * (1 + ROOM):
                last = event.collect_at
                largest = np.maximum(largest, losses_of(event, process))
            else:
                outside += event.classical_epsilon
    how: Method = "any_prior" if MIXINGS[method].takes_stated_law else method
    bound = every_moment(process, every, largest, how) + outside
    if new.fingerprint != process.fingerprint or new.delta > 0:
        bound = math.inf
    if bound <= limit * (1 + RULE_ROOM):
        return
    allowed = _affordable(process, every, limit - outside, how)
    raise BudgetExceeded(
        f"client {new.client!r} would release at classical ε {new.classical_epsilon:.6g}, and may "
        f"do so once in any {every} slots: about every moment that is {bound:.6g}, its policy "
        f"allows {limit:.6g} (max_aged_epsilon). Nothing was released. Plan with {allowed:.6g} or "
        "less each time, or set every to more slots."
    )


def _affordable(process: Process, every: int, limit: float, method: Method) -> float:
    """What each release may have about every moment, rounded down a little; 0 if nothing."""
    try:
        if limit <= 0:
            return 0.0
        most = per_release_epsilon(process, every, limit, 0, "every_moment", "any", method)
        return 0.999 * most
    except InvalidInput:
        return 0.0


def _groups(known: Sequence[Event], new: Event, window: int | None) -> list[list[Event]]:
    """The earlier events that count together with a new one, for each window that holds it."""
    if window is None:
        return [list(known)]
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
            "have aged, collect long after the slots they were counted for, or change the "
            "client's policy (--max-aged-epsilon, --max-classical-epsilon, --max-delta, or "
            "--window to count fewer slots)."
        )
