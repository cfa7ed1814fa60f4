"""A world in which everything fails that can, as one seed decides, and the network in it.

Messages are lost, doubled, delayed and reordered; processes crash, disks are full, clocks jump.
When the seed's faults are used up, everything works.
"""

import heapq
import itertools
import random
from collections import defaultdict

from agewise import AgewiseError
from agewise.federation import Reply
from agewise.federation.client import refusal_reason
from agewise.testing import Clock

RETRY = 0.3
"""Seconds after which a message that was not answered is sent again."""


class Crash(BaseException):
    """A process ends here, and what it had in memory is gone."""


class World:
    """What one seed decides: the runs, the faults, and who is down until when."""

    def __init__(self, seed):
        self.seed, self.chance = seed, random.Random(seed)
        self.left = self.chance.choice([0, 2, 4, 8, 16])
        """Faults that are still to come."""
        kinds = ("lose", "double", "delay", "crash", "full", "jump")
        self.rates = {kind: self.chance.choice([0.0, 0.03, 0.15]) for kind in kinds}
        self.rates["tear"] = self.chance.choice([0.0, 0.5])
        self.clock, self.elapsed = Clock(), 0.0
        self.under_way, self.numbers = [], itertools.count()
        self.down = defaultdict(float)
        self.client = None
        self.faults = 0
        self.trace = []

    def note(self, *words):
        self.trace.append(f"{self.elapsed:8.3f}  {' '.join(map(str, words))}")

    def strikes(self, kind, *where):
        """Whether a fault of a kind happens here."""
        if self.left == 0 or self.rates[kind] == 0.0 or self.chance.random() >= self.rates[kind]:
            return False
        self.left -= 1
        self.faults += 1
        self.note(kind, *where)
        return True

    def pass_time(self, seconds):
        self.elapsed += seconds
        self.clock.sleep(seconds)

    def point(self, step, moment):
        """A named point, where the process that comes by may end."""
        where = (self.client or "server", moment, step)
        if self.strikes("crash", *where):
            raise Crash(*where)

    def after(self, seconds, kind, content):
        """Let something arrive, in so many seconds or later."""
        where = (kind, getattr(content, "client", ""))
        if self.strikes("lose", *where):
            return
        for _ in range(2 if self.strikes("double", *where) else 1):
            extra = self.chance.uniform(0, 3) if self.strikes("delay", *where) else 0.0
            at = self.elapsed + seconds * self.chance.uniform(0.5, 1.5) + extra
            heapq.heappush(self.under_way, (at, next(self.numbers), kind, content))


class FaultyTransport:
    """The network of a world, in the place of `LocalTransport`."""

    def __init__(self, world, observer, answer):
        self.world, self.observer, self.answer = world, observer, answer
        self.errors, self.sent = {}, {}
        world.under_way = [  # without the replies that arrived while no server was there
            one for one in world.under_way if one[0] > world.elapsed or one[2] == "order"
        ]
        heapq.heapify(world.under_way)

    def send(self, orders, until):
        for order in orders:
            if self.world.elapsed >= self.sent.get(order.client, 0.0):
                self.sent[order.client] = self.world.elapsed + RETRY
                self.world.note("order", order.client, "slot", order.collect_at)
                self.world.after(0.02, "order", order)

    def poll(self):
        while self.world.under_way and self.world.under_way[0][0] <= self.world.elapsed:
            reply = self._deliver()
            if reply is not None:
                yield reply

    def now(self):
        return self.world.clock.time()

    def wait(self, until):
        world = self.world
        if world.strikes("jump"):
            world.clock.sleep(world.chance.uniform(-1.5, 1.5))
        moments = [*self.sent.values(), *(at for at, *_ in world.under_way[:1])]
        ahead = [moment - world.elapsed for moment in moments if moment > world.elapsed]
        world.pass_time(max(1e-6, min([until - self.now(), *ahead])))

    def _deliver(self):
        """The next thing that arrives: an order at its client, or a reply here."""
        _, _, kind, content = heapq.heappop(self.world.under_way)
        if kind == "reply":
            return content
        if self.world.elapsed >= self.world.down[content.client]:
            self._carry_out(content)
        return None

    def _carry_out(self, order):
        world, name = self.world, order.client
        try:
            reply = Reply(name, self.answer(order))
        except AgewiseError as error:
            self.errors[name] = error
            reply = Reply(name, refusal=refusal_reason(error))
        except Crash:
            if world.chance.random() < 0.3:
                raise  # client and server were on one machine
            world.down[name] = world.elapsed + world.chance.uniform(0, 1)
            return
        world.note("reply", name, reply.refusal or "upload")
        if reply.refusal is None:
            self.observer.uploaded(name, reply.payload)
        world.after(0.02, "reply", reply)
