"""Plans of very many clients count those that are alike: the same losses, bounds that hold."""

import json
import sys
import tracemalloc

import numpy as np
import pytest

import agewise as aw

CHAINS = [aw.birth_death(up, down, [20, 50, 100, 200]) for up, down in ((0.1, 0.2), (0.3, 0.3))]
TABLES = sys.modules[aw.CostTables.__module__]
COUNTED = sys.modules[aw.plan.__module__.replace("search", "counted")]
MODES = [
    {},
    {"estimator": "plain"},
    {"estimator": "propagated"},
    {"noise": "server"},
    {"noise": "server", "estimator": "plain"},
    {"level": aw.Level(20.0, 0.9)},
    {"level": [aw.Level(20.0, 0.9), aw.Level(5.0, 0.5)], "mixing": "any_prior"},
    {"level": aw.Level(20.0, 0.9), "noise": "server"},
    {"learner": aw.Histogram()},
    {"learner": aw.Histogram(), "estimator": "plain"},
    {"estimator": "plain", "mixing": "own_law"},
    {"learner": aw.Histogram(), "estimator": "plain", "mixing": "own_law", "noise": "server"},
]
DEAR = pytest.param(MODES[7], marks=pytest.mark.slow)


def problem(count, slots=4, **choices):
    """Clients of four kinds; with own_law their stated law is not the long-run one: means drift."""
    law = [0.7, 0.2, 0.1, 0.0] if choices.get("mixing") == "own_law" else None
    clients = [
        aw.Client(f"c{i}", CHAINS[i % 2], law=law, samples=20 + 10 * (i % 3 == 0))
        for i in range(count)
    ]
    return aw.Problem(clients, slots, 0.3, **choices)


@pytest.fixture
def counted_from(monkeypatch):
    """Count clients from so many on; what was worked out for another number is forgotten."""

    def forget():
        for one in ("rows_of", "shared_tables", "_cost_tables", "_known_tables", "_known_at"):
            getattr(TABLES, one).cache_clear()

    def change(number):
        monkeypatch.setattr(TABLES, "COUNTED", number)
        monkeypatch.setattr(TABLES, "MANY_ALIKE", 1)
        forget()

    yield change
    forget()


def both(counted_from, asked, **given):
    """The plan that counts clients, and the one with a row for each."""
    counted_from(2)
    assert COUNTED.counted_tables(asked) is not None
    one = aw.plan(asked, **given)
    counted_from(10**9)
    return one, aw.plan(asked, **given)


@pytest.mark.parametrize("choices", [*MODES[:7], *MODES[8:], DEAR], ids=str)
def test_guarantee_no_schedule_beats_a_bound_from_counts(counted_from, choices):
    """By trying all schedules of seven clients, of four kinds in their samples and chains."""
    asked = problem(7, slots=3, **choices)
    counted, _ = both(counted_from, asked)
    best = aw.plan(asked, method="exhaustive")
    size = best.objective * 1e-9
    assert counted.lower_bound <= best.objective + size
    assert counted.objective >= best.objective - size
    assert counted.certificate.holds
    # What is alike may be spread over slots, so with so few clients little is left open.
    assert counted.gap <= best.gap * 1.05 + size


@pytest.mark.parametrize("choices", [*MODES[:7], *MODES[8:], DEAR], ids=str)
def test_counted_plans_lose_what_listed_ones_do(counted_from, choices):
    dear = "level" in choices and "noise" in choices  # a search over scales and multipliers
    counted, listed = both(counted_from, problem(24 if dear else 60, **choices))
    assert counted.gap <= listed.gap * (1 + 5e-3)
    assert counted.objective == pytest.approx(counted.gap, rel=1e-9)
    assert counted.lower_bound <= listed.gap * (1 + 1e-9)
    assert counted.lower_bound >= listed.lower_bound * (1 - 1e-3)
    assert counted.nothing_collected == pytest.approx(listed.nothing_collected, rel=1e-12)
    assert counted.classical_fresh == pytest.approx(listed.classical_fresh, rel=1e-9)
    # The same schedule by the tables of each client, which share nothing with those of rows.
    assert aw.evaluate(counted.problem, counted.collect_at).gap == pytest.approx(
        counted.gap, rel=1e-9
    )
    assert aw.loss_gap(counted.problem, counted.ages) == pytest.approx(counted.gap, rel=1e-9)


