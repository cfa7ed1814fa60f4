"""A fit as a page to hand over."""

from __future__ import annotations

from collections.abc import Sequence

from agewise.fitting.report import Fit
from agewise.planning import Plan
from agewise.planning.edges import sharp_edges
from agewise.report.pages import bullets, document, facts_table, heading, paragraph, table

SHOWN_CLIENTS = 20

LOOKS = (
    "Fitting itself looks at the readings: use records that are public or consented to, and others "
    "than those that will be released."
)
NOT_COVERED = (
    "This page was made from the readings without noise. The noise of the counts covers the "
    "scenario and not this page: it is for the fitter's eyes only."
)


def fit_parts(fitted: Fit) -> list[str]:
    """What was read, warnings, and Δ with its limits; the verdict stands elsewhere."""
    parts = [facts_table(fact for fact in fitted.facts() if fact[0] != "verdict")]
    parts += [paragraph(warning, "warning") for warning in fitted.warnings]
    parts.append(
        table(
            "Δ by lag, median over entities",
            ["lag (slots)", "time", "measured", "fitted chain"],
            [
                [str(o.lag), o.time, f"{o.measured:.2f}", f"{o.chain:.2f}"]
                for o in fitted.assumptions.lags
            ],
        )
    )
    if fitted.kind == "measured":
        given = f", given {fitted.given}" if fitted.given else ""
        rows = [
            [
                one.name,
                str(one.entities),
                str(age),
                f"{one.estimates[len(one.limits) - 1 - age]:.3f}",
                f"{one.limits[len(one.limits) - 1 - age]:.3f}",
            ]
            for one in fitted.clients[:SHOWN_CLIENTS]
            for age in fitted.ages
        ]
        caption = (
            f"Δ by client, {fitted.limits} limits at {fitted.confidence:.0%}; adversary: "
            f"{fitted.adversary}, sampled: {fitted.sampled}{given}"
        )
        parts.append(
            table(caption, ["client", "entities", "age (slots)", "measured", "limit"], rows)
        )
        more = len(fitted.clients) - SHOWN_CLIENTS
        if more > 0:
            parts.append(paragraph(f"{more} more clients are in the scenario."))
        if fitted.coverage is not None:
            parts.append(paragraph(fitted.coverage))
    return parts


def fit_picture_text(fitted: Fit) -> str:
    """What the picture of a fit shows, for those who cannot see it."""
    lags = "; ".join(
        f"lag {one.lag}: measured {one.measured:.2f}, chain {one.chain:.2f}"
        for one in fitted.assumptions.lags
    )
    limits = "; ".join(
        f"{one.name} from {min(one.limits):.2f} to {max(one.limits):.2f}"
        for one in fitted.clients[:SHOWN_CLIENTS]
        if fitted.kind == "measured"
    )
    return f"Δ by lag, median over entities: {lags}." + (f" Limits: {limits}." if limits else "")


def fit_page(fitted: Fit, planned: Plan, pictures: Sequence[str]) -> str:
    """The whole fit as one file: readings, verdict, limits, the plan that follows, what it assumes.

    `pictures` are figures of the page, ready to stand in it.
    """
    problem = fitted.problem
    assumed = sorted({c.process.assumes for c in problem.clients if c.process.assumes})
    return document(
        f"Fit of {problem.name}",
        paragraph(" ".join(fitted.assumptions.verdict), "verdict"),
        paragraph(LOOKS if fitted.noise is None else NOT_COVERED, "warning"),
        heading("Readings and limits"),
        *fit_parts(fitted),
        heading("The plan that follows"),
        table(planned.title, *planned.table(200)),
        facts_table(planned.facts()),
        heading("Pictures"),
        *pictures,
        heading("What these numbers rest on"),
        bullets([*(f"Δ assumes {one}." for one in assumed), *planned.notes]),
        heading("Sharp edges that apply"),
        facts_table((a.replace("*", ""), b) for a, b in sharp_edges(problem, planned.assignments)),
    )
