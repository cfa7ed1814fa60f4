"""Pages to hand over: they need nothing, say everything, and names in them are only letters."""

import itertools
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import agewise as aw
from agewise.planning.edges import sharp_edges
from agewise.report import pages, svg

ROOT = Path(__file__).parents[1]
VOID = {"meta", "br", "link", "input"}
ODD = "<script>alert('x')</script> & | `b` **c**"


class Reader(HTMLParser):
    """Whatever a page holds: its tags, checked to be closed, and what it would load."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.loads, self.alt = [], [], [], 0
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append(tag)
        if tag == "desc":
            self.alt += 1
        for name in ("src", "href", "xlink:href", "data", "action"):
            value = given.get(name)
            if value is not None and not value.startswith("#"):
                self.loads.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        assert self.open.pop() == tag


def self_contained(text, pictures):
    read = Reader(text)
    assert read.loads == []
    assert "script" not in read.tags
    assert read.alt == read.tags.count("svg") == pictures
    assert re.findall(r"@import|url\((?!#)", text) == []
    assert "default-src &#x27;none&#x27;" in text
    assert "@media print" in text


def odd_problem():
    clients = [
        aw.Client(ODD, aw.birth_death(0.3, 0.3, (0, 1, 2)), samples=40),
        aw.Client("plain", aw.birth_death(0.2, 0.1, (0, 1, 2)), samples=60),
    ]
    return aw.Problem(clients, 6, 0.5, name=f"of {ODD}", unit="<u>")


def test_the_page_of_a_run_needs_nothing_and_escapes_names():
    result = aw.run(aw.plan(odd_problem()))
    text = result.to_html()
    self_contained(text, pictures=1)
    assert "<script>" not in text
    assert "<u>" not in text
    assert text.count("&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt; &amp; |") >= 3
    assert result.statement.digest in text
    assert f"{result.plan.gap:.6g}" in text
    assert f"{result.plan.nothing_collected:.6g}" in text
    for limit in result.statement.limits:
        assert limit.replace("'", "&#x27;") in text


def test_the_page_of_a_model_shows_it_too():
    problem = odd_problem().replace(learner=aw.Histogram())
    self_contained(aw.run(aw.plan(problem)).to_html(), pictures=2)


def test_a_stand_in_is_said_first():
    text = aw.run(aw.plan(aw.scenarios.london()), rng=np.random.default_rng(1)).to_html()
    assert "nothing is private, and no ε is claimed" in text.split("<h2>")[0]


def test_markdown_of_statements_says_the_same_as_html():
    statement = aw.run(aw.plan(odd_problem())).statement
    text = pages.from_markdown(statement.to_markdown())
    Reader(text)
    assert text.count("<tr>") == 1 + len(statement.clients)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", text)
    assert len(cells) == 12 * len(statement.clients)
    assert cells[0] == "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt; &amp; | `b` **c**"
    assert f"{statement.clients[0].noise_scale:.6g}" in cells


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mixing": "any_prior"},
        {"mixing": "own_law"},
        {"mechanism": "gaussian", "delta": 1e-6, "calibration": "sharp", "mixing": "exact"},
        {"noise": "server"},
        {"estimator": "best"},
    ],
)
def test_sharp_edges_are_those_of_the_documentation(changes):
    headings = re.findall(r"^## (.+)$", (ROOT / "docs" / "sharp_edges.md").read_text(), re.M)
    problem = aw.scenarios.london().replace(**changes)
    edges = sharp_edges(problem, aw.plan(problem).assignments)
    assert [title for title, _ in edges if title not in headings] == []
    told = dict(edges)
    assert ("Gaussian noise has a δ" in told) == (problem.mechanism == "gaussian")
    assert ("Stationary law or own law" in told) == (problem.mixing != "any_prior")
    assert ("without noise" in told["Who sees an upload, and when"]) == (problem.noise == "server")
    assert ("A promised loss is as true as what it rests on" in told) == (
        problem.estimator == "best"
    )


def test_sharp_edges_of_rounds_measured_laws_and_no_noise():
    forever = aw.scenarios.for_ever()
    told = dict(sharp_edges(forever, aw.plan(forever).assignments))
    assert "over many rounds" in told["Several releases"]
    moment = forever.replace(promise="every_moment")
    assert not any("*now*" in title for title, _ in sharp_edges(moment, ()))
    fitted = aw.scenarios.london_fitted()
    measured = dict(sharp_edges(fitted, aw.plan(fitted).assignments))
    assert "confidence" in measured["What a known process means"]
    same = aw.MarkovChain([[0.5, 0.5], [0.5, 0.5]], [0, 1])
    bare = aw.evaluate(aw.Problem([aw.Client("one", same)], 3, 0.1), [1])
    assert "No noise" in dict(sharp_edges(bare.problem, bare.assignments))


def places(text):
    return [tuple(map(float, pair.split(","))) for pair in text.split()]


def test_lines_stand_where_their_numbers_are():
    points = [(0.1, 10.0), (1.0, 100.0), (10.0, 1000.0)]
    drawn = svg.line_chart(
        "k", "t", "d", [svg.Line("a", points)], svg.Axis("x", log=True), svg.Axis("y", log=True)
    )
    (a, b, c) = places(re.search(r'class="line c0" points="([^"]+)"', drawn)[1])
    assert b[0] == pytest.approx((a[0] + c[0]) / 2, abs=0.2)  # decades are equally long
    assert b[1] == pytest.approx((a[1] + c[1]) / 2, abs=0.2)
    assert a[1] > b[1] > c[1]  # upwards is more


@pytest.mark.parametrize("width", [350, 640])
def test_charts_stand_odd_numbers(width):
    for points in ([], [(1, 1)], [(1, math.inf), (2, math.nan)], [(1, 5), (2, 5)], [(1, 1e-300)]):
        for log in (False, True):
            axis = svg.Axis("y", log=log)
            drawn = svg.line_chart(
                "k", "t", "d", [svg.Line("a", points)], svg.Axis("x"), axis, (1, "now"), width
            )
            assert "nan" not in drawn
            assert "inf" not in drawn
            Reader(drawn)
    Reader(svg.bar_chart("k", "t", "d", [("a", math.inf), ("b", 0.0)], "ε", width))


def test_names_at_the_ends_of_lines_do_not_overlap():
    lines = [svg.Line(f"line {k}", [(0, 1), (1, 1 + k / 100)]) for k in range(6)]
    drawn = svg.line_chart("k", "t", "d", lines, svg.Axis("x"), svg.Axis("y"))
    heights = sorted(
        float(y) for y in re.findall(r'<text class="t\d" x="[\d.]+" y="([\d.]+)"', drawn)
    )
    assert len(heights) == 6
    assert min(b - a for a, b in itertools.pairwise(heights)) >= 14.9


def test_of_many_clients_a_timeline_counts_them():
    rows = [(f"c{k}", k % 7 + 1, "age") for k in range(100)]
    drawn = svg.timeline_chart("k", "t", "d", rows, 7)
    assert drawn.count("<rect") == 7
    assert svg.timeline_chart("k", "t", "d", rows[:3], 7).count("<rect") == 3
