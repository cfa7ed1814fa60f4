"""The local engine: every client in this process, by a virtual clock or in real time.

A run lives in a folder: its settings, its plan, a journal of what reached the server, the clients'
ledgers, and at the end the record. What was interrupted is resumed from there: the server is built
anew from the journal, and clients that have released already send the same bytes again.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import numpy as np

from agewise.errors import AgewiseError, InvalidInput, one_of, positive, whole
from agewise.federation.client import (
    ClientAgent,
    Profile,
    private_noise,
    refusal_reason,
    stand_in_noise,
)
from agewise.federation.journal import RECORD, RunFolder, Settings, ledger_file, probe_folder
from agewise.federation.messages import Order
from agewise.federation.server import (
    ON_MISSING,
    OnMissing,
    Outcome,
    RunIncomplete,
    Server,
    Step,
)
from agewise.federation.sources import DataSource, SimulatedRecords, load_readings
from agewise.federation.statement import Statement
from agewise.loss.simulation import Estimate, checked_generator
from agewise.plan import Plan
from agewise.privacy.ledger import BudgetExceeded, Ledger, Policy
from agewise.process import Process

Clock = Literal["virtual", "wall"]
CLOCKS = ("virtual", "wall")
Watcher = Callable[[Step, int, int], None]
"""(what happened, slots closed, slots in all)."""


@dataclass(frozen=True)
class RunResult:
    """A finished run: the model, what was expected of it, and what it tells about whom.

    `plan` is the plan as it was carried out: without the missing, each in the slot it collected in.
    `realised_loss` is the squared distance to the mean of the clients' records in the aggregation
    slot, known only where those are simulated. `clipped` counts readings that were moved to a
    state, by client; it is not noised and therefore not part of the record.
    """

    run: str
    plan: Plan
    model: float
    realised_loss: float | None
    private: bool
    participants: tuple[str, ...]
    missing: Mapping[str, str]
    rejected: Mapping[str, int]
    statement: Statement
    steps: tuple[Step, ...]
    clipped: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the run record as plain data."""
        return {
            "version": 1,
            "run": self.run,
            "complete": True,
            "scenario": self.plan.problem.name,
            "model": self.model,
            "expected_gap": self.plan.gap,
            "collect_at": {a.client: a.collect_at for a in self.plan.assignments},
            "realised_loss": self.realised_loss,
            "private": self.private,
            "participants": list(self.participants),
            "missing": dict(self.missing),
            "rejected": dict(self.rejected),
            "statement": self.statement.to_dict(),
            "steps": [asdict(step) for step in self.steps],
        }

    def to_json(self) -> str:
        """Return the run record as a JSON document."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)


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
    one_of("on_missing", on_missing, ON_MISSING)
    one_of("clock", clock, CLOCKS)
    names = {c.name for c in plan.problem.clients}
    gone = tuple(drop)
    for name in gone:
        if name not in names:
            raise InvalidInput("drop", repr(name), "one of " + ", ".join(sorted(names)))
    if sources is not None and rng is None and ledgers is None:
        raise InvalidInput(
            "ledgers", "missing", "a folder that keeps the clients' accounts from run to run",
            "Records that are not simulated need one.",
        )  # fmt: skip
    generator = rng if rng is not None else np.random.default_rng()
    if not isinstance(generator, np.random.Generator):
        raise InvalidInput("rng", repr(rng), "a numpy.random.Generator or None")
    settings = Settings(
        run=f"{quote(plan.problem.name, safe='')[:60] or 'run'}-{secrets.token_hex(4)}",
        seed=int(generator.integers(2**63)),
        stand_in=rng is not None,
        clock=clock,
        slot_seconds=positive("slot_seconds", slot_seconds) if clock == "wall" else 0.0,
        started=time.time(),
        on_missing=on_missing,
        starts_at=whole("starts_at", starts_at, 0),
        policy=Policy(max_aged_epsilon=plan.problem.epsilon) if policy is None else policy,
        readings=str(Path(sources).absolute()) if isinstance(sources, str | Path) else None,
        ledgers=None if ledgers is None else str(Path(ledgers).absolute()),
        drop=gone,
    )
    given = None if isinstance(sources, str | Path) else sources
    engine = _Engine(plan, settings, given, None)
    engine.prepare(None if folder is None else Path(folder))
    place = None if folder is None else RunFolder.create(Path(folder), plan, settings)
    return engine.carry_out(place, watch)


def resume(
    folder: Path | str,
    *,
    sources: Mapping[str, DataSource] | None = None,
    watch: Watcher | None = None,
) -> RunResult:
    """Go on with a run that was interrupted.

    Clients that have released in this run send the same bytes again; slots that have passed by
    the wall clock meanwhile are closed, and whoever is missing is dealt with as the run was told.
    """
    place, plan, settings = RunFolder.reopen(Path(folder))
    try:
        engine = _Engine(plan, settings, sources, place)
        place.replay(engine.server)
    except BaseException:
        place.close()
        raise
    return engine.carry_out(place, watch)


def rehearse(
    plan: Plan,
    repetitions: int = 1_000,
    rng: np.random.Generator | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Estimate:
    """Run a plan many times with simulated records and the stand-in; return the mean loss.

    Every repetition goes through the whole protocol, but nothing is recorded. The mean estimates
    `plan.gap`. Cost grows with repetitions × clients.

    >>> from agewise import plan, scenarios
    >>> made = plan(scenarios.london())
    >>> loss = rehearse(made, 200, np.random.default_rng(3))
    >>> abs(loss - made.gap) < 4 * loss.standard_error
    True
    """
    generator = checked_generator(rng)
    count = whole("repetitions", repetitions, 2)
    losses = np.empty(count)
    for index in range(count):
        seed = int(generator.integers(2**63))
        settings = Settings(run="rehearsal", seed=seed, stand_in=True)
        engine = _Engine(plan, settings, None, None, recording=False)
        losses[index] = engine.carry_out(None, None).realised_loss
        if progress is not None:
            progress(index + 1, count)
    error = float(losses.std(ddof=1)) / math.sqrt(count)
    return Estimate(float(losses.mean()), error, count)


class _Engine:
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
        self.budget: BudgetExceeded | None = None

    def _ledger_folder(self, folder: Path | None) -> Path | None:
        if self.settings.ledgers is not None:
            return Path(self.settings.ledgers)
        return None if folder is None else folder / "ledgers"

    def source(self, name: str) -> DataSource:
        if self.sources is None:
            return SimulatedRecords(self.clients[name], self.settings.seed)
        if name not in self.sources:
            raise InvalidInput(
                f"readings of client {name!r}", "missing", "readings for every client",
                "Complete the file, or leave the client out of the scenario.",
            )  # fmt: skip
        return self.sources[name]

    @contextlib.contextmanager
    def agent(self, name: str, *, preparing: bool = False) -> Iterator[ClientAgent]:
        """A client with its ledger open; while preparing, only if it has one already."""
        settings, problem = self.settings, self.problem
        profile = Profile(
            self.clients[name], problem.epsilon, problem.mixing, settings.policy,
            settings.starts_at,
        )  # fmt: skip
        noise = stand_in_noise(settings.seed, name) if settings.stand_in else private_noise
        ledger = None
        if self.ledgers is not None:
            path = ledger_file(self.ledgers, name)
            ledger = Ledger(path) if path.exists() or not preparing else None
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
            _refuse_shift(client.process, self.settings.starts_at, self.problem.aggregate_at)
        if self.settings.on_missing != "fail":
            return  # a client that cannot answer is then missing, and the run goes on
        for slot in range(1, self.problem.aggregate_at + 1):
            for order in self.server.orders(slot):
                if order.client not in self.settings.drop:
                    with self.agent(order.client, preparing=True) as agent:
                        agent.rehearse(order)

    def carry_out(self, place: RunFolder | None, watch: Watcher | None) -> RunResult:
        """Go through the slots that are still open, and publish."""
        server, seen = self.server, len(self.server.steps)
        last = self.problem.aggregate_at
        if self.ledgers is not None:
            self.ledgers.mkdir(parents=True, exist_ok=True)

        def tell() -> None:
            nonlocal seen
            for step in server.steps[seen:]:
                if watch is not None:
                    watch(step, server.closed, last)
            seen = len(server.steps)

        def note(**entry: Any) -> None:
            if place is not None:
                place.note(**entry)

        try:
            while server.closed < last and server.failure is None:
                slot = server.closed + 1
                self._wait_for(slot)
                late = []
                for order in server.orders(slot):
                    payload = self._ask(order, slot, note)
                    if payload is None:
                        continue
                    if self._over(slot):
                        late.append(payload)
                        continue
                    note(input="received", slot=slot, payload=payload.decode())
                    server.receive(payload, slot)
                    tell()
                self._wait_for(slot + 1)
                note(input="closed", slot=slot)
                server.close(slot)
                for payload in late:
                    note(input="received", slot=slot + 1, payload=payload.decode())
                    server.receive(payload, slot + 1)
                tell()
                if watch is not None:
                    watch(Step(slot, "", "closed"), server.closed, last)
            return self._publish(place)
        finally:
            if place is not None:
                place.close()
            for ledger in self.in_memory.values():
                ledger.close()

    def _ask(self, order: Order, slot: int, note: Callable[..., None]) -> bytes | None:
        """Have a client carry an order out; None if it does not answer."""
        if order.client in self.settings.drop or self._over(slot):
            return None
        try:
            with self.agent(order.client) as agent:
                payload = agent.answer(order)
                if agent.clipped:
                    self.clipped[order.client] = agent.clipped
                return payload
        except AgewiseError as error:
            if isinstance(error, BudgetExceeded):
                self.budget = error
            reason = refusal_reason(error)
            note(input="refused", slot=slot, client=order.client, reason=reason)
            self.server.refuse(order.client, slot, reason)
            return None

    def _publish(self, place: RunFolder | None) -> RunResult:
        server = self.server
        try:
            outcome = server.finish()
        except RunIncomplete as failure:
            if place is not None:
                place.write(RECORD, json.dumps(self._failed(str(failure)), indent=2))
            raise (self.budget or failure) from None
        result = RunResult(
            run=server.run,
            plan=outcome.plan,
            model=outcome.model,
            realised_loss=self._realised(outcome),
            private=server.private,
            participants=outcome.participants,
            missing=dict(server.missing),
            rejected=dict(server.rejected),
            statement=outcome.statement,
            steps=tuple(server.steps),
            clipped=dict(self.clipped),
        )
        if place is not None:
            place.write("statement.md", result.statement.to_markdown())
            place.write(RECORD, result.to_json())
        return result

    def _failed(self, why: str) -> dict[str, Any]:
        return {
            "version": 1,
            "run": self.server.run,
            "complete": False,
            "failure": why,
            "rejected": dict(self.server.rejected),
            "steps": [asdict(step) for step in self.server.steps],
        }

    def _realised(self, outcome: Outcome) -> float | None:
        """The squared distance of the model to what it estimates, where that is known."""
        last, truth = self.problem.aggregate_at, 0.0
        for name, weight in zip(outcome.participants, outcome.weights, strict=True):
            upload = self.server.received[name][0]
            samples = self.clients[name].samples
            mean = self.source(name).present_mean(upload.collect_at, last, samples)
            if mean is None:
                return None
            truth += weight * mean
        return (outcome.model - truth) ** 2

    def _wait_for(self, slot: int) -> None:
        """Return when a slot begins (by the virtual clock: now)."""
        if self.settings.clock == "wall":
            begins = self.settings.started + (slot - 1) * self.settings.slot_seconds
            time.sleep(max(0.0, begins - time.time()))

    def _over(self, slot: int) -> bool:
        """Whether a slot's deadline has passed."""
        ends = self.settings.started + slot * self.settings.slot_seconds
        return self.settings.clock == "wall" and time.time() >= ends


def _refuse_shift(process: Process, starts_at: int, last: int) -> None:
    """Slots of the run must mean the same as the client's own, by which its ledger counts."""
    if starts_at and not np.array_equal(
        process.kernel(1, last), process.kernel(1 + starts_at, last + starts_at)
    ):
        raise InvalidInput(
            "starts_at", starts_at, "whole days, for processes that have a time of day"
        )
