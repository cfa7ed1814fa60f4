"""Flower keeps to the contract of all transports, on a grid in this process."""

import pytest
from flwr.app import Error, Message
from grid import InProcessGrid, Node
from transport_contract import NAMES, PROBLEM, SLOW, TransportContract

import agewise as aw
from agewise.federation.flower import client_app
from agewise.federation.flower.node import write_node
from agewise.federation.flower.transport import FlowerSettings, FlowerTransport


class SlowGrid(InProcessGrid):
    """A grid on which the replies of some nodes take their time."""

    def __init__(self, nodes, clock):
        super().__init__(nodes)
        self.clock, self.slow, self.arrives = clock, set(), {}

    def _push(self, message):
        number = super()._push(message)
        if self.nodes[message.metadata.dst_node_id] in self.slow:
            self.arrives[number] = self.clock.time() + SLOW
        return number

    def pull_messages(self, message_ids):
        here = [i for i in message_ids if self.arrives.get(i, 0.0) <= self.clock.time()]
        return super().pull_messages(here)


class TestGrid(TransportContract):
    @pytest.fixture
    def make(self, tmp_path, clock):
        self.folder = tmp_path
        nodes = {name: self.node(name) for name in NAMES}
        faults = {
            "refuses": lambda message: Message(Error(6, "budget"), reply_to=message),
            "silent": lambda _: False,
        }

        def make(troubles):
            grid = SlowGrid(nodes.values(), clock)
            for name, trouble in troubles.items():
                nodes[name].fault = faults.get(trouble)
                if trouble == "slow":
                    grid.slow.add(nodes[name])
            numbers = dict(zip(NAMES, grid.nodes, strict=True))
            settings = FlowerSettings("run", nodes=numbers)
            return FlowerTransport(grid, NAMES, settings, lambda _: None)

        return make

    def node(self, name):
        path = self.folder / name / "node.toml"
        records = {"kind": "simulated", "seed": 7}
        write_node(path, PROBLEM, name, records=records, policy=aw.Policy())
        return Node(client_app.app, {"agewise-config": str(path)})

    def released(self, name):
        path = self.folder / name / "releases.ledger"
        if not path.exists():
            return []
        with aw.Ledger.read(path) as ledger:
            return [event.payload for event in ledger.events()]
