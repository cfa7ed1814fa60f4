"""The page: numbers, sentences, pictures and recipes as HTML, all that is from outside escaped."""

from __future__ import annotations

import html
import math
from dataclasses import fields
from urllib.parse import urlencode

from agewise import __version__
from agewise.errors import AgewiseError
from agewise.explore import pictures, words
from agewise.explore.choices import Choices
from agewise.explore.controls import controls, upload_form
from agewise.explore.model import Model, Source
from agewise.explore.pictures import PHONE, WIDE, Picture
from agewise.explore.recipes import SAVED, needs_file, recipe
from agewise.fitting.pages import fit_parts
from agewise.planning import Plan
from agewise.planning.edges import sharp_edges
from agewise.report.pages import (
    bullets,
    document,
    facts_table,
    from_markdown,
    heading,
    paragraph,
    table,
)
from agewise.report.svg import DASHES
from agewise.scenarios import BUILT_IN

BUDGET = 0.35
"""Seconds after which a picture is sent as far as it is, and the rest is asked for again."""


def whole_page(model: Model, choices: Choices, wrong: AgewiseError | None = None) -> str:
    """The page with its controls; the results are filled in by what it asks for.

    `wrong`: why its address is not what is shown.
    """
    other = "" if wrong is None else f"{wrong} Shown instead: {choices.source}."
    notice = f'<div class="warning" role="alert">{paragraph(other)}</div>' if other else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<title>Agewise explorer</title><link rel="icon" href="data:,">'
        '<link rel="stylesheet" href="/style.css"><link rel="stylesheet" href="/page.css">'
        '<script src="/page.js" defer></script></head><body class="explorer">'
        '<a class="skip" href="#results">Skip to the results</a>'
        "<header><h1>Agewise explorer</h1><p>When each client collects its changing data, and how "
        "much noise it adds. Everything here is computed on this machine.</p></header>"
        f'<div class="columns"><nav aria-label="Choices">{controls(model, choices)}{upload_form()}'
        "</nav>"
        '<main id="results" tabindex="-1" aria-busy="true">'
        f"{notice}"
        '<p id="status" role="status" class="status">Computing …</p><div id="view"></div>'
        '<section class="pictures">'
        '<div id="loss"></div><div id="timeline"></div><div id="ages"></div><div id="spent"></div>'
        '</section><div id="after"></div><div id="statement"></div>'
        "<noscript><p>This page needs JavaScript. Without it: agewise plan.</p></noscript>"
        f"</main></div><footer>Agewise {html.escape(__version__)}</footer></body></html>"
    )


INVENTED = (
    "The level of this example is made up. On readings of London households ageing saved nothing "
    "with one client, and 1, 7 and 20 % with a client per household at ε = 0.1, 0.3 and 1."
)
"""What stands beside a built-in scenario with a level."""

CONTROLS = {"level.correlation": "memory", "level.loading": "loading", "aggregate_at": "every"}
"""The control that a refused field belongs to, where it is not called the same."""


def refused(error: AgewiseError) -> str:
    """What is shown where a choice is not possible: the message, where to go, and no numbers."""
    name = getattr(error, "field", "")
    name = CONTROLS.get(name, name)
    known = name in {one.name for one in fields(Choices)}
    go = f'<p><a class="go" href="#{name}">Go to this choice</a></p>' if known else ""
    return f'<div class="warning refused" role="alert">{paragraph(str(error))}{go}</div>'


def number(name: str, label: str, value: float, unit: str, note: str = "") -> str:
    """A number that stands out; the whole of it in `data-value`, for programs."""
    told = f"<small>{html.escape(note)}</small>" if note else ""
    return (
        f'<div class="headline"><span>{html.escape(label)}</span>'
        f'<strong id="{name}" data-value="{value!r}">{pictures.said(value)}{html.escape(unit)}'
        f"</strong>{told}"
        "</div>"
    )


