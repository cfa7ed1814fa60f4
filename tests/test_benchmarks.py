"""Benchmarks record what they measured, and the docs show what was recorded."""

import json

import pytest
from benchmarks import recording
from benchmarks.__main__ import available, main

PAGES = [recording.ROOT / "README.md", *sorted((recording.ROOT / "docs").glob("*.md"))]


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "RESULTS", tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_of_the_docs_are_those_recorded(page):
    text = page.read_text(encoding="utf-8")
    assert recording.with_tables(text) == text, "run `make figures`"
    assert len(recording.MARKED.findall(text)) == text.count("<!-- benchmark:")


def test_a_table_that_was_not_recorded_is_seen(results):
    recording.Recording("speed").write({"runs": [{"": "ours", "ratio": 2.0, "seconds": 1234567}]})
    page = "<!-- benchmark: speed.runs -->\n| by hand |\n<!-- end -->\nAfter.\n"
    written = recording.with_tables(page)
    assert "|  | ratio | seconds |\n| --- | --- | --- |\n| ours | 2 | 1,234,567 |\n" in written
    assert written.endswith("<!-- end -->\nAfter.\n")
    assert recording.with_tables(written) == written
    with pytest.raises(KeyError, match=r"speed\.walks"):
        recording.with_tables(page.replace("runs", "walks"))


def test_a_file_says_where_when_and_on_what(results):
    file = recording.Recording("speed").write({"runs": []})
    document = json.loads(file.read_text(encoding="utf-8"))
    assert set(document) == {
        *("benchmark", "date", "commit", "changed_since", "load_at_start"),
        *("machine", "seconds", "tables"),
    }
    assert set(document["machine"]) == {"cores", "cpu", "python", "numpy", "platform"}


def test_what_cannot_be_written_leaves_the_file_as_it_was(results):
    file = recording.Recording("speed").write({"runs": [{"ratio": 1}]})
    before = file.read_bytes()
    with pytest.raises(TypeError, match="no plain cell"):
        recording.Recording("speed").write({"runs": [{"ratio": object()}]})
    assert file.read_bytes() == before
    assert list(results.iterdir()) == [file]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("holds", "holds"),
        (30_000_000, "30,000,000"),
        (0.0, "0"),
        (1.284e-8, "1.3e-8"),
        (5317.25, "5,317"),
        (8.5432, "8.54"),
        (3e7, "3.0e7"),
    ],
)
def test_numbers_are_shown_with_three_digits(value, shown):
    assert recording.cell(value) == shown


def test_an_unknown_benchmark_is_refused_before_any_is_run(capsys):
    assert main(["mixing", "speed"]) == 2
    told = capsys.readouterr()
    assert "'speed'" in told.err
    assert "scheduling" in told.err
    assert not told.out


def test_the_list_has_a_line_for_each(capsys):
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(available())
    assert "recording" not in available()
