"""The slot loop above every transport: who is asked when, what counts, and what came too late.

A run lives in a folder: its settings, its plan, and a journal of what reached the server. What was
interrupted is resumed from there: the server is built anew from the journal, and clients that have
released already send the same bytes again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from agewise.federation.happened import Step
from agewise.federation.journal import RunFolder
from agewise.federation.messages import Order
from agewise.federation.orders import Due
from agewise.federation.result import Watcher
from agewise.federation.server import Server
from agewise.federation.uploads import Uploads


@dataclass(frozen=True)
class Reply:
    """What came back from a client: the bytes of its upload, or the word with which it refused."""

    client: str  #: who answers
    payload: bytes = b""  #: its upload
    refusal: str | None = None  #: one word; None where it sends an upload


class Transport(Protocol):
    """Carries orders to clients and their replies back, and has a clock.

    Messages may be lost, delayed, doubled and reordered, but are never changed, and a reply bears
    the name of the client that the order was for. Sending an order again is harmless: a client
    that has released answers with the same bytes.
    """

    def send(self, orders: Sequence[Order], until: float) -> None:
        """Have orders carried out, unless they are under way; nobody waits after `until`."""

    def poll(self) -> Iterable[Reply | Uploads]:
        """What has come back since the last time: from single clients, or from many alike."""

    def now(self) -> float:
        """Seconds by this transport's clock."""

    def wait(self, until: float) -> None:
        """Return at `until`, or before that if something may have come back."""


@dataclass(frozen=True)
class Timetable:
    """When slots begin and end, in seconds by the transport's clock.

    With `slot_seconds`, slot 1 begins at `started` and every slot takes as long as that. Without,
    a slot ends as soon as everybody due in it was heard, or after `timeout` seconds.
    """

    started: float = 0.0
    slot_seconds: float | None = None
    timeout: float = 1.0

    def times(self, slot: int, now: float) -> tuple[float, float]:
        """Beginning and end of the next slot."""
        if self.slot_seconds is None:
            return now, now + self.timeout
        begins = self.started + (slot - 1) * self.slot_seconds
        return begins, begins + self.slot_seconds


class Engine:
    """One run under way: takes a server through its slots, whatever carries the messages.

    Guarantees
        What reached the server is in the journal of `place` before `watch` is told of it. An
        upload that comes back after its slot's end is handed over after the slot was closed.
    """

    def __init__(
        self,
        server: Server,
        transport: Transport,
        place: RunFolder | None = None,
        watch: Watcher | None = None,
    ) -> None:
        self.server, self.transport, self.place, self.watch = server, transport, place, watch
        self._last = server.first_plan.problem.aggregate_at
        self._declined: set[str] = set()
        """Clients that have refused since this process began: an earlier refusal is asked again."""
        self._late: list[Reply | Uploads] = []
        self._reported = len(server.steps)

    def carry_out(self, timetable: Timetable) -> None:
        """Go through the slots that are still open, until the last one or a failure."""
        self.tell()  # a resumed run may have taken its failure back: that is an input, too
        while self.server.closed < self._last and self.server.failure is None:
            self._carry_out_slot(self.server.closed + 1, timetable)

    def refuse(self, client: str, slot: int, reason: str) -> None:
        """Note that a client will not answer in this run."""
        self._declined.add(client)
        self.server.refuse(client, slot, reason)
        self.tell()

    def tell(self, *more: Step) -> None:
        """Journal what has reached the server, then tell the watcher; `more` is told only."""
        if self.place is not None:
            self.place.keep(self.server)
        if self.watch is not None:
            for step in [*self.server.steps[self._reported :], *more]:
                self.watch(step, self.server.closed, self._last)
        self._reported = len(self.server.steps)

    def _carry_out_slot(self, slot: int, timetable: Timetable) -> None:
        """Order what is due, wait for the replies until the deadline, and close the slot."""
        transport = self.transport
        begins, ends = timetable.times(slot, transport.now())
        self._take_until(begins, slot, ends)
        due = self._due(slot)
        while due and transport.now() < ends:
            transport.send(due, ends)
            self._take(slot, ends)
            due = self._due(slot)
            if due:
                transport.wait(ends)
        if timetable.slot_seconds is not None:
            self._take_until(ends, slot, ends)
        self.server.close(slot)
        late, self._late = self._late, []
        for reply in late:
            self._receive(reply, slot + 1)
        self._take(slot + 1, math.inf)
        self.tell(Step(slot, "", "closed"))

    def _due(self, slot: int) -> Due:
        return self.server.orders(slot).without(self._declined)

    def _take_until(self, moment: float, slot: int, ends: float) -> None:
        while self.transport.now() < moment:
            self._take(slot, ends)
            self.transport.wait(moment)

    def _take(self, slot: int, ends: float) -> None:
        """Hand what has come back to the server; keep what is late until its slot is closed."""
        for reply in self.transport.poll():
            if isinstance(reply, Reply) and reply.refusal is not None:
                self.refuse(reply.client, slot, reply.refusal)
            elif self.transport.now() >= ends:
                self._late.append(reply)
            else:
                self._receive(reply, slot)
                self.tell()

    def _receive(self, reply: Reply | Uploads, slot: int) -> None:
        if isinstance(reply, Uploads):
            self.server.receive_alike(reply, slot)
        else:
            self.server.receive(reply.payload, slot, reply.client)
