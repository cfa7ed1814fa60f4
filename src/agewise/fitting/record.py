"""What noisy counts have spent, entered into the clients' ledgers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from agewise.errors import InvalidInput
from agewise.federation.files import ledger_file, probe_folder
from agewise.fitting.report import Fit
from agewise.privacy.account import Event, Policy, now
from agewise.privacy.ledger import Ledger


def record_fit(fitted: Fit, folder: Path) -> None:
    """Enter what noisy counts have spent into the clients' ledgers, before anything is written.

    It counts as collected in slot 0 of the clients' time: before every slot of a run.
    """
    if fitted.noise is None:
        raise InvalidInput("ledgers", str(folder), "with count_epsilon, which is what is recorded")
    probe_folder("ledgers", folder)
    folder.mkdir(parents=True, exist_ok=True)
    key = f"fit {fitted.problem.name}"
    for path in sorted(folder.glob("*.ledger")):  # all or none, whatever the clients are called
        with Ledger.read(path) as ledger:
            _refuse_again(fitted, ledger, key)
    for client in fitted.problem.clients:
        law = client.process
        payload = json.dumps(law.to_dict()["joints"]).encode()  # only measured laws have noise
        event = Event(
            key=key,
            client=client.name,
            collect_at=0,
            aggregate_at=0,
            classical_epsilon=fitted.noise.epsilon,
            aged_epsilon=fitted.noise.epsilon,
            sensitivity=float(fitted.noise.sensitivity),
            scale=fitted.noise.scale,
            private=True,
            mixing="exact",
            fingerprint=law.fingerprint,
            made_at=now(),
            payload=payload,
        )
        with Ledger(ledger_file(folder, client.name)) as ledger:
            _refuse_again(fitted, ledger, key)
            ledger.release(key, _always(event), Policy(), law)


def _refuse_again(fitted: Fit, ledger: Ledger, key: str) -> None:
    if ledger.find(key) is not None:
        raise InvalidInput(
            "name",
            repr(fitted.problem.name),
            "a name that was not fitted before",
            "Its counts were released already; fitting again is another release, by another name "
            "(--out).",
        )


def _always(event: Event) -> Callable[[Sequence[Event]], Event]:
    return lambda _: event
