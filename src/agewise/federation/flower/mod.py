"""For apps that exist already: a client mod that adds aged noise and the account, and a helper that
gives their ServerApp the plan.

The mod is the ordinary client with an outside learner: it bounds the update that the app's own
training returns, adds the node's noise for the age that the order states, records the release in
the node's ledger, and drops everything else from the reply but the update: metrics are not noised.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

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
from flwr.serverapp import Grid

from agewise.arrays import Array
from agewise.checks import positive
from agewise.errors import InvalidInput
from agewise.federation.client import (
    Draw,
    OrderRefused,
    private_noise,
    refuse_shift,
    release_event,
    stand_in_noise,
)
from agewise.federation.flower.client_app import (
    RECORD,
    before_in,
    node_of,
    order_in,
    refuse,
    told,
)
from agewise.federation.flower.node import Node
from agewise.federation.flower.transport import introductions
from agewise.federation.messages import BadMessage, Order
from agewise.federation.server import Server
from agewise.mechanism import MECHANISMS
from agewise.planning import Plan
from agewise.privacy.account import Event
from agewise.privacy.ledger import Ledger
from agewise.terms import Terms, outside_terms

NORM_SLACK = 1 + 1e-9
"""What rounding may add to a clipped norm."""


def age_dp_mod(clip: float, arrays: str = "arrays") -> Mod:
    """Return a mod that makes the update of a train reply private for the age of its data.

    `clip` bounds the norm of the update (ℓ1 for Laplace noise, ℓ2 for Gaussian): by how much the
    reply's `arrays` differ from those of the message, which must have the same names, shapes and
    types. Train messages must carry an order (`PlanHelper.order`). Arrays of whole numbers or truth
    values, such as the counters of batch normalisation, are sent back as they came. Messages of
    other types pass untouched: what an app answers to them, evaluations included, leaves without
    noise and without account. For the server to know which node is which client, the app must
    answer that: `app.query("agewise")(client_app.introduce)`.

    Guarantees
        The update that leaves has a norm of at most `clip` before noise, so that whatever the app
        computed, one record moves it by at most 2·clip; noise and ledger event are for that
        sensitivity, the node's own process, target, mechanism, aggregation slot and policy.
        Nothing is recorded that cannot be sent. Asked again for the same order, the
        stored update is sent. What goes wrong is a Flower error of one word, which strategies
        count as a failure.
    """
    bound = positive("clip", clip)

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if message.metadata.message_type.split(".")[0] != MessageType.TRAIN:
            return call_next(message, context)
        try:
            node, order = node_of(context, before_in(message)), order_in(message)
            before = _before(message, arrays)

            def reply_with(event: Event) -> Message:
                return _reply(message, before, arrays, event, node.client.samples)

            with Ledger(node.ledger) as ledger:
                stored = ledger.find(order.run)
                if stored is None:
                    node.refuse_round(order, ledger)
                    own = _terms(node, order, bound)
                    reply = call_next(message, context)
                    if reply.has_error():
                        raise InvalidInput("reply", "an error", "an update")
                    norm = MECHANISMS[own.target.mechanism].norm
                    update = _clipped(_update(reply, before, arrays), bound, norm)
                    stored = _release(node, ledger, order, update, own, reply_with)
                answer = reply_with(stored)
                if stored.private:
                    answer.content.config_records[RECORD].update(_spent(node, ledger, stored))
            return answer
        except Exception as error:
            return refuse(message, error)

    return mod


class PlanHelper:
    """What a ServerApp of one's own needs of a plan: who is which node, what is due, the order.

    Give every round its own `run` name: each is a release, and each is accounted for. `keyed`
    says which node has which client's key (`Deployment.load(folder).node_numbers()`), so that no
    node can take another's name; without it, nodes are believed. `before`: how many slots lie
    before the round, of a plan for many (`AgedStrategy` sees to names and slots).
    """

    def __init__(
        self,
        plan: Plan,
        run: str,
        keyed: Mapping[str, int] | None = None,
        before: int | None = None,
    ) -> None:
        if plan.problem.noise == "server":
            raise InvalidInput(
                "plan",
                "with noise by the server",
                "noise by each client, in an app of one's own",
                "Nobody would draw the noise: plan with noise client, or use agewise run.",
            )
        self.plan, self.run, self.keyed, self.before = plan, run, keyed, before
        self.server = Server(plan, run)

    def nodes(self, grid: Grid) -> dict[str, int]:
        """Client → node id, of those that are there: as their keys say, or else as they do."""
        names, here = {c.name for c in self.plan.problem.clients}, set(grid.get_node_ids())
        if self.keyed is not None:
            return {n: at for n, at in self.keyed.items() if n in names and at in here}
        introduced = introductions(grid, here)
        known: dict[str, int] = {}
        for node, (name, *_) in sorted(introduced.items()):
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
                return told(order, self.before)
        raise InvalidInput("client", repr(client), "a client of the plan")


def _before(message: Message, arrays: str) -> ArrayRecord:
    if arrays not in message.content.array_records or not message.content[arrays]:
        raise BadMessage("malformed", f"a train message without the arrays {arrays!r}")
    before = message.content.array_records[arrays]
    kinds = {base.numpy().dtype.kind for base in before.values()}
    if "f" not in kinds or kinds - set("fiub"):
        raise BadMessage("malformed", "arrays other than of floats, whole numbers, truth values")
    return before


def _update(reply: Message, before: ArrayRecord, arrays: str) -> Array:
    """By how much the arrays moved, as one vector. Their names and shapes must be the server's."""
    after = reply.content.array_records.get(arrays)
    if after is None or list(after) != list(before):
        raise InvalidInput("reply", "other arrays", "the arrays that the message had")
    parts = []
    for key, base in before.items():
        old, new = base.numpy(), after[key].numpy()
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise InvalidInput(
                f"array {key!r}", f"{new.dtype}{new.shape}", f"as it came: {old.dtype}{old.shape}"
            )
        if old.dtype.kind == "f":
            parts.append((new.astype(np.float64) - old.astype(np.float64)).ravel())
    vector = np.concatenate(parts)
    if not vector.size:
        raise InvalidInput("reply", "an empty update", "one number or more")
    return vector


