"""Check what a finished run says of itself: everything recomputed from journal and ledgers.

The server is built anew from the journal, every upload is written anew from its client's ledger and
the scenario, and the documents that follow are compared with those in the run's folder, leaf by
leaf. Nothing is changed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agewise.checks import parse_json
from agewise.errors import InvalidInput
from agewise.federation.claims import ROOM
from agewise.federation.handover import REPORT
from agewise.federation.happened import RunIncomplete
from agewise.federation.journal import (
    PLAN,
    RECORD,
    ROUNDS,
    SETTINGS,
    STATEMENT,
    RunFolder,
    refuse_version,
)
from agewise.federation.messages import Upload
from agewise.federation.one_draw import DRAWS, OneDraw, ServerLedger, Sum
from agewise.federation.result import NOT_AS_MODELLED, RunResult, conclude, failed_record
from agewise.federation.rewriting import rewritten
from agewise.federation.server import Server
from agewise.federation.settings import Settings
from agewise.federation.sources import DataSource, Simulated
from agewise.federation.statement import Statement, refuse_earlier
from agewise.federation.uploads import uploads_of
from agewise.planning import Plan
from agewise.privacy.account import Event
from agewise.privacy.accounts import read_ledger
from agewise.privacy.ledger import LedgerDamaged
from agewise.problem import Client
from agewise.report.pages import without_looks

CLOCKS_APART = 60.0
"""Seconds by which the clock of another machine may be slow."""
SAME = 1e-9
"""Relative room for another machine's arithmetic."""


@dataclass(frozen=True)
class Difference:
    """Something that a run's documents say and that does not follow from its ledgers."""

    where: str  #: the document, and the path in it
    stated: Any  #: what it says
    recomputed: Any  #: what follows

    def __str__(self) -> str:
        return f"{self.where}: stated {_short(self.stated)}, recomputed {_short(self.recomputed)}"


@dataclass(frozen=True)
class Report:
    """What a check found: differences, and what had to be taken as told.

    `compared` entries were recomputed: they follow from journal, scenario and ledgers. `verified`
    uploads are, byte for byte, what the clients' ledgers hold. Expected losses are only recomputed:
    they are right if records follow the scenario's model, which no check can see.
    """

    run: str  #: its name
    compared: int
    differences: tuple[Difference, ...]  #: none where all of it follows
    as_told: tuple[str, ...]  #: what could not be recomputed
    verified: int = 0


def check_run(folder: Path | str, ledgers: Path | str | None = None) -> Report:
    """Recompute all that record.json, statement.md, plan.json and report.html of a run say.

    `ledgers` is the folder that holds the clients' ledgers, also in folders below it (None: where
    the run kept them).

    Guarantees
        A report without differences means: every number and sentence of these documents
        follows from the clients' ledgers, the journal and the scenario, but for what `as_told`
        names. Changing one of them alone is always found. Where the server adds the noise, the
        model is what its own ledger has recorded, and that draw kept every client's promise.
    """
    place = Path(folder)
    record = read_run_record(place)
    try:
        plan, settings = RunFolder.load(place)
    except InvalidInput as error:
        if not error.field.startswith("plan"):
            raise
        contradiction = Difference(f"{PLAN}: {error.field}", error.value, error.allowed)
        return Report(str(record.get("run")), 1, (contradiction,), ())
    server = Server(plan, settings.run, settings.on_missing, private=not settings.stand_in)
    RunFolder.rebuilt(place, server)
    differences: list[Difference] = []
    as_told: list[str] = []
    answered = _answered(server)
    if answered and not server.knows_plans(answered):
        differences.append(Difference(f"{PLAN}: digest", plan.digest, ", ".join(sorted(answered))))
    accounts = _read_ledgers(place, plan, settings, ledgers, differences)
    clients = {client.name: client for client in plan.problem.clients}
    for name, (upload, payload) in {**server.received, **server.late}.items():
        account = accounts.get(name)
        differences += _check_upload(server, clients, settings, account, upload, payload)
    _check_proof(plan, as_told)
    found: list[Difference] = []
    draw = _recorded_draw(place, settings, found)
    true, statement, result = _documents(server, plan, settings, record, as_told, draw)
    differences += found
    if isinstance(record, dict) and "earlier_failures" in record:
        as_told.append(f"{RECORD}: earlier_failures, before the run was resumed")
        true["earlier_failures"] = record["earlier_failures"]
    differences += compared(RECORD, record, true)
    differences += _check_time(place, record, accounts, settings)
    text = (place / STATEMENT).read_text(encoding="utf-8") if (place / STATEMENT).exists() else ""
    shown, wanted = text.splitlines(), statement.to_markdown().splitlines()
    if len(shown) != len(wanted):
        differences.append(Difference(f"{STATEMENT}: lines", len(shown), len(wanted)))
    for number, (one, other) in enumerate(zip(shown, wanted, strict=False), start=1):
        if one != other:
            differences.append(Difference(f"{STATEMENT}: line {number}", one, other))
    if result is not None and (place / REPORT).exists():
        differences += compared_page(place / REPORT, result.to_html(), as_told)
    leaves = _leaves(true) + len(wanted) + _leaves(plan.to_dict())
    uploads = len(server.received) + len(server.late)
    return Report(settings.run, leaves, tuple(differences), tuple(as_told), uploads)


