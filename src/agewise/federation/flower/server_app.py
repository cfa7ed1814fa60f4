"""The ServerApp: finds the clients among the nodes, orders, waits, retries, publishes.

Flower delivers at most once and names nodes by numbers that may change. So clients are known by
the name that they give when asked, every slot has a deadline of its own, and an order is sent again
while there is time; a client that has released answers with the same bytes.
"""

from __future__ import annotations

import base64
import json
import math
import time
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid, ServerApp

from agewise.errors import AgewiseError
from agewise.federation.flower.client_app import RECORD
from agewise.federation.messages import BadMessage, Order, Refusal
from agewise.federation.server import OnMissing, RunIncomplete, Server, Step
from agewise.plan import Plan

STEP, RESULT = "agewise-step", "agewise-result"
"""Words that begin the lines of the log by which a run is followed from outside."""
POLL = 0.5
ANSWER_TIME = 45.0
"""Seconds without an answer after which an order is sent again: starting a ClientApp takes a few,
and more where many nodes share a machine."""
BACK_OFF = 1.0
"""Seconds before an order that failed is sent again; twice as many each time."""
CHALLENGE = 20.0
"""Seconds in which a node must answer when another one claims its name."""
TTL = 600.0
INTRODUCE = f"{MessageType.QUERY}.agewise"
"""The type of message by which a node is asked who it is."""


@dataclass(frozen=True)
class FlowerSettings:
    """How a run on Flower is carried out."""

    run: str
    private: bool = True
    on_missing: OnMissing = "fail"
    clock: str = "virtual"
    slot_seconds: float = 0.0
    started: float = 0.0
    slot_timeout: float = 180.0
    wait: float = 120.0
    at_once: int = 100
    """Messages that may be under way at a time: each one starts a process on its node."""
    nodes: dict[str, int] | None = None
    """The number of each client's node, where keys fix it: no other node may take its name."""


def make_server_app(folder: Path) -> ServerApp:
    """Return the ServerApp that runs the plan in a folder."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:  # noqa: ARG001
        plan = Plan.from_json((folder / "plan.json").read_text(encoding="utf-8"))
        told = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
        known = {f.name for f in fields(FlowerSettings)}
        settings = FlowerSettings(**{k: v for k, v in told.items() if k in known})
        carry_out(grid, plan, settings)

    return app


def carry_out(grid: Grid, plan: Plan, settings: FlowerSettings) -> Server:
    """Run a plan on the nodes of a grid, and write its result to the log."""
    server = Server(plan, settings.run, settings.on_missing, private=settings.private)
    try:
        conductor = _Conductor(grid, server, settings)
        conductor.gather()
        conductor.begin()
        while server.closed < plan.problem.aggregate_at and server.failure is None:
            conductor.slot(server.closed + 1)
        outcome = server.finish()
    except Exception as error:
        reasons = {step.why for step in server.steps if step.what == "missing"}
        code = 3 if isinstance(error, RunIncomplete) and reasons == {"budget"} else 4
        known = isinstance(error, AgewiseError)
        why = str(error) if known else f"{type(error).__name__} in the ServerApp"
        _publish(server, complete=False, failure=why, exit_code=code)
        raise
    _publish(server, complete=True, model=outcome.model)
    return server


def _publish(server: Server, **facts: Any) -> None:
    document = {**facts, "journal": server.inputs}
    packed = base64.b64encode(zlib.compress(json.dumps(document).encode())).decode()
    log(INFO, "%s %s", RESULT, packed)


def introductions(grid: Grid, nodes: set[int]) -> dict[int, tuple[str, float, float, float]]:
    """Ask nodes who they are: node → (name, what its clock shows, asked at, answered at)."""
    order, sent = sorted(nodes), time.time()
    pushed = _push(grid, [_who(node) for node in order])
    waiting = {identity: node for node, identity in zip(order, pushed, strict=True) if identity}
    found = {}
    while waiting and time.time() - sent < ANSWER_TIME:
        for message, node in _pull(grid, waiting):
            if not message.has_error() and RECORD in message.content:
                found[node] = (*_said(message), sent, time.time())
        if waiting:
            time.sleep(POLL)
    return found


def _said(message: Message) -> tuple[str, float]:
    """The name and the time of an introduction; nobody's if they make no sense."""
    record = message.content[RECORD]
    name, shown = record.get("client"), record.get("time")
    if not isinstance(name, str) or not isinstance(shown, int | float):
        return "", math.nan
    return name, float(shown)


