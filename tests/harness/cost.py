"""What tests cost: CPU seconds, which an idle and a busy machine agree on, unlike the clock.

A test's cost is what its process and all that it started used, from its set-up to its end. Started
processes are known by a word in their environment, so that those whose parents ended count too, but
for those that begin and end between two looks with nobody waiting for them.
After a run the dearest tests are listed. Each worker of pytest-xdist measures its own tests.
"""

import os
import subprocess
import time
from pathlib import Path

import psutil

DEAREST = 20
WORD = "AGEWISE_TEST_PROCESS"


class Started:
    """The CPU seconds of everything that this process started, children of children included."""

    def __init__(self):
        self.living, self.orphaned, self.maybe = {}, 0.0, False
        os.environ[WORD] = self.own = str(os.getpid())

    def seconds(self):
        running = self._running() if self.maybe else 0.0
        ended = psutil.Process().cpu_times()
        waited_for = ended.children_user + ended.children_system
        return running + waited_for + self.orphaned

    def _running(self):
        found = {}
        for process in psutil.process_iter():
            try:
                if process.pid != os.getpid() and process.environ().get(WORD) == self.own:
                    found[process] = sum(process.cpu_times()[:4]), process.ppid()
            except psutil.Error:
                continue
        families = {os.getpid(), *(process.pid for process in self.living)}
        for process, (seconds, parent) in self.living.items():
            if process not in found and parent not in families:
                self.orphaned += seconds  # nobody waited for it
        self.living, self.maybe = found, bool(found)
        return sum(seconds for seconds, _ in found.values())


def listed(rows):
    return "\n".join(f"{seconds:8.2f}  {name}" for seconds, name in rows)


class Costs:
    """A plugin: measures every test where it runs, and lists the dearest where results arrive."""

    def __init__(self, file=None):
        self.started, self.costs, self.file = Started(), {}, file
        original = subprocess.Popen.__init__

        def noted(process, *arguments, **options):
            self.started.maybe = True
            original(process, *arguments, **options)

        subprocess.Popen.__init__ = noted

    def now(self):
        return time.process_time() + self.started.seconds()

    def pytest_runtest_logstart(self, nodeid):
        self.before, self.spent = self.now(), 0.0

    def pytest_runtest_makereport(self, item, call):
        """Measured after each phase: what the teardown ends may never be waited for."""
        self.spent = max(self.spent, self.now() - self.before)
        if call.when == "teardown":
            item.user_properties.append(("CPU seconds", round(self.spent, 3)))

    def pytest_runtest_logreport(self, report):
        if report.when == "teardown":
            self.costs[report.nodeid] = dict(report.user_properties).get("CPU seconds", 0.0)

    def pytest_terminal_summary(self, terminalreporter):
        if not self.costs:
            return
        rows = [(s, name) for name, s in sorted(self.costs.items(), key=lambda one: -one[1])]
        terminalreporter.section(f"CPU seconds: {sum(self.costs.values()):.0f} in all; the dearest")
        terminalreporter.write_line(listed(rows[:DEAREST]))
        if self.file:
            Path(self.file).write_text(listed(rows) + "\n", encoding="utf-8")
