"""Reading in: every oddity is counted, and what cannot be used is said in words."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import agewise as aw
from agewise import read_readings
from agewise.readings import Columns, infer_columns

LONDON = Path(__file__).parents[3] / "shared" / "data" / "london"
START = datetime(2013, 1, 1, tzinfo=UTC)


def stamps(count, minutes=30, zone=UTC):
    return [START + timedelta(minutes=minutes * i) for i in range(count)]


def long_frame(entities=("a", "b"), count=96, **changes):
    rows = [
        {"meter": e, "time": t.replace(tzinfo=None), "kwh": float(i % 7)}
        for e in entities
        for i, t in enumerate(stamps(count))
    ]
    return pl.DataFrame(rows)


def written(folder, frame, name="r.parquet"):
    path = folder / name
    frame.write_parquet(path) if name.endswith("parquet") else frame.write_csv(path)
    return path


@pytest.mark.parametrize("name", ["r.parquet", "r.csv"])
def test_long_files_are_read_onto_the_grid(tmp_path, name):
    found = read_readings(written(tmp_path, long_frame(), name))
    assert found.entities == ("a", "b")
    assert found.values.shape == (2, 96)
    assert (found.values[0] == np.arange(96) % 7).all()
    assert (found.day, found.first_of_day, found.first) == (48, 0, START)
    assert found.quality.rows == found.quality.used == 192


@pytest.mark.parametrize("name", ["r.parquet", "r.csv"])
def test_wide_files_too(tmp_path, name):
    frame = pl.DataFrame(
        {
            "timestamp": [t.replace(tzinfo=None) for t in stamps(96)],
            "m1": np.arange(96.0),
            "m2": np.arange(96.0) * 2,
        }
    )
    path = written(tmp_path, frame, name)
    assert infer_columns(path) == Columns("", "timestamp", "")
    found = read_readings(path)
    assert found.entities == ("m1", "m2")
    assert (found.values[1] == np.arange(96) * 2).all()


def test_everything_odd_is_counted(tmp_path):
    frame = long_frame(("a",), 100)
    odd = pl.DataFrame(
        {
            "meter": ["a"] * 6,
            "time": [
                frame["time"][3],
                frame["time"][4],
                frame["time"][4] + timedelta(minutes=7),
                *(frame["time"][-1] + timedelta(minutes=30 * k) for k in (1, 2, 3)),
            ],
            "kwh": [3.0, 9.0, 1.0, -5.0, float("nan"), float("inf")],
        }
    )
    found = read_readings(written(tmp_path, pl.concat([frame, odd])))
    quality = found.quality
    assert quality.rows == 106
    assert quality.duplicates_same == 1  # slot 3, said twice
    assert quality.duplicates_averaged == 1  # slot 4, said differently
    assert found.values[0, 4] == pytest.approx((4 + 9) / 2)
    assert quality.off_grid == 1
    assert quality.negative == 1
    assert quality.not_numbers == 2
    assert quality.used == 100


def test_gaps_stay_gaps(tmp_path):
    frame = long_frame(("a",), 96).filter(pl.int_range(96) % 10 != 5)
    found = read_readings(written(tmp_path, frame))
    assert np.isnan(found.values).sum() == found.quality.missing == 9  # the last slot is not begun


def test_thin_entities_are_left_out_by_name(tmp_path):
    thin = long_frame(("thin",), 96).filter(pl.int_range(96).is_in([0, 1, 95]))
    found = read_readings(written(tmp_path, pl.concat([long_frame(), thin])))
    assert found.entities == ("a", "b")
    assert found.quality.left_out == (("thin", "3% of its slots have a reading"),)


def test_clock_changes_leave_a_gap_and_fold_an_hour(tmp_path):
    local = pl.datetime_range(
        datetime(2013, 3, 30), datetime(2013, 4, 2), "30m", eager=True, closed="left"
    )
    frame = pl.DataFrame({"meter": "a", "time": local, "kwh": 1.0})
    found = read_readings(written(tmp_path, frame), timezone="Europe/London")
    assert found.values.shape[1] == 3 * 48 - 2  # the hour that does not exist
    assert (found.quality.not_numbers, found.quality.clock_change) == (0, 2)
    autumn = pl.datetime_range(
        datetime(2013, 10, 26), datetime(2013, 10, 28), "30m", eager=True, closed="left"
    )
    frame = pl.DataFrame({"meter": "a", "time": autumn, "kwh": 1.0})
    found = read_readings(written(tmp_path, frame, "s.parquet"), timezone="Europe/London")
    assert found.quality.missing == 2  # the hour that was there twice, given once


def test_zones_in_the_file_are_kept(tmp_path):
    frame = long_frame(("a",)).with_columns(pl.col("time").dt.replace_time_zone("Asia/Kolkata"))
    found = read_readings(written(tmp_path, frame))
    assert found.first == START - timedelta(hours=5.5)
    assert found.first_of_day == 37


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.with_columns(pl.lit("soon").alias("time")), r"row 1: 'soon'"),
        (lambda f: f.drop("time"), "timestamp column of .* is none"),
        (lambda f: f.drop("kwh"), "value column of .* is none"),
        (lambda f: f.with_columns(pl.col("kwh").alias("more")), "2 columns that could be it"),
        (lambda f: f.head(0), "without a usable row|could be"),
        (lambda f: f.with_columns(kwh=pl.lit(-1.0)), "without a usable row"),
        (lambda f: f.head(1), "one reading per entity"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, change, words):
    with pytest.raises(aw.InvalidInput, match=words):
        read_readings(written(tmp_path, change(long_frame(("a",)))))


def text(folder, *lines):
    path = folder / "r.csv"
    path.write_text("\n".join(["meter,time,wh", *lines]) + "\n")
    return path


def hours(count, form="m0,2024-01-{day:02d} {hour:02d}:00,{value}", start=0):
    return [
        form.format(day=1 + t // 24, hour=t % 24, value=100 + t % 7)
        for t in range(start, start + count)
    ]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([*hours(5), "m0,nonsense,1"], r"1 that cannot be read \(line 7: 'nonsense'\)"),
        (['"m\n0",2024-01-01 00:00,1', "m0,nonsense,1"], r"line 4: 'nonsense'"),
        ([*hours(3), ",2024-01-01 03:00,1"], r"1 rows without one \(line 5: '2024-01-01 03:00'\)"),
        ([*hours(3), "m0,,1"], r"line 5: nothing"),
        ([], r"without a usable row \(0 rows"),
        ([""], r"without a usable row \(0 rows"),
        (
            [*hours(72), *hours(4, "m0,2024-02-{day:02d} {hour:02d}:07,{value}")],
            "4 of 76 off the grid of 60 min from 2024-01-01 00:00:00",
        ),
        ([*hours(3), "m0,2024-01-01 03:00,1,9"], "line 5 with 4 fields, the first has 3"),
        ([*hours(30), "m0,2924-01-01 03:00,1"], r"to 2924-01-01; .* stray date"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path, lines, words):
    path = text(tmp_path, *lines)
    with pytest.raises(aw.InvalidInput, match=words):
        read_readings(path, Columns("meter", "time", "wh"))


def test_files_in_another_alphabet_get_one_message(tmp_path):
    path = text(tmp_path, *hours(9))
    path.write_bytes(path.read_bytes().replace(b"m0", b"\xe9"))
    with pytest.raises(aw.InvalidInput, match=r"byte 0xe9 in line 2; .* iconv"):
        read_readings(path)
    for form in ("utf-16", "utf-16-le", "utf-16-be"):
        path.write_text("\n".join(["meter,time,wh", *hours(9)]), encoding=form)
        with pytest.raises(aw.InvalidInput, match=r"UTF-16 text.* iconv -f utf-16 -t utf-8"):
            infer_columns(path)
    text(tmp_path, *hours(9)).write_text("wh,time,wh\n1,2,3\n")
    with pytest.raises(aw.InvalidInput, match="2 named 'wh'"):
        infer_columns(path)


@pytest.mark.parametrize(
    "header", ["Zähler;Zeitstempel;Verbrauch", "compteur;horodatage;conso", "表;时间;值"]
)
def test_columns_of_other_languages_are_found_by_what_is_in_them(tmp_path, header):
    path = tmp_path / "r.csv"
    lines = [f"m0;{1 + t // 24:02d}.02.2024 {t % 24:02d}:00;{t % 7},5" for t in range(72)]
    path.write_text("\n".join([header, *lines]))
    assert infer_columns(path) == Columns(*header.split(";"))
    found = read_readings(path)
    assert found.first == datetime(2024, 2, 1, tzinfo=UTC)
    assert found.values[0, :3].tolist() == [0.5, 1.5, 2.5]


def test_a_long_file_is_not_taken_for_a_wide_one(tmp_path):
    path = written(tmp_path, long_frame(), "r.csv")
    with pytest.raises(aw.InvalidInput, match=r"column 'meter' of .* without a number"):
        read_readings(path, Columns("", "time", ""))
    numbered = long_frame().with_columns(meter=pl.col("meter").replace_strict("a", 7, default=8))
    with pytest.raises(aw.InvalidInput, match="the same times over and over"):
        read_readings(written(tmp_path, numbered, "s.csv"), Columns("", "time", ""))


def test_meters_may_be_read_at_any_minute(tmp_path):
    found = read_readings(text(tmp_path, *hours(48, "m0,2024-01-{day:02d} {hour:02d}:07,{value}")))
    assert found.values.shape == (1, 48)
    assert (found.first.minute, found.first_of_day, found.quality.off_grid) == (7, 0, 0)
    india = read_readings(text(tmp_path, *hours(48)), timezone="Asia/Kolkata")
    assert india.values.shape == (1, 48)
    assert india.first == datetime(2023, 12, 31, 18, 30, tzinfo=UTC)


def test_clock_changes_off_the_grid_are_named(tmp_path):
    local = pl.datetime_range(
        datetime(2013, 1, 1), datetime(2013, 11, 1), "4h", eager=True, closed="left"
    )
    frame = pl.DataFrame({"meter": "a", "time": local, "kwh": 1.0})
    with pytest.raises(aw.InvalidInput, match=r"off the grid of 240 min .* Clock changes"):
        read_readings(written(tmp_path, frame), timezone="Europe/London")


def test_unreadable_times_are_no_clock_change(tmp_path):
    with pytest.raises(aw.InvalidInput, match=r"1 that cannot be read \(line 26: 'n/a'\)"):
        read_readings(text(tmp_path, *hours(24), "m0,n/a,1"), timezone="Europe/London")


@pytest.mark.parametrize("odd", [pl.lit(True), pl.col("timestamp")], ids=["yes or no", "time"])
def test_columns_of_a_wide_file_are_numbers(tmp_path, odd):
    times = [t.replace(tzinfo=None) for t in stamps(96)]
    frame = pl.DataFrame({"timestamp": times, "m1": np.arange(96.0), "m2": 1.0})
    path = written(tmp_path, frame.with_columns(odd.alias("odd")))
    with pytest.raises(aw.InvalidInput, match=r"column 'odd' .* Leave the column out"):
        read_readings(path, Columns("", "timestamp", ""))


def test_entities_may_have_any_name(tmp_path):
    times = [t.replace(tzinfo=None) for t in stamps(96)]
    names = ["entity", "value", "at", "number", "cell", "agewise row", "row", "times"]
    frame = pl.DataFrame({"timestamp": times, **{name: np.arange(96.0) for name in names}})
    found = read_readings(written(tmp_path, frame), Columns("", "timestamp", ""))
    assert found.entities == tuple(sorted(names))


def test_numbers_beyond_all_meters_are_none(tmp_path):
    found = read_readings(text(tmp_path, *hours(30), "m0,2024-01-02 06:00,1e306"))
    assert found.quality.not_numbers == 1
    assert np.nanmax(found.values) < 200


@pytest.mark.parametrize(
    ("form", "shift"),
    [
        ("m0,2024-01-{day:02d}T{hour:02d}:00:00+01:00,{value}", -1),
        ("m0,2024-01-{day:02d} {hour:02d}:00-0200,{value}", 2),
        ("m0,2024-01-{day:02d} {hour:02d}:00:00 +00:00,{value}", 0),
        ("m0,2024-01-{day:02d}T{hour:02d}:00:00.000Z,{value}", 0),
        ("m0 , 2024-01-{day:02d} {hour:02d}:00 , {value} ", 0),
        ("m0,{day:02d}/01/2024 {hour:02d}:00,{value}", 0),
    ],
)
def test_times_as_they_come(tmp_path, form, shift):
    found = read_readings(text(tmp_path, *hours(48, form)))
    assert found.first == datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=shift)
    assert found.values[0].tolist() == [100 + t % 7 for t in range(48)]


@pytest.mark.parametrize("unit", [1, 1_000, 1_000_000, 1_000_000_000])
@pytest.mark.parametrize("name", ["r.csv", "r.parquet"])
def test_seconds_since_1970_are_times(tmp_path, unit, name):
    start = int(START.timestamp())
    frame = pl.DataFrame(
        {
            "meter": [1012345678901] * 96,
            "when": [(start + 900 * t) * unit for t in range(96)],
            "wh": [t % 7 for t in range(96)],
        }
    )
    path = written(tmp_path, frame, name)
    assert infer_columns(path) == Columns("meter", "when", "wh")
    found = read_readings(path, timezone="Asia/Kolkata")  # they are in UTC, whatever is said
    assert (found.first, found.day) == (START, 96)
    assert found.values[0].tolist() == [t % 7 for t in range(96)]


def test_numbers_that_are_no_times_are_refused(tmp_path):
    frame = long_frame(("a",)).with_columns(time=pl.int_range(96))
    with pytest.raises(aw.InvalidInput, match=r"96 that cannot be read .*or seconds since 1970"):
        read_readings(written(tmp_path, frame), Columns("meter", "time", "kwh"))


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("m0,2024-01-{day:02d} {hour:02d}:00 PM,{value}", "Times with AM or PM: .* 24 hours"),
        ("m0,{day}/01/2024 {hour}:00 a.m.,{value}", "Times with AM or PM: .* 24 hours"),
        ("m0,1/{day}/2024 {hour:02d}:00,{value}", "Dates with the month first: .* year first"),
    ],
)
def test_times_in_other_habits_are_named(tmp_path, form, words):
    lines = [form.format(day=1 + t // 10, hour=1 + t % 10, value=t % 7) for t in range(200)]
    with pytest.raises(aw.InvalidInput, match=words):
        read_readings(text(tmp_path, *lines))


def test_totals_on_a_meter_are_no_use(tmp_path):
    rng = np.random.default_rng(1)
    use = rng.integers(0, 400, (5, 48 * 5)).astype(float)

    def file(values):
        frame = long_frame(tuple("abcde"), 48 * 5).with_columns(kwh=values.ravel())
        return written(tmp_path, frame)

    assert read_readings(file(use)).quality.left_out == ()
    totals = use.cumsum(axis=1)
    totals[:, 100:] -= totals[:, 100:101]  # the meters were exchanged
    with pytest.raises(aw.InvalidInput, match=r"5 of 5 entities .* meter.* Take differences"):
        read_readings(file(totals))
    found = read_readings(file(np.concatenate([use[:4], totals[4:]])))
    assert [name for name, why in found.quality.left_out if "take differences" in why] == ["e"]
    assert found.entities == tuple("abcd")


@pytest.mark.parametrize("seconds", [10, 60, 900, 7200])
def test_any_step_that_divides_a_day(tmp_path, seconds):
    times = [START.replace(tzinfo=None) + timedelta(seconds=seconds * t) for t in range(8640 * 2)]
    frame = pl.DataFrame({"meter": "a", "time": times, "kwh": [1.0, 2.0] * 8640})
    found = read_readings(written(tmp_path, frame))
    assert found.day == 24 * 60 * 60 // seconds
    assert found.quality.resolution_minutes == seconds / 60
    shifted = read_readings(written(tmp_path, frame[3:]))
    assert shifted.first_of_day == 3


def test_a_step_that_does_not_divide_a_day_is_refused(tmp_path):
    times = [START.replace(tzinfo=None) + timedelta(seconds=7 * t) for t in range(1000)]
    frame = pl.DataFrame({"meter": "a", "time": times, "kwh": 1.0})
    with pytest.raises(aw.InvalidInput, match="resolution is 7 s between readings"):
        read_readings(written(tmp_path, frame))


def test_offsets_and_local_times_may_mix(tmp_path):
    lines = [*hours(24), *hours(24, "m0,2024-01-{day:02d}T{hour:02d}:00:00Z,{value}", 24)]
    found = read_readings(text(tmp_path, *lines))
    assert found.values.shape == (1, 48)


def test_semicolons_bring_decimal_commas_and_empty_lines_are_nothing(tmp_path):
    path = tmp_path / "r.csv"
    lines = [line.replace(",", ";") + ",5" for line in hours(48)]
    path.write_text("meter; time; wh\n" + "\n\n".join(lines))
    assert infer_columns(path) == Columns("meter", "time", "wh")
    found = read_readings(path)
    assert found.values[0, :3].tolist() == [100.5, 101.5, 102.5]
    assert found.quality.rows == 48


def test_columns_that_are_told_are_not_guessed(tmp_path):
    frame = long_frame().with_columns(pl.col("kwh").alias("other"), pl.col("time").alias("date"))
    path = written(tmp_path, frame)
    assert infer_columns(path, timestamp="time", value="kwh") == Columns("meter", "time", "kwh")
    assert infer_columns(path, timestamp="date", wide=True) == Columns("", "date", "")
    with pytest.raises(aw.InvalidInput, match="timestamp column of"):
        infer_columns(path, value="kwh")
    with pytest.raises(aw.InvalidInput, match="entity column is 'x'"):
        infer_columns(path, entity="x")


def test_days_are_split_at_midnight(tmp_path):
    found = read_readings(written(tmp_path, long_frame(count=48 * 5)))
    before, after = found.split(0.5)
    assert (before.values.shape[1], after.values.shape[1]) == (96, 144)
    assert after.first == START + timedelta(days=2)
    assert after.first_of_day == found.first_of_day
    assert (before.quality.first, after.quality.last) == (found.quality.first, found.quality.last)
    assert before.quality.last == "2013-01-02T23:30:00+00:00"
    assert after.quality.first == "2013-01-03T00:00:00+00:00"
    assert (before.quality.used, after.quality.slots) == (2 * 96, 144)
    with pytest.raises(aw.InvalidInput, match="too few days"):
        found.split(0.1)


def test_mixed_resolutions_are_refused(tmp_path):
    other = pl.DataFrame(
        {"meter": "hourly", "time": [t.replace(tzinfo=None) for t in stamps(48, 60)], "kwh": 1.0}
    )
    path = written(tmp_path, pl.concat([long_frame(), other]))
    with pytest.raises(aw.InvalidInput, match=r"mixed \(.*every 30 min.*hourly every 60 min"):
        read_readings(path)


def test_wrong_names_zones_and_files(tmp_path):
    path = written(tmp_path, long_frame())
    with pytest.raises(aw.InvalidInput, match="timezone is 'Moon/Sea'"):
        read_readings(path, timezone="Moon/Sea")
    with pytest.raises(aw.InvalidInput, match="value column is 'wh'"):
        read_readings(path, Columns("meter", "time", "wh"))
    with pytest.raises(aw.InvalidInput, match="entities is 'nobody'"):
        read_readings(path, entities=["nobody"])
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    for name, words in (
        ("broken.parquet", "a Parquet file"),
        ("none.csv", "existing"),
        ("x.txt", "csv"),
    ):
        with pytest.raises(aw.InvalidInput, match=words):
            read_readings(tmp_path / name)


# Not ru_maxrss: that of a new process begins with the peak of the one that started it.
PEAK = r"""
import re, sys
from pathlib import Path
from agewise.readings import Columns, read_readings
found = read_readings(sys.argv[1], Columns("meter", "time", "wh"))
status = Path("/proc/self/status").read_text()
print(found.values.size, int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory as Linux tells it")
def test_files_are_streamed(tmp_path):
    """A file with a long remark in every row takes less memory than it is long."""
    path, remark = tmp_path / "r.csv", "r" * 500
    with path.open("w") as file:
        file.write("meter,time,wh,note\n")
        for meter in range(100):
            file.writelines(
                f"m{meter},{time:%Y-%m-%d %H:%M},{meter},{remark}\n" for time in stamps(20_000)
            )
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True
    )
    cells, peak = map(int, done.stdout.split())
    assert cells == 2_000_000
    assert peak < path.stat().st_size * 0.7


@pytest.mark.skipif(not LONDON.exists(), reason="the London readings are not here")
def test_the_london_readings():
    path = LONDON / "lcl_2013_halfhourly.parquet"
    table = pl.read_csv(LONDON / "households.csv")
    standard = table.filter(pl.col("tariff") == "Std")["household"].to_list()
    assert infer_columns(path) == Columns("household", "timestamp", "wh")
    found = read_readings(path, entities=standard)
    assert found.values.shape == (63, 17_520)
    assert found.quality.negative == found.quality.missing == found.quality.duplicates_same == 0