def _answered(server: Server) -> set[str]:
    """The digests of the plans that uploads in the journal answered."""
    told = (one.get("uploads") or uploads_of(one) for one in server.inputs)
    return {uploads.first.plan for uploads in told if uploads is not None}


def _read_ledgers(
    place: Path,
    plan: Plan,
    settings: Settings,
    ledgers: Path | str | None,
    differences: list[Difference],
) -> dict[str, tuple[Path, list[Event]]]:
    """The events of each client, from whatever ledgers lie in the folder and are not damaged."""
    processes = {client.process.fingerprint: client.process for client in plan.problem.clients}
    kept = Path(settings.ledgers) if settings.ledgers is not None else place
    top = Path(ledgers) if ledgers is not None else kept
    accounts: dict[str, tuple[Path, list[Event]]] = {}
    for path in ledger_files(top):
        by_client: dict[str, list[Event]] = {}
        try:
            with read_ledger(path, processes.values()) as ledger:
                for event in ledger.events():
                    by_client.setdefault(event.client, []).append(event)
        except LedgerDamaged as error:
            differences.append(Difference(path.name, "a ledger", error.what))
            continue
        for name, events in by_client.items():
            if any(event.key == settings.run for event in events):
                accounts[name] = (path, events)
    return accounts


def ledger_files(top: Path) -> list[Path]:
    """The ledgers in a folder and those below it, or the one that is named."""
    if not top.exists():
        raise InvalidInput("ledgers", str(top), "a folder of ledgers", "Name it with --ledgers.")
    return sorted(top.rglob("*.ledger")) if top.is_dir() else [top]


def _check_upload(
    server: Server,
    clients: dict[str, Client],
    settings: Settings,
    account: tuple[Path, list[Event]] | None,
    upload: Upload,
    payload: bytes,
) -> Iterator[Difference]:
    """An upload against what its client recorded, and both against what the scenario implies."""
    name = f"ledger of client {upload.client!r}"
    if account is None:
        yield Difference(name, "an upload", "no ledger that holds this run")
        return
    events = account[1]
    event = next(event for event in events if event.key == settings.run)
    if event.payload != payload:
        both = "what the journal holds", "other bytes"  # a mean without noise is not shown
        if upload.noise == "client":
            both = payload.decode(), event.payload.decode()
        yield Difference(f"{name}: upload", *both)
    starts_at = event.aggregate_at - upload.aggregate_at
    if settings.engine == "local" and starts_at != settings.starts_at:
        yield Difference(f"{name}: starts_at", settings.starts_at, starts_at)
    known = [replace(e, account="") for e in events if e.number < event.number]  # reckoned anew
    client = clients[upload.client]
    own, true = rewritten(server, client, upload, starts_at, event.scale, known)
    if not upload.noise_scale >= own.scale * (1 - ROOM):
        yield Difference(f"{name}: noise_scale", upload.noise_scale, own.scale)
    facts = event.facts()
    same = {name: facts[name] for name in ("made_at", "number", "hash", "account")}
    yield from compared(name, facts, {**true.facts(), **same})
    again = {**parse_json(true.payload), "version": upload.version}  # as it was written
    yield from compared(f"{name}: upload", parse_json(payload), again)


