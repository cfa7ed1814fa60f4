"""Tests under a budget of time: none is begun once it is spent, and those left out are named."""

import time

import pytest

SPENT = "the time of --budget is spent"


class Budget:
    """A plugin, for each process that runs tests and for the one where results arrive."""

    def __init__(self, seconds):
        self.seconds, self.until, self.left_out = seconds, time.monotonic() + seconds, []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        if time.monotonic() >= self.until:
            pytest.skip(SPENT)

    def pytest_runtest_logreport(self, report):
        if report.skipped and SPENT in str(report.longrepr):
            self.left_out.append(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter):
        if self.left_out:
            title = f"{len(self.left_out)} tests left out: {self.seconds:.0f} s were spent"
            terminalreporter.section(title)
            terminalreporter.write_line("\n".join(self.left_out))
