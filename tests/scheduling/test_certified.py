import dataclasses
import sys
import threading
import time

import numpy as np
import pytest

import agewise as aw
from agewise.scheduling import (
    Leaf,
    Split,
    check_schedule,
    exhaustive,
    solve_schedule,
    solve_stream,
)
from agewise.scheduling import table_objective as objective_of
from agewise.scheduling.tables import Tables

certified = sys.modules["agewise.scheduling.certified"]
capacity_module = sys.modules["agewise.scheduling.capacity"]
searching = sys.modules["agewise.scheduling.search"]


def tables(rng, clients, slots, dimensions=0):
    """Costs that fall with age and biases that grow with it, as real ones do, but rougher."""
    age = np.arange(slots)[::-1]
    rate = rng.uniform(0.05, 0.6, (clients, 1))
    weight = rng.uniform(0.5, 2, (clients, 1)) / clients
    u = weight**2 * (5 * np.exp(-rate * age) + rng.random((clients, slots)))
    shape = (clients, 1) if dimensions == 0 else (clients, 1, dimensions)
    lean = rng.normal(0, 3, shape)
    grown = 1 - np.exp(-rate * age)
    return u, weight * lean * grown if dimensions == 0 else (
        weight[..., None] * lean * grown[..., None]
    )


def random_case(rng):
    clients, slots = int(rng.integers(1, 6)), int(rng.integers(2, 8))
    dimensions = int(rng.choice([0, 0, 2, 3]))
    u = rng.random((clients, slots)) * rng.choice([0.1, 1, 10])
    b = rng.normal(size=(clients, slots) if dimensions == 0 else (clients, slots, dimensions))
    return u, b


@pytest.mark.parametrize("seed", range(60))
def test_certified_equals_exhaustive(seed, monkeypatch):
    """The real search, not its shortcut for tiny problems."""
    rng = np.random.default_rng(seed)
    u, b = random_case(rng)
    best = exhaustive(objective_of(u, b), *u.shape)
    monkeypatch.setattr(certified, "EXHAUSTIVE", 0)
    found = solve_schedule(u, b)
    assert found.objective == pytest.approx(best.objective, rel=1e-9)
    assert found.lower_bound <= best.objective * (1 + 1e-12)
    assert found.relative_gap <= 1e-9


@pytest.mark.parametrize("seed", range(40))
def test_certified_with_capacity_equals_exhaustive(seed, monkeypatch):
    rng = np.random.default_rng(1000 + seed)
    u, b = random_case(rng)
    limit = max(int(rng.integers(1, 3)), -(-len(u) // u.shape[1]))
    best = exhaustive(objective_of(u, b), *u.shape, limit)
    found = solve_schedule(u, b, limit)
    assert found.objective == pytest.approx(best.objective, rel=1e-12)
    assert found.relative_gap == 0
    assert check_schedule(found, u, b, limit).holds
    monkeypatch.setattr(certified, "EXHAUSTIVE", 0)
    searched = solve_schedule(u, b, limit)
    assert searched.lower_bound <= best.objective * (1 + 1e-9)
    assert searched.objective >= best.objective * (1 - 1e-9)
    assert np.bincount(searched.columns).max() <= limit


def birth_death_problem(rng, clients=30, slots=48, **choices):
    members = []
    for i in range(clients):
        size = int(rng.integers(3, 6))
        up, down = rng.dirichlet([1, 1, rng.choice([1, 4, 16])])[:2]
        states = np.sort(rng.choice(np.arange(1, 40), size, replace=False)) * 10
        law = rng.dirichlet(np.ones(size))
        chain = aw.birth_death(up, down, states)
        members.append(aw.Client(str(i), chain, law, int(rng.integers(20, 400))))
    return aw.Problem(members, slots, float(np.exp(rng.uniform(-4, 0))), **choices)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))]
)
def test_thirty_clients_are_proven_optimal(seed):
    problem = birth_death_problem(np.random.default_rng(seed), estimator="plain")
    made = aw.plan(problem)
    assert made.relative_gap <= 1e-9
    assert made.certificate.holds
    assert made.certificate.reason.startswith("bound recomputed from")


