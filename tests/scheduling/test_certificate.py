"""The check of a schedule against hand-made tables, with nothing from the searches."""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import agewise as aw
from agewise.scheduling import Halved, Leaf, Split, certificate, check_schedule

U = np.array([[4.0, 1.0, 9.0], [2.0, 7.0, 5.0], [3.0, 8.0, 6.0]])
B = np.array([[1.0, -2.0, 3.0], [0.0, 4.0, -1.0], [-3.0, 2.0, 1.0]])
COLUMNS = np.array([0, 2, 1])
VALUE = 4 + 5 + 8 + (1 - 1 + 2) ** 2


def schedule(**changes):
    made = aw.Schedule(COLUMNS, float(VALUE), -100.0, 1, proof=Leaf((0.0,)))
    return dataclasses.replace(made, **changes)


def bound_by_hand(proof, u, b, counts, capacity, allowed=None):
    """The least over all leaves of Σ count·min_t[u + 2λb + π] − λ² − c·Σπ, in fractions."""
    if allowed is None:
        allowed = [[math.isfinite(x) for x in row] for row in u]
    if isinstance(proof, Split):
        low, high = [list(row) for row in allowed], [list(row) for row in allowed]
        for t in range(len(u[0])):
            low[proof.client][t] &= t in proof.columns
            high[proof.client][t] &= t not in proof.columns
        return min(
            bound_by_hand(proof.inside, u, b, counts, capacity, low),
            bound_by_hand(proof.outside, u, b, counts, capacity, high),
        )
    if not all(map(any, allowed)):
        return math.inf
    rate = Fraction(proof.multipliers[0])
    prices = [Fraction(p) for p in proof.prices or [0] * len(u[0])]
    total = -(rate**2) - (capacity or 0) * sum(prices)
    for i, row in enumerate(u):
        total += int(counts[i]) * min(
            Fraction(x) + 2 * rate * Fraction(b[i][t]) + prices[t]
            for t, x in enumerate(row)
            if allowed[i][t]
        )
    return total


def leaves(proof):
    return 1 if isinstance(proof, Leaf) else leaves(proof.inside) + leaves(proof.outside)


def random_proof(rng, b, depth, priced):
    if depth == 0 or rng.random() < 0.2:
        prices = tuple(rng.integers(0, 4, b.shape[1]).astype(float).tolist()) if priced else None
        return Leaf((float(rng.integers(-6, 7)) / 2,), prices)
    client, slots = int(rng.integers(len(b))), b.shape[1]
    columns = frozenset(rng.permutation(slots)[: rng.integers(slots + 1)].tolist())
    return Split(client, columns, *(random_proof(rng, b, depth - 1, priced) for _ in range(2)))


@pytest.mark.parametrize("seed", range(40))
def test_the_bound_of_a_proof_is_what_it_says(seed):
    rng = np.random.default_rng(seed)
    u = rng.integers(0, 20, (4, 5)).astype(float)
    u[rng.random((4, 5)) < 0.2] = math.inf
    u[:, 0] = 30.0
    b = rng.integers(-3, 4, (4, 5)).astype(float)
    capacity = 4 if seed % 2 else None
    proof = random_proof(rng, b, 4, priced=capacity is not None)
    columns = np.zeros(4, dtype=int)
    objective = 120.0 + float(b[:, 0].sum()) ** 2
    wanted = bound_by_hand(proof, u, b, [1] * 4, capacity)
    made = aw.Schedule(columns, objective, float(wanted), 1, proof=proof)
    checked = check_schedule(made, u, b, capacity)
    assert checked.holds, checked.reason
    assert (checked.objective, checked.lower_bound) == (objective, wanted)
    assert checked.relative_gap == pytest.approx(
        (objective - float(wanted)) / max(objective, abs(float(wanted)))
    )
    assert checked.parts == leaves(proof)
    assert f"from {checked.parts} set{'s' * (checked.parts > 1)} of" in checked.reason
    above = dataclasses.replace(made, lower_bound=float(wanted) + 1e-6 * objective)
    assert not check_schedule(above, u, b, capacity).holds


