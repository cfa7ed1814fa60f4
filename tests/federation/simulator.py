"""Plays seeds: runs carried out by the real engine, server, clients, ledgers and folders.

At every durable step, before or after it, a process may crash or its disk be full. A crash is an
exception that drops everything in memory; the run is then resumed from what is on disk. When the
seed's faults are used up, each run must come to its end.

The same seed gives the same trace, except for the noise, on which nothing depends.
"""

import errno
import itertools
import json
import os
import re
import shutil
import sqlite3
import traceback
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from faults import Crash, FaultyTransport, World
from observer import Observer, Violation

import agewise as aw
from agewise import AgewiseError, Plan, planning
from agewise.federation import local, local_transport
from agewise.federation import server as server_module
from agewise.federation.journal import RunFolder
from agewise.federation.one_draw import OneDraw
from agewise.federation.server import Server
from agewise.privacy import ledger_file as ledgers

STATEMENTS = {"BEGIN": "begin", "INSERT INTO events": "insert", "COMMIT": "commit"}
"""The statements at which a ledger's writing can fail, and what a trace calls them."""
STEPS = {
    "receive": (Server, "receive"),
    "close": (Server, "close"),
    "journal": (RunFolder, "keep"),
    "settings": (RunFolder, "write_settings"),
    "document": (RunFolder, "write"),
    "sync": (RunFolder, "sync"),
    "draw": (OneDraw, "_noised"),
}
"""The steps of the server before and after which it can crash."""
MOST_SITTINGS = 60


def problems():
    """Small federations, whose weights are in proportion to their records."""
    rates = [(0.1, 0.2), (0.4, 0.3), (0.2, 0.1), (0.3, 0.3)]
    small = ((2, 3, None), (3, 4, 1), (4, 5, 2))
    for noise, (count, slots, capacity) in itertools.product(("client", "server"), small):
        clients = [
            aw.Client(f"client {i}", aw.birth_death(*rates[i], [20, 50, 100]), samples=10 + 5 * i)
            for i in range(count)
        ]
        estimator = "plain" if count == 4 else "best"
        yield aw.Problem(
            clients,
            slots,
            0.5,
            estimator=estimator,
            calibration="formula",
            capacity=capacity,
            noise=noise,
        )


