"""Flower keeps to the contract of all transports, on a grid in this process."""

import pytest
from flwr.app import Error, Message

from agewise.federation.flower.transport import FlowerSettings, FlowerTransport
from agewise.testing import FlowerGrid, FlowerNode, TransportContract, releases


class SlowGrid(FlowerGrid):
    """A grid on which the replies of some nodes take their time."""

    def __init__(self, nodes, clock, seconds):
        super().__init__(nodes)
        self.clock, self.seconds, self.slow, self.arrives = clock, seconds, set(), {}

    def _push(self, message):
        number = super()._push(message)
        if self.nodes[message.metadata.dst_node_id] in self.slow:
            self.arrives[number] = self.clock.time() + self.seconds
        return number

    def pull_messages(self, message_ids):
        here = [i for i in message_ids if self.arrives.get(i, 0.0) <= self.clock.time()]
        return super().pull_messages(here)


FAULTS = {
    "refuses": lambda message: Message(Error(6, "budget"), reply_to=message),
    "silent": lambda _: False,
}


class TestGrid(TransportContract):
    @pytest.fixture(autouse=True)
    def _clock(self, clock):
        self.clock = clock

    def make(self, folder, troubles):
        names = [client.name for client in self.problem.clients]
        nodes = {name: FlowerNode.of(folder, self.problem, name) for name in names}
        grid = SlowGrid(nodes.values(), self.clock, self.slow)
        for name, trouble in troubles.items():
            nodes[name].fault = FAULTS.get(trouble)
            if trouble == "slow":
                grid.slow.add(nodes[name])
        numbers = dict(zip(names, grid.nodes, strict=True))
        return FlowerTransport(grid, names, FlowerSettings("run", nodes=numbers), lambda _: None)

    def released(self, folder, name):
        return [event.payload for event in releases(folder / name).get(name, [])]
