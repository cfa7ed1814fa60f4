"""From readings to a scenario, and what is said about it on the way."""

import doctest
import inspect
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import agewise as aw
import in_process
from agewise import cli, fit, read_readings
from agewise.cli.backtesting import backtest
from agewise.cli.fitting import fit_command
from agewise.fitting import given_states, least_error_states, quantile_states
from agewise.fitting.assumptions import check_assumptions, spoken_time, usual_lags
from agewise.readings import Quality, Readings
from agewise.readings.plausibility import fence

CHAIN = aw.birth_death(0.3, 0.3, [10, 20])
TWO = ["--states", "10,20"]
LONDON = Path(__file__).parents[3] / "shared" / "data" / "london"


def walk(entities, days, day=24, seed=0, chain=CHAIN, memory=None):
    """Values of entities that follow a chain, or repeat yesterday with probability `memory`."""
    rng = np.random.default_rng(seed)
    codes = np.zeros((entities, days * day), dtype=int)
    below = np.cumsum(chain.transition, axis=1)[:, :-1]
    for t in range(1, days * day):
        codes[:, t] = (rng.random(entities)[:, None] >= below[codes[:, t - 1]]).sum(axis=1)
        if memory is not None and t >= day:
            keep = rng.random(entities) < memory
            codes[keep, t] = codes[keep, t - day]
    return chain.states[codes]


def written(path, values, minutes=60):
    start = datetime(2024, 1, 1)
    frame = pl.DataFrame(
        {
            "meter": np.repeat([f"m{i}" for i in range(len(values))], values.shape[1]),
            "time": [start + timedelta(minutes=minutes * t) for t in range(values.shape[1])]
            * len(values),
            "kwh": values.ravel(),
        }
    )
    frame.write_parquet(path)
    return path


def readings(values, day=24):
    quality = Quality(
        rows=values.size,
        entities=len(values),
        slots=values.shape[1],
        resolution_minutes=60,
        first="",
        last="",
        timezone="UTC",
        used=values.size,
        duplicates_same=0,
        duplicates_averaged=0,
        not_numbers=0,
        negative=0,
        clock_change=0,
        off_grid=0,
        missing=0,
        left_out=(),
    )
    names = tuple(f"m{i}" for i in range(len(values)))
    return Readings(names, values, day, datetime(2024, 1, 1, tzinfo=UTC), quality)


@pytest.fixture(scope="module")
def meters(tmp_path_factory):
    return written(tmp_path_factory.mktemp("fit") / "meters.parquet", walk(6, 900))


def test_a_chain_passes_and_a_habit_does_not():
    states = given_states([10, 20], walk(2, 3))
    plain = check_assumptions(states.index(walk(8, 200)), states.values, 24, lags=(1, 4, 24))
    assert plain.verdict == ("Nothing speaks against the homogeneous chain at these lags.",)
    assert plain.memory_p > 0.05
    habit = check_assumptions(
        states.index(walk(8, 200, memory=0.7)), states.values, 24, lags=(1, 4, 24)
    )
    assert "understates Δ at lag 24" in habit.verdict[0]
    assert "use the measured law" in habit.verdict[0]
    worst = max(habit.lags, key=lambda one: one.understated)
    assert worst.lag == 24
    assert worst.understated > 0.4


def test_time_of_day_and_season_are_noticed():
    calm, lively = aw.birth_death(0.05, 0.05, [10, 20]), aw.birth_death(0.45, 0.45, [10, 20])
    values = np.concatenate([walk(8, 60, chain=calm), walk(8, 60, chain=lively, seed=1)], axis=1)
    states = given_states([10, 20], values)
    found = check_assumptions(states.index(values), states.values, 24, lags=(1, 4))
    assert found.season > 0.5 > found.control
    assert found.season_p == 0.05 < found.day_night_p
    assert any("season" in line for line in found.verdict)


def test_entities_that_move_together_are_noticed():
    values = walk(8, 100)
    states = given_states([10, 20], values)
    alone = check_assumptions(states.index(values), states.values, 24, lags=(1,))
    assert alone.together == pytest.approx(1, abs=0.2)
    same = check_assumptions(
        states.index(np.repeat(values[:1], 8, axis=0)), states.values, 24, lags=(1,)
    )
    assert same.together == pytest.approx(8)
    assert any("move together" in line for line in same.verdict)


