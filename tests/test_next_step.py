"""The command that a verdict leads to is one that does what the verdict says."""

import json
import re
import shlex

import pytest

import agewise as aw
from in_process import command

LEVEL = ("common_level", "--level", "0.001,0.98")


def step_of(done):
    return next(line for line in done.stdout.splitlines() if line.startswith("Next: "))


@pytest.mark.parametrize(
    "typed",
    [
        ("london", "--epsilon", "0.15"),
        ("london", "--noise", "server"),
        ("london", "--epsilon", "0.2", "--mixing", "any_prior", "--estimator", "propagated"),
        ("london", "--learner", "histogram", "--epsilon", "0.3"),
        LEVEL,
    ],
)
def test_the_next_command_is_about_the_problem_that_was_typed(typed, tmp_path):
    done = command("plan", *typed, cwd=tmp_path)
    assert done.stdout.startswith("Collect fresh data")
    first, second = step_of(done).removeprefix("Next: agewise ").split(" && agewise ")
    promised = json.loads(command("plan", *typed, "--json", cwd=tmp_path).stdout)
    said = json.loads(command(*shlex.split(first), "--json", cwd=tmp_path).stdout)
    assert said["gap"] == pytest.approx(promised["classical_fresh"], rel=1e-9)
    for choice in ("epsilon", "noise", "learner", "level"):
        assert said["scenario"].get(choice) == promised["scenario"].get(choice)
    assert command(*shlex.split(second), "--repetitions", 0, cwd=tmp_path).returncode == 0


def test_a_run_says_what_to_do_about_its_verdict(tmp_path):
    options = ("--repetitions", 0, "--out", tmp_path)
    said = " ".join(command("run", "london", "--epsilon", 0.15, *options).stdout.split())
    assert "verdict on the plan Collect fresh data" in said
    assert re.search("instead agewise plan london --epsilon 0.15 --estimator best --ages 0", said)
    idle = " ".join(command("run", "london", "--epsilon", 0.05, *options).stdout.split())
    assert "instead Publish 76.6667 Wh" in idle


def test_names_with_spaces_are_quoted(tmp_path):
    file = tmp_path / "my houses.toml"
    assert command("init", file).returncode == 0
    assert shlex.quote(str(file)) in step_of(command("plan", file, "--epsilon", 3))


def test_everything_that_is_wrong_with_a_run_is_told_at_once(tmp_path):
    (tmp_path / "file").write_text("x")
    done = command(
        "run",
        "london",
        "--epsilon",
        -1,
        "--out",
        tmp_path / "file",
        "--ledgers",
        "file/ledgers",
        "--slot-seconds",
        0,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    for field in ("epsilon", "--out", "ledgers", "slot_seconds"):
        assert field in done.stderr
    assert "folder that can be written to" in done.stderr


def test_remedies_for_ledgers_can_be_typed(tmp_path):
    path = tmp_path / "client 1.ledger"
    assert shlex.quote(str(path)) in aw.privacy.witness.replay_remedy(path)
    assert shlex.quote(str(path)) in aw.privacy.witness.forget_remedy(path)
