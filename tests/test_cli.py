import json
import subprocess
import sys
from pathlib import Path

import pytest

import agewise as aw

AGEWISE = [str(Path(sys.executable).with_name("agewise"))]


def run(*arguments, cwd=None):
    return subprocess.run(
        [*AGEWISE, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, check=False
    )


def test_ages_as_json():
    done = run("ages", "--json", "--epsilon", 0.3, "--mixing", "exact")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) == 30
    last = next(r for r in rows if r["client"] == "client 3" and r["age"] == 4)
    chain = aw.scenarios.london().clients[2].process
    assert last["delta"] == pytest.approx(aw.delta(chain, 4))
    assert last["noise_scale"] == pytest.approx(1.8 / aw.classical_epsilon(0.3, last["delta"]))


def test_ages_as_a_table_and_figures(tmp_path):
    done = run("ages", "--out", tmp_path / "new" / "folder")
    assert done.returncode == 0, done.stderr
    assert "classical ε" in done.stdout
    assert {p.name for p in (tmp_path / "new" / "folder").iterdir()} == {
        "ages.png", "ages.svg", "ages.csv"
    }  # fmt: skip
    assert (tmp_path / "new" / "folder" / "ages.csv").read_text().count("\n") == 31


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ages", "--epsilon", "0"], "epsilon is 0.0; allowed: a finite number above 0"),
        (["ages", "--epsilon", "nan"], "epsilon is nan"),
        (["ages", "--epsilon", "much"], "not a valid float"),
        (["ages", "--mixing", "typo"], "mixing is 'typo'; allowed: one of exact"),
        (["ages", "nowhere"], "nowhere"),
        (["ages", "--out", "/proc/none"], "--out is /proc/none"),
        (["typo"], "No such command"),
    ],
)
def test_bad_input_ends_in_one_message_and_code_2(arguments, words):
    done = run(*arguments)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_help_and_version():
    assert aw.__version__ in run("--version").stdout
    assert "Exit codes" in run("--help").stdout
    assert "Example" in run("ages", "--help").stdout
