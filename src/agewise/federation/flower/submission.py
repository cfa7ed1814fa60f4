"""A run that was handed to a SuperLink, followed by what its ServerApp publishes."""

from __future__ import annotations

import contextlib
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agewise.errors import InvalidInput
from agewise.federation.flower.commands import ask_flower, healthy
from agewise.federation.flower.deployment import Deployment
from agewise.federation.flower.publication import Publication, Published, folder_in
from agewise.federation.flower.units import PROFILE
from agewise.federation.happened import RunIncomplete, Step
from agewise.federation.result import Watcher

POLL = 0.5
ASK = 5.0
"""Seconds between two questions to Flower about how the run stands: each starts a process."""
QUIET = 15.0
"""Seconds without a step after which Flower is asked at all: a run that goes on says so itself."""
LAST_LINES = 15.0
"""Seconds for which the log of a run that has ended is still read."""
OUTAGE = 120.0
"""Seconds for which a SuperLink may be away while a run is followed."""


def submit(deployment: Deployment, app: Path) -> str:
    """Hand an app to a SuperLink; return Flower's number of the run."""
    answer = ask_flower(deployment, "run", str(app), PROFILE)
    if not answer.get("success"):
        raise RunIncomplete(f"Flower did not take the run: {answer.get('error-message')}")
    return str(answer["run-id"])


def run_app(deployment: Deployment, app: Path, run_config: str = "") -> None:
    """Run an app of one's own on a deployment, its log on stdout; raise if it does not complete."""
    if not (app / "pyproject.toml").is_file():
        raise InvalidInput("app", str(app), "the folder of a Flower app, with its pyproject.toml")
    if not healthy(deployment):
        raise RunIncomplete(
            f"no SuperLink answers at {deployment.address}. Start it: agewise deploy up "
            f"{deployment.folder}"
        )
    chosen = ["--run-config", run_config] if run_config else []
    answer = ask_flower(deployment, "run", str(app), PROFILE, *chosen)
    if not answer.get("success"):
        why = str(answer.get("error-message")).strip().splitlines()[-1]
        raise InvalidInput(
            "app",
            f"{app} ({why})",
            "one that Flower takes",
            "Every key of the run configuration must be in its pyproject.toml.",
        )
    number = str(answer["run-id"])
    log = subprocess.Popen(["flwr", "log", number, PROFILE, "--stream"], env=deployment.environment)
    try:
        status = Submission(deployment, number, "", lambda *_: None, quiet=ASK).ended()
        with contextlib.suppress(subprocess.TimeoutExpired):
            log.wait(LAST_LINES)
    finally:
        log.terminate()
        log.wait()
    if "completed" not in status:
        raise RunIncomplete(
            f"Flower ended run {number} of {app} as {status!r}: see the log above, and the logs of "
            f"the nodes in {deployment.folder / 'logs'}."
        )


class Submission:
    """A run that was handed to a SuperLink; `quiet` after so many seconds without a step."""

    def __init__(
        self, deployment: Deployment, number: str, run: str, watch: Watcher, quiet: float = QUIET
    ) -> None:
        self.deployment, self.number, self.watch = deployment, number, watch
        self.quiet = quiet
        self.publication = Publication(folder_in(deployment.folder / "flwr", number), run)
        self._last = (0, 0)

    def has_result(self) -> bool:
        """Whether the result has been published, where we can see it."""
        return self.publication.result() is not None

    def has_failed(self) -> bool:
        """Whether Flower has given the run up, or does not know it."""
        status = self._status()
        return not status or (status.startswith("finished") and "completed" not in status)

    def wait(self) -> Published:
        """Tell the steps as they happen; return the result once it is there."""
        status = self.ended()
        self._tell_steps()
        result = self.publication.result()
        if result is None:
            self._tell("flower", f"run {self.number} {status}")
            raise RunIncomplete(self._where_it_is(status))
        return result

    def ended(self) -> str:
        """Tell the steps until the run has ended; return Flower's word for how, if it was asked."""
        asking = ThreadPoolExecutor(1)  # an answer takes seconds, and steps are told meanwhile
        try:
            return self._watch_until_ended(asking)
        except KeyboardInterrupt:
            ask_flower(self.deployment, "stop", self.number, PROFILE)
            raise
        finally:
            asking.shutdown(wait=False, cancel_futures=True)

    def _watch_until_ended(self, asking: ThreadPoolExecutor) -> str:
        """Tell steps until there is a result, or Flower's word that the run is finished."""
        question, look_at, away = None, time.time() + self.quiet, 0.0
        while self.publication.result() is None:
            if self._tell_steps():
                look_at, away = time.time() + self.quiet, 0.0
            if question is None and time.time() >= look_at:
                question = asking.submit(self._status)
            elif question is not None and question.done():
                status, question = question.result(), None
                if status.startswith("finished"):
                    return status
                away, look_at = self._still_away(status, away), time.time() + ASK
            time.sleep(POLL)
        return ""

    def _still_away(self, status: str, away: float) -> float:
        """Since when the SuperLink does not answer; 0 if it does. Raise after too long."""
        if status:
            return 0.0
        if not away:
            self._tell("outage", "the SuperLink does not answer")
            return time.time()
        if time.time() - away > OUTAGE:
            raise RunIncomplete(
                f"no SuperLink at {self.deployment.address} for {OUTAGE:.0f} s. What was "
                "released is in the ledgers; resume the run when it is back."
            )
        return away

    def _where_it_is(self, status: str) -> str:
        """What to do about a run that has ended without a result that we can see."""
        ended = f"Flower ended run {self.number} as {status!r}"
        if self.deployment.nodes and "completed" not in status:
            logs = self.deployment.folder / "logs"
            return f"{ended} without a result. See {logs}; resume the run to go on with it."
        return (
            f"{ended}, and its result is not on this machine: it is where the ServerApp ran, in "
            f"the folder agewise/{self.number} of Flower's home (FLWR_HOME, or else ~/.flwr). Copy "
            f"that folder to {self.publication.folder}, then resume the run."
        )

    def _tell_steps(self) -> bool:
        """Tell the steps that were published since the last time; whether there were any."""
        told = False
        for step, closed, total in self.publication.steps():
            self._last, told = (closed, total), True
            self.watch(step, closed, total)
        return told

    def _tell(self, what: str, why: str) -> None:
        self.watch(Step(0, "", what, why), *self._last)

    def _status(self) -> str:
        """Flower's word for how the run stands; empty if the SuperLink does not answer."""
        answer = ask_flower(self.deployment, "ls", PROFILE, "--run-id", self.number)
        runs = answer.get("runs") or []
        return str(runs[0]["status"]) if runs else ""
