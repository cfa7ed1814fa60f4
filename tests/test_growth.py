"""Work grows with the clients, not with their square: in calls and bytes, not in seconds."""

import sys
import tracemalloc

import numpy as np
import pytest

import agewise as aw
from agewise.privacy import Event
from agewise.privacy.pairwise import release_losses
from agewise.scheduling.one_bias import PASSES
from parties import Server


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
    few, some, many = finishing[1:]
    assert many - some <= 2.1 * (some - few)  # where a square would hide in the rest


def test_clients_alike_take_few_calls_each():
    plans = [federation(count) for count in (200, 200, 400)]
    counts = [calls(lambda p=plan: aw.run(p, rng=np.random.default_rng(0))) for plan in plans]
    assert (counts[2] - counts[1]) / 200 < 120  # alone, a client takes some 3,000


def measured(counts, work, *arguments):
    result = []
    counts.append(calls(lambda: result.append(work(*arguments))))
    return result[0]


def peak(work):
    """The most bytes held at once beyond those held before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def distinct(clients):
    rng = np.random.default_rng(clients)
    rates = rng.uniform(0.05, 0.45, (clients, 2)).tolist()
    return [
        aw.Client(f"client {i}", aw.birth_death(*rate, [1, 2, 3]), samples=5)
        for i, rate in enumerate(rates)
    ]


@pytest.mark.parametrize("estimator", ["plain", "best"])
def test_a_plan_of_clients_that_differ_calls_in_proportion_to_them(estimator):
    counts = []
    for clients in (20, 130, 260, 520):  # the first also does what is done once
        problem = aw.Problem(distinct(clients), aggregate_at=2, epsilon=0.5, estimator=estimator)
        counts.append(calls(lambda problem=problem: aw.plan(problem)))
    assert growth(counts[1:]) < 2.02


@pytest.mark.parametrize("estimator", ["plain", "propagated", "best"])
def test_a_plan_of_clients_that_differ_takes_few_calls_each(estimator):
    counts = []
    for clients in (50, 200, 400):  # the first also does what is done once
        problem = aw.Problem(distinct(clients), aggregate_at=24, epsilon=0.5, estimator=estimator)
        counts.append(calls(lambda problem=problem: aw.plan(problem)))
    assert (counts[2] - counts[1]) / 200 < 400  # one by one, a client takes some 15,000


def test_accounts_alike_take_few_calls_each(tmp_path):
    counts, policy = [], aw.Policy(9.0)
    for number, clients in enumerate((100, 200, 400)):
        plan, where = federation(clients), tmp_path / f"{number}.ledger"
        aw.run(plan, ledgers=where, policy=policy)
        again = {"ledgers": where, "policy": policy, "starts_at": 4}
        counts.append(calls(lambda p=plan, a=again: aw.run(p, **a)))
    assert (counts[2] - counts[1]) / 200 < 900  # alone, a client takes some 6,000


def many_chains(clients):
    rng = np.random.default_rng(0)
    return rng.dirichlet(np.ones(3), (clients, 3)), [1, 2, 3], np.full(clients, 5)


def test_tables_of_many_are_made_block_by_block_never_client_by_client():
    given = [many_chains(clients) for clients in (1000, 1000, 2000, 4000)]
    counts = [calls(lambda one=one: aw.chain_tables(*one, 6, 0.5)) for one in given]
    assert max(counts[1:]) < 1.2 * min(counts[1:])  # threads share the blocks as it happens
    assert growth([peak(lambda one=one: aw.chain_tables(*one, 6, 0.5)) for one in given[1:]]) < 2.2


def costs(clients, slots=48):
    rng = np.random.default_rng(0)
    shape = (clients, slots)
    return rng.random(shape) / clients**2, rng.normal(size=shape) / clients


def test_a_search_over_many_reads_every_row_a_few_times():
    u, b = costs(90_000)
    read = 0

    def blocks():
        nonlocal read
        for start in range(0, len(u), 10_000):
            part = slice(start, start + 10_000)
            read += len(u[part])
            yield u[part], b[part]

    aw.scheduling.solve_stream(blocks)
    assert read <= (PASSES + 2) * len(u)  # two more: to count them, and for a sample


def test_a_search_over_tables_in_memory_takes_memory_in_proportion():
    given = [costs(clients) for clients in (2000, 2000, 4000, 8000)]
    held = [peak(lambda one=one: aw.solve_schedule(*one)) for one in given]
    assert growth(held[1:]) < 2.1


def test_one_more_release_takes_no_more_the_longer_an_account_is():
    chain = aw.birth_death(0.1, 0.2, [1, 2, 3])
    spent = aw.per_release_epsilon(chain, 10, 0.1, promise="present")
    metric = tuple(map(tuple, release_losses(1.0, chain.states).tolist()))
    policy, counts = aw.Policy(0.1, promise="present"), []
    with aw.Ledger(None) as ledger:
        for number in range(120):
            event = Event(
                key=str(number),
                client="north",
                collect_at=1 + 10 * number,
                aggregate_at=1 + 10 * number,
                classical_epsilon=spent,
                aged_epsilon=spent,
                sensitivity=1.0,
                scale=1.0,
                private=True,
                mixing="exact",
                fingerprint=chain.fingerprint,
                made_at="2026-01-01",
                payload=b"",
                metric=metric,
            )
            counts.append(calls(lambda e=event: ledger.release(e.key, lambda _: e, policy, chain)))
    assert max(counts[100:]) <= 1.05 * max(counts[10:30])
