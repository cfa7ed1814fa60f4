"""Schedules where noise is drawn once: the search, its bounds, and the check of both."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import minimize

import agewise as aw
from agewise.knowledge.one_draw import collapsed, gains_of_one_draw, least_losses
from agewise.scheduling import (
    Draw,
    GainTables,
    Halved,
    Leaf,
    Split,
    certified,
    check_gains,
    check_schedule,
    exhaustive,
    gap_of,
    solve_gains,
    solve_schedule,
    table_objective,
    try_all_gains,
)


def random_costs(rng, clients=None, slots=None):
    """Tables in which old data need less noise and are worse, as far as chance allows."""
    m, t = clients or int(rng.integers(2, 6)), slots or int(rng.integers(2, 6))
    width = int(rng.choice([1, 1, 2]))
    u = np.sort(rng.uniform(0, 1, (m, t)), axis=1) * rng.uniform(0.01, 1, (m, 1))
    b = rng.normal(size=(m, t, width)) * rng.uniform(0, 1)
    scales = np.sort(rng.exponential(1, (m, t)), axis=1)[:, ::-1] * rng.uniform(0.1, 3, (m, 1))
    if rng.random() < 0.2:
        u[rng.integers(m), rng.integers(t - 1)] = np.inf
    return u, b if width > 1 else b[..., 0], Draw(scales.copy(), float(rng.uniform(0.5, 4)))


def random_gains(rng, clients=None, slots=None, coordinates=1):
    m, t = clients or int(rng.integers(2, 5)), slots or int(rng.integers(2, 5))
    f = int(rng.integers(0, 4))
    weight = rng.dirichlet(np.ones(m))[:, None, None]
    own, told = rng.uniform(0.1, 2, (2, m, t, coordinates))
    common = rng.normal(size=(m, coordinates, f))
    heard = common[:, None] * rng.uniform(0, 1, (m, t, 1, f))
    tables = GainTables(
        base=(weight**2 * own).sum(axis=2),
        cross=weight * rng.uniform(0, 1, (m, t, coordinates)) * np.sqrt(own * told),
        power=told,
        common=weight * common,
        heard=heard + 0.3 * rng.normal(size=heard.shape),
    )
    return tables, Draw(np.exp(rng.uniform(-3, 3, (m, t))), float(rng.uniform(0.5, 4)))


def loss_of(tables, draw, columns, gains):
    """The loss as it is defined."""
    needed = draw.scales[np.arange(len(columns)), columns]
    largest = np.abs(gains * needed).max()
    return gap_of(tables, columns, gains[:, None]) + draw.power * largest**2


def slow_gains(tables, draw, columns):
    """The best gains and scale by a general solver."""
    needed = draw.scales[np.arange(len(columns)), columns]
    limits = [
        {"type": "ineq", "fun": lambda x, i=i, s=s: x[-1] - s * needed[i] * x[i]}
        for i in range(len(columns))
        for s in (1, -1)
    ]

    def loss(x):
        return gap_of(tables, columns, x[:-1, None]) + draw.power * x[-1] ** 2

    start = np.zeros(len(columns) + 1)
    best = minimize(
        loss, start, constraints=limits, method="SLSQP", options={"maxiter": 500, "ftol": 1e-14}
    )
    return best.fun


def test_gains_for_one_draw_are_those_of_a_general_solver():
    rng = np.random.default_rng(3)
    for _ in range(60):
        tables, draw = random_gains(rng)
        columns = rng.integers(0, tables.slots, tables.clients)
        needed = draw.scales[np.arange(len(columns)), columns]
        gains, scale = gains_of_one_draw(tables, columns, needed, draw.power)
        assert (np.abs(gains) * needed <= scale * (1 + 1e-12)).all()
        value = gap_of(tables, columns, gains[:, None]) + draw.power * scale**2
        assert value == pytest.approx(loss_of(tables, draw, columns, gains), rel=1e-12)
        assert value <= slow_gains(tables, draw, columns) * (1 + 1e-7)
        for _ in range(10):
            other = gains * (1 + rng.normal(0, 0.05, len(gains)))
            assert loss_of(tables, draw, columns, other) >= value * (1 - 1e-12)


def test_one_gain_serves_all_coordinates_of_a_client():
    rng = np.random.default_rng(4)
    tables, _ = random_gains(rng, coordinates=3)
    columns, gains = rng.integers(0, tables.slots, tables.clients), rng.normal(size=tables.clients)
    one = gap_of(collapsed(tables), columns, gains[:, None])
    assert one == pytest.approx(gap_of(tables, columns, np.repeat(gains[:, None], 3, axis=1)))


def _without_gains(problems, monkeypatch):
    monkeypatch.setattr(certified, "EXHAUSTIVE", 1)  # small problems are simply tried otherwise
    rng = np.random.default_rng(5)
    tried = 0
    for _ in range(problems):
        u, b, draw = random_costs(rng)
        capacity = int(rng.integers(-(-len(u) // u.shape[1]), len(u) + 1))
        capacity = None if rng.random() < 0.6 else capacity
        try:
            best = exhaustive(table_objective(u, b, draw), *u.shape, capacity).objective
        except aw.InvalidInput:
            continue
        if not np.isfinite(best):
            continue
        found = solve_schedule(u, b, capacity, draw=draw)
        assert found.objective == pytest.approx(best, rel=1e-9)
        assert found.lower_bound <= best * (1 + 1e-9)
        assert found.relative_gap <= 1e-8
        checked = check_schedule(found, u, b, capacity, draw=draw)
        assert checked.holds, checked.reason
        tried += 1
    assert tried > 0.9 * problems


def test_guarantee_certified_is_exhaustive_with_one_draw(monkeypatch):
    _without_gains(60, monkeypatch)


@pytest.mark.slow
def test_guarantee_certified_is_exhaustive_with_one_draw_on_a_thousand_problems(monkeypatch):
    _without_gains(1_000, monkeypatch)


def _every(tables, draw, capacity=None):
    """The best of all schedules, each with its best gains, one after the other."""
    best = np.inf
    for columns in np.ndindex(*(tables.slots,) * tables.clients):
        if capacity is not None and max(map(columns.count, columns)) > capacity:
            continue
        picked = np.array(columns)
        needed = draw.scales[np.arange(len(picked)), picked]
        gains, _ = gains_of_one_draw(tables, picked, needed, draw.power)
        best = min(best, loss_of(tables, draw, picked, gains))
    return best


def _with_gains(problems):
    rng = np.random.default_rng(6)
    for _ in range(problems):
        tables, draw = random_gains(rng)
        capacity = int(rng.integers(-(-tables.clients // tables.slots), tables.clients + 1))
        best = _every(tables, draw, capacity)
        found = solve_gains(tables, capacity, draw=draw)
        assert found.objective == pytest.approx(best, rel=1e-9)
        assert found.lower_bound <= best * (1 + 1e-9)
        assert found.relative_gap <= 1e-8
        checked = check_gains(found, tables, capacity, draw)
        assert checked.holds, checked.reason
        tried = try_all_gains(tables, capacity, draw)
        assert tried.proof is None
        assert tried.objective == pytest.approx(best, rel=1e-9)
        assert check_gains(tried, tables, capacity, draw).holds


def test_guarantee_with_gains_the_bound_is_never_above_and_the_optimum_is_found():
    _with_gains(6)


@pytest.mark.slow
def test_guarantee_with_gains_on_a_thousand_problems():
    _with_gains(1_000)


def test_guarantee_multipliers_never_show_more_than_a_schedule_loses():
    rng = np.random.default_rng(7)
    for _ in range(20):
        tables, draw = random_gains(rng)
        schedules = rng.integers(0, tables.slots, (20, tables.clients))
        at = rng.normal(size=tables.heard.shape[-1])
        least = least_losses(tables, schedules, draw.scales, draw.power, at)
        for bound, columns in zip(least, schedules, strict=True):
            needed = draw.scales[np.arange(len(columns)), columns]
            gains, _ = gains_of_one_draw(tables, columns, needed, draw.power)
            assert bound <= loss_of(tables, draw, columns, gains) * (1 + 1e-9)


def test_many_clients_are_proven_without_factors():
    tables, draw = random_gains(np.random.default_rng(11), clients=300, slots=20)
    tables = GainTables(
        tables.base, tables.cross, tables.power, tables.common[..., :0], tables.heard[..., :0]
    )
    found = solve_gains(tables, draw=draw)
    assert found.lower_bound >= found.objective * (1 - 1e-6)
    assert check_gains(found, tables, draw=draw).holds


def _leaves(proof):
    if isinstance(proof, Leaf):
        return [proof]
    parts = (
        (proof.inside, proof.outside) if isinstance(proof, Split) else (proof.below, proof.above)
    )
    return [leaf for part in parts for leaf in _leaves(part)]


def _spoilt(found):
    """The schedule with proofs that must not hold."""
    leaf = max(_leaves(found.proof), key=lambda one: len(one.multipliers))
    more = Leaf((*leaf.multipliers, 0.0))
    yield "more multipliers", dataclasses.replace(found, proof=more)
    yield "an empty part", dataclasses.replace(found, proof=Leaf(()))
    wide = Leaf((0.0,) * len(leaf.multipliers))
    yield "another's multipliers", dataclasses.replace(found, proof=wide)
    yield "no scale", dataclasses.replace(found, proof=Halved(np.nan, found.proof, found.proof))
    yield "a part left out", dataclasses.replace(found, proof=Halved(1e9, wide, found.proof))
    yield "a bound", dataclasses.replace(found, lower_bound=found.objective * 1.01)
    yield "an objective", dataclasses.replace(found, objective=found.objective * 0.99)


def test_guarantee_the_check_with_gains_refuses_what_is_not_shown():
    tables, draw = random_gains(np.random.default_rng(9), clients=4, slots=4)
    found = solve_gains(tables, draw=draw)
    assert tables.common.shape[2]
    assert check_gains(found, tables, draw=draw).holds
    for what, spoilt in _spoilt(found):
        assert not check_gains(spoilt, tables, draw=draw).holds, what
    louder = dataclasses.replace(draw, scales=draw.scales * 1.1)
    assert not check_gains(found, tables, draw=louder).holds


def test_guarantee_the_check_without_gains_refuses_what_is_not_shown(monkeypatch):
    monkeypatch.setattr(certified, "EXHAUSTIVE", 1)
    u, b, draw = random_costs(np.random.default_rng(10), clients=12, slots=6)
    found = solve_schedule(u, b, draw=draw)
    assert check_schedule(found, u, b, draw=draw).holds
    for what, spoilt in _spoilt(found):
        assert not check_schedule(spoilt, u, b, draw=draw).holds, what
    louder = dataclasses.replace(draw, scales=draw.scales * 1.1)
    assert not check_schedule(found, u, b, draw=louder).holds


@pytest.mark.parametrize("scales", [[[np.nan, 1.0]], [[-1.0, 1.0]], [[1.0]], [[np.inf, 1.0]]])
def test_scales_that_are_none_are_refused(scales):
    with pytest.raises(aw.InvalidInput, match="scales"):
        solve_schedule([[1.0, 2.0]], [[0.0, 0.0]], draw=Draw(np.array(scales), 2.0))
