"""Whether the halves of the readings are alike: power where they are not, else no alarm."""

import json

import numpy as np
import polars as pl
import pytest
from test_fit import CHAIN, LONDON, readings, walk, written

import agewise as aw
import in_process
from agewise import fit, read_readings
from agewise.fitting import compare_halves, given_states

VALUES = np.array([10.0, 20.0])


def habits(days, day=48, entities=20, seed=0, together=0.3):
    """States with an evening peak and a morning one; weeks move everybody together."""
    rng = np.random.default_rng(seed)
    hour = np.arange(day) * 24 / day
    peak = 0.2 + 0.5 * np.exp(-((hour - 19) ** 2) / 8) + 0.3 * np.exp(-((hour - 8) ** 2) / 3)
    week = np.repeat(rng.normal(0, together, days // 7 + 1), 7)[:days]
    share = 1 / (1 + np.exp(-(np.log(peak / (1 - peak))[None] + week[:, None])))
    return (rng.random((entities, days, day)) < share).reshape(entities, -1).astype(np.int8)


@pytest.mark.parametrize("days", [30, 60, 182, 365])
@pytest.mark.parametrize("day", [24, 48, 96])
@pytest.mark.parametrize("times", [7, pytest.param(20, marks=pytest.mark.slow)])
def test_guarantee_halves_that_are_alike_raise_no_alarm(days, day, times):
    found = [compare_halves(habits(days, day, seed=s), VALUES, day) for s in range(times)]
    assert not any(one.verdict for one in found)


@pytest.mark.parametrize(
    ("times", "most"), [(60, 16), pytest.param(200, 36, marks=pytest.mark.slow)]
)
def test_guarantee_chance_is_what_it_says(times, most):
    """A drift that chance makes looks rare no more often than it is: a tenth of the times."""
    found = [compare_halves(habits(140, 24, 5, seed=s), VALUES, 24) for s in range(times)]
    assert sum(one.drift_p <= 0.1 for one in found) < most
    assert sum(one.shift_p <= 0.1 for one in found) < most


@pytest.mark.parametrize("days", [60, 182, 365])
@pytest.mark.parametrize("day", [24, 48, 96])
@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_was_changed_by_an_hour_is_found(days, day, hours):
    codes = habits(days, day)
    half = days // 2 * day
    codes[:, half:] = np.roll(codes[:, half:], hours * day // 24, axis=1)
    found = compare_halves(codes, VALUES, day)
    assert found.shift_minutes == hours * 60
    assert f"run 60 min {'later' if hours > 0 else 'earlier'}" in found.verdict[0]


@pytest.mark.parametrize("days", [84, 182, 365])
def test_a_drift_of_the_shares_is_found(days):
    codes = habits(days, together=0.1)
    rng = np.random.default_rng(1)
    later = np.arange(codes.shape[1]) >= codes.shape[1] // 2
    codes[(rng.random(codes.shape) < 0.2) & later] = 1
    found = compare_halves(codes, VALUES, 48)
    assert found.drifted
    assert not found.shifted
    assert found.drift == pytest.approx(0.2 * (codes[:, ~later] == 0).mean(), abs=0.03)
    assert "drift between the halves" in found.verdict[0]


def test_days_without_a_shape_have_no_shift():
    for seed in range(20):
        values = walk(10, 200, chain=CHAIN, seed=seed)
        codes = given_states([10, 20], values).index(values)
        assert compare_halves(codes, VALUES, 24).verdict == ()
    assert compare_halves((codes[:, :60] > 0).astype(np.int8), VALUES, 1).shift_minutes == 0


def test_gaps_are_no_drift():
    codes = habits(182)
    codes[:5, : 100 * 48] = -1
    codes[:, 20 * 48 : 24 * 48] = -1
    assert compare_halves(codes, VALUES, 48).verdict == ()


def test_what_changed_is_told_with_the_fit_and_the_back_test(tmp_path):
    codes = habits(240, 24)
    codes[:, 120 * 24 :] = np.roll(codes[:, 120 * 24 :], 1, axis=1)
    found = readings(VALUES[codes])
    made = fit(found, given_states(VALUES, found.values), slots=4, adversary="population")
    assert any("run 60 min later" in line for line in made.assumptions.verdict)
    assert "run 60 min later" in made.problem.origin
    assert any("run 60 min later" in note for note in aw.plan(made.problem).notes)
    path = written(tmp_path / "m.parquet", VALUES[codes])
    words = ["--states", "10,20", "--slots", "4", "--adversary", "population", "--json"]
    done = in_process.command("backtest", path, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["halves"]["shift_minutes"] == 60
    assert "run 60 min later" in document["warnings"][0]
    assert "run 60 min later" in done.stderr


@pytest.mark.skipif(not LONDON.exists(), reason="the London readings are not here")
def test_london_changes_its_clocks_in_march():
    """In UTC, as these readings are, people get up an hour earlier from April on."""
    table = pl.read_csv(LONDON / "households.csv").filter(pl.col("tariff") == "Std")
    found = read_readings(
        LONDON / "lcl_2013_halfhourly.parquet", entities=table["household"].to_list()
    )
    states = given_states([60, 250], found.values)
    spring, _ = found.split(0.5)
    told = compare_halves(states.index(spring.values), states.values, 48)
    assert told.shift_minutes == -60
    assert told.shifted
    year = compare_halves(states.index(found.values), states.values, 48)
    assert not year.shifted  # summer and winter are in both halves