@pytest.mark.parametrize("dimensions", [0, 2])
def test_certificates_hold_and_notice_lies(rng, dimensions):
    u, b = tables(rng, 20, 12, dimensions)
    found = solve_schedule(u, b)
    honest = check_schedule(found, u, b)
    assert honest.holds, honest.reason
    for lie in (
        {"lower_bound": found.objective * 1.001},
        {"objective": found.objective * 0.999},
        {"columns": np.roll(found.columns, 1)},
    ):
        assert not check_schedule(dataclasses.replace(found, **lie), u, b).holds


def test_a_proof_that_leaves_a_part_out_is_noticed(rng):
    u, b = tables(rng, 12, 10)
    found = solve_schedule(u * 50, b)
    leaf = Leaf((1e9,))
    cut = Split(0, frozenset(range(5)), found.proof, leaf)
    assert not check_schedule(dataclasses.replace(found, proof=cut), u * 50, b).holds
    nothing = Split(0, frozenset(range(5)), found.proof, Leaf(()))
    assert not check_schedule(dataclasses.replace(found, proof=nothing), u * 50, b).holds


def test_negative_prices_and_overfull_slots_are_noticed(rng):
    u, b = tables(rng, 40, 10)
    found = solve_schedule(u, b, capacity=5)
    assert check_schedule(found, u, b, 5).holds
    assert not check_schedule(found, u, b, 4).holds
    negative = Leaf((0.0,), tuple([-1.0] * 10))
    assert not check_schedule(dataclasses.replace(found, proof=negative), u, b, 5).holds


def test_many_clients_come_close_and_stay_honest(rng):
    u, b = tables(rng, 60_000, 12)
    found = solve_schedule(u, b)
    assert found.relative_gap <= 1e-6
    assert check_schedule(found, u, b).holds


def test_a_stream_gives_the_same_result(rng):
    u, b = tables(rng, 400_000, 12)
    passes = []

    def blocks():
        passes.append(1)
        for start in range(0, len(u), 70_001):
            yield u[start : start + 70_001], b[start : start + 70_001]

    streamed, held = solve_stream(blocks), solve_schedule(u, b)
    assert streamed.objective == pytest.approx(held.objective, rel=1e-9)
    assert streamed.lower_bound == pytest.approx(held.lower_bound, rel=1e-9)
    np.testing.assert_array_equal(streamed.columns, held.columns)
    assert len(passes) <= 11


def test_small_streams_and_changing_streams(rng):
    u, b = tables(rng, 9, 7)
    found = solve_stream(lambda: [(u[:4], b[:4]), (u[4:], b[4:])])
    assert found.objective == pytest.approx(solve_schedule(u, b).objective, rel=1e-12)
    with pytest.raises(aw.InvalidInput, match="blocks is none"):
        solve_stream(list)


def test_groups_equal_their_clients_spelled_out(rng):
    u, b = tables(rng, 30, 8)
    counts = rng.integers(1, 6, 30)
    grouped = solve_schedule(u, b, counts=counts)
    spelled = solve_schedule(np.repeat(u, counts, axis=0), np.repeat(b, counts, axis=0))
    assert grouped.lower_bound <= spelled.objective * (1 + 1e-12)
    assert grouped.objective >= spelled.lower_bound * (1 - 1e-12)
    np.testing.assert_array_equal(grouped.allocation.sum(axis=1), counts)
    assert check_schedule(grouped, u, b, counts=counts).holds


def test_a_nation_as_groups(rng):
    u, b = tables(rng, 3000, 48)
    counts = rng.integers(1, 20_000, 3000)
    found = solve_schedule(u / 1e4, b / 1e4, counts=counts)
    assert found.relative_gap <= 1e-6
    assert check_schedule(found, u / 1e4, b / 1e4, counts=counts).holds


