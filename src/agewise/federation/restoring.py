"""Play releases that an old copy of a ledger has forgotten in again, as far as runs prove them.

What a run's journal holds is what its clients sent, byte by byte. From that and the plan follows
the event that the client has recorded, all but the second in which it did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agewise.errors import InvalidInput
from agewise.federation.checking import read_record
from agewise.federation.files import ledger_file
from agewise.federation.hearing import heard_in
from agewise.federation.journal import RECORD, ROUNDS, SETTINGS, RunFolder
from agewise.federation.ledgers import is_one_file, own_ledgers
from agewise.federation.messages import Upload
from agewise.federation.rewriting import rewritten
from agewise.federation.server import Server
from agewise.federation.settings import Settings
from agewise.mixing import MIXINGS
from agewise.planning import Plan
from agewise.privacy.account import Event, now
from agewise.privacy.accounts import Accounts, holds_many
from agewise.privacy.ledger import Ledger
from agewise.privacy.standing import standing_after
from agewise.privacy.witness import LedgerForked
from agewise.problem import Client


@dataclass(frozen=True)
class Restored:
    """What came of it: how many releases were played in, and how many are still missing.

    `unproven` counts, for the client that has most of them, releases that its own uploads speak of
    and no run proves; `forgotten` events that this machine remembers beyond those there are.
    """

    added: int
    unproven: int
    forgotten: int


@dataclass(frozen=True)
class _Proof:
    """An upload, and the run whose journal holds it."""

    upload: Upload
    payload: bytes
    client: Client
    server: Server
    starts_at: int
    made_at: str

    def event(self, known: Sequence[Event]) -> Event:
        """The event that its client has recorded after these."""
        upload, bare = self.upload, [replace(one, account="") for one in known]
        scale = upload.noise_scale
        _, event = rewritten(self.server, self.client, upload, self.starts_at, scale, bare)
        return replace(event, payload=self.payload, made_at=self.made_at)


def restore_ledger(
    path: Path, runs: Iterable[Path], starts_at: int = 0, client: str | None = None
) -> Restored:
    """Add to a ledger what the folders of runs prove of its clients, or make it anew from them.

    `starts_at` is what the client's own node adds to the slots of runs on Flower. `client` says
    whose the ledger is, if that follows neither from its events nor from its name.

    Guarantees
        Only what the journal of a run holds is added, with its bytes. What was there stays. This
        machine believes the ledger again only if it has as many events as it remembers.
    """
    proofs = [one for run in runs for one in _proofs(run, starts_at)]
    if not proofs:
        raise InvalidInput("runs", "none that holds an upload", "the folders of runs")
    many = holds_many(path) if path.exists() else all(_in_one_file(one) for one in runs)
    kind = Accounts if many else Ledger
    with kind(path, witnessed=False) as ledger:
        if not many:
            name = client or _owner(ledger, path, proofs)
            proofs = [one for one in proofs if one.client.name == name]
        proofs.sort(key=lambda one: (one.upload.releases, one.upload.collect_at + one.starts_at))
        added, unproven = 0, 0
        for one in proofs:
            account = ledger.of(one.client.name) if isinstance(ledger, Accounts) else ledger
            stored = account.find(one.server.run)
            if stored is None:
                account.record(one.server.run, one.event, _carried(account, one))
                added += 1
            elif stored.payload != one.payload:
                raise LedgerForked(
                    f"ledger {path} and the journal hold different releases of client "
                    f"{one.client.name!r} in run {one.server.run!r}: two copies were in use. "
                    "Count both as spent."
                )
            counted = sum(event.private for event in account.events())
            unproven = max(unproven, one.upload.releases - counted)
        return Restored(added, unproven, ledger.remember_again())


def _carried(account: Ledger, one: _Proof) -> Any:
    """What makes the account that an event carries on, where its run was one of many rounds."""
    problem, process, method = one.server.first_plan.problem, one.client.process, one.upload.mixing

    def check(known: Sequence[Event], new: Event) -> str:
        if problem.rounds == 1 or not process.markov or MIXINGS[method].takes_stated_law:
            return ""
        account.keep(process)
        after = standing_after(known, new, process, method)
        return "" if after is None else after.write()

    return check


def _owner(ledger: Ledger, path: Path, proofs: Sequence[_Proof]) -> str:
    for event in ledger.events():
        return event.client
    for one in proofs:
        if ledger_file(path.parent, one.client.name) == path:
            return one.client.name
    raise InvalidInput("--client", None, "whose ledger it is", "It holds no event yet.")


def _folders(run: Path) -> list[Path]:
    if not (run / ROUNDS).exists():
        return [run]
    return sorted(one for one in run.glob("[0-9]" * 5) if (one / SETTINGS).exists())


def _in_one_file(run: Path) -> bool:
    """Whether a run had one ledger for all its clients."""
    folder = _folders(run)[0]
    plan, settings = RunFolder.load(folder)
    return is_one_file(Path(settings.ledgers or own_ledgers(folder, len(plan.problem.clients))))


def _proofs(run: Path, starts_at: int) -> Iterator[_Proof]:
    """All that the journals of a run, or of its rounds, hold."""
    for folder in _folders(run):
        plan, settings = RunFolder.load(folder)
        yield from _of_run(folder, plan, settings, starts_at)


def _of_run(folder: Path, plan: Plan, settings: Settings, starts_at: int) -> Iterator[_Proof]:
    server = heard_in(folder, plan, settings)
    clients = {client.name: client for client in plan.problem.clients}
    first = settings.starts_at + (starts_at if settings.engine == "flower" else 0)
    made_at = now()
    if (folder / RECORD).exists():
        made_at = str((read_record(folder / RECORD).get("statement") or {}).get("made_at", made_at))
    for name, (upload, payload) in {**server.late, **server.received}.items():
        yield _Proof(upload, payload, clients[name], server, first, made_at)
