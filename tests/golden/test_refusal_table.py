"""What is refused, by which name, class and exit code: calls, arguments, files, commands."""

from itertools import zip_longest

import refusals


def test_everything_in_the_table_is_refused_as_it_was(tmp_path):
    told, found = refusals.stored(), refusals.table(tmp_path)
    assert [pair for pair in zip_longest(told, found) if pair[0] != pair[1]] == []


def test_nothing_in_the_table_is_accepted():
    told = refusals.stored()
    assert {row["code"] for row in told} == {2, 3, 4}
    for kind, least in {"call": 250, "argument": 200, "file": 50, "command": 80}.items():
        rows = [row for row in told if kind in row]
        assert len(rows) >= least
        assert len(rows) == len({str(row) for row in rows})
