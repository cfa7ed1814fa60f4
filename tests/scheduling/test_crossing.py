"""The best λ over many rows: few looks at them, whatever they hold, and the λ of bisection."""

import numpy as np
import pytest
from benchmarks.families import FAMILIES, fading, ten_kinds

import agewise as aw
from agewise.scheduling import check_schedule, crossing, one_bias
from agewise.scheduling.crossing import changes_between
from agewise.scheduling.few_rows import Rows, _moved
from agewise.scheduling.moves import best_moves
from agewise.scheduling.one_bias import ENOUGH, search_one_bias
from agewise.scheduling.tables import Tables

SLOTS = 12


@pytest.fixture
def looks(monkeypatch):
    """How many rows were looked at, beyond passes over all of them."""
    seen = {"passes": 0, "rows": 0}
    choose_all, choose, choices, changes = (
        one_bias.choose_all,
        Rows.choose,
        crossing._choices,
        crossing._changes,
    )

    def counted_pass(*arguments, **more):
        seen["passes"] += 1
        return choose_all(*arguments, **more)

    def counted(work, rows):
        def run(*arguments):
            seen["rows"] += len(rows(*arguments))
            return work(*arguments)

        return run

    monkeypatch.setattr(one_bias, "choose_all", counted_pass)
    monkeypatch.setattr(Rows, "choose", counted(choose, lambda self, at: self.u))
    monkeypatch.setattr(crossing, "_choices", counted(choices, lambda u, b, rows, at: rows))
    monkeypatch.setattr(crossing, "_changes", counted(changes, lambda u, b, ends, rows, *_: rows))
    return seen


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_few_looks_are_enough_whatever_the_instance(kind, seed, looks):
    clients = 30_000
    u, b = FAMILIES[kind](clients, SLOTS, np.random.default_rng(seed))
    found = aw.solve_schedule(u, b)
    assert looks["passes"] + looks["rows"] / clients <= 8
    # The bound of tables without costs is 0; what one row leaves, no others can make up for.
    stays_open = kind in ("no_costs", "one_outweighs_all")
    assert found.objective - found.lower_bound <= 2e-4 * found.objective or stays_open
    assert found.lower_bound <= found.objective
    assert check_schedule(found, u, b).holds


@pytest.mark.parametrize("kind", FAMILIES)
def test_the_bound_is_that_of_bisection(kind, monkeypatch):
    clients = 3000
    u, b = FAMILIES[kind](clients, SLOTS, np.random.default_rng(7))
    bisected = search_one_bias(Tables(u, b), None, None)
    monkeypatch.setattr(one_bias, "SAMPLE", 100)
    found = search_one_bias(Tables(u, b), None, None)
    assert found.lower_bound <= bisected.lower_bound * (1 + 1e-12) + 1e-18
    assert found.lower_bound == pytest.approx(bisected.lower_bound, rel=ENOUGH, abs=1e-18)


def test_groups_are_split_as_single_clients_are(monkeypatch):
    rng = np.random.default_rng(3)
    u, b = ten_kinds(2000, SLOTS, rng)
    counts = rng.integers(1, 50, 2000)
    bisected = search_one_bias(Tables(u, b), counts, None)
    monkeypatch.setattr(one_bias, "SAMPLE", 100)
    found = search_one_bias(Tables(u, b), counts, None)
    assert found.lower_bound == pytest.approx(bisected.lower_bound, rel=ENOUGH)
    assert found.objective == pytest.approx(bisected.objective, rel=1e-3)
    assert found.allocation.sum(axis=1).tolist() == counts.tolist()


def test_streams_give_what_arrays_do(monkeypatch):
    monkeypatch.setattr(one_bias, "SAMPLE", 100)
    u, b = fading(3000, SLOTS, np.random.default_rng(1))

    def blocks():
        for start in range(0, 3000, 700):
            yield u[start : start + 700], b[start : start + 700]

    stream = aw.scheduling.solve_stream(blocks)
    whole = search_one_bias(Tables(u, b), None, None)
    assert stream.lower_bound == pytest.approx(whole.lower_bound, rel=1e-12)
    assert stream.objective == pytest.approx(whole.objective, rel=1e-12)