def _check_proof(plan: Plan, as_told: list[str]) -> None:
    """Note what loading the plan did not recompute: it checked the proof of its lower bound."""
    if plan.method == "exhaustive" and plan.problem.objective == "simulated":
        as_told.append(f"{PLAN}: objective, an estimate by simulation")


def _documents(
    server: Server,
    plan: Plan,
    settings: Settings,
    record: Any,
    as_told: list[str],
    draw: Callable[[Sum], tuple[float, ...]],
) -> tuple[dict[str, Any], Statement, RunResult | None]:
    """Record, statement and result as they follow from the journal, with the time they tell."""
    document = record.get("statement") if isinstance(record, dict) else None
    when = document.get("made_at") if isinstance(document, dict) else None
    if isinstance(record, dict) and record.get("complete") is False and server.failure is None:
        as_told.append(f"{RECORD}: failure, of which the journal says nothing")
        stated = str(record.get("failure"))
        prefix = f"run {server.run} did not complete: "
        server.failure = stated.removeprefix(prefix).removesuffix(".")
    source = _source(plan, settings, record, as_told)
    try:
        odd = isinstance(record, dict) and record.get("readings") == NOT_AS_MODELLED
        if odd:
            as_told.append(f"{RECORD}: readings, which clients count and keep to themselves")
        result = conclude(server, None, source, {}, draw, odd=odd)
    except RunIncomplete as failure:
        statement = replace(server.state(None), made_at=str(when))
        return failed_record(server, statement, str(failure)), statement, None
    statement = replace(result.statement, made_at=str(when))
    result = replace(result, statement=statement)
    true = result.to_dict()
    if source is None and isinstance(record, dict):
        true["realised_loss"] = record.get("realised_loss")
        if isinstance(true["realised_loss"], float):
            result = replace(result, realised_loss=true["realised_loss"])
    return true, statement, result


def _recorded_draw(
    place: Path, settings: Settings, differences: list[Difference]
) -> Callable[[Sum], tuple[float, ...]]:
    """The server's one draw as its ledger has it, held against what it should have been."""

    def draw(due: Sum) -> tuple[float, ...]:
        with ServerLedger.read(place / DRAWS) as ledger:
            events = {event.key: event for event in ledger.events()}
        event = events.get(settings.run)
        if event is None or f"{settings.run} opened" not in events:
            differences.append(Difference(DRAWS, "a model", "no draw of this run"))
            return tuple(math.nan for _ in due.value)
        stored = parse_json(event.payload)
        true = json.loads(json.dumps(due.facts()))
        sums = stored.pop("value"), true.pop("value")  # without noise, and therefore not shown
        if any(compared("", *sums)):
            differences.append(Difference(f"{DRAWS}: value", "another sum", "of the uploads"))
        aggregate, scale = tuple(stored.pop("aggregate")), stored.pop("drawn_scale")
        if not (event.scale == scale >= due.scale * (1 - SAME)):
            differences.append(Difference(f"{DRAWS}: scale", scale, f"{due.scale} or more"))
        if settings.stand_in:
            again = OneDraw(settings.run, None, settings.seed)(due)
            differences.extend(compared(f"{DRAWS}: aggregate", aggregate, again))
        differences.extend(compared(DRAWS, stored, true))
        return aggregate

    return draw


def _source(
    plan: Plan, settings: Settings, record: Any, as_told: list[str]
) -> Callable[[str], DataSource] | None:
    if settings.engine == "local" and settings.readings is None and not settings.own_sources:
        return Simulated(plan.problem, settings.seed)
    if isinstance(record, dict) and record.get("realised_loss") is not None:
        as_told.append(f"{RECORD}: realised_loss, from records that are not kept here")
    return None


