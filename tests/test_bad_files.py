"""Files that are not what they should be: one message, exit code 2, nothing written."""

import os
from dataclasses import replace

import pytest

import agewise as aw
import in_process

PLAIN = aw.scenarios.london()


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A plan, the folders of runs that have ended, and a ledger."""
    folder = tmp_path_factory.mktemp("good")
    made = aw.plan(PLAIN)
    (folder / "plan.json").write_text(made.to_json())
    aw.run(made, folder=folder / "run")
    aw.run_rounds(
        aw.plan(aw.scenarios.for_ever().replace(clients=PLAIN_CLIENTS, level=None)),
        rounds=2,
        folder=folder / "rounds",
    )
    return folder


PLAIN_CLIENTS = aw.scenarios.for_ever().clients[:1]
DEEP_TOML, DEEP_JSON = "x = " + "[" * 5000, "[" * 100_000
READING = (
    ["plan", "FILE"],
    ["run", "FILE"],
    ["rounds", "FILE"],
    ["compare", "FILE"],
    ["schemes", "FILE"],
    ["ages", "FILE"],
    ["check", "FILE"],
    ["audit", "FILE"],
    ["run", "--plan", "FILE"],
    ["run", "london", "--readings", "FILE", "--ledgers", "ledgers"],
    ["rounds", "for_ever", "--readings", "FILE", "--ledgers", "ledgers"],
    ["run", "--resume", "FILE"],
    ["rounds", "--resume", "FILE"],
    ["fit", "FILE"],
    ["backtest", "FILE"],
    ["ledger", "show", "FILE"],
    ["ledger", "verify", "FILE"],
    ["ledger", "export", "FILE"],
)


def kinds(place):
    """Files that no command can read, by their names."""
    made = aw.dump_scenario(PLAIN)
    written = {
        "deep.toml": DEEP_TOML,
        "cut.toml": made[: len(made) // 2] + "[[",
        "empty.toml": "",
        "deep.json": DEEP_JSON,
        "cut.json": aw.plan(PLAIN).to_json()[:500],
        "list.json": "[]",
        "null.json": "null",
        "number.csv": "12\n",
        "cut.ledger": "SQLite format 3",
    }
    for name, text in written.items():
        (place / name).write_text(text)
    (place / "binary.toml").write_bytes(bytes(range(256)))
    (place / "folder.toml").mkdir()
    (place / "folder.json").mkdir()
    return [*written, "binary.toml", "folder.toml", "folder.json", "missing.toml", "missing.json"]


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_files_that_cannot_be_read_are_refused_and_nothing_is_written(words, tmp_path):
    for name in kinds(tmp_path):
        before = sorted(tmp_path.rglob("*"))
        arguments = [name if one == "FILE" else one for one in words]
        done = in_process.command(*arguments, cwd=tmp_path)
        assert done.returncode == 2, (arguments, done)
        assert done.stderr.strip(), arguments
        assert "Traceback" not in done.stderr
        assert sorted(tmp_path.rglob("*")) == before, (arguments, done.stderr)


DAMAGE = {
    "cut": lambda text: text[: len(text) // 2],
    "deep": lambda text: DEEP_JSON,
    "empty": lambda text: "",
    "null": lambda text: "null",
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(
    ("folder", "file"),
    [
        ("run", "run.json"),
        ("run", "plan.json"),
        ("run", "record.json"),
        ("run", "journal.jsonl"),
        ("rounds", "rounds.json"),
        ("rounds", "plan.json"),
        ("rounds", "record.json"),
        ("rounds", "00001/round.json"),
        ("rounds", "00002/record.json"),
    ],
)
def test_a_damaged_run_is_refused_or_found_out(good, folder, file, damage):
    place = good / folder / file
    text = place.read_text()
    place.write_text(DAMAGE[damage](text))
    try:
        for command in (
            ["check", good / folder],
            ["audit", good / folder, "--draws", "0"],
            ["run" if folder == "run" else "rounds", "--resume", good / folder],
        ):
            done = in_process.command(*command, cwd=good)
            told = done.stdout + done.stderr
            # An audit without a record says less; a record of all rounds is made from theirs.
            passes = command[0] == "audit" or (command[0], file) == ("rounds", "record.json")
            assert done.returncode in ((0, 2, 5) if passes else (2, 5)), (command, told)
            assert "Traceback" not in told
    finally:
        place.write_text(text)


def test_all_that_is_wrong_with_a_run_is_told_at_once(tmp_path):
    (tmp_path / "mine.toml").write_text("agregate_at = 5\nepsilon = -1\n")
    words = "run mine.toml --capacity -3 --delta 2 --learner ridge --level x --seed -4 --window 0"
    words += " --repetitions 1 --readings no.csv --starts-at -1 --max-delta 3 --superlink x:1"
    done = in_process.command(*words.split(), cwd=tmp_path)
    assert done.returncode == 2
    told = [line.removeprefix("Error: ").split(" is ")[0] for line in done.stderr.splitlines()]
    assert told == [
        "--repetitions",
        "--seed",
        "--learner",
        "--level",
        "mine.toml: agregate_at",
        "mine.toml: clients",
        "mine.toml: aggregate_at",
        "mine.toml: epsilon",
        "capacity",
        "delta",
        "window",
        "max_delta",
        "starts_at",
        "readings",
        "superlink",
    ]
    assert os.listdir(tmp_path) == ["mine.toml"]


def test_records_that_would_not_fit_are_told_with_the_rest(tmp_path):
    problem = aw.scenarios.london()
    crowd = [replace(client, samples=10**9) for client in problem.clients]
    (tmp_path / "mine.toml").write_text(aw.dump_scenario(problem.replace(clients=crowd)))
    done = in_process.command("run", "mine.toml", "--drop", "nobody", "--seed", -1, cwd=tmp_path)
    assert done.returncode == 2
    told = [line.removeprefix("Error: ").split(" is ")[0] for line in done.stderr.splitlines()]
    assert told == ["--seed", "samples of client 'client 1'", "drop"]


def test_options_that_are_wrong_together_only_are_told_once(tmp_path):
    done = in_process.command("run", "london", "--calibration", "tight", cwd=tmp_path)
    assert done.stderr.startswith("Error: calibration is 'tight' with mixing 'spectral'")
    assert len(done.stderr.splitlines()) == 1


def test_all_choices_of_a_run_that_are_wrong_are_told_at_once():
    with pytest.raises(aw.InvalidInput) as refused:
        aw.run(aw.plan(PLAIN), drop=["nobody"], clock="sand", slot_seconds=0, ledgers=3)
    assert [one.field for one in refused.value.problems] == [
        "clock",
        "slot_seconds",
        "drop",
        "ledgers",
    ]
