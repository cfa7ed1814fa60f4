"""The server: sends each client its order in its slot, and averages what comes back."""

import time

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

import agewise as aw
from agewise.federation.flower.deployment import Deployment
from agewise.federation.flower.mod import PlanHelper

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Go through the slots of the plan."""
    problem = aw.scenarios.london().replace(epsilon=context.run_config["epsilon"])
    folder = context.run_config["deployment"]
    keyed = Deployment.load(folder).node_numbers() if folder else None
    helper = PlanHelper(aw.plan(problem), context.run_config["run"], keyed)
    nodes = helper.nodes(grid)
    while len(nodes) < len(problem.clients):
        time.sleep(2)
        nodes = helper.nodes(grid)
    start = ArrayRecord({"shares": Array(np.zeros(4))})
    model = np.zeros(4)
    weights = {c.name: w for c, w in zip(problem.clients, problem.weights, strict=True)}
    for slot in range(1, problem.aggregate_at + 1):
        for name in helper.due(slot):
            content = RecordDict({"arrays": start, "agewise": helper.order(name)})
            message = Message(content, nodes[name], MessageType.TRAIN, ttl=120.0)
            (reply,) = grid.send_and_receive([message], timeout=120.0)
            if reply.has_error():  # a refusal is an error of one word, such as "budget"
                raise RuntimeError(f"{name} did not answer: {reply.error.reason}")
            model += weights[name] * reply.content["arrays"]["shares"].numpy()
            print(f"slot {slot}: {name} uploaded")
    print("shares of records at 20, 50, 100 and 200 Wh:", model.round(3).tolist())
