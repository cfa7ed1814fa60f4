"""Gateways: many clients alike, collected, noised, recorded and sent together."""

import dataclasses
import math
import tracemalloc

import numpy as np
import pytest

import agewise as aw
from agewise.federation import SimulatedRecords, check_run, sources
from agewise.learning import average, averages
from agewise.privacy import Ledger
from parties import LocalRun, OrderRefused, Settings, client_generator, present_mean

STATES = [20, 50, 100, 200]
CHAIN = aw.birth_death(0.2, 0.3, STATES)
NORTH = aw.Client("north", CHAIN, samples=30, members=40)
SOUTH = aw.Client("south", aw.birth_death(0.1, 0.1, STATES), samples=20, members=25)
PROBLEM = aw.Problem([NORTH, SOUTH], 6, 0.5)
PLAN = aw.plan(PROBLEM)


def seeded(**choices):
    return aw.run(PLAN, rng=np.random.default_rng(3), **choices)


def separate(problem):
    """The same clients, each for itself."""
    return problem.replace(
        clients=[
            dataclasses.replace(client, name=f"{client.name} {k}", members=1)
            for client in problem.clients
            for k in range(client.members)
        ]
    )


@pytest.mark.parametrize("seed", range(20))
def test_means_are_those_of_each_to_the_last_bit(seed):
    rng = np.random.default_rng(seed)
    size, width, samples = rng.integers(2, 9), rng.integers(1, 4), int(rng.integers(1, 300))
    states = np.sort(rng.choice(1000, size, replace=False)).astype(float)
    release = rng.normal(size=(size, width)) * 10.0 ** rng.integers(-8, 8, (size, width))
    records = rng.choice(states, (50, samples))
    counts = np.stack([(records == one).sum(axis=1) for one in states], axis=1)
    together = averages(counts, release)
    each = [average(row, states, release, samples) for row in records]
    assert together.tolist() == np.stack(each).tolist()


def test_guarantee_a_gateway_sends_what_its_members_would_release_one_by_one():
    seed = 11
    run = LocalRun(PLAN, Settings(run="run", seed=seed, stand_in=True), None, None)
    run.carry_out(None, None)
    for client, one in zip(PROBLEM.clients, PLAN.assignments, strict=True):
        records = client_generator(seed, client.name, "records")
        noise = client_generator(seed, client.name, "noise")
        law = np.cumsum(client.law_at(one.collect_at))
        sent = []
        for _ in range(client.members):
            drawn = (records.random(client.samples)[:, None] * law[-1] >= law).sum(axis=1)
            states = client.process.states
            value = average(states[drawn], states, states[:, None], client.samples)
            sent.append(aw.seeded_laplace(value, scale=one.noise_scale, rng=noise).value[0])
        upload, _ = run.server.received[client.name]
        assert upload.value == [math.fsum(sent) / client.members]


def test_a_plan_loses_what_that_of_separate_clients_does():
    alone = aw.plan(separate(PROBLEM))
    assert PLAN.gap == pytest.approx(alone.gap, rel=1e-9)
    assert PLAN.nothing_collected == pytest.approx(alone.nothing_collected, rel=1e-9)
    assert PLAN.classical_fresh == pytest.approx(alone.classical_fresh, rel=1e-9)
    assert PLAN.noise_gap == pytest.approx(alone.noise_gap, rel=1e-9)
    scales = {one.client.split()[0]: one.noise_scale for one in alone.assignments}
    assert scales == {one.client: one.noise_scale for one in PLAN.assignments}
    level = PROBLEM.replace(level=aw.Level(20.0, 0.9))
    assert aw.plan(level).gap == pytest.approx(aw.plan(separate(level)).gap, rel=1e-9)


@pytest.mark.parametrize("estimator", ["plain", "propagated", "best"])
def test_the_loss_is_that_of_simulated_members(estimator):
    problem = PROBLEM.replace(estimator=estimator)
    plan = aw.plan(problem)
    found = aw.simulate_gap(problem, plan.ages, 4000, np.random.default_rng(1))
    assert abs(found - plan.gap) < 4 * found.standard_error
    assert plan.gap == pytest.approx(aw.plan(separate(problem)).gap, rel=1e-9)


def test_each_member_has_the_account_and_the_statement_says_so(tmp_path):
    result = aw.run(PLAN, folder=tmp_path / "run")
    with Ledger(tmp_path / "run" / "ledgers" / "north.ledger") as ledger:
        (event,) = ledger.events()
    assert (event.members, event.sensitivity) == (40, pytest.approx(180 / 30))
    assert event.aged_epsilon <= 0.5
    row = result.statement.clients[0]
    assert (row.samples, row.members) == (30, 40)
    assert "| 30 of 40 members |" in str(result.statement)
    assert check_run(tmp_path / "run").differences == ()


