"""Processes of a federation that are started, watched, and ended."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import agewise as aw
from agewise.federation.flower import supervisor
from deployments import Deployment, bring_down, bring_up, init_deployment, read_state

LONDON = aw.scenarios.london()


@pytest.fixture
def start(tmp_path):
    """Starts supervisors of a deployment whose programs only sleep, each with a child."""
    programs = tmp_path / "bin"
    programs.mkdir()
    sleep = f"{sys.executable} -c 'import time; time.sleep(6000)'"
    for name in ("flower-superlink", "flower-superexec", "flower-supernode"):
        (programs / name).write_text(f"#!/bin/sh\n{sleep} flwr-child &\nexec {sleep} $0 $@\n")
        (programs / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    code = (
        "import sys; from agewise.federation.flower import supervisor as s;"
        "s.healthy = lambda d: True;"
        f"s.Deployment.environment = property(lambda d: {environment!r});"
        "s.Supervisor(s.Deployment.load(sys.argv[1]), *map(int, sys.argv[2:])).run()"
    )
    owner = (
        "import os, subprocess, sys;"
        f"subprocess.run([sys.executable, '-c', {code!r}, sys.argv[1], str(os.getpid())])"
    )
    started = []

    def begin(made, owned=False):
        program = owner if owned else code
        started.append(subprocess.Popen([sys.executable, "-c", program, str(made.folder)]))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()
    if (tmp_path / "fed" / "deployment.json").exists():
        bring_down(Deployment.load(tmp_path / "fed"))


def wait(condition):
    until = time.time() + 600
    while time.time() < until and not condition():
        time.sleep(0.05)
    assert condition()


def groups(made):
    return [one["pid"] for one in read_state(made)["processes"].values()]


def running(group):
    """The processes of a group that have not ended."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, number = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:3]
            if int(number) == group and state != "Z":
                found.append(int(entry.name))
    return found


def is_up(made):
    """Whether all five programs run, each with its child."""
    state = read_state(made)
    return (
        state is not None
        and len(state["processes"]) == 5
        and all(len(running(one["pid"])) == 2 for one in state["processes"].values())
    )


def test_one_supervisor_a_folder_and_no_orphans(tmp_path, start):
    """Two starts, a killed supervisor, a killed node, and a stop."""
    made = init_deployment(tmp_path / "fed", LONDON, tls=False)
    first = start(made)
    wait(lambda: is_up(made))
    second = start(made)
    assert second.wait() == 1  # the folder is taken
    children = groups(made)
    assert all(len(running(group)) == 2 for group in children)
    first.kill()
    first.wait()
    os.kill(children[-1], signal.SIGKILL)  # its child is all that is left of it
    wait(lambda: len(running(children[-1])) == 1)
    assert read_state(made) is None
    assert bring_down(made)  # there is no supervisor, but what it left is ended
    assert not any(running(group) for group in children)
    assert not bring_down(made)


def test_a_federation_of_one_process_ends_with_it(tmp_path, start):
    made = init_deployment(tmp_path / "fed", LONDON, tls=False)
    owner = start(made, owned=True)
    wait(lambda: is_up(made))
    children = groups(made)
    owner.kill()
    wait(lambda: read_state(made) is None)
    wait(lambda: not any(running(group) for group in children))


@pytest.mark.parametrize(
    "spelling",
    [
        "elsewhere/../fed",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("fed", "./fed/")),
        "link",
    ],
)
def test_a_deployment_is_found_however_its_folder_is_spelled(
    tmp_path, start, monkeypatch, spelling
):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("fed")
    monkeypatch.chdir(tmp_path)
    made = init_deployment("elsewhere/../fed", LONDON, tls=False)
    process = start(made)
    wait(lambda: is_up(made))
    children, found = groups(made), Deployment.load(spelling)
    assert read_state(found)["supervisor"] == process.pid
    with pytest.raises(aw.InvalidInput, match="is up"):
        bring_up(found)
    threading.Thread(target=process.wait).start()  # it is this process's to see off
    assert bring_down(found)
    assert not any(running(group) for group in children)
    assert not (tmp_path / "fed" / "state.json").exists()


def test_what_does_not_end_is_not_forgotten(tmp_path, start, monkeypatch):
    made = init_deployment(tmp_path / "fed", LONDON, tls=False)
    first = start(made)
    wait(lambda: is_up(made))
    children = groups(made)
    first.kill()
    first.wait()
    with monkeypatch.context() as patch:
        patch.setattr(supervisor, "_end_group", lambda *_: None)  # as if they were another user's
        patch.setattr(supervisor, "PATIENCE", 0.2)
        with pytest.raises(aw.RunIncomplete, match=f"{children[0]}.* do not end"):
            bring_down(made)
    assert all(running(group) for group in children)
    assert bring_down(made)
    assert not any(running(group) for group in children)


@pytest.mark.parametrize("text", ["{", '{"supervisor": 1, "ready": true, "processes": {}}'])
def test_a_state_that_cannot_be_read_is_not_forgotten(tmp_path, text):
    made = init_deployment(tmp_path / "fed", LONDON, tls=False)
    (made.folder / "state.json").write_text(text)
    for action in (bring_up, bring_down):
        with pytest.raises(aw.InvalidInput, match="End the processes that it names"):
            action(made)
    assert (made.folder / "state.json").read_text() == text


def test_another_process_of_the_same_number_is_left_alone(tmp_path):
    made = init_deployment(tmp_path / "fed", LONDON, tls=False)
    other = subprocess.Popen(["sleep", "6000"], start_new_session=True)
    try:
        one = {"pid": other.pid, "born": 1.0, "running": True, "restarts": 0, "started": 1.0}
        state = {"supervisor": other.pid, "born": 1.0, "ready": True, "processes": {"x": one}}
        (made.folder / "state.json").write_text(json.dumps(state))
        assert not bring_down(made)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
