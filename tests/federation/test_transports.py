"""The transports that need nothing but this process keep to the contract of all."""

import math

import pytest
from clock import Clock
from faults import FaultyTransport, World
from observer import Observer
from transport_contract import PLAN, SLOW, TransportContract

import agewise as aw
from agewise.federation import local, local_transport
from agewise.federation.files import ledger_file
from agewise.federation.journal import Settings
from agewise.federation.local import LocalTransport


class InProcess(TransportContract):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path):
        self.folder = tmp_path
        settings = Settings(run="run", seed=7, stand_in=False, ledgers=str(tmp_path))
        self.run = local.LocalRun(PLAN, settings, None, None)

    def released(self, name):
        path = ledger_file(self.folder, name)
        if not path.exists():
            return []
        with aw.Ledger.read(path) as ledger:
            return [event.payload for event in ledger.events()]

    def answering(self, troubles, pass_time):
        """What clients do with an order, whoever brings it."""

        def answer(order):
            if troubles.get(order.client) == "refuses":
                raise aw.BudgetExceeded("spent")
            if troubles.get(order.client) == "slow":
                pass_time(SLOW)
            return self.run.answer(order)

        return answer


class TestWallClock(InProcess):
    @pytest.fixture
    def make(self, monkeypatch):
        clock = Clock()
        monkeypatch.setattr(local_transport, "time", clock)

        def make(troubles):
            silent = [name for name, trouble in troubles.items() if trouble == "silent"]
            return LocalTransport(self.answering(troubles, clock.sleep), "wall", silent)

        return make


class TestVirtualClock(InProcess):
    @pytest.fixture
    def make(self):
        def make(troubles):
            silent = [name for name, trouble in troubles.items() if trouble == "silent"]

            def pass_time(seconds):
                made.wait(made.now() + seconds)

            made = LocalTransport(self.answering(troubles, pass_time), "virtual", silent)
            return made

        return make


class TestFaultless(InProcess):
    """The simulator's network, in a world without faults."""

    @pytest.fixture
    def make(self):
        world = World(0)
        world.left = 0
        observer = Observer(world, PLAN, self.folder, math.inf)
        observer.account = lambda _: None  # which is for chains that start from their own law

        def make(troubles):
            for name, trouble in troubles.items():
                world.down[name] = math.inf if trouble == "silent" else 0.0
            return FaultyTransport(world, observer, self.answering(troubles, world.pass_time))

        yield make
        observer.close()
