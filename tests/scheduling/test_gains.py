"""Schedules with gains: the dual, the search, and the check of both."""

import dataclasses

import numpy as np
import pytest

import agewise as aw
from agewise.scheduling import (
    GainTables,
    Leaf,
    best_gains,
    certified,
    check_gains,
    exhaustive,
    gain_objective,
    gap_of,
    nothing_heard,
    solve_gains,
)
from agewise.scheduling.gains import Gains


def random_tables(rng, clients=None, slots=None, coordinates=None, factors=None):
    m, t = clients or int(rng.integers(2, 6)), slots or int(rng.integers(2, 6))
    c, f = coordinates or int(rng.choice([1, 1, 2])), factors or int(rng.integers(1, 4))
    weight = rng.dirichlet(np.ones(m))[:, None, None]
    own, told = rng.uniform(0.1, 2, (2, m, t, c))
    noise = np.exp(rng.uniform(-3, 4, (m, t, 1)))
    common = rng.normal(size=(m, c, f))
    heard = common[:, None] * rng.uniform(0, 1, (m, t, 1, f)) + 0.3 * rng.normal(size=(m, t, c, f))
    return GainTables(
        base=(weight**2 * own).sum(axis=2),
        cross=weight * rng.uniform(0, 1, (m, t, c)) * np.sqrt(own * told),
        power=told + noise,
        common=weight * common,
        heard=heard,
    )


def brute_force(tables, capacity=None):
    return exhaustive(gain_objective(tables), tables.clients, tables.slots, capacity).objective


def by_covariances(tables, columns):
    """The best linear estimate from the whole covariance matrix, coordinate by coordinate."""
    rows = np.arange(tables.clients)
    value = tables.base[rows, columns].sum()
    gains = []
    for c in range(tables.cross.shape[2]):
        heard, total = tables.heard[rows, columns, c], tables.common[:, c].sum(axis=0)
        law = np.diag(tables.power[rows, columns, c]) + heard @ heard.T
        told = tables.cross[rows, columns, c] + heard @ total
        gains.append(np.linalg.solve(law, told))
        value += total @ total - told @ gains[-1]
    return value, np.stack(gains, axis=1)


def test_gains_are_those_of_the_covariance_matrix_and_nothing_near_is_better():
    rng = np.random.default_rng(1)
    for _ in range(100):
        tables = random_tables(rng)
        columns = rng.integers(0, tables.slots, tables.clients)
        value, gains = by_covariances(tables, columns)
        assert best_gains(tables, columns) == pytest.approx(gains, rel=1e-8, abs=1e-12)
        assert gap_of(tables, columns, gains) == pytest.approx(value, rel=1e-9)
        assert gain_objective(tables)(columns[None])[0] == pytest.approx(value, rel=1e-9)
        assert value <= nothing_heard(tables, columns) * (1 + 1e-12)
        for _ in range(5):
            other = gains + rng.normal(0, 0.1, gains.shape)
            assert gap_of(tables, columns, other) >= value * (1 - 1e-12)


def _against_brute_force(problems, monkeypatch):
    monkeypatch.setattr(certified, "EXHAUSTIVE", 0)  # small problems are simply tried otherwise
    rng = np.random.default_rng(2)
    for _ in range(problems):
        tables = random_tables(rng)
        found, best = solve_gains(tables), brute_force(tables)
        assert found.lower_bound <= best * (1 + 1e-9)
        assert check_gains(found, tables).holds
        assert found.objective == pytest.approx(best, rel=1e-9)
        assert found.relative_gap <= 1e-8


def test_guarantee_the_dual_is_never_above_brute_force_and_the_optimum_is_found(monkeypatch):
    _against_brute_force(10, monkeypatch)


@pytest.mark.slow
def test_guarantee_the_dual_is_never_above_brute_force_in_a_thousand_problems(monkeypatch):
    _against_brute_force(1000, monkeypatch)