def test_the_measured_law_covers_the_truth_and_earns_credit(meters):
    found = read_readings(meters)
    made = fit(found, given_states([10, 20], found.values), epsilon=0.5, first_slot=10, slots=6)
    (client,) = made.clients
    for slot in range(5):
        truth = aw.total_variation(CHAIN, 5 - slot)
        assert client.limits[slot] >= truth
        assert client.limits[slot] >= client.estimates[slot]
    assert min(client.limits) < 1
    plan = aw.plan(made.problem)
    assert plan.assignments[0].aged_epsilon <= 0.5
    assert plan.assignments[0].delta == pytest.approx(
        client.limits[plan.collect_at[0] - 1], abs=1e-9
    )


def test_states_may_be_levels_or_left_to_the_readings(meters):
    found = aw.read_readings(meters)
    choices = {"epsilon": 0.5, "first_slot": 10, "slots": 6}
    by_levels = aw.fit(found, [10, 20], **choices)
    same = fit(found, given_states([10, 20], found.values), **choices)
    assert by_levels.to_dict() == same.to_dict()
    assert by_levels.problem == same.problem
    chosen = aw.fit(found, **choices).states
    assert (chosen.how, chosen.values.tolist()) == ("least error", [10, 20])


def test_the_population_is_another_claim(meters):
    found = read_readings(meters)
    states = given_states([10, 20], found.values)
    choices = {"epsilon": 0.5, "first_slot": 10, "slots": 6}
    house = fit(found, states, **choices).clients[0]
    crowd = fit(found, states, adversary="population", **choices).clients[0]
    assert sum(crowd.limits) < sum(house.limits)  # six times the pairs, if meters are alike


def test_groups_are_clients(meters):
    found = read_readings(meters)
    groups = {"north": ["m0", "m1"], "south": ["m2", "m3", "m4"]}
    made = fit(found, given_states([10, 20], found.values), epsilon=0.5, slots=4, groups=groups)
    assert [(c.name, c.samples) for c in made.problem.clients] == [("north", 2), ("south", 3)]
    with pytest.raises(aw.InvalidInput, match="entities that were read"):
        fit(found, made.states, epsilon=0.5, slots=4, groups={"x": ["nobody"]})
    for groups in ({"x": ["m0", "m0"]}, {"x": ["m0"], "y": ["m0"]}):
        with pytest.raises(aw.InvalidInput, match="'m0' more than once"):
            fit(found, made.states, epsilon=0.5, slots=4, groups=groups)
    with pytest.raises(aw.InvalidInput, match="empty"):
        fit(found, made.states, epsilon=0.5, slots=4, groups={"x": []})


def test_laws_for_others_need_many_entities(meters):
    found = read_readings(meters)
    states = given_states([10, 20], found.values)
    choices = {"epsilon": 0.5, "slots": 4, "sampled": "entities"}
    with pytest.raises(aw.InvalidInput, match="adversary population"):
        fit(found, states, **choices)
    six = fit(found, states, adversary="population", **choices)
    assert min(six.clients[0].limits) == 1
    assert "nothing moving them all together" in six.problem.clients[0].process.assumes


