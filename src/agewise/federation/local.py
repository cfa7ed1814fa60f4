"""The local engine: every client in this process, by a virtual clock or in real time.

A run lives in a folder: its settings, its plan, a journal of what reached the server, the clients'
ledgers, and at the end the record. What was interrupted is resumed from there: the server is built
anew from the journal, and clients that have released already send the same bytes again.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from agewise.checks import whole
from agewise.errors import AgewiseError, InvalidInput
from agewise.federation.client import (
    ClientAgent,
    Profile,
    private_noise,
    refusal_reason,
    refuse_shift,
    stand_in_noise,
)
from agewise.federation.engine import Engine, Reply, Timetable
from agewise.federation.journal import RunFolder, how_to_retry, ledger_file, probe_folder
from agewise.federation.messages import Order
from agewise.federation.one_draw import OneDraw
from agewise.federation.result import RunResult, Watcher, conclude
from agewise.federation.server import OnMissing, RunIncomplete, Server
from agewise.federation.settings import Clock, Settings, make_settings
from agewise.federation.sources import NOT_REHEARSED, DataSource, SimulatedRecords, load_readings
from agewise.loss.simulation import Estimate, checked_generator
from agewise.planning import Plan
from agewise.privacy.account import BudgetExceeded, Policy
from agewise.privacy.ledger import Ledger
from agewise.progress import Progress


def run_locally(
    plan: Plan,
    rng: np.random.Generator | None = None,
    *,
    folder: Path | str | None = None,
    sources: Mapping[str, DataSource] | Path | str | None = None,
    ledgers: Path | str | None = None,
    policy: Policy | None = None,
    on_missing: OnMissing = "fail",
    clock: Clock = "virtual",
    slot_seconds: float = 60.0,
    starts_at: int = 0,
    drop: Iterable[str] = (),
    watch: Watcher | None = None,
) -> RunResult:
    """Run a plan in this process. See `agewise.run`."""
    if sources is not None and rng is None and ledgers is None:
        raise InvalidInput(
            "ledgers",
            "missing",
            "a folder that keeps the clients' accounts from run to run",
            "Records that are not simulated need one.",
        )
    refuse_stand_in(rng is not None, sources)
    if sources is not None and folder is None and plan.problem.noise == "server":
        raise InvalidInput(
            "folder",
            "None",
            "a folder for the run, where the server adds the noise",
            "The server's own ledger is kept there, so that noise is drawn once.",
        )
    gone = tuple(drop)
    names = {c.name for c in plan.problem.clients}
    for name in gone:
        if name not in names:
            raise InvalidInput("drop", repr(name), "one of " + ", ".join(sorted(names)))
    settings = replace(
        make_settings(plan, rng, on_missing, clock, slot_seconds),
        starts_at=whole("starts_at", starts_at, 0),
        policy=policy,
        readings=str(Path(sources).absolute()) if isinstance(sources, str | Path) else None,
        own_sources=isinstance(sources, Mapping),
        ledgers=None if ledgers is None else str(Path(ledgers).absolute()),
        drop=gone,
    )
    given = None if isinstance(sources, str | Path) else sources
    run = LocalRun(plan, settings, given, None)
    run.prepare(None if folder is None else Path(folder))
    run.settings = settings = replace(settings, started=time.time())  # slot 1 begins now
    place = None if folder is None else RunFolder.create(Path(folder), plan, settings)
    return run.carry_out(place, watch)


def resume_locally(
    folder: Path | str,
    *,
    sources: Mapping[str, DataSource] | None = None,
    watch: Watcher | None = None,
) -> RunResult:
    """Go on with a run of this engine. See `agewise.resume`."""
    place, plan, settings = RunFolder.reopen(Path(folder))
    try:
        if settings.own_sources != (sources is not None):
            raise InvalidInput(
                "sources",
                "missing" if settings.own_sources else "given",
                "the sources that the run was begun with, and only then",
            )
        run = LocalRun(plan, settings, sources, place)
        if plan.problem.noise == "server":
            place.draw(settings).refuse_unopened()
        place.rebuild(run.server, settings)
        run.refuse_other_uploads()
        run.rehearse()
    except BaseException:
        place.close()
        raise
    return run.carry_out(place, watch)


def rehearse(
    plan: Plan,
    repetitions: int = 1_000,
    rng: np.random.Generator | None = None,
    progress: Progress | None = None,
) -> Estimate:
    """Run a plan many times with simulated records and the stand-in; return the mean loss.

    Every repetition goes through the whole protocol, but nothing is recorded. The mean estimates
    `plan.gap`; refused where clients share a level. Cost grows with repetitions × clients.

    >>> from agewise import plan, scenarios
    >>> london = plan(scenarios.london())
    >>> loss = rehearse(london, 200, np.random.default_rng(3))
    >>> abs(loss - london.gap) < 4 * loss.standard_error
    True
    """
    generator = checked_generator(rng)
    count = whole("repetitions", repetitions, 2)
    if (kind := plan.problem.known.kind) != "independent":
        raise InvalidInput("plan", f"with {kind} knowledge", "independent records", NOT_REHEARSED)
    losses = np.empty(count)
    for index in range(count):
        seed = int(generator.integers(2**63))
        settings = Settings(run="rehearsal", seed=seed, stand_in=True)
        run = LocalRun(plan, settings, None, None, recording=False)
        losses[index] = run.carry_out(None, None).realised_loss
        if progress is not None:
            progress(index + 1, count)
    error = float(losses.std(ddof=1)) / math.sqrt(count)
    return Estimate(float(losses.mean()), error, count)


def replay(plan: Plan, sources: Mapping[str, DataSource]) -> RunResult:
    """Run a plan on recorded readings, with private noise, for back-tests: nothing is recorded.

    The result must not leave the machine: no ledger knows of it.
    """
    settings = Settings(run="replay", seed=0, stand_in=False)
    return LocalRun(plan, settings, sources, None, recording=False).carry_out(None, None)


def refuse_stand_in(stand_in: bool, sources: Mapping[str, DataSource] | Path | str | None) -> None:
    """Real records must not be released with noise that a seed can take away again."""
    simulated = sources is None or (
        isinstance(sources, Mapping)
        and all(isinstance(one, SimulatedRecords) for one in sources.values())
    )
    if stand_in and not simulated:
        raise InvalidInput(
            "rng",
            "a seeded stand-in for noise",
            "simulated records only",
            "Whoever has the seed can take such noise away again.",
        )


class LocalTransport:
    """Clients in this process: each carries its order out when the server polls.

    By the virtual clock, waiting takes no time: whoever has not answered never will.
    """

    def __init__(
        self, answer: Callable[[Order], bytes], clock: Clock, silent: Iterable[str]
    ) -> None:
        self.answer, self.wall, self.silent = answer, clock == "wall", frozenset(silent)
        self.errors: dict[str, AgewiseError] = {}
        """What clients have to say about their refusals; that is for this machine only."""
        self._queue: dict[str, tuple[Order, float]] = {}
        self._virtual = 0.0

    def send(self, orders: Sequence[Order], until: float) -> None:
        """Queue orders; one that nobody waits for any more is not carried out."""
        for order in orders:
            if order.client not in self.silent:
                self._queue[order.client] = (order, until)

    def poll(self) -> Iterator[Reply]:
        """Have the clients carry their orders out, one by one."""
        while self._queue:
            name = next(iter(self._queue))
            order, until = self._queue.pop(name)
            if self.now() >= until:
                continue
            try:
                payload = self.answer(order)
            except AgewiseError as error:
                self.errors[name] = error
                yield Reply(name, refusal=refusal_reason(error))
            else:
                yield Reply(name, payload)

    def now(self) -> float:
        """The time, or what the virtual clock shows."""
        return time.time() if self.wall else self._virtual

    def wait(self, until: float) -> None:
        """Sleep until then, or set the virtual clock to it."""
        if self.wall:
            time.sleep(max(0.0, until - time.time()))
        else:
            self._virtual = max(self._virtual, until)


class LocalRun:
    """One run under way: the server, and the clients as they are needed."""

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        sources: Mapping[str, DataSource] | None,
        place: RunFolder | None,
        *,
        recording: bool = True,
    ) -> None:
        self.plan, self.settings, self.recording = plan, settings, recording
        self.problem = plan.problem
        self.server = Server(
            plan,
            settings.run,
            settings.on_missing,
            private=not settings.stand_in,
        )
        self.clients = {c.name: c for c in self.problem.clients}
        if settings.readings is not None:
            sources = load_readings(settings.readings, self.problem.aggregate_at)
        self.sources = sources
        self.ledgers = self._ledger_folder(None if place is None else place.path)
        self.in_memory: dict[str, Ledger] = {}
        self.clipped: dict[str, int] = {}

    def _ledger_folder(self, folder: Path | None) -> Path | None:
        if self.settings.ledgers is not None:
            return Path(self.settings.ledgers)
        return None if folder is None else folder / "ledgers"

    def source(self, name: str) -> DataSource:
        if self.sources is None:
            return SimulatedRecords(self.clients[name], self.settings.seed)
        if name not in self.sources:
            raise InvalidInput(
                f"readings of client {name!r}",
                "missing",
                "readings for every client",
                "Complete the file, or leave the client out of the scenario.",
            )
        return self.sources[name]

    @contextlib.contextmanager
    def agent(self, name: str, *, preparing: bool = False) -> Iterator[ClientAgent]:
        """A client with its ledger open; while preparing, only if it has one already."""
        settings, problem = self.settings, self.problem
        profile = Profile.of(self.clients[name], problem, settings.policy, settings.starts_at)
        noise = stand_in_noise(settings.seed, name) if settings.stand_in else private_noise
        ledger = None
        if self.ledgers is not None:
            path = ledger_file(self.ledgers, name)
            ledger = Ledger(path) if os.path.lexists(path) or not preparing else None
        elif self.recording and not preparing:
            ledger = self.in_memory.get(name) or Ledger(None)
            self.in_memory[name] = ledger
        try:
            yield ClientAgent(profile, self.source(name), ledger, noise)
        finally:
            if ledger is not None and self.ledgers is not None:
                ledger.close()

    def prepare(self, folder: Path | None) -> None:
        """Refuse, before anything is released or written, what cannot end well."""
        self.ledgers = self._ledger_folder(folder)
        if folder is not None:
            RunFolder.refuse_used(folder)
        if self.ledgers is not None:
            probe_folder("ledgers", self.ledgers)
        for client in self.problem.clients:
            refuse_shift(client.process, self.settings.starts_at)
        self.rehearse()

    def rehearse(self) -> None:
        """Raise what a client will refuse, before anybody releases."""
        if self.settings.on_missing != "fail":
            return  # a client that cannot answer is then missing, and the run goes on
        for slot in range(self.server.closed + 1, self.problem.aggregate_at + 1):
            for order in self.server.orders(slot):
                if order.client not in self.settings.drop:
                    with self.agent(order.client, preparing=True) as agent:
                        agent.rehearse(order)

    def carry_out(self, place: RunFolder | None, watch: Watcher | None) -> RunResult:
        """Go through the slots that are still open, and publish."""
        settings = self.settings
        transport = LocalTransport(self.answer, settings.clock, settings.drop)
        seconds = settings.slot_seconds if settings.clock == "wall" else None
        timetable = Timetable(settings.started, seconds)
        try:
            if self.ledgers is not None:
                self.ledgers.mkdir(parents=True, exist_ok=True)
            Engine(self.server, transport, place, watch).carry_out(timetable)
            try:
                return conclude(self.server, place, self.source, self.clipped, self._draw(place))
            except RunIncomplete as failure:
                raise self._explained(failure, transport.errors, place) from None
        finally:
            if place is not None:
                place.close()
            for ledger in self.in_memory.values():
                ledger.close()

    def _draw(self, place: RunFolder | None) -> OneDraw:
        """The server's noise: recorded, unless the run leaves nothing behind."""
        if place is not None:
            return place.draw(self.settings)
        return OneDraw(
            self.settings.run, None, self.settings.seed if self.settings.stand_in else None
        )

    def answer(self, order: Order) -> bytes:
        """Have a client carry an order out."""
        with self.agent(order.client) as agent:
            payload = agent.answer(order)
            if agent.clipped:
                self.clipped[order.client] = agent.clipped
            return payload

    def _explained(
        self, failure: RunIncomplete, errors: Mapping[str, AgewiseError], place: RunFolder | None
    ) -> AgewiseError:
        """A failure with what the client itself has to say; that is for this machine only."""
        missing = [step.client for step in self.server.steps if step.what == "missing"]
        error = next((errors[name] for name in missing if name in errors), None)
        if isinstance(error, BudgetExceeded):
            return error
        reason = f"{failure} {error or ''}".rstrip()
        return RunIncomplete(f"{reason} {how_to_retry(place, self.settings)}".rstrip())

    def refuse_other_uploads(self) -> None:
        """What the journal says was uploaded must be what the clients' ledgers hold."""
        for name, (_, payload) in self.server.received.items():
            with self.agent(name) as agent:
                stored = None if agent.ledger is None else agent.ledger.find(self.settings.run)
            if stored is None or stored.payload != payload:
                raise InvalidInput(
                    "journal",
                    f"an upload of client {name!r} that its ledger does not hold",
                    "what was released",
                    "Restore the ledger, or start a new run.",
                )