def _check_time(
    place: Path,
    record: Any,
    accounts: dict[str, tuple[Path, list[Event]]],
    settings: Settings,
) -> Iterator[Difference]:
    """Releases lie between the start of the run and the statement that speaks of them."""
    stated = record.get("statement") if isinstance(record, dict) else None
    when = str(stated.get("made_at")) if isinstance(stated, dict) else ""
    made = {name: e.made_at for name, e in _of_run(accounts, settings.run)}
    last = max(made.values(), default="")
    if when < last:
        yield Difference(f"{RECORD}: statement.made_at", when, f"{last} or later")
    start = _start(place, settings)
    for name, one in made.items():
        if one < start:
            where = f"ledger of client {name!r}: made_at"
            yield Difference(where, one, f"{start} or later, when the run began")


def _of_run(accounts: dict[str, tuple[Path, list[Event]]], run: str) -> Iterator[tuple[str, Event]]:
    """Each client's event of a run."""
    for name, (_, events) in accounts.items():
        yield from ((name, event) for event in events if event.key == run)


def _start(place: Path, settings: Settings) -> str:
    """When a run began, at the earliest, by the clocks of its clients; as events say it.

    Of many rounds, by the virtual clock, it is known of the first only.
    """
    started = settings.started
    if settings.engine == "flower":
        started = max(started - CLOCKS_APART, 0.0)
    elif (place.parent / ROUNDS).exists():
        started = float(read_record(place.parent / ROUNDS)["settings"]["started"])
    earliest = datetime.fromtimestamp(started, UTC)
    return earliest.isoformat(timespec="seconds")


def compared(where: str, stated: Any, true: Any) -> Iterator[Difference]:
    """Compare two documents leaf by leaf."""
    if isinstance(stated, dict) and isinstance(true, dict):
        for key in [*true, *(key for key in stated if key not in true)]:
            yield from compared(
                f"{where}: {key}", stated.get(key, "missing"), true.get(key, "no such entry")
            )
        return
    if isinstance(stated, list | tuple) and isinstance(true, list | tuple):
        if len(stated) != len(true):
            yield Difference(f"{where}: entries", len(stated), len(true))
        for index, (one, other) in enumerate(zip(stated, true, strict=False)):
            yield from compared(f"{where}[{index}]", one, other)
        return
    both = [stated, true]
    if any(isinstance(one, float) for one in both) and all(
        type(one) in (int, float) for one in both
    ):
        if stated != true and not math.isclose(stated, true, rel_tol=SAME):
            yield Difference(where, stated, true)
    elif type(stated) is not type(true) or stated != true:
        yield Difference(where, stated, true)


def compared_page(path: Path, true: str, as_told: list[str]) -> Iterator[Difference]:
    """Compare what a page says, line by line; its pictures and its style are taken as told."""
    as_told.append(f"{path.name}: its pictures and its style")
    text = path.read_text(encoding="utf-8", errors="replace")
    shown, wanted = (without_looks(one).splitlines() for one in (text, true))
    if len(shown) != len(wanted):
        yield Difference(f"{path.name}: lines", len(shown), len(wanted))
    for number, (one, other) in enumerate(zip(shown, wanted, strict=False), start=1):
        if one != other:
            yield Difference(f"{path.name}: line {number}", one, other)


def _leaves(document: Any) -> int:
    if isinstance(document, dict):
        return sum(map(_leaves, document.values()))
    if isinstance(document, list | tuple):
        return sum(map(_leaves, document))
    return 1


def read_run_record(place: Path) -> Any:
    """The record of a run that has ended; one of an earlier version is refused by its number."""
    record = read_record(place / RECORD)
    refuse_version(place, read_record(place / SETTINGS))
    refuse_earlier(place / RECORD, record.get("statement") if isinstance(record, dict) else None)
    return record


def read_record(path: Path) -> Any:
    """A JSON document of a run that has ended, or a refusal in words."""
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInput(
            "run folder", f"{path.parent} without {path.name}", "the folder of a run that has ended"
        ) from None
    except (OSError, ValueError) as error:
        raise InvalidInput("run folder", f"{path} ({error})", "a JSON document") from None


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 120 else text[:117] + "..."
