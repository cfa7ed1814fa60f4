"""Clients alike answer together, and what each sends and records is what it would be alone."""

import contextlib
import dataclasses
import os
import signal
import sys
import time

import numpy as np
import pytest

import agewise as aw
from agewise.federation import (
    SimulatedRecords,
    check_run,
    local,
    local_transport,
    seeding,
    sources,
    together,
)
from agewise.federation import client as client_side
from agewise.federation.seeding import Seeds, client_generator
from agewise.learning import averages
from agewise.privacy import Laplace, Ledger
from parties import (
    SETTINGS,
    Accounts,
    LocalRun,
    LocalTransport,
    Settings,
    Simulated,
    drawn_of_each,
    present_sum,
)
from random_problems import random_problem


def crowd(problem, each, rng):
    """Each client of a problem several times, under other names, in any order."""
    clients = [
        dataclasses.replace(one, name=f"{one.name} é{number}")
        for one in problem.clients
        for number in range(each)
    ]
    return problem.replace(clients=[clients[i] for i in rng.permutation(len(clients))])


def carried_out(plan, monkeypatch, *, alone, stand_in=True, **settings):
    """A run that records in memory, and everything its accounts hold in the end."""
    held, close = [], Accounts.close

    def closing(self):
        held.extend(self.events())
        close(self)

    with monkeypatch.context() as patch:
        patch.setattr(Accounts, "close", closing)
        patch.setattr(client_side, "now", lambda: "2026-01-01T00:00:00+00:00")
        patch.setattr(together, "BLOCK", 3)
        patch.setattr(local_transport, "BATCH", 7)
        if alone:
            patch.setattr(local, "LocalTransport", lambda a, c, s, _: LocalTransport(a, c, s))
        run = LocalRun(plan, Settings(run="run", seed=5, stand_in=stand_in, **settings), None, None)
        result = run.carry_out(None, None)
    return run, result, held


KINDS = [
    {},
    {"estimator": "best"},
    {"mechanism": "gaussian", "delta": 1e-6},
    {"noise": "server"},
    {"calibration": "tight", "mixing": "exact"},
    {"learner": "histogram"},
]