class Simulator:
    """Plays seeds. While this context lasts, the engine has a world's clock, network and disk."""

    def __init__(self, place):
        self.place = Path(place)
        self.plans = [aw.plan(problem) for problem in problems()]
        self.world = self.observer = None
        self.replanned, self.traces = {}, {}
        self.opened = []
        """Connections to ledgers, which end with the process that opened them."""
        self.synced = {}
        """How much of each journal the disk has confirmed."""

    def __enter__(self):
        self.patch = pytest.MonkeyPatch()
        simulator = self

        class Database(sqlite3.Connection):
            def execute(self, statement, *more):
                step = next((s for s in STATEMENTS if statement.startswith(s)), None)
                return simulator.written(
                    step and STATEMENTS[step], super().execute, statement, *more
                )

        def connect(where):
            database = sqlite3.connect(
                where, isolation_level=None, uri=where.startswith("file:"), factory=Database
            )
            sqlite3.Connection.execute(database, "PRAGMA synchronous=OFF")
            self.opened.append(database)
            return database

        self.patch.setattr(ledgers, "connect", connect)
        self.patch.setattr(
            local,
            "LocalTransport",
            lambda answer, *_: FaultyTransport(self.world, self.observer, self.in_process(answer)),
        )
        self.patch.setattr(Plan, "from_json", cache(Plan.from_json))
        self.patch.setattr(server_module, "replan", self.replan)
        for step, (owner, name) in STEPS.items():
            self.patch.setattr(owner, name, self.hooked(step, getattr(owner, name)))
        return self

    def __exit__(self, *_):
        self.patch.undo()

    def replan(self, plan, slot, collected, lost):
        """Another plan, made once for the same question."""
        question = (plan.digest, slot, *sorted(collected.items()), *lost)
        if question not in self.replanned:
            self.replanned[question] = planning.replan(plan, slot, collected, lost)
        return self.replanned[question]

    def in_process(self, answer):
        """Let a client work in a process of its own, which leaves nothing behind but files."""

        def run(order):
            self.world.client = order.client
            try:
                return answer(order)
            finally:
                self.world.client = None
                self.end_process()

        return run

    def end_process(self):
        for database in self.opened:
            database.close()
        self.opened.clear()

    def written(self, step, execute, *statement):
        """A statement of a client's ledger or the server's, which may fail at the named ones."""
        world = self.world
        if step is None or world is None or (world.client is None and step == "begin"):
            return execute(*statement)
        world.point(step, "before")
        if step != "begin" and world.strikes("full", world.client or "server", step):
            raise sqlite3.OperationalError("database or disk is full")
        result = execute(*statement)
        world.point(step, "after")
        return result

    def hooked(self, step, plain):
        """A step of the server, which may fail."""

        def run(owner, *arguments, **named):
            world = self.world
            if world is None:
                return plain(owner, *arguments, **named)
            world.point(step, "before")
            if isinstance(owner, RunFolder) and world.strikes("full", "server", step):
                self.write_half(owner, step, *arguments)
                raise OSError(errno.ENOSPC, "No space left on device")
            result = plain(owner, *arguments, **named)
            if isinstance(owner, Server):
                self.observer.received(owner)
            if step == "sync":
                journal = owner.path / "journal.jsonl"
                self.synced[journal] = journal.stat().st_size
            world.point(step, "after")
            return result

        return run

    def write_half(self, folder, step, *arguments):
        """What a full disk leaves behind: the first half of what was to be written."""
        if step == "journal":
            (server,) = arguments
            line = "".join(json.dumps(e) + "\n" for e in server.inputs[folder._kept :])
            folder._journal.write(line[: len(line) // 2])
            folder._journal.flush()
        elif step == "document":
            name, text = arguments
            whole = "".join(text)  # it may come in pieces
            (folder.path / f".{name}.part").write_text(whole[: len(whole) // 2])

    def play(self, seed):
        """Carry out what a seed decides; return the trace, or raise a `Violation`."""
        self.world = world = World(seed)
        self.synced.clear()
        place = self.place / f"seed-{seed}"
        plan = world.chance.choice(self.plans)
        choices = {
            "on_missing": world.chance.choice(["fail", "fail", "renormalise", "replan"]),
            "clock": world.chance.choice(["virtual", "virtual", "wall"]),
            "policy": world.chance.choice([aw.Policy(), None]),
        }
        world.note(len(plan.assignments), "clients", *choices.values(), world.left, "faults")
        limit = plan.problem.epsilon if choices["policy"] is None else np.inf
        self.observer = Observer(world, plan, place / "ledgers", limit)
        choices |= {"ledgers": place / "ledgers", "slot_seconds": 1.0}
        self.patch.setattr(local, "time", world.clock)
        self.patch.setattr(local_transport, "time", world.clock)
        self.patch.setenv("AGEWISE_STATE", str(place / "state"))  # another machine for each seed
        place.mkdir(parents=True)
        try:
            for number in range(world.chance.choice([1, 1, 2])):
                choices["starts_at"] = number * plan.problem.aggregate_at
                world.under_way.clear()
                self.carry_out(plan, place / f"run-{number}", choices)
        finally:
            self.world = None
            self.observer.close()
            shutil.rmtree(place)
        self.traces[seed] = world.trace
        return world.trace

    def carry_out(self, plan, folder, choices):
        """Begin a run and resume it until it has ended."""
        for _ in range(MOST_SITTINGS):
            ended = self.sit(plan, folder, choices)
            self.end_process()
            for client in plan.problem.clients:
                self.observer.account(client.name)
            self.observer.drawn(folder)
            complete = (folder / "record.json").exists() and self.observer.published(folder)
            if complete or ended:
                return
            self.world.pass_time(self.world.chance.uniform(0, 1))
        self.observer.violated("the run does not come to an end")

    def sit(self, plan, folder, choices):
        """Work on a run until it ends or something fails; return whether it is over."""
        world, begun = self.world, (folder / "run.json").exists()
        world.note("resume" if begun else "begin")
        before = world.faults
        try:
            if begun:
                aw.resume(folder)
            else:
                aw.run(plan, folder=folder, **choices)
        except Crash:
            self.tear(folder / "journal.jsonl")
            return False
        except aw.BudgetExceeded as error:
            world.note(self.plain(error, folder))
            return self.observer.limit < np.inf or self.observer.violated("there is no budget")
        except aw.RunIncomplete as error:
            world.note(self.plain(error, folder))
            return choices["clock"] == "wall"
        except (OSError, AgewiseError) as error:
            world.note(self.plain(error, folder))
            if "start a new run" in str(error):
                return choices["clock"] == "wall"
            return world.faults == before and self.observer.violated("it stops without a fault")
        except Violation:
            raise
        except Exception as error:
            world.note(*traceback.format_exception(error)[-3:])
            self.observer.violated(f"{error!r} is no error that anybody expects")
        return True

    def tear(self, journal):
        """With the power, the end of what was written last may be lost."""
        if journal.exists() and self.world.strikes("tear", "journal"):
            size = journal.stat().st_size
            kept = self.synced.get(journal, 0)
            os.truncate(journal, max(kept, size - self.world.chance.randrange(1, 1000)))

    @staticmethod
    def plain(error, folder):
        """An error without what differs from one play of a seed to the next."""
        text = f"{type(error).__name__}: {error}".replace(str(folder.parent), "")
        return re.sub("-[0-9a-f]{16}", "", text)
