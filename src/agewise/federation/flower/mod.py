"""For apps that exist already: a client mod that adds aged noise and the account, and a helper that
gives their ServerApp the plan.

The mod bounds the update that the app's own training returns, adds Laplace noise for the age that
the order states, records the release in the node's ledger, and drops everything else from the reply
but the update: metrics are not noised.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from logging import WARNING

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.common.logger import log
from flwr.serverapp import Grid

from agewise.errors import AgewiseError, InvalidInput, positive
from agewise.federation.client import OrderRefused, own_terms, refusal_reason
from agewise.federation.flower.client_app import RECORD, node_of, reply_to
from agewise.federation.flower.node import Node
from agewise.federation.flower.server_app import introductions
from agewise.federation.messages import BadMessage, Order, Refusal
from agewise.federation.server import Server
from agewise.federation.sources import client_generator
from agewise.plan import Plan
from agewise.privacy.ageing import aged_epsilon, classical_epsilon
from agewise.privacy.ledger import Event, Ledger, now
from agewise.privacy.mechanisms import laplace, seeded_laplace
from agewise.process.joint import Array

NORM_SLACK = 1 + 1e-9
"""What rounding may add to a clipped norm."""


def age_dp_mod(clip: float, arrays: str = "arrays") -> Mod:
    """Return a mod that makes the update of a train reply private for the age of its data.

    `clip` bounds the ℓ1 norm of the update: what the reply's `arrays` differ from those of the
    message (or the reply's alone, if the message has none). Messages of type train must carry an
    order (`PlanHelper.order`). All other messages pass. For the server to know which node is
    which client, the app must answer that too: `app.query("agewise")(client_app.introduce)`.

    Guarantees
        The update that leaves has an ℓ1 norm of at most `clip` before noise, so that whatever
        the app computed, one record moves it by at most 2·clip; noise and ledger event are for
        that sensitivity, the node's own process, target and policy (formula calibration). Asked
        again for the same order, the stored update is sent. A reply that errs is passed on.
    """
    bound = positive("clip", clip)

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        kind = message.metadata.message_type.split(".")[0]
        if kind != MessageType.TRAIN:
            return call_next(message, context)
        node = node_of(context)
        try:
            order = _order(message)
            with Ledger(node.ledger) as ledger:
                stored = ledger.find(order.run)
                if stored is None:
                    reply = call_next(message, context)
                    if reply.has_error():
                        return reply
                    update, shapes = _update(message, reply, arrays)
                    stored = _release(node, ledger, order, _clipped(update, bound), bound, shapes)
        except AgewiseError as error:
            log(WARNING, "agewise: refused: %s", error)
            reason = "order" if isinstance(error, BadMessage) else refusal_reason(error)
            refusal = Refusal(run="?", client=node.client.name, reason=reason)
            return reply_to(message, refusal=refusal.encode().decode())
        return _reply(message, arrays, stored, node.client.samples)

    return mod


class PlanHelper:
    """What a ServerApp of one's own needs of a plan: who is which node, what is due, the order.

    Give every round its own `run` name: each is a release, and each is accounted for.
    """

    def __init__(self, plan: Plan, run: str) -> None:
        self.plan, self.run = plan, run
        self.server = Server(plan, run)

    def nodes(self, grid: Grid) -> dict[str, int]:
        """Ask the nodes of a grid for their names: client → node id."""
        names = {c.name for c in self.plan.problem.clients}
        found = introductions(grid, set(grid.get_node_ids()))
        known: dict[str, int] = {}
        for node, (name, *_) in sorted(found.items()):
            if name in known:
                raise InvalidInput(
                    "nodes", f"{known[name]} and {node} both claim client {name!r}", "one each"
                )
            if name in names:
                known[name] = node
        return known

    def due(self, slot: int) -> list[str]:
        """The clients that collect in a slot."""
        return [one.client for one in self.plan.assignments if one.collect_at == slot]

    def order(self, client: str) -> ConfigRecord:
        """A client's order, to be sent as the record "agewise" of a train message."""
        for one in self.plan.assignments:
            if one.client == client:
                order = next(o for o in self.server.orders(one.collect_at) if o.client == client)
                return ConfigRecord({"order": order.encode().decode()})
        raise InvalidInput("client", repr(client), "a client of the plan")


def _order(message: Message) -> Order:
    if RECORD not in message.content:
        raise BadMessage("malformed", f"a train message without the record {RECORD!r}")
    return Order.decode(str(message.content[RECORD].get("order", "")).encode())


Shapes = list[tuple[str, tuple[int, ...], str]]
"""Of each array: its name, shape and dtype."""


def _before(message: Message, arrays: str) -> dict[str, Array]:
    if arrays not in message.content.array_records:
        return {}
    record = message.content.array_records[arrays]
    return {key: value.numpy().astype(np.float64) for key, value in record.items()}


def _update(message: Message, reply: Message, arrays: str) -> tuple[Array, Shapes]:
    """The update as one vector of floats, and how to fold it back."""
    if arrays not in reply.content.array_records:
        raise InvalidInput("reply", f"without the arrays {arrays!r}", "the arrays of an update")
    before, parts, shapes = _before(message, arrays), [], []
    for key, value in reply.content.array_records[arrays].items():
        after = value.numpy()
        base = before.get(key)
        if base is not None and base.shape != after.shape:
            raise InvalidInput(f"shape of array {key!r}", after.shape, f"{base.shape}, as received")
        moved = after.astype(np.float64) - (0.0 if base is None else base)
        parts.append(moved.ravel())
        shapes.append((key, after.shape, str(after.dtype)))
    vector = np.concatenate(parts) if parts else np.empty(0)
    if not vector.size:
        raise InvalidInput("reply", "an empty update", "one number or more")
    return vector, shapes


def _clipped(update: Array, bound: float) -> Array:
    """Scale an update down to the bound; what is not finite counts as nothing."""
    finite = np.where(np.isfinite(update), update, 0.0)
    largest = float(np.abs(finite).max())
    if largest == 0:
        return finite
    norm = largest * math.fsum((np.abs(finite) / largest).tolist())
    return np.asarray(finite if norm <= bound else finite * (bound / norm))


def _release(
    node: Node, ledger: Ledger, order: Order, update: Array, bound: float, shapes: Shapes
) -> Event:
    """Noise a clipped update and record it, in one transaction."""
    profile, client = node.profile, node.client
    if order.client != client.name or order.fingerprint != client.process.fingerprint:
        raise OrderRefused(f"an order for {order.client!r} reached client {client.name!r}")
    if not order.collect_at <= order.aggregate_at:
        raise OrderRefused(f"collect_at is {order.collect_at}, after the aggregation")
    terms = own_terms(
        client, profile.epsilon, profile.mixing, "plain", "formula", order.collect_at,
        order.aggregate_at, profile.starts_at,
    )  # fmt: skip
    share = float(terms.table.delta[0])
    allowed = classical_epsilon(profile.epsilon, share)
    reach = 2 * bound * NORM_SLACK

    def make(_: list[Event]) -> Event:
        seed = node.config.stand_in_seed
        if seed is None:
            noised = laplace(update, sensitivity=reach, epsilon=allowed)
        else:
            rng = client_generator(seed, f"{client.name}/{order.run}", "noise")
            noised = seeded_laplace(update, scale=reach / allowed, rng=rng)
        spent = allowed if noised.epsilon is None else noised.epsilon
        return Event(
            key=order.run, client=client.name, collect_at=order.collect_at + profile.starts_at,
            aggregate_at=order.aggregate_at + profile.starts_at, epsilon=spent,
            aged_epsilon=aged_epsilon(spent, share), sensitivity=reach, scale=noised.scale,
            private=noised.private, mixing=profile.method,
            fingerprint=client.process.fingerprint, made_at=now(),
            payload=json.dumps(shapes).encode() + b"\n"
            + np.asarray(noised.value, dtype="<f8").tobytes(),
        )  # fmt: skip

    return ledger.release(
        order.run, make, profile.policy, client.process, profile.method, profile.law
    )


def _reply(message: Message, arrays: str, stored: Event, samples: int) -> Message:
    """The stored update, folded back into arrays. Nothing else of the app's reply leaves."""
    header, _, numbers = stored.payload.partition(b"\n")
    vector, at = np.frombuffer(numbers, dtype="<f8"), 0
    before = _before(message, arrays)
    folded: OrderedDict[str, FlowerArray] = OrderedDict()
    for key, shape, dtype in json.loads(header):
        size = math.prod(shape)
        part = vector[at : at + size].reshape(shape) + before.get(key, 0.0)
        folded[key], at = FlowerArray(part.astype(dtype)), at + size
    content = RecordDict(
        {
            arrays: ArrayRecord(folded),
            "metrics": MetricRecord({"num-examples": samples}),
            RECORD: ConfigRecord({"collect_at": stored.collect_at, "private": stored.private}),
        }
    )
    return Message(content, reply_to=message)
