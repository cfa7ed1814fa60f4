"""Claims over many rounds: a habit that was planted is found, and what it breaks is told."""

import json
import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from test_fit import LONDON, readings, written

import agewise as aw
from agewise import cli, read_readings
from agewise.fitting import backtest_rounds, fit_rounds, given_states
from agewise.fitting.levels import fit_levels, past_levels, take_rounds
from agewise.fitting.round_adversary import SUREST, Calls, judge, replay_rounds


def habits(entities=40, rounds=400, seed=0, apart=0.25):
    """Households of two habits, high three times in four or once; they change one in 25 rounds."""
    rng = np.random.default_rng(seed)
    changes = np.cumsum(rng.random((entities, rounds)) < 0.04, axis=1)
    kind = changes + rng.integers(0, 2, entities)[:, None]
    high = rng.random(kind.shape) < np.where(kind % 2, 0.5 + apart, 0.5 - apart)
    return 100 + 50 * high + rng.random(kind.shape)


def forgetful(entities=40, days=400, seed=0):
    """Readings whose state is that of a first-order chain."""
    rng = np.random.default_rng(seed)
    state = np.zeros((entities, days), dtype=int)
    for t in range(1, days):
        stay = rng.random(entities) < 0.65
        state[:, t] = np.where(stay, state[:, t - 1], 1 - state[:, t - 1])
    return 100.0 + 50 * state + rng.random(state.shape)


@pytest.fixture(scope="module")
def planted():
    return readings(habits(), day=1)


def test_the_level_is_a_mean_of_what_was_before_only():
    codes = np.array([[1, 1, 0, -1, 1]], dtype=np.int8)
    levels = past_levels(codes, 2, 0.5)
    assert levels.tolist() == [[0.5, 0.75, 0.875, 0.4375, 0.4375]]
    changed = codes.copy()
    changed[0, 2:] = 1 - changed[0, 2:]
    assert past_levels(changed, 2, 0.5)[0, :3].tolist() == levels[0, :3].tolist()


def test_states_are_each_entitys_own_and_found_in_the_first_days(planted):
    taken = take_rounds(planted, 2, before=0.5)
    first = taken.codes[:, :200]
    assert np.abs(first.mean(axis=1) - 0.5).max() < 0.01
    edges = np.median(planted.values[:, :200], axis=1)
    assert np.array_equal(taken.codes, planted.values > edges[:, None])


def test_a_planted_habit_breaks_first_order_claims_and_not_those_with_levels(planted):
    states = given_states([100, 150], planted.values)
    found = backtest_rounds(planted, states, classical_epsilons=[1.0])
    assert found.alone[0].broken
    assert found.tried[0].levels == 1
    assert found.tried[0].attacks[0].broken
    assert found.tried[0].leftover.found
    chosen = found.chosen
    assert chosen is not None
    assert chosen.levels > 1
    assert not chosen.attacks[0].reached
    assert not chosen.attacks[0].broken
    assert chosen.leftover.gain < 0.5 * found.tried[0].leftover.gain
    assert any("something is left over; adversaries reach" in line for line in found.verdict)


def test_a_first_order_chain_is_left_at_that():
    found = fit_rounds(readings(forgetful(), day=1), given_states([100, 150], forgetful()))
    assert [one.levels for one in found.backtest.tried] == [1]
    assert not found.backtest.tried[0].leftover.found
    truth = aw.MarkovChain([[0.65, 0.35], [0.35, 0.65]], [0, 1])
    for claim in found.claims:
        exact = aw.continual_epsilon(truth, 1, claim.classical_epsilon, age=1)
        assert claim.epsilon == pytest.approx(exact, rel=0.15)
        assert claim.limit > exact
        assert claim.classical_year == 365 * claim.classical_epsilon


def test_a_habit_that_outlasts_every_level_supports_no_claim():
    """Each entity keeps to a rhythm of 20 days, which no level tells of."""
    rng = np.random.default_rng(1)
    phase = rng.integers(0, 20, 40)[:, None]
    high = (np.arange(400) + phase) // 10 % 2
    values = 100.0 + 50 * np.where(rng.random(high.shape) < 0.95, high, 1 - high)
    values += rng.random(values.shape)
    found = fit_rounds(readings(values, day=1), levels=1, classical_epsilons=[2.0])
    assert found.chain is None
    assert math.isinf(found.claims[0].epsilon)
    assert found.claims[0].classical_year == 730
    assert any("support no claim over rounds" in line for line in found.verdict)
    assert any("classical total" in line for line in found.verdict)


