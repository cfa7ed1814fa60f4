import itertools
import sys

import numpy as np
import pytest

import agewise as aw
from agewise.scheduling import all_schedules, exhaustive, random_schedule, table_objective


def by_loops(u, b, capacity):
    best = None
    for columns in itertools.product(range(u.shape[1]), repeat=u.shape[0]):
        if capacity and max(columns.count(c) for c in columns) > capacity:
            continue
        rows = range(u.shape[0])
        bias = sum(b[i, c] for i, c in zip(rows, columns, strict=True))
        value = sum(u[i, c] for i, c in zip(rows, columns, strict=True)) + np.sum(bias**2)
        if best is None or value < best[0]:
            best = value, columns
    return best


@pytest.mark.parametrize("capacity", [None, 1, 2])
@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 2), (1, 5)])
def test_exhaustive_finds_the_minimum(rng, capacity, shape):
    for _ in range(10):
        u, b = rng.random(shape[:2]), rng.normal(size=shape)
        found = exhaustive(table_objective(u, b), *shape[:2], capacity)
        value, columns = by_loops(u, b, capacity)
        assert found.objective == pytest.approx(value)
        assert tuple(found.columns) == columns
        assert found.relative_gap == 0


def test_blocks_cover_everything(monkeypatch):
    monkeypatch.setattr(sys.modules["agewise.scheduling.exhaustive"], "BLOCK", 7)
    found = np.concatenate(list(all_schedules(3, 4)))
    assert len({tuple(s) for s in found.tolist()}) == 64
    one_each = np.concatenate(list(all_schedules(3, 4, capacity=1)))
    assert len(one_each) == 24


def test_too_many_schedules_are_refused_with_the_alternative():
    with pytest.raises(aw.InvalidInput, match=r"48\^30 .*certified"):
        next(all_schedules(30, 48))


def test_random_schedules_keep_to_the_capacity_and_use_every_slot(rng):
    draws = np.stack([random_schedule(4, 5, rng, 1) for _ in range(500)])
    assert all(len(set(row)) == 4 for row in draws.tolist())
    free = np.stack([random_schedule(3, 10, rng) for _ in range(5000)])
    counts = np.bincount(free.ravel(), minlength=10)
    assert (np.abs(counts - 1500) < 5 * np.sqrt(1500)).all()