@pytest.mark.parametrize("problems", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_a_capacity_is_kept_and_the_bound_holds(monkeypatch, problems):
    monkeypatch.setattr(certified, "EXHAUSTIVE", 0)
    rng = np.random.default_rng(3)
    for _ in range(problems):
        tables = random_tables(rng, clients=5, slots=4)
        best = brute_force(tables, 2)
        found = solve_gains(tables, 2)
        assert np.bincount(found.columns).max() <= 2
        assert found.lower_bound <= best * (1 + 1e-9)
        assert found.objective == pytest.approx(best, rel=1e-9)
        assert found.relative_gap <= 1e-8
        checked = check_gains(found, tables, 2)
        assert checked.holds, checked.reason


def test_the_gap_at_any_multipliers_is_a_quarter_of_the_squared_slope():
    """So is, at most, the distance of the bound from the best one: L is strongly concave."""
    rng = np.random.default_rng(9)
    for _ in range(30):
        tables = random_tables(rng)
        oracle = Gains(tables)
        at = rng.normal(size=oracle.dimensions)
        value = bound_at(oracle, at)
        columns = oracle.values(at, np.inf).argmin(axis=1)
        rows, factors = np.arange(tables.clients), at.reshape(tables.common.shape[1:])
        told = tables.cross[rows, columns] + (tables.heard[rows, columns] * factors).sum(axis=2)
        objective = gap_of(tables, columns, told / tables.power[rows, columns])
        slope = 2 * (oracle.chosen(columns, at, np.inf).bias.sum(axis=0) - at)
        quarter = float(slope @ slope) / 4
        assert objective - value == pytest.approx(quarter, rel=1e-9)
        further = [bound_at(oracle, at + step * slope / 2) for step in (0.3, 1)]
        assert max(further) <= value + quarter * (1 + 1e-9)


def bound_at(oracle, at):
    """L(λ)."""
    return float(oracle.values(at, np.inf).min(axis=1).sum() - at @ at)


def test_a_small_problem_is_simply_tried():
    tables = random_tables(np.random.default_rng(4), 4, 5)
    found = solve_gains(tables)
    assert found.objective == found.lower_bound == pytest.approx(brute_force(tables), rel=1e-12)
    assert check_gains(found, tables).parts == 5**4


def large(clients, slots, factors):
    rng = np.random.default_rng(5)
    shape, age = (clients, slots, 1), np.linspace(0, 1, slots)[None, :, None]
    own = rng.uniform(0.1, 2, (clients, 1, 1)) * np.ones(shape)
    noise = 10 * np.exp(rng.uniform(-3, 4, (clients, 1, 1))) * (0.02 + age)
    common = rng.normal(1, 0.3, (clients, 1, factors))
    fades = (0.5 + age / 2)[..., None] ** rng.uniform(0.2, 2, (clients, 1, 1, 1))
    return GainTables(
        base=own[..., 0] / clients,
        cross=own * (0.1 + 0.9 * age) / np.sqrt(clients),
        power=own + noise,
        common=common / clients,
        heard=common[:, None] * fades,
    )


@pytest.mark.parametrize("factors", [1, 3])
def test_many_clients_are_certified_to_six_digits(factors):
    tables = large(2000, 12, factors)
    found = solve_gains(tables)
    assert found.relative_gap < 1e-6
    assert check_gains(found, tables).holds
    assert len(set(found.columns.tolist())) > 1


def test_rows_may_stand_for_many_clients():
    rng = np.random.default_rng(9)
    tables, counts = random_tables(rng, 3, 4, 1, 2), np.array([5, 1, 3])
    several = GainTables(
        *(np.repeat(getattr(tables, f.name), counts, axis=0) for f in dataclasses.fields(tables))
    )
    found = solve_gains(tables, counts=counts)
    columns, gains = np.repeat(found.columns, counts), np.repeat(found.gains, counts, axis=0)
    assert found.objective == pytest.approx(gap_of(several, columns, gains))
    assert best_gains(several, columns) == pytest.approx(gains)
    assert check_gains(found, tables.times(counts)).holds
    with pytest.raises(aw.InvalidInput, match="one of the two"):
        solve_gains(tables, 2, counts=counts)
    with pytest.raises(aw.InvalidInput, match="counts"):
        solve_gains(tables, counts=[1, 0, 2])


def test_without_factors_every_client_decides_alone():
    rng = np.random.default_rng(6)
    tables = random_tables(rng, 30, 6, 1, 1)
    tables = dataclasses.replace(tables, common=tables.common[..., :0], heard=tables.heard[..., :0])
    found = solve_gains(tables)
    cells = tables.base - tables.cross[..., 0] ** 2 / tables.power[..., 0]
    assert found.columns.tolist() == cells.argmin(axis=1).tolist()
    assert found.relative_gap < 1e-12


def test_the_check_notices_false_claims(monkeypatch):
    monkeypatch.setattr(certified, "EXHAUSTIVE", 0)
    tables = random_tables(np.random.default_rng(7), 6, 4)
    found = solve_gains(tables)
    assert check_gains(found, tables).holds
    leaf = Leaf(tuple(found.multipliers.tolist()))
    for change, words in (
        ({"objective": found.objective * 0.999}, "the objective is"),
        ({"lower_bound": found.objective * 1.01}, "the bound is"),
        ({"gains": found.gains + 0.01}, "the objective is"),
        ({"proof": dataclasses.replace(leaf, multipliers=(9.9,) * len(leaf.multipliers))}, "bound"),
        (
            {"proof": dataclasses.replace(leaf, multipliers=(1e300,) * len(leaf.multipliers))},
            "bound",
        ),
        ({"proof": dataclasses.replace(leaf, prices=(1.0,) * 4)}, "the bound is"),
    ):
        checked = check_gains(dataclasses.replace(found, **change), tables)
        assert not checked.holds
        assert words in checked.reason
    crowded = check_gains(dataclasses.replace(found, columns=found.columns * 0), tables, 2)
    assert "capacity" in crowded.reason
    for change in ({"gains": None}, {"columns": found.columns[:2]}, {"gains": found.gains[:, :0]}):
        with pytest.raises(aw.InvalidInput):
            check_gains(dataclasses.replace(found, **change), tables)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"power": np.zeros((2, 3, 1))}, "power is 0.0; allowed: above 0"),
        ({"cross": np.zeros((2, 2, 1))}, "cross is of shape"),
        ({"heard": np.full((2, 3, 1, 1), np.nan)}, "heard is nan"),
        ({"base": np.full((2, 3), np.inf)}, "infinite in every slot"),
        ({"base": np.full((2, 3), -np.inf)}, "base is -inf"),
    ],
)
def test_bad_tables_are_refused(change, words):
    good = {
        "base": np.ones((2, 3)),
        "cross": np.ones((2, 3, 1)),
        "power": np.ones((2, 3, 1)),
        "common": np.ones((2, 1, 1)),
        "heard": np.ones((2, 3, 1, 1)),
    }
    GainTables(**good)
    with pytest.raises(aw.InvalidInput, match=words):
        GainTables(**{**good, **change})


def test_what_is_common_may_be_far_above_what_is_left():
    """Ten thousand, of which a few hundred are left: none of their digits are lost."""
    known = aw.scenarios.london().replace(estimator="best", epsilon=1.0)
    plan = aw.plan(known.replace(level=aw.Level(100.0, 0.98)))
    assert plan.nothing_collected > 20 * plan.gap
    assert plan.certificate.objective == pytest.approx(plan.objective, rel=1e-12)
    assert plan.certificate.lower_bound == pytest.approx(plan.objective, rel=1e-12)


def test_more_clients_than_the_capacity_has_room_for():
    with pytest.raises(aw.InvalidInput, match="at least 2 for 5 clients"):
        solve_gains(random_tables(np.random.default_rng(8), 5, 3), 1)
