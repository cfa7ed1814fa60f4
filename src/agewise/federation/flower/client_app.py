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


def node_of(context: Context) -> Node:
    """The node that this process belongs to, by the configuration it was started with."""
    path = context.node_config.get(CONFIG_KEY)
    if not isinstance(path, str):
        raise InvalidInput(
            CONFIG_KEY, path, "the path of this node's TOML file",
            f"Start the node with --node-config '{CONFIG_KEY}=\"node.toml\"'.",
        )  # fmt: skip
    return Node(path)


def reply_to(message: Message, **fields: str | float | int) -> Message:
    """A reply with these fields in our record."""
    return Message(RecordDict({RECORD: ConfigRecord(dict(fields))}), reply_to=message)


@app.query("agewise")
def introduce(message: Message, context: Context) -> Message:
    """Say which client this node is, and what its clock shows."""
    try:
        name = node_of(context).client.name
    except AgewiseError as error:
        log(WARNING, "agewise: %s", error)
        return reply_to(message, client="", time=time.time())
    return reply_to(message, client=name, time=time.time())


@app.train()
def answer(message: Message, context: Context) -> Message:
    """Carry an order out: the stored bytes, or one word of refusal. Details stay in this log."""
    node = node_of(context)
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
        return reply_to(message, refusal=refusal.encode().decode())
    if agent.clipped:
        log(INFO, "agewise: %d readings were moved to a state", agent.clipped)
    return reply_to(message, upload=payload.decode())
