"""States and processes from readings: recovery, and what real readings do to a fitted chain."""

from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import agewise as aw
from agewise import read_readings
from agewise.fitting import given_states, least_error_states, quantile_states
from agewise.fitting.laws import (
    CountNoise,
    fit_chain,
    fit_lag_law,
    fit_periodic,
    pair_counts,
)
from agewise.process.limits import table_delta

LONDON = Path(__file__).parents[3] / "shared" / "data" / "london"
CHAIN = aw.birth_death(0.3, 0.25, [1, 2, 3])


def walked(chain, entities, slots, seed=0):
    """Codes of entities that follow a chain."""
    rng = np.random.default_rng(seed)
    codes = np.empty((entities, slots), dtype=np.int8)
    codes[:, 0] = rng.choice(chain.states.size, entities, p=chain.stationary)
    below = np.cumsum(chain.transition, axis=1)
    for t in range(1, slots):
        codes[:, t] = (rng.random(entities)[:, None] >= below[codes[:, t - 1]]).sum(axis=1)
    return codes


def test_levels_given_are_kept_and_their_error_told():
    states = given_states([100, 20, 50], np.array([20.0, 40.0, np.nan, 300.0]))
    assert states.values.tolist() == [20, 50, 100]
    assert states.error == pytest.approx(np.sqrt((0 + 100 + 200**2) / 3))
    assert states.index(np.array([0.0, 35.0, 35.1, np.nan, 1e9])).tolist() == [0, 0, 1, -1, 2]


def test_quantile_groups_are_equally_large():
    states = quantile_states(4, np.arange(1000.0))
    assert states.values == pytest.approx([124.5, 374.5, 624.5, 874.5], abs=1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_least_error_is_the_least(seed, count):
    rng = np.random.default_rng(seed)
    readings = np.round(rng.gamma(2, 20, 14))
    found = least_error_states(count, readings)
    ordered = np.sort(readings)
    best = min(
        sum(((part - part.mean()) ** 2).sum() for part in np.split(ordered, cuts))
        for cuts in combinations(range(1, ordered.size), count - 1)
    )
    assert found.error**2 * readings.size == pytest.approx(best, rel=1e-9, abs=1e-9)


def test_states_that_the_readings_do_not_have():
    for choose in (quantile_states, least_error_states):
        with pytest.raises(aw.InvalidInput, match="distinct values"):
            choose(3, np.ones(50))
        with pytest.raises(aw.InvalidInput, match="1"):
            choose(1, np.arange(50.0))


def test_pairs_are_counted_and_gaps_skipped():
    codes = np.array([[0, 1, -1, 1, 0]], dtype=np.int8)
    assert pair_counts(codes, 1, 2)[0].tolist() == [[0, 1], [1, 0]]
    assert pair_counts(codes, 3, 2)[0].tolist() == [[0, 1], [1, 0]]
    with pytest.raises(aw.InvalidInput, match="lag is 5"):
        pair_counts(codes, 5, 2)


def test_a_known_chain_is_recovered_at_the_expected_rate():
    errors = []
    for slots in (500, 50_000):
        found = [
            np.abs(
                fit_chain(walked(CHAIN, 4, slots, s), CHAIN.states).transition - CHAIN.transition
            ).max()
            for s in range(8)
        ]
        errors.append(np.mean(found))
    assert errors[1] < 0.01
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.5)  # √100


def test_a_day_profile_is_recovered():
    day = aw.PeriodicChain(
        [aw.birth_death(r, 0.3, [1, 2]).transition for r in (0.1, 0.4, 0.7)], [1, 2]
    )
    rng = np.random.default_rng(1)
    codes = np.zeros((200, 3_000), dtype=np.int8)
    for t in range(1, 3_000):
        below = np.cumsum(day.transitions[(t - 1) % 3], axis=1)
        codes[:, t] = (rng.random(200)[:, None] >= below[codes[:, t - 1]]).sum(axis=1)
    assert fit_periodic(codes, day.states, 3).transitions == pytest.approx(
        day.transitions, abs=0.02
    )
    shifted = fit_periodic(codes[:, 1:], day.states, 3, starts=1)
    assert shifted.transitions == pytest.approx(day.transitions, abs=0.02)


def test_the_measured_law_is_the_chains_within_its_limits():
    codes = walked(CHAIN, 60, 48 * 200)
    found = fit_lag_law(codes, CHAIN.states, 48, first_slot=10, slots=8)
    for slot in range(1, 8):
        truth = CHAIN.stationary[:, None] * CHAIN.kernel(slot, 8)
        assert found.law.joints[slot - 1] == pytest.approx(truth, abs=0.02)
        assert table_delta(truth) <= found.law.limits[slot - 1] < 1
        assert found.estimate[slot - 1] <= found.law.limits[slot - 1]
    assert found.pairs == 60 * 200
    assert found.inflation < 2