def test_rows_that_stand_for_several_clients_count_as_often():
    shares = np.array([[2, 0, 1], [0, 3, 0], [0, 0, 1]])
    vectors = np.stack([B, 2 * B], axis=2)
    cost = 2 * 4 + 9 + 3 * 7 + 6
    bias = 2 * 1 + 3 + 3 * 4 + 1
    value = cost + bias**2 + (2 * bias) ** 2
    leaf = Leaf((0.5, -1.0))
    reduced = U + 2 * (0.5 * B - 1.0 * 2 * B)
    bound = float((np.array([3, 3, 1]) * reduced.min(axis=1)).sum() - 0.25 - 1)
    made = schedule(allocation=shares, objective=float(value), lower_bound=bound, proof=leaf)
    checked = check_schedule(made, U, vectors, counts=[3, 3, 1])
    assert checked.holds, checked.reason
    assert (checked.objective, checked.lower_bound) == (value, bound)
    unused = np.where(shares == 0, math.inf, U)  # nobody is where it is forbidden
    assert (
        check_schedule(
            dataclasses.replace(made, lower_bound=-999.0), unused, vectors, counts=[3, 3, 1]
        ).objective
        == value
    )
    assert "counts" in check_schedule(made, U, vectors, counts=[3, 2, 1]).reason
    assert "counts" in check_schedule(made, U, vectors).reason
    assert "against a capacity" in check_schedule(made, U, vectors, 9, counts=[3, 3, 1]).reason
    bare = dataclasses.replace(made, proof=None)
    assert "no proof" in check_schedule(bare, U, vectors, counts=[3, 3, 1]).reason


@pytest.mark.parametrize("capacity", [None, 1, 2])
def test_without_a_proof_all_schedules_are_tried(monkeypatch, capacity):
    u, b = np.hstack([U, U[:, :1] + 1]), np.hstack([B, -B[:, :1]])
    best = min(
        sum(u[i, t] for i, t in enumerate(every)) + sum(b[i, t] for i, t in enumerate(every)) ** 2
        for every in itertools.product(range(4), repeat=3)
        if capacity is None or max(every.count(t) for t in every) <= capacity
    )
    made = schedule(proof=None, lower_bound=best)
    monkeypatch.setattr(certificate, "ENUMERABLE", 64)
    checked = check_schedule(made, u, b, capacity)
    assert checked.holds
    assert checked.lower_bound == best
    assert checked.parts == 64
    assert checked.reason == "all 64 schedules tried"
    above = dataclasses.replace(made, lower_bound=best + 0.1)
    assert not check_schedule(above, u, b, capacity).holds
    monkeypatch.setattr(certificate, "ENUMERABLE", 63)
    beyond = check_schedule(made, u, b, capacity)
    assert "there is no proof to check" in beyond.reason
    assert (beyond.lower_bound, beyond.parts, beyond.relative_gap) == (-math.inf, 0, 0)


def least_of_all(u, b, capacity):
    """The least objective of all schedules within the capacity, in fractions; b is `[m, T, k]`."""
    clients, slots = len(u), len(u[0])
    exact_u = [[None if math.isinf(x) else Fraction(x) for x in row] for row in u.tolist()]
    exact_b = [[[Fraction(x) for x in cell] for cell in row] for row in b.tolist()]
    found = []
    for every in itertools.product(range(slots), repeat=clients):
        places = list(enumerate(every))
        crowded = capacity is not None and max(map(every.count, every)) > capacity
        if crowded or any(exact_u[i][t] is None for i, t in places):
            continue
        sums = [sum(exact_b[i][t][k] for i, t in places) for k in range(b.shape[2])]
        found.append(sum(exact_u[i][t] for i, t in places) + sum(s * s for s in sums))
    return min(found, default=math.inf)


