"""What is shown of a run that has ended."""

from __future__ import annotations

from typing import Any

from rich.markup import escape

from agewise.cli.console import console
from agewise.cli.layout import Column, print_facts, print_table
from agewise.federation import RunResult
from agewise.federation.result import ODD_WORDS
from agewise.federation.sources import NOT_REHEARSED
from agewise.learning import RidgeModel
from agewise.loss import Estimate
from agewise.planning.compare import NOTHING
from agewise.planning.plan import RIVALS

SPOKEN = 50
"""Clients up to which each one's steps are told while a run goes on."""


def rehearsal_facts(rehearsal: Estimate | None) -> dict[str, Any] | None:
    """What a rehearsal found, as plain data."""
    if rehearsal is None:
        return None
    return {
        "mean_loss": float(rehearsal),
        "standard_error": rehearsal.standard_error,
        "repetitions": rehearsal.trials,
    }


def _model_facts(result: RunResult, unit: str) -> list[tuple[str, str]]:
    """The model: a number, or a line for each coordinate with the error that is expected of it."""
    problem = result.plan.problem
    if problem.learner.kind == "mean":
        return [("model", f"{result.model:.6g} {unit}".rstrip())]
    if isinstance(result.model, RidgeModel):
        lines = [f"{escape(name)}: {escape(value)}" for name, value in result.model.facts()]
        return _listed(lines)
    labels = problem.learner.labels(problem.clients[0].process.states)
    values, errors = result.coordinates()
    lines = [
        f"{escape(label)}{f' {unit}' if problem.learner.kind == 'histogram' and unit else ''}: "
        f"{value:.4g} ± {error:.2g}"
        for label, value, error in zip(labels, values, errors, strict=True)
    ]
    facts = _listed(lines)
    if problem.learner.kind == "histogram":
        facts.append(("median", f"{result.model.quantile(0.5):g} {unit}".rstrip()))
    return facts


def _listed(lines: list[str]) -> list[tuple[str, str]]:
    lines[0] += " (standard error)"
    return [("model" if k == 0 else "", line) for k, line in enumerate(lines[:SPOKEN])]


def print_result(result: RunResult, rehearsal: Estimate | None, source: str | None = None) -> None:
    """Show a run: who took part at what cost, the model, and what was expected of it.

    `source` is the scenario as it was typed, for the command that a verdict leads to.
    """
    statement, unit = result.statement, escape(result.plan.problem.release_unit)
    screen = console()
    columns = [
        Column("client", words=True),
        Column("age"),
        Column("Δ"),
        Column(f"noise scale ({unit})" if unit else "noise scale"),
        Column("aged ε"),
        Column("aged odds", spare=True),
        Column("classical ε"),
        Column("classical odds", spare=True),
        Column("total aged ε"),
    ]
    rows = []
    for one in statement.clients[:SPOKEN]:
        numbers = (
            one.aged_epsilon,
            one.aged_odds,
            one.classical_epsilon,
            one.classical_odds,
            one.total_aged_epsilon,
        )
        spent = ["none" if value is None else f"{value:.4g}" for value in numbers]
        noise = f"{one.noise_scale:.4g}"
        rows.append([escape(one.client), str(one.age), f"{one.delta:.4f}", noise, *spent])
    title = f"{escape(result.plan.problem.name)}: aggregated in slot {statement.aggregate_at}"
    print_table(screen, title, columns, rows)
    square = f" {unit}²" if unit else ""
    facts = _model_facts(result, escape(result.plan.problem.unit))
    if len(statement.clients) > SPOKEN:
        facts.append(("shown", f"{SPOKEN} of {len(statement.clients)} clients"))
    if not result.private:
        facts.append(("private", "[red]no[/]: a seeded stand-in for noise; no ε is claimed"))
    facts += [("note", escape(note)) for note in result.plan.notes]
    made = result.plan
    if made.verdict is not None:
        step = (made.next_step or "").replace("SCENARIO", source or "SCENARIO")
        facts = [
            ("verdict on the plan", escape(made.verdict)),
            ("instead", escape(step)),
            *facts,
        ]
    facts.append(("trust", statement.trust))
    facts += [
        ("expected loss", ODD_WORDS if result.odd else f"{made.gap:.6g}{square} (closed form)"),
        (NOTHING, f"{made.nothing_collected:.6g}{square}, at ε = 0"),
        (
            RIVALS[made.problem.noise],
            f"{made.classical_fresh:.6g}{square}, server's knowledge used",
        ),
    ]
    if result.realised_loss is not None:
        facts.append(("this run", f"{result.realised_loss:.6g}{square}"))
    if not made.problem.known.drawable:
        facts.append(("not rehearsed", NOT_REHEARSED))
    if rehearsal is not None:
        promised = result.plan.gap
        off = (rehearsal - promised) / rehearsal.standard_error if rehearsal.standard_error else 0
        facts.append(
            (
                "rehearsed",
                f"{rehearsal:.6g} ± {rehearsal.standard_error:.2g}{square} over "
                f"{rehearsal.trials} seeded runs: {off:+.1f} standard errors from the plan's "
                f"{promised:.6g}{square}",
            )
        )
    for name, why in list(result.missing.items())[:SPOKEN]:
        facts.append(("missing", f"{escape(name)}: {escape(why)}"))
    for why, count in result.rejected.items():
        facts.append(("rejected", f"{count} × {escape(why)}"))
    facts += [(name, escape(text)) for name, text in made.coverage()]
    facts += [("ε assumes", rests_on) for _, rests_on in statement.grounds]
    print_facts(screen, facts)
