"""What readings say of clients together: moments that are right, and promises that hold."""

import tomllib
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from test_fit import LONDON, readings, walk

import agewise as aw
from agewise import fit, read_readings
from agewise.fitting import given_states, pool_replays, replay_plans
from agewise.fitting.knowledge import Days, daily_shares, measure_knowledge
from agewise.loss.gap import nothing_collected
from agewise.scenario import dump_scenario, problem_from_dict

SCHEMES = ("nothing collected", "classical, fresh", "plain", "propagated", "best")


def shocked(entities, days, day=24, seed=0, common=0.8):
    """Two states with a peak; a slow level and each day's weather move everybody together."""
    rng = np.random.default_rng(seed)
    hour = np.arange(day)
    peak = -0.5 + 1.5 * np.exp(-((hour - 18) ** 2) / 10)
    level = np.zeros(days * day)
    for t in range(1, level.size):
        level[t] = 0.97 * level[t - 1] + rng.normal(0, np.sqrt(1 - 0.97**2))
    habit = rng.normal(0, 0.5, entities)
    chance = np.tile(peak, days) + common * level + habit[:, None]
    high = rng.random((entities, days * day)) < 1 / (1 + np.exp(-chance))
    return np.where(high, 20.0, 10.0)


def both_ways(found, groups, *, epsilons, first_slot, slots, levels, **choices):
    """Fitted to every other week, judged on those between, and the other way round."""
    even, odd = found.alternate_weeks(first_slot, slots)
    parts = {epsilon: [] for epsilon in epsilons}
    for before, after in ((even, odd), (odd, even)):
        made = fit(
            before,
            given_states(levels, before.values),
            first_slot=first_slot,
            slots=slots,
            groups=groups,
            **choices,
        )
        members = {one.name: one.members for one in made.clients}
        for epsilon, rows in parts.items():
            problem = made.problem.replace(epsilon=epsilon)
            where = {"first_slot": first_slot, "rng": np.random.default_rng(0)}
            rows.append(replay_plans(problem, after, made.states, members, **where))
    return {epsilon: pool_replays(rows) for epsilon, rows in parts.items()}


def check_promises(judged):
    for epsilon, rows in judged.items():
        for row in rows:
            if row.scheme in SCHEMES:
                assert 0.9 <= row.ratio <= 1.15, (epsilon, row)
                assert row.beyond_best > -2 * row.beyond_best_error - 1e-9, (epsilon, row)


@pytest.mark.parametrize(
    "epsilons", [(1.0,), pytest.param((0.1, 0.3, 1.0), marks=pytest.mark.slow)], ids=len
)
def test_promises_hold_on_readings_with_common_shocks(epsilons):
    values = shocked(40, 52 * 7)
    groups = {f"c{i}": [f"m{j}" for j in range(10 * i, 10 * i + 10)] for i in range(4)}
    judged = both_ways(
        readings(values),
        groups,
        epsilons=epsilons,
        first_slot=7,
        slots=12,
        levels=[10, 20],
        adversary="population",
        sampled="pairs",
    )
    check_promises(judged)
    at = {row.scheme: row for row in judged[1.0]}
    assert at["best"].mean_loss < 0.8 * at["nothing collected"].mean_loss


def test_losses_without_what_is_shared_are_not_as_promised():
    """The test above can fail: independent records promise far less than common shocks cost."""
    found = readings(shocked(40, 52 * 7))
    before, after = found.alternate_weeks(7, 12)
    states = given_states([10, 20], before.values)
    choices = {"first_slot": 7, "slots": 12, "adversary": "population", "sampled": "pairs"}
    made = fit(before, states, knowledge=False, **choices)
    assert made.problem.knowledge is None
    rows = replay_plans(
        made.problem,
        after,
        states,
        {"all": found.entities},
        first_slot=7,
        rng=np.random.default_rng(0),
    )
    nothing = next(row for row in rows if row.scheme == "nothing collected")
    assert nothing.ratio > 3
    assert nothing.missed


@pytest.mark.slow
@pytest.mark.skipif(not LONDON.exists(), reason="the London readings are not here")
@pytest.mark.parametrize(("adversary", "each"), [("population", False), ("household", True)])
def test_promises_hold_on_london(adversary, each):
    table = pl.read_csv(Path(LONDON) / "households.csv").filter(pl.col("tariff") == "Std")
    path = Path(LONDON) / "lcl_2013_halfhourly.parquet"
    found = read_readings(path, entities=table["household"].to_list())
    groups = {name: [name] for name in found.entities} if each else None
    judged = both_ways(
        found,
        groups,
        epsilons=(0.1, 0.3, 1.0),
        first_slot=36,
        slots=49,
        levels=[60, 250],
        adversary=adversary,
    )
    check_promises(judged)


