"""The client: trains as it always did; the mod bounds, noises, records."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from agewise.federation.flower.client_app import introduce, node_of
from agewise.federation.flower.mod import age_dp_mod
from agewise.federation.sources import SimulatedRecords

app = ClientApp(mods=[age_dp_mod(clip=1.0)])
app.query("agewise")(introduce)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Return the share of records at each level."""
    node = node_of(context)
    states = node.client.process.states
    slot = message.content["agewise"]["collect-at"]
    records = SimulatedRecords(node.client, 1).collect(slot, node.client.samples)
    shares = np.array([(records == state).mean() for state in states])
    model = message.content["arrays"]["shares"].numpy() + shares
    content = RecordDict(
        {
            "arrays": ArrayRecord({"shares": Array(model)}),
            "metrics": MetricRecord({"collected-at": slot}),
        }
    )
    return Message(content, reply_to=message)
