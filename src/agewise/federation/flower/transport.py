"""The clients of a run as nodes of a grid: found, asked beforehand, ordered, waited for.

Flower delivers at most once and names nodes by numbers that may change. So clients are known by
their keys, or by the name that they give when asked; every slot has a deadline of its own, and an
order that failed or expired is sent again while there is time; a client that has released answers
with the same bytes.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from logging import WARNING
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from agewise.federation.engine import Reply
from agewise.federation.flower.client_app import RECORD, refusal_in, told
from agewise.federation.happened import OnMissing, RunIncomplete, Step
from agewise.federation.messages import Order
from agewise.wording import listed

POLL = 0.5
ANSWER_TIME = 45.0
"""Seconds that a node has at least to answer: starting a ClientApp takes a few, and more where
many nodes share a machine."""
TRIES = 3
"""How often a message that gets lost without a word can be sent before a deadline."""
BACK_OFF = 1.0
"""Seconds before an order that failed is sent again; twice as many each time."""
CHALLENGE = 20.0
"""Seconds in which a node must answer when another one claims its name."""
INTRODUCE = f"{MessageType.QUERY}.agewise"
"""The type of message by which a node is asked who it is, and whether it would follow an order."""


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
    seed: int | None = None
    """Of the server's own stand-in."""
    resumed: bool = False
    """Whether the run was submitted before, so that the server's ledger must know of it."""
    before: int | None = None
    """How many slots lie before it, where the run is one round among many."""


@dataclass(frozen=True)
class _Sent:
    """A message to a client that is under way until it is answered, fails or expires."""

    client: str
    node: int
    kind: str
    at: float
    expires: float


def introductions(grid: Grid, nodes: set[int]) -> dict[int, tuple[str, float, float, float]]:
    """Ask nodes who they are: node → (name, what its clock shows, asked at, answered at)."""
    order, sent = sorted(nodes), time.time()
    pushed = _push(grid, [_query(node, ANSWER_TIME) for node in order])
    waiting = {identity: node for node, identity in zip(order, pushed, strict=True) if identity}
    heard = {}
    while waiting and time.time() - sent < ANSWER_TIME:
        for message, node in _pull(grid, waiting):
            if not message.has_error():
                heard[node] = (*_said(message), sent, time.time())
        if waiting:
            time.sleep(POLL)
    return heard


def _said(message: Message) -> tuple[str, float]:
    """The name and the time of an introduction; nobody's if they make no sense."""
    record = message.content.config_records.get(RECORD) or ConfigRecord()
    name, shown = record.get("client"), record.get("time")
    if not isinstance(name, str) or not isinstance(shown, int | float):
        return "", math.nan
    return name, float(shown)


def _query(node: int, life: float, asked: ConfigRecord | None = None) -> Message:
    record = ConfigRecord({"who": 1}) if asked is None else asked
    return Message(RecordDict({RECORD: record}), node, INTRODUCE, ttl=life)


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


