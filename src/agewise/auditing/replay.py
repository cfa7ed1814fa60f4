"""The replay tier: what a run's folder and ledgers show when its steps are done again.

Nothing is changed. Means are computed again from records that are known (simulated ones, or the
readings the run was given), with single records changed to whatever a record might say.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path as File
from typing import Any

import numpy as np
from scipy.stats import gamma

from agewise.arrays import Array
from agewise.auditing.books import Books, read_books
from agewise.auditing.findings import CERTAIN, Finding
from agewise.checks import parse_json
from agewise.errors import AgewiseError, InvalidInput
from agewise.federation.checking import check_run, read_record, read_run_record
from agewise.federation.checking_rounds import check_rounds
from agewise.federation.common_levels import CommonLevels
from agewise.federation.journal import JOURNAL, PLAN, ROUNDS, SETTINGS
from agewise.federation.messages import BadMessage, Upload
from agewise.federation.rounds import load_rounds
from agewise.federation.settings import Settings
from agewise.federation.sources import (
    DataSource,
    RoundRecords,
    Simulated,
    load_readings,
)
from agewise.federation.uploads import uploads_of
from agewise.learning import Trained, average, release_table
from agewise.privacy.account import Event
from agewise.problem import Client, Problem
from agewise.report.tables import counted

OUTSIDE = (1e9, -1e9, 1e-300)
"""Records that nobody expects, tried besides the states."""
Advance = Callable[[int, int], None]


@dataclass(frozen=True)
class Folder:
    """A run as it lies on disk: problem, settings, uploads in their order, and ledgers."""

    path: File
    problem: Problem
    settings: Settings
    uploads: tuple[tuple[str, Upload], ...]
    """The bytes of every upload in the journal, as they came, and what they say."""
    books: Books
    record: dict[str, Any]

    @property
    def events(self) -> dict[str, tuple[Event, ...]]:
        """All that ledgers hold of each client, in the order of collection."""
        return self.books.events

    @property
    def files(self) -> dict[str, File]:
        """The ledger that holds each run of each client, by its payload's key and name."""
        return self.books.files

    @cached_property
    def clients(self) -> dict[str, Client]:
        """The clients by name."""
        return {client.name: client for client in self.problem.clients}


def read_folder(path: File, ledgers: File | None = None, books: Books | None = None) -> Folder:
    """Read a run without believing it: what contradicts itself is found later, not refused."""
    from agewise.documents import read_document  # noqa: PLC0415
    from agewise.scenario import problem_from_dict  # noqa: PLC0415  (pydantic is slow to import)

    record = read_run_record(path)
    plan, settings = read_record(path / PLAN), read_record(path / SETTINGS)
    if not all(isinstance(one, dict) for one in (record, plan, settings)):
        raise InvalidInput("run folder", str(path), "the folder of a run")
    del settings["version"]
    known = read_document(Settings, settings, str(path / SETTINGS))
    problem = problem_from_dict(plan.get("scenario"))
    uploads: list[tuple[str, Upload]] = []
    try:
        for line in (path / JOURNAL).read_text(encoding="utf-8").splitlines():
            told = uploads_of(parse_json(line))
            if told is not None:
                each = [told.upload(place) for place in range(len(told))]
                uploads += zip([one.decode() for one in told.payloads], each, strict=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, BadMessage) as error:
        raise InvalidInput("journal", f"{path / JOURNAL} ({error})", "what a run wrote") from None
    if books is None:
        top = ledgers or (path if known.ledgers is None else File(known.ledgers))
        books = read_books(top)
    return Folder(path, problem, known, tuple(uploads), books, record)


def run_folders(path: File) -> list[File]:
    """The folders of the single rounds of a run."""
    if not (path / ROUNDS).exists():
        return [path]
    return sorted(one for one in path.glob("[0-9]" * 5) if (one / SETTINGS).exists())


def replay_run(
    path: File, folders: list[Folder], ledgers: File | None, error: float
) -> Iterator[Finding]:
    """Every finding of this tier about a run of one or many rounds."""
    for damage in sorted({one for folder in folders for one in folder.books.damaged}):
        yield Finding("replay", path.name, "ledgers are what was written", "refuted", detail=damage)
    yield _statement(path, ledgers)
    for one in folders:
        yield from _bytes(one)
        yield from _order(one)
        yield from _sensitivities(one)
        yield from _scales(one)
    yield from _noise(folders, error)


def _statement(path: File, ledgers: File | None) -> Finding:
    """What the run says of itself, by `agewise check`."""
    check = check_rounds if (path / ROUNDS).exists() else check_run
    claim = "record, statement and plan follow from the ledgers"
    try:
        report = check(path, ledgers)
    except AgewiseError as error:
        return Finding("replay", path.name, claim, "refuted", detail=str(error))
    wrong = report.differences
    return Finding(
        "replay",
        path.name,
        claim,
        "refuted" if wrong else "proven",
        detail=f"{counted(len(wrong), 'difference')}, the first: {wrong[0]}" if wrong else "",
    )