def small_tables(rng):
    """Whole numbers, so that floats add them exactly; some slots are forbidden."""
    clients, slots, biases = (int(rng.integers(1, most)) for most in (6, 4, 3))
    u = rng.integers(0, 30, (clients, slots)).astype(float)
    u[rng.random(u.shape) < 0.1] = math.inf
    return u, rng.integers(-5, 6, (clients, slots, biases)).astype(float)


@pytest.mark.parametrize("block", [1, 5, 100_000])
@pytest.mark.parametrize("seed", range(8))
def test_guarantee_the_least_of_all_schedules_is_found_whatever_is_tried_at_once(
    seed, block, monkeypatch
):
    """Blocks of one client and of all; capacities that bind within a block and across."""
    monkeypatch.setattr(certificate, "BLOCK", block)
    rng = np.random.default_rng(seed)
    bound = 0
    for _ in range(6):
        u, b = small_tables(rng)
        for capacity in (None, 1, 2, 3):
            wanted = least_of_all(u, b, capacity)
            found = certificate._best_of_all(u, b, capacity)
            none = u.shape[1] == 1 and wanted == math.inf  # of no schedule any bound is true
            assert found == wanted or none, (u, b, capacity)
            bound += wanted not in (least_of_all(u, b, None), math.inf)
    assert bound  # some capacity ruled the best schedule out


@pytest.mark.parametrize(
    ("changes", "capacity", "words"),
    [
        ({"objective": VALUE * (1 + 1e-8)}, None, "the objective is"),
        ({"objective": VALUE * (1 - 1e-8)}, None, "the objective is"),
        ({"lower_bound": None}, None, "not None"),
        ({"lower_bound": 6 + 1e-6}, None, "the bound is 6.0"),
        ({"columns": np.array([0, 2, 2]), "objective": 4 + 5 + 6 + 1.0}, 1, "more clients"),
        ({"proof": Leaf((0.0,), (0.0, 0.0, 0.0))}, None, "the bound is -inf"),
        ({"proof": Leaf((0.0,), (0.0, 0.0))}, 1, "the bound is -inf"),
        ({"proof": Leaf((0.0,), (0.0, 0.0, -0.1))}, 1, "the bound is -inf"),
        ({"proof": Leaf((0.0, 0.0))}, None, "the bound is -inf"),
        ({"proof": Leaf(())}, None, "the bound is -inf"),
        ({"proof": Leaf(())}, 1, "the bound is -inf"),
        (
            {"proof": Split(0, frozenset({1}), Leaf((math.nan,)), Leaf((0.0,)))},
            None,
            "the bound is -inf",
        ),
        (
            {"proof": Split(0, frozenset({1}), Leaf((0.0,)), Leaf((math.inf,)))},
            None,
            "the bound is -inf",
        ),
        (
            {"proof": Split(0, frozenset({3}), Leaf((0.0,)), Leaf((0.0,)))},
            None,
            "the bound is -inf",
        ),
        (
            {"proof": Split(3, frozenset({1}), Leaf((0.0,)), Leaf((0.0,)))},
            None,
            "the bound is -inf",
        ),
        ({"proof": Halved(1.0, Leaf((0.0,)), Leaf((0.0,)))}, None, "the bound is -inf"),
    ],
)
def test_what_is_not_so_is_said(changes, capacity, words):
    assert words in check_schedule(schedule(**changes), U, B, capacity).reason


@pytest.mark.parametrize(
    ("changes", "capacity"),
    [
        ({"objective": VALUE * (1 + 1e-10)}, None),
        ({"lower_bound": 6 + 1e-9}, None),
        ({"columns": np.array([0, 2, 2]), "objective": 4 + 5 + 6 + 1.0}, 2),
        ({"proof": Leaf((0.0,), (0.0, 0.0, 0.0)), "lower_bound": 6.0}, 1),
    ],
)
def test_what_is_so_but_for_rounding_holds(changes, capacity):
    checked = check_schedule(schedule(**changes), U, B, capacity)
    assert checked.holds, checked.reason