def test_capacity_by_prices_is_feasible_and_its_bound_is_true(rng, monkeypatch):
    u, b = tables(rng, 60, 12)
    exact = solve_schedule(u, b, capacity=6)
    monkeypatch.setattr(capacity_module, "ASSIGNMENT_CELLS", 0)
    priced = solve_schedule(u, b, capacity=6)
    assert np.bincount(priced.columns).max() <= 6
    assert priced.lower_bound <= exact.objective
    assert check_schedule(priced, u, b, 6).holds
    assert exact.lower_bound <= priced.objective
    assert priced.relative_gap < 0.05


def test_capacity_one_is_an_assignment(rng):
    u, b = tables(rng, 40, 40)
    found = solve_schedule(u, b, capacity=1)
    assert len(set(found.columns.tolist())) == 40
    assert found.relative_gap < 1e-2
    assert check_schedule(found, u, b, 1).holds


def test_forbidden_slots_are_kept_out(rng):
    u, b = tables(rng, 40, 10)
    u[:, 3] = np.inf
    u[0, 1:] = np.inf
    for limit in (None, 6):
        found = solve_schedule(u, b, limit)
        assert found.columns[0] == 0
        assert 3 not in found.columns
        assert np.isfinite(found.objective)


def test_a_warm_start_changes_nothing_but_the_effort(rng):
    u, b = tables(rng, 60_000, 12)
    cold = solve_schedule(u, b)
    warm = solve_schedule(u, b, start=cold.multipliers)
    assert warm.relative_gap <= 1e-6
    assert warm.iterations <= cold.iterations


@pytest.mark.parametrize("limit", [None, 2])
def test_interruption_returns_the_best_so_far_when_asked(rng, limit):
    u, b = tables(rng, 40, 48)

    def interrupt(done, total):
        raise KeyboardInterrupt

    found = solve_schedule(u, b, limit, keep_best=True, progress=interrupt)
    assert not found.complete
    assert found.relative_gap >= 0
    assert found.lower_bound <= solve_schedule(u, b, limit).objective * (1 + 1e-12)
    with pytest.raises(KeyboardInterrupt):
        solve_schedule(u, b, limit, progress=interrupt)


@pytest.mark.parametrize(("clients", "slots", "limit"), [(8, 8, 1), (12, 4, 3), (24, 24, 1)])
def test_schedules_that_fill_every_place_are_proven(clients, slots, limit):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        u = rng.random((clients, slots)) / clients**2
        b = rng.normal(size=(clients, slots)) / clients
        found = solve_schedule(u, b, limit)
        assert check_schedule(found, u, b, limit).holds
        assert found.relative_gap < 0.05


@pytest.mark.parametrize("calls", [1, 2, 7, 20])
def test_interruption_inside_a_part_of_the_search_leaves_a_proven_schedule(rng, monkeypatch, calls):
    u, b = tables(rng, 40, 48)
    done, ask = 0, searching._Search.ask

    def interrupted(*arguments):
        nonlocal done
        if done == calls:
            raise KeyboardInterrupt
        done += 1
        return ask(*arguments)

    monkeypatch.setattr(searching._Search, "ask", interrupted)
    found = solve_schedule(u, b, 2, keep_best=True)
    assert not found.complete
    assert check_schedule(found, u, b, 2).holds


@pytest.mark.parametrize("steps", [1, 4, 10])
def test_interruption_of_a_search_for_many_leaves_a_proven_schedule(rng, steps):
    u, b = tables(rng, 3000, 12)

    def interrupt(done, total):
        if done == steps:
            raise KeyboardInterrupt

    found = solve_schedule(u, b, 300, keep_best=True, progress=interrupt)
    assert not found.complete
    assert found.relative_gap < 1
    assert check_schedule(found, u, b, 300).holds
    with pytest.raises(KeyboardInterrupt):
        solve_schedule(u, b, 300, progress=interrupt)