def test_rounds_of_half_a_day_have_a_chain_for_each():
    values = habits(entities=20, seed=3)
    taken = take_rounds(readings(values, day=2), 2, every=1)
    chain = fit_levels(taken, 2)
    assert chain.process.day == 2
    assert 0 < chain.epsilon(0.5) < math.inf
    assert take_rounds(readings(values, day=2), 2, at=1).codes.shape == (20, 200)


def test_what_time_of_day_it_is_tells_nothing_that_was_not_known():
    """High three times in four in the evening, once in the morning, whatever was before."""
    rng = np.random.default_rng(0)
    evening = np.arange(600) % 2
    high = rng.random((30, 600)) < np.where(evening, 0.75, 0.25)
    values = 100.0 + 50 * high
    taken = take_rounds(readings(values, day=2), given_states([100, 150], values), every=1)
    chain = fit_levels(taken.part(slice(None, taken.half)), 1)
    attack = judge(replay_rounds(taken, chain, 1.0), "", 1.0, np.full(30, chain.epsilon(1.0)))
    assert attack.epsilon < 0.1
    assert max(attack.log_ratios[:3]) < 0.1
    assert attack.chance > 0.05


def test_calls_are_weighed_within_households():
    """Mantel and Haenszel's ratio of two households by hand."""
    hits, alarms = np.array([[[8.0]], [[1.0]]]), np.array([[[2.0]], [[1.0]]])
    there, rest = np.array([[[10.0]], [[2.0]]]), np.array([[[10.0]], [[8.0]]])
    calls = Calls("filter", 0.5, 1, hits, alarms, there, rest)
    by_hand = (8 * 10 / 20 + 1 * 8 / 10) / (2 * 10 / 20 + 1 * 2 / 10)
    assert calls.log_ratio() == pytest.approx(math.log(by_hand))


def test_one_who_never_errs_beats_every_claim():
    once = np.ones((2, 1, 3))
    calls = [Calls("filter", share, 1, once, 0 * once, once, once) for share in SUREST]
    attack = judge(calls, "", 1.0, np.full(2, 50.0))
    assert attack.log_ratios == (math.inf,) * 4
    assert attack.reached


def test_classes_are_tried_as_far_as_levels_have_values(planted):
    """With a memory of 1 a level is the state before, of which there are two."""
    found = backtest_rounds(planted, memory=1.0, classical_epsilons=[1.0])
    assert [one.levels for one in found.tried] == [1]
    assert found.chosen is None
    with pytest.raises(aw.InvalidInput, match="levels is 4; allowed: "):
        backtest_rounds(planted, memory=1.0, levels=4)


def test_an_adversary_against_pure_noise_gets_nothing(planted):
    taken = take_rounds(planted, 2, before=0.5)
    chain = fit_levels(taken.part(slice(None, taken.half)), 2)
    calls = replay_rounds(taken, chain, 1e-6)
    attack = judge(calls, "nothing", 1e-6, np.full(40, 0.05))
    assert max(attack.log_ratios[:3]) < 0.1
    assert attack.chance > 0.05


def test_an_adversary_is_not_fooled_about_the_first_rounds(planted):
    """More noise tells less, at every share of rounds."""
    taken = take_rounds(planted, 2, before=0.5)
    chain = fit_levels(taken.part(slice(None, taken.half)), 4)
    little, much = (
        judge(replay_rounds(taken, chain, e), "", e, np.ones(40)).log_ratios for e in (2.0, 0.2)
    )
    assert len(little) == len(SUREST)
    assert all(a > b for a, b in zip(little, much, strict=True))


def test_entities_that_never_change_are_left_out_by_name(planted):
    values = planted.values.copy()
    values[3] = 5.0
    taken = take_rounds(readings(values, day=1), 2)
    assert taken.left_out == (("m3", "always in the same state"),)
    assert "m3" not in taken.entities
    with pytest.raises(aw.InvalidInput, match="40 of 40 entities in one state throughout"):
        take_rounds(readings(np.ones((40, 300)), day=1), 2)