def view(model: Model, choices: Choices) -> str:
    """The numbers and sentences of the chosen plan."""
    source = model.source(choices.source)
    made = model.plan(choices)
    parts = [
        _headline(made, choices),
        f'<p id="odds" class="odds">{html.escape(words.odds_sentence(made))}</p>',
        paragraph(words.collected_sentence(made)),
    ]
    if choices.leaves_out_laws(source.problem):
        parts.append(
            paragraph(
                "With many rounds records follow their process: the laws that clients state are "
                "left out.",
                "warning",
            )
        )
    if made.problem.level and choices.source in BUILT_IN:
        parts.append(paragraph(INVENTED))
    if source.fit is not None:
        parts.insert(0, _fitted(source))
    return "".join(parts)


def _headline(made: Plan, choices: Choices) -> str:
    unit = f" {made.problem.release_unit}²" if made.problem.release_unit else ""
    name = "Loss of the plan" if choices.age is None else "Loss at this age"
    baseline = min(made.classical_fresh, made.nothing_collected)
    verdict = made.verdict
    if verdict is None:
        verdict = f"Ageing pays here: {made.gap / baseline:.0%} of what the better baseline loses."
    return (
        f'<p id="verdict" class="verdict">{html.escape(verdict)}</p><div class="headlines">'
        + number("gap", name, made.gap, unit, "expected squared error")
        + number(
            "classical_fresh", "Classical, fresh", made.classical_fresh, unit, "same knowledge"
        )
        + number("nothing_collected", "Nothing collected", made.nothing_collected, unit, "ε = 0")
        + "</div>"
    )


def _fitted(source: Source) -> str:
    if source.fit is None or source.recipe is None:
        return ""
    verdict = bullets(source.fit.assumptions.verdict)
    return (
        f'<section id="fit"><h2>Fitted to {html.escape(source.label)}</h2>{verdict}'
        f'<details id="fit-details"><summary>What was read, and limits on Δ</summary>'
        f"{''.join(fit_parts(source.fit))}</details>"
        f"{_recipe_details('fit', *source.recipe)}</section>"
    )


def after(model: Model, choices: Choices) -> str:
    """What all that rests on, and what can be taken along."""
    made = model.plan(choices)
    query = html.escape(urlencode(choices.query()))
    return (
        '<section id="rests"><h2>What these numbers rest on</h2>'
        f"{bullets(words.assumptions_of(made))}"
        "<details id='edges'><summary>Sharp edges that apply</summary>"
        + facts_table(
            (title.replace("*", ""), text)
            for title, text in sharp_edges(made.problem, made.assignments)
        )
        + "</details></section>"
        '<section id="take"><h2>To take along</h2><p class="links">'
        f'<a id="save-scenario" href="/scenario.toml?{query}" download="{SAVED}">Scenario '
        f'({SAVED})</a> <a id="save-plan" href="/plan.json?{query}" download="plan.json">Plan '
        f'(plan.json)</a> <a id="save-report" href="/report.html?{query}" '
        'download="report.html">Report (report.html)</a></p>'
        '<p><button type="button" id="carry-out">Carry it out on simulated records, and write the '
        "privacy statement</button></p></section>"
    )


def picture_of(model: Model, key: str, choices: Choices, narrow: bool) -> tuple[str, int]:
    """A picture with its numbers and recipes, and how much of it is still to come."""
    drawn, still = drawing(model, key, choices, narrow)
    source = model.source(choices.source)
    python, command = recipe(key, choices, source)
    first = f"<p>First save the scenario ({SAVED}).</p>" if needs_file(choices, source) else ""
    numbers = (
        f'<details id="{key}-numbers"><summary>Numbers</summary>'
        f"{table(drawn.title, drawn.headings, drawn.rows)}</details>"
    )
    return (
        f"<figure><h2>{html.escape(drawn.title)}</h2>{drawn.svg}"
        f"{_legend(drawn)}<figcaption>{html.escape(drawn.caption)}</figcaption>{numbers}"
        f"{_recipe_details(key, python, command, first)}</figure>",
        still,
    )


