"""Work grows with the clients, not with their square: counted in calls, not in seconds."""

import sys

import numpy as np

import agewise as aw
from agewise.federation.server import Server


def calls(work):
    """How many functions are called, in Python or in C."""
    count = 0

    def seen(frame, what, argument):
        nonlocal count
        count += what in ("call", "c_call")

    outer = sys.getprofile()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(outer)
    return count


def federation(clients):
    chain = aw.birth_death(0.2, 0.3, [1, 2, 3])
    members = [aw.Client(f"client {i}", chain, samples=5) for i in range(clients)]
    return aw.plan(aw.Problem(members, aggregate_at=4, epsilon=0.5))


def growth(counts):
    """How much more the second doubling adds than the first: 2 for work linear in clients."""
    few, some, many = counts
    return (many - some) / (some - few)


def test_a_run_calls_in_proportion_to_its_clients(monkeypatch):
    plans, finishing = [federation(count) for count in (40, 80, 160)], []
    whole, finish = [], Server.finish
    monkeypatch.setattr(Server, "finish", lambda *args: measured(finishing, finish, *args))
    for plan in (plans[0], *plans):  # the first also does what is done once
        measured(whole, aw.run, plan, "local", np.random.default_rng(0))
    assert growth(whole[1:]) < 2.1
    assert growth(finishing[1:]) < 2.1  # where a square would hide in the rest


def measured(counts, work, *arguments):
    result = []
    counts.append(calls(lambda: result.append(work(*arguments))))
    return result[0]
