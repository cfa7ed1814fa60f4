"""Replaying recorded days: losses as promised, and claims that hold or do not."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from test_fit import CHAIN, LONDON, walk

import agewise as aw
from agewise.fitting.backtest import _judge, _Tally, replay_adversary, replay_plans
from agewise.fitting.fit import fit
from agewise.fitting.readings import Quality, Readings, read_readings
from agewise.fitting.states import given_states


def readings(values, day=24):
    quality = Quality(
        rows=values.size, entities=len(values), slots=values.shape[1], resolution_minutes=60,
        first="", last="", timezone="UTC", used=values.size, duplicates_same=0,
        duplicates_averaged=0, not_numbers=0, negative=0, off_grid=0, missing=0, left_out=(),
    )  # fmt: skip
    names = tuple(f"m{i}" for i in range(len(values)))
    return Readings(names, values, day, datetime(2024, 1, 1, tzinfo=UTC), quality)


def test_losses_on_readings_that_keep_to_the_law_are_as_promised():
    found = readings(walk(20, 400, seed=3))
    states = given_states([10, 20], found.values)
    problem = aw.Problem([aw.Client("all", CHAIN, samples=20)], 6, 0.5)
    rows = replay_plans(
        problem, found, states, {"all": found.entities}, first_slot=5, rng=np.random.default_rng(1)
    )
    assert [row.scheme for row in rows] == ["plain", "propagated", "classical, fresh", "random"]
    for row in rows:
        assert row.days == 400
        assert abs(row.mean_loss - row.promised) < 4 * row.standard_error, row


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


def test_guarantee_a_habit_breaks_the_chains_claim_and_not_the_measured_one():
    found = readings(walk(40, 400, memory=0.6, seed=2))
    states = given_states([10, 20], found.values)
    honest, naive = replay_adversary(found, states, epsilon=0.1, first_slot=5, slots=25)
    assert (honest.claim, naive.claim) == ("measured", "chain")
    assert honest.age == naive.age == 24
    assert not honest.too_good
    assert naive.too_good
    assert naive.delta < 0.01
    assert naive.hits > naive.false_alarms * naive.allowed_ratio


def test_a_true_chain_keeps_its_own_claim():
    """The demonstration must not condemn a claim that is true."""
    found = readings(walk(40, 400, seed=2))
    states = given_states([10, 20], found.values)
    for attack in replay_adversary(found, states, epsilon=0.1, first_slot=5, slots=25):
        assert not attack.too_good, attack


def test_an_adversary_needs_somebody_to_watch():
    found = readings(np.full((3, 24 * 40), 10.0))
    with pytest.raises(aw.InvalidInput, match=r"no household\(s\)"):
        replay_adversary(
            found, given_states([10, 20], found.values), epsilon=0.1, first_slot=0, slots=4
        )


@pytest.mark.skipif(not LONDON.exists(), reason="the London readings are not here")
@pytest.mark.parametrize(
    ("levels", "beyond"), [([20, 50, 100, 200], 2.5), ([60, 250], 3.5)], ids=["four", "two"]
)
def test_london_households_keep_the_measured_claim_only(levels, beyond):
    table = pl.read_csv(Path(LONDON) / "households.csv")
    standard = table.filter(pl.col("tariff") == "Std")["household"].to_list()
    found = read_readings(Path(LONDON) / "lcl_2013_halfhourly.parquet", entities=standard)
    states = given_states(levels, found.values)
    honest, naive = replay_adversary(found, states, epsilon=0.1, first_slot=36, slots=49)
    assert not honest.too_good
    assert naive.excess > beyond > honest.excess
    made = fit(found, given_states([60, 250], found.values), epsilon=0.5, first_slot=17, slots=20)
    assert made.problem.clients[0].samples > 40


def test_a_perfect_leak_is_not_overlooked():
    rows = [_Tally(delta=0.1, scale=0.0, hits=1.0, alarms=0.0)] * 20
    assert _judge("chain", 7, rows, 0.1).too_good
    blind = [_Tally(delta=1.0, scale=9.0, hits=0.5, alarms=0.5)] * 20
    assert not _judge("measured", 7, blind, 0.1).too_good