@pytest.mark.parametrize("entities", [1, 30])
def test_guarantee_the_limits_cover_all_slots_together(entities):
    truths = [table_delta(CHAIN.stationary[:, None] * CHAIN.kernel(t, 6)) for t in range(1, 6)]
    missed = 0
    for seed in range(40):
        codes = walked(CHAIN, entities, 48 * 60, seed)
        law = fit_lag_law(codes, CHAIN.states, 48, first_slot=3, slots=6, confidence=0.8).law
        missed += any(limit < truth for limit, truth in zip(law.limits, truths, strict=False))
    assert missed <= 8


def test_what_is_independent_decides_how_wide_the_limits_are():
    """Two kinds of households in one group: for others than these, thirty are few."""
    calm, lively = aw.birth_death(0.1, 0.3, [1, 2]), aw.birth_death(0.3, 0.1, [1, 2])
    codes = np.concatenate([walked(calm, 15, 48 * 400), walked(lively, 15, 48 * 400, 1)])
    choices = {"first_slot": 0, "slots": 6}
    pairs, days, entities = (
        fit_lag_law(codes, calm.states, 48, sampled=sampled, **choices).law.limits[:-1]
        for sampled in ("pairs", "days", "entities")
    )
    assert (pairs < days).all()
    assert (days < entities).all()
    weeks = fit_lag_law(codes, calm.states, 48, sampled="weeks", **choices).law.limits[:-1]
    assert (days < weeks).all()
    few = fit_lag_law(codes[12:18], calm.states, 48, sampled="entities", **choices)
    assert (few.law.limits == 1).all()
    with pytest.raises(aw.InvalidInput, match="sampled is 'months'"):
        fit_lag_law(codes, calm.states, 48, sampled="months", **choices)


def test_guarantee_weeks_may_be_rare_and_unlike_all_others():
    """One week in thirty is cold for everybody: too rare for its variance to be estimated."""
    rng, missed = np.random.default_rng(3), {"weeks": 0, "days": 0}
    cold, entities = 0.03, 20
    for _ in range(60):
        frozen = np.repeat(rng.random(52) < cold, 7)
        later = rng.random((entities, 364)) < 0.2
        codes = np.stack([np.broadcast_to(frozen, later.shape), later | frozen], axis=2)
        codes = codes.reshape(entities, -1).astype(np.int8)
        joint = (1 - cold) * np.array([[0.8, 0.2], [0, 0]]) + cold * np.array([[0, 0], [0, 1]])
        for sampled in missed:
            law = fit_lag_law(codes, np.array([0.0, 1]), 2, first_slot=0, slots=2, sampled=sampled)
            missed[sampled] += law.law.limits[0] < table_delta(joint)
    assert missed["weeks"] <= 3
    assert missed["days"] > 6  # what its assumption is worth here


def test_guarantee_noisy_limits_cover_days_that_move_everybody():
    """Every day is cold or warm for all entities together; the counts say nothing of days."""
    rng, missed, truth = np.random.default_rng(5), 0, 0.82 - 0.18
    for _ in range(30):
        cold = rng.random(365) < 0.5
        codes = np.zeros((20, 365 * 4), dtype=np.int8)
        for slot in range(4):
            codes[:, slot::4] = rng.random((20, 365)) < np.where(cold, 0.9, 0.1)
        law = fit_lag_law(
            codes,
            np.array([0.0, 1]),
            4,
            first_slot=0,
            slots=3,
            confidence=0.7,
            noise=CountNoise(5.0, 3),
        ).law
        missed += any(law.limits[:2] < truth)
        assert (law.limits[:2] < 1).all()
    assert missed <= 9


def test_guarantee_days_that_depend_on_each_other_within_weeks_are_allowed_for():
    """All days of a week are the same: a seventh of the readings is all there is."""
    rng, missed, truth = np.random.default_rng(1), {"days": 0, "pairs": 0}, 0.6
    for _ in range(100):
        later = rng.random(100) < 0.5
        before = later ^ (rng.random(100) < 0.2)
        codes = np.stack([before, later], axis=1).repeat(7, axis=0).reshape(1, -1).view(np.int8)
        for sampled in missed:
            found = fit_lag_law(
                codes, np.array([0.0, 1]), 2, first_slot=0, slots=2, confidence=0.7, sampled=sampled
            )
            missed[sampled] += found.law.limits[0] < truth
    assert missed["days"] <= 30
    assert missed["pairs"] > 15  # what it would be without


