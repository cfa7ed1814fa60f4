"""The transports that need nothing but this process keep to the contract of all."""

import math

import pytest
from faults import FaultyTransport, World
from observer import Observer

import agewise as aw
from agewise.federation import local
from agewise.testing import Clock, TransportContract, releases
from parties import LocalTransport, Settings

PLAN = aw.plan(TransportContract.problem)


class InProcess(TransportContract):
    def released(self, folder, name):
        return [event.payload for event in releases(folder).get(name, [])]

    def answering(self, folder, troubles, pass_time):
        """What clients do with an order, whoever brings it."""
        settings = Settings(run="run", seed=7, stand_in=False, ledgers=str(folder))
        run = local.LocalRun(PLAN, settings, None, None)

        def answer(order):
            if troubles.get(order.client) == "refuses":
                raise aw.BudgetExceeded("spent")
            if troubles.get(order.client) == "slow":
                pass_time(self.slow)
            return run.answer(order)

        return answer


def silent(troubles):
    return [name for name, trouble in troubles.items() if trouble == "silent"]


class TestWallClock(InProcess):
    @pytest.fixture(autouse=True)
    def _clock(self):
        with Clock().kept_by() as self.clock:
            yield

    def make(self, folder, troubles):
        answer = self.answering(folder, troubles, self.clock.sleep)
        return LocalTransport(answer, "wall", silent(troubles))


class TestVirtualClock(InProcess):
    def make(self, folder, troubles):
        def pass_time(seconds):
            made.wait(made.now() + seconds)

        answer = self.answering(folder, troubles, pass_time)
        made = LocalTransport(answer, "virtual", silent(troubles))
        return made


class TestFaultless(InProcess):
    """The simulator's network, in a world without faults."""

    @pytest.fixture(autouse=True)
    def _observer(self, tmp_path):
        self.world = World(0)
        self.world.left = 0
        self.observer = Observer(self.world, PLAN, tmp_path, math.inf)
        self.observer.account = lambda _: None  # which is for chains that start from their own law
        yield
        self.observer.close()

    def make(self, folder, troubles):
        for name, trouble in troubles.items():
            self.world.down[name] = math.inf if trouble == "silent" else 0.0
        answer = self.answering(folder, troubles, self.world.pass_time)
        return FaultyTransport(self.world, self.observer, answer)