class FlowerTransport:
    """Carries orders to the nodes of a grid and replies back. A `Transport`."""

    def __init__(
        self,
        grid: Grid,
        names: Iterable[str],
        settings: FlowerSettings,
        notice: Callable[[Step], None],
    ) -> None:
        self.grid, self.names, self.settings = grid, set(names), settings
        self.notice = notice
        """Told of what happens to nodes; what happens to orders is for the engine to tell."""
        self.nodes: dict[str, int] = {}
        self.strangers: set[int] = set()
        self.queries: dict[str, tuple[int, float]] = {}
        self.ask_after: dict[int, float] = {}
        self.challengers: dict[str, tuple[int, float]] = {}
        self.under_way: dict[str, _Sent] = {}
        self.failures: Counter[str] = Counter()
        self.send_after: dict[str, float] = {}
        self.ready: set[str] = set()
        """Clients that would follow their orders, and whose clocks agree with ours."""
        self.trying = settings.on_missing == "fail"
        """Whether clients try their orders first; if not, the run goes on without who refuses."""

    def send(self, orders: Sequence[Order], until: float) -> None:
        """Send orders to clients whose node is known, unless one is still under way to it."""
        self._look_for_nodes()
        life = max(ANSWER_TIME, (until - self.now()) / TRIES)
        self._send(orders, MessageType.TRAIN, life)

    def poll(self) -> Iterator[Reply]:
        """What has arrived; what failed may be sent again, less soon each time."""
        for message, sent in _pull(self.grid, self.under_way):
            client, refusal = sent.client, refusal_in(message)
            if refusal is not None:
                yield Reply(client, refusal=refusal)
            elif message.has_error():
                log(WARNING, "agewise: %s: error %s", client, message.error.code)
                pause = min(BACK_OFF * 2.0 ** self.failures[client], ANSWER_TIME)
                self.failures[client] += 1
                self.send_after[client] = self.now() + pause
            elif sent.kind == INTRODUCE:
                name, shown = _said(message)
                if name == client:
                    self._refuse_clock(name, shown, sent.at, self.now())
                    self.ready.add(client)
            else:
                record = message.content.config_records.get(RECORD) or ConfigRecord()
                yield Reply(client, str(record.get("upload", "")).encode())

    def now(self) -> float:
        """The time of day: nodes are asked for theirs, too."""
        return time.time()

    def wait(self, until: float) -> None:
        """Sleep for a moment: Flower says nothing when a message arrives."""
        time.sleep(min(POLL, max(0.0, until - self.now())))

    def gather(self) -> set[str]:
        """Wait until every client is there, or the time for that is over; return the absent."""
        until = self.now() + self.settings.wait
        self.notice(Step(0, "", "waiting", f"for {len(self.names)} clients"))
        while True:
            self._look_for_nodes()
            absent = self.names - set(self.nodes)
            if not self.challengers and (not absent or self.now() > until):
                return absent
            time.sleep(POLL)

    def rehearse(
        self, orders: Sequence[Order], refuse: Callable[[str, str], None]
    ) -> dict[str, str]:
        """Have every client try its order before anybody releases: budget, records, ledger, clock.

        Where the run goes on without those who refuse, only the clocks of nodes that have not
        introduced themselves are asked for. Calls `refuse` as refusals come in; returns who is
        not ready, and why, where that ends the run.
        """
        clocks = self.settings.clock == "wall" and self.settings.nodes is not None
        if not self.trying and not clocks:
            return {}
        wait, refused = self.settings.wait, dict[str, str]()
        heard, until = 0, self.now() + wait
        while True:
            settled = self.ready | set(refused)
            if len(settled) > heard:  # they do answer, if slowly
                heard, until = len(settled), self.now() + wait
            waiting = [o for o in orders if o.client not in settled]
            if not waiting or self.now() > until:
                break
            self._look_for_nodes()
            self._send(waiting, INTRODUCE, max(ANSWER_TIME, wait / TRIES))
            for reply in self.poll():
                if reply.refusal is not None:
                    refused[reply.client] = reply.refusal
                    refuse(reply.client, reply.refusal)
            time.sleep(POLL)
        if not self.trying:
            return {}
        names = {order.client for order in orders} - self.ready
        return {name: refused.get(name, "no answer") for name in names}

    def _send(self, orders: Sequence[Order], kind: str, life: float) -> None:
        now = self.now()
        queued = {s.client for s in self.under_way.values() if s.kind == kind and self._lives(s)}
        free = [
            o
            for o in orders
            if o.client in self.nodes
            and o.client not in queued
            and now >= self.send_after.get(o.client, 0.0)
        ][: self._room()]
        messages = [self._message(o, kind, life) for o in free]
        for order, identity in zip(free, _push(self.grid, messages), strict=True):
            name = order.client
            if identity:
                sent = _Sent(name, self.nodes[name], kind, now, now + life)
                self.under_way[identity] = sent
            else:  # Flower does not know that node any more
                self.nodes.pop(name, None)

    def _message(self, order: Order, kind: str, life: float) -> Message:
        node, record = self.nodes[order.client], told(order, self.settings.before)
        if kind == INTRODUCE:
            return _query(node, life, record if self.trying else None)
        content = RecordDict({RECORD: record})
        return Message(content, node, kind, ttl=life, group_id=f"slot-{order.collect_at}")

    def _lives(self, sent: _Sent) -> bool:
        """Whether a message may still be answered: not expired, and its node is still the one."""
        return self.now() < sent.expires and self.nodes.get(sent.client) == sent.node

    def _look_for_nodes(self) -> None:
        """See which clients are there; ask nodes that are not known yet, unless keys name them."""
        now, alive = time.time(), set(self.grid.get_node_ids())
        keyed = self.settings.nodes
        if keyed is not None:
            here = {n: at for n, at in keyed.items() if n in self.names and at in alive}
            new, self.nodes = here.keys() - self.nodes.keys(), here
            for count, name in enumerate(sorted(new), start=len(here) - len(new) + 1):
                self.notice(Step(0, name, "connected", f"{count} of {len(self.names)}"))
            return
        self.nodes = {name: node for name, node in self.nodes.items() if node in alive}
        known = {*self.nodes.values(), *self.strangers, *(n for n, _ in self.challengers.values())}
        self._ask({n for n in alive - known if now >= self.ask_after.get(n, 0.0)})
        for message, (node, sent) in _pull(self.grid, self.queries):
            if refusal_in(message) is not None:
                self._introduced(node, "", math.nan, sent)
            elif not message.has_error():
                self._introduced(node, *_said(message), sent)
        for name, (node, since) in list(self.challengers.items()):
            if name not in self.nodes or now - since > CHALLENGE:
                del self.challengers[name]
                self.nodes[name] = node
                self.notice(Step(0, name, "returned", f"as node {node}"))

    def _ask(self, nodes: set[int]) -> None:
        order, now = sorted(nodes)[: self._room()], time.time()
        pushed = _push(self.grid, [_query(node, ANSWER_TIME) for node in order])
        self.queries |= {i: (node, now) for node, i in zip(order, pushed, strict=True) if i}
        self.ask_after |= dict.fromkeys(order, now + ANSWER_TIME)

    def _room(self) -> int:
        """How many more messages may be sent now; what has expired does not count."""
        since = time.time() - ANSWER_TIME
        busy = sum(self._lives(sent) for sent in self.under_way.values())
        busy += sum(sent > since for _, sent in self.queries.values())
        return max(0, self.settings.at_once - busy)

    def _introduced(self, node: int, name: str, shown: float, sent: float) -> None:
        if name not in self.names:
            self.strangers.add(node)
            self.notice(Step(0, "?", "stranger", f"node {node} is no client of the plan"))
            return
        self._refuse_clock(name, shown, sent, time.time())
        other, challenger = self.nodes.get(name), self.challengers.get(name)
        if other is None:
            self.nodes[name] = node
            self.notice(Step(0, name, "connected", f"{len(self.nodes)} of {len(self.names)}"))
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


def some_of(names: set[str]) -> str:
    """Up to five names, and how many more there are."""
    return listed(sorted(names), 5)