def _bytes(folder: Folder) -> Iterator[Finding]:
    """One release per client and run, and its bytes are those that its ledger holds."""
    by_client: dict[str, set[str]] = {}
    for payload, upload in folder.uploads:
        by_client.setdefault(upload.client, set()).add(payload)
    for name, payloads in sorted(by_client.items()):
        kept = [e for e in folder.events.get(name, ()) if e.key == folder.settings.run]
        detail = ""
        if len(payloads) > 1:
            detail = f"{len(payloads)} different uploads: each retry tells more"
        elif not kept:
            detail = "an upload that no ledger holds"
        elif kept[0].payload.decode(errors="replace") not in payloads:
            detail = "other bytes than the ledger holds"
        yield Finding(
            "replay",
            f"client {name!r}",
            "what left is what was recorded",
            "refuted" if detail else "proven",
            detail=detail,
        )


def _order(folder: Folder) -> Iterator[Finding]:
    """Recorded before it left: no release is younger than the statement about it."""
    statement = folder.record.get("statement")
    when = str(statement.get("made_at")) if isinstance(statement, dict) else ""
    for name, events in sorted(folder.events.items()):
        own = [event for event in events if event.key == folder.settings.run]
        for event in own:
            late = bool(when) and event.made_at > when
            yield Finding(
                "replay",
                f"client {name!r}",
                "recorded before it was published",
                "refuted" if late else "proven",
                detail=f"recorded at {event.made_at}, published at {when}" if late else "",
            )


def _own(folder: Folder) -> Iterator[tuple[Client, Event, Array]]:
    """Each release of the run, with what each state contributes to it."""
    problem, seen = folder.problem, set()
    for _, upload in folder.uploads:
        client = folder.clients.get(upload.client)
        event = next(
            (e for e in folder.events.get(upload.client, ()) if e.key == folder.settings.run), None
        )
        if client is None or event is None or client.name in seen:
            continue
        seen.add(client.name)
        if isinstance(problem.learner, Trained):
            continue
        table = release_table(
            problem.learner,
            client.process,
            upload.collect_at,
            upload.aggregate_at,
            problem.estimator,
        )
        yield client, event, table


def real_sensitivity(
    mean: Callable[[Array], Array], states: Array, samples: int, norm_of: int = 1
) -> float:
    """How far one record moves a mean, by changing it to every state and beyond; a lower bound.

    `mean` is what the client computes of `samples` records before it adds noise.
    """
    spread = np.asarray(states, float)
    tried = np.unique(
        [*spread, spread.min() - np.ptp(spread), spread.max() + np.ptp(spread), *OUTSIDE]
    )
    worst = 0.0
    for others in (spread.min(), spread.max()):
        base = np.full(samples, others)
        results = []
        for value in tried:
            records = base.copy()
            records[0] = value
            results.append(np.atleast_1d(np.asarray(mean(records), float)))
        for one, other in itertools.combinations(results, 2):
            worst = max(worst, float(np.linalg.norm(one - other, ord=norm_of)))
    return worst


def _sensitivities(folder: Folder) -> Iterator[Finding]:
    """The declared sensitivity against means that are computed again with records changed."""
    order = 2 if folder.problem.mechanism == "gaussian" else 1
    for client, event, table in _own(folder):
        states = client.process.states

        def mean(records: Array, c: Client = client, t: Array = table, e: Event = event) -> Array:
            fresh = folder.problem.level is not None and e.collect_at == e.aggregate_at
            return average(records, c.process.states, t, c.samples, as_read=fresh)

        real = real_sensitivity(mean, states, client.samples, order)
        short = real > event.sensitivity * (1 + CERTAIN)
        yield Finding(
            "replay",
            f"client {client.name!r}",
            "sensitivity",
            "refuted" if short else "not refuted",
            event.sensitivity,
            real,
            detail=f"a changed record moved the mean by {real:.6g}" if short else "",
        )


def _scales(folder: Folder) -> Iterator[Finding]:
    """The ε of an event against its own sensitivity and noise scale."""
    for client, event, _ in _own(folder):
        if event.kind != "laplace":
            continue
        spent = 0.0
        if event.sensitivity > 0:
            spent = event.sensitivity / event.scale if event.scale else np.inf
        short = spent > event.classical_epsilon * (1 + CERTAIN)
        yield Finding(
            "replay",
            f"client {client.name!r}",
            "classical ε of the recorded noise",
            "refuted" if short else "proven",
            event.classical_epsilon,
            spent,
            spent,
            detail=f"noise of scale {event.scale:.6g} spends {spent:.6g}" if short else "",
        )


