"""A run's statement against its exported ledgers, by a script that does not use Agewise."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import agewise as aw

SCRIPT = Path(__file__).parents[2] / "examples" / "check_statement.py"
AGEWISE = str(Path(sys.executable).with_name("agewise"))


def checked(run, ledgers, exported):
    exported.mkdir()
    for path in ledgers.glob("*.ledger"):
        done = subprocess.run([AGEWISE, "ledger", "export", path], capture_output=True, check=True)
        (exported / f"{path.stem}.json").write_bytes(done.stdout)
    return subprocess.run(
        [sys.executable, SCRIPT, run, exported], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("mixing", ["exact", "own_law", "spectral", "any_prior"])
def test_the_statement_is_what_the_ledgers_add_up_to(tmp_path, mixing):
    plan = aw.plan(aw.scenarios.london().replace(mixing=mixing))
    ledgers = tmp_path / "ledgers"
    policy = aw.Policy(max_aged_epsilon=2.0)
    for run, starts_at in (("first", 0), ("second", 4), ("third", 40)):
        aw.run(
            plan, folder=tmp_path / run, ledgers=ledgers, starts_at=starts_at, policy=policy
        )  # fmt: skip
        done = checked(tmp_path / run, ledgers, tmp_path / f"exported {run}")
        assert done.returncode == 0, done.stdout
        assert done.stdout.count(": same") == 4  # three clients and the model
    first = checked(tmp_path / "first", ledgers, tmp_path / "exported again")
    assert first.returncode == 0, "an earlier run is judged by what its ledgers held then"


def test_the_script_notices_a_statement_that_is_too_small(tmp_path):
    plan = aw.plan(aw.scenarios.london())
    aw.run(plan, folder=tmp_path / "run")
    record = tmp_path / "run" / "record.json"
    text = record.read_text()
    row = text[text.index('"total_aged_epsilon"') :].split(",")[0]
    value = float(row.split(":")[1])
    record.write_text(text.replace(row, f'"total_aged_epsilon": {value * 0.99}', 1))
    done = checked(tmp_path / "run", tmp_path / "run" / "ledgers", tmp_path / "exported")
    assert done.returncode == 1
    assert "DIFFERENT" in done.stdout


@pytest.mark.parametrize(
    ("scenario", "change", "rng", "words"),
    [
        ("london", {}, np.random.default_rng(1), "stand-in"),
        ("london", {"mixing": "exact", "calibration": "tight"}, None, "calibration tight"),
        ("day_profile", {}, None, "kind periodic"),
    ],
)
def test_the_script_says_what_it_does_not_cover(tmp_path, scenario, change, rng, words):
    plan = aw.plan(aw.load_scenario(scenario).replace(**change))
    aw.run(plan, rng=rng, folder=tmp_path / "run")
    done = checked(tmp_path / "run", tmp_path / "run" / "ledgers", tmp_path / "exported")
    assert done.returncode == 2, done.stderr
    assert words in done.stdout