def test_what_limits_rest_on_travels_to_the_statement(meters, tmp_path):
    done = run(
        meters,
        *TWO,
        "--slots",
        4,
        "--adversary",
        "population",
        "--sampled",
        "pairs",
        "--out",
        "mine.toml",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    result = aw.run(aw.plan(aw.load_scenario(tmp_path / "mine.toml")))
    page = result.statement.to_markdown()
    assert "every day of every entity is independent of every other" in page
    assert "not which of them has which habits" in page


def test_groups_say_who_was_not_read_and_who_is_in_none(meters, tmp_path):
    (tmp_path / "g.csv").write_text("entity,client\nm0,north\nm1,north\nm9,north\n")
    done = run(meters, *TWO, "--slots", 4, "--groups", "g.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "without usable readings: m9" in done.stderr
    assert "m2, m3, m4, m5: in none of the groups" in done.stdout
    for lines, words in (
        (["m9,south"], "no entity with usable readings"),
        ([",south"], "--groups: line 2 of g.csv is entity missing, client south"),
        (["m0,north,3"], "--groups of g.csv is line 2 with 3 fields"),
        ([], "--groups is g.csv, empty"),
    ):
        (tmp_path / "g.csv").write_text("\n".join(["entity,client", *lines]))
        done = run(meters, *TWO, "--slots", 4, "--groups", "g.csv", "--force", cwd=tmp_path)
        assert done.returncode == 2
        assert words in done.stderr


def test_entities_without_a_limit_are_left_out_by_name(tmp_path):
    values = np.concatenate([walk(3, 900), np.full((1, 900 * 24), 10.0)])
    values[2] = 10.0
    values[2, ::500] = 20.0  # hardly ever
    found = read_readings(written(tmp_path / "m.parquet", values))
    made = fit(found, given_states([10, 20], found.values), epsilon=0.5, first_slot=10, slots=4)
    assert dict(made.left_out) == {"m3": "always in one state", "m2": "limit above 0.9"}
    assert made.problem.clients[0].samples == 2
    few = read_readings(written(tmp_path / "few.parquet", walk(2, 20)))
    with pytest.raises(aw.InvalidInput, match="no credit for ageing"):
        fit(few, given_states([10, 20], few.values), epsilon=0.5, slots=4, confidence=0.999)


@pytest.mark.parametrize("kind", ["chain", "periodic"])
def test_chains_can_still_be_asked_for(meters, kind):
    found = read_readings(meters)
    made = fit(found, given_states([10, 20], found.values), epsilon=0.5, slots=6, kind=kind)
    process = made.problem.clients[0].process
    assert process.kernel(1, 2) == pytest.approx(CHAIN.transition, abs=0.05)


def run(*arguments, cwd):
    return in_process.command("fit", *arguments, cwd=cwd)


def test_from_the_command_line_to_a_plan(meters, tmp_path):
    done = run(
        meters,
        "--states",
        "10,20",
        "--slots",
        6,
        "--report",
        "rep",
        "--unit",
        "kWh",
        "--out",
        "mine.toml",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "Taking time as the time, meter as the entity, kwh as the reading" in done.stderr
    there = {p.name for p in (tmp_path / "rep").iterdir()}
    assert there == {"fit.png", "fit.svg", "fit.json", "report.html"}
    problem = aw.load_scenario(tmp_path / "mine.toml")
    assert aw.plan(problem).assignments[0].aged_epsilon <= 0.5
    assert (tmp_path / "mine.toml").read_text().startswith("# Laws (measured) from readings of 6")
    as_json = run(meters, "--quantiles", 2, "--slots", 6, "--json", cwd=tmp_path)
    document = json.loads(as_json.stdout)
    assert document["confidence"] == 0.95
    assert document["clients"][0]["entities"] == 6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.csv"], "an existing file"),
        (["m.parquet", "--states", "a,b"], "--states is 'a,b'"),
        (["m.parquet", "--states", "10", "--quantiles", "3"], "one of them"),
        (["m.parquet", *TWO, "--aggregate-at", "25:00"], "--aggregate-at is '25:00'"),
        (["m.parquet", *TWO, "--aggregate-at", "noon"], "--aggregate-at is 'noon'"),
        (["m.parquet", *TWO, "--aggregate-at", "12:20"], "a multiple of 60 minutes"),
        (["m.parquet", "--out", "x.json"], "--out is x.json"),
        (["m.parquet", "--out", "none/x.toml"], "a folder that exists"),
        (["m.parquet", *TWO, "--aggregate-at", "²"], "--aggregate-at"),
        (["m.parquet", *TWO, "--confidence", "1"], "confidence is 1"),
        (["m.parquet", *TWO, "--epsilon", "0"], "epsilon is 0"),
        (["m.parquet", *TWO, "--slots", "0"], "slots is 0"),
        (["m.parquet", *TWO, "--groups", "none.csv"], "--groups is none.csv"),
        (["m.parquet", *TWO, "--groups", "m.parquet"], "allowed: entity and client"),
        (["m.parquet", "--value", "wh"], "value column is 'wh'"),
        (["m.parquet", "--wide", "--value", "kwh"], "--wide is with --entity or --value"),
        (["m.parquet", *TWO, "--sampled", "entities"], "adversary population"),
    ],
)
def test_bad_input_is_refused_in_words(meters, tmp_path, arguments, words):
    (tmp_path / "m.parquet").symlink_to(meters)
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.toml"))


@pytest.mark.skipif(not LONDON.exists(), reason="the London readings are not here")
def test_london_gets_its_verdict():
    table = pl.read_csv(LONDON / "households.csv")
    standard = table.filter(pl.col("tariff") == "Std")["household"].to_list()
    found = read_readings(LONDON / "lcl_2013_halfhourly.parquet", entities=standard)
    states = given_states([20, 50, 100, 200], found.values)
    checked = check_assumptions(states.index(found.values), states.values, 48, simulations=3)
    assert "understates Δ at lag 48 (1 day) by 0.59" in checked.verdict[0]
    assert any("time of day" in line for line in checked.verdict)
    assert checked.day_night > 5 * checked.control


def test_what_exists_is_not_written_over(meters, tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text("edited by hand")
    done = run(meters, *TWO, "--slots", 4, "--out", "mine.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "mine.toml, which exists" in done.stderr
    assert mine.read_text() == "edited by hand"
    assert run(meters, *TWO, "--slots", 4, "--out", mine, "--force", cwd=tmp_path).returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.html", "mine.toml"]


def test_every_entity_can_be_a_client(meters, tmp_path):
    done = run(meters, *TWO, "--slots", 4, "--each", "--json", cwd=tmp_path)
    document = json.loads(done.stdout)
    assert [one["members"] for one in document["clients"]] == [[f"m{i}"] for i in range(6)]
    clash = run(meters, *TWO, "--each", "--groups", "g.csv", "--force", cwd=tmp_path)
    assert "--each, --groups is both" in clash.stderr


def test_a_chain_is_called_an_estimate_all_the_way_to_the_auditor(tmp_path):
    path = written(tmp_path / "m.parquet", walk(4, 60, memory=0.7))
    done = run(path, *TWO, "--slots", 4, "--kind", "chain", "--out", "c.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "not for a privacy claim" in done.stderr
    page = aw.run(aw.plan(aw.load_scenario(tmp_path / "c.toml"))).statement.to_markdown()
    assert "not for a privacy claim" in page
    assert "understates Δ at lag 24 (1 day)" in page


def test_who_is_left_out_is_named_to_the_auditor(tmp_path):
    values = np.concatenate([walk(3, 900), np.full((1, 900 * 24), 10.0)])
    path = written(tmp_path / "m.parquet", values)
    done = run(path, *TWO, "--slots", 4, "--out", "c.toml", "--unit", "kWh", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = aw.run(aw.plan(aw.load_scenario(tmp_path / "c.toml")))
    page = result.statement.to_markdown()
    assert "not to be among the records: m3 (always in one state)" in page
    assert "stationary" not in page  # what a measured law rests on is said instead
    rows = ["client,slot,value", *(f"all,{t},{v}" for t in range(1, 5) for v in (10, 20, 10, 20))]
    (tmp_path / "today.csv").write_text("\n".join(rows))
    with pytest.raises(aw.InvalidInput, match=r"4 records in .*allowed: 3, as its noise"):
        aw.run(result.plan, sources=tmp_path / "today.csv", ledgers=tmp_path / "l")


def test_next_to_no_credit_is_said_to_people_and_programs(meters, tmp_path):
    weak = [meters, *TWO, "--slots", 4, "--adversary", "population", "--sampled", "entities"]
    told = run(*weak, "--json", "--out", "a.toml", cwd=tmp_path)
    (warning,) = json.loads(told.stdout)["warnings"]
    assert "next to no credit" in warning
    assert "next to no credit" in told.stderr
    assert "next to no credit" in run(*weak, "--out", "b.toml", cwd=tmp_path).stderr


def test_a_scenario_that_cannot_be_written_spends_nothing(meters, tmp_path):
    private = ["--adversary", "population", "--count-epsilon", 1, "--ledgers", "ledgers"]
    groups = tmp_path / "g.csv"
    groups.write_text("entity;client\nm0; a\nm1;a\nm2;b\n")
    (tmp_path / "ledgers").mkdir()
    (tmp_path / "ledgers" / "b.ledger").write_text("damaged")
    done = run(
        meters, *TWO, "--slots", 4, *private, "--groups", groups, "--out", "m.toml", cwd=tmp_path
    )
    assert done.returncode == 2
    assert not (tmp_path / "ledgers" / "a.ledger").exists()
    assert not list(tmp_path.glob("*m.toml*"))


def test_fitting_again_for_other_clients_is_another_release(meters, tmp_path):
    private = [
        meters,
        *TWO,
        "--slots",
        4,
        "--adversary",
        "population",
        "--count-epsilon",
        1,
        "--ledgers",
        "ledgers",
        "--out",
        "m.toml",
        "--force",
    ]
    (tmp_path / "g.csv").write_text('"entity","client"\nm0,a\nm1,a\nm2,b\n')
    assert run(*private, "--groups", "g.csv", cwd=tmp_path).returncode == 0
    again = run(*private, cwd=tmp_path)
    assert again.returncode == 2
    assert "by another name" in again.stderr
    assert not (tmp_path / "ledgers" / "all.ledger").exists()


def test_names_cannot_write_into_the_scenario(tmp_path):
    frame = pl.read_parquet(written(tmp_path / "m.parquet", walk(3, 60)))
    bad = "x\ncapacity = 1\n#\x01"
    frame = frame.with_columns(pl.col("meter").replace("m2", bad))
    frame.write_parquet(tmp_path / "m.parquet")
    (tmp_path / "g.csv").write_text("entity,client\nm0,a\nm1,a\n")
    done = run(
        "m.parquet",
        *TWO,
        "--slots",
        4,
        "--groups",
        "g.csv",
        "--adversary",
        "population",
        "--out",
        "c.toml",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    problem = aw.load_scenario(tmp_path / "c.toml")
    assert problem.capacity is None
    assert r"x\ncapacity = 1\n#\x01 (in none of the groups)" in problem.origin
    with pytest.raises(aw.InvalidInput, match="origin"):
        problem.replace(origin="two\nlines")


def test_a_plan_cannot_lose_what_its_scenario_says(meters):
    found = read_readings(meters)
    made = aw.plan(fit(found, given_states([10, 20], found.values), epsilon=0.5, slots=4).problem)
    document = json.loads(made.to_json())
    assert aw.Plan.from_json(json.dumps(document)) == made
    document["notes"] = []
    with pytest.raises(aw.InvalidInput, match="plan: notes is without 'Laws"):
        aw.Plan.from_json(json.dumps(document))


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"first_slot": -3}, "first_slot is -3"),
        ({"first_slot": 24}, "first_slot is 24"),
        ({"slots": 1}, "slots is 1"),
        ({"worst_limit": 0}, "worst_limit is 0"),
        ({"worst_limit": 2}, "worst_limit is 2"),
    ],
)
def test_fits_that_make_no_sense_are_refused(meters, choice, words):
    found = read_readings(meters)
    with pytest.raises(aw.InvalidInput, match=words):
        fit(found, given_states([10, 20], found.values), epsilon=0.5, **{"slots": 4, **choice})


def test_counts_are_private_about_any_24_hours(meters):
    """Whichever 24 hours of an entity are exchanged, counts move by no more than is claimed."""
    found = read_readings(meters)
    rng = np.random.default_rng(1)
    for first, slots in ((0, 24), (5, 12), (20, 8), (13, 30), (0, 49)):
        made = fit(
            found,
            given_states([10, 20], found.values),
            epsilon=0.5,
            first_slot=first,
            slots=slots,
            adversary="population",
            count_epsilon=1.0,
        )
        worst = 0
        for begin in range(24 * 30, 24 * 32):
            other = found.values.copy()
            other[0, begin : begin + 24] = rng.choice([10.0, 20.0], 24)
            flipped = 30 - found.values[0, begin : begin + 24]
            for exchanged in (other[0, begin : begin + 24], flipped):
                other[0, begin : begin + 24] = exchanged
                worst = max(worst, _moved(found.values[:1], other[:1], first, slots))
        assert worst <= made.noise.sensitivity
        assert worst > made.noise.sensitivity / 4


def _moved(one, other, first, slots, day=24):
    """The sum of all changes of the counts, over all tables."""
    total = 0
    days = np.arange(first, one.shape[1] - slots + 1, day)
    for slot in range(slots):
        tables = []
        for values in (one, other):
            codes = (values > 15).astype(int)
            pairs = codes[0, days + slot] * 2 + codes[0, days + slots - 1]
            tables.append(np.bincount(pairs, minlength=4))
        total += np.abs(tables[0] - tables[1]).sum()
    return total


@pytest.mark.slow
@pytest.mark.skipif(not LONDON.exists(), reason="the London readings are not here")
@pytest.mark.parametrize(
    "choice",
    [["--quantiles", "5"], ["--states", "20,50,100,200"]],
)
def test_london_with_many_states_ends_in_words(choice, tmp_path):
    london = [LONDON / "lcl_2013_halfhourly.parquet", *choice, "--slots", 24, "--out", "x.toml"]
    done = run(*london, cwd=tmp_path)
    assert done.returncode == 2
    assert "of 74 entities left out" in done.stderr
    assert not list(tmp_path.iterdir())
    done = run(*london, "--most-left-out", 1, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert ": limit above 0.9" in " ".join(done.stdout.split())
    assert "--worst-limit) 1 keeps them" in done.stderr


def test_back_tests_from_the_command_line(meters, tmp_path):
    done = in_process.command("backtest", meters, *TWO, "--slots", "5", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [one["claim"] for one in document["attacks"]] == ["measured", "chain"]
    assert not any(one["too_good"] for one in document["attacks"])
    assert [one["scheme"] for one in document["plans"]] == [
        "nothing collected",
        "classical, fresh",
        "plain",
        "propagated",
        "best",
        "random",
    ]


def test_back_tests_by_weeks_print_promises_and_what_became_of_them(meters, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    words = ["backtest", meters, *TWO, "--slots", "5", "--split", "weeks"]
    done = in_process.command(*words, "--others", "--unit", "Wh", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Fitted to every other week" in done.stdout
    heading = next(line for line in done.stdout.splitlines() if "promised (Wh²)" in line)
    assert heading.split("  ")[-1].strip() == "above best estimate (Wh²)"
    rows = [line for line in done.stdout.splitlines() if "nothing collected" in line]
    assert "±" in rows[0]
    refused = in_process.command(*words[:-1], "years", cwd=tmp_path)
    assert refused.returncode == 2
    assert "'weeks'" in refused.stderr


@pytest.mark.slow
@pytest.mark.skipif(not LONDON.exists(), reason="the London readings are not here")
def test_the_shipped_scenario_is_what_the_readings_give(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples" / "london_fitted"))
    import fit as script

    shipped = aw.scenarios.london_fitted()
    for told, client in zip(script.main(LONDON)["clients"], shipped.clients, strict=True):
        assert (told["name"], told["samples"]) == (client.name, client.samples)
        assert client.process.joints == pytest.approx(np.array(told["joints"]), abs=1e-8)
        assert client.process.limits == pytest.approx(np.array(told["limits"]), abs=1e-5)


def test_the_shipped_scenario_plans_and_runs():
    plan = aw.plan(aw.scenarios.london_fitted())
    fresh = aw.loss_gap(plan.problem, [0, 0, 0])
    assert plan.gap < fresh  # measured ageing is worth something
    assert all(a.aged_epsilon <= 0.5 for a in plan.assignments)
    result = aw.run(plan)
    assert result.private
    assert "an upper limit at confidence 0.95" in result.statement.to_markdown()


def test_a_private_fit_is_recorded(meters, tmp_path):
    private = [meters, *["--states", "10,20", "--slots", "4", "--adversary", "population"]]
    private += ["--count-epsilon", "1", "--ledgers", "ledgers", "--out", "mine.toml"]
    done = run(*private, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with aw.Ledger.read(tmp_path / "ledgers" / "all.ledger") as ledger:
        (event,) = ledger.events()
    assert (event.classical_epsilon, event.collect_at, event.private) == (1.0, 0, True)
    assert "recorded in the clients' ledgers" in (tmp_path / "mine.toml").read_text()
    again = run(*private, "--force", cwd=tmp_path)
    assert again.returncode == 2
    assert "another release" in again.stderr
    plan = aw.plan(aw.load_scenario(tmp_path / "mine.toml"))
    result = aw.run(plan, ledgers=tmp_path / "ledgers", policy=aw.Policy(max_classical_epsilon=3))
    (row,) = result.statement.clients
    assert row.releases == 2
    assert row.total_classical_epsilon == pytest.approx(row.classical_epsilon + 1)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--count-epsilon", "1"], "both, or neither"),
        (["--ledgers", "b"], "both, or neither"),
        (["--count-epsilon", "1", "--ledgers", "b"], "measured and population"),
        (["--count-epsilon", "0", "--ledgers", "b"], "count_epsilon is 0"),
        (
            [
                "--count-epsilon",
                "1",
                "--ledgers",
                "b",
                "--adversary",
                "population",
                "--quantiles",
                "2",
            ],
            "states that are given",
        ),
    ],
)
def test_private_fits_that_are_refused(meters, tmp_path, more, words):
    states = [] if "--quantiles" in more else TWO
    done = run(meters, *states, "--slots", 4, *more, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert not list(tmp_path.iterdir())


def test_fit_and_back_test_have_the_same_defaults():
    one, other = (inspect.signature(c).parameters for c in (fit_command, backtest))
    shared = {name for name in one if name in other}
    assert {"epsilon", "slots", "adversary", "sampled", "worst_limit"} < shared
    assert {n: one[n].default for n in shared} == {n: other[n].default for n in shared}
    python = inspect.signature(fit).parameters
    for name in (shared & set(python)) - {"readings", "states"}:
        assert python[name].default == one[name].default, name


@pytest.mark.slow
def test_the_tutorials_command_gives_the_tutorials_numbers(monkeypatch, capsys):
    """The last command of the page, on the file that the page writes."""
    page = (Path(__file__).parents[2] / "docs" / "tutorial_readings.md").read_text()
    shown = {}
    for example in doctest.DocTestParser().get_examples(page[: page.index("## 5.")]):
        exec(compile(example.source, "tutorial", "single"), shown)
    command = re.search(r"`agewise (fit [^`]+)`", page)[1].split()
    monkeypatch.chdir(shown["folder"])
    cli.app(command, standalone_mode=False)
    told = aw.load_scenario("utility.toml")
    made = shown["made"].problem
    assert (told, told.name, told.unit) == (made, made.name, made.unit)
    plan = aw.plan(told)
    assert (plan.ages, plan.gap) == (shown["plan"].ages, pytest.approx(shown["plan"].gap))


def wobbly(entities, days, **choices):
    """Two levels with something around them, in Wh."""
    rng = np.random.default_rng(5)
    values = walk(entities, days, **choices)
    return np.where(values > 15, 900.0, 150.0) + rng.integers(-40, 40, values.shape)


def test_one_outlier_does_not_choose_the_states(tmp_path):
    values = wobbly(12, 120)
    clean = least_error_states(2, values).values
    values[3, 24 * 33 + 5] = 350_300
    for found in (least_error_states(2, values), quantile_states(2, values)):
        assert found.error < 60
    assert least_error_states(2, values).values == pytest.approx(clean, rel=1e-3)
    done = run(
        written(tmp_path / "m.parquet", values),
        "--slots",
        4,
        "--worst-limit",
        1,
        "--json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["clients"][0]["entities"] == 12
    (outlier,) = document["outliers"]
    assert outlier == {
        "entity": "m3",
        "readings": 1,
        "largest": 350_300,
        "at": "2024-02-03T05:00:00+00:00",
    }
    assert "count as the highest one: m3 350300 at 2024-02-03T05:00" in done.stderr
    assert "m3 350300 at" in aw.load_scenario(tmp_path / "fitted.toml").origin


def test_an_entity_in_another_unit_does_not_choose_the_states():
    values = wobbly(40, 30)
    clean = least_error_states(2, values).values
    values[3] *= 1000
    assert least_error_states(2, values).values == pytest.approx(clean, rel=1e-3)


def test_heavy_tails_are_no_outliers():
    rng = np.random.default_rng(1)
    scales = rng.lognormal(0, 0.5, (60, 1))
    assert fence(scales * rng.lognormal(5, 1, (60, 5000))) > (scales * 150 * np.e**3).max()
    assert fence(np.zeros((3, 50))) == np.inf
    mostly_small = np.concatenate([np.full((6, 100), 1.0), np.full((4, 100), 1000.0)])
    assert fence(mostly_small) >= 1000  # four in ten are no outliers


def test_leaving_out_most_entities_is_refused_unless_asked_for(tmp_path):
    values = np.concatenate([walk(2, 60), np.full((5, 60 * 24), 10.0)])
    path = written(tmp_path / "m.parquet", values)
    wanted = [path, *TWO, "--slots", 4, "--worst-limit", 1]
    done = run(*wanted, cwd=tmp_path)
    assert done.returncode == 2
    assert "5 of 7 entities left out (always in one state: 5)" in " ".join(done.stderr.split())
    assert "Choose other states" in done.stderr
    assert not (tmp_path / "fitted.toml").exists()
    backtested = in_process.command("backtest", *wanted, cwd=tmp_path)
    assert backtested.returncode == 2
    assert "5 of 7 entities left out" in backtested.stderr
    assert run(*wanted, "--most-left-out", 0.72, cwd=tmp_path).returncode == 0


def test_entities_with_too_few_readings_count_as_left_out(tmp_path):
    values = walk(7, 60)
    values[2:, 24:-24] = np.nan
    found = read_readings(written(tmp_path / "m.parquet", values))
    assert len(found.quality.left_out) == 5
    states = given_states([10, 20], found.values)
    for groups in (None, {"a": ["m0", "m2", "m3"], "b": ["m1", "m4"]}):
        with pytest.raises(aw.InvalidInput, match=r"entities left out \(readings that cannot be"):
            fit(found, states, slots=4, worst_limit=1, groups=groups)


def test_what_those_left_out_would_be_worth_is_said(tmp_path):
    values = walk(8, 200)
    values[:3, 24:-24] = np.nan
    found = read_readings(written(tmp_path / "m.parquet", values))
    states = given_states([10, 20], found.values)
    made = fit(found, states, slots=4, worst_limit=1, unit="Wh", epsilon=0.1)
    (worth,) = made.forgone
    assert (worth.entities, worth.records) == (3, (5, 8))
    assert worth.noise[1] == pytest.approx(worth.noise[0] * 5 / 8)
    assert worth.loss[0] == pytest.approx(aw.plan(made.problem).gap)
    assert worth.loss[1] < worth.loss[0]
    said = "With the 3 left out with readings that cannot be used"
    assert said in made.problem.origin
    assert "8 records instead of 5" in made.warnings[0]
    assert made.problem.origin in aw.plan(made.problem).notes


def test_entities_with_a_weak_limit_may_be_worth_more_than_a_better_limit():
    values = walk(6, 200, seed=1)
    states = given_states([10, 20], values)
    found = readings(values)
    alone = fit(found, states, slots=4, worst_limit=1, groups={n: [n] for n in found.entities})
    bar = sorted(min(one.limits) for one in alone.clients)[2]
    made = fit(found, states, slots=4, worst_limit=bar, most_left_out=1)
    all_in = fit(found, states, slots=4, worst_limit=1)
    weak = next(one for one in made.forgone if "limit" in one.whose)
    assert weak.records == (6 - weak.entities, 6)
    assert weak.loss[1] == pytest.approx(aw.plan(all_in.problem).gap)


@pytest.mark.parametrize(
    ("seconds", "lags"),
    [
        (1800, (1, 4, 8, 20, 48, 96, 336)),
        (3600, (1, 2, 4, 10, 24, 48, 168)),
        (900, (1, 8, 16, 40, 96, 192, 672)),
        (10, (1, 720, 1440, 3600, 8640, 17280, 60480)),
        (6 * 3600, (1, 4, 8, 28)),
        (24 * 3600, (1, 2, 7)),
    ],
)
def test_lags_are_hours_days_and_a_week_at_any_resolution(seconds, lags):
    day = 24 * 3600 // seconds
    assert usual_lags(day) == lags
    assert spoken_time(day, day) == "1 day"
    assert spoken_time(7 * day, day) == "1 week"


def test_a_habit_of_a_day_is_found_at_any_resolution():
    for day in (24, 96):
        values = walk(6, 60, day=day, memory=0.8)
        states = given_states([10, 20], values)
        checked = check_assumptions(states.index(values), states.values, day, simulations=2)
        assert f"at lag {day} (1 day)" in checked.verdict[0]


def test_readings_every_ten_seconds_are_checked_over_whole_days():
    """What a chain shows by chance at 10 s is simulated over whole days too, at little cost."""
    rng = np.random.default_rng(1)
    codes = (rng.random((1, 8640 * 15)) < 0.5).astype(np.int8)
    checked = check_assumptions(codes, np.array([1.0, 2.0]), 8640, lags=(1, 8640))
    assert checked.verdict == ("Nothing speaks against the homogeneous chain at these lags.",)
    assert checked.day_night_p > 0.05


def test_slots_are_those_of_a_day_at_any_resolution(tmp_path):
    values = wobbly(6, 60, day=96)
    path = written(tmp_path / "m.parquet", values, minutes=15)
    done = run(path, "--states", "150,900", "--adversary", "population", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert aw.load_scenario(tmp_path / "fitted.toml").aggregate_at == 97
    assert [one["lag"] for one in json.loads(done.stdout)["assumptions"]["lags"]][-3:] == [
        96,
        192,
        672,
    ]