@pytest.mark.parametrize(
    "forged",
    [
        Leaf((float("nan"),)),
        Leaf((0.0,), (1e3,)),
        Leaf((0.0,), (float("nan"),) * 12),
        Leaf((0.0,), (float("inf"),) * 12),
        Leaf((0.0, 0.0)),
        Leaf(()),
    ],
)
def test_forged_proofs_prove_nothing(rng, forged):
    u, b = tables(rng, 40, 12)
    columns = np.arange(40) % 12
    objective = float(objective_of(u, b)(columns[None])[0])
    lie = aw.Schedule(columns, objective, objective, 1, proof=forged)
    assert not check_schedule(lie, u, b, 4).holds
    honest = solve_schedule(u, b, 4)
    assert not check_schedule(dataclasses.replace(honest, lower_bound=float("nan")), u, b, 4).holds


def test_forged_allocations_are_refused(rng):
    u, b = tables(rng, 30, 8)
    counts = rng.integers(1, 6, 30)
    found = solve_schedule(u, b, counts=counts)
    empty = dataclasses.replace(
        found, allocation=np.zeros_like(found.allocation), objective=0.0, lower_bound=0.0
    )
    assert not check_schedule(empty, u, b, counts=counts).holds
    assert not check_schedule(found, u, b).holds
    for bad in (found.allocation / 2, -found.allocation, found.allocation[:3]):
        with pytest.raises(aw.InvalidInput, match="allocation"):
            check_schedule(dataclasses.replace(found, allocation=bad), u, b, counts=counts)


@pytest.mark.parametrize("nodes", [100, pytest.param(searching.NODES, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dimensions", [0, 2])
def test_degenerate_tables_end_where_nodes_run_out(rng, dimensions, nodes, monkeypatch):
    monkeypatch.setattr(searching, "NODES", nodes)

    def shaped(b):
        return b if dimensions == 0 else np.stack([b, b], axis=2)

    cases = [
        (rng.random((10, 24)), np.zeros((10, 24))),
        (np.zeros((10, 24)), np.zeros((10, 24))),
        (np.zeros((60, 12)), rng.integers(-3, 4, (60, 12)).astype(float)),
        (np.zeros((60, 12)), rng.normal(size=(60, 12))),
        (np.zeros((61, 2)), np.tile([2.0, -2.0], (61, 1))),
        (np.tile(rng.random(24), (100, 1)), np.tile(rng.normal(size=24), (100, 1))),
        (rng.random((100, 1)), rng.normal(size=(100, 1))),
    ]
    for u, b in cases:
        found = solve_schedule(u, shaped(b))
        assert found.lower_bound <= found.objective
        assert np.isfinite(found.objective)


def test_many_identical_rows_are_split(rng):
    row, lean = rng.random(40) / 6e4**2, rng.normal(size=40) / 6e4
    spelled = solve_schedule(np.tile(row, (60_000, 1)), np.tile(lean, (60_000, 1)))
    grouped = solve_schedule(row[None], lean[None], counts=[60_000])
    assert spelled.objective <= grouped.objective * 1.01


def test_capacity_that_is_exactly_used_up(rng):
    u, b = rng.random((1200, 12)) / 1200**2, rng.normal(size=(1200, 12)) / 1200
    found = solve_schedule(u, b, capacity=100)
    assert np.bincount(found.columns, minlength=12).tolist() == [100] * 12


def test_a_schedule_is_found_where_few_exist(rng):
    for _ in range(3):
        clients, slots, limit = 1190, 12, 100
        perm = np.repeat(np.arange(slots), limit)[:clients]
        u = rng.random((clients, slots)) / clients**2
        barred = rng.random((clients, slots)) < 0.95
        barred[np.arange(clients), perm] = False
        u[barred] = np.inf
        found = solve_schedule(u, rng.normal(size=(clients, slots)) / clients, limit)
        assert np.isfinite(found.objective)
        assert np.bincount(found.columns).max() <= limit


@pytest.mark.parametrize("scale", [1.0, pytest.param(1e-7, marks=pytest.mark.slow), 1e-15])
def test_the_unit_of_measurement_does_not_matter(scale):
    rng = np.random.default_rng(4)
    u, b = tables(rng, 30, 8)
    found = solve_schedule(u * scale**2, b * scale, 4)
    assert found.objective / scale**2 == pytest.approx(solve_schedule(u, b, 4).objective, rel=1e-6)


OK = np.ones((2, 3))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: solve_schedule([[np.nan, 1.0]], [[0.0, 0.0]]), r"u\[0, 0\] is nan"),
        (lambda: solve_schedule([[-np.inf, 1.0]], [[0.0, 0.0]]), r"u\[0, 0\] is -inf"),
        (lambda: solve_schedule([[1.0, 1.0]], [[0.0, np.nan]]), r"b\[0, 1\] is nan"),
        (lambda: solve_schedule([[1.0, 1.0]], [[0.0, np.inf]]), r"b\[0, 1\] is inf"),
        (lambda: solve_schedule([[1, 1], [np.inf] * 2], np.zeros((2, 2))), "slot for client 1"),
        (lambda: solve_schedule(np.empty((0, 3)), np.empty((0, 3))), "not empty"),
        (lambda: solve_schedule(OK, np.ones((2, 4))), "to go with u"),
        (lambda: solve_schedule(OK[0], OK[0]), r"shape \[clients, slots\]"),
        (lambda: solve_schedule(OK, np.ones((2, 3, 0))), "to go with u"),
        (lambda: solve_schedule(OK, OK, capacity=0), "capacity is 0"),
        (lambda: solve_schedule(OK, OK, capacity=-1), "capacity is -1"),
        (lambda: solve_schedule(OK, OK, capacity=1.5), "capacity is 1.5"),
        (lambda: solve_schedule(np.ones((7, 3)), np.ones((7, 3)), capacity=2), "at least 3 for 7"),
        (lambda: solve_schedule(OK, OK, counts=[1, 0]), "counts is 0"),
        (lambda: solve_schedule(OK, OK, counts=[1, 1.5]), "counts is 1.5"),
        (lambda: solve_schedule(OK, OK, counts=[1]), r"shape \(2,\)"),
        (lambda: solve_schedule(OK, OK, counts=[1e30, 1]), "counts is too large"),
        (lambda: solve_schedule(OK, OK, counts=[np.inf, 1]), "counts is too large"),
        (lambda: solve_schedule(OK, OK, capacity=1, counts=[1, 2]), "with a capacity"),
        (lambda: solve_schedule(OK, OK, start=[1, 2]), "1 finite multipliers"),
        (
            lambda: solve_schedule([[np.inf, 1], [np.inf, 1]], np.zeros((2, 2)), capacity=1),
            "infinite",
        ),
    ],
)
def test_bad_input_is_refused_in_one_clear_message(call, words):
    with pytest.raises(aw.InvalidInput, match=words):
        call()