@pytest.mark.parametrize("choices", [MODES[1], MODES[4], MODES[5]], ids=str)
def test_counted_plans_travel_and_their_proof_is_checked(counted_from, choices):
    asked = problem(40, **choices)
    counted_from(2)
    made = aw.plan(asked)
    assert aw.Plan.from_json(made.to_json()) == made
    document = json.loads(made.to_json())
    too_high = document | {"lower_bound": document["lower_bound"] + 0.01 * document["gap"]}
    with pytest.raises(aw.InvalidInput, match="lower_bound"):
        aw.Plan.from_json(json.dumps(too_high))
    for part in document["proof"]["parts"]:
        if part.get("multipliers"):
            part["multipliers"][0] += 1.0
    with pytest.raises(aw.InvalidInput, match="lower_bound"):
        aw.Plan.from_json(json.dumps(document))


def test_plans_made_with_a_row_for_each_are_read_where_clients_are_counted(counted_from):
    asked = problem(14, slots=6, level=aw.Level(20.0, 0.9))
    counted_from(10**9)
    listed = aw.plan(asked)
    assert any("client" in part for part in json.loads(listed.to_json())["proof"]["parts"])
    counted_from(2)
    assert aw.Plan.from_json(listed.to_json()).lower_bound == listed.lower_bound


def test_a_proof_that_cuts_at_a_client_is_not_about_counts():
    scheduling, about = aw.scheduling, COUNTED.is_about_counts
    leaf = scheduling.Leaf((0.0,))
    halved = scheduling.Halved(2.0, leaf, leaf)
    assert about(scheduling.Halved(1.0, leaf, halved))
    split = scheduling.Split(0, frozenset({1}), leaf, leaf)
    assert not about(scheduling.Halved(1.0, split, leaf))


@pytest.mark.parametrize(
    "choices",
    [
        {"capacity": 1_000},
        {"level": aw.Level(20.0, 0.9), "estimator": "plain"},
        {"rounds": 2, "every": 4, "promise": "every_moment"},
    ],
    ids=str,
)
def test_where_each_client_has_a_place_of_its_own_nobody_is_counted(choices):
    asked = problem(2_400, **choices)
    counted = COUNTED.counted_tables(asked)
    assert (counted is None) == ("rounds" not in choices)


def test_clients_that_differ_in_more_than_their_names_have_rows_of_their_own(counted_from):
    counted_from(2)
    clients = [
        aw.Client("a", CHAINS[0], samples=10),
        aw.Client("b", CHAINS[0], samples=10),
        aw.Client("c", CHAINS[0], samples=20),
        aw.Client("d", CHAINS[1], samples=10),
        aw.Client("e", CHAINS[0], samples=10, epsilon=0.1),
        aw.Client("f", CHAINS[0], law=[1, 0, 0, 0], samples=10),
    ]
    rows = TABLES.rows_of(aw.Problem(clients, 3, 0.5))
    assert rows.row[0] == rows.row[1]
    assert len(rows.first) == 5
    assert sorted(rows.count) == [1, 1, 1, 1, 2]
    levelled = aw.Problem(clients, 3, 0.5, level=aw.Level([1, 2, 1, 1, 1, 1], 0.9))
    assert len(TABLES.rows_of(levelled).first) == 6
    own = [
        aw.Client(c.name, CHAINS[0], samples=10, weight=w)
        for c, w in zip(clients, (0.1, 0.2, 0.1, 0.2, 0.2, 0.2), strict=True)
    ]
    assert len(TABLES.rows_of(aw.Problem(own, 3, 0.5)).first) == 2


def test_no_table_of_all_clients_and_slots_is_made():
    """So the bytes that planning takes grow with clients, not with clients times slots."""

    def taken(slots):
        asked = problem(40_000, slots=slots)
        aw.plan(asked.replace(epsilon=0.4))  # what is imported and set up once
        tracemalloc.start()
        try:
            plan = aw.plan(asked)
            return tracemalloc.get_traced_memory()[1], plan
        finally:
            tracemalloc.stop()

    few, _ = taken(5)
    many, plan = taken(105)
    assert many - few < 40_000 * 100 * 8 / 2  # half a table of all cells
    assert plan.certificate.holds
    assert np.isclose(plan.gap, plan.lower_bound, rtol=1e-9)