def test_blocks_change_nothing(monkeypatch):
    whole = seeded()
    for block in (1, 7, 1000):
        monkeypatch.setattr(sources, "BLOCK", block)
        source = SimulatedRecords(NORTH, 5)
        counts = np.concatenate(list(source.counts(2, 30, 40, block)))
        assert counts.sum() == 30 * 40
        assert counts.tolist() == next(SimulatedRecords(NORTH, 5).counts(2, 30, 40)).tolist()
        present = source.present_of_all(2, 6, 30, 40, CHAIN.states[:, None])
        assert seeded().realised_loss == whole.realised_loss
        alone = dataclasses.replace(NORTH, samples=1200, members=1)
        single = SimulatedRecords(alone, 5).present(2, 6, 1200, CHAIN.states[:, None])
        assert present == pytest.approx(single, rel=1e-12)
        assert present_mean(source, NORTH, 2, 6, CHAIN.states[:, None]) == pytest.approx(single)


def test_memory_does_not_grow_with_the_records():
    peaks = []
    for members in (40_000, 80_000):
        client = dataclasses.replace(NORTH, members=members)
        plan = aw.plan(aw.Problem([client], 6, 0.5))
        run = LocalRun(plan, Settings(run="run", seed=1, stand_in=True), None, None)
        tracemalloc.start()
        run.carry_out(None, None)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[1] - peaks[0]) / 40_000 < 30 * 8  # a record of each member is 8 bytes


def readings(tmp_path, counts):
    path = tmp_path / "meters.csv"
    rng = np.random.default_rng(0)
    lines = ["client,slot,value"]
    for client, count in counts.items():
        for slot in range(1, 7):
            lines += [f"{client},{slot},{value}" for value in rng.choice(STATES, count)]
    path.write_text("\n".join(lines))
    return path


def test_members_that_are_read_from_a_file(tmp_path):
    path = readings(tmp_path, {"north": 1200, "south": 500})
    result = aw.run(PLAN, sources=path, ledgers=tmp_path / "ledgers")
    assert len(result.participants) == 2
    with pytest.raises(aw.InvalidInput, match="1200"):
        aw.run(
            PLAN,
            sources=readings(tmp_path, {"north": 1199, "south": 500}),
            ledgers=tmp_path / "others",
        )


def test_rounds_of_gateways(tmp_path):
    problem = PROBLEM.replace(rounds=None, every=6)
    plan = aw.plan(problem)
    result = aw.run_rounds(plan, rounds=3, folder=tmp_path / "run")
    assert max(one.epsilon for one in result.rounds) <= 0.5 * (1 + 1e-9)
    losses = [(one.estimate[0] - one.truth[0]) ** 2 for one in result.rounds]
    assert max(losses) < 25 * plan.gap
    alone = aw.plan(separate(problem))
    assert plan.gap == pytest.approx(alone.gap, rel=1e-9)


def test_orders_for_other_members_are_refused():
    run = LocalRun(PLAN, Settings(run="run", seed=1, stand_in=True), None, None)
    order = next(o for slot in range(1, 7) for o in run.server.orders(slot) if o.client == "north")
    with run.agent("north") as agent:
        agent.check(order)
        with pytest.raises(OrderRefused, match="40 members"):
            agent.check(order.model_copy(update={"members": 41}))


def test_members_are_kept_in_scenarios(tmp_path):
    (tmp_path / "s.toml").write_text(aw.dump_scenario(PROBLEM))
    assert aw.load_scenario(tmp_path / "s.toml") == PROBLEM
    assert aw.Plan.from_json(PLAN.to_json()).gap == PLAN.gap


@pytest.mark.parametrize(
    "changes",
    [
        {"noise": "server"},
        {"objective": "bound", "estimator": "plain"},
        {"objective": "simulated", "estimator": "plain"},
    ],
)
def test_where_a_gateway_cannot_be(changes):
    with pytest.raises(aw.InvalidInput, match="members"):
        PROBLEM.replace(**changes)


@pytest.mark.parametrize("members", [0, -1, 2.5, 10**9, "many"])
def test_bad_numbers_of_members(members):
    with pytest.raises(aw.InvalidInput, match="members"):
        dataclasses.replace(NORTH, members=members)
