"""Whatever crashes: nothing is released twice, and nothing leaves that is not in the ledger."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("crash.py")
NOISE = pytest.mark.parametrize(
    "seed", ["none", pytest.param(6, marks=pytest.mark.slow)], ids=["private", "stand-in"]
)
"""Private: a second release would have other bytes. Stand-in: the models are the same, too."""


def disturbed(folder, seed, noise="client"):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), str(folder), str(seed), noise],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@NOISE
def test_guarantee_a_kill_at_any_step_releases_nothing_twice(tmp_path, seed):
    quiet, *cases = disturbed(tmp_path / "runs", seed)
    assert not quiet["killed"]
    for case in cases:
        name = {k: case[k] for k in ("step", "moment", "times")}
        once = name["step"] == "settings written"
        assert case["killed"] == (not once or name["times"] == 1), name
        assert set(case["after"]) == set(quiet["after"]), name
        for client, (payload,) in case["after"].items():  # one release each
            # What was recorded when the run was killed is what was sent in the end.
            assert case["before"].get(client, []) in ([], [payload]), name
        sent = {payload for (payload,) in case["after"].values()}
        assert set(case["heard"]) <= sent, name
        if seed != "none":
            assert case["model"] == quiet["model"], name
    # The steps divide into those before and after something was recorded.
    recorded = [any(case["before"].values()) for case in cases]
    assert any(recorded)
    assert not all(recorded)


@NOISE
def test_guarantee_a_kill_at_any_step_leaves_one_draw_by_the_server(tmp_path, seed):
    quiet, *cases = disturbed(tmp_path / "runs", seed, "server")
    assert not quiet["killed"]
    for case in cases:
        name = {k: case[k] for k in ("step", "moment", "times")}
        assert case["killed"], name
        earlier, made = case["drawn"]
        assert made == [[case["model"]]], name  # one draw, and it is the model
        assert earlier in ([], made), name  # what was recorded when the run was killed
        for client, (payload,) in case["after"].items():
            assert case["before"].get(client, []) in ([], [payload]), name
        if seed != "none":
            assert case["model"] == quiet["model"], name
    recorded = {(c["step"], c["moment"]): bool(c["drawn"][0]) for c in cases}
    assert not recorded["server's noise drawn", "after"]  # not committed: nobody knows of it
    assert not recorded["draw inserted", "after"]
    assert recorded["draw committed", "after"]
    assert recorded["document written", "before"]  # nothing is published before that
