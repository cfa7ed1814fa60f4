"""Words that the project leaves behind: what is still there may only become less.

`tests/old_words.tsv` lists how often each of them stands in the prose of each file: the README and
the docs without their code, and what the package shows its users, which is its messages, its help
and its pages. A test fails where one more is written, and where one was taken out and is still
listed:

    python tests/test_old_words.py        lowers the list (it never raises it)
"""

import ast
import bisect
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix("").with_name("old_words.tsv")


@dataclass(frozen=True)
class Word:
    """A word of the list, where it is meant, and what to write in its place."""

    name: str
    pattern: str
    instead: str


# What is not meant is left alone: "told apart", "price" of a slot in a proof, "turn readings into".
WORDS = [
    Word("one draw", r"one draws?", "server-side noise"),
    Word("told", r"(?:un)?told(?! apart)", "published, stated, or say who learns what"),
    Word("heard", r"heard|unheard|hearing", "received (the estimate from them: the filter)"),
    Word("alike", r"(?:clients?|members) alike|alike clients?", "a group of clients"),
    Word("together", r"answer(?:s|ed)? together", "as a batch"),
    Word("standing", r"(?<!long-)standing(?! on| in)", "running account"),
    Word("histories", r"histories", "running accounts"),
    Word("for ever", r"for ?ever", "continual release, continually, or without an end"),
    Word("turn", r"(?:takes?|took|taking|its|their|between|of) turns?(?! out)", "period"),
    Word("rival", r"rivals?", "baseline"),
    Word("priced", r"priced|pricing|repriced", "evaluated"),
    Word("handover", r"handovers?", "report"),
    Word("leftover", r"leftovers?", "exclusions, or what remains"),
    Word("halves", r"halves", "drift, or the first and the second half"),
    Word("so many", r"so many", "the number, or how many"),
    Word("whoever", r"whoever", "who, or the one who"),
    Word("somebody", r"somebody", "an adversary, or who it is"),
    Word("said", r"said", "stated, or leave it out"),
    Word("reckon", r"reckon(?:s|ed|ing)?", "compute, count"),
]


def pattern(word):
    spaced = word.pattern.replace(" ", r"\s+")
    return re.compile(rf"(?<![\w-])(?:{spaced})(?!\w)", re.IGNORECASE)


PATTERNS = {word.name: pattern(word) for word in WORDS}
CODE = re.compile(
    r"^(?P<fence>```+|~~~+).*?^(?P=fence)[ \t]*$|`+[^`\n]+`+|\]\([^)\s]*\)|<!--.*?-->|https?://\S+",
    re.MULTILINE | re.DOTALL,
)


def prose(text):
    """The text of a page with blanks in the place of code, of links' targets and of comments."""
    return CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def help_of_commands(tree, path):
    """The docstrings that a command shows as its help."""
    if path.parent.name != "cli":
        return set()
    decorated = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.decorator_list)
    return {id(one.body[0].value) for one in decorated if isinstance(one.body[0], ast.Expr)}


def messages(source, path):
    """The texts of more than a word in code, and help: `(line, text)`; no other docstrings."""
    tree = ast.parse(source)
    shown = help_of_commands(tree, path)
    silent = {
        id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr) and id(n.value) not in shown
    }
    inside = {id(part) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for part in n.values}
    for node in ast.walk(tree):
        if id(node) in silent | inside:
            continue
        text = ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)
            text = "".join(map(str, parts))
        if re.search(r"\w\s+\w|\w\s+\{|\}\s+\w", text):
            yield node.lineno, text


def texts(root):
    """`(file, line, text)` of all that users read."""
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    for path in pages:
        yield path.relative_to(root).as_posix(), 1, prose(path.read_text())
    for path in sorted((root / "src").rglob("*.py")):
        for line, text in messages(path.read_text(), path):
            yield path.relative_to(root).as_posix(), line, text


def places(root):
    """Where old words stand: `(word, file)` and the lines, each as often as there is one in it."""
    found = {}
    for file, first, text in texts(root):
        ends = [place.start() for place in re.finditer("\n", text)]
        for name, one in PATTERNS.items():
            for hit in one.finditer(text):
                line = first + bisect.bisect_left(ends, hit.start())
                found.setdefault((name, file), []).append((line, " ".join(hit[0].split())))
    return {key: sorted(lines) for key, lines in found.items()}


