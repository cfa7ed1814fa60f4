"""What is promised is delivered: records drawn, sent through clients and server, and compared.

Runs share neither formula nor moments with the promise. The plans are those of
`benchmarks/promises.py`: every built-in scenario, and every loss that README, the tutorials,
docs/worth.md and the explorer print, which is tied to these pages here.
"""

import csv
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks.promises import promised

import agewise as aw
from agewise.cli.exploring import explore_command
from agewise.explore.model import Model
from agewise.explore.page import INVENTED, view

ROOT = Path(__file__).parents[2]
PROMISES = promised()
FEWER = {"for_ever": 60}
"""Runs where they take long: what all releases tell is worked out for each."""
ALONG = (
    *(name for name in PROMISES if name.startswith("worth, no level, ε = ")),
    *(f"worth, a level, ε = {epsilon}" for epsilon in ("0.1", "0.3", "1")),
    *(name for name in PROMISES if name.endswith("Wh, everybody fresh")),
    "worth, a level, ε = 0.03, everybody fresh",
    "worth, 10 samples, everybody fresh",
    "common_level, noise by the server",
    "common_level, one early",
    "tutorial, everybody fresh",
    "tutorial, formula",
    "tutorial, any prior, formula",
    "tutorial, a level of 10",
    "beds, ε = 0.05",
)
"""Plans that are another by a number or a slot only: run by the long test and the benchmark."""


def kept(name, runs, seed):
    """How many standard errors the mean loss of runs is from the promise, and that error."""
    found = PROMISES[name].measure(runs, np.random.default_rng(seed))
    promised = PROMISES[name].loss
    return (found - promised) / found.standard_error, found.standard_error / promised


@pytest.mark.parametrize("name", [name for name in PROMISES if name not in ALONG])
def test_guarantee_runs_lose_what_was_promised(name):
    off, error = kept(name, FEWER.get(name, 100), 11)
    assert abs(off) < 4
    assert error < 0.25  # of runs that lose twice as much it is larger than that


@pytest.mark.slow
@pytest.mark.parametrize("name", PROMISES)
def test_guarantee_runs_lose_what_was_promised_within_a_few_per_cent(name):
    off, error = kept(name, 2000, 12)
    assert abs(off) < 4
    assert error < 0.06


def test_a_promise_that_forgets_the_clip_is_not_kept():
    """The level added to what is released, not to what is read: the test above notices."""
    found = PROMISES["common_level"].measure(300, np.random.default_rng(3))
    assert abs(found - 70.34) > 4 * found.standard_error


