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


@pytest.mark.parametrize("mixing", ["exact", "own_law", "spectral"])
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
        assert done.stdout.count(": same") == 3


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


def test_the_stand_in_has_nothing_to_check(tmp_path):
    result = aw.run(
        aw.plan(aw.scenarios.london()), rng=np.random.default_rng(1), folder=tmp_path / "run"
    )
    assert all(row.total_aged_epsilon is None for row in result.statement.clients)
