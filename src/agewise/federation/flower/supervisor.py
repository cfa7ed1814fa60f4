"""Keeps the processes of a deployment running: SuperLink, SuperExec and a SuperNode a client.

`python -m agewise.federation.flower.supervisor FOLDER` runs until it is told to stop. A process
that ends is started again after a pause that grows, since a node that crashed is refused until its
last heartbeat has expired.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from agewise.errors import InvalidInput
from agewise.federation.flower.deployment import PROFILE, REGISTERED, Deployment
from agewise.federation.server import RunIncomplete

PAUSES = (1.0, 2.0, 5.0, 10.0, 20.0)
"""Seconds before a process is started again, the last one for good."""
STEADY = 120.0
"""Seconds after which a process counts as running well."""
PATIENCE = 10.0
_supervisors: dict[int, subprocess.Popen[bytes]] = {}
"""Those that this process has started."""


@dataclass
class _Child:
    name: str
    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    restarts: int = 0
    tries: int = 0
    started: float = 0.0
    again: float = field(default=0.0)


class Supervisor:
    """Starts the processes of a deployment and starts them again when they end."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.logs = deployment.folder / "logs"
        self.logs.mkdir(exist_ok=True)
        self.stopping = False
        self.ready = False
        self.children = [
            _Child("superlink", deployment.superlink_command()),
            _Child("superexec", deployment.superexec_command()),
        ]

    def run(self) -> None:
        """Work until SIGTERM or SIGINT; only one supervisor works on a folder."""
        lock = (self.deployment.folder / "supervisor.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            sys.exit("another supervisor works on this folder")
        end_orphans(self.deployment)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        try:
            self._start(self.children[0])
            while not self.stopping and not healthy(self.deployment):
                self._revive()
                time.sleep(0.3)
            if not self.stopping:
                self._register()
                self.children += [
                    _Child(node.name, self.deployment.node_command(node))
                    for node in self.deployment.nodes
                ]
                self.ready = True
            while not self.stopping:
                self._revive()
                time.sleep(0.5)
        finally:
            self._end_all()
            state_file(self.deployment).unlink(missing_ok=True)

    def _stop(self, *_: object) -> None:
        self.stopping = True

    def _start(self, child: _Child) -> None:
        with self._log(child.name) as log:
            child.process = subprocess.Popen(
                child.command, env=self.deployment.environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        child.started = time.time()
        self._write_state()

    def _revive(self) -> None:
        """Start what has not been started, and after a pause what has ended."""
        for child in self.children:
            if child.process is None:
                self._start(child)
            elif child.process.poll() is not None:
                if child.again == 0.0:
                    if time.time() - child.started > STEADY:
                        child.tries = 0
                    pause = PAUSES[min(child.tries, len(PAUSES) - 1)]
                    child.tries += 1
                    child.again = time.time() + pause
                    _end_group(child.process.pid)  # what it had started goes with it
                    self._write_state()
                elif time.time() >= child.again:
                    child.again = 0.0
                    child.restarts += 1
                    self._start(child)

    def _register(self) -> None:
        """Tell the SuperLink the nodes' public keys, once."""
        if not self.deployment.tls:
            return
        done = self.deployment.folder / REGISTERED
        known: dict[str, Any] = json.loads(done.read_text()) if done.exists() else {}
        for node in self.deployment.nodes:
            tries = 0
            while node.name not in known and tries < 3 and not self.stopping:
                tries += 1
                number = self._register_one(self.deployment.folder / node.folder / "node.pub")
                if number is not None:
                    known[node.name] = number
                    done.write_text(json.dumps(known))

    def _register_one(self, key: Path) -> str | None:
        """Register a key; return the number of its node, None if that failed."""
        with self._log("register") as log:
            try:
                answer = subprocess.run(
                    ["flwr", "supernode", "register", str(key), PROFILE, "--format", "json"],
                    env=self.deployment.environment, stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=log, check=False, timeout=60,
                ).stdout  # fmt: skip
                log.write(answer)
                return str(json.loads(answer[answer.index(b"{") :])["node-id"])
            except (subprocess.TimeoutExpired, ValueError, KeyError):
                return None

    def _end_all(self) -> None:
        running = [c for c in reversed(self.children) if c.process and c.process.poll() is None]
        for child in running:
            _end_group(_pid(child), signal.SIGTERM)
        until = time.time() + PATIENCE
        for child in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                if child.process is not None:
                    child.process.wait(max(0.1, until - time.time()))
            _end_group(_pid(child))

    def _write_state(self) -> None:
        state = {
            "supervisor": os.getpid(),
            "ready": self.ready,
            "processes": {
                c.name: {
                    "pid": _pid(c),
                    "running": c.process is not None and c.process.poll() is None,
                    "restarts": c.restarts,
                    "started": c.started,
                }
                for c in self.children
            },
        }
        draft = state_file(self.deployment).with_suffix(".part")
        draft.write_text(json.dumps(state, indent=2), encoding="utf-8")
        draft.replace(state_file(self.deployment))

    def _log(self, name: str) -> IO[bytes]:
        safe = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)[:100]
        return (self.logs / f"{safe}.log").open("ab")


def _pid(child: _Child) -> int:
    return 0 if child.process is None else child.process.pid


def _end_group(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def state_file(deployment: Deployment) -> Path:
    """Where the supervisor says what it is doing."""
    return deployment.folder / "state.json"


def read_state(deployment: Deployment) -> dict[str, Any] | None:
    """What the supervisor last said; None if none is running."""
    try:
        state: dict[str, Any] = json.loads(state_file(deployment).read_text(encoding="utf-8"))
        if not _is_ours(state["supervisor"], __name__, deployment):
            return None
    except (OSError, ValueError, KeyError):
        return None
    return state


def _is_ours(pid: int, word: str, deployment: Deployment) -> bool:
    """Whether a process is there, and is the one that it is taken for: numbers are used again."""
    try:
        os.kill(pid, 0)
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except FileNotFoundError:  # no /proc here: the number has to do
        return True
    except OSError:
        return False
    text = b"\0".join(command).decode(errors="replace")
    return (word in text or word == "__main__") and str(deployment.folder) in text


def end_orphans(deployment: Deployment) -> None:
    """End processes that a supervisor which is no more has left behind."""
    try:
        state = json.loads(state_file(deployment).read_text(encoding="utf-8"))
        children = [one["pid"] for one in state["processes"].values()]
    except (OSError, ValueError, KeyError, TypeError):
        return
    for pid in children:
        if pid and _is_ours(pid, "flower-super", deployment):
            _end_group(pid)


def healthy(deployment: Deployment) -> bool:
    """Whether the SuperLink of a deployment answers."""
    authority = deployment.folder / "ca" / "ca.crt" if deployment.tls else None
    return answers(deployment.address, authority)


def answers(address: str, authority: Path | str | None) -> bool:
    """Whether there is a SuperLink at an address; by TLS if its CA is given."""
    scheme, context = "http", None
    try:
        if authority is not None:
            scheme, context = "https", ssl.create_default_context(cafile=str(authority))
        with urllib.request.urlopen(
            f"{scheme}://{address}/health", timeout=2, context=context
        ) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def bring_up(deployment: Deployment, wait: float = 60.0) -> dict[str, Any]:
    """Start a supervisor in the background; return when its processes have been started."""
    if read_state(deployment) is not None:
        raise InvalidInput(
            "deployment", f"{deployment.folder} is up", "one that is down",
            f"agewise deploy status {deployment.folder}",
        )  # fmt: skip
    end_orphans(deployment)
    state_file(deployment).unlink(missing_ok=True)
    (deployment.folder / "logs").mkdir(exist_ok=True)
    with (deployment.folder / "logs" / "supervisor.log").open("ab") as log:
        started = subprocess.Popen(
            [sys.executable, "-m", __name__, str(deployment.folder)], stdin=subprocess.DEVNULL,
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            env=deployment.environment,
        )  # fmt: skip
    _supervisors[started.pid] = started
    until = time.time() + wait + 2 * len(deployment.nodes)
    try:
        while time.time() < until and started.poll() is None:
            state = read_state(deployment)
            if state is not None and state["ready"] and len(state["processes"]) > 2:
                return state
            time.sleep(0.3)
    except BaseException:
        started.terminate()
        started.wait(2 * PATIENCE)
        raise
    if started.poll() is None:
        started.terminate()
        started.wait(2 * PATIENCE)
    raise RunIncomplete(
        f"the federation in {deployment.folder} did not come up; see "
        f"{deployment.folder / 'logs'}. Nothing was ordered."
    )


def bring_down(deployment: Deployment) -> bool:
    """Stop the supervisor and its processes; return whether there was one."""
    state = read_state(deployment)
    if state is None:
        end_orphans(deployment)
        state_file(deployment).unlink(missing_ok=True)
        return False
    pid = state["supervisor"]
    os.kill(pid, signal.SIGTERM)
    until = time.time() + 3 * PATIENCE
    ours = _supervisors.pop(pid, None)
    while time.time() < until and read_state(deployment) is not None:
        if ours is not None:
            ours.poll()
        time.sleep(0.1)
    if read_state(deployment) is not None:  # it does not listen
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        end_orphans(deployment)
        state_file(deployment).unlink(missing_ok=True)
    if ours is not None:
        ours.wait(PATIENCE)
    return True


if __name__ == "__main__":
    Supervisor(Deployment.load(sys.argv[1])).run()
