"""Whatever fails: one release per client and run, the same bytes, a true account, and an end.

A failing seed is printed with its trace; `Simulator.play(seed)` plays it again.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from observer import Violation
from simulator import STATEMENTS, STEPS, Simulator

from agewise.privacy import Ledger
from parties import ClientAgent, OneDraw, Server, Uploads

SEEDS = 300
BLOCK = 100
MANY = 100_000
LARGE_BLOCK = 1_000


@pytest.fixture(scope="module")
def simulator():
    memory = Path("/dev/shm")  # ledgers are many, and need not outlive this process
    place = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
    with place as folder, Simulator(folder) as made:
        yield made


def play(simulator, seeds):
    for seed in seeds:
        simulator.play(seed)


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_guarantee_whatever_fails_nothing_is_released_twice_and_runs_end(simulator, first):
    play(simulator, range(first, first + BLOCK))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SEEDS, MANY, LARGE_BLOCK))
def test_many_more_seeds(simulator, first):
    play(simulator, range(first, first + LARGE_BLOCK))


def test_a_seed_replays_exactly(simulator):
    for seed in range(10):
        assert simulator.play(seed) == simulator.play(seed)


def test_the_seeds_come_by_every_fault(simulator):
    met = set()
    for seed in range(SEEDS):
        for line in simulator.traces.get(seed) or simulator.play(seed):
            kind, *where = line.split()[1:]
            who = "client" if where[:1] == ["client"] else " ".join(where[:1])
            met.add(" ".join([kind, who, *where[2 if who == "client" else 1 :]]))
    moments = ("before", "after")
    wanted = {f"crash client {m} {step}" for m in moments for step in STATEMENTS.values()}
    wanted |= {f"crash server {m} {step}" for m in moments for step in STEPS}
    wanted |= {f"crash server {m} {step}" for m in moments for step in ("insert", "commit")}
    wanted |= {"full server insert", "full server commit"}
    wanted |= {"full client insert", "full client commit", "tear journal", "jump "}
    wanted |= {f"full server {step}" for step in ("journal", "settings", "document")}
    assert wanted <= met


def renoise(patch):
    """A client that answers a retry with fresh noise."""
    answer = ClientAgent.answer

    def again(agent, order):
        if agent.ledger.find(order.run) is not None:
            agent.ledger = None
        return answer(agent, order)

    patch.setattr(ClientAgent, "answer", again)


def send_first(patch):
    """A client that sends what it commits only when it is asked again."""
    answer, sent = ClientAgent.answer, {}

    def hasty(agent, order):
        if agent.ledger.find(order.run) is None and (order.run, order.client) not in sent:
            agent.ledger = None
        sent[order.run, order.client] = True
        return answer(agent, order)

    patch.setattr(ClientAgent, "answer", hasty)


def forget(patch):
    """A client that does not count what it has released before."""
    release = Ledger.release

    def forgetful(ledger, key, make, *rest):
        return release(ledger, key, lambda _: make([]), *rest)

    patch.setattr(Ledger, "release", forgetful)


def make_up(patch):
    """A server that takes another client's upload for one that is missing."""
    close = Server.close

    def inventive(server, slot):
        for order in server.orders(slot):
            for upload, payload in list(server.received.values())[:1]:
                named = upload.model_copy(update={"client": order.client})
                server.received.add(Uploads.single(named, payload))
        close(server, slot)

    patch.setattr(Server, "close", inventive)


def believe(patch):
    """A server that aggregates what never came from a ledger."""
    receive = Server.receive

    def gullible(server, payload, slot, sender=None):
        return receive(server, payload.replace(b'],"samples"', b'1],"samples"'), slot, sender)

    patch.setattr(Server, "receive", gullible)


def redraw(patch):
    """A server that draws anew whenever it publishes."""

    call = OneDraw.__call__

    def forgetful(draw, due):
        return call(OneDraw(draw.run, None), due)

    patch.setattr(OneDraw, "__call__", forgetful)


def draw_less(patch):
    """A server that draws less noise than it has promised."""
    noised = OneDraw._noised

    def mean(draw, due):
        return noised(draw, replace(due, scale=due.scale / 2))

    patch.setattr(OneDraw, "_noised", mean)
    patch.setattr(OneDraw, "_refuse_other", lambda *_: None)


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (renoise, "sends what its ledger does not hold"),
        (send_first, "sends what its ledger does not hold"),
        (forget, "claims a classical total that is not the sum|claims .* in all"),
        (make_up, "that was never released"),
        (believe, "that was never released"),
        (redraw, "not what the server's ledger holds"),
        (draw_less, "breaks the promise"),
    ],
)
def test_planted_bugs_are_found(simulator, plant, words):
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        with pytest.raises(Violation, match=words):
            play(simulator, range(SEEDS))
