"""Laws given what is known of the day, asymptotic limits and ages, from readings to statements."""

import json
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from test_fit import readings

import agewise as aw
import in_process
from agewise import fit, read_readings
from agewise.fitting.defaults import offered_ages
from agewise.fitting.given import find_classes
from agewise.readings import Columns

DAYS, ENTITIES = 210, 12
COLUMNS = {"entity": "meter", "timestamp": "time", "value": "kwh"}
CHOICES = {"first_slot": 0, "slots": 2, "adversary": "population", "epsilon": 0.5}


def turning(signs):
    """Readings, two a day: what was collected stays where the sign is 1, elsewhere it turns."""
    rng = np.random.default_rng(0)
    now = rng.random((ENTITIES, signs.shape[-1])) < 0.5
    later = np.where(signs == 1, now, ~now) ^ (rng.random(now.shape) < 0.1)
    return np.stack([now, later], axis=2).reshape(ENTITIES, -1) * 10.0 + 10


WEEKENDS = (np.arange(DAYS) % 7 >= 5).astype(int)  # the first day is a Monday
HALVES = (np.arange(DAYS) % 2).astype(int)


def in_file(path, values, **columns):
    start, slots = datetime(2024, 1, 1), values.shape[1]
    frame = {
        "meter": np.repeat([f"m{i}" for i in range(len(values))], slots),
        "time": [start + timedelta(hours=12 * t) for t in range(slots)] * len(values),
        "kwh": values.ravel(),
        **{name: np.tile(column, len(values)) for name, column in columns.items()},
    }
    pl.DataFrame(frame).write_parquet(path)
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Every other day is warm, and turns what was collected round."""
    kind = np.repeat(np.where(HALVES, "cold", "warm"), 2)
    degrees = np.repeat(np.where(HALVES, 0.0, 20.0), 2) + np.arange(2 * DAYS) / 100
    folder = tmp_path_factory.mktemp("given")
    values = turning(HALVES)
    return in_file(folder / "meters.parquet", values, kind=kind, degrees=degrees)


@pytest.mark.parametrize("limits", ["proven", "asymptotic"])
@pytest.mark.parametrize("given", ["weekend", "weekday"])
def test_who_knows_the_calendar_learns_more(given, limits):
    found = readings(turning(WEEKENDS), day=2)
    plain = fit(found, [10, 20], limits=limits, **CHOICES).clients[0]
    known = fit(found, [10, 20], limits=limits, given=given, **CHOICES)
    assert plain.estimates[0] < 0.5
    assert known.clients[0].estimates[0] == pytest.approx(0.8, abs=0.1)
    assert known.clients[0].limits[0] > known.clients[0].estimates[0]
    words = {"weekend": "but for whether it is a weekend", "weekday": "but for the day of the week"}
    assert words[given] in known.problem.clients[0].process.assumes
    assert any(words[given] in note for note in aw.plan(known.problem).notes)


def test_the_old_word_for_weekends_means_the_same():
    found = readings(turning(WEEKENDS), day=2)
    old, new = (
        fit(found, [10, 20], **c, **CHOICES) for c in ({"calendar": True}, {"given": "weekend"})
    )
    assert old.problem == new.problem


def test_who_knows_the_others_level_learns_more():
    """On high days everybody is high, and what was collected turns round."""
    rng, high = np.random.default_rng(1), np.random.default_rng(2).random(DAYS) < 0.5
    later = rng.random((ENTITIES, DAYS)) < np.where(high, 0.6, 0.4)
    now = np.where(high, later, ~later) ^ (rng.random(later.shape) < 0.1)
    values = np.stack([now, later], axis=2).reshape(ENTITIES, -1) * 10.0 + 10
    found = readings(values, day=2)
    plain = fit(found, [10, 20], **CHOICES).clients[0]
    known = fit(found, [10, 20], given="level", **CHOICES).clients[0]
    assert known.estimates[0] > plain.estimates[0] + 0.1


def test_the_level_leaves_the_entity_itself_out():
    values = np.tile(np.arange(60.0), (2, 1))
    values[1] = values[1][::-1]
    found = find_classes("level", readings(values, day=1), values, np.arange(60), asymptotic=False)
    assert found.codes[0].tolist() == [2] * 20 + [1] * 20 + [0] * 20
    assert found.codes[1].tolist() == [0] * 20 + [1] * 20 + [2] * 20


@pytest.mark.parametrize("given", ["kind", "degrees"])
def test_a_column_of_the_file_may_be_known(file, given):
    found = read_readings(file, Columns(**COLUMNS), covariate=given)
    plain = fit(read_readings(file, Columns(**COLUMNS)), [10, 20], **CHOICES).clients[0]
    known = fit(found, [10, 20], given=given, **CHOICES).clients[0]
    assert plain.estimates[0] < 0.2
    assert known.estimates[0] == pytest.approx(0.8, abs=0.1)
    first, second = found.split(0.5)
    assert first.covariate.codes.shape == first.values.shape
    assert second.covariate.codes.shape == second.values.shape


def test_few_ages_are_offered_by_default_and_fewer_are_tighter():
    assert offered_ages(6) == (1, 2, 3, 4, 5)
    assert offered_ages(49) == tuple(range(4, 49, 4))
    rng = np.random.default_rng(0)
    found = readings(rng.choice([10.0, 20.0], (6, 24 * 100)), day=24)
    choices = {**CHOICES, "slots": 9}
    for limits in ("proven", "asymptotic"):
        every = fit(found, [10, 20], limits=limits, **choices).clients[0]
        one = fit(found, [10, 20], limits=limits, ages=[8], **choices)
        assert one.clients[0].limits[0] < every.limits[0]
        assert set(one.clients[0].limits[1:]) == {1.0}
        assert one.to_dict()["ages"] == [8]


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        (
            {"given": "moon"},
            "given is 'moon'; allowed: weekend, weekday, month, level, or a column",
        ),
        (
            {"given": "month", "limits": "asymptotic"},
            "month 1 .5 weeks.*8 weeks or more in each class",
        ),
        ({"given": "level", "calendar": True}, "calendar is with given level"),
        ({"given": "level", "count_epsilon": 1.0}, "given is with count_epsilon"),
        (
            {"limits": "asymptotic", "count_epsilon": 1.0},
            "limits is asymptotic, with count_epsilon",
        ),
        ({"limits": "asymptotic", "sampled": "pairs"}, "sampled is pairs, with asymptotic limits"),
        ({"limits": "guessed"}, "limits is 'guessed'"),
        ({"ages": []}, "ages is none"),
        ({"ages": [2]}, "ages is 2; allowed: a whole number from 1 to 1"),
        ({"given": "level", "kind": "chain"}, "kind measured"),
    ],
)
def test_senseless_choices_are_refused(choices, words):
    with pytest.raises(aw.InvalidInput, match=words):
        fit(readings(turning(WEEKENDS), day=2), [10, 20], **{**CHOICES, **choices})


def test_too_little_to_know_is_refused_in_words():
    values = turning(WEEKENDS)
    with pytest.raises(aw.InvalidInput, match="level, of one entity"):
        fit(readings(values[:1], day=2), [10, 20], given="level", **CHOICES)
    with pytest.raises(aw.InvalidInput, match="of 5 weeks; allowed: 8 weeks or more"):
        fit(readings(values[:, : 2 * 40], day=2), [10, 20], limits="asymptotic", **CHOICES)
    with pytest.raises(
        aw.InvalidInput, match=r"Monday .6 days.*14 days or more in each class.*take weekend"
    ):
        fit(readings(values[:, : 2 * 40], day=2), [10, 20], given="weekday", **CHOICES)


def fitted(file, *arguments):
    columns = [part for name, column in COLUMNS.items() for part in (f"--{name}", column)]
    return in_process.command("fit", file, "--states", "10,20", *columns, *arguments)


def test_the_command_says_what_limits_rest_on(file, tmp_path):
    out = tmp_path / "mine.toml"
    words = ["--adversary", "population", "--aggregate-at", "12:00"]
    words += [
        "--slots",
        2,
        "--limits",
        "asymptotic",
        "--given",
        "kind",
        "--ages",
        "1",
        "--out",
        out,
    ]
    ran = fitted(file, *words)
    assert ran.returncode == 0, ran.stderr
    said = " ".join(ran.stdout.split())
    assert "asymptotic limits at 95%" in said
    assert "given kind" in said
    assert "in simulations of 26 weeks" in said
    text = out.read_text(encoding="utf-8")
    assert 'basis = "asymptotic"' in text
    assert "weeks = 30" in text
    planned = json.loads(in_process.command("plan", out, "--json").stdout)
    assert any("(asymptotic, from 30 weeks of readings" in note for note in planned["notes"])
    assert any("but for 'kind' in the aggregation slot" in note for note in planned["notes"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--given", "kinds"], "Did you mean kind"),
        (["--given", "kwh"], "given is 'kwh'"),
        (["--given", "level", "--ages", "soon"], "--ages is 'soon'"),
    ],
)
def test_the_command_refuses_with_what_to_do(file, tmp_path, words, said):
    out = tmp_path / "mine.toml"
    ran = fitted(file, *words, "--out", out)
    assert ran.returncode == 2
    assert said in " ".join(ran.stderr.split())
    assert not out.exists()