def listed(path):
    """What is still allowed: `(word, file)` and how often."""
    rows = (line.split("\t") for line in path.read_text().splitlines() if line[:1] not in ("#", ""))
    return {(word, file): int(count) for word, file, count in rows}


def faults(found, allowed):
    """One line for each word too many, and for each line of the list that is too high."""
    instead = {word.name: word.instead for word in WORDS}
    for word, file in sorted({*found, *allowed}):
        there, most = found.get((word, file), []), allowed.get((word, file), 0)
        if len(there) > most:
            where = ", ".join(f"line {line} ({text!r})" for line, text in there)
            yield (
                f"{file}: {len(there)} of {word!r}, {most} allowed: {where}. "
                f"Write instead: {instead[word]}."
            )
        elif len(there) < most:
            yield (
                f"{file}: {len(there)} of {word!r}, the list says {most}. Lower it: "
                "python tests/test_old_words.py"
            )


def lowered(found, allowed):
    """The list with what is there, never above what it was."""
    less = {key: min(most, len(found.get(key, []))) for key, most in allowed.items()}
    return {key: count for key, count in less.items() if count}


def written(allowed):
    rows = (f"{word}\t{file}\t{count}\n" for (word, file), count in sorted(allowed.items()))
    return "# Old words that are still there: word, file, how often. It may only become less.\n" + (
        "".join(rows)
    )


def test_old_words_become_fewer():
    """See above for the list. Each line says where, and what to write instead."""
    told = list(faults(places(ROOT), listed(LIST)))
    assert not told, "\n" + "\n".join(told)


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "src" / "cli").mkdir(parents=True)
    (tmp_path / "README.md").write_text("A plan and\nits rivals, priced.\n")
    (tmp_path / "docs" / "page.md").write_text(
        "One.\n\n```python\nrivals = 1  # so many\n```\n`rival` [here](rival.md) is for\never.\n"
    )
    (tmp_path / "src" / "cli" / "run.py").write_text(
        '"""A docstring: rivals."""\n'
        "rivals = {'rival': 'for ever'}\n"
        "@command\ndef go(count):\n    '''Run it, for ever.'''\n"
        "    raise Error(f'{count} of so many rivals')\n"
    )
    return tmp_path


def test_words_are_found_in_prose_and_messages_and_not_in_code(tree):
    assert places(tree) == {
        ("rival", "README.md"): [(2, "rivals")],
        ("priced", "README.md"): [(2, "priced")],
        ("for ever", "docs/page.md"): [(6, "for ever")],
        ("for ever", "src/cli/run.py"): [(2, "for ever"), (5, "for ever")],
        ("so many", "src/cli/run.py"): [(6, "so many")],
        ("rival", "src/cli/run.py"): [(6, "rivals")],
    }


def test_a_word_more_a_new_file_and_a_list_that_is_too_high_are_faults(tree):
    found = places(tree)
    exactly = {key: len(lines) for key, lines in found.items()}
    assert not list(faults(found, exactly))
    for (word, file), lines in found.items():
        (more,) = faults(found, {**exactly, (word, file): len(lines) - 1})
        assert more.startswith(f"{file}: {len(lines)} of {word!r}, {len(lines) - 1} allowed: line")
        assert "Write instead: " in more
        (less,) = faults(found, {**exactly, (word, file): len(lines) + 1})
        assert "Lower it: python tests/test_old_words.py" in less
    (gone,) = faults(found, {**exactly, ("rival", "docs/gone.md"): 2})
    assert gone.startswith("docs/gone.md: 0 of 'rival', the list says 2")


def test_the_list_is_lowered_and_never_raised(tree, tmp_path):
    found = places(tree)
    allowed = {("rival", "README.md"): 5, ("told", "README.md"): 1}
    assert lowered(found, allowed) == {("rival", "README.md"): 1}
    (tmp_path / "list.tsv").write_text(written(allowed))
    assert listed(tmp_path / "list.tsv") == allowed


@pytest.mark.parametrize(
    "text",
    [
        "two values are told apart by it",
        "turn readings into a scenario; in turn, it turns out that",
        "the price of a slot, and the prices in a proof",
        "a long-standing rule, standing on one leg",
        "the law is given, and what happened is known",
        "slots that are alike; all add up together",
        "leave the law out",
    ],
)
def test_what_is_not_meant_is_left_alone(text):
    assert not [name for name, one in PATTERNS.items() if one.search(text)]


if __name__ == "__main__":
    LIST.write_text(written(lowered(places(ROOT), listed(LIST))))
