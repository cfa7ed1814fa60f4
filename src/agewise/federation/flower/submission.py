"""A run that was handed to a SuperLink, followed from outside by its log."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import re
import subprocess
import threading
import time
import zlib
from pathlib import Path
from typing import Any

from agewise.federation.flower.commands import ask_flower
from agewise.federation.flower.deployment import Deployment
from agewise.federation.flower.supervisor import healthy
from agewise.federation.flower.units import PROFILE
from agewise.federation.result import Watcher
from agewise.federation.server import RunIncomplete, Step
from agewise.planning import Plan

LINE = re.compile(r"^\S*INFO\s*\S*:\s+agewise-(step|result) (\S.*)$")
"""A line of the ServerApp's log that is meant for us: nothing may stand before it."""
LARGEST_RESULT = 2**28
OUTAGE = 120.0
"""Seconds for which a SuperLink may be away while a run is followed."""


class Submission:
    """A run that was handed to a SuperLink."""

    def __init__(
        self, deployment: Deployment, app: Path, plan: Plan, watch: Watcher | None
    ) -> None:
        self.deployment, self.plan, self.watch = deployment, plan, watch
        answer = ask_flower(deployment, "run", str(app), PROFILE)
        if not answer.get("success"):
            raise RunIncomplete(f"Flower did not take the run: {answer.get('error-message')}")
        self.identity = str(answer["run-id"])
        self.told = 0
        self.result: dict[str, Any] | None = None

    def wait(self) -> dict[str, Any]:
        """Follow the log until the run has ended; return what it published."""
        away: float | None = None
        try:
            while True:
                self._read_log()
                status = self._status()
                if status.startswith("finished"):
                    if self.result is None:
                        self._read_log()
                    break
                if status:
                    away = None
                elif away is None:
                    away = time.time()
                    self._tell(Step(0, "", "outage", "the SuperLink does not answer"))
                elif time.time() - away > OUTAGE:
                    raise RunIncomplete(
                        f"no SuperLink at {self.deployment.address} for {OUTAGE:.0f} s. What was "
                        "released is in the ledgers; resume the run when it is back."
                    )
                time.sleep(1.0)
        except KeyboardInterrupt:
            ask_flower(self.deployment, "stop", self.identity, PROFILE)
            raise
        self._tell(Step(0, "", "flower", f"run {self.identity} {status}"))
        if self.result is not None and self.result.get("complete") and "completed" not in status:
            self.result = None
        if self.result is None:
            raise RunIncomplete(
                f"Flower ended run {self.identity} as {status!r} without a result. See "
                f"{self.deployment.folder / 'logs'}; resume the run to go on with it."
            )
        return self.result

    def _read_log(self) -> None:
        """Read the log as it grows, from its beginning; skip what was told before."""
        process = subprocess.Popen(
            ["flwr", "log", self.identity, PROFILE, "--stream"],
            env=self.deployment.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        done = threading.Event()
        keeper = threading.Thread(target=self._end_when_finished, args=(process, done))
        keeper.start()
        seen = 0
        try:
            for line in process.stdout or ():
                found = LINE.match(line)
                if found:
                    seen += 1
                    if seen > self.told:
                        self.told = seen
                        use = self._step if found[1] == "step" else self._found
                        use(found[2])
        finally:
            done.set()
            process.kill()
            process.wait()
            keeper.join()
            if process.stdout is not None:
                process.stdout.close()

    def _end_when_finished(self, process: subprocess.Popen[str], done: threading.Event) -> None:
        """End a log stream that outlives its run, or its SuperLink."""
        while not done.wait(5.0):
            if not healthy(self.deployment) or self._status().startswith("finished"):
                if not done.wait(3.0):
                    process.kill()
                return

    def _step(self, text: str) -> None:
        with contextlib.suppress(ValueError, TypeError):
            facts, closed, total = json.loads(text)
            if self.watch is not None:
                self.watch(Step(**facts), closed, total)

    def _found(self, text: str) -> None:
        with contextlib.suppress(ValueError, binascii.Error, zlib.error):
            packed = base64.b64decode(text, validate=True)
            document = json.loads(zlib.decompressobj().decompress(packed, LARGEST_RESULT))
            if isinstance(document, dict):
                self.result = document

    def _tell(self, step: Step) -> None:
        if self.watch is not None:
            last = self.plan.problem.aggregate_at
            self.watch(step, 0 if self.result is None else last, last)

    def _status(self) -> str:
        """Flower's word for how the run stands; empty if the SuperLink does not answer."""
        answer = ask_flower(self.deployment, "ls", PROFILE, "--run-id", self.identity)
        runs = answer.get("runs") or []
        return str(runs[0]["status"]) if runs else ""
