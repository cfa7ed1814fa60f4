"""Records by client and slot: read by the reader that fits and back-tests use."""

import numpy as np
import polars as pl
import pytest

import agewise as aw
from agewise.readings import read_slots


def file(folder, text, **how):
    path = folder / "r.csv"
    path.write_text(text, **how)
    return path


def test_records_keep_their_order_within_client_and_slot(tmp_path):
    path = file(tmp_path, "value,client,slot\n3,a,1\n1,b,1\n2,a,1\n5,a,2\n9,a,11\n")
    found = read_slots(path, 10)
    assert list(found) == ["a", "b"]
    assert {slot: values.tolist() for slot, values in found["a"].items()} == {1: [3, 2], 2: [5]}


@pytest.mark.parametrize(
    "text",
    [
        "client;slot;value\na;1;1,5\n",
        "client\tslot\tvalue\na\t1\t1.5\n",
        "\ufeffclient, slot, value\n a , 1 , 1.5 \n\n",
        "client,slot,value\na,1,1.5\na,12,no number\n",
    ],
)
def test_other_separators_blanks_and_slots_that_do_not_count(tmp_path, text):
    assert read_slots(file(tmp_path, text, encoding="utf-8"), 10)["a"][1].tolist() == [1.5]


@pytest.mark.parametrize(
    ("text", "encoding", "words"),
    [
        ("client,slot,value\na,1,1\n", "utf-16", "UTF-16 text"),
        ("client,slot,value\nJosé,1,1\n", "latin-1", "byte 0xe9 in line 2"),
        ("client,slot,slot,value\na,1,1,1\n", "utf-8", "2 named 'slot'"),
        ("client,slot,value\na,1,1\na,1,1,7\n", "utf-8", "line 3 with 4 fields"),
        ('client,slot,value\n"a\nb",1,1\na,0.5,1\na,1,\n', "utf-8", r"line 4 .*like this: 2\."),
    ],
)
def test_what_cannot_be_read_is_told_by_line(tmp_path, text, encoding, words):
    with pytest.raises(aw.InvalidInput, match=words):
        read_slots(file(tmp_path, text, encoding=encoding), 10)


def test_many_blocks_give_what_one_gives(tmp_path):
    rng = np.random.default_rng(0)
    slot, value = rng.integers(1, 13, 300_000), rng.random(300_000)
    path = tmp_path / "r.parquet"
    frame = pl.DataFrame({"client": "a", "slot": slot, "value": value})
    frame.write_parquet(path, row_group_size=10_000)
    found = read_slots(path, 10)["a"]
    assert sorted(found) == list(range(1, 11))
    for number, values in found.items():
        assert values.tolist() == value[slot == number].tolist()


def test_a_file_that_cannot_be_opened_is_refused_in_words(tmp_path, monkeypatch):
    path = file(tmp_path, "client,slot,value\na,1,1\n")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(path), "open", refuse)
    with pytest.raises(aw.InvalidInput, match=r"Permission denied.*a readable file"):
        read_slots(path, 10)