@pytest.mark.parametrize("seed", range(12))
def test_guarantee_clients_together_send_and_record_what_each_would_alone(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    choices = dict(KINDS[seed % len(KINDS)])
    if choices.get("learner") == "histogram":
        chain = aw.birth_death(0.2, 0.3, [1, 2, 3])
        few = [aw.Client("a", chain, samples=5), aw.Client("b", chain, [0.5, 0.25, 0.25], 8)]
        problem = aw.Problem(few, 4, 0.7, learner=aw.Histogram())
    else:
        problem = random_problem(rng, clients=2, slots=3, **choices)
    plan = aw.plan(crowd(problem, 6, rng))
    one, alone, events = carried_out(plan, monkeypatch, alone=True)
    other, batched, rows = carried_out(plan, monkeypatch, alone=False)
    assert other.server.received == one.server.received
    assert len(rows) == len(plan.assignments)
    assert sorted(map(str, rows)) == sorted(map(str, events))  # hashes included
    assert batched.aggregate == alone.aggregate
    assert batched.realised_loss == alone.realised_loss
    assert batched.steps == alone.steps
    assert batched.statement.clients == alone.statement.clients


def test_private_noise_together_claims_what_each_alone_claims(monkeypatch):
    plan = PLAN
    _, alone, _ = carried_out(plan, monkeypatch, alone=True, stand_in=False)
    _, batched, rows = carried_out(plan, monkeypatch, alone=False, stand_in=False)
    told = [
        [
            dataclasses.replace(one, upload_sha256="", noise_scale=0.0, classical_odds=0.0)
            for one in result.statement.clients
        ]
        for result in (alone, batched)
    ]
    for one, other in zip(*told, strict=True):
        assert one.aged_epsilon == pytest.approx(other.aged_epsilon, rel=1e-12)
        assert one.total_classical_epsilon == pytest.approx(other.total_classical_epsilon, rel=1e-9)
        assert (one.client, one.age, one.releases) == (other.client, other.age, other.releases)
    assert len({event.payload for event in rows}) == len(plan.assignments)


CHAIN = aw.birth_death(0.2, 0.3, [20, 50, 100, 200])
CLIENTS = [aw.Client(f"client {i}", CHAIN, samples=10 + i % 2) for i in range(120)]
PLAN = aw.plan(aw.Problem(CLIENTS, aggregate_at=4, epsilon=0.5))


def test_noise_of_many_drawn_at_once_has_the_scale_of_each(monkeypatch):
    """With power: a scale a third off fails."""
    same = [aw.Client(f"client {i}", CHAIN, samples=10) for i in range(1500)]
    plan = aw.plan(aw.Problem(same, aggregate_at=1, epsilon=0.5))
    run, _, _ = carried_out(plan, monkeypatch, alone=False, stand_in=False)
    sent = np.array([run.server.received[c.name][0].value[0] for c in same])
    means = np.array([SimulatedRecords(c, 5).collect(1, 10).mean() for c in same])
    scale = plan.assignments[0].noise_scale
    off = np.abs(sent - means) / scale  # exponential, of mean 1
    assert abs(off.mean() - 1) < 5 / np.sqrt(len(same)) < 0.3 / 2
    assert abs(np.mean(sent > means) - 0.5) < 5 * 0.5 / np.sqrt(len(same))


def test_one_file_holds_what_a_file_each_would(tmp_path, monkeypatch):
    monkeypatch.setattr(client_side, "now", lambda: "2026-01-01T00:00:00+00:00")
    results = []
    for where in (tmp_path / "each", tmp_path / "all.ledger"):
        settings = Settings(run="run", seed=5, stand_in=True, ledgers=str(where))
        results.append(LocalRun(PLAN, settings, None, None).carry_out(None, None))
    assert results[0].aggregate == results[1].aggregate
    with Accounts(tmp_path / "all.ledger") as accounts:
        assert accounts.verify() == len(CLIENTS)
        for client in CLIENTS[:20]:
            with Ledger(tmp_path / "each" / f"{client.name}.ledger") as own:
                assert accounts.of(client.name).events() == own.events()


def test_a_run_of_many_keeps_one_file_and_is_checked(tmp_path):
    result = aw.run(PLAN, folder=tmp_path / "run")
    assert result.private
    assert (tmp_path / "run" / "clients.ledger").exists()
    assert not (tmp_path / "run" / "ledgers").exists()
    report = check_run(tmp_path / "run")
    assert report.differences == ()
    few = aw.plan(aw.Problem(CLIENTS[:3], aggregate_at=4, epsilon=0.5))
    aw.run(few, folder=tmp_path / "few")
    assert sorted(p.name for p in (tmp_path / "few" / "ledgers").iterdir()) == [
        f"client {i}.ledger" for i in range(3)
    ]


def test_budgets_outlive_a_run_and_each_client_has_its_own(tmp_path):
    meters = tmp_path / "deep" / "meters.ledger"
    part = aw.plan(aw.Problem(CLIENTS[:60], aggregate_at=4, epsilon=0.5))
    aw.run(part, ledgers=meters)
    with pytest.raises(aw.BudgetExceeded):
        aw.run(PLAN, ledgers=meters)
    result = aw.run(PLAN, ledgers=meters, on_missing="renormalise")
    assert sorted(result.missing) == sorted(c.name for c in CLIENTS[:60])
    assert set(result.missing.values()) == {"budget"}
    with Accounts(meters) as accounts:
        assert accounts.verify() == 120


def test_rounds_keep_their_accounts_in_one_file(tmp_path):
    problem = PLAN.problem.replace(rounds=3, every=4)
    result = aw.run_rounds(aw.plan(problem), rounds=2, folder=tmp_path / "run")
    assert max(one.epsilon for one in result.rounds) <= 0.5 * (1 + 1e-9)
    with Accounts(tmp_path / "run" / "clients.ledger") as accounts:
        assert accounts.verify() == 2 * len(CLIENTS)
        assert [event.number for event in accounts.of("client 5").events()] == [1, 2]


def test_readings_are_averaged_and_who_has_none_is_missing(tmp_path):
    clients = CLIENTS[:6]
    plan = aw.plan(aw.Problem(clients, aggregate_at=2, epsilon=0.5))
    lines = ["client,slot,value"]
    for client in clients[:5]:
        for slot in (1, 2):
            lines += [
                f"{client.name},{slot},{value}" for value in [21, *[50] * (client.samples - 1)]
            ]
    (tmp_path / "r.csv").write_text("\n".join(lines))
    choices = {"sources": tmp_path / "r.csv", "on_missing": "renormalise"}
    result = aw.run(plan, ledgers=tmp_path / "all.ledger", **choices)
    assert result.missing == {"client 5": "records"}
    assert result.clipped == {c.name: 1 for c in clients[:5]}
    with pytest.raises(aw.InvalidInput, match="client 5"):
        aw.run(plan, ledgers=tmp_path / "other.ledger", sources=tmp_path / "r.csv")
    assert not (tmp_path / "other.ledger").exists()


def test_a_file_that_cannot_be_written_releases_nothing(tmp_path, monkeypatch):
    def full(self, *_):
        raise aw.InvalidInput("ledger", "full", "space on the disk", "Nothing was released.")

    monkeypatch.setattr(Accounts, "begin_with", full)
    sent = []
    with pytest.raises(aw.AgewiseError, match="space on the disk"):
        aw.run(PLAN, folder=tmp_path / "run", watch=lambda step, *_: sent.append(step.what))
    assert "uploaded" not in sent
    with Accounts(tmp_path / "run" / "clients.ledger") as accounts:
        assert accounts.verify() == 0


@pytest.mark.parametrize("known", [True, False], ids=["in place", "as documented"])
@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**70])
def test_generators_of_many_are_those_of_each(seed, known, monkeypatch):
    if known:
        assert seeding._layout() is not None
    else:
        monkeypatch.setattr(seeding, "_layout", lambda: None)
    names = [f"client {i}" for i in range(200)]
    seeds, some = Seeds(seed, names, "records"), names[::-3]
    others = seeds.of(names)  # under way at the same time
    for name, rng in zip(some, seeds.of(some), strict=True):
        next(others).random()
        own = client_generator(seed, name, "records")
        assert rng.random(3).tolist() == own.random(3).tolist()
        assert rng.laplace(0.0, 2.0) == own.laplace(0.0, 2.0)


