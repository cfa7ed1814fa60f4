"""What every `Transport` must do: a class of tests that the tests of each one inherit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from agewise import scenarios
from agewise.federation import Reply, Transport
from agewise.federation.messages import Order
from agewise.federation.server import Server
from agewise.planning import plan
from agewise.testing.expecting import expect, expect_close, expect_same

Trouble = Literal["refuses", "silent", "slow"]

PROBLEM = scenarios.london()
NAMES = [client.name for client in PROBLEM.clients]
PATIENCE = 60.0
"""Seconds by the transport's clock within which an order is to be answered."""


class TransportContract:
    """A transport brings each order to its client and the reply back, however often it is asked.

    A subclass says what its transport is (`make`) and what clients have released (`released`).
    Each method whose name begins with test is a test, which pytest finds in the subclass.
    """

    problem = PROBLEM
    """The federation whose clients answer."""
    slow = 90.0
    """Seconds that a slow client takes."""

    def make(self, folder: Path, troubles: dict[str, Trouble]) -> Transport:
        """Return a transport to clients whose ledgers lie below `folder`.

        A client in `troubles` refuses (its budget), never answers, or takes `slow` seconds.
        """
        raise NotImplementedError

    def released(self, folder: Path, name: str) -> list[bytes]:
        """Return the bytes of all that a client has released, oldest first."""
        raise NotImplementedError

    def orders(self) -> list[Order]:
        """One order for each client."""
        server = Server(plan(self.problem), "run")
        slots = range(1, self.problem.aggregate_at + 1)
        return [order for slot in slots for order in server.orders(slot)]

    def gather(self, transport: Transport) -> list[Reply]:
        """Send until everybody was heard or the time is over: as the engine does."""
        until, replies = transport.now() + PATIENCE, list[Reply]()
        waiting: Sequence[Order] = self.orders()
        while waiting and transport.now() < until:
            transport.send(waiting, until)
            replies += self.heard(transport)
            answered = {reply.client for reply in replies}
            waiting = [order for order in waiting if order.client not in answered]
            if waiting:
                transport.wait(until)
        return replies

    def heard(self, transport: Transport) -> list[Reply]:
        """What single clients have sent back."""
        return [reply for reply in transport.poll() if isinstance(reply, Reply)]

    def test_orders_are_delivered_and_what_was_recorded_comes_back(self, tmp_path: Path) -> None:
        replies = self.gather(self.make(tmp_path, {}))
        expect_same(sorted(reply.client for reply in replies), NAMES, "who answers")
        for reply in replies:
            expect_same(reply.refusal, None, "why a healthy client refuses")
            expect_same(self.released(tmp_path, reply.client), [reply.payload], "what is released")

    def test_a_refusal_is_one_word_and_nothing_is_released(self, tmp_path: Path) -> None:
        replies = self.gather(self.make(tmp_path, {"client 2": "refuses"}))
        expect_same(sorted(reply.client for reply in replies), NAMES, "who answers")
        words = {reply.client: reply.refusal for reply in replies if reply.refusal}
        expect_same(words, {"client 2": "budget"}, "who refuses, and why")
        expect_same(self.released(tmp_path, "client 2"), [], "what a refusal releases")

    def test_silence_lasts_until_the_deadline_and_no_longer(self, tmp_path: Path) -> None:
        transport = self.make(tmp_path, {"client 3": "silent"})
        begun = transport.now()
        replies = self.gather(transport)
        expect_same(sorted(r.client for r in replies), ["client 1", "client 2"], "who answers")
        expect_close(transport.now(), begun + PATIENCE, "when waiting ends")

    def test_a_late_reply_comes_back_all_the_same(self, tmp_path: Path) -> None:
        transport = self.make(tmp_path, {"client 1": "slow"})
        begun = transport.now()
        replies = [r for r in self.gather(transport) if r.client == "client 1"]
        while not replies and transport.now() < begun + 2 * self.slow:
            transport.wait(begun + 2 * self.slow)
            replies = [r for r in self.heard(transport) if r.client == "client 1"]
        expect(transport.now() >= begun + self.slow, "the reply comes before it was sent")
        stored = self.released(tmp_path, "client 1")
        expect_same({reply.payload for reply in replies}, set(stored), "what comes back")
        expect_same(len(stored), 1, "how often it is released")

    def test_a_retry_has_the_same_bytes(self, tmp_path: Path) -> None:
        transport = self.make(tmp_path, {})
        first = {reply.client: reply.payload for reply in self.gather(transport)}
        for _ in range(3):
            transport.wait(transport.now() + PATIENCE)
            again = {reply.client: reply.payload for reply in self.gather(transport)}
            expect_same(again, first, "what a retry sends")
        for name in NAMES:
            expect_same(self.released(tmp_path, name), [first[name]], "what is released")

    def test_nothing_comes_back_unasked(self, tmp_path: Path) -> None:
        expect_same(list(self.make(tmp_path, {}).poll()), [], "what nobody asked for")

    def test_waiting_comes_to_an_end_and_the_clock_with_it(self, tmp_path: Path) -> None:
        transport = self.make(tmp_path, {})
        begun = transport.now()
        while transport.now() < begun + PATIENCE:
            before = transport.now()
            transport.wait(begun + PATIENCE)
            expect(transport.now() > before, "waiting passes no time")
        expect_close(transport.now(), begun + PATIENCE, "when waiting ends")
