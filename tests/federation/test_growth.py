"""Work grows with the clients, not with their square: counted in calls, not in seconds."""

import sys

import numpy as np

import agewise as aw


def calls(work):
    """How many functions are called, in Python or in C."""
    count = 0

    def seen(frame, what, argument):
        nonlocal count
        count += what in ("call", "c_call")

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def federation(clients):
    chain = aw.birth_death(0.2, 0.3, [1, 2, 3])
    members = [aw.Client(f"client {i}", chain, samples=5) for i in range(clients)]
    return aw.plan(aw.Problem(members, aggregate_at=4, epsilon=0.5))


def test_a_run_calls_in_proportion_to_its_clients():
    plans = [federation(count) for count in (40, 80, 160)]
    aw.run(plans[0], rng=np.random.default_rng(0))  # what is done once
    few, some, many = (
        calls(lambda plan=plan: aw.run(plan, rng=np.random.default_rng(0))) for plan in plans
    )
    # Twice the clients, twice what is added; a square would give four times.
    assert (many - some) / (some - few) < 2.2