@pytest.mark.parametrize("seed", [0, 7, 2**40])
def test_noise_of_many_at_once_is_that_of_each_generator(seed):
    names = [f"client {i}" for i in range(20_000)]
    seeds = Seeds(seed, names, "noise")
    some = names[::-3]
    firsts = seeds.firsts(some)
    assert firsts.tolist() == [rng.random() for rng in seeds.of(some)]
    values, laplace = np.linspace(0, 1, len(some))[:, None], Laplace()
    one_by_one = laplace.imitate_each(values, scale=0.3, rngs=seeds.of(some))
    at_once = laplace.imitate_each(values, scale=0.3, rngs=iter(()), firsts=firsts)
    assert at_once.value.tolist() == one_by_one.value.tolist()
    assert at_once == dataclasses.replace(one_by_one, value=at_once.value)
    # A chance of 0 is drawn again: then each generator has to be asked.
    firsts[5] = 0.0
    asked = laplace.imitate_each(values, scale=0.3, rngs=seeds.of(some), firsts=firsts)
    assert asked.value.tolist() == one_by_one.value.tolist()


def test_a_hash_that_begins_with_zeros_is_a_number_of_fewer_words(monkeypatch):
    told = seeding._told

    def short(names, purpose):
        hashes = [(name, told([name], purpose)) for name in names]
        return b"".join(bytes(4) + it[4:] if name == "client 1" else it for name, it in hashes)

    monkeypatch.setattr(seeding, "_told", short)
    names = [f"client {i}" for i in range(3)]
    assert Seeds(5, names, "noise").firsts(names) is None
    for name, rng in zip(names, Seeds(5, names, "noise").of(names), strict=True):
        assert rng.random() == client_generator(5, name, "noise").random()


@pytest.mark.parametrize("last", [2, 5], ids=["fresh", "aged"])
@pytest.mark.parametrize("held", [1, 200, sources.HELD])
@pytest.mark.parametrize("law", [None, [0.25, 0.25, 0.5, 0.0]])
def test_the_records_of_many_are_those_of_each(law, held, last, monkeypatch):
    monkeypatch.setattr(sources, "HELD", held)
    clients = [aw.Client(f"client {i}", CHAIN, law, samples=37) for i in range(20)]
    table = np.stack([CHAIN.states, CHAIN.states**2], axis=1)
    names = [client.name for client in clients]
    seeds = Seeds(9, [*names, "somebody else"], "records")
    counts, later = drawn_of_each(clients[0], names, seeds, 2, last)
    for client, here, there in zip(clients, counts, averages(later, table), strict=True):
        own = SimulatedRecords(client, 9)
        assert np.sort(np.repeat(CHAIN.states, here)).tolist() == sorted(own.collect(2, 37))
        assert there.tolist() == own.present(2, last, 37, table).tolist()


