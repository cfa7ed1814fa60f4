"""The controls of the page: sliders, choices, and the place to give readings."""

from __future__ import annotations

import html
from collections.abc import Sequence

from agewise.explore.choices import Choices
from agewise.explore.model import Model, Source
from agewise.explore.uploads import LIMIT_WORDS, MOST_BYTES
from agewise.fitting import defaults

MIXINGS = (
    ("exact", "the long-run law of a record"),
    ("any_prior", "anything at all"),
    ("own_law", "the law that a client states"),
    ("spectral", "the long-run law (the paper's bound)"),
)
ESTIMATORS = (
    ("best", "the best estimate from what it knows and hears"),
    ("propagated", "the mean, records moved forward in time"),
    ("plain", "the mean, records as collected"),
)
CALIBRATIONS = (
    ("sharp", "exact for any mechanism"),
    ("tight", "exact for this noise"),
    ("formula", "the paper's formula"),
)
TRUSTS = (
    ("client", "each client (nobody is trusted)"),
    ("server", "the server, once (it sees the means)"),
)
PROMISES = (("present", "the value at each publication"), ("every_moment", "the value at any time"))


def controls(model: Model, choices: Choices) -> str:
    """Everything that can be chosen, with the values that are chosen now."""
    source = model.source(choices.source)
    return (
        '<form id="choices" autocomplete="off">'
        f"{_scenarios(model, choices)}{_privacy(choices)}{_schedule(choices, source)}"
        f"{_unknown(choices, source)}{_rounds(choices, source)}{_more(choices)}</form>"
    )


def _scenarios(model: Model, choices: Choices) -> str:
    options = [(key, one.label) for key, one in model.sources.items()]
    chosen = _select("source", "Scenario", options, choices.source)
    return f"<fieldset><legend>Start from</legend>{chosen}</fieldset>"


def _privacy(choices: Choices) -> str:
    epsilon = _slider(
        "epsilon",
        "Privacy target ε",
        choices.epsilon,
        0.01,
        5,
        log=True,
        told="Smaller is more private; more noise.",
    )
    records = _slider(
        "records",
        "Records per client",
        choices.records,
        1,
        100_000,
        log=True,
        whole=True,
        told="The mean of all clients; their shares stay.",
    )
    return f"<fieldset><legend>Privacy and data</legend>{epsilon}{records}</fieldset>"


def _schedule(choices: Choices, source: Source) -> str:
    oldest = source.problem.aggregate_at - 1
    planned = choices.age is None
    age = _slider(
        "age",
        "Age of all data (slots)",
        choices.age or 0,
        0,
        max(oldest, 1),
        whole=True,
        told=f"0 is fresh, {oldest} the oldest here.",
        off=planned,
    )
    return (
        "<fieldset><legend>When to collect</legend>"
        f"{_radio('schedule', 'planned', 'Agewise plans it', planned)}"
        f"{_radio('schedule', 'age', 'One age for all clients', not planned)}{age}</fieldset>"
    )


def _unknown(choices: Choices, source: Source) -> str:
    if choices.loading is None:
        return (
            "<fieldset><legend>What is unknown</legend><p>This scenario says itself what the "
            "server knows of its clients together (measured, or a level per client). It is used "
            "as it is.</p></fieldset>"
        )
    unit = f" ({source.problem.unit})" if source.problem.unit else ""
    largest = max(100.0, choices.loading)
    size = _slider(
        "loading",
        f"Size of a common level{unit}",
        choices.loading,
        0,
        largest,
        step=1,
        told="Standard deviation of what all records share and nobody knows; 0: none.",
    )
    memory = _slider(
        "memory",
        "Its memory",
        choices.memory or 0.0,
        0,
        1,
        step=0.01,
        told="What remains of it from slot to slot.",
    )
    return f"<fieldset><legend>What is unknown</legend>{size}{memory}</fieldset>"


def _rounds(choices: Choices, source: Source) -> str:
    forever = choices.rounds is None
    rounds = _slider(
        "rounds",
        "Rounds",
        1 if choices.rounds is None else choices.rounds,
        1,
        1000,
        log=True,
        whole=True,
        told="1: released once.",
        off=forever,
    )
    tick = (
        f'<p class="tick"><input type="checkbox" id="forever" name="forever"'
        f'{" checked" * forever}><label for="forever">For ever</label></p>'
    )
    every = _slider(
        "every",
        "Slots from round to round",
        choices.every,
        1,
        max(100, choices.every),
        whole=True,
        told="Counts with several rounds.",
    )
    promises = list(PROMISES)
    stated = str(source.problem.promise)
    if stated not in dict(promises):
        promises.append((stated, f"the values of the last {stated} slots"))
    promise = _select("promise", "ε is about", promises, str(choices.promise))
    return f"<fieldset><legend>Rounds</legend>{rounds}{tick}{every}{promise}</fieldset>"


