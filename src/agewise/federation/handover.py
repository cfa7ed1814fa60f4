"""A run as one page to hand over: model, plan, pictures, statement, what it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agewise.planning.edges import sharp_edges
from agewise.planning.promise import promise_in_words
from agewise.report.pages import (
    document,
    facts_table,
    from_markdown,
    heading,
    paragraph,
    picture,
    table,
)
from agewise.report.tables import counted

if TYPE_CHECKING:
    from agewise.federation.result import RunResult
    from agewise.federation.round_results import RoundsResult
    from agewise.planning import Plan

REPORT = "report.html"
"""The file of a run's folder."""
MOST_CLIENTS = 200
"""Clients that have a row of the plan."""
NOT_PRIVATE = "A seeded stand-in for noise was used: nothing is private, and no ε is claimed."


def run_page(result: RunResult, pictures: list[str]) -> str:
    """The page of a run, with these pictures."""
    statement = result.statement
    return document(
        f"Run {result.run}",
        "" if result.private else paragraph(NOT_PRIVATE, "warning"),
        facts_table(result.facts()),
        *_plan_parts(result.plan),
        heading("Pictures"),
        *pictures,
        heading("Privacy statement"),
        from_markdown(statement.to_markdown()),
        *_edge_parts(result.plan),
        paragraph("agewise check FOLDER recomputes all of this from the clients' ledgers."),
    )


def rounds_page(result: RoundsResult, statement: str, pictures: list[str]) -> str:
    """The page of many rounds, from their statement in Markdown, with these pictures."""
    return document(
        f"{counted(len(result.rounds), 'round')} of run {result.run}",
        "" if result.private else paragraph(NOT_PRIVATE, "warning"),
        facts_table(result.facts()),
        *_plan_parts(result.plan),
        heading("Pictures"),
        *pictures,
        heading("Privacy statement"),
        from_markdown(statement),
        *_edge_parts(result.plan),
        paragraph("agewise check FOLDER recomputes all of this from the clients' ledgers."),
    )


def _plan_parts(plan: Plan) -> list[str]:
    more = len(plan.assignments) - MOST_CLIENTS
    return [
        heading("Plan"),
        table(plan.title, *plan.table(MOST_CLIENTS)),
        paragraph(f"{more} more clients are in plan.json.") if more > 0 else "",
        facts_table(plan.facts()),
        paragraph(f"Every aged ε is about {promise_in_words(plan.problem)}."),
    ]


def _edge_parts(plan: Plan) -> list[str]:
    edges = sharp_edges(plan.problem, plan.assignments)
    return [
        heading("Sharp edges that apply"),
        facts_table((title.replace("*", ""), text) for title, text in edges),
    ]


def run_pictures(result: RunResult) -> list[str]:
    """The pictures of a run, ready to stand in its page."""
    # matplotlib takes half a second to import
    from agewise.federation.pictures import model_figure, run_figure  # noqa: PLC0415
    from agewise.report.drawing import svg_text  # noqa: PLC0415

    rows = [f"{one.client} in slot {one.collect_at}" for one in result.statement.clients[:20]]
    text = f"Aggregated in slot {result.statement.aggregate_at}. Collected: {', '.join(rows)}."
    drawn = [
        picture(
            svg_text(run_figure(result), "timeline", "The run as it went", text),
            "Who uploaded in which slot, and who was missing.",
        )
    ]
    if len(result.aggregate) > 1:
        labels = result.plan.problem.learner.labels(result.plan.problem.clients[0].process.states)
        values, errors = result.coordinates()
        text = "; ".join(
            f"{label}: {value:.4g} ± {2 * error:.2g}"
            for label, value, error in zip(labels, values, errors, strict=False)
        )
        drawn.append(
            picture(
                svg_text(model_figure(result), "model", "The model", text),
                "The model, ± 2 standard errors.",
            )
        )
    return drawn


def rounds_pictures(result: RoundsResult) -> list[str]:
    """The picture of many rounds, ready to stand in their page."""
    from agewise.report.drawing import svg_text  # noqa: PLC0415

    last = result.rounds[-1]
    spent = "" if last.epsilon is None else f" ε after the last one: {last.epsilon:.4g}."
    text = f"{counted(len(result.rounds), 'round')}; last estimate {last.estimate[0]:.6g}.{spent}"
    return [
        picture(
            svg_text(result.plot(), "rounds", "ε over time, and the estimates", text),
            "ε of all rounds so far beside the classical sum, and what was published.",
        )
    ]
