"""The local engine: every client in this process, by a virtual clock or in real time.

A run lives in a folder: its settings, its plan, a journal of what reached the server, the clients'
ledgers, and at the end the record. What was interrupted is resumed from there: the server is built
anew from the journal, and clients that have released already send the same bytes again.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from agewise.checks import whole
from agewise.errors import AgewiseError, InvalidInput
from agewise.federation.client import (
    ClientAgent,
    Profile,
    private_noise,
    refuse_shift,
    stand_in_noise,
)
from agewise.federation.engine import Engine, Timetable
from agewise.federation.happened import OnMissing, RunIncomplete
from agewise.federation.journal import RunFolder, how_to_retry
from agewise.federation.ledgers import Ledgers, own_ledgers
from agewise.federation.local_transport import Answered, LocalTransport
from agewise.federation.messages import Order
from agewise.federation.one_draw import OneDraw
from agewise.federation.orders import OrdersAlike
from agewise.federation.profile import spreads_of
from agewise.federation.result import RunResult, Watcher, conclude
from agewise.federation.seeding import Seeds
from agewise.federation.server import Server
from agewise.federation.settings import Clock, Settings, make_settings
from agewise.federation.size import refuse_many_records
from agewise.federation.sources import DataSource, Simulated, SimulatedRecords, load_readings
from agewise.federation.together import Together, accounts_alike
from agewise.planning import Plan
from agewise.privacy.account import BudgetExceeded, Policy
from agewise.privacy.accounts import Accounts
from agewise.problem import likeness


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
    refuse_stand_in(rng is not None, sources)
    if sources is not None and folder is None and plan.problem.server_adds_noise:
        raise InvalidInput(
            "folder",
            "None",
            "a folder for the run, where the server adds the noise",
            "The server's own ledger is kept there, so that noise is drawn once.",
        )
    gone = tuple(drop)
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
        if plan.problem.server_adds_noise:
            place.draw(settings).refuse_unopened()
        place.rebuild(run.server, settings)
        run.refuse_other_uploads()
        run.rehearse()
    except BaseException:
        place.close()
        raise
    return run.carry_out(place, watch)


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
            "Who has the seed can take such noise away again.",
        )


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
        self.ledgers = self._ledgers(None if place is None else place.path)
        self.clipped: dict[str, int] = {}
        self._profiles: dict[Any, Profile] = {}

    def _ledgers(self, folder: Path | None) -> Ledgers:
        where, count = None, len(self.clients)
        own = [] if folder is None else [own_ledgers(folder, count)]
        if self.settings.ledgers is not None:
            where = Path(self.settings.ledgers)
            if folder is not None and re.fullmatch("[0-9]{5}", folder.name):  # of many rounds
                own.append(own_ledgers(folder.parent, count).absolute())
        elif own:
            where = own[0]
        recording = self.recording or where is not None
        return Ledgers(where, recording=recording, own=where in own)

    def profile(self, name: str) -> Profile:
        """What a client knows and demands, worked out once for those alike."""
        client, settings = self.clients[name], self.settings
        kind = likeness(client)
        if kind not in self._profiles:
            made = Profile.of(client, self.problem, settings.policy, settings.starts_at)
            self._profiles[kind] = made
        return replace(self._profiles[kind], client=client, spread=self._spread_of(name))

    def _spread_of(self, name: str) -> float:
        """The standard deviation of what levels add to a client's readings."""
        return self._spreads.get(name, 0.0)

    @cached_property
    def _spreads(self) -> dict[str, float]:
        return dict(zip(self.clients, spreads_of(self.problem), strict=False))

    @cached_property
    def _noise(self) -> Seeds | None:
        """What the stand-in draws with, of all clients at once; None: noise is private."""
        settings = self.settings
        return Seeds(settings.seed, list(self.clients), "noise") if settings.stand_in else None

    @cached_property
    def _records(self) -> Callable[[str], DataSource]:
        """What gives each client's records."""
        if self.sources is None:
            return Simulated(self.problem, self.settings.seed)
        return self.source

    def source(self, name: str) -> DataSource:
        """A client's records, or a refusal."""
        if self.sources is None:
            return self._records(name)
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
        settings = self.settings
        noise = stand_in_noise(settings.seed, name) if settings.stand_in else private_noise
        with self.ledgers.of(name, preparing=preparing) as ledger:
            yield ClientAgent(self.profile(name), self.source(name), ledger, noise)

    def prepare(self, folder: Path | None) -> None:
        """Refuse, before anything is released or written, what cannot end well."""
        self.ledgers = self._ledgers(folder)
        if self.sources is None:
            refuse_many_records(self.problem)
        if folder is not None:
            RunFolder.refuse_used(folder)
        self.ledgers.probe()
        for client in self.problem.clients:
            refuse_shift(client.process, self.settings.starts_at)
        self.rehearse()

    def rehearse(self) -> None:
        """Raise what a client will refuse, before anybody releases."""
        if self.settings.on_missing != "fail":
            return  # a client that cannot answer is then missing, and the run goes on
        gone, accounts = set(self.settings.drop), self.ledgers.many(preparing=True)
        for slot in range(self.server.closed + 1, self.problem.aggregate_at + 1):
            for alike in self.server.orders(slot).without(gone).groups:
                asked = self._one_of_each(alike, accounts)
                for name in asked:
                    with self.agent(name, preparing=True) as agent:
                        agent.rehearse(alike.of(name))
                if self.sources is not None:  # simulated records can be drawn in any slot
                    order, told = alike.first, set(asked)
                    for name in alike.names:
                        if name not in told:
                            self.source(name).check(order.collect_at, order.samples * order.members)

    def _one_of_each(self, alike: OrdersAlike, accounts: Accounts | None) -> list[str]:
        """Of clients alike, one for all whose accounts are alike too: it speaks for them."""
        if self.ledgers.apart:
            return alike.names
        begun = set() if accounts is None else accounts.begun(alike.names)
        fresh = [name for name in alike.names if name not in begun][:1]
        if accounts is None or not begun:
            return fresh
        profile, held = self.profile(alike.first.client), [n for n in alike.names if n in begun]
        groups, rest = accounts_alike(accounts, held, alike.first.run, profile)
        return [*fresh, *(next(iter(one.last)) for one in groups), *rest]

    def carry_out(self, place: RunFolder | None, watch: Watcher | None) -> RunResult:
        """Go through the slots that are still open, and publish."""
        settings = self.settings
        waiting = settings.clock == "wall" and settings.own_sources  # one must not make others late
        together = None if self.ledgers.apart or waiting else self.answer_together
        transport = LocalTransport(self.answer, settings.clock, settings.drop, together)
        seconds = settings.slot_seconds if settings.clock == "wall" else None
        timetable = Timetable(settings.started, seconds)
        try:
            self.ledgers.make()
            Engine(self.server, transport, place, watch).carry_out(timetable)
            try:
                return conclude(self.server, place, self._records, self.clipped, self._draw(place))
            except RunIncomplete as failure:
                raise self._explained(failure, transport.errors, place) from None
        finally:
            if place is not None:
                place.close()
            self.ledgers.close()

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

    def answer_together(self, orders: list[OrdersAlike]) -> list[Answered]:
        """Have many clients carry their orders out, those alike as arrays, in one transaction."""
        accounts = self.ledgers.many()
        try:
            with contextlib.nullcontext() if accounts is None else accounts.together():
                return [one for alike in orders for one in self._answers(alike, accounts)]
        except AgewiseError as error:  # of the file with all accounts: nothing was recorded
            return [(name, error) for alike in orders for name in alike.names]

    def _answers(self, orders: OrdersAlike, accounts: Accounts | None) -> Iterator[Answered]:
        profile = self.profile(orders.first.client)
        alike = Together(
            profile, self._noise, accounts, self._records, self.answer, self._spread_of
        )
        yield from alike.answer(orders)
        self.clipped |= alike.clipped

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
            with self.ledgers.of(name) as ledger:
                stored = None if ledger is None else ledger.find(self.settings.run)
            if stored is None or stored.payload != payload:
                raise InvalidInput(
                    "journal",
                    f"an upload of client {name!r} that its ledger does not hold",
                    "what was released",
                    "Restore the ledger, or start a new run.",
                )
