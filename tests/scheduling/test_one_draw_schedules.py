"""Schedules where noise is drawn once: the search, its bounds, and the check of both."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import minimize

import agewise as aw
from agewise.knowledge.estimate import GainTables, gap_of
from agewise.knowledge.one_draw import collapsed, gains_of_one_draw, least_losses
from agewise.scheduling import (
    Bands,
    Draw,
    check_gains_once,
    check_one_draw,
    exhaustive,
    one_draw,
    one_draw_gains,
    one_draw_objective,
    solve_gains_once,
    solve_one_draw,
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
    monkeypatch.setattr(one_draw, "EXHAUSTIVE", 1)  # small problems are simply tried otherwise
    rng = np.random.default_rng(5)
    banded = 0
    for _ in range(problems):
        u, b, draw = random_costs(rng)
        capacity = int(rng.integers(-(-len(u) // u.shape[1]), len(u) + 1))
        capacity = None if rng.random() < 0.6 else capacity
        try:
            best = exhaustive(one_draw_objective(u, b, draw), *u.shape, capacity).objective
        except aw.InvalidInput:
            continue
        if not np.isfinite(best):
            continue
        found = solve_one_draw(u, b, draw, capacity)
        banded += isinstance(found.proof, Bands)
        assert found.objective == pytest.approx(best, rel=1e-9)
        assert found.lower_bound <= best * (1 + 1e-9)
        assert check_one_draw(found, u, b, draw, capacity).holds
    assert banded > 0.9 * problems


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


def _with_gains(problems, monkeypatch):
    rng = np.random.default_rng(6)
    optimal = 0
    for _ in range(problems):
        tables, draw = random_gains(rng)
        best = _every(tables, draw)
        monkeypatch.setattr(one_draw_gains, "TRIED", 1)
        found = solve_gains_once(tables, draw)
        assert isinstance(found.proof, Bands)
        assert found.lower_bound <= best * (1 + 1e-9)
        assert check_gains_once(found, tables, draw).holds
        optimal += found.objective <= best * (1 + 1e-9)
        monkeypatch.undo()
        tried = solve_gains_once(tables, draw)
        assert tried.proof is None
        assert tried.objective == pytest.approx(best, rel=1e-9)
        assert check_gains_once(tried, tables, draw).holds
    assert optimal >= 0.99 * problems


def test_guarantee_with_gains_the_bound_is_never_above_and_the_optimum_is_found(monkeypatch):
    _with_gains(10, monkeypatch)


@pytest.mark.slow
def test_guarantee_with_gains_on_a_thousand_problems(monkeypatch):
    _with_gains(1_000, monkeypatch)


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
    found = solve_gains_once(tables, draw)
    assert found.lower_bound >= found.objective * (1 - 1e-6)
    assert check_gains_once(found, tables, draw).holds


def test_gains_keep_to_the_capacity():
    rng = np.random.default_rng(8)
    for _ in range(4):
        tables, draw = random_gains(rng, clients=4, slots=3)
        found = solve_gains_once(tables, draw, 2)
        assert np.bincount(found.columns).max() <= 2
        assert found.objective == pytest.approx(_every(tables, draw, 2), rel=1e-9)


def _spoilt(found):
    """The schedule with proofs that must not hold."""
    first, *rest = found.proof.bands
    leaf = first.proof
    yield "a gap", dataclasses.replace(found, proof=Bands((*rest,)))
    yield "no bands", dataclasses.replace(found, proof=Bands(()))
    wide = dataclasses.replace(first, high=first.low)
    yield "an empty band", dataclasses.replace(found, proof=Bands((wide, *rest)))
    more = dataclasses.replace(leaf, multipliers=(*leaf.multipliers, 0.0))
    other = dataclasses.replace(first, proof=more)
    yield "more multipliers", dataclasses.replace(found, proof=Bands((other, *rest)))
    yield "a bound", dataclasses.replace(found, lower_bound=found.objective * 1.01)
    yield "an objective", dataclasses.replace(found, objective=found.objective * 0.99)


def test_guarantee_the_check_with_gains_refuses_what_is_not_shown(monkeypatch):
    monkeypatch.setattr(one_draw_gains, "TRIED", 1)
    tables, draw = random_gains(np.random.default_rng(9), clients=4, slots=4)
    found = solve_gains_once(tables, draw)
    assert check_gains_once(found, tables, draw).holds
    for what, spoilt in _spoilt(found):
        assert not check_gains_once(spoilt, tables, draw).holds, what
    louder = dataclasses.replace(draw, scales=draw.scales * 1.1)
    assert not check_gains_once(found, tables, louder).holds


def test_guarantee_the_check_without_gains_refuses_what_is_not_shown(monkeypatch):
    monkeypatch.setattr(one_draw, "EXHAUSTIVE", 1)
    u, b, draw = random_costs(np.random.default_rng(10), clients=12, slots=6)
    found = solve_one_draw(u, b, draw)
    assert check_one_draw(found, u, b, draw).holds
    for what, spoilt in _spoilt(found):
        if what != "an empty band":  # these are levels, and one of them may be alone in a band
            assert not check_one_draw(spoilt, u, b, draw).holds, what
    louder = dataclasses.replace(draw, scales=draw.scales * 1.1)
    assert not check_one_draw(found, u, b, louder).holds


@pytest.mark.parametrize("scales", [[[np.nan, 1.0]], [[-1.0, 1.0]], [[1.0]], [[np.inf, 1.0]]])
def test_scales_that_are_none_are_refused(scales):
    with pytest.raises(aw.InvalidInput, match="scales"):
        solve_one_draw([[1.0, 2.0]], [[0.0, 0.0]], Draw(np.array(scales), 2.0))