def _more(choices: Choices) -> str:
    return (
        '<details id="more"><summary>More choices</summary><fieldset>'
        "<legend>How it is done</legend>"
        + _select("mixing", "An adversary may know beforehand", MIXINGS, choices.mixing)
        + _select("estimator", "The server publishes", ESTIMATORS, choices.estimator)
        + _select("calibration", "Noise is set", CALIBRATIONS, choices.calibration)
        + _select("noise", "Noise is added by", TRUSTS, choices.noise)
        + "</fieldset></details>"
    )


def upload_form() -> str:
    """Where readings are given, and how they are to be fitted."""
    adversary = _select(
        "adversary",
        "An adversary knows",
        (("household", "each entity's own law"), ("population", "the law of the group only")),
        defaults.ADVERSARY,
    )
    return (
        '<details id="own"><summary>Your own readings</summary>'
        f'<form id="upload" autocomplete="off" data-most="{MOST_BYTES}" '
        f'data-words="{html.escape(LIMIT_WORDS)}"><fieldset>'
        "<legend>Fit a scenario to readings</legend>"
        "<p>CSV or Parquet: who, when, how much; or a column per meter. The file goes to the "
        "program on this machine and nowhere else, and is removed once it is read.</p>"
        '<p class="field"><label for="file">File</label>'
        '<input type="file" id="file" name="file" accept=".csv,.parquet"></p>'
        + _entry("states", "Number of states", str(defaults.STATES))
        + _entry("at", "Aggregate at (UTC)", defaults.AGGREGATE_AT)
        + _entry("target", "Privacy target ε", f"{defaults.EPSILON:g}")
        + _entry("unit", "Unit", "")
        + adversary
        + "<details><summary>Columns, if they are guessed wrong</summary>"
        + _entry("entity", "Entity column", "")
        + _entry("timestamp", "Time column", "")
        + _entry("value", "Reading column", "")
        + '</details><p><button type="submit">Fit</button></p>'
        '<p id="upload-status" role="status"></p>'
        '<progress id="upload-progress" hidden aria-label="Progress of the fit"></progress>'
        "</fieldset></form></details>"
    )


def _entry(name: str, label: str, value: str) -> str:
    return (
        f'<p class="field"><label for="upload-{name}">{html.escape(label)}</label>'
        f'<input type="text" id="upload-{name}" name="{name}" value="{html.escape(value)}"></p>'
    )


def _radio(name: str, value: str, label: str, chosen: bool) -> str:
    key = f"{name}-{value}"
    return (
        f'<p class="tick"><input type="radio" id="{key}" name="{name}" value="{value}"'
        f'{" checked" * chosen}><label for="{key}">{html.escape(label)}</label></p>'
    )


def _select(name: str, label: str, options: Sequence[tuple[str, str]], chosen: str) -> str:
    listed = "".join(
        f'<option value="{html.escape(value)}"{" selected" * (value == chosen)}>'
        f"{html.escape(words)}</option>"
        for value, words in options
    )
    return (
        f'<p class="field"><label for="{name}">{html.escape(label)}</label>'
        f'<select id="{name}" name="{name}">{listed}</select></p>'
    )


def _slider(
    name: str,
    label: str,
    value: float,
    low: float,
    high: float,
    *,
    log: bool = False,
    whole: bool = False,
    step: float = 1,
    told: str = "",
    off: bool = False,
) -> str:
    """A slider to move and a number to type; the number is what counts."""
    grain = 1 if log else step
    ends = (0, 100) if log else (low, high)
    disabled = " disabled" if off else ""
    return (
        f'<div class="slider" data-low="{low:g}" data-high="{high:g}" '
        f'data-log="{int(log)}" data-whole="{int(whole)}">'
        f'<label for="{name}">{html.escape(label)}</label>'
        f'<input type="range" id="{name}-slider" min="{ends[0]:g}" max="{ends[1]:g}" '
        f'step="{grain:g}" aria-label="{html.escape(label)}, slider"{disabled}>'
        f'<input type="text" inputmode="decimal" id="{name}" name="{name}" value="{value:.12g}" '
        f'aria-describedby="{name}-told"{disabled}>'
        f'<small id="{name}-told">{html.escape(told)}</small></div>'
    )
