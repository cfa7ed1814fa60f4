"""One file with the accounts of many clients: the guarantees of a ledger, for each of them."""

import contextlib
import dataclasses
import json
import os
import sqlite3

import pytest

import agewise as aw
import in_process
from agewise.privacy import Event, Ledger, LedgerDamaged, Policy
from agewise.privacy.accounts import Accounts, read_ledger
from agewise.privacy.rows import GENESIS, hash_of, row_of, rows_alike

CHAIN = aw.birth_death(0.2, 0.3, [1, 2, 3])
NAMES = ["north", 'so"uth', "Île é", "west"]


def event(client="north", key="run", **changes):
    facts = {
        "key": key,
        "client": client,
        "collect_at": 1,
        "aggregate_at": 4,
        "classical_epsilon": 0.3,
        "aged_epsilon": 0.1,
        "sensitivity": 0.5,
        "scale": 1.5,
        "private": True,
        "mixing": "exact",
        "fingerprint": CHAIN.fingerprint,
        "made_at": "2026-01-01",
        "payload": f"{client} {key}".encode(),
        "metric": ((0.0, 1.0), (1.0, 0.0)),
    }
    return Event(**{**facts, **changes})


def filled(path):
    """Two events of each client: the first together, the second one by one."""
    with Accounts(path) as accounts:
        with accounts.together():
            accounts.begin_with(event(), {name: f"{name} run".encode() for name in NAMES})
        for name in NAMES:
            accounts.of(name).record("later", lambda _, name=name: event(name, "later"))


def test_guarantee_each_account_is_what_a_ledger_of_its_own_would_hold(tmp_path):
    filled(tmp_path / "all.ledger")
    with Accounts(tmp_path / "all.ledger") as accounts:
        assert accounts.verify() == 8
        assert accounts.clients() == sorted(NAMES)
        for number, name in enumerate(NAMES):
            with Ledger(tmp_path / f"{number}.ledger") as own:
                for key in ("run", "later"):
                    own.record(key, lambda _, name=name, key=key: event(name, key))
                assert accounts.of(name).events() == own.events()
                assert accounts.of(name).find("run") == own.find("run")
                assert accounts.of(name).known()[-1] == own.events()[-1]


def test_rows_of_many_are_those_of_each():
    draft = event(account='{"of": 3}', delta=1e-9, kind="gaussian")
    payloads = {name: name.encode() * 3 for name in NAMES}
    draft, before = dataclasses.replace(draft, number=2), {"north": "a" * 64}
    for name, row in zip(NAMES, rows_alike(draft, payloads, before), strict=True):
        one = dataclasses.replace(draft, client=name, payload=payloads[name])
        last = before.get(name, GENESIS)
        assert row == row_of(dataclasses.replace(one, hash=hash_of(one, last)), last)


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM events WHERE place = 3",
        "DELETE FROM events WHERE place = 8",
        "DELETE FROM events WHERE client = 'west'",
        "DELETE FROM heads WHERE client = 'west'",
        "UPDATE heads SET number = 1 WHERE client = 'west'",
        "UPDATE events SET classical_epsilon = 0.2 WHERE place = 2",
        "UPDATE events SET payload = x'00' WHERE place = 5",
        "UPDATE events SET client = 'east' WHERE client = 'west'",
        "UPDATE meta SET value = '7 ' || substr(value, 3) WHERE key = 'head'",
        "UPDATE events SET place = 100 WHERE place = 1",
        "UPDATE events SET place = CASE place WHEN 1 THEN 102 WHEN 2 THEN 101 ELSE place + 200 END",
    ],
)
def test_guarantee_what_was_changed_is_noticed(tmp_path, change):
    path = tmp_path / "all.ledger"
    filled(path)
    with sqlite3.connect(path) as database:
        database.execute(change)
    database.close()
    with pytest.raises(LedgerDamaged):
        Accounts(path)


def test_guarantee_a_whole_account_cannot_vanish(tmp_path):
    path = tmp_path / "all.ledger"
    filled(path)
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM events WHERE client = 'west'")
        database.execute("DELETE FROM heads WHERE client = 'west'")
        database.execute("UPDATE meta SET value = '6 ' || substr(value, 3) WHERE key = 'head'")
    database.close()
    with pytest.raises(LedgerDamaged, match="missing"):
        Accounts(path)


