"""The server's side: order, receive, close slots, deal with the missing, aggregate.

A machine without clock, network or disk: the same inputs in the same order give the same state,
so that a run is resumed by feeding its journal to a new `Server`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import numpy as np

from agewise.arrays import Array
from agewise.calibration import terms
from agewise.checks import one_of
from agewise.errors import InvalidInput
from agewise.federation.averages import best_estimate, weighted_mean
from agewise.federation.claims import refuse_claims, refuse_outside
from agewise.federation.followed import carried_out
from agewise.federation.happened import ON_MISSING, OnMissing, Outcome, RunIncomplete, Step, Steps
from agewise.federation.messages import LARGEST_MESSAGE, BadMessage, Order, Upload
from agewise.federation.one_draw import Sum, sum_up
from agewise.federation.orders import Due, Issued, Orders, OrdersAlike
from agewise.federation.statement import Statement, published, state_privacy
from agewise.federation.uploads import ALIKE, HEADS, Received, Uploads
from agewise.planning import Plan, replan
from agewise.wording import listed

MOST_REJECTED = 1_000
"""Rejected uploads beyond which they are counted only."""


class Server:
    """The server of one run. Slots go 1, 2, ... to the aggregation slot; each is closed once."""

    def __init__(
        self, plan: Plan, run: str, on_missing: OnMissing = "fail", *, private: bool = True
    ) -> None:
        one_of("on_missing", on_missing, ON_MISSING)
        if not run or not run.isprintable():
            raise InvalidInput("run", repr(run), "a printable name")
        self.first_plan, self.run, self.on_missing, self.private = plan, run, on_missing, private
        self.received = Received()
        self.missing: dict[str, str] = {}
        self.rejected: Counter[str] = Counter()
        self.steps = Steps()
        self.inputs: list[dict[str, Any]] = []
        """Everything that reached the server, in order: what `feed` needs to build it anew."""
        self.late = Received()
        """Good uploads that came too late to count: released all the same."""
        self.heads: dict[str, str] = {}
        """The newest release of each client that was known when the run began; see `Order`."""
        self.closed = 0
        self.failure: str | None = None
        self._width = plan.problem.width
        self._clients = {c.name: c for c in plan.problem.clients}
        self.refused: dict[str, str] = {}
        self._issued: dict[str, Issued] = {}
        """What was asked of whom, by the digests of plans."""
        self._orders = Orders(run, plan.problem)
        self._adopt(plan)

    def orders(self, slot: int) -> Due:
        """The orders that are due in a slot and not yet answered."""
        groups: dict[int, list[str]] = {}
        for name in self._still_due(slot):
            groups.setdefault(self._kinds[name], []).append(name)
        digest = self.digest
        firsts = [(self._order(digest, one[0]), one) for one in groups.values()]
        return Due([OrdersAlike(first, one, self.heads) for first, one in firsts])

    def order_of(self, upload: Upload) -> Order:
        """The order that an upload answered."""
        return self._order(upload.plan, upload.client)

    def knows_plans(self, digests: set[str]) -> bool:
        """Whether one of these plans was issued in this run, by their digests."""
        return bool(digests & self._issued.keys())

    def _order(self, digest: str, name: str) -> Order:
        issued = self._issued[digest]
        one, kind = issued.assignments[name], issued.kinds[name]
        order = self._orders.order(digest, kind, one, self._clients[name])
        head = self.heads.get(name)
        return order if head is None else order.model_copy(update={"head": head})

    def remember(self, heads: Mapping[str, str]) -> None:
        """Take what earlier rounds have heard, before any order: clients must still know of it."""
        if heads:
            self.inputs.append({"input": HEADS, "slot": 0, "heads": dict(heads)})
            self.heads = dict(heads)

    def newest(self) -> dict[str, str]:
        """The newest release that is known of each client by now."""
        return self.heads | self.late.heads(self.run) | self.received.heads(self.run)

    def receive(self, payload: bytes, slot: int, sender: str | None = None) -> str | None:
        """Take an upload that arrived in a slot; return why it was rejected, None if it was not.

        `sender` is the client that was asked, where that is known.

        Guarantees
            A rejected upload changes nothing but the counts: it never moves the model.
        """
        text = payload[: LARGEST_MESSAGE + 1].decode(errors="replace")
        self.inputs.append({"input": "received", "slot": slot, "payload": text, "sender": sender})
        name = "?"
        try:
            upload = Upload.decode(payload)
            name = upload.client
            if sender is not None and sender != name:
                raise BadMessage("wrong sender", f"{sender} for {name}")
            self._validate(upload, payload, slot)
        except BadMessage as bad:
            self.rejected[bad.reason] += 1
            if self.rejected.total() > MOST_REJECTED:  # counted, but not kept
                self.inputs.pop()
            else:
                known = name if name in self._clients else "?"
                self.steps.append(Step(slot, known, "rejected", bad.reason))
            return bad.reason
        self._take(Uploads.single(upload, payload), slot)
        return None

    def receive_alike(self, uploads: Uploads, slot: int) -> None:
        """Take uploads that are the same but for name and value: as `receive`, one by one.

        Checked once for all of them, unless something is wrong with one.
        """
        if not self._all_good(uploads, slot):
            for name, payload in zip(uploads.names, uploads.payloads, strict=True):
                self.receive(payload, slot, name)
            return
        self.inputs.append({"input": ALIKE, "slot": slot, "uploads": uploads})
        self._take(uploads, slot)

    def _all_good(self, uploads: Uploads, slot: int) -> bool:
        """Whether `receive` would take each of them: the first is checked, the others are alike."""
        names, values, first = uploads.names, uploads.rows, uploads.first
        kind = self._kinds.get(first.client)
        if (
            len(names) < 2
            or first.plan != self.digest
            or first.noise != "client"  # means without noise are held to their range one by one
            or values.shape != (len(names), self._width)
            or self._width > LARGEST_MESSAGE // 100  # it may be too large for a message
            or not np.isfinite(values).all()
            or len(set(names)) < len(names)
            or set(map(self._kinds.get, names)) != {kind}
            or not all(map(self._awaited, names))
        ):
            return False
        try:
            self._validate(uploads.upload(0), b"", slot)
        except BadMessage:
            return False
        return True

    def _take(self, uploads: Uploads, slot: int) -> None:
        self.received.add(uploads)
        self.late.drop(uploads.names)
        for name in uploads.names if self.refused else ():
            self.refused.pop(name, None)
        self.steps.extend(slot, uploads.names, "uploaded")

    def refuse(self, client: str, slot: int, reason: str) -> None:
        """Note that a client will not answer in this run."""
        self.inputs.append({"input": "refused", "slot": slot, "client": client, "reason": reason})
        if self._awaited(client):
            self.refused[client] = reason
            self.steps.append(Step(slot, client, "refused", reason))

    def close(self, slot: int) -> None:
        """End a slot: whoever was due in it and did not upload is missing."""
        if slot != self.closed + 1 or slot > self.plan.problem.aggregate_at:
            raise InvalidInput("slot", slot, f"{self.closed + 1}, the next one to close")
        self.inputs.append({"input": "closed", "slot": slot})
        self.closed = slot
        due = self._still_due(slot)
        if not due:
            return
        for name in due:
            why = self.refused.get(name, "no upload by the deadline")
            self.steps.append(Step(slot, name, "missing", why))
        if self.on_missing == "fail":
            why = self.refused.get(due[0], "no upload by the deadline")
            who = listed([repr(name) for name in due], 1)
            self.failure = f"client {who} missing in slot {slot} ({why})"
        elif self.on_missing == "replan" and slot < self.plan.problem.aggregate_at:
            self._replan(slot, due)
        else:
            for name in due:
                self.missing[name] = self.refused.get(name, "no upload by the deadline")

    def retry(self) -> None:
        """Take a failure back, so that whoever was not heard is asked again.

        Guarantees
            What was received stays. Whoever has released answers with the same bytes.
        """
        self.inputs.append({"input": "retried", "slot": self.closed})
        self.failure = None
        self.refused.clear()
        if not self.received:
            self.closed = 0
            self.missing.clear()
            self._adopt(self.first_plan)
        elif any(map(self._awaited, self._due.get(self.closed, []))):
            self.closed -= 1
        self.steps.append(Step(self.closed + 1, "", "retried"))

    def feed(self, entry: dict[str, Any]) -> None:
        """Take one of the `inputs` of another server of the same plan and run."""
        what, slot = entry["input"], entry["slot"]
        if what == "received":
            self.receive(entry["payload"].encode(), slot, entry["sender"])
        elif what == ALIKE:
            self.receive_alike(Uploads.from_entry(entry), slot)
        elif what == "refused":
            self.refuse(entry["client"], slot, entry["reason"])
        elif what == "closed":
            self.close(slot)
        elif what == "retried":
            self.retry()
        elif what == HEADS:
            self.remember({str(name): str(head) for name, head in entry["heads"].items()})
        else:
            raise KeyError(what)

    def finish(self, draw: Callable[[Sum], tuple[float, ...]] | None = None) -> Outcome:
        """Aggregate what was received, once every slot is closed.

        Where the server adds the noise, `draw` is told the sum and returns what is published.
        """
        first = self.first_plan.problem
        if self.failure is None and not self.received:
            self.failure = "no client uploaded anything"
        if self.failure is not None:
            raise RunIncomplete(f"run {self.run} did not complete: {self.failure}.")
        if self.closed < first.aggregate_at:
            raise InvalidInput("slot", self.closed, f"all slots to {first.aggregate_at} closed")
        here, weights = list(first.clients), first.weights
        if len(self.received) < len(here):
            heard = [client.name in self.received for client in here]
            here, weights = list(compress(here, heard)), weights[heard]
        shares = (weights / math.fsum(weights.tolist())).tolist()
        slots = self.received.collected()
        followed = carried_out(self.plan, self.first_plan.problem, here, shares, self.received)
        names, due = tuple([client.name for client in here]), None
        if first.server_adds_noise:
            if draw is None:
                raise InvalidInput("draw", "none", "one, where the server adds the noise")
            due = self._sum(followed, [self.received[name][0] for name in names])
            aggregate = draw(due)
        elif first.uses_knowledge:
            aggregate = best_estimate(followed, names, self.received.values_of(names))
        else:
            aggregate = weighted_mean(shares, self.received.values_of(names))
        weighed = dict(zip(names, shares, strict=True))
        if first.uses_knowledge:
            slots = {one.client: one.collect_at for one in followed.assignments}
            weighed = dict(zip(slots, first.weights.tolist(), strict=True))
        return Outcome(
            model=published(first.learner, aggregate),
            aggregate=aggregate,
            plan=followed,
            participants=names,
            weights=weighed,
            collected=slots,
            statement=self.state(aggregate, names, None if due is None else due.scale),
        )

    def _sum(self, followed: Plan, uploads: list[Upload]) -> Sum:
        largest = {
            one.client: float(np.abs(self._release(one.client, one.collect_at)).max())
            for one in uploads
        }
        return sum_up(followed, self.run, uploads, largest)

    def _release(self, client: str, collect_at: int) -> Array:
        """What each state of a client's record contributes to its mean, `[S, d]`."""
        problem, one = self.first_plan.problem, replace(self._clients[client], weight=None)
        learner, how = problem.learner, problem.estimator
        target, last = problem.target_of(one), problem.aggregate_at
        return terms(one, target, learner, how, collect_at, last).release

    def state(
        self,
        model: tuple[float, ...] | None,
        names: Sequence[str] | None = None,
        draw_scale: float | None = None,
    ) -> Statement:
        """The privacy statement: of a model, or of a run that ended without one.

        `names` are the clients that were heard, in order (None: as they came).
        """
        silent = sorted(self._clients.keys() - set(self.received))
        not_due = {a.client for a in self.plan.assignments if a.collect_at > self.closed}
        not_due |= set(self.first_plan.unheard)
        return state_privacy(
            self.plan,
            self.run,
            self.private,
            self.received,
            list(self.received) if names is None else names,
            self.late,
            tuple(name for name in silent if name not in not_due),
            tuple(name for name in silent if name in not_due),
            model,
            self.first_plan.problem.clients,
            draw_scale,
        )

    def _adopt(self, plan: Plan) -> None:
        self.plan = plan
        self.digest = plan.digest
        issued = self._issued.setdefault(self.digest, Issued.of(plan))
        self._due, self._kinds = issued.due, issued.kinds

    def _still_due(self, slot: int) -> list[str]:
        """Whoever is to upload in a slot and has not."""
        here, gone = self.received.numbers, self.missing
        return [name for name in self._due.get(slot, []) if name not in here and name not in gone]

    def _awaited(self, client: str) -> bool:
        return client not in self.received and client not in self.missing

    def _replan(self, slot: int, due: list[str]) -> None:
        collected = self.received.collected()
        here = {c.name for c in self.plan.problem.clients} - set(self.plan.unheard)
        lost = [name for name in self.refused if name in here]
        for name in lost:
            self.missing[name] = self.refused[name]
        if len(lost) == len(here):
            self.failure = "no client is left"
            return
        try:
            new_plan = replan(
                self.plan, slot + 1, {n: t for n, t in collected.items() if n in here}, lost
            )
        except InvalidInput:  # the capacity leaves no slot for those who missed theirs
            for name in due:
                self.missing[name] = self.refused.get(name, "no upload, and no slot left")
            return
        self._adopt(new_plan.as_written_with(self.plan))
        self.steps.append(Step(slot, "", "replanned", f"from slot {slot + 1}"))

    def _validate(self, upload: Upload, payload: bytes, slot: int) -> None:
        name = upload.client
        if upload.run != self.run:
            raise BadMessage("wrong run", upload.run)
        if name not in self._clients:
            raise BadMessage("unknown client", name)
        plan = self._issued.get(upload.plan)
        issued = None if plan is None else plan.assignments.get(name)
        if issued is None:
            raise BadMessage("wrong plan", upload.plan)
        if name in self.received:
            same = self.received[name][1] == payload
            raise BadMessage("duplicate" if same else "conflicting", name)
        if (upload.collect_at, upload.aggregate_at) != (
            issued.collect_at,
            self.first_plan.problem.aggregate_at,
        ) or upload.fingerprint != issued.fingerprint:
            raise BadMessage("wrong plan", f"collected in slot {upload.collect_at}")
        if upload.collect_at > slot:
            raise BadMessage("early", f"slot {upload.collect_at}")
        if len(upload.value) != self._width:
            raise BadMessage("wrong shape", f"{len(upload.value)} values")
        if upload.private != self.private:
            raise BadMessage("wrong noise", "a stand-in" if self.private else "not the stand-in")
        if upload.noise != self.first_plan.problem.noise:
            raise BadMessage("wrong noise", f"by the {upload.noise}")
        problem, client = self.first_plan.problem, self._clients[name]
        refuse_claims(upload, issued, problem, client, problem.target_of(client).epsilon)
        if upload.noise == "server":
            refuse_outside(upload, issued, self._release(name, upload.collect_at))
        if name in self.missing or self.failure is not None:
            self.late.add(Uploads.single(upload, payload))
            raise BadMessage("stale", name)
