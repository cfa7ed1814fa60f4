"""Orders to clients in this process, and their answers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from agewise.errors import AgewiseError
from agewise.federation.client import refusal_reason
from agewise.federation.engine import Reply
from agewise.federation.messages import Order
from agewise.federation.orders import Due, OrdersAlike
from agewise.federation.settings import Clock
from agewise.federation.together import Answer, answer_or_error
from agewise.federation.uploads import Uploads

Answered = Uploads | tuple[str, Answer]
"""What many clients alike have sent, or one, or why it does not."""

BATCH = 10_000
"""Clients that answer at a time: as many are recorded in one transaction, and held at once."""


class LocalTransport:
    """Clients in this process: each carries its order out when the server polls.

    By the virtual clock, waiting takes no time: whoever has not answered never will.
    """

    def __init__(
        self,
        answer: Callable[[Order], bytes],
        clock: Clock,
        silent: Iterable[str],
        together: Callable[[list[OrdersAlike]], list[Answered]] | None = None,
    ) -> None:
        self.answer, self.wall, self.silent = answer, clock == "wall", frozenset(silent)
        self.together = together
        self.errors: dict[str, AgewiseError] = {}
        """What clients have to say about their refusals; that is for this machine only."""
        self._queue: deque[tuple[OrdersAlike, float]] = deque()
        self._virtual = 0.0

    def send(self, orders: Sequence[Order], until: float) -> None:
        """Queue orders; one that nobody waits for any more is not carried out."""
        due = Due.of(orders).without(self.silent)
        if self.together is None:
            due = Due.of(list(due))
        self._queue.extend((alike, until) for alike in due.groups)

    def poll(self) -> Iterator[Reply | Uploads]:
        """Have the clients carry their orders out: one by one, or those of a batch together."""
        while self._queue:
            taken = self._taken(1 if self.together is None else BATCH)
            orders = [alike for alike, until in taken if self.now() < until]
            if self.together is not None:
                answers = self.together(orders)
            else:
                only = [one.first for one in orders]
                answers = [(order.client, answer_or_error(self.answer, order)) for order in only]
            for one in answers:
                if isinstance(one, Uploads):
                    yield one
                    continue
                name, answer = one
                if isinstance(answer, AgewiseError):
                    self.errors[name] = answer
                    yield Reply(name, refusal=refusal_reason(answer))
                else:
                    yield Reply(name, answer)

    def _taken(self, most: int) -> list[tuple[OrdersAlike, float]]:
        """Orders for so many clients at most from the head of the queue."""
        taken = []
        while most and self._queue:
            alike, until = self._queue.popleft()
            if len(alike.names) > most:
                self._queue.appendleft((alike.only(alike.names[most:]), until))
                alike = alike.only(alike.names[:most])
            taken.append((alike, until))
            most -= len(alike.names)
        return taken

    def now(self) -> float:
        """The time, or what the virtual clock shows."""
        return time.time() if self.wall else self._virtual

    def wait(self, until: float) -> None:
        """Sleep until then, or set the virtual clock to it."""
        if self.wall:
            time.sleep(max(0.0, until - time.time()))
        else:
            self._virtual = max(self._virtual, until)