def test_shares_are_counted_by_client_day_and_slot():
    codes = np.tile(np.array([[0, 1, 1, 0], [0, 0, 1, -1], [1, 1, 0, 0]], dtype=np.int8), (1, 15))
    days = daily_shares(codes, {"a": [0, 1], "b": [2]}, 2, 4, first_slot=1, slots=3)
    assert days.shares.shape == (15, 2, 3, 2)
    assert days.shares[0].tolist() == [
        [[0.5, 0.5], [0.0, 1.0], [1.0, 0.0]],  # of two, one has no reading in the last slot
        [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]],
    ]
    assert days.week.tolist() == [0] * 7 + [1] * 7 + [2]


def drawn(days, clients, slots, rng, shared=0.06, own=0.05):
    """Shares of two states that follow a known law: one factor, and an own part that lasts."""
    factor = rng.normal(0, shared, (days, 1, 1))
    lasting = rng.normal(0, own, (days, clients, 1))
    fleeting = rng.normal(0, own, (days, clients, slots))
    high = 0.4 + factor + lasting + fleeting
    names = tuple(f"c{i}" for i in range(clients))
    return Days(names, np.stack([1 - high, high], axis=-1), np.arange(days) // 7)


def test_guarantee_moments_are_those_of_the_days():
    rng = np.random.default_rng(5)
    known = measure_knowledge(drawn(7000, 4, 3, rng), np.array([0.0, 1.0]), np.full(4, 0.25))
    assert known.factors.shape[-1] == 1
    assert known.mean[..., 1] == pytest.approx(0.4, abs=0.005)
    both = known.factors[..., 1, 0] @ known.factors[..., 1, 0].T
    assert both == pytest.approx(3 * 0.06**2, rel=0.1)
    assert known.own[..., 1, 1] == pytest.approx(2 * 0.05**2, rel=0.1)
    assert known.lagged[:, :-1, 1, 1] == pytest.approx(0.05**2, rel=0.15)
    assert known.lagged[:, -1] == pytest.approx(known.own[:, -1])


@pytest.mark.parametrize("factors", [0, 1, None])
def test_the_mean_of_all_varies_as_measured_whatever_the_factors(factors):
    rng = np.random.default_rng(2)
    days, values = drawn(140, 5, 4, rng), np.array([0.0, 1.0])
    known = measure_knowledge(days, values, np.full(5, 0.2), factors)
    own = (0.2**2 * known.own[..., 1, 1]).sum(axis=0)
    together = (0.2 * known.factors[..., 1, :]).sum(axis=0)
    level = days.shares[..., 1].mean(axis=1)
    by_week = level.reshape(20, 7, 4)
    others = (by_week.sum(axis=(0, 1)) - by_week.sum(axis=1)) / 133
    left_out = np.square(by_week - others[:, None]).mean(axis=(0, 1))
    assert own + np.square(together).sum(axis=1) == pytest.approx(left_out, rel=1e-3)


def test_guarantee_nothing_collected_counts_that_the_mean_is_of_few_weeks():
    """Weeks that differ: a mean of four of them is off by a quarter of their variance."""
    rng = np.random.default_rng(3)
    promised, realised = [], []
    for _ in range(400):
        level = 0.5 + np.repeat(rng.normal(0, 0.1, 5), 7)
        shares = np.stack([1 - level, level], axis=-1)[:, None, None]
        days = Days(("all",), np.repeat(shares[:28], 2, axis=2), np.arange(28) // 7)
        known = measure_knowledge(days, np.array([0.0, 1.0]), np.ones(1))
        promised.append(known.own[0, -1, 1, 1])
        realised.append((level[28] - known.mean[0, -1, 1]) ** 2)
    assert np.mean(promised) == pytest.approx(0.1**2 * 4 / 3, rel=0.1)  # means of three weeks
    assert np.mean(realised) < np.mean(promised) * 1.1


def test_a_fit_knows_and_its_file_says_so():
    values = shocked(20, 60)
    groups = {"a": [f"m{i}" for i in range(12)], "b": [f"m{i}" for i in range(12, 20)]}
    made = fit(readings(values), [10, 20], first_slot=7, slots=5, groups=groups)
    assert made.problem.estimator == "best"
    assert made.problem.knowledge.clients == ("a", "b")
    assert made.to_dict()["knowledge"] == {
        "days": 60,
        "factors": made.problem.knowledge.factors.shape[-1],
    }
    assert problem_from_dict(tomllib.loads(dump_scenario(made.problem))) == made.problem
    plan = aw.plan(made.problem)
    assert plan.gap <= nothing_collected(made.problem, [0, 0])
    assert any("60 days that means and covariances were measured on" in n for n in plan.notes)
    two = fit(readings(values), [10, 20], first_slot=7, slots=5, groups=groups, factors=2)
    assert two.problem.knowledge.factors.shape[-1] == 2


def test_noisy_counts_leave_knowledge_out_and_say_so():
    made = fit(
        readings(shocked(20, 60)),
        given_states([10, 20], np.array([10.0, 20.0])),
        slots=4,
        adversary="population",
        count_epsilon=1.0,
    )
    assert made.problem.knowledge is None
    assert made.to_dict()["knowledge"] is None
    assert "losses are those of independent records" in made.problem.origin
    with pytest.raises(aw.InvalidInput, match="factors is 1; allowed: none"):
        fit(readings(shocked(20, 60)), [10, 20], slots=4, knowledge=False, factors=1)


@pytest.mark.parametrize("entities", [1, 3])
def test_few_entities_and_short_windows_will_do(entities):
    values = walk(entities, 60)
    groups = {f"m{i}": [f"m{i}"] for i in range(entities)}
    made = fit(
        readings(values), [10, 20], slots=2, groups=groups, worst_limit=1.0, most_left_out=1.0
    )
    assert aw.plan(made.problem).gap > 0


def test_too_little_to_know_anything_is_refused_in_words():
    codes = np.zeros((2, 24 * 20), dtype=np.int8)
    codes[0, 24 * 5 :] = -1
    with pytest.raises(aw.InvalidInput, match=r"1 week\(s\) with days on which every client"):
        daily_shares(codes, {"a": [0], "b": [1]}, 2, 24, first_slot=0, slots=4)
    days = drawn(14, 2, 30, np.random.default_rng(0))
    with pytest.raises(aw.InvalidInput, match="factors is 14"):
        measure_knowledge(days, np.array([0.0, 1.0]), np.full(2, 0.5), 14)


def test_weeks_take_turns():
    found = readings(np.arange(3 * 7 * 24 + 30, dtype=float)[None].repeat(2, axis=0))
    even, odd = found.alternate_weeks(first_slot=18, slots=25)
    starts = np.arange(18, found.values.shape[1] - 24, 24)
    for number, start in enumerate(starts):
        whole = [np.isfinite(part.values[0, start : start + 25]).all() for part in (even, odd)]
        assert whole == [number // 7 % 2 == 0, number // 7 % 2 == 1]
    assert even.first == found.first
    assert even.quality.missing == np.isnan(even.values).sum()
    with pytest.raises(aw.InvalidInput, match="slots is 169; allowed: at most 168, one week"):
        found.alternate_weeks(0, 169)


def test_knowledge_of_one_kind_of_days_is_measured_on_such_days_only():
    rng = np.random.default_rng(4)
    made = readings(np.zeros((20, 24 * 84)))
    hours = np.arange(24 * 84)
    weekend = np.array([(made.first + timedelta(hours=int(h))).weekday() >= 5 for h in hours])
    high = np.where(weekend, 0.8, 0.2)
    made = readings(np.where(rng.random((20, hours.size)) < high, 20.0, 10.0))
    chosen = {"first_slot": 7, "slots": 5, "adversary": "population"}
    shares = {}
    for kind, days in (("all", 84), ("workdays", 60), ("weekends", 24)):
        one = fit(made, [10, 20], known_days=kind, **chosen)
        assert abs(one.problem.knowledge.days - days) <= 1
        shares[kind] = one.problem.knowledge.mean[0, -1, 1]
        assert one.given == (None if kind == "all" else "weekend")
    assert shares["workdays"] == pytest.approx(0.2, abs=0.05)
    assert shares["weekends"] == pytest.approx(0.8, abs=0.05)
    note = fit(made, [10, 20], known_days="workdays", **chosen).problem.knowledge.words()
    assert "workdays only" in note


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"known_days": "holidays"}, "known_days is 'holidays'; allowed: one of all, workdays"),
        ({"known_days": "workdays", "knowledge": False}, "known_days is workdays; allowed: all"),
        ({"known_days": "workdays", "given": "month"}, "given is month; allowed: weekend"),
    ],
)
def test_kinds_of_days_that_make_no_sense_are_refused(choices, words):
    with pytest.raises(aw.InvalidInput, match=words):
        fit(readings(shocked(20, 60)), [10, 20], first_slot=7, slots=5, **choices)