def _source(folder: Folder, client: Client) -> DataSource | None:
    """Where a client's records came from, if that is known here."""
    settings, rounds = folder.settings, (folder.path.parent / ROUNDS).exists()
    if rounds:
        settings = load_rounds(folder.path.parent)[1]
    if settings.own_sources or settings.engine != "local" or client.members > 1:
        return None
    if settings.readings is not None:
        try:
            readings = load_readings(settings.readings, folder.problem.aggregate_at)
        except AgewiseError:
            return None
        return readings.get(client.name)
    if not rounds:
        return Simulated(folder.problem, settings.seed)(client.name)
    before = (int(folder.path.name) - 1) * (folder.problem.every or 1)
    return _round_records(folder.problem, client, settings.seed).later(before)


@lru_cache(maxsize=1024)
def _round_records(problem: Problem, client: Client, seed: int) -> RoundRecords:
    """The simulated records of a client through all rounds."""
    return RoundRecords(client, seed, CommonLevels(problem, seed).of(client.name))


def residuals(folder: Folder) -> Iterator[tuple[str, Array]]:
    """The noise of each release, over its recorded scale, where the mean can be computed again."""
    if folder.problem.noise == "server":
        return
    sent = {upload.client: upload for _, upload in reversed(folder.uploads)}
    for client, event, table in _own(folder):
        source = _source(folder, client)
        if source is None or event.scale == 0:
            continue
        upload = sent[client.name]
        try:
            records = source.collect(upload.collect_at, client.samples)
        except AgewiseError:
            continue
        fresh = folder.problem.level is not None and event.collect_at == event.aggregate_at
        value = average(records, client.process.states, table, client.samples, as_read=fresh)
        yield client.name, (np.asarray(upload.value) - value) / event.scale


def _noise(folders: list[Folder], error: float) -> Iterator[Finding]:
    """The noise itself: of the recorded size, and each client's own."""
    found = [one for folder in folders for one in residuals(folder)]
    if not found:
        return
    ordered = sorted(found, key=lambda one: (one[1].shape, one[1].ravel().tolist()))
    for (name, one), (other, two) in itertools.pairwise(ordered):
        if one.shape == two.shape and np.allclose(one, two, rtol=1e-7, atol=0):
            yield Finding(
                "replay",
                f"clients {name!r} and {other!r}",
                "noise of its own",
                "refuted",
                detail="both added the same noise: the difference of their uploads has none",
            )
    draws = np.concatenate([np.ravel(one) for _, one in found])
    gaussian = folders[0].problem.mechanism == "gaussian"
    # Sums of |Laplace| and of squared normal variables have known laws.
    total = float((np.square(draws) / 2 if gaussian else np.abs(draws)).sum())
    shape = len(draws) / 2 if gaussian else float(len(draws))
    chance = float(gamma.cdf(total, shape))
    least = float(gamma.ppf(error, shape))
    power = 1 / (float(gamma.ppf(0.9, shape)) / least)
    factor = total / float(gamma.ppf(error, shape))
    detail = f"noise of {len(draws)} numbers would be so small with probability {chance:.2g}"
    yield Finding(
        "replay",
        f"{len(found)} releases",
        "noise of the recorded scale",
        "refuted" if chance < error else "not refuted",
        1.0,
        None,
        factor ** (0.5 if gaussian else 1.0),
        draws=len(draws),
        error=error,
        detail=f"{detail}; noise times {power ** (0.5 if gaussian else 1.0):.2g} would be found "
        "nine times in ten",
    )


def total_claims(folder: Folder) -> Iterator[tuple[Client, int, float, tuple[Event, ...]]]:
    """What uploads say of all releases together: client, slot, total aged ε, and the releases.

    Of every ledger that is here, those recorded by the time of the upload.
    """
    seen: set[str] = set()
    for _, upload in folder.uploads:
        client = folder.clients.get(upload.client)
        if client is None or upload.total_aged is None or client.name in seen:
            continue
        seen.add(client.name)
        events = folder.events.get(client.name, ())
        own = next((e for e in events if e.key == folder.settings.run), None)
        if own is not None:
            known = tuple(e for e in events if e.private and _counts(folder, e, own))
            yield replace(client, weight=None), own.aggregate_at, upload.total_aged, known


def _counts(folder: Folder, event: Event, own: Event) -> bool:
    """Whether a total that was stated with one release has to count another one."""
    if folder.problem.rounds != 1 and event.aggregate_at > own.aggregate_at:
        return False  # a promise counts what is published by then
    files = [folder.files[f"{one.key} {one.client}"] for one in (event, own)]
    if files[0] == files[1]:
        return event.number <= own.number
    return event.made_at < own.made_at  # times are kept to the second: never accuse by a tie