def test_events_cut_off_behind_an_open_file_are_noticed(tmp_path):
    path = tmp_path / "all.ledger"
    filled(path)
    with Accounts(path) as accounts:
        with sqlite3.connect(path) as database:
            database.execute("DELETE FROM events WHERE client = 'north' AND number = 2")
        database.close()
        with pytest.raises(LedgerDamaged):
            accounts.of("north").record("third", lambda _: event("north", "third"))
        with pytest.raises(LedgerDamaged):
            accounts.of("north").known()


def test_together_is_all_or_nothing(tmp_path):
    path = tmp_path / "all.ledger"
    with Accounts(path) as accounts:
        with pytest.raises(ZeroDivisionError), accounts.together():
            _ = accounts.begin_with(event(), {"a": b"1", "b": b"2"}), 1 / 0
        assert accounts.verify() == 0
        with accounts.together():
            accounts.begin_with(event(), {"a": b"1"})
            with pytest.raises(ZeroDivisionError):
                accounts.of("b").record("run", lambda _: 1 / 0)  # takes back its own part only
        assert [one.client for one in accounts.events()] == ["a"]
        with pytest.raises(LedgerDamaged), accounts.together():
            accounts.begin_with(event(), {"c": b"1", "a": b"2"})  # who has an account already
        assert accounts.clients() == ["a"]
        with pytest.raises(aw.InvalidInput, match="Nothing was released"):
            accounts.begin_with(event(), {"c": b"1"})


def test_a_budget_is_that_of_each_client(tmp_path):
    policy = Policy(max_classical_epsilon=0.5)
    with Accounts(tmp_path / "all.ledger") as accounts:

        def release(name, key):
            draft = event(name, key, metric=None)
            return accounts.of(name).release(key, lambda _: draft, policy, CHAIN)

        release("north", "run")
        release("south", "run")
        assert release("north", "run").number == 1
        with pytest.raises(aw.BudgetExceeded, match="north"):
            release("north", "again")
        with pytest.raises(aw.InvalidInput, match="south"):
            accounts.of("north").record("x", lambda _: event("south", "x"))
        assert accounts.verify() == 2


def test_two_that_have_the_file_open_see_each_other(tmp_path):
    path = tmp_path / "all.ledger"
    with Accounts(path) as one, Accounts(path) as other:
        with one.together():
            one.begin_with(event(), {"a": b"1"})
        assert other.begun(["a", "b"]) == {"a"}
        other.of("a").record("later", lambda known: event("a", "later", delta=0.1 * len(known)))
        assert [e.delta for e in one.of("a").events()] == [0.0, 0.1]
        one.verify()


def test_files_of_one_and_of_many_are_told_apart(tmp_path):
    filled(tmp_path / "all.ledger")
    with Ledger(tmp_path / "one.ledger") as ledger:
        ledger.record("run", lambda _: event())
    with read_ledger(tmp_path / "all.ledger") as many, read_ledger(tmp_path / "one.ledger") as one:
        assert (type(many), type(one)) == (Accounts, Ledger)
    with pytest.raises(aw.InvalidInput, match="those of many"):
        Ledger(tmp_path / "all.ledger")
    with pytest.raises(aw.InvalidInput, match="those of many"):
        Accounts(tmp_path / "one.ledger")
    assert os.stat(tmp_path / "all.ledger").st_mode & 0o077 == 0


def test_commands_show_one_account_or_all(tmp_path):
    path = tmp_path / "all.ledger"
    filled(path)
    run = in_process.command
    everybody = json.loads(run("ledger", "export", path).stdout)
    assert len(everybody) == 8
    own = json.loads(run("ledger", "export", path, "--client", 'so"uth').stdout)
    assert own == [row for row in everybody if row["client"] == 'so"uth']
    assert [row["number"] for row in own] == [1, 2]
    assert "8 events" in run("ledger", "verify", path).stdout
    events = [row for row in everybody if row["private"]]
    each = {}
    for row in events:
        each[row["client"]] = each.get(row["client"], 0.0) + row["classical_epsilon"]
    shown = run("ledger", "show", path).stdout
    assert f"in all: {max(each.values()):.6g}, of the client with the most" in " ".join(
        shown.split()
    )
    refused = run("ledger", "show", path, "--client", "nobody")
    assert refused.returncode == 2


@pytest.mark.parametrize("kind", [Ledger, Accounts])
def test_guarantee_a_file_with_a_trigger_is_refused(tmp_path, kind):
    """It could forget what is written to it, and would look whole."""
    path = tmp_path / "a.ledger"
    kind(path).close()
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TRIGGER t AFTER INSERT ON meta BEGIN DELETE FROM events; END")
    with pytest.raises(LedgerDamaged, match="trigger"):
        kind(path)
