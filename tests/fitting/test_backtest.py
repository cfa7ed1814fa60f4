"""Replaying recorded days: losses as promised, and claims that hold or do not."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from test_fit import CHAIN, LONDON, readings, walk

import agewise as aw
from agewise import fit, read_readings
from agewise.fitting import Replayed, given_states, pool_replays, replay_plans
from agewise.fitting.adversary import _judge, _Watched, replay_adversary, weigh_adversary

SCHEMES = ["nothing collected", "classical, fresh", "plain", "propagated", "best", "random"]


def test_losses_on_readings_that_keep_to_the_law_are_as_promised():
    found = readings(walk(20, 400, seed=3))
    states = given_states([10, 20], found.values)
    problem = aw.Problem([aw.Client("all", CHAIN, samples=20)], 6, 0.5)
    rows = replay_plans(
        problem,
        found,
        states,
        {"all": found.entities},
        first_slot=5,
        rng=np.random.default_rng(1),
    )
    assert [row.scheme for row in rows] == SCHEMES
    for row in rows:
        assert row.days == 400
        assert abs(row.mean_loss - row.promised) < 4 * row.standard_error + 1e-9, row
        assert not row.missed


@pytest.mark.parametrize(
    ("draws", "off"), [(5, 0.3), pytest.param(16, 0.2, marks=pytest.mark.slow)]
)
def test_what_is_expected_over_the_noise_is_what_runs_of_the_engine_come_to(draws, off):
    found = readings(walk(12, 60, seed=3))
    states = given_states([10, 20], found.values)
    problem = aw.Problem([aw.Client("all", CHAIN, samples=12)], 4, 0.5)
    rows, drawn = (
        replay_plans(
            problem,
            found,
            states,
            {"all": found.entities},
            first_slot=5,
            rng=np.random.default_rng(1),
            draws=count,
        )
        for count in (0, draws)
    )
    assert rows[0].mean_loss == drawn[0].mean_loss  # nothing collected needs no noise
    for expected, one in zip(rows[1:], drawn[1:], strict=True):
        assert one.mean_loss == pytest.approx(expected.mean_loss, rel=off), one
        assert one.promised == expected.promised
    assert next(row for row in rows if row.scheme == "best").beyond_best == 0


def test_two_sets_of_days_are_judged_as_one():
    one = Replayed("best", 10, 4.0, 0.3, 5.0, (1,), 0.0, 0.0)
    two = Replayed("best", 30, 8.0, 0.4, 6.0, (2,), 1.0, 0.2)
    (both,) = pool_replays([[one], [two]])
    assert (both.days, both.mean_loss, both.promised, both.ages) == (40, 7.0, 5.75, (1,))
    assert both.standard_error == pytest.approx(np.hypot(0.25 * 0.3, 0.75 * 0.4))
    assert (both.beyond_best, both.beyond_best_error) == pytest.approx((0.75, 0.15))
    assert both.ratio == 7 / 5.75
    assert both.missed


def test_days_with_gaps_are_not_replayed():
    values = walk(3, 40)
    values[1, 24 * 10 : 24 * 12] = np.nan
    states = given_states([10, 20], values)
    problem = aw.Problem([aw.Client("all", CHAIN, samples=3)], 4, 0.5)
    found, choices = readings(values), {"first_slot": 0, "rng": np.random.default_rng(1)}
    rows = replay_plans(problem, found, states, {"all": found.entities}, **choices)
    assert {row.days for row in rows} == {38}
    with pytest.raises(aw.InvalidInput, match="entities that were read"):
        replay_plans(problem, found, states, {"all": ["nobody"]}, **choices)
    empty = readings(np.full_like(values, np.nan))
    with pytest.raises(aw.InvalidInput, match="fewer than two whole days"):
        replay_plans(problem, empty, states, {"all": found.entities}, **choices)


def attacked(
    values,
    *,
    epsilon=0.1,
    adversary="household",
    each=True,
    levels=(10, 20),
    attack=replay_adversary,
    **known,
):
    before, after = readings(values).split(0.5)
    states = given_states(levels, before.values)
    groups = {name: [name] for name in before.entities} if each else None
    made = fit(
        before,
        states,
        epsilon=epsilon,
        first_slot=5,
        slots=25,
        groups=groups,
        adversary=adversary,
        worst_limit=1.0,
    )
    return attack(made, before, after, first_slot=5, **known)


ATTACKS = [replay_adversary, weigh_adversary]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize(("adversary", "each"), [("household", True), ("population", False)])
def test_guarantee_a_habit_breaks_the_chains_claim_and_not_the_measured_one(
    adversary, each, attack
):
    values = walk(40, 400, memory=0.6, seed=2)
    honest, naive = attacked(values, adversary=adversary, each=each, attack=attack)
    assert (honest.claim, naive.claim) == ("measured", "chain")
    assert honest.age == naive.age == 24
    assert not honest.too_good
    assert naive.too_good
    assert naive.delta < 0.01
    assert naive.hits > naive.false_alarms * naive.allowed_ratio


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_true_chain_keeps_its_own_claim(attack):
    """The demonstration must not condemn a claim that is true."""
    found = attacked(walk(40, 400, seed=2), attack=attack)
    assert {one.claim for one in found} == {"measured", "chain"}
    for one in found:
        assert not one.too_good, one


def test_the_exact_ratio_is_that_of_the_tails():
    """(1 + a₁k)/(1 + a₀k), k = e^ε_c − 1, from the recorded shares of the days judged."""
    values = walk(40, 400, memory=0.6, seed=2)
    honest, _ = attacked(
        values, adversary="population", each=False, epsilon=0.3, attack=weigh_adversary
    )
    high = values[:, 200 * 24 :] > 15
    old, new = high[:, 5:-24:24], high[:, 5 + 24 :: 24]
    share = [old[new == y].mean() for y in (0, 1)]
    times = np.expm1(0.3) / honest.delta  # k, by the formula of the claim
    up = [1 + a * times for a in share]
    down = [1 + (1 - a) * times for a in share]
    assert honest.hits * (1 + times) == pytest.approx((up[1] + down[0]) / 2)
    assert honest.false_alarms * (1 + times) == pytest.approx((up[0] + down[1]) / 2)


def test_who_knows_the_others_sees_through_a_claim_that_averages_over_days():
    """On cold days they keep what they had, on warm ones they turn it round: the mean tells."""
    rng = np.random.default_rng(4)
    high = np.zeros((40, 400 * 24), dtype=bool)
    for day in range(400):
        kept = rng.choice(4, 40, p=[0.3, 0.05, 0.05, 0.6])
        now, later = kept >= 2, kept % 2 == 1
        warm = rng.random() < 0.5
        high[:, day * 24 + 5], high[:, day * 24 + 10] = now, ~later if warm else later
    before, after = readings(np.where(high, 20.0, 10.0)).split(0.5)
    made = fit(
        before,
        given_states([10, 20], before.values),
        epsilon=0.1,
        first_slot=5,
        slots=6,
        adversary="population",
        sampled="pairs",
    )
    blind, _ = weigh_adversary(made, before, after, first_slot=5)
    knowing, _ = weigh_adversary(made, before, after, first_slot=5, others=True)
    assert not blind.too_good
    assert knowing.too_good
    assert knowing.households == blind.households == 40


def test_tails_are_weighed_for_two_states_only():
    values = walk(40, 60, chain=aw.birth_death(0.3, 0.3, [10, 20, 30]))
    with pytest.raises(aw.InvalidInput, match="states is 3; allowed: 2, to weigh tails"):
        attacked(values, levels=(10, 20, 30), attack=weigh_adversary)


def test_a_true_claim_stands_where_all_move_together():
    values = np.repeat(walk(1, 400, seed=2), 40, axis=0)  # every household the same
    values[:, ::3] = walk(40, 400, seed=3)[:, ::3]
    found = attacked(values)
    assert {one.claim for one in found} == {"measured", "chain"}
    for one in found:
        assert not one.too_good, one


def test_one_exposed_household_among_many_is_found():
    """On average nothing is to be seen: forty others pull the mean down."""
    values = walk(40, 400, seed=2)
    day = walk(1, 800, seed=9).reshape(-1)[: 200 * 24].reshape(200, 24)
    values[7] = np.repeat(day, 2, axis=0).ravel()  # today is yesterday, every other day
    honest, naive = attacked(values)
    assert not honest.too_good
    assert naive.chance > 1 / 2000
    assert naive.exposed == ("m7",)
    assert naive.too_good


@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_a_true_claim_about_the_population_stands_though_households_differ(times):
    """Half of them keep what they had, half turn it round: only who knows which is which gains."""
    rng = np.random.default_rng(4)
    for _ in range(times):
        high = np.zeros((40, 400 * 24), dtype=bool)
        for day in range(400):
            now = rng.random(40) < 0.5
            later = np.where(np.arange(40) < 20, now, ~now) ^ (rng.random(40) < 0.1)
            high[:, day * 24 + 5], high[:, day * 24 + 10] = now, later
        before, after = readings(np.where(high, 20.0, 10.0)).split(0.5)
        made = fit(
            before,
            given_states([10, 20], before.values),
            epsilon=0.1,
            first_slot=5,
            slots=6,
            adversary="population",
            sampled="pairs",
        )
        assert made.clients[0].limits[0] < 0.3
        honest, _ = replay_adversary(made, before, after, first_slot=5)
        assert not honest.too_good, honest
        assert honest.exposed == ()


def test_an_adversary_needs_somebody_to_watch():
    values = walk(6, 60, seed=1)
    values[:4, 24 * 30 :] = 10.0
    with pytest.raises(aw.InvalidInput, match=r"2 household\(s\) that change"):
        attacked(values)
    before, after = readings(walk(6, 60, seed=1)).split(0.5)
    made = fit(
        before,
        given_states([10, 20], before.values),
        epsilon=0.1,
        first_slot=5,
        slots=6,
        adversary="population",
    )
    week, _ = after.split(0.3)
    with pytest.raises(aw.InvalidInput, match=r"2 week\(s\) to judge by"):
        replay_adversary(made, before, week, first_slot=5)


@pytest.mark.slow
@pytest.mark.skipif(not LONDON.exists(), reason="the London readings are not here")
@pytest.mark.parametrize(("adversary", "each"), [("household", True), ("population", False)])
def test_london_households_keep_the_measured_claim_only(adversary, each):
    table = pl.read_csv(Path(LONDON) / "households.csv")
    standard = table.filter(pl.col("tariff") == "Std")["household"].to_list()
    found = read_readings(Path(LONDON) / "lcl_2013_halfhourly.parquet", entities=standard)
    before, after = found.split(0.5)
    groups = {name: [name] for name in found.entities} if each else None
    made = fit(
        before,
        given_states([60, 250], before.values),
        epsilon=0.1,
        first_slot=36,
        slots=49,
        adversary=adversary,
        groups=groups,
    )
    honest, naive = replay_adversary(made, before, after, first_slot=36)
    assert not honest.too_good
    assert naive.too_good
    assert bool(naive.exposed) == each  # a claim about the population is about no single one
    assert naive.households > 40


@pytest.mark.parametrize("alone", [True, False], ids=["household", "population"])
def test_guarantee_a_claim_that_is_just_kept_is_not_condemned(alone):
    """Hits exactly e^ε times the false alarms, on weeks that move everybody together."""
    rng, factor, week = np.random.default_rng(6), np.exp(0.1), np.arange(182) // 7
    judged = []
    for _ in range(100):
        often = 0.2 * np.exp(rng.normal(0, 0.5, 26))[week][:, None]
        rows = []
        for name in range(20):
            high = rng.random(182) < 0.4
            true = np.stack([~high, high], axis=1)
            called = rng.random(true.shape) < np.clip(np.where(true, factor, 1) * often, 0, 1)
            rows.append(_Watched(str(name), 1, 0.1, 1.0, true, called.astype(float), week))
        if not alone:
            facts = (
                np.concatenate([getattr(r, part) for r in rows])
                for part in ("true", "called", "week")
            )
            rows = [_Watched("all", 20, 0.1, 1.0, *facts)]
        judged.append(_judge("measured", 7, rows, 0.1, alone=alone))
    assert not any(one.too_good for one in judged)
    assert sum(one.chance < 0.05 for one in judged) <= 12


def watched(name, called):
    one = np.array([[True, False], [False, True]] * 50)
    calls = {"always": np.ones((100, 2)), "right": one.astype(float)}[called]
    return _Watched(name, 1, 0.1, 0.0, one, calls, np.arange(100) // 7)


def test_a_perfect_leak_is_not_overlooked():
    leak = _judge("chain", 7, [watched(f"h{i}", "right") for i in range(20)], 0.1)
    assert leak.too_good
    assert len(leak.exposed) == 20
    blind = _judge("measured", 7, [watched(f"h{i}", "always") for i in range(20)], 0.1)
    assert not blind.too_good
    assert blind.exposed == ()
    assert (blind.hits, blind.false_alarms) == (1, 1)


def test_only_limits_that_were_measured_can_be_attacked():
    before, after = readings(walk(4, 60)).split(0.5)
    made = fit(before, [10, 20], first_slot=5, slots=25, kind="chain")
    with pytest.raises(aw.InvalidInput, match="fitted is a fit of kind chain"):
        replay_adversary(made, before, after, first_slot=5)
