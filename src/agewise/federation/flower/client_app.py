"""The ClientApp: answers who it is, and carries orders out with the node's own configuration."""

from __future__ import annotations

import time
from logging import INFO, WARNING

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.logger import log

from agewise.errors import AgewiseError, InvalidInput
from agewise.federation.client import refusal_reason
from agewise.federation.flower.node import Node
from agewise.federation.messages import BadMessage, Order, Refusal

RECORD = "agewise"
"""The record of a Flower message that holds what Agewise says."""
CONFIG_KEY = "agewise-config"

app = ClientApp()


def _node(context: Context) -> Node:
    path = context.node_config.get(CONFIG_KEY)
    if not isinstance(path, str):
        raise InvalidInput(
            CONFIG_KEY, path, "the path of this node's TOML file",
            f"Start the node with --node-config '{CONFIG_KEY}=\"node.toml\"'.",
        )  # fmt: skip
    return Node(path)


def _reply(message: Message, **fields: str | float | int) -> Message:
    return Message(RecordDict({RECORD: ConfigRecord(dict(fields))}), reply_to=message)


@app.query()
def introduce(message: Message, context: Context) -> Message:
    """Say which client this node is, and what its clock shows."""
    try:
        name = _node(context).client.name
    except AgewiseError as error:
        log(WARNING, "agewise: %s", error)
        return _reply(message, client="", time=time.time())
    return _reply(message, client=name, time=time.time())


@app.train()
def answer(message: Message, context: Context) -> Message:
    """Carry an order out: the stored bytes, or one word of refusal. Details stay in this log."""
    node = _node(context)
    run, client = "?", node.client.name
    try:
        order = Order.decode(str(message.content[RECORD]["order"]).encode())
        run = order.run
        agent = node.agent(order.aggregate_at)
        try:
            payload = agent.answer(order)
        finally:
            if agent.ledger is not None:
                agent.ledger.close()
    except AgewiseError as error:
        log(WARNING, "agewise: refused: %s", error)
        reason = "order" if isinstance(error, BadMessage) else refusal_reason(error)
        refusal = Refusal(run=run, client=client, reason=reason)
        return _reply(message, refusal=refusal.encode().decode())
    if agent.clipped:
        log(INFO, "agewise: %d readings were moved to a state", agent.clipped)
    return _reply(message, upload=payload.decode())
