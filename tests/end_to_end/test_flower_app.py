"""Somebody's own app with scikit-learn on real SuperNodes, with TLS and keys on."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import agewise as aw

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower_sklearn"


def agewise(*arguments):
    return subprocess.run(
        [str(Path(sys.executable).parent / "agewise"), "deploy", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flower") / "fed"
    made = agewise("init", folder, EXAMPLE / "plants.toml")
    assert made.returncode == 0, made.stderr
    try:
        up = agewise("up", folder, "--wait", 600)
        assert up.returncode == 0, up.stderr
        yield folder
    finally:
        agewise("down", folder)


def releases(federation):
    found = []
    for ledger in sorted(federation.glob("nodes/*/releases.ledger")):
        with aw.Ledger.read(ledger) as opened:
            found.append([event.collect_at for event in opened.events()])
    return found


@pytest.mark.slow
def test_the_example_runs_and_wrong_configurations_end_with_their_exit_codes(federation):
    app = EXAMPLE / "aged"
    for arguments, code, word in (
        ((EXAMPLE,), 2, "the folder of a Flower app"),
        ((app, "--run-config", "no-such-key=1"), 2, "must be in its pyproject.toml"),
        ((app, "--run-config", "num-server-rounds=11"), 4, "finished:failed"),
    ):
        done = agewise("run", federation, *arguments)
        assert done.returncode == code, done.stderr
        assert word in done.stderr.replace("\n", " ")
    assert releases(federation) == []
    done = agewise("run", federation, app, "--run-config", "num-server-rounds=1")
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
    assert re.search(r"accuracy 0\.\d+, loss \d+\.\d+", done.stdout), done.stdout[-3000:]
    planned = aw.plan(aw.load_scenario(EXAMPLE / "plants.toml"))
    assert releases(federation) == [[one.collect_at] for one in planned.assignments]


def test_without_a_superlink_nothing_is_run(tmp_path):
    assert agewise("init", tmp_path / "fed", EXAMPLE / "plants.toml").returncode == 0
    done = agewise("run", tmp_path / "fed", EXAMPLE / "aged")
    assert done.returncode == 4
    assert "no SuperLink answers" in done.stderr