def test_what_was_collected_is_not_drawn_again_and_means_the_same(monkeypatch):
    clients = [aw.Client(f"client {i}", CHAIN, samples=5 + i % 2) for i in range(30)]
    clients.append(aw.Client("gateway", CHAIN, samples=3, members=4))
    problem = aw.Problem(clients, aggregate_at=6, epsilon=0.5)
    slots = [1 + i % 3 for i in range(31)]
    names = [client.name for client in clients]
    weights = dict(zip(names, problem.weights.tolist(), strict=True))
    target = weights, dict(zip(names, slots, strict=True))
    drawn = []
    whole = sources.drawn_of_each

    def counted(client, names, *rest):
        drawn.extend(names)
        return whole(client, names, *rest)

    monkeypatch.setattr(sources, "drawn_of_each", counted)
    anew = present_sum(problem, Simulated(problem, 4), *target)
    assert sorted(drawn) == sorted(c.name for c in clients[:-1])
    drawn.clear()
    kept = Simulated(problem, 4)
    kept.collect([clients[0].name, clients[6].name], 1)
    kept.collect([clients[2].name, clients[8].name], 1)  # they collect in slot 3
    kept.collect([clients[6].name, clients[12].name], 1)  # one of them again
    drawn.clear()
    assert present_sum(problem, kept, *target).tolist() == anew.tolist()
    told = {clients[i].name for i in (0, 6, 12)}
    assert sorted(drawn) == sorted(c.name for c in clients[:-1] if c.name not in told)
    named = {client.name: client for client in clients}
    one_by_one = present_sum(problem, lambda name: SimulatedRecords(named[name], 4), *target)
    assert one_by_one.tolist() == anew.tolist()


