"""The account that is carried on from release to release, so that the next one costs the same.

After each release one matrix says what all of them tell about the record's value in the slot of the
last collection (`agewise.privacy.pairwise`). The next release ages it by the slots in between and
adds its own losses; no earlier release has to be looked at again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from agewise.arrays import Array
from agewise.checks import parse_json
from agewise.mixing import MIXINGS, Method
from agewise.privacy.composition import Release
from agewise.privacy.events import ROOM, Event
from agewise.privacy.gaps import Between
from agewise.privacy.pairwise import all_pairs
from agewise.process import Process

Matrix = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Standing:
    """What all private releases of a client add up to, reckoned with one process and one method.

    `losses` `[S, S]` are about the record's value in slot `collect_at`, the last collection under
    this process. Releases under another process count in full: `outside` is the sum of their
    classical ε's. `classical` and `delta` are sums over all. `latest` and `published` are the last
    slots of collection and of aggregation of any release. Under this process no two collections
    were closer than `gap` slots, and no release had pairwise losses above `largest` `[S, S]`.
    """

    fingerprint: str
    method: Method
    releases: int = 0
    classical: float = 0.0
    delta: float = 0.0
    outside: float = 0.0
    latest: int | None = None
    published: int | None = None
    collect_at: int | None = None
    gap: int | None = None
    losses: Matrix = ()
    largest: Matrix = ()

    @classmethod
    def of(cls, events: Iterable[Event], process: Process, method: Method) -> Standing | None:
        """Fold all events, in the order of collection; None if they cannot be carried on."""
        standing: Standing | None = cls(process.fingerprint, method)
        for event in sorted(events, key=lambda one: one.collect_at):
            standing = None if standing is None else standing.after(event, process)
        return standing

    @staticmethod
    def read(text: str) -> Standing | None:
        """The account that an event in a ledger carries."""
        return Standing(**parse_json(text)) if text else None

    def write(self) -> str:
        """The account as text: the same floats when it is read again."""
        return json.dumps(asdict(self))

    def is_of(self, process: Process, method: Method) -> bool:
        """Whether it was reckoned with this process and method."""
        return (self.fingerprint, self.method) == (process.fingerprint, method)

    def owns(self, event: Event) -> bool:
        """Whether a release is one of those that `losses` count."""
        return _spends(event) and event.fingerprint == self.fingerprint

    def after(self, event: Event, process: Process) -> Standing | None:
        """The account with one more release; None if it cannot be carried on.

        It cannot where the release was collected before the last one, has a δ or no noise at all.
        """
        if not _spends(event):
            return replace(self, releases=self.releases + event.private)
        spent = event.classical_epsilon
        counted = replace(
            self,
            releases=self.releases + 1,
            classical=_sum(self.classical, spent),
            delta=_sum(self.delta, event.delta),
            latest=_largest(self.latest, event.collect_at),
            published=_largest(self.published, event.aggregate_at),
        )
        if not self.owns(event):
            return replace(counted, outside=_sum(self.outside, spent))
        if event.delta > 0 or math.isinf(spent):
            return None
        own = losses_of(event, process)
        if self.collect_at is None:
            both, largest, gap = own, own, None
        else:
            gap = event.collect_at - self.collect_at
            if gap < 0:
                return None
            since = Between(process, self.method).gap((self.collect_at, event.collect_at))
            both = since.losses(np.array([self.losses]))[0] + own
            largest = np.maximum(np.array(self.largest), own)
            gap = gap if self.gap is None else min(gap, self.gap)
        return replace(
            counted,
            collect_at=event.collect_at,
            gap=gap,
            losses=both.tolist(),
            largest=largest.tolist(),
        )

    def covers(self, other: Standing) -> bool:
        """Whether it says at least what another one does, but for another machine's rounding."""
        least = 1 - ROOM
        sums = ("releases", "classical", "delta", "outside")
        slots = ("latest", "published", "collect_at", "gap")
        return (
            all(getattr(self, name) >= least * getattr(other, name) for name in sums)
            and all(getattr(self, name) == getattr(other, name) for name in slots)
            and len(self.losses) == len(other.losses)
            and bool((np.array(self.losses) >= least * np.array(other.losses)).all())
            and bool((np.array(self.largest) >= least * np.array(other.largest)).all())
        )


def standing_of(known: Sequence[Event], process: Process, method: Method) -> Standing | None:
    """The account after the known releases: as the last of them carries it, or folded anew.

    None where nothing can be carried on: `own_law` states the law of each collection by itself, and
    a law that is known lag by lag only gives several releases no credit for ageing.
    """
    if not process.markov or MIXINGS[method].takes_stated_law:
        return None
    last = Standing.read(known[-1].account) if len(known) else None
    if last is not None and last.is_of(process, method):
        return last
    return Standing.of(known, process, method)


def standing_after(
    known: Sequence[Event], new: Event, process: Process, method: Method
) -> Standing | None:
    """The account with one more release, folded anew where it comes out of order."""
    before = standing_of(known, process, method)
    after = None if before is None else before.after(new, process)
    if after is None and before is not None:
        return Standing.of([*known, new], process, method)
    return after


def recent_losses(
    known: Sequence[Event], new: Event, after: Standing, process: Process, since: int
) -> dict[int, Array] | None:
    """Pairwise losses by slot of collection: of each release after slot `since`, and of all before.

    Those before stand in the slot of the last of them. `after` is the account with the new release.
    Reads no more events than were collected after `since`, and one. None if they are not in the
    order of collection, or not all carry an account of this process and method.
    """
    each: dict[int, Array] = {}
    event, standing, place = new, after, len(known)
    while standing.collect_at is not None:
        if standing.collect_at <= since:
            each[standing.collect_at] = np.array(standing.losses)
            break
        if standing.owns(event):
            if event.collect_at != standing.collect_at:
                return None
            own = losses_of(event, process)
            each[event.collect_at] = each.get(event.collect_at, np.zeros_like(own)) + own
        place -= 1
        if place < 0:
            break
        event = known[place]
        before = Standing.read(event.account)
        if before is None or not before.is_of(process, after.method):
            return None
        standing = before
    return each


def losses_of(event: Event, process: Process) -> Array:
    """The pairwise losses `[S, S]` of one release."""
    release = Release(event.collect_at, event.classical_epsilon, event.delta, event.metric)
    return release.losses(all_pairs(np.ones(()), process.states.size))


def _spends(event: Event) -> bool:
    return event.private and event.classical_epsilon > 0


def _largest(one: int | None, other: int) -> int:
    return other if one is None else max(one, other)


def _sum(one: float, other: float) -> float:
    """The sum of two numbers that are 0 or more, rounded up."""
    return one + other if one == 0 or other == 0 else math.nextafter(one + other, math.inf)
