"""What measures and limits the tests does what it says."""

import subprocess
import sys

import psutil
import pytest

from harness.budget import Budget
from harness.cost import Costs, Started

BURN = "import time\nwhile time.process_time() < 0.3: pass\n"


@pytest.fixture
def started(monkeypatch):
    monkeypatch.setenv("AGEWISE_TEST_PROCESS", "")
    return Started()


def test_what_a_started_process_used_counts_once_it_was_waited_for(started):
    before = started.seconds()
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert started.seconds() - before > 0.25


def test_what_an_orphan_used_counts_while_it_runs_and_afterwards(started):
    before = started.seconds()
    code = f"{BURN}import os\nprint(os.getpid(), flush=True)\ninput()"
    parent = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
    with subprocess.Popen(
        [sys.executable, "-c", parent, code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.wait()
        orphan = psutil.Process(int(process.stdout.readline()))
        started.maybe = True
        assert started.seconds() - before > 0.25
        assert orphan in started.living
    orphan.wait()
    assert started.seconds() - before > 0.25
    assert orphan not in started.living


def test_the_dearest_come_first_and_all_are_written(capsys, tmp_path):
    class Report:
        when = "teardown"

        def __init__(self, name, seconds):
            self.nodeid, self.user_properties = name, [("CPU seconds", seconds)]

    class Terminal:
        section = write_line = staticmethod(print)

    costs = Costs.__new__(Costs)
    costs.costs, costs.file = {}, tmp_path / "costs"
    for number in range(30):
        costs.pytest_runtest_logreport(Report(f"test_{number}", float(number)))
    costs.pytest_terminal_summary(Terminal)
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading == "CPU seconds: 435 in all; the dearest"
    assert [row.split()[1] for row in rows] == [f"test_{29 - place}" for place in range(20)]
    assert costs.file.read_text().splitlines()[:20] == rows
    assert len(costs.file.read_text().splitlines()) == 30


def test_no_test_is_begun_once_the_budget_is_spent():
    Budget(3600).pytest_runtest_setup(None)
    with pytest.raises(pytest.skip.Exception, match="--budget is spent"):
        Budget(0).pytest_runtest_setup(None)
