"""The accounts that the rows of a ledger carry, made anew from the events as they are read.

A row's account is what the next release rests on, so it must follow from the rows before it: a hash
says only that it is what somebody wrote. A ledger keeps the processes that its accounts were
reckoned with, under the fingerprints that its events name, so that nothing else is needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agewise.mixing import Method
from agewise.privacy.events import Event
from agewise.privacy.histories import facts_alike
from agewise.privacy.standing import Standing
from agewise.process import MarkovChain, PeriodicChain, Process

Kind = tuple[str, Method]
"""The fingerprint of a process and whose knowledge Δ holds for: what an account is of."""


def text_of(process: Process) -> str | None:
    """A process as a ledger keeps it; None if it is of a kind that cannot be read back."""
    if process.kind not in _READ:
        return None
    return json.dumps({**process.to_dict(), "states": process.states.tolist()}, allow_nan=False)


def process_of(text: str) -> Process:
    """The process of such a text."""
    document: dict[str, Any] = json.loads(text)
    return _READ[document["kind"]](document)


_READ: dict[str, Callable[[dict[str, Any]], Process]] = {
    "chain": lambda one: MarkovChain(one["transition"], one["states"]),
    "periodic": lambda one: PeriodicChain(one["transitions"], one["states"]),
}


@dataclass(eq=False)
class History:
    """The events of an account so far, and what they add up to; shared by accounts alike."""

    before: History | None = None
    event: Event | None = None
    standings: dict[Kind, Standing | None] = field(default_factory=dict)
    after: dict[tuple[Any, ...], History] = field(default_factory=dict)

    def events(self) -> list[Event]:
        """All of them, oldest first."""
        found, at = [], self
        while at.before is not None and at.event is not None:
            found.append(at.event)
            at = at.before
        return found[::-1]


class Carried:
    """Makes accounts anew with these processes, by their fingerprints.

    Guarantees
        An account that says less than its events and those before it add up to is a `ValueError`.
        Each history is reckoned once, however many accounts share it: the time grows with the
        number of rows that differ. `unknown` names the processes of accounts that could not be made
        anew.
    """

    def __init__(self, processes: Mapping[str, Process]) -> None:
        self.processes, self.unknown, self.start = processes, set[str](), History()

    def take(self, history: History, event: Event, *, known: bool = False) -> History:
        """The history with one more event; its account is believed if it is `known`."""
        key = facts_alike(event)
        if key not in history.after:
            history.after[key] = self._follow(history, event, known=known)
        return history.after[key]

    def _follow(self, before: History, event: Event, *, known: bool) -> History:
        history = History(before, replace(event, payload=b""))
        stored = Standing.read(event.account)
        own = None if stored is None else (stored.fingerprint, stored.method)
        if known:
            history.standings = {} if own is None else {own: stored}
            return history
        for kind, standing in before.standings.items():
            history.standings[kind] = self._after(history, kind, standing)
        if stored is None or own is None:
            return history
        if stored.fingerprint not in self.processes:
            self.unknown.add(stored.fingerprint)
            return history
        if own not in history.standings:
            history.standings[own] = self._anew(history, own)
        true = history.standings[own]
        if true is None or not stored.covers(true):
            raise ValueError("the account that it carries on is not that of its events")
        return history

    def _after(self, history: History, kind: Kind, before: Standing | None) -> Standing | None:
        """One more event; all of them again where it comes out of order."""
        if before is None or history.event is None:  # a δ, or no noise: never carried on again
            return None
        following = before.after(history.event, self.processes[kind[0]])
        return self._anew(history, kind) if following is None else following

    def _anew(self, history: History, kind: Kind) -> Standing | None:
        return Standing.of(history.events(), self.processes[kind[0]], kind[1])