def test_a_bad_cell_far_down_is_named(rng):
    u, b = tables(rng, 50_000, 6)
    u[43_217, 2] = np.nan
    with pytest.raises(aw.InvalidInput, match=r"u\[43217, 2\] is nan"):
        solve_schedule(u, b)
    u[43_217, 2] = 1.0
    b[43_219, 5] = np.inf
    with pytest.raises(aw.InvalidInput, match=r"b\[43219, 5\] is inf"):
        solve_schedule(u, b)


def test_the_first_failure_is_raised_whichever_thread_meets_it():
    held = Tables(np.zeros((8, 1)), np.zeros((8, 1)))
    held.blocks = lambda: ((row, held.u[row : row + 1], held.b[row : row + 1]) for row in range(8))
    both_have_one = threading.Barrier(2)

    def work(first, u, b):
        if first >= 6:
            both_have_one.wait()
            time.sleep(0.05 * (first == 6))  # the later one is first to fail
            raise ValueError(first)
        return first

    for _ in range(5):
        with pytest.raises(ValueError, match="6"):
            held.map(work)


def test_what_bounds_a_whole_bounds_its_parts_too():
    """With a capacity, a part's own prices may prove less than those of the whole."""
    problem = birth_death_problem(np.random.default_rng(0), estimator="plain", capacity=2)
    tables = aw.cost_tables(problem)
    found = solve_schedule(tables.u, tables.b, 2)
    checked = check_schedule(found, tables.u, tables.b, 2)
    assert checked.holds, checked.reason
