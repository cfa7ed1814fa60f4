"""Whatever crashes: nothing is released twice, and nothing leaves that is not in the ledger."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("crash.py")


def disturbed(folder, kills, seed):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), str(folder), str(kills), str(seed)],
        capture_output=True, text=True, check=False, timeout=500,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("seed", [6, "none"], ids=["stand-in", "private"])
def test_guarantee_two_hundred_kills_release_nothing_twice(tmp_path, seed):
    log = disturbed(tmp_path / "killed", 200, seed)
    assert log["kills"] >= 200
    # The kills hit before and after the commit, or the test shows nothing.
    assert log["killed_before"] > 20
    assert log["killed_after"] > 20
    for name, heard in log["sent"].items():
        (recorded,) = log["recorded"][name]
        assert heard[-1] == recorded
        # A killed sender may stop in the middle; what it said until then is the same bytes.
        assert all(recorded.startswith(part) for part in heard)
    assert sum(len(heard) for heard in log["sent"].values()) > len(log["sent"])  # resent at times
    if seed != "none":
        assert log["model"] == disturbed(tmp_path / "quiet", 0, seed)["model"]
