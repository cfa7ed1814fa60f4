"""Ledgers of earlier schemas are read by their columns: two numbers stood for two shapes each.

Each was made by the code of its time: `aw.run(aw.plan(aw.scenarios.london()), ledgers=...)` at the
commits a7dd337, 3a83986 (schema 3), dd38f50 (4), 93cd626 and 264533b (5), the ledger of client 1.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import agewise as aw
import in_process
from agewise.privacy import Ledger, LedgerDamaged

OLD = sorted((Path(__file__).parent / "old_ledgers").iterdir())


def test_every_shape_is_here():
    columns = set()
    for path in OLD:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            rows = database.execute("PRAGMA table_info(events)").fetchall()
            columns.add(tuple(row[1] for row in rows))
    assert len(columns) == len(OLD) == 5


@pytest.mark.parametrize("path", OLD, ids=lambda one: one.stem)
def test_what_an_older_ledger_holds_is_read(path, tmp_path):
    before = path.read_bytes()
    with Ledger.read(path) as ledger:
        (event,) = ledger.events()
        assert ledger.verify() == 1
        assert ledger.find(event.key) == event
    upload = json.loads(event.payload)
    assert (event.client, upload["client"], event.private) == ("client 1", "client 1", True)
    assert event.classical_epsilon == upload["classical_epsilon"] >= event.aged_epsilon
    assert event.scale == upload["noise_scale"]
    for command in ("show", "verify", "export"):
        assert in_process.command("ledger", command, path).returncode == 0
    assert path.read_bytes() == before
    copy = tmp_path / "client 1.ledger"
    shutil.copy(path, copy)
    with pytest.raises(aw.InvalidInput, match="agewise ledger show reads schemas 3 to 5"):
        Ledger(copy)


@pytest.mark.parametrize("path", OLD, ids=lambda one: one.stem)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET aged_epsilon = aged_epsilon / 2",
        "UPDATE events SET payload = x'00'",
        "UPDATE events SET previous = hash",
        "DELETE FROM events",
        "DELETE FROM meta WHERE key = 'head'",
        "UPDATE events SET number = 2",
    ],
)
def test_what_was_changed_in_it_is_noticed(path, statement, tmp_path):
    copy = tmp_path / "client 1.ledger"
    shutil.copy(path, copy)
    with closing(sqlite3.connect(copy)) as database, database:
        database.execute(statement)
    with pytest.raises(LedgerDamaged):
        Ledger.read(copy)
