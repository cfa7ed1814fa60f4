"""What every `Transport` must do: a class of tests that the tests of each one inherit."""

import pytest

import agewise as aw
from agewise.federation.server import Server

PROBLEM = aw.scenarios.london()
PLAN = aw.plan(PROBLEM)
NAMES = [c.name for c in PROBLEM.clients]
PATIENCE = 60.0
"""Seconds by the transport's clock within which an order is to be answered."""
SLOW = 90.0
"""Seconds that a slow client takes."""


class TransportContract:
    """A subclass has a fixture `make`: a function from troubles to a transport.

    Troubles are a dictionary from clients to `refuses` (its budget), `silent` or `slow`. What a
    client has released is in `self.released(name)`, oldest first.
    """

    @pytest.fixture
    def orders(self):
        server = Server(PLAN, "run")
        slots = range(1, PROBLEM.aggregate_at + 1)
        return [order for slot in slots for order in server.orders(slot)]

    def gather(self, transport, orders):
        """Send until everybody was heard or the time is over: as the engine does."""
        until, replies = transport.now() + PATIENCE, []
        waiting = list(orders)
        while waiting and transport.now() < until:
            transport.send(waiting, until)
            replies += transport.poll()
            heard = {reply.client for reply in replies}
            waiting = [order for order in orders if order.client not in heard]
            if waiting:
                transport.wait(until)
        return replies

    def test_orders_are_delivered_and_what_was_recorded_comes_back(self, make, orders):
        replies = self.gather(make({}), orders)
        assert sorted(reply.client for reply in replies) == NAMES
        for reply in replies:
            assert reply.refusal is None
            assert self.released(reply.client) == [reply.payload]

    def test_a_refusal_is_one_word_and_nothing_is_released(self, make, orders):
        replies = self.gather(make({"client 2": "refuses"}), orders)
        assert sorted(reply.client for reply in replies) == NAMES
        assert {r.client: r.refusal for r in replies if r.refusal} == {"client 2": "budget"}
        assert self.released("client 2") == []

    def test_silence_lasts_until_the_deadline_and_no_longer(self, make, orders):
        transport = make({"client 3": "silent"})
        begun = transport.now()
        replies = self.gather(transport, orders)
        assert sorted(reply.client for reply in replies) == ["client 1", "client 2"]
        assert transport.now() == pytest.approx(begun + PATIENCE, abs=1e-3)

    def test_a_late_reply_comes_back_all_the_same(self, make, orders):
        transport = make({"client 1": "slow"})
        begun = transport.now()
        replies = [r for r in self.gather(transport, orders) if r.client == "client 1"]
        while not replies and transport.now() < begun + 2 * SLOW:
            transport.wait(begun + 2 * SLOW)
            replies = [r for r in transport.poll() if r.client == "client 1"]
        assert transport.now() >= begun + SLOW
        assert {reply.payload for reply in replies} == set(self.released("client 1"))
        assert len(self.released("client 1")) == 1

    def test_a_retry_has_the_same_bytes(self, make, orders):
        transport = make({})
        first = {reply.client: reply.payload for reply in self.gather(transport, orders)}
        for _ in range(3):
            transport.wait(transport.now() + PATIENCE)
            again = {reply.client: reply.payload for reply in self.gather(transport, orders)}
            assert again == first
        assert all(self.released(name) == [first[name]] for name in NAMES)

    def test_nothing_comes_back_unasked(self, make):
        assert list(make({}).poll()) == []

    def test_waiting_comes_to_an_end_and_the_clock_with_it(self, make):
        transport = make({})
        begun = transport.now()
        while transport.now() < begun + PATIENCE:
            before = transport.now()
            transport.wait(begun + PATIENCE)
            assert transport.now() > before
        assert transport.now() == pytest.approx(begun + PATIENCE, abs=1e-3)