@pytest.mark.parametrize("sampled", ["pairs", "days", "weeks", "entities"])
def test_an_adversary_with_a_calendar_needs_a_wider_limit(sampled):
    """On weekends what is collected stays, on weekdays it turns round: together they hide it."""
    rng, days = np.random.default_rng(2), 7 * 200
    now = rng.random((300, days)) < 0.5
    weekend = (np.arange(days) + 2) % 7 >= 5  # the first day is a Wednesday
    noise = rng.random(now.shape) < 0.1
    later = np.where(weekend | (rng.random(days) < 0.3), now, ~now) ^ noise
    codes = np.stack([now, later], axis=2).reshape(300, -1).astype(np.int8)
    choices = {"first_slot": 0, "slots": 2, "sampled": sampled}
    plain = fit_lag_law(codes, np.array([0.0, 1]), 2, **choices)
    masks = [np.broadcast_to(one, now.shape) for one in (weekend, ~weekend)]
    known = fit_lag_law(codes, np.array([0.0, 1]), 2, classes=masks, **choices)
    assert plain.estimate[0] < 0.2
    assert known.estimate[0] == pytest.approx(0.8, abs=0.02)
    assert known.law.limits[0] >= known.estimate[0]
    assert known.law.limits[0] > plain.law.limits[0]


def test_too_little_data_is_refused():
    with pytest.raises(aw.InvalidInput, match="14 days or more"):
        fit_lag_law(walked(CHAIN, 3, 48 * 10), CHAIN.states, 48, first_slot=0, slots=6)
    gaps = np.full((2, 48 * 30), -1, dtype=np.int8)
    with pytest.raises(aw.InvalidInput, match="no pair at slot 1"):
        fit_lag_law(gaps, CHAIN.states, 48, first_slot=0, slots=6)
    with pytest.raises(aw.InvalidInput, match="confidence"):
        fit_lag_law(gaps, CHAIN.states, 48, first_slot=0, slots=6, confidence=1)


@pytest.mark.skipif(not LONDON.exists(), reason="the London readings are not here")
def test_real_households_remember_longer_than_a_fitted_chain():
    """The homogeneous chain says that a day later nothing is left; the readings say otherwise."""
    table = pl.read_csv(LONDON / "households.csv")
    standard = table.filter(pl.col("tariff") == "Std")["household"].to_list()
    found = read_readings(LONDON / "lcl_2013_halfhourly.parquet", entities=standard)
    states = given_states([20, 50, 100, 200], found.values)
    codes = states.index(found.values)
    share = np.stack([(codes == s).mean(axis=1) for s in range(4)])
    balanced = codes[share.min(axis=0) >= 0.025]
    chains = [fit_chain(one[None], states.values) for one in balanced]
    for lag, wanted, fitted in (
        (4, 0.52, 0.29),
        (8, 0.27, 0.07),
        (20, 0.24, 0.0),
        (48, 0.59, 0.0),
        (336, 0.51, 0.0),
    ):
        measured = [table_delta(c) for c in pair_counts(balanced, lag, 4)]
        assert np.median(measured) == pytest.approx(wanted, abs=0.05)
        powers = [float(aw.total_variation(chain, lag)) for chain in chains]
        assert np.median(powers) == pytest.approx(fitted, abs=0.02)


def test_noisy_counts_are_covered_by_wider_limits():
    codes = walked(CHAIN, 60, 48 * 400)
    choices = {"first_slot": 10, "slots": 4, "confidence": 0.9}
    plain = fit_lag_law(codes, CHAIN.states, 48, **choices).law
    truths = [table_delta(CHAIN.stationary[:, None] * CHAIN.kernel(t, 4)) for t in range(1, 4)]
    missed = 0
    for _ in range(20):
        noisy = fit_lag_law(codes, CHAIN.states, 48, noise=CountNoise(0.5, 4), **choices).law
        assert not np.array_equal(noisy.joints, plain.joints)
        missed += any(a < b for a, b in zip(noisy.limits, truths, strict=False))
        assert sum(noisy.limits) > sum(plain.limits)
    assert missed <= 2
    weak = fit_lag_law(codes[:1], CHAIN.states, 48, noise=CountNoise(0.001, 4), **choices).law
    assert (weak.limits == 1).all()


def test_count_noise_has_the_scale_it_claims():
    noise = CountNoise(0.5, 3)
    assert (noise.sensitivity, noise.scale) == (6, 12.0)
    assert CountNoise(0.5, 3, windows=2).scale == 24.0
    drawn = np.concatenate([noise.add(np.full((4, 4), 1e6)).ravel() - 1e6 for _ in range(400)])
    assert np.abs(drawn).mean() == pytest.approx(12, rel=0.07)
    assert (noise.add(np.zeros((3, 3))) >= 0).all()