def _clipped(update: Array, bound: float, norm: int = 1) -> Array:
    """Scale an update down to the bound in a norm; what is not finite counts as nothing."""
    finite = np.where(np.isfinite(update), update, 0.0)
    largest = float(np.abs(finite).max())
    if largest == 0:
        return finite
    direction = finite / largest
    parts = np.abs(direction) if norm == 1 else np.square(direction)
    length = math.fsum(parts.tolist()) ** (1 / norm)
    return np.asarray(finite if largest * length <= bound else direction * (bound / length))


def _terms(node: Node, order: Order, bound: float) -> Terms:
    """The noise for an update of bounded norm, by the node's own process and target."""
    profile, client = node.profile, node.client
    if order.client != client.name or order.fingerprint != client.process.fingerprint:
        raise OrderRefused(f"an order for {order.client!r} reached client {client.name!r}")
    if order.noise == "server":
        raise OrderRefused("noise is server in the order; an app of one's own has no such server")
    replace(profile, estimator=None, calibration=None, learner=None).refuse_other(order)
    refuse_shift(client.process, profile.starts_at)
    return outside_terms(
        replace(client, weight=None),
        profile.target(profile.calibration or "sharp"),
        2 * bound * NORM_SLACK,
        order.collect_at,
        order.aggregate_at,
    )


def _release(
    node: Node,
    ledger: Ledger,
    order: Order,
    update: Array,
    terms: Terms,
    reply_with: Callable[[Event], Message],
) -> Event:
    """Noise a clipped update and record it, in one transaction, if a reply can be made of it."""
    profile, seed = node.profile, node.config.stand_in_seed
    noise: Draw = private_noise
    if seed is not None:
        noise = stand_in_noise(seed, f"{node.client.name}/{order.run}")

    def make(_: Sequence[Event]) -> Event:
        noised = noise(update, terms, terms.scale)
        payload = np.asarray(noised.value, dtype="<f8").tobytes()
        event = replace(release_event(profile, order, terms, noised), payload=payload)
        reply_with(event)
        return event

    return ledger.release(
        order.run, make, profile.policy, node.client.process, profile.method, profile.law
    )


def _spent(node: Node, ledger: Ledger, stored: Event) -> dict[str, float]:
    """What all releases of this client's ledger add up to, as seen when this one is published."""
    profile = node.profile
    total = ledger.total(node.client.process, stored.aggregate_at, profile.method, profile.law)
    return {"total_aged": total.aged, "total_classical": total.classical}


def _reply(
    message: Message, before: ArrayRecord, arrays: str, stored: Event, samples: int
) -> Message:
    """The stored update, added to the server's arrays. Nothing else of the app's reply leaves."""
    vector, at = np.frombuffer(stored.payload, dtype="<f8"), 0
    olds = {key: base.numpy() for key, base in before.items()}
    if vector.size != sum(old.size for old in olds.values() if old.dtype.kind == "f"):
        raise OrderRefused(f"run {stored.key!r} was released for arrays of other sizes")
    folded: OrderedDict[str, FlowerArray] = OrderedDict()
    for key, old in olds.items():
        if old.dtype.kind != "f":
            folded[key] = before[key]
            continue
        part = vector[at : at + old.size].reshape(old.shape) + old.astype(np.float64)
        limits = np.finfo(old.dtype)  # noise may be more than a short float can hold
        part = np.clip(part, limits.min, limits.max)
        folded[key], at = FlowerArray(np.asarray(part, dtype=old.dtype)), at + old.size
    content = RecordDict(
        {
            arrays: ArrayRecord(folded),
            "metrics": MetricRecord({"num-examples": samples}),
            RECORD: ConfigRecord({"collect_at": stored.collect_at, "private": stored.private}),
        }
    )
    return Message(content, reply_to=message)
