"""Kill a run at every named point of the protocol, resume it, and report what became of it.

Run as a script: `crash.py FOLDER SEED NOISE`; SEED "none" means private noise, and NOISE says who
adds it: client or server. A run is carried out in a
process of its own, which kills itself with SIGKILL just before or just after one of the steps
below, the first, second or third time that it comes there, and is then resumed until it ends.
Prints one JSON document: a list of cases.
"""

import contextlib
import itertools
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np

import agewise as aw
from agewise.privacy import Laplace
from agewise.testing import killed_at, releases

DRAWS = "server.draws"
STEPS = (
    "ledger created",
    "records trained on",
    "noise drawn",
    "event inserted",
    "release committed",
    "upload received",
    "journal written",
    "slot closed",
    "settings written",
    "document written",
)
ONE_DRAW = (
    "server's ledger created",
    "run opened",
    "journal confirmed",
    "server's noise drawn",
    "draw inserted",
    "draw committed",
    "upload received",
    "document written",
)
"""The steps where the server adds the noise."""
MOMENTS = ("before", "after")


def problem(noise):
    chains = [aw.birth_death(*rates, [20, 50, 100, 200]) for rates in ((0.1, 0.2), (0.4, 0.3))]
    clients = [aw.Client(f"client {i}", chains[i % 2], samples=50) for i in range(4)]
    return aw.Problem(clients, aggregate_at=6, epsilon=0.5, capacity=2, noise=noise)


def kill():
    """End this process at once, as nobody can help."""
    os.kill(os.getpid(), signal.SIGKILL)


def in_process(work):
    """Run `work` in a process of its own; return whether it was killed."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def recorded(folder):
    """What each ledger holds, as the bytes that were or will be sent."""
    held = releases(folder / "ledgers").items()
    return {name: [event.payload.decode() for event in events] for name, events in held}


def drawn(folder):
    """What the server's ledger holds of its draws: the published numbers of each."""
    if not (folder / DRAWS).exists():
        return []
    with aw.Ledger.read(folder / DRAWS) as ledger:
        events = [json.loads(event.payload) for event in ledger.events()]
    return [event["aggregate"] for event in events if "aggregate" in event]


def case(plan, folder, seed, **point):
    """One run, killed and resumed."""

    def begin():
        rng = None if seed is None else np.random.default_rng(seed)
        with killed_at(**point, end=kill) if point else contextlib.nullcontext():
            aw.run(plan, folder=folder, rng=rng)

    killed = in_process(begin)
    before, drawn_before = recorded(folder), drawn(folder)
    journal = folder / "journal.jsonl"
    heard = journal.read_text() if journal.exists() else ""
    if not (folder / "run.json").exists():  # it never began
        assert not any(before.values()), "something was released that no run knows of"
        assert not heard
        result = aw.run(
            plan, folder=folder, rng=None if seed is None else np.random.default_rng(seed)
        )
        model = result.model
    elif (folder / "record.json").exists():
        model = json.loads((folder / "record.json").read_text())["model"]
    else:
        model = aw.resume(folder).model
    return {
        **point,
        "killed": killed,
        "before": before,
        "after": recorded(folder),
        "drawn": [drawn_before, drawn(folder)],
        "heard": [json.loads(line)["payload"] for line in heard.splitlines() if "payload" in line],
        "model": model,
    }


def main(place, seed, noise):
    plan = aw.plan(problem(noise))
    Laplace().draw(np.zeros(1), sensitivity=1.0, scale=1.0)  # load OpenDP once, in the parent
    cases = [case(plan, place / "quiet", seed)]
    steps = itertools.product(STEPS, MOMENTS, (1, 2, 3))
    if noise == "server":  # each of its own happens once; uploads and documents several times
        steps = itertools.product(ONE_DRAW, MOMENTS, (1,))
        steps = [*steps, ("upload received", "after", 4), ("document written", "before", 3)]
    for step, moment, times in steps:
        folder = place / f"{step} {moment} {times}".replace(" ", "-")
        cases.append(case(plan, folder, seed, step=step, moment=moment, times=times))
    return cases


if __name__ == "__main__":
    where, given = Path(sys.argv[1]), sys.argv[2]
    where.mkdir(exist_ok=True)
    print(json.dumps(main(where, None if given == "none" else int(given), sys.argv[3])))
