"""For apps that exist already: a client mod that adds aged noise and the account, and a helper that
gives their ServerApp the plan.

The mod is the ordinary client with an outside learner: it bounds the update that the app's own
training returns, adds the node's noise for the age that the order states, records the release in
the node's ledger, and drops everything else from the reply but the update and the metrics that were
asked for, which are noised with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
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
from agewise.calibration import Terms, outside_terms
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
from agewise.federation.flower.updates import (
    COUNT,
    METRIC_SHARE,
    Bounds,
    UpdateRefused,
    checked_bounds,
    clipped_mean,
    mean_sensitivity,
    metric_rows,
    metrics_of,
    model_in,
    moved,
    record_updates,
    refuse_other_slot,
    whole_update,
)
from agewise.federation.messages import Order
from agewise.federation.server import Server
from agewise.mechanism import MECHANISMS
from agewise.planning import Plan
from agewise.privacy.account import Event
from agewise.privacy.ledger import Ledger


def age_dp_mod(
    clip: float,
    arrays: str = "arrays",
    per_record: bool = False,
    metrics: Bounds | None = None,
) -> Mod:
    """Return a mod that makes the update of a train reply private for the age of its data.

    `clip` bounds a norm: ℓ1 for Laplace noise, ℓ2 for Gaussian. Of what, `per_record` says:

    - False: of the whole update, by how much the reply's `arrays` differ from those of the message,
      which must have the same names, shapes and types. One record may change all of it, by 2·clip,
      so any training procedure will do. The classical ε then protects all records of the client
      together; the aged ε one record, for which alone ageing is worked out.
    - True: of each record's own update, and their mean is released: one record of n changes it by
      2·clip/n, and both ε's protect one record. The reply holds in the array record "per-record"
      for each float array an array `[n, *shape]`, n the `samples` of the node's own scenario: row i
      is the update that record i asks for, such as its gradient times minus the learning rate.
      **Row i may depend on record i and on the server's arrays, and on no other record.** The mod
      cannot check that.

    The app finds the slot to collect in, counted in the node's own slots, in
    `message.content["agewise"]["collect-at"]`, and must return the slot in which its data were
    collected as the metric "collected-at".

    `metrics` names those that leave, with noise, and between which numbers they lie:
    `{"loss": (0.0, 2.0)}`. The reply has them as lists with one number for each record
    (`per_record`), or as one number. They are coordinates of the same release, scaled so that each
    adds a tenth of the clip to the sensitivity. Without it no metric leaves.

    Train messages must carry an order (`AgedStrategy` or `PlanHelper.order`). Arrays of whole
    numbers or truth values, such as the counters of batch normalisation, are sent back as they
    came. Messages of other types pass untouched: what an app answers to them, evaluations included,
    leaves without noise and without account. For the server to know which node is which client
    where nodes have no keys, the app must answer that:
    `app.query("agewise")(client_app.introduce)`.

    Guarantees
        What leaves is the mean of rows that were clipped here, with noise; noise and ledger event
        are for that sensitivity, the node's own process, target, mechanism, aggregation slot and
        policy. A row with anything in it that is not finite counts as zeros, and how many there
        were stays with the node. If the app names another slot or none, nothing is released.
        Nothing is recorded that cannot be sent. Asked again for the same order, the stored update
        is sent. What goes wrong is a Flower error of one word, which strategies count as a failure.
    """
    bound, told = positive("clip", clip), checked_bounds(metrics)
    stamp = repr(list(told.items())).encode() if told else b""
    whole = bound * (1 + METRIC_SHARE * len(told))

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if message.metadata.message_type.split(".")[0] != MessageType.TRAIN:
            return call_next(message, context)
        try:
            node, order = node_of(context, before_in(message)), order_in(message)
            model, samples = model_in(message, arrays), node.client.samples
            count = samples if per_record else 1
            reach = mean_sensitivity(whole, count)

            def reply_with(event: Event) -> Message:
                if not event.payload.endswith(stamp):
                    raise OrderRefused(
                        f"run {order.run!r} was released with other metrics than {list(told)} or "
                        "other bounds. Give the run a new name."
                    )
                vector = np.frombuffer(event.payload.removesuffix(stamp), dtype="<f8")
                update, rest = np.split(vector, [vector.size - len(told)])
                after = {COUNT: samples, **metrics_of(rest, bound, told)}
                return _reply(message, model, arrays, update, after, event, per_record)

            with Ledger(node.ledger) as ledger:
                stored = ledger.find(order.run)
                if stored is None:
                    node.refuse_round(order, ledger)
                    own = _terms(node, order, reach)
                    slot = order.collect_at + node.profile.starts_at
                    message.content.config_records[RECORD]["collect-at"] = slot
                    reply = call_next(message, context)
                    if reply.has_error():
                        raise InvalidInput("reply", "an error", "an update")
                    refuse_other_slot(reply, slot)
                    rows = (
                        record_updates(reply, model, samples)
                        if per_record
                        else whole_update(reply, model, arrays)
                    )
                    update = clipped_mean(rows, bound, MECHANISMS[own.target.mechanism].norm)
                    beside = metric_rows(reply, told, count).mean(axis=0) * METRIC_SHARE * bound
                    update = np.concatenate([update, beside])
                    stored = _release(node, ledger, order, update, own, stamp, reply_with)
                elif stored.sensitivity != reach:
                    raise OrderRefused(
                        f"run {order.run!r} was released for a sensitivity of "
                        f"{stored.sensitivity:g}, and clip, samples and metrics say {reach:g} now. "
                        "Give the run a new name."
                    )
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
        if plan.problem.server_adds_noise:
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


def _terms(node: Node, order: Order, sensitivity: float) -> Terms:
    """The noise for an update of this sensitivity, by the node's own process and target."""
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
        sensitivity,
        order.collect_at,
        order.aggregate_at,
    )


def _release(
    node: Node,
    ledger: Ledger,
    order: Order,
    update: Array,
    terms: Terms,
    stamp: bytes,
    reply_with: Callable[[Event], Message],
) -> Event:
    """Noise a clipped update and record it, in one transaction, if a reply can be made of it."""
    profile, seed = node.profile, node.config.stand_in_seed
    noise: Draw = private_noise
    if seed is not None:
        noise = stand_in_noise(seed, f"{node.client.name}/{order.run}")

    def make(_: Sequence[Event]) -> Event:
        noised = noise(update, terms, terms.scale)
        payload = np.asarray(noised.value, dtype="<f8").tobytes() + stamp
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
    return {
        "total_aged": total.aged,
        "total_classical": total.classical,
        "total_delta": total.aged_delta,
    }


def _reply(
    message: Message,
    model: ArrayRecord,
    arrays: str,
    update: Array,
    metrics: Mapping[str, int | float],
    stored: Event,
    per_record: bool,
) -> Message:
    """The stored update, added to the server's arrays. Nothing else of the app's reply leaves."""
    after = moved(model, update)
    if after is None:
        raise UpdateRefused(
            "arrays", f"run {stored.key!r} was released for arrays of other sizes than these"
        )
    content = RecordDict(
        {
            arrays: after,
            "metrics": MetricRecord(dict(metrics)),
            RECORD: ConfigRecord(
                {
                    "collect_at": stored.collect_at,
                    "private": stored.private,
                    "sensitivity": stored.sensitivity,
                    "clipped": "record" if per_record else "update",
                }
            ),
        }
    )
    return Message(content, reply_to=message)