@pytest.mark.parametrize(
    ("choices", "field"),
    [
        ({"levels": 0}, "levels"),
        ({"levels": 1.5}, "levels"),
        ({"memory": 0.0}, "memory"),
        ({"memory": 1.5}, "memory"),
        ({"states": 1}, "states"),
        ({"every": 2}, "every"),
        ({"at": 1}, "at"),
        ({"classical_epsilons": []}, "classical_epsilons"),
        ({"classical_epsilons": [-1.0]}, "classical_epsilons"),
        ({"rounds": 29}, "rounds"),
        ({"rounds": 201}, "rounds"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(planted, choices, field):
    with pytest.raises(aw.InvalidInput) as refused:
        backtest_rounds(planted, **choices)
    assert refused.value.field == field


def test_too_few_days_are_refused(planted):
    few = readings(planted.values[:, :50], day=1)
    with pytest.raises(aw.InvalidInput, match="25 rounds to judge by"):
        backtest_rounds(few)
    with pytest.raises(aw.InvalidInput, match="50 rounds to fit to"):
        backtest_rounds(readings(planted.values[:, :100], day=1))


def test_guarantee_a_claim_over_rounds_that_just_holds_is_not_condemned():
    """First-order chains, whose claims are as tight as claims can be, and a third of them."""
    for seed in range(5):
        values = forgetful(entities=20, days=300, seed=seed)
        taken = take_rounds(readings(values, day=1), given_states([100, 150], values))
        chain = fit_levels(taken.part(slice(None, taken.half)), 1)
        calls, claims = replay_rounds(taken, chain, 1.0), np.full(20, chain.epsilon(1.0))
        assert not judge(calls, "", 1.0, claims).broken
        assert judge(calls, "", 1.0, claims / 3).chance < 0.05


def london():
    """Households with the standard tariff."""
    found = read_readings(LONDON / "lcl_2013_halfhourly.parquet")
    tariffs = pl.read_csv(LONDON / "households.csv")
    standard = set(tariffs.filter(pl.col("tariff") == "Std")["household"])
    rows = [row for row, name in enumerate(found.entities) if name in standard]
    names = tuple(found.entities[row] for row in rows)
    return replace(found, entities=names, values=found.values[rows])


@pytest.mark.slow
@pytest.mark.skipif(not LONDON.exists(), reason="the readings are not here")
def test_london_breaks_first_order_chains_and_not_six_levels():
    """The table of docs/fitting.md."""
    readings_ = london()
    tested = {levels: backtest_rounds(readings_, at=36, levels=levels) for levels in (4, 6)}
    assert tested[6].entities == 63
    assert [one.epsilon for one in tested[6].alone] == pytest.approx([0.102, 0.188], abs=0.002)
    assert tested[6].alone_high == pytest.approx([0.503, 0.824], abs=0.002)
    assert all(one.broken for one in tested[6].alone)
    for levels, claims in ((4, [0.796, 1.005]), (6, [1.001, 1.219])):
        attacks = tested[levels].tried[0].attacks
        assert [one.epsilon for one in attacks] == pytest.approx(claims, abs=0.002)
        assert not any(one.broken for one in attacks)
    half, full = tested[6].tried[0].attacks
    assert half.log_ratios == pytest.approx([0.24, 0.39, 0.53, 0.68], abs=0.02)
    assert full.log_ratios == pytest.approx([0.37, 0.60, 0.81, 1.00], abs=0.02)
    assert [tested[k].tried[0].holds for k in (4, 6)] == [False, True]


@pytest.mark.slow
@pytest.mark.skipif(not LONDON.exists(), reason="the readings are not here")
def test_london_with_medians_of_the_whole_year_is_as_the_theory_has_it():
    taken = take_rounds(london(), 2, at=36)
    first = taken.part(slice(None, taken.half))
    for levels, claims in ((4, [0.97, 1.20]), (6, [1.22, 1.47])):
        chain = fit_levels(first, levels)
        assert [chain.epsilon(e) for e in (0.5, 1.0)] == pytest.approx(claims, rel=0.02)
    for spent, known in ((0.5, [0.27, 0.43, 0.57, 0.72]), (1.0, [0.41, 0.67, 0.91, 1.22])):
        attack = judge(replay_rounds(taken, chain, spent), "", spent, np.full(63, 2.0))
        assert attack.log_ratios == pytest.approx(known, abs=0.06)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Two readings a day."""
    values = habits(entities=15, rounds=480, seed=4, apart=0.0)
    return str(written(tmp_path_factory.mktemp("rounds") / "m.parquet", values, minutes=720))


def asked(*words):
    cli.app([*words], standalone_mode=False)


def test_fit_says_what_all_rounds_tell_and_writes_nothing(file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    asked(
        "fit",
        file,
        "--every",
        "day",
        "--at",
        "12:00",
        "--levels",
        "2",
        "--classical-epsilon",
        "0.3",
    )
    shown = " ".join(capsys.readouterr().out.split())
    assert "Claims over rounds" in shown
    assert "109.5" in shown  # the classical total of a year
    assert "No limit over rounds is proven" in shown
    assert "lag by lag gets no credit over rounds" in shown
    assert list(tmp_path.iterdir()) == []


def test_fit_and_back_test_agree_and_speak_json(file, capsys):
    words = (file, "--every", "day", "--at", "12:00", "--levels", "2", "--classical-epsilon", "1")
    asked("fit", *words, "--json")
    fitted = json.loads(capsys.readouterr().out)
    asked("backtest", *words, "--json")
    tested = json.loads(capsys.readouterr().out)
    assert fitted["backtest"] == tested
    assert tested["judged_rounds"] == 120
    assert [one["levels"] for one in tested["tried"]] == [2]
    assert tested["tried"][0]["attacks"][0]["surest"] == [0.5, 0.25, 0.1, 0.03]
    assert np.array(fitted["chain"]["transition"]).shape == (4, 4)
    assert fitted["claims"][0]["limit"] > fitted["claims"][0]["epsilon"] > 0


def test_the_back_test_shows_every_claim(file, capsys):
    words = ("--every", "12h", "--at", "00:00", "--states", "100,150", "--levels", "2")
    asked("backtest", file, "--rounds", "60", *words)
    shown = " ".join(capsys.readouterr().out.split())
    assert "on 60 rounds held out" in shown
    assert "2 per day" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--every", "5h", "--at", "12:00"], "--every is '5h'; allowed: a divisor of a day"),
        (["--every", "18h", "--at", "12:00"], "--every is '18h'; allowed: a divisor of a day"),
        (["--every", "6h", "--at", "12:00"], "multiple of the 720 min between readings"),
        (["--every", "week", "--at", "12:00"], "--every is 'week'; allowed: day, or hours"),
        (["--every", "0h", "--at", "12:00"], "--every is '0h'"),
        (["--every", "day", "--at", "09:00"], "--aggregate-at is '09:00'"),
        (["--every", "day", "--at", "12:00", "--levels", "0"], "levels is 0; allowed: a whole"),
        (["--at", "12:00", "--levels", "31"], "levels is 31; allowed: a whole number from 1 to 30"),
        (["--at", "12:00", "--memory", "0"], "memory is 0.0; allowed: above 0 and at most 1"),
        (["--at", "12:00", "--memory", "1.1"], "memory is 1.1; allowed: above 0 and at most 1"),
        (["--at", "12:00", "--memory", "0.001"], "rounds to fit to; allowed: 2000 or more"),
        (["--at", "12:00", "--quantiles", "0", "--levels", "2"], "states is 0"),
        (["--every", "day", "--classical-epsilon", "a"], "--classical-epsilon is 'a'"),
        (["--every", "day", "--at", "12:00", "--classical-epsilon", "0"], "finite number above 0"),
        (["--every", "day", "--sampled", "weeks"], "--sampled is given with a claim over rounds"),
        (["--every", "day", "--out", "m.toml"], "--out is given with a claim over rounds"),
    ],
)
def test_bad_choices_are_refused_and_nothing_is_written(
    file, words, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(aw.InvalidInput) as refused:
        asked("fit", file, *words)
    assert refused.value.exit_code == 2
    assert message in str(refused.value)
    assert list(tmp_path.iterdir()) == []
