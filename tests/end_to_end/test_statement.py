"""A run's documents against its exported ledgers, by a script that does not use Agewise."""

import contextlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import agewise as aw
import in_process
from agewise.testing import damaged

SCRIPT = Path(__file__).parents[2] / "examples" / "check_statement.py"


@pytest.fixture(scope="module")
def script():
    found = importlib.util.spec_from_file_location("check_statement", SCRIPT)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def exported(ledgers, folder):
    folder.mkdir()
    for path in ledgers.glob("*.ledger"):
        with aw.Ledger.read(path) as ledger:
            rows = [{**e.facts(), "payload": e.payload.hex()} for e in ledger.events()]
        (folder / f"{path.stem}.json").write_text(json.dumps(rows))
    draws = ledgers.parent / "server.draws"
    if draws.exists():
        with aw.Ledger.read(draws) as ledger:
            rows = [{**e.facts(), "payload": e.payload.hex()} for e in ledger.events()]
        (folder / "server.draws.json").write_text(json.dumps(rows))
    return folder


def finished(folder, scenario="london", change=None, **choices):
    with contextlib.suppress(aw.RunIncomplete):
        aw.run(
            aw.plan(aw.load_scenario(scenario).replace(**change or {})), folder=folder, **choices
        )
    return folder


def test_the_script_needs_nothing_but_numpy(tmp_path):
    run = finished(tmp_path / "run")
    (tmp_path / "exported").mkdir()
    for path in (run / "ledgers").glob("*.ledger"):
        text = in_process.command("ledger", "export", path).stdout
        (tmp_path / "exported" / f"{path.stem}.json").write_text(text, encoding="utf-8")
    blocked = "import sys; sys.modules['agewise'] = None; sys.argv = sys.argv[1:]; "
    blocked += "import runpy; runpy.run_path(sys.argv[0], run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", blocked, SCRIPT, run, tmp_path / "exported"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all the same" in done.stdout


@pytest.mark.parametrize("mixing", ["exact", "own_law", "spectral", "any_prior"])
def test_the_statement_is_what_the_ledgers_add_up_to(tmp_path, script, mixing):
    ledgers, policy = tmp_path / "ledgers", aw.Policy(max_aged_epsilon=9.0)
    for run, starts_at in (("first", 0), ("second", 4), ("third", 40), ("between", 20)):
        finished(
            tmp_path / run,
            change={"mixing": mixing},
            ledgers=ledgers,
            starts_at=starts_at,
            policy=policy,
        )
        assert script.main(tmp_path / run, exported(ledgers, tmp_path / f"exported {run}")) == 0
    # An earlier run is judged by what its ledgers held then.
    assert script.main(tmp_path / "first", tmp_path / "exported between") == 0


CASES = {
    "complete": {},
    "tight": {"change": {"mixing": "exact", "calibration": "tight"}},
    "day profile": {"scenario": "day_profile"},
    "measured": {"scenario": "london_fitted"},
    "failed": {"drop": ["client 2"]},
    "renormalised": {"drop": ["client 2"], "on_missing": "renormalise"},
    "best": {"change": {"mixing": "exact", "estimator": "best"}},
    "level, one missing": {
        "change": {
            "mixing": "exact",
            "estimator": "best",
            "level": [aw.knowledge.Level(20.0, 0.98), aw.knowledge.Level([3.0, -2.0, 1.0], 0.5)],
        },
        "drop": ["client 2"],
        "on_missing": "renormalise",
    },
    "stand-in": {"rng": np.random.default_rng(3)},
    "one draw": {"change": {"mixing": "exact", "estimator": "propagated", "noise": "server"}},
    "one draw, best, one missing": {
        "change": {"mixing": "exact", "estimator": "best", "noise": "server"},
        "drop": ["client 2"],
        "on_missing": "renormalise",
    },
    "one draw, failed": {"change": {"noise": "server"}, "drop": ["client 2"]},
}


ODD = {
    "plain with a level": {"estimator": "plain", "mixing": "exact", "level": aw.Level(20.0, 0.98)},
    "hardly any noise": {"estimator": "best", "mixing": "exact", "epsilon": 1e6},
    "no noise": {
        "estimator": "best",
        "mixing": "own_law",
        "calibration": "sharp",
        "level": aw.Level(20.0, 0.98),
        "clients": [
            aw.Client("known", aw.birth_death(0.1, 0.2, [20, 50, 90]), law=[1, 0, 0]),
            aw.Client("unknown", aw.birth_death(0.1, 0.2, [20, 50, 90])),
        ],
    },
}


@pytest.mark.parametrize("case", ODD)
def test_the_script_agrees_in_odd_cases(tmp_path, script, case, capsys):
    run = finished(tmp_path / "run", change=ODD[case])
    ledgers = exported(run / "ledgers", tmp_path / "exported")
    assert script.main(run, ledgers) == 0, capsys.readouterr().out


@pytest.mark.parametrize("most", [20, pytest.param(10**9, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES)
def test_the_script_notices_every_single_change(tmp_path, script, case, most, capsys):
    run = finished(tmp_path / "run", **CASES[case])
    ledgers = exported(run / "ledgers", tmp_path / "exported")
    assert script.main(run, ledgers) == 0, capsys.readouterr().out
    unnoticed = []
    for name in ("record.json", "plan.json"):
        path = run / name
        text = path.read_text()
        changes = list(damaged(json.loads(text)))
        for where, other in changes[:: -(-len(changes) // most)]:  # all, or every so many
            path.write_text(json.dumps(other))
            try:
                noticed = script.main(run, ledgers) > 0
            except (LookupError, TypeError, ValueError, AttributeError, StopIteration):
                noticed = True  # a change that leaves no sense at all
            if not noticed:
                unnoticed.append((name, *where))
        path.write_text(text)
    path = run / "statement.md"
    lines = path.read_text().splitlines()
    for index in range(0, len(lines), -(-len(lines) // most)):
        line = lines[index]
        path.write_text("\n".join([*lines[:index], line + " ", *lines[index + 1 :], ""]))
        if script.main(run, ledgers) == 0:
            unnoticed.append(("statement.md", index))
    assert not unnoticed


def test_the_script_says_what_it_does_not_cover(tmp_path, script, capsys):
    run = finished(tmp_path / "run", drop=["client 2"], on_missing="replan")
    assert script.main(run, exported(run / "ledgers", tmp_path / "exported")) == 2
    assert "plans made anew" in capsys.readouterr().out


def test_the_script_misses_the_servers_ledger_and_finds_a_broken_promise(tmp_path, script, capsys):
    run = finished(tmp_path / "run", change={"noise": "server"})
    ledgers = exported(run / "ledgers", tmp_path / "exported")
    path = ledgers / "server.draws.json"
    rows = json.loads(path.read_text())
    record = json.loads(bytes.fromhex(rows[1]["payload"]))
    less = record | {"drawn_scale": record["drawn_scale"] / 2}
    path.write_text(json.dumps([rows[0], rows[1] | {"payload": json.dumps(less).encode().hex()}]))
    assert script.main(run, ledgers) == 1
    assert "promise to client 1 kept: stated False" in capsys.readouterr().out
    path.unlink()
    assert script.main(run, ledgers) == 1
    assert "no draw of this run" in capsys.readouterr().out
