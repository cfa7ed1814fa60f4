"""The ClientApp: answers who it is, and carries orders out with the node's own configuration."""

from __future__ import annotations

import time
from logging import WARNING
from typing import get_args

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.common.logger import log

from agewise.errors import AgewiseError, InvalidInput
from agewise.federation.client import refusal_reason
from agewise.federation.flower.node import Node
from agewise.federation.flower.updates import UpdateRefused
from agewise.federation.messages import BadMessage, Order, RefusalReason

RECORD = "agewise"
"""The record of a Flower message that holds what Agewise says."""
CONFIG_KEY = "agewise-config"
REASONS: tuple[str, ...] = get_args(RefusalReason)

app = ClientApp()


def node_of(context: Context, before: int | None = None) -> Node:
    """The node that this process belongs to, by the configuration it was started with.

    `before`: how many slots lie before a round of many (see `before_in`).
    """
    path = context.node_config.get(CONFIG_KEY)
    if not isinstance(path, str):
        raise InvalidInput(
            CONFIG_KEY,
            path,
            "the path of this node's TOML file",
            f"Start the node with --node-config '{CONFIG_KEY}=\"node.toml\"'.",
        )
    return Node(path, before)


def reply_to(message: Message, **fields: str | float | int) -> Message:
    """A reply with these fields in our record."""
    return Message(RecordDict({RECORD: ConfigRecord(dict(fields))}), reply_to=message)


@app.query("agewise")
def introduce(message: Message, context: Context) -> Message:
    """Say which client this node is, and what its clock shows.

    If the message carries an order, try it first, release nothing, and refuse if `answer` would.
    """
    try:
        node = node_of(context, before_in(message))
        if RECORD in message.content and "order" in message.content[RECORD]:
            node.rehearse(order_in(message))
    except Exception as error:
        return refuse(message, error)
    return reply_to(message, client=node.client.name, time=time.time())


@app.train()
def answer(message: Message, context: Context) -> Message:
    """Carry an order out: the stored bytes, or one word of refusal. Details stay in this log."""
    try:
        payload, clipped = node_of(context, before_in(message)).answer(order_in(message))
    except Exception as error:
        return refuse(message, error)
    if clipped:
        log(
            WARNING,
            "agewise: %d readings are not as the scenario's model has them; "
            "the expected loss does not apply, unless its states stand for ranges of readings",
            clipped,
        )
    return reply_to(message, upload=payload.decode())


def order_in(message: Message) -> Order:
    """The order that a message carries."""
    if RECORD not in message.content or "order" not in message.content[RECORD]:
        raise BadMessage("malformed", f"a message without an order in the record {RECORD!r}")
    return Order.decode(str(message.content[RECORD]["order"]).encode())


def before_in(message: Message) -> int | None:
    """How many slots lie before the round that a message is about; None: no round of many."""
    before = (message.content.config_records.get(RECORD) or ConfigRecord()).get("before")
    if before is not None and not isinstance(before, int):
        raise BadMessage("malformed", f"before is {before!r}; allowed: a number of slots")
    return before


def told(order: Order, before: int | None) -> ConfigRecord:
    """The record of a message that carries an order, of a round of many with what lies before."""
    record = ConfigRecord({"order": order.encode().decode()})
    if before is not None:
        record["before"] = before
    return record


def refuse(message: Message, error: Exception) -> Message:
    """An error as Flower's strategies count them: one word; everything else is for our own log."""
    log(WARNING, "agewise: refused: %s: %s", type(error).__name__, error)
    reason: RefusalReason = "records"
    if isinstance(error, BadMessage):
        reason = "order"
    elif isinstance(error, UpdateRefused):
        reason = error.reason
    elif isinstance(error, AgewiseError):
        reason = refusal_reason(error)
    return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, reason), reply_to=message)


def refusal_in(message: Message) -> str | None:
    """The word with which a client refused; None if the message is anything else."""
    refused = message.has_error() and message.error.code == ErrorCode.MOD_FAILED_PRECONDITION
    return message.error.reason if refused and message.error.reason in REASONS else None