@pytest.mark.parametrize("kind", FAMILIES)
def test_changes_say_what_is_chosen_at_every_multiplier(kind):
    rng = np.random.default_rng(5)
    u, b = FAMILIES[kind](200, SLOTS, rng)
    rows = Rows(u, b, rng.integers(1, 4, 200).astype(float))
    reach = float(np.abs(b).sum()) + 1e-3
    low, high = -reach, reach
    ends = rows.choose(low), rows.choose(high)
    found = changes_between(u, b, rows.weight, (low, high), np.arange(200), ends)
    assert (np.diff(found.at) >= 0).all()
    start = rows.bias(ends[0])
    assert start + found.step.sum() == pytest.approx(rows.bias(ends[1]), abs=1e-9)
    cost = [u[np.arange(200), one] @ rows.weight for one in ends]
    assert cost[0] + found.price.sum() == pytest.approx(cost[1], abs=1e-12 * (1 + reach))
    for at in rng.uniform(low, high, 50):
        here = start + found.step[found.at < at].sum()
        assert here == pytest.approx(rows.bias(rows.choose(at)), abs=1e-9 * reach)


@pytest.mark.parametrize("seed", range(40))
def test_moves_found_at_once_are_those_found_one_row_after_the_other(seed):
    rng = np.random.default_rng(seed)
    step = rng.integers(-50, 51, 60).astype(float)
    weight = rng.integers(1, 2 + seed % 5, 60).astype(float)
    whole = missing = float(rng.integers(-1500, 1500)) + 0.25
    one_by_one = np.zeros(60)
    for row in np.argsort(-np.abs(step), kind="stable"):
        if step[row]:
            one_by_one[row] = np.clip(round(missing / step[row]), 0, weight[row])
            missing -= one_by_one[row] * step[row]
    found = _moved(step, weight, whole)
    assert found.tolist() == one_by_one.tolist()
    assert abs(whole - found @ step) <= abs(whole)


@pytest.mark.parametrize("seed", range(20))
def test_one_or_two_moves_that_cancel_best(seed):
    rng = np.random.default_rng(seed)
    step, off = rng.normal(size=40), float(rng.normal()) * 3
    client = rng.integers(15, size=40)
    left = {(i,): abs(off + step[i]) for i in range(40)}
    left |= {
        (i, j): abs(off + step[i] + step[j])
        for i in range(40)
        for j in range(i)
        if client[i] != client[j]
    }
    moves, gain = best_moves(np.zeros(40), step, client, off)
    found = left[tuple(sorted(moves, reverse=True))]
    assert gain == pytest.approx(found**2 - off**2, abs=1e-12)
    # Of each move's partners the nearest four are looked at, and some may be of the same client.
    assert found <= np.partition(list(left.values()), 3)[3]


def test_moves_that_cost_more_than_they_bring_say_so():
    step, off = np.array([1.0, -1.0, 0.5]), 0.25
    price = np.array([5.0, 5.0, 5.0])
    moves, gain = best_moves(price, step, np.arange(3), off)
    assert moves == [1]
    assert gain == pytest.approx(5.0 + 0.75**2 - off**2)
    free, brought = best_moves(0.1 * price, step, np.arange(3), 4.0)
    assert (free, brought) == ([1], pytest.approx(0.5 + 9.0 - 16.0))


@pytest.mark.parametrize("kind", ["large_biases", "heavy_tails", "ten_kinds", "forbidden_slots"])
def test_groups_too_are_closed_by_moves_of_one_or_two(kind):
    rng = np.random.default_rng(4)
    u, b = FAMILIES[kind](30_000, SLOTS, rng)
    counts = rng.integers(1, 30, 30_000)
    found = aw.solve_schedule(u, b, counts=counts)
    share = found.allocation
    assert share.sum(axis=1).tolist() == counts.tolist()
    spent = float((np.where(share > 0, u, 0.0) * share).sum())
    assert spent + float((b * share).sum()) ** 2 == pytest.approx(found.objective, rel=1e-9)
    assert found.relative_gap <= 5e-4
