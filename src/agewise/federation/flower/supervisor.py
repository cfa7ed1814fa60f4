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
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from agewise.checks import parse_json
from agewise.errors import InvalidInput
from agewise.federation.flower.commands import ask_flower, healthy
from agewise.federation.flower.deployment import REGISTERED, Deployment, busy_ports
from agewise.federation.flower.units import PROFILE
from agewise.federation.happened import RunIncomplete
from agewise.wording import listed

PAUSES = (1.0, 2.0, 5.0, 10.0, 20.0)
"""Seconds before a process is started again, the last one for good."""
STEADY = 120.0
"""Seconds after which a process counts as running well."""
PATIENCE = 10.0
"""Seconds in which a process that is told to stop must have done so."""
SAME = 2.0
"""Seconds by which two tellings of when a process began may differ."""
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
    born: float = 0.0
    again: float = field(default=0.0)


class Supervisor:
    """Starts the processes of a deployment and starts them again when they end."""

    def __init__(self, deployment: Deployment, owner: int | None = None) -> None:
        self.deployment, self.owner = deployment, owner
        (deployment.folder / "logs").mkdir(exist_ok=True)
        self.told = self.ready = False
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
            end_orphans(self.deployment)
            state_file(self.deployment).unlink(missing_ok=True)

    @property
    def stopping(self) -> bool:
        """Whether we were told to stop, or the process that we work for has ended."""
        return self.told or (self.owner is not None and os.getppid() != self.owner)

    def _stop(self, *_: object) -> None:
        self.told = True

    def _start(self, child: _Child) -> None:
        with self.deployment.log_of(child.name).open("ab") as log:
            child.process = subprocess.Popen(
                child.command,
                env=self.deployment.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        child.started, child.born = time.time(), _born(child.process.pid)
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
        known: dict[str, Any] = parse_json(done.read_text()) if done.exists() else {}
        for node in self.deployment.nodes:
            tries = 0
            while node.name not in known and tries < 3 and not self.stopping:
                tries += 1
                key = self.deployment.folder / node.folder / "node.pub"
                answer = ask_flower(self.deployment, "supernode", "register", str(key), PROFILE)
                if "node-id" in answer:
                    known[node.name] = str(answer["node-id"])
                    done.write_text(json.dumps(known))
                else:
                    why = answer.get("error-message")
                    sys.stderr.write(f"client {node.name!r} was not registered: {why}\n")

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
            "born": _born(os.getpid()),
            "ready": self.ready,
            "processes": {
                c.name: {
                    "pid": _pid(c),
                    "born": c.born,
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
    state = _stored(deployment)
    if state is None or not _is_running(state["supervisor"], state["born"]):
        return None
    return state


def _stored(deployment: Deployment) -> dict[str, Any] | None:
    """What a supervisor last said, whether it is still running or not."""
    try:
        state: dict[str, Any] = parse_json(state_file(deployment).read_text(encoding="utf-8"))
        numbers = [state["supervisor"], state["born"]]
        numbers += [one[key] for one in state["processes"].values() for key in ("pid", "born")]
        if not all(isinstance(number, int | float) for number in numbers):
            raise ValueError(numbers)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(
            "deployment",
            f"{state_file(deployment)} ({error!r})",
            "what this version of the supervisor writes",
            "End the processes that it names, then delete the file.",
        ) from None
    return state


def _born(pid: int) -> float:
    """When a process began, which tells it from a later one of its number; 0 if it has ended."""
    try:
        process = psutil.Process(pid)
        return 0.0 if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except (psutil.Error, ValueError):
        return 0.0


def _is_running(pid: int, born: float) -> bool:
    return pid > 0 and born > 0 and abs(_born(pid) - born) < SAME


def _left_of(pid: int, born: float) -> list[int]:
    """What still runs of a process that we started, and of what that has started in its group."""
    if not pid:
        return []
    group = [p for p in psutil.pids() if _group_of(p) == pid and _born(p)]
    if pid in group:
        return group if _is_running(pid, born) else []
    return [p for p in group if _born(p) >= born - SAME and _is_flowers(p)]


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _is_flowers(pid: int) -> bool:
    try:
        words = " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return False
    return "flower-super" in words or "flwr-" in words


def end_orphans(deployment: Deployment) -> int:
    """End what a supervisor which is no more has left behind; return how many those were.

    Raises if some do not end; they stay in the state, so that they can be tried again.
    """
    state = _stored(deployment)
    started = [] if state is None else [(c["pid"], c["born"]) for c in state["processes"].values()]
    left = [pid for one in started for pid in _left_of(*one)]
    count, until = len(left), time.time() + PATIENCE
    while left and time.time() < until:
        for group in {_group_of(pid) for pid in left} - {0}:
            _end_group(group)
        time.sleep(0.1)
        left = [pid for one in started for pid in _left_of(*one)]
    if left:
        raise RunIncomplete(
            f"processes {', '.join(map(str, left))} of {deployment.folder} do not end. End them as "
            f"their owner, then: agewise deploy down {deployment.folder}"
        )
    return count


def refuse_up(deployment: Deployment) -> None:
    """Raise if a deployment is up."""
    if read_state(deployment) is not None:
        raise InvalidInput(
            "deployment",
            f"{deployment.folder}, which is up",
            "one that is down",
            f"agewise deploy status {deployment.folder}",
        )


def bring_up(deployment: Deployment, wait: float = 60.0, *, stays: bool = True) -> dict[str, Any]:
    """Start a supervisor in the background; return when its processes have been started.

    Unless it `stays`, it ends with this process, however that ends.
    """
    refuse_up(deployment)
    end_orphans(deployment)
    state_file(deployment).unlink(missing_ok=True)
    busy = busy_ports(deployment)
    if busy:
        raise InvalidInput(
            "port",
            listed([f"{port} ({why})" for port, why in busy.items()], 3),
            "ports that nobody listens on",
            f"Take free ones with: agewise deploy up {deployment.folder} --port 0. "
            "Nothing was started.",
        )
    (deployment.folder / "logs").mkdir(exist_ok=True)
    owner = [] if stays else [str(os.getpid())]
    with deployment.log_of("supervisor").open("ab") as log:
        started = subprocess.Popen(
            [sys.executable, "-m", __name__, str(deployment.folder), *owner],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=deployment.environment,
        )
    _supervisors[started.pid] = started
    until = time.time() + wait + 5 * len(deployment.nodes)
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
    """Stop the supervisor and all that it started; return whether anything was running.

    Guarantees
        What was running is forgotten only once it is gone.
    """
    state = read_state(deployment)
    if state is not None:
        _end_supervisor(state["supervisor"], state["born"])
    orphans = end_orphans(deployment)
    state_file(deployment).unlink(missing_ok=True)
    return state is not None or orphans > 0


def _end_supervisor(pid: int, born: float) -> None:
    """Ask a supervisor to end, with its processes; end it if it does not listen."""
    ours = _supervisors.pop(pid, None)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        until = time.time() + 3 * PATIENCE
        while _is_running(pid, born) and time.time() < until:
            if ours is not None:
                ours.poll()
            time.sleep(0.1)
        if not _is_running(pid, born):
            break
    if ours is not None:
        ours.wait(PATIENCE)


if __name__ == "__main__":
    Supervisor(Deployment.load(sys.argv[1]), *map(int, sys.argv[2:])).run()