FENCE = re.compile(r"^(```+)[^\n]*\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)
NUMBER = r"\d+(?:\.\d+)?"
NO_LOSSES = {
    "README": "0.1 0.648704 12.9249 3.11",
    "index": "0.1 0.648704 12.9249",
    "tutorial": "0.02 0.05 0.071 0.13 0.15 0.201 0.214 0.285014 0.286 0.322284 0.333332 0.345229 "
    "0.35 0.36 0.429 0.594 0.68 0.91 1.03 19.117 19.2631 6.47828 6.70319",
    "tutorial_beds": "0.05 0.1 0.36 0.56 0.73 0.86 9.4",
    "tutorial_readings": "0.08 0.24 0.35 0.52 0.70 0.87",
    "worth": "0.03 0.1 0.3 1.0 1.4 4.0 76.6667",
}
"""What else the examples of each page print: ε, Δ, noise scales, gains. A loss wants a promise."""
SENTENCES = {
    "README": "collecting nothing loses {}, the paper's best scheme at ε = 0.1 loses {}, and",
    "tutorial_beds": "wrong by {} hours per patient (root mean square). Fresh data with ordinary\n"
    "noise bring that down to {}, and",
    "worth": "says\nso in a note: {} here",
}
"""Losses in the text of a page."""
ROOTS = {"tutorial_beds"}
"""Pages that print square roots of losses, too."""


def text_of(page):
    path = ROOT / "README.md" if page == "README" else ROOT / "docs" / f"{page}.md"
    return path.read_text(encoding="utf-8")


def losses_on(page, text):
    """The losses that the examples of a page print, and those of its sentence."""
    answers = [
        line
        for _, body in FENCE.findall(text)
        for line in body.splitlines()
        if not line.startswith((">>>", "...", "$"))
    ]
    shown = set(re.findall(r"(?<![\w.])\d+\.\d+(?![\w.])", "\n".join(answers)))
    others = set(NO_LOSSES[page].split())
    assert others <= shown, "no longer printed"
    shown -= others
    if page in SENTENCES:
        sentence = re.escape(SENTENCES[page]).replace(r"\{\}", f"({NUMBER})")
        found = re.search(sentence, text)
        assert found, SENTENCES[page]
        shown |= set(found.groups())
    return shown


def untied(page, text):
    """What is printed and not promised, to the digits printed; and what is promised only."""
    tied, promises = set(), {name: p for name, p in PROMISES.items() if page in p.pages.split()}
    unkept = set(promises)
    for printed in losses_on(page, text):
        digits = len(printed.partition(".")[2])
        for name, promise in promises.items():
            values = [promise.loss] + ([promise.loss**0.5] if page in ROOTS else [])
            if printed in [f"{value:.{digits}f}" for value in values]:
                tied.add(printed)
                unkept.discard(name)
    return losses_on(page, text) - tied, unkept


@pytest.mark.parametrize("page", NO_LOSSES)
def test_every_loss_that_a_page_prints_is_promised_above(page):
    assert untied(page, text_of(page)) == (set(), set())


@pytest.mark.parametrize(
    ("page", "old", "new"),
    [
        ("README", "0, 0, 5    142.844", "0, 0, 5    142.845"),
        ("README", "loses 127, and", "loses 128, and"),
        ("tutorial", "([9, 4], [1, 6], 155.39)", "([9, 4], [1, 6], 155.93)"),
        ("worth", "ages [9, 0, 6]  193.2981", "ages [9, 0, 6]  193.2982"),
        ("tutorial_beds", "([0, 0, 0], 0.21)", "([0, 0, 0], 0.22)"),
    ],
)
def test_a_page_that_prints_another_loss_is_seen(page, old, new):
    text = text_of(page)
    assert text.count(old) == 1
    assert untied(page, text.replace(old, new))[0] == {re.findall(NUMBER, new)[-1]}


def test_every_page_that_promises_name_is_held_against_them():
    named = {page for promise in PROMISES.values() for page in promise.pages.split()}
    assert named <= {*NO_LOSSES, "explorer"}


def test_the_explorer_opens_with_losses_that_are_promised():
    model = Model(inspect.signature(explore_command).parameters["scenario"].default)
    shown = re.findall(r'data-value="([^"]+)"', view(model, model.read({})))
    promised = [p.loss for p in PROMISES.values() if "explorer" in p.pages.split()]
    assert sorted(map(float, shown)) == pytest.approx(sorted(promised), rel=1e-12)
    assert len(shown) == 3


def test_the_explorer_says_that_a_level_is_made_up_with_london_beside_it():
    shared, without = Model("common_level"), Model("london")
    assert INVENTED in view(shared, shared.read({}))
    assert INVENTED not in view(without, without.read({}))
    readme = " ".join(text_of("README").split()).replace(":", ".")
    assert INVENTED.partition("ageing saved ")[2] in readme


def test_shares_and_the_picture_of_worth_are_those_of_the_promises():
    page = text_of("worth")
    share = re.search(rf"around 28 Wh, where the plan loses ({NUMBER}) times what fresh", page)[1]
    there = "worth's picture, 28 Wh"
    fresh = PROMISES[f"{there}, everybody fresh"].loss
    assert f"{PROMISES[there].loss / fresh:.2f}" == share
    saved = re.search(r"made up: `common_level`, stationary prior \| (\d+) %", page)[1]
    fresh = PROMISES["common_level, everybody fresh"].loss
    assert f"{100 * (1 - PROMISES['common_level'].loss / fresh):.0f}" == saved
    drawn = (ROOT / "reproduce" / "worth" / "expected.csv").read_text(encoding="utf-8")
    corner = [
        row
        for row in csv.DictReader(drawn.splitlines())
        if row["varied"] == "loading" and float(row["size"]) == 100 and row["epsilon"] == "0.1"
    ]
    there = "worth's picture, 100 Wh"
    assert [float(row["gap"]) for row in corner] == pytest.approx([PROMISES[there].loss])
    fresh = [PROMISES[f"{there}, everybody fresh"].loss]
    assert [float(row["classical_fresh"]) for row in corner] == pytest.approx(fresh)


@pytest.mark.parametrize("ages", [(1, 10, 6), pytest.param((10, 10, 10), marks=pytest.mark.slow)])
def test_guarantee_estimates_from_many_rounds_lose_what_was_promised(tmp_path, ages):
    """The last of four rounds, each of them a run of its own."""
    plan = aw.evaluate(aw.scenarios.for_ever(), ages)
    losses, promised = [], set()
    for seed in range(16):
        rng = np.random.default_rng(seed)
        last = aw.run_rounds(plan, rng, rounds=4, folder=tmp_path / str(seed)).rounds[-1]
        losses.append((last.estimate[0] - last.truth[0]) ** 2)
        promised.add(round(last.estimate_gap, 6))
    assert len(promised) == 1
    error = np.std(losses, ddof=1) / 4
    assert abs(np.mean(losses) - promised.pop()) < 4 * error