def _legend(drawn: Picture) -> str:
    """Names of the lines, for narrow screens where they do not fit beside their ends."""
    items = "".join(
        f'<li><svg class="key" viewBox="0 0 28 8" aria-hidden="true"><line class="line c{k % 7}" '
        f'stroke-dasharray="{DASHES[k % len(DASHES)]}" x1="0" x2="28" y1="4" y2="4"/></svg>'
        f"{html.escape(name)}</li>"
        for k, name in enumerate(drawn.legend)
    )
    return f'<ul class="legend">{items}</ul>'


def drawing(
    model: Model, key: str, choices: Choices, narrow: bool, seconds: float = BUDGET
) -> tuple[Picture, int]:
    """A picture, as far as the time allows, and how much of it is still to come."""
    width = PHONE if narrow else WIDE
    made = model.plan(choices)
    if key == "loss":
        curve = model.curve(choices, seconds)
        planned = choices.age is None
        return pictures.loss_picture(curve, choices.epsilon, made, planned, width), curve.open
    if key == "ages":
        measured = any(client.process.confidence < 1 for client in made.problem.clients)
        return pictures.ages_picture(model.deltas(choices), measured, width), 0
    if key == "timeline":
        return pictures.timeline_picture(made, width), 0
    return pictures.spent_picture(model.spent(choices), made, width), 0


def _recipe_details(key: str, python: str, command: str, first: str = "") -> str:
    return (
        f'<details id="{key}-recipe" class="recipe"><summary>Python and command</summary>{first}'
        f'<pre tabindex="0" class="python" aria-label="Python">{html.escape(python)}</pre>'
        f'<pre tabindex="0" class="command" aria-label="Command">{html.escape(command)}</pre>'
        "</details>"
    )


def statement(model: Model, choices: Choices) -> str:
    """The privacy statement of a run on simulated records."""
    return (
        '<section id="stated"><h2>Statement of a rehearsal</h2>'
        + paragraph(REHEARSED, "warning")
        + from_markdown(model.statement(choices))
        + "</section>"
    )


REHEARSED = (
    "Carried out on simulated records, with noise as in earnest. Nobody's readings were collected; "
    "a run of the same plan on real ones, the first of its clients, states the same ε's."
)


def report(model: Model, choices: Choices, with_statement: bool) -> str:
    """Everything on the page as one file to hand over."""
    source = model.source(choices.source)
    made = model.plan(choices)
    parts = [
        paragraph(made.verdict, "verdict") if made.verdict else "",
        paragraph(words.odds_sentence(made)),
        paragraph(words.collected_sentence(made)),
    ]
    if source.fit is not None:
        verdict = bullets(source.fit.assumptions.verdict)
        parts += [heading("Readings and fit"), verdict, *fit_parts(source.fit)]
    parts += [heading("Plan"), table(made.title, *made.table(200))]
    parts.append(facts_table(fact for fact in made.facts() if fact[0] != "verdict"))
    parts.append(heading("Pictures"))
    for key in ("loss", "timeline", "ages", "spent"):
        try:
            drawn, _ = drawing(model, key, choices, False, math.inf)
        except ValueError as error:
            parts.append(paragraph(f"Not drawn: {error}"))
            continue
        parts.append(
            f"<figure><h3>{html.escape(drawn.title)}</h3>{drawn.svg}"
            f"<figcaption>{html.escape(drawn.caption)}</figcaption></figure>"
        )
    if with_statement:
        parts += [
            heading("Privacy statement of a rehearsal"),
            paragraph(REHEARSED, "warning"),
            from_markdown(model.statement(choices)),
        ]
    else:
        parts += [heading("What these numbers rest on"), bullets(words.assumptions_of(made))]
    python, command = recipe("timeline", choices, source)
    parts += [
        heading("Sharp edges that apply"),
        facts_table(
            (a.replace("*", ""), b) for a, b in sharp_edges(made.problem, made.assignments)
        ),
        heading("How to get these numbers again"),
        f"<pre>{html.escape(command)}</pre><pre>{html.escape(python)}</pre>",
    ]
    if needs_file(choices, source):
        parts.append(
            f"<p>The scenario ({SAVED}):</p><pre>{html.escape(model.scenario(choices))}</pre>"
        )
    return document(f"Agewise: {made.title}", *parts)
