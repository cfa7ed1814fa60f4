"""Kill client processes at random moments, restart them, and report every byte that left them.

Run as a script: `crash.py FOLDER KILLS SEED`. A client process answers one order: it opens its
ledger, collects, trains, adds noise, commits, and sends its upload through a pipe. This process
forks it, kills it with SIGKILL after a random time, and starts it again, until it has come to its
end; killed or not, what came out of the pipe counts as sent. Prints one JSON document.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

import agewise as aw
from agewise.federation.client import ClientAgent, Profile, private_noise, stand_in_noise
from agewise.federation.server import Server
from agewise.federation.sources import SimulatedRecords

CLIENTS = 40


def problem():
    rng = np.random.default_rng(4)
    clients = [
        aw.Client(f"client {i}", aw.birth_death(*rates, [20, 50, 100, 200]), samples=50)
        for i, rates in enumerate(rng.uniform(0.05, 0.45, (CLIENTS, 2)))
    ]
    return aw.Problem(clients, aggregate_at=12, epsilon=0.5)


def answer(order, client, ledgers, seed, pipe):
    noise = private_noise if seed is None else stand_in_noise(seed, client.name)
    profile = Profile(client, 0.5, "exact", aw.Policy(max_aged_epsilon=0.5))
    with aw.Ledger(ledgers / f"{client.name}.ledger") as ledger:
        payload = ClientAgent(profile, SimulatedRecords(client, 9), ledger, noise).answer(order)
    for start in range(0, len(payload), 64):  # a kill may come in the middle of sending
        os.write(pipe, payload[start : start + 64])


def attempt(work, patience):
    """Run `work(pipe)` in a process of its own; kill it after `patience` seconds.

    Returns what it sent, whether it was killed, and how long it took.
    """
    reading, writing = os.pipe()
    begun = time.perf_counter()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            work(writing)
        finally:
            os._exit(0)
    os.close(writing)
    killed = False
    if patience is not None:
        time.sleep(patience)
        done, _ = os.waitpid(child, os.WNOHANG)
        if not done:
            os.kill(child, signal.SIGKILL)
            killed = True
    sent = b"".join(iter(lambda: os.read(reading, 65536), b""))
    os.close(reading)
    if patience is None or killed:
        os.waitpid(child, 0)
    return sent, killed, time.perf_counter() - begun


def disturbed(folder, kills, seed):
    plan = aw.plan(problem())
    server = Server(plan, "run", private=seed is None)
    clients = {c.name: c for c in plan.problem.clients}
    chance = random.Random(1)
    usual = 0.02
    log = {"kills": 0, "killed_before": 0, "killed_after": 0, "sent": {}, "recorded": {}}
    private_noise(1.0, 1.0, 1.0)  # load the noise library once, in the parent
    remaining = len(clients)
    for slot in range(1, plan.problem.aggregate_at + 1):
        for order in server.orders(slot):
            client = clients[order.client]
            heard = log["sent"].setdefault(client.name, [])
            ledger = folder / f"{client.name}.ledger"
            wanted = log["kills"] + -(-(kills - log["kills"]) // remaining)
            remaining -= 1

            def work(pipe, order=order, client=client):
                answer(order, client, folder, seed, pipe)

            while log["kills"] < wanted:
                sent, killed, took = attempt(work, chance.uniform(0, 1.2 * usual))
                if not killed:
                    usual = 0.8 * usual + 0.2 * took
                log["kills"] += killed
                if sent:
                    heard.append(sent.decode())
                if ledger.exists() and ledger.stat().st_size:
                    with aw.Ledger(ledger) as book:
                        count = book.verify()
                    log["killed_after" if count else "killed_before"] += killed
                    assert count >= bool(sent), "something left that the ledger does not show"
                else:
                    log["killed_before"] += killed
                    assert not sent
            payload, _, _ = attempt(work, None)
            heard.append(payload.decode())
            assert server.receive(payload, slot) is None
        server.close(slot)
    for name in clients:
        with aw.Ledger.read(folder / f"{name}.ledger") as book:
            log["recorded"][name] = [event.payload.decode() for event in book.events()]
    log["model"] = server.finish().model
    return log


if __name__ == "__main__":
    place, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    place.mkdir(exist_ok=True)
    print(json.dumps(disturbed(place, kills, None if seed == "none" else int(seed))))