def killed_after(folder, seconds):
    """Run in a process of its own, and kill that; return what the journal told before."""
    child = os.fork()
    if child == 0:  # nothing of the tests may run in here
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
            with contextlib.suppress(BaseException):
                aw.run(PLAN, folder=folder)
            os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    file = folder / "clients.ledger"
    if not (folder / SETTINGS).exists() or not file.exists():
        return {}
    journal = folder / "clients.ledger-journal"
    if journal.exists():  # of the transaction that was cut off: opening takes it back
        Accounts(file).close()
    with Accounts(file) as accounts:
        return {event.client: event.payload for event in accounts.events()}


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.parametrize("wanted", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_guarantee_kills_of_batches_lose_nothing_and_spend_nothing_twice(
    tmp_path, monkeypatch, wanted
):
    """Killed at any moment, until so many runs were cut off between their start and their end."""
    aw.run(PLAN)  # loads OpenDP before anything is measured
    monkeypatch.setattr(local_transport, "BATCH", 10)
    begun = time.perf_counter()
    aw.run(PLAN, folder=tmp_path / "whole")
    whole = time.perf_counter() - begun
    rng, resumed = np.random.default_rng(wanted), 0
    for number in range(50 * wanted):
        if resumed == wanted:
            break
        folder = tmp_path / f"{number}"
        before = killed_after(folder, float(rng.uniform(0, whole)))
        if not (folder / SETTINGS).exists() or (folder / "record.json").exists():
            continue
        resumed += 1
        result = aw.resume(folder)
        assert len(result.participants) == len(CLIENTS)
        with Accounts(folder / "clients.ledger") as accounts:
            events = accounts.events()
        assert sorted(event.client for event in events) == sorted(c.name for c in CLIENTS)
        assert {e.client: e.payload for e in events if e.client in before} == before
        if resumed % 5 == 1:
            assert check_run(folder).differences == ()
    assert resumed == wanted


def test_sources_with_seeds_of_their_own_are_asked_themselves():
    """What is sent is what each source collects, whatever the seed of the first."""
    chain = aw.birth_death(0.3, 0.3, [0, 1])
    clients = [aw.Client(f"c{i}", chain, samples=10) for i in range(4)]
    plan = aw.plan(aw.Problem(clients, 3, 1e9, estimator="plain"))
    sources = {c.name: SimulatedRecords(c, 100 + i) for i, c in enumerate(clients)}
    sources["c3"] = SimulatedRecords(dataclasses.replace(clients[0], samples=10), 7)  # another's
    result = aw.run(plan, rng=np.random.default_rng(1), sources=sources)
    slots = dict(zip([a.client for a in plan.assignments], plan.collect_at, strict=True))
    collected = [sources[c.name].collect(slots[c.name], 10).mean() for c in clients]
    assert result.model == pytest.approx(np.mean(collected), abs=1e-6)


def again(where, monkeypatch, *, alone, policy):
    """Two runs on the same accounts, then one with half of the clients, then all again."""
    results = []
    half = aw.plan(aw.Problem(CLIENTS[::2], aggregate_at=4, epsilon=0.5))
    with monkeypatch.context() as patch:
        patch.setattr(client_side, "now", lambda: "2026-01-01T00:00:00+00:00")
        patch.setattr(together, "BLOCK", 25)
        patch.setattr(local_transport, "BATCH", 40)
        if alone:
            patch.setattr(local, "LocalTransport", lambda a, c, s, _: LocalTransport(a, c, s))
        for number, plan in enumerate((PLAN, PLAN, half, PLAN)):
            settings = Settings(
                run=f"run {number}",
                seed=number,
                stand_in=policy.promise is None,
                ledgers=str(where),
                policy=policy,
                starts_at=40 * number,
            )
            run = LocalRun(plan, settings, None, None)
            run.prepare(None)
            results.append(run.carry_out(None, None))
    return results


def test_guarantee_accounts_alike_are_carried_on_together(tmp_path, monkeypatch):
    """With the stand-in, what every account holds in the end is what it would hold alone."""
    policy, held, results = aw.Policy(5.0), [], []
    for alone in (True, False):
        where = tmp_path / f"{alone}.ledger"
        results.append(again(where, monkeypatch, alone=alone, policy=policy))
        with Accounts(where) as accounts:
            assert accounts.verify() == 3 * len(CLIENTS) + len(CLIENTS[::2])
            held.append({c.name: accounts.of(c.name).events() for c in CLIENTS})
    assert held[0] == held[1]  # hashes included
    for one, other in zip(*results, strict=True):
        assert one.aggregate == other.aggregate
        assert one.statement.clients == other.statement.clients


def test_private_releases_on_accounts_alike_add_up(tmp_path, monkeypatch):
    policy = aw.Policy(2.0, promise="present")
    asked = []
    answer = local.LocalRun.answer
    monkeypatch.setattr(
        local.LocalRun, "answer", lambda self, order: asked.append(order) or answer(self, order)
    )
    results = again(tmp_path / "all.ledger", monkeypatch, alone=False, policy=policy)
    assert asked == []  # nobody had to answer by itself
    last = {one.client: one for one in results[-1].statement.clients}
    for place, client in enumerate(CLIENTS):
        row, releases = last[client.name], 3 + (place % 2 == 0)
        assert row.releases == releases
        spent = next(a for a in PLAN.assignments if a.client == client.name).classical_epsilon
        assert row.total_classical_epsilon == pytest.approx(releases * spent, rel=1e-2)
        assert row.aged_epsilon <= row.total_aged_epsilon <= 2.0
    with Accounts(tmp_path / "all.ledger") as accounts:
        assert accounts.verify() == 3 * len(CLIENTS) + len(CLIENTS[::2])
        for client in CLIENTS[:3]:
            accounts.of(client.name).check_account(client.process)


def test_a_budget_that_some_have_spent_refuses_those_only(tmp_path):
    where = tmp_path / "all.ledger"
    part = aw.plan(aw.Problem(CLIENTS[:60], aggregate_at=4, epsilon=0.5))
    room = aw.Policy(0.8)
    aw.run(part, ledgers=where, policy=room)
    result = aw.run(PLAN, ledgers=where, policy=room, on_missing="renormalise")
    assert sorted(result.missing) == sorted(c.name for c in CLIENTS[:60])
    assert len(result.participants) == 60


def test_accounts_that_differ_are_not_taken_for_alike(tmp_path):
    """A release that only one of them has made counts for that one."""
    where = tmp_path / "all.ledger"
    one = aw.plan(aw.Problem(CLIENTS[:1], aggregate_at=4, epsilon=0.5))
    aw.run(one, ledgers=where, policy=aw.Policy(9.0))
    aw.run(PLAN, ledgers=where, policy=aw.Policy(9.0), starts_at=8)
    result = aw.run(PLAN, ledgers=where, policy=aw.Policy(9.0), starts_at=16)
    releases = {row.client: row.releases for row in result.statement.clients}
    assert releases.pop(CLIENTS[0].name) == 3
    assert set(releases.values()) == {2}


def test_long_accounts_are_known_by_what_they_carry_on(tmp_path, monkeypatch):
    from agewise.privacy import accounts as file

    monkeypatch.setattr(file, "FEW", 1)
    policy = aw.Policy(2.0, promise="present")
    few = aw.plan(aw.Problem(CLIENTS[:20], aggregate_at=4, epsilon=0.5))
    for number in range(3):
        where, starts_at = tmp_path / "all.ledger", 40 * number
        result = aw.run(few, ledgers=where, policy=policy, starts_at=starts_at)
        assert {row.releases for row in result.statement.clients} == {number + 1}
    plain = aw.Policy(9.0)  # needs all events, which long accounts are not compared by
    result = aw.run(few, ledgers=tmp_path / "all.ledger", policy=plain, starts_at=200)
    assert {row.releases for row in result.statement.clients} == {4}
