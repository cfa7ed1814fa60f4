# mypy: ignore-errors
# ruff: noqa: ARG001
"""A mean of 100 records per client by Flower's simulation, without noise, in an own environment.

Run by `benchmarks.private_mean`: `python flower_mean.py CLIENTS`. Prints seconds as JSON, of as
many clients as it says: a second round, when the workers are up.
"""

import json
import logging
import sys
import time

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

logging.disable(logging.CRITICAL)
MOST = 200
nodes = min(MOST, int(sys.argv[1]))
client, server, told = ClientApp(), ServerApp(), {}


@client.train()
def train(message, context):
    records = np.random.default_rng(1).choice([20.0, 50.0, 100.0, 200.0], size=100)
    arrays = ArrayRecord({"mean": Array(np.array([records.mean()]))})
    return Message(RecordDict({"arrays": arrays}), reply_to=message)


@server.main()
def main(grid, context):
    while len(list(grid.get_node_ids())) < nodes:
        time.sleep(0.1)
    for _ in range(2):
        begun = time.perf_counter()
        empty = {"arrays": ArrayRecord({"mean": Array(np.zeros(1))})}
        messages = [
            Message(RecordDict(empty), node, MessageType.TRAIN) for node in grid.get_node_ids()
        ]
        replies = list(grid.send_and_receive(messages))
        np.mean([float(one.content["arrays"]["mean"].numpy()[0]) for one in replies])
        told["seconds"] = time.perf_counter() - begun


run_simulation(
    server_app=server,
    client_app=client,
    num_supernodes=nodes,
    backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
)
print(json.dumps({"simulation": told["seconds"], "clients": nodes}))