@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_lies_are_noticed_in_any_unit(unit):
    """Costs of size u go with biases of size √u."""
    u, b = U * unit, B * math.sqrt(unit)
    honest = schedule(objective=VALUE * unit, lower_bound=6 * unit)
    checked = check_schedule(honest, u, b)
    assert checked.holds
    assert checked.relative_gap == pytest.approx((VALUE - 6) / VALUE)
    for lie in ({"objective": VALUE * unit * (1 - 1e-8)}, {"lower_bound": (6 + 1e-6) * unit}):
        assert not check_schedule(dataclasses.replace(honest, **lie), u, b).holds


def test_where_nothing_costs_anything_there_is_no_gap():
    made = schedule(objective=0.0, lower_bound=0.0)
    checked = check_schedule(made, np.zeros((3, 3)), np.zeros((3, 3)))
    assert checked.holds
    assert checked.relative_gap == 0


def test_a_forbidden_slot_is_noticed():
    u = U.copy()
    u[0, 0] = math.inf
    checked = check_schedule(schedule(objective=math.inf), u, B)
    assert "forbidden" in checked.reason
    assert checked.relative_gap == 0


@pytest.mark.parametrize(
    ("open_slots", "capacity", "none"),
    [
        ([[0, 1], [0], [1]], 1, True),  # three clients, two places
        ([[0, 1], [0], [1]], 2, False),
        ([[0, 1], [0, 2], [0]], 1, False),  # the first two have to make room, one for the other
        ([[0, 1], [0, 1], [0, 1], [2]], 1, True),
        ([[0], [0, 1], [1, 2], [2]], 1, True),
        ([[0], [0, 1], [1, 2], [2]], 2, False),
    ],
)
def test_a_part_without_multipliers_must_hold_no_schedule(open_slots, capacity, none):
    """Its leaf says that nothing fits; checked against trying all."""
    clients = len(open_slots)
    allowed = np.zeros((clients, 3), dtype=bool)
    for client, slots in enumerate(open_slots):
        allowed[client, slots] = True
    fits = any(
        all(allowed[i, t] for i, t in enumerate(every))
        and max(every.count(t) for t in every) <= capacity
        for every in itertools.product(range(3), repeat=clients)
    )
    assert fits is not none
    u = np.where(allowed, 1.0, math.inf)
    b = np.zeros((clients, 3))
    made = aw.Schedule(np.array([s[0] for s in open_slots]), float(clients), 0.0, 1, proof=Leaf(()))
    checked = check_schedule(made, u, b, capacity)
    assert checked.lower_bound == (math.inf if none else -math.inf)


def nan_in(table, value):
    changed = table.copy()
    changed[1, 1] = value
    return changed


@pytest.mark.parametrize(
    ("made", "u", "b", "words"),
    [
        (schedule(), U[0], B, "b is of shape"),
        (schedule(), U, B[:, :2], "b is of shape"),
        (schedule(), nan_in(U, math.nan), B, "NaN"),
        (schedule(), nan_in(U, -math.inf), B, "infinite"),
        (schedule(), U, nan_in(B, math.inf), "infinite"),
        (schedule(columns=COLUMNS * 1.0), U, B, "whole numbers"),
        (schedule(columns=COLUMNS[:2]), U, B, "columns is of shape"),
        (schedule(columns=np.array([0, 2, 3])), U, B, "columns below 3"),
        (schedule(columns=np.array([0, 2, -1])), U, B, "columns below 3"),
        (schedule(allocation=np.ones((3, 2), dtype=int)), U, B, "allocation"),
        (schedule(allocation=np.eye(3)), U, B, "allocation"),
        (schedule(allocation=-np.eye(3, dtype=int)), U, B, "allocation"),
    ],
)
def test_tables_and_schedules_that_make_no_sense_are_refused(made, u, b, words):
    with pytest.raises(aw.InvalidInput, match=words):
        check_schedule(made, u, b)
