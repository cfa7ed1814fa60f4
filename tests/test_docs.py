"""The documentation: links lead somewhere, names are explained, what is shown can be run."""

import ast
import dataclasses
import importlib
import inspect
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
import zlib
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import pytest
import typer

import agewise as aw
from agewise.cli import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    *ROOT.glob("*.md"),
    *sorted(
        page for one in ("docs", "reproduce", "examples") for page in (ROOT / one).rglob("*.md")
    ),
]
FENCE = re.compile(r"^(```+)([^\n]*)\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`+[^`]*`+")


def named(path):
    return str(path.relative_to(ROOT))


def prose(text):
    """A page without its code, in which nothing is a link or a heading."""
    return INLINE.sub("code", FENCE.sub("", text))


def slugs(text):
    """The anchors of a page's headings, as GitHub and MyST make them."""
    found = []
    for title in re.findall(r"^#+ +(.+?) *$", FENCE.sub("", text), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").replace("*", "")
        slug = re.sub(r"[^\w\- ]", "", words.lower()).strip().replace(" ", "-")
        found.append(slug if slug not in found else f"{slug}-{found.count(slug)}")
    return found


def broken(page, text):
    """Links of a page that lead nowhere; links to other machines are not followed."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        anchors = slugs(there.read_text(encoding="utf-8") if path else text) if anchor else []
        if not there.exists() or (anchor and anchor not in anchors):
            yield target


def test_links_lead_somewhere():
    for page in PAGES:
        assert list(broken(page, page.read_text(encoding="utf-8"))) == [], named(page)


def test_links_that_lead_nowhere_are_seen():
    text = (
        "# One `code` & two\n[a](#one-code--two) [b](#three) [c](worth.md#what-it-depends-on)\n"
        "[d](worth.md#nothing) [e](none.md) [f](https://example.org) ```[g](none.md)```\n"
    )
    assert list(broken(DOCS / "index.md", text)) == ["#three", "worth.md#nothing", "none.md"]


def in_tables_of_contents():
    for page in DOCS.rglob("*.md"):
        for _, opening, body in FENCE.findall(page.read_text(encoding="utf-8")):
            if opening == "{toctree}":
                for line in body.splitlines():
                    if line and not line.startswith(":") and line != "self":
                        yield (page.parent / f"{line}.md").resolve()


def test_every_page_has_one_place_in_the_contents():
    """A new page wants a line in docs/index.md."""
    listed = list(in_tables_of_contents())
    assert sorted(listed) == sorted(set(DOCS.rglob("*.md")) - {DOCS / "index.md"})


GROUPS = ("figures", "fitting", "knowledge", "learning", "privacy", "scheduling", "testing")
RECORDS = {
    "planning": ("Assignment", "Comparison", "ComparisonRow"),
    "auditing": ("Audit", "BlackBox", "Finding"),
    "federation": (
        "DataSource",
        "Order",
        "Reply",
        "RoundsResult",
        "RunIncomplete",
        "RunResult",
        "SimulatedRecords",
        "Transport",
        "check_rounds",
        "check_run",
    ),
    "federation.checking": ("Difference", "Report"),
    "federation.flower.mod": ("age_dp_mod",),
    "federation.flower.strategy": ("AgedStrategy",),
    "federation.round_results": ("Round",),
    "federation.statement": ("ClientStatement", "Statement"),
    "readings": ("Columns", "Quality", "Readings", "infer_columns"),
    "process": ("JointLaw", "Process"),
    "loss": ("CostTables", "Estimate", "cost_tables"),
    "paper.bound": ("Bound",),
    "paper.schemes": ("SchemeRow",),
    "calibration": ("SlotTable", "slot_table"),
}


def public():
    """Every public name, by the path under which it is explained."""
    found = {}
    for name in aw.__all__:
        if not inspect.ismodule(getattr(aw, name)):
            found[f"agewise.{name}"] = getattr(aw, name)
    flat = {id(value) for value in found.values()}
    for group in GROUPS:
        module = getattr(aw, group)
        for name in module.__all__:
            if id(getattr(module, name)) not in flat:
                found[f"agewise.{group}.{name}"] = getattr(module, name)
    for group, names in RECORDS.items():
        module = importlib.import_module(f"agewise.{group}")
        found |= {f"agewise.{group}.{name}": getattr(module, name) for name in names}
    return found


def referred_to():
    """What the pages of the reference ask autodoc for."""
    for page in (DOCS / "api").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        yield from re.findall(r"^\.\. auto(?:class|function|exception):: (\S+)", text, re.M)
        constants = re.findall(r"^\.\. py:data:: (\S+)", text, re.MULTILINE)
        yield from (f"agewise.{page.stem}.{name}" for name in constants)
        asked = re.findall(r"^\.\. automodule:: (\S+)\n((?:   :.*\n)*)", text, re.MULTILINE)
        for module, options in asked:
            if ":members:" in options:
                left_out = re.findall(r":exclude-members: (.*)", options)
                skipped = left_out[0].split(", ") if left_out else []
                names = getattr(importlib.import_module(module), "__all__", ())
                yield from (f"{module}.{name}" for name in names if name not in skipped)


def test_the_reference_has_every_public_name():
    assert set(public()) - set(referred_to()) == set()


def test_every_public_name_is_explained():
    constants = set(constants_with_words())
    for name, value in public().items():
        if not inspect.isclass(value) and not inspect.isfunction(value):
            assert name.rpartition(".")[2] in constants, name
            continue
        words = inspect.getdoc(value)
        assert words, name
        assert not words.startswith(f"{value.__name__}("), f"{name}: the signature only"
        if dataclasses.is_dataclass(value):
            names = {one.name for one in dataclasses.fields(value) if not one.name.startswith("_")}
            assert names - explained_fields(value) == set(), name


def constants_with_words():
    """Constants of the package with words under them."""
    for path in (ROOT / "src" / "agewise").rglob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for one, after in pairwise(body):
            targets = getattr(one, "targets", [getattr(one, "target", None)])
            text = getattr(getattr(after, "value", None), "value", None)
            if isinstance(text, str):
                yield from (getattr(target, "id", "") for target in targets)


def explained_fields(kind):
    """Fields with words of their own, or in the text of their class."""
    found = set()
    for one in kind.__mro__:
        if one.__module__.startswith("agewise"):
            found |= with_words(textwrap.dedent(inspect.getsource(one)))
    return found


def with_words(source):
    """Fields of a class that have words: in its text, beside or above them (#:), or below."""
    lines = source.splitlines()
    body = ast.parse(source).body[0].body
    found = set(re.findall(r"`(\w+)`", getattr(getattr(body[0], "value", None), "value", "")))
    for one, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(one, ast.AnnAssign):
            below = isinstance(getattr(getattr(after, "value", None), "value", None), str)
            beside = "  #: " in lines[one.end_lineno - 1]
            above = lines[one.lineno - 2].strip().startswith("#: ")
            if below or beside or above:
                found.add(one.target.id)
    return found


SHOWN = """
class Shown:
    'Only `first` is told of here.'

    first: int
    second: int  #: beside it
    #: above it
    third: int
    fourth: int
    'Below it.'
    fifth: int
    sixth: int = 0
"""


def test_a_field_without_words_is_seen():
    assert with_words(SHOWN) == {"first", "second", "third", "fourth"}


def command(words):
    """The command that words on a command line name, with what is left of them."""
    found = typer.main.get_command(app)
    rest = list(words)
    while rest and hasattr(found, "commands"):
        within = found.get_command(click.Context(found), rest[0])
        assert within is not None, f"no command {rest[0]}"
        found = within
        del rest[0]
    return found, rest


def shown_commands():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for _, opening, body in FENCE.findall(text):
            if opening in ("", "sh", "bash", "console"):
                for line in body.splitlines():
                    yield from ((page, part) for part in _commands(line.removeprefix("$ ")))
        for code in re.findall(r"`(agewise [^`]+)`", FENCE.sub("", text).replace("\n", " ")):
            yield page, re.sub(r"\|\S+", "", code)  # of several words the first


def _commands(line):
    for part in re.split(r"&&|\|", line):
        if part.strip().startswith("agewise "):
            yield part.strip()


def test_commands_that_are_shown_exist_with_their_options():
    shown = list(shown_commands())
    assert len(shown) > 100
    for page, line in shown:
        words = shlex.split(line, comments=True)[1:]
        if not words or words[0].startswith("-") or words[0] in ("...", "…"):
            continue
        found, rest = command(words)
        known = {name for one in found.params for name in (*one.opts, *one.secondary_opts)}
        known |= {"--help", "-h"}
        options = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
        assert options <= known, f"{page.name}: {line}"


def test_tables_that_are_shown_are_toml():
    shown = [
        body
        for page in PAGES
        for _, opening, body in FENCE.findall(page.read_text(encoding="utf-8"))
        if opening == "toml"
    ]
    assert shown
    for text in shown:
        assert tomllib.loads(text)


def cells(text):
    found = re.findall(r"^```\{code-cell\} ipython3\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [re.sub(r"\A---\n.*?^---\n", "", one, flags=re.MULTILINE | re.DOTALL) for one in found]


def test_the_notebook_runs():
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    space, shown = {}, []
    text = (DOCS / "notebook.md").read_text(encoding="utf-8")
    for cell in cells(text):
        tree = ast.parse("\n".join(x for x in cell.splitlines() if not x.startswith("%")))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "notebook", "exec"), space)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "notebook", "eval"), space)
            shown.append(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
    pyplot.close("all")
    assert len(cells(text)) > 15
    assert sum("<table" in str(one) for one in shown) >= 4
    assert space["report"].differences == ()


class Links(HTMLParser):
    """What a page has: ids, links that a reader may follow, and files that a browser fetches."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.fetched = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        has = dict(attrs)
        self.ids |= {has[key] for key in ("id", "name") if has.get(key)}
        if tag == "a" and has.get("href"):
            self.links.add(has["href"])
        elif has.get("href") or has.get("src"):
            self.fetched.add(has.get("href") or has.get("src"))


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_holds_together(tmp_path):
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "-d", str(tmp_path / "trees")]
    site = tmp_path / "site"
    done = subprocess.run(
        [*build, str(DOCS), str(site)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    assert len(pages) > 30
    for path, page in pages.items():
        for target in page.links | page.fetched:
            parts = urlsplit(target)
            if target in page.fetched:
                assert parts.scheme in ("", "data"), f"{path.name} fetches {target}"
                assert not parts.netloc, f"{path.name} fetches {target}"
            if parts.scheme or parts.netloc:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert there.exists(), f"{path.name} links to {target}"
            if parts.fragment and there in pages:
                assert unquote(parts.fragment) in pages[there].ids, f"{path.name}: {target}"
    for style in site.rglob("*.css"):
        text = re.sub(r"/\*.*?\*/", "", style.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert not re.search(r"url\(['\"]?(https?:)?//", text), f"{style.name} fetches"
    inventory = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    told = {line.split(" ")[0] for line in zlib.decompress(inventory).decode().splitlines()}
    assert set(public()) - told == set()
    commands = (site / "commands.html").read_text(encoding="utf-8")
    assert all(f">{name}<" in commands for name in ("--epsilon", "--on-missing", "schema"))
    notebook = (site / "notebook.html").read_text(encoding="utf-8")
    assert "<table" in notebook
    assert notebook.count('alt="') == notebook.count("<img ") == 3


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/index.md",
        "docs/notebook.md",
        "docs/tutorial.md",
        "docs/tutorial_beds.md",
        "docs/tutorial_readings.md",
        "docs/worth.md",
    ],
)
def test_invented_examples_say_so_and_london_stands_beside_them(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "made up" in text
    assert "London households" in text or "London readings" in " ".join(text.split())
    assert page == "docs/worth.md" or re.search(r"worth\.md(#on-real-readings)?\)", text)
