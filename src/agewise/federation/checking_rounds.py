"""Recompute what a run of many rounds says of itself."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from agewise.federation.checking import (
    Difference,
    Report,
    check_run,
    compared,
    compared_page,
    ledger_files,
    read_record,
)
from agewise.federation.handover import REPORT, rounds_page, rounds_pictures
from agewise.federation.hearing import Hearing, heard_in, later, releases_of, silent_round
from agewise.federation.journal import PLAN, RECORD, STATEMENT
from agewise.federation.ledgers import own_ledgers
from agewise.federation.round_results import (
    Round,
    RoundsResult,
    aggregate_of,
    complete_record,
    finished_round,
    latest,
    rounds_statement,
    spent_of,
)
from agewise.federation.rounds import load_rounds
from agewise.federation.server import Server
from agewise.federation.training import Training, training_of
from agewise.planning import Plan
from agewise.planning.heard import can_listen
from agewise.planning.turns import plan_of_round
from agewise.privacy.accounts import read_ledger
from agewise.privacy.ledger import LedgerDamaged


def check_rounds(folder: Path | str, ledgers: Path | str | None = None) -> Report:
    """Check every round as a run of its own, and then what is said of all of them.

    Guarantees
        As for `check_run`, round by round. The estimates follow from the journals, the ε's of each
        round from its own record, which follows from the ledgers.
    """
    check = _Check(Path(folder), ledgers)
    there = len(list(check.place.glob("[0-9]" * 5)))
    if there > check.count:
        check.differences.append(Difference("rounds", check.count, f"{there} folders"))
    for number in range(1, check.count + 1):
        if not check.round(number):
            break
    if check.done:
        check.all_rounds()
    found = tuple(check.differences), tuple(check.as_told)
    return Report(check.settings.run, check.leaves, *found, check.verified)


class _Check:
    """What was recomputed so far, round by round."""

    def __init__(self, place: Path, ledgers: Path | str | None) -> None:
        self.place = place
        self.plan, self.settings, self.count = load_rounds(place)
        problem = self.plan.problem
        self.every = problem.every or problem.aggregate_at
        self.ledgers = ledgers or self.settings.ledgers or self._kept()
        self.hearing = Hearing(problem) if can_listen(problem) else None
        self.training = training_of(self.plan)
        self.heads: dict[str, str] = {}
        self.slots: dict[str, int] = {}
        self.told: dict[str, Any] | None = None
        self.done: list[Round] = []
        self.leaves, self.verified = 0, 0
        self.differences: list[Difference] = []
        self.as_told: dict[str, None] = {}

    def _kept(self) -> Path | None:
        """Where the run kept the clients' ledgers, if it did; None: rounds say it themselves."""
        if self.settings.engine == "local":
            return own_ledgers(self.place, len(self.plan.problem.clients))
        nodes = self.place / "deployment" / "nodes"
        return nodes if nodes.exists() else None

    def round(self, number: int) -> bool:
        """Check a round; whether the next one can be looked at."""
        own, before = self.place / f"{number:05d}", (number - 1) * self.every
        one = finished_round(own)
        if one is None:
            self.as_told[f"rounds {number} to {self.count} are not done"] = None
            return False
        single = replace(self.settings, run=f"{self.settings.run}-{number:05d}")
        current = self.plan if self.training is None else self.training.plan
        followed = plan_of_round(current, number, self.slots)
        if followed is None and self.hearing is not None and self.done:
            last = self.done[-1]
            true = asdict(silent_round(last, single.run, self.hearing, self.every, one.truth))
        else:
            record = self._run(number, own)
            if record is None:
                return False
            self.told = latest(self.told, record["statement"])
            epsilon, classical = spent_of(record["statement"], self.told)
            true = {"epsilon": epsilon, "classical": classical, "aggregate": aggregate_of(record)}
            server = heard_in(own, followed or current, single)
            self._check_heads(number, server)
            self.heads, released = server.newest(), releases_of(server, before)
            self.slots = later(self.plan, self.slots, released, before)
            if self.hearing is not None:
                self.hearing.add(released)
                estimate, gap = self.hearing.estimate(one.published_at)
                true |= {"estimate": estimate, "estimate_gap": gap}
            if self.training is not None:
                self.differences += _ordered(own, number, self.training)
                self.training.add(aggregate_of(record), record["missing"])
                estimate, gap = self.training.estimate()
                true |= {"estimate": estimate, "estimate_gap": gap}
        stated = {name: getattr(one, name) for name in true}
        self.differences += compared(f"round {number}", _listed(stated), _listed(true))
        self.leaves += len(true)
        self.done.append(one)
        return True

    def _check_heads(self, number: int, server: Server) -> None:
        """Hold what each order said of its client's newest release against earlier rounds.

        Where a round had to be carried out again, that may be what its first attempt has heard.
        """
        first_attempt: set[tuple[str, str]] | None = None
        for name, head in server.heads.items():  # journals of earlier versions have none
            if head == self.heads.get(name):
                continue
            if first_attempt is None:
                first_attempt = set(self._released_in(server.run))
            if (name, head) not in first_attempt:
                where = f"round {number}: journal: head of {name!r}"
                self.differences += compared(where, head, self.heads.get(name))

    def _released_in(self, run: str) -> Iterator[tuple[str, str]]:
        """Clients and their releases in a round, by their ledgers, as orders name them."""
        for path in [] if self.ledgers is None else ledger_files(Path(self.ledgers)):
            with contextlib.suppress(LedgerDamaged), read_ledger(path) as ledger:
                for event in ledger.events():
                    if event.key == run:
                        yield event.client, f"{hashlib.sha256(event.payload).hexdigest()} {run}"

    def _run(self, number: int, own: Path) -> dict[str, Any] | None:
        """Check a round as a run of its own, and return its record."""
        report = check_run(own, self.ledgers)
        self.leaves += report.compared
        self.verified += report.verified
        self.differences += [
            Difference(f"round {number}: {found.where}", found.stated, found.recomputed)
            for found in report.differences
        ]
        self.as_told |= dict.fromkeys(report.as_told)
        record = complete_record(own)
        if record is None:
            self.differences.append(Difference(f"round {number}: {RECORD}", "no model", "a model"))
        return record

    def all_rounds(self) -> None:
        """Check what is said of all rounds together."""
        private = not self.settings.stand_in
        result = RoundsResult(self.settings.run, self.plan, tuple(self.done), private)
        self.differences += compared(RECORD, read_record(self.place / RECORD), result.to_dict())
        shown = self.place / STATEMENT
        text = shown.read_text(encoding="utf-8") if shown.exists() else ""
        if text != rounds_statement(result, self.told):
            self.differences.append(Difference(STATEMENT, "another text", "what follows"))
        page, told = self.place / REPORT, list[str]()
        if page.exists():
            true = rounds_page(result, rounds_statement(result, self.told), rounds_pictures(result))
            self.differences += compared_page(page, true, told)
            self.as_told |= dict.fromkeys(told)


def _listed(numbers: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in numbers.items()}


def _ordered(folder: Path, number: int, training: Training) -> list[Difference]:
    """The model that a round's orders carried, against what the rounds before it lead to."""
    ordered = Plan.from_json((folder / PLAN).read_text(encoding="utf-8")).problem.learner
    where = f"round {number}: {PLAN}: learner"
    return list(compared(where, ordered.to_dict(), training.learner.to_dict()))
