"""Recompute what a run of many rounds says of itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from agewise.federation.checking import Difference, Report, check_run, compared, read_record
from agewise.federation.hearing import Hearing, releases_in
from agewise.federation.journal import PLAN, RECORD, STATEMENT
from agewise.federation.round_results import (
    RoundsResult,
    aggregate_of,
    complete_record,
    finished_round,
    latest,
    rounds_statement,
    spent_of,
)
from agewise.federation.rounds import load_rounds
from agewise.federation.training import Training, training_of
from agewise.planning import Plan
from agewise.planning.heard import can_listen


def check_rounds(folder: Path | str, ledgers: Path | str | None = None) -> Report:
    """Check every round as a run of its own, and then what is said of all of them.

    Guarantees
        As for `check_run`, round by round. The estimates follow from the journals, the ε's of each
        round from its own record, which follows from the ledgers.
    """
    place = Path(folder)
    plan, settings, count = load_rounds(place)
    every = plan.problem.every or plan.problem.aggregate_at
    ledgers = ledgers or settings.ledgers or place / "ledgers"
    hearing = Hearing(plan.problem) if can_listen(plan.problem) else None
    training = training_of(plan)
    leaves, done = 0, []
    differences: list[Difference] = []
    as_told: dict[str, None] = {}
    told: dict[str, Any] | None = None
    there = len(list(place.glob("[0-9]" * 5)))
    if there > count:
        differences.append(Difference("rounds", count, f"{there} folders"))
    for number in range(1, count + 1):
        own = place / f"{number:05d}"
        one = finished_round(own)
        if one is None:
            as_told[f"rounds {number} to {count} are not done"] = None
            break
        report = check_run(own, ledgers)
        leaves += report.compared
        differences += [
            Difference(f"round {number}: {found.where}", found.stated, found.recomputed)
            for found in report.differences
        ]
        as_told |= dict.fromkeys(report.as_told)
        record = complete_record(own)
        if record is None:
            differences.append(Difference(f"round {number}: {RECORD}", "no model", "a model"))
            break
        told = latest(told, record["statement"])
        epsilon, classical = spent_of(record["statement"], told)
        true: dict[str, Any] = {"epsilon": epsilon, "classical": classical}
        true["aggregate"] = list(aggregate_of(record))
        if hearing is not None:
            before = (number - 1) * every
            single = replace(settings, run=f"{settings.run}-{number:05d}")
            hearing.add(releases_in(own, plan, single, before))
            estimate, gap = hearing.estimate(one.published_at)
            true |= {"estimate": list(estimate), "estimate_gap": gap}
        if training is not None:
            differences += _ordered(own, number, training)
            training.add(aggregate_of(record), record["missing"])
            estimate, gap = training.estimate()
            true |= {"estimate": list(estimate), "estimate_gap": gap}
        stated = {name: getattr(one, name) for name in true}
        stated = {k: list(v) if isinstance(v, tuple) else v for k, v in stated.items()}
        differences += compared(f"round {number}", stated, true)
        leaves += len(true)
        done.append(one)
    if done:
        result = RoundsResult(settings.run, plan, tuple(done), not settings.stand_in)
        differences += _documents(place, result, told)
    return Report(settings.run, leaves, tuple(differences), tuple(as_told))


def _ordered(folder: Path, number: int, training: Training) -> list[Difference]:
    """The model that a round's orders carried, against what the rounds before it lead to."""
    ordered = Plan.from_json((folder / PLAN).read_text(encoding="utf-8")).problem.learner
    where = f"round {number}: {PLAN}: learner"
    return list(compared(where, ordered.to_dict(), training.learner.to_dict()))


def _documents(place: Path, result: RoundsResult, told: dict[str, Any] | None) -> list[Difference]:
    """The record and the statement of all rounds, against what follows from them."""
    found = list(compared(RECORD, read_record(place / RECORD), result.to_dict()))
    shown = place / STATEMENT
    text = shown.read_text(encoding="utf-8") if shown.exists() else ""
    if text != rounds_statement(result, told):
        found.append(Difference(STATEMENT, "another text", "what follows"))
    return found