def _who(node: int) -> Message:
    return Message(RecordDict({RECORD: ConfigRecord({"who": 1})}), node, INTRODUCE, ttl=60)


def _push(grid: Grid, messages: list[Message]) -> list[str]:
    return list(grid.push_messages(messages)) if messages else []


def _pull(grid: Grid, waiting: dict[str, Any]) -> Iterable[tuple[Message, Any]]:
    """What has arrived of the messages waited for, each with what was noted about it."""
    if not waiting:
        return
    for message in grid.pull_messages(list(waiting)):
        noted = waiting.pop(message.metadata.reply_to_message_id, None)
        if noted is not None:
            yield message, noted


class _Conductor:
    """The clients of a run as nodes of a grid."""

    def __init__(self, grid: Grid, server: Server, settings: FlowerSettings) -> None:
        self.grid, self.server, self.settings = grid, server, settings
        self.names = {c.name for c in server.first_plan.problem.clients}
        self.nodes: dict[str, int] = {}
        self.strangers: dict[int, str] = {}
        self.queries: dict[str, tuple[int, float]] = {}
        self.challengers: dict[str, tuple[int, float]] = {}
        self.outstanding: dict[str, tuple[str, float]] = {}
        self.failures: Counter[str] = Counter()
        self.started = 0.0
        self.told = 0

    def gather(self) -> None:
        """Wait until every client is there, or the time for that is over."""
        until = time.time() + self.settings.wait
        self._tell(Step(0, "", "waiting", f"for {len(self.names)} clients"))
        while True:
            self._look_for_nodes()
            if set(self.nodes) == self.names and not self.challengers:
                break
            if time.time() > until and not self.challengers:
                absent = sorted(self.names - set(self.nodes))
                who = ", ".join(absent[:5]) + (f" and {len(absent) - 5} more" * (len(absent) > 5))
                if self.settings.on_missing == "fail" or not self.nodes:
                    self.server.failure = f"no node answers for {who}"
                else:
                    self._tell(Step(0, "", "absent", who))
                return
            time.sleep(POLL)
        self._tell(Step(0, "", "ready", f"{len(self.nodes)} clients"))

    def begin(self) -> None:
        """By the wall clock, slot 1 begins when the clients are there, or as it did before."""
        self.started = self.settings.started or time.time()
        if self.settings.clock == "wall":
            self._tell(Step(0, "", "began", repr(self.started)))

    def slot(self, slot: int) -> None:
        """Order what is due, wait for the answers until the deadline, and close the slot."""
        begins, ends = self._times(slot)
        while time.time() < begins:
            self._take_answers(slot)
            time.sleep(min(POLL, max(0.0, begins - time.time())))
        sent: dict[str, float] = {}
        lost: set[str] = set()
        patience = min(ANSWER_TIME, (ends - time.time()) / 3)
        while time.time() < ends:
            due = [o for o in self.server.orders(slot) if o.client not in self.server.refused]
            if not due:
                break
            again = [o for o in due if time.time() - sent.get(o.client, 0.0) > patience]
            if any(o.client in sent or o.client not in self.nodes for o in again) or lost:
                self._look_for_nodes()
            sent |= dict.fromkeys(self._send(again), time.time())
            failed = self._take_answers(slot)
            for client in failed:  # send again soon, and less soon each time
                self.failures[client] += 1
                pause = min(BACK_OFF * 2.0 ** self.failures[client], patience)
                sent[client] = time.time() - patience + pause
            lost = (lost | set(failed)) - set(self.server.received)
            time.sleep(POLL)
        if self.settings.clock == "wall":
            while time.time() < ends:
                self._take_answers(slot)
                time.sleep(min(POLL, max(0.0, ends - time.time())))
        self.server.close(slot)
        self._take_answers(slot)
        self._tell()
        self._tell(Step(slot, "", "closed"))

    def _times(self, slot: int) -> tuple[float, float]:
        settings = self.settings
        if settings.clock == "wall":
            begins = self.started + (slot - 1) * settings.slot_seconds
            return begins, begins + settings.slot_seconds
        return 0.0, time.time() + settings.slot_timeout

    def _send(self, orders: list[Order]) -> list[str]:
        """Send orders to the clients whose node is known; return those."""
        reached = [o for o in orders if o.client in self.nodes][: self._room()]
        messages = [
            Message(
                RecordDict({RECORD: ConfigRecord({"order": order.encode().decode()})}),
                self.nodes[order.client], MessageType.TRAIN, ttl=TTL,
                group_id=f"slot-{order.collect_at}",
            )
            for order in reached
        ]  # fmt: skip
        for order, identity in zip(reached, _push(self.grid, messages), strict=True):
            if identity:
                self.outstanding[identity] = (order.client, time.time())
            else:  # Flower does not know that node any more
                self.nodes.pop(order.client, None)
        return [order.client for order in reached]

    def _take_answers(self, slot: int) -> list[str]:
        """Hand what has arrived to the server; return clients whose node failed to answer."""
        failed = []
        for message, (client, _) in _pull(self.grid, self.outstanding):
            if message.has_error():
                failed.append(client)
                log(WARNING, "agewise: %s: error %s", client, message.error.code)
                continue
            try:
                record = message.content[RECORD]
                if "upload" in record:
                    self.server.receive(str(record["upload"]).encode(), slot, client)
                else:
                    refusal = Refusal.decode(str(record["refusal"]).encode())
                    self.server.refuse(client, slot, refusal.reason)
            except (KeyError, BadMessage):
                self.server.receive(b"", slot)  # malformed, and counted as such
        self._tell()
        return failed

    def _look_for_nodes(self) -> None:
        """Ask nodes that are not known yet for their names, and take their answers."""
        now, alive = time.time(), set(self.grid.get_node_ids())
        self.nodes = {name: node for name, node in self.nodes.items() if node in alive}
        self.queries = {i: one for i, one in self.queries.items() if now - one[1] < ANSWER_TIME}
        known = {*self.nodes.values(), *self.strangers, *(n for n, _ in self.queries.values()),
                 *(n for n, _ in self.challengers.values())}  # fmt: skip
        self._ask(alive - known)
        for message, (node, sent) in _pull(self.grid, self.queries):
            if not message.has_error() and RECORD in message.content:
                self._introduced(node, *_said(message), sent)
        for name, (node, since) in list(self.challengers.items()):
            if name not in self.nodes or now - since > CHALLENGE:
                del self.challengers[name]
                self.nodes[name] = node
                self._tell(Step(0, name, "returned", f"as node {node}"))

    def _ask(self, nodes: set[int]) -> None:
        order, now = sorted(nodes)[: self._room()], time.time()
        pushed = _push(self.grid, [_who(node) for node in order])
        self.queries |= {i: (node, now) for node, i in zip(order, pushed, strict=True) if i}

    def _room(self) -> int:
        """How many more messages may be sent now; what got lost does not count for long."""
        since = time.time() - ANSWER_TIME
        under_way = sum(
            sent > since for _, sent in (*self.outstanding.values(), *self.queries.values())
        )
        return max(0, self.settings.at_once - under_way)

    def _introduced(self, node: int, name: str, shown: float, sent: float) -> None:
        bound = self.settings.nodes
        if name not in self.names or (bound is not None and bound.get(name) != node):
            self.strangers[node] = name
            why = "is no client of the plan" if name not in self.names else "has not its key"
            self._tell(Step(0, "?", "stranger", f"node {node} {why}"))
            return
        self._refuse_clock(name, shown, sent, time.time())
        other, challenger = self.nodes.get(name), self.challengers.get(name)
        if other is None:
            self.nodes[name] = node
            self._tell(Step(0, name, "connected", f"{len(self.nodes)} of {len(self.names)}"))
        elif other != node and challenger is None:  # is the one we knew still there?
            self.challengers[name] = (node, time.time())
            self._ask({other})
        elif other == node and challenger is not None:
            raise RunIncomplete(
                f"nodes {other} and {challenger[0]} both claim to be client {name!r}. Give each "
                "node its own configuration."
            )

    def _refuse_clock(self, name: str, shown: float, sent: float, got: float) -> None:
        """By the wall clock, a node's time must agree with ours to within a slot."""
        off = sent - shown if shown < sent else max(0.0, shown - got)
        if self.settings.clock == "wall" and not off <= self.settings.slot_seconds:
            raise RunIncomplete(
                f"the clock of client {name!r} is off by {off:.0f} s, more than a slot of "
                f"{self.settings.slot_seconds:g} s. Set the clocks; nothing was ordered."
            )

    def _tell(self, *more: Step) -> None:
        steps = [*self.server.steps[self.told :], *more]
        self.told = len(self.server.steps)
        last = self.server.first_plan.problem.aggregate_at
        for step in steps:
            log(INFO, "%s %s", STEP, json.dumps([asdict(step), self.server.closed, last]))
