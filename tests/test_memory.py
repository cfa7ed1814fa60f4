"""What would not fit in memory is refused at once, with how much it takes and what would help."""

import sys
import tracemalloc

import numpy as np
import pytest

import agewise as aw
from agewise.checks import parse_json
from agewise.loss.size import table_bytes
from agewise.scheduling import GainTables
from agewise.scheduling.gains import Gains

CHAIN = aw.birth_death(0.3, 0.3, [0, 1])
LONDON = aw.scenarios.london()


def of_clients(number, **given):
    members = [aw.Client(f"c{i}", CHAIN, **given) for i in range(number)]
    return aw.Problem(members, 4, 0.5, estimator="plain")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: aw.scenarios.common_level().replace(aggregate_at=100_000),
            "aggregate_at is 100000, for which tables of 298.0 GiB are needed; allowed: what takes "
            "4 GiB at most. Use longer slots",
        ),
        (lambda: aw.plan(of_clients(5_000).replace(aggregate_at=100_000)), "aggregate_at is"),
        (
            lambda: aw.evaluate(of_clients(5_000).replace(aggregate_at=100_000), [1] * 5000),
            "29.8 GiB",
        ),
        (lambda: aw.loss_gap(of_clients(5_000).replace(aggregate_at=100_000), [0] * 5000), "GiB"),
        (
            lambda: aw.run(aw.plan(of_clients(1, samples=10**9).replace(estimator="best"))),
            "samples of client 'c0' is 1,000,0",
        ),
        (lambda: aw.run(aw.plan(of_clients(1, samples=10**6, members=10**6))), "of each of 1,000,"),
        (
            lambda: aw.rehearse(aw.plan(of_clients(1, samples=10**9).replace(estimator="best")), 2),
            "Simulate fewer",
        ),
        (
            lambda: aw.run_rounds(
                aw.plan(of_clients(1).replace(rounds=100_000, every=100_000)), rounds=100_000
            ),
            "rounds is 100000, for which tables of",
        ),
        (
            lambda: aw.plan(
                of_clients(2).replace(objective="simulated"), "exhaustive", trials=10**9
            ),
            "trials is 1000000000, for which tables of",
        ),
    ],
)
def test_what_would_not_fit_is_refused_with_its_size(call, words):
    with pytest.raises(aw.InvalidInput) as refused:
        call()
    assert words in str(refused.value)


def test_simulation_goes_in_blocks_however_many_records_there_are():
    many = aw.simulate_gap(of_clients(1, samples=10**9), [1], 100, np.random.default_rng(1))
    assert many.standard_error > 0


def test_very_many_slots_in_which_nothing_changes_any_more_are_planned():
    problem = LONDON.replace(
        mixing="exact", estimator="best", calibration="sharp", aggregate_at=100_000
    )
    short = aw.plan(problem.replace(aggregate_at=100))
    assert aw.plan(problem).gap == pytest.approx(short.gap, rel=1e-9)


def test_with_a_capacity_no_table_of_each_two_slots_is_made_for_many(rng):
    u, b = rng.random((2, 4, 4_000))
    tracemalloc.start()
    try:
        columns = aw.solve_schedule(u, b, capacity=1).columns
        assert tracemalloc.get_traced_memory()[1] < 2**26  # that table has 2**27 bytes
    finally:
        tracemalloc.stop()
    assert len(set(columns.tolist())) == 4


def test_no_table_of_all_moves_is_made_where_it_would_be_large(rng, monkeypatch):
    made = []
    monkeypatch.setattr(Gains, "held", lambda *_: made.append(1))
    monkeypatch.setattr(sys.modules["agewise.scheduling.search"], "MOVED", 1_000)
    base, heard = rng.random((3, 100)), rng.random((3, 100, 1, 4))
    each = np.ones((3, 100, 1))
    tables = GainTables(base + 9, each, each, rng.random((3, 1, 4)), heard)
    assert aw.scheduling.solve_gains(tables).relative_gap < 1
    assert not made


@pytest.mark.parametrize(
    ("alike", "estimator"),
    [
        (True, "plain"),
        (True, "best"),
        pytest.param(False, "best", marks=pytest.mark.slow),
        pytest.param(False, "plain", marks=pytest.mark.slow),
    ],
)
def test_the_estimate_is_near_what_planning_takes(alike, estimator):
    """For clients that share all their tables, and for such that have their own."""
    rates = [1e-4 + (0 if alike else 1e-6 * i) for i in range(70)]
    chains = [aw.birth_death(rate, rate, [1, 2, 3, 4]) for rate in rates]  # they never settle
    members = [aw.Client(f"c{i}", chain) for i, chain in enumerate(chains)]
    problem = aw.Problem(members, 300, 0.5, estimator=estimator)
    tracemalloc.start()
    try:
        aw.plan(problem)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.4 < taken / table_bytes(problem) < 2.5


def test_json_that_is_nested_too_deeply_is_a_value_error():
    assert parse_json('{"a": [1]}') == {"a": [1]}
    for text in ("[" * 100_000, '{"a":' * 100_000):
        with pytest.raises(ValueError, match="nested too deeply"):
            parse_json(text)
