"""Old copies, deleted ledgers, copies in use and swapped ones: each is refused in its own words."""

import json
import os
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

import agewise as aw
import in_process
from agewise.privacy import Event, Ledger, Policy, ledger_file
from agewise.privacy.accounts import Accounts
from agewise.privacy.witness import (
    LedgerForked,
    LedgerReplaced,
    LedgerRolledBack,
    Witness,
)

CHAIN = aw.birth_death(0.2, 0.3, [1, 2, 3])


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("AGEWISE_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(ledger_file, "_SEEN", {})
    return tmp_path / "state"


def event(key, client="north"):
    return Event(
        key=key,
        client=client,
        collect_at=3,
        aggregate_at=7,
        classical_epsilon=0.5,
        aged_epsilon=0.4,
        sensitivity=1.0,
        scale=2.0,
        private=True,
        mixing="exact",
        fingerprint=CHAIN.fingerprint,
        made_at="2026-01-01T00:00:00+00:00",
        payload=os.urandom(8),
    )


def put(path, *keys, client="north"):
    with Ledger(path) as ledger:
        for key in keys:
            ledger.release(key, lambda _, key=key: event(key, client), Policy(), CHAIN)


def put_many(path, *keys):
    with Accounts(path) as accounts:
        for key in keys:
            with accounts.together():
                payloads = {name: os.urandom(8) for name in ("a", "b", "c")}
                if key == "1":
                    accounts.begin_with(event(key, "a"), payloads)
                else:
                    last = {e.client: e for e in accounts.events()}
                    accounts.go_on_with(event(key, "a"), payloads, last)


@pytest.mark.parametrize("write", [put, put_many])
def test_guarantee_an_old_copy_is_refused(tmp_path, write):
    path, copy = tmp_path / "north.ledger", tmp_path / "copy"
    write(path, "1", "2")
    shutil.copy(path, copy)
    write(path, "3")
    shutil.copy(copy, path)
    with pytest.raises(LedgerRolledBack, match=r"old copy: it has \d events, and had \d"):
        write(path, "4")
    told = {}
    for words in ("verify", "show", "show --json", "export", "export --csv"):
        done = in_process.command("ledger", *words.split(), path)
        assert (done.returncode, "agewise ledger restore" in done.stderr) == (6, True), words
        told[words] = done.stdout
    assert told["verify"] == ""
    assert "classical ε in all" in told["show"]  # what it still holds is shown all the same
    held = len(json.loads(told["show --json"]))
    assert held == len(json.loads(told["export"])) == (2 if write is put else 6)
    assert len(told["export --csv"].splitlines()) == 1 + held


@pytest.mark.parametrize("write", [put, put_many])
def test_guarantee_a_deleted_ledger_is_not_begun_anew(tmp_path, write):
    path = tmp_path / "north.ledger"
    write(path, "1")
    path.unlink()
    with pytest.raises(LedgerReplaced, match="is gone: what it held was released"):
        write(path, "1")
    assert not path.exists()
    assert LedgerReplaced.exit_code == 8


@pytest.mark.parametrize("write", [put, put_many])
def test_guarantee_two_copies_are_not_both_in_use(tmp_path, write):
    path, copy = tmp_path / "north.ledger", tmp_path / "copy.ledger"
    write(path, "1")
    shutil.copy(path, copy)
    with pytest.raises(LedgerForked, match=r"is a copy of .*north\.ledger, which is in use"):
        write(copy, "2")
    write(path, "2")
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(LedgerRolledBack):  # it has been moved, but this is not what it was
        write(copy, "2")


@pytest.mark.parametrize("write", [put, put_many])
def test_guarantee_copies_that_both_went_on_are_told_apart_from_old_ones(
    tmp_path, monkeypatch, write
):
    path, copy = tmp_path / "north.ledger", tmp_path / "copy.ledger"
    write(path, "1")
    shutil.copy(path, copy)
    write(path, "2")
    with monkeypatch.context() as another_machine:
        another_machine.setenv("AGEWISE_STATE", str(tmp_path / "other"))
        write(copy, "3", "4")
    copy.replace(path)
    with pytest.raises(LedgerForked, match="both written to: its event"):
        write(path, "5")
    for command in ("verify", "show", "export"):
        assert in_process.command("ledger", command, path).returncode == 7


def test_guarantee_swapped_ledgers_are_refused(tmp_path):
    one, two = tmp_path / "north.ledger", tmp_path / "south.ledger"
    put(one, "1")
    put(two, "1", client="south")
    one.rename(tmp_path / "aside")
    two.rename(one)
    (tmp_path / "aside").rename(two)
    for path in (one, two):
        with pytest.raises(LedgerReplaced, match="another one than the one that was here"):
            Ledger(path)


def test_a_ledger_may_be_ahead_of_its_witness(tmp_path, monkeypatch):
    """As after a power cut between the two."""
    path = tmp_path / "north.ledger"
    put(path, "1")
    with monkeypatch.context() as off:
        off.setattr(Witness, "note", lambda *_: None)
        put(path, "2")
    put(path, "3")
    with Ledger(path) as ledger:
        assert Witness().of(ledger._id()).number == 3


def test_what_cannot_be_remembered_after_the_commit_is_recorded_all_the_same(tmp_path, state):
    path = tmp_path / "north.ledger"
    with Ledger(path) as ledger:
        put_aside = state.rename(tmp_path / "away")
        state.write_text("in the way")
        ledger.release("1", lambda _: event("1"), Policy(), CHAIN)
    with pytest.raises(aw.InvalidInput, match=r"witness is .*Name another one with AGEWISE_STATE"):
        Ledger(path)
    state.unlink()
    put_aside.rename(state)
    put(path, "2")


def test_a_ledger_may_be_moved(tmp_path):
    path, moved = tmp_path / "north.ledger", tmp_path / "there" / "north.ledger"
    put(path, "1")
    moved.parent.mkdir()
    path.rename(moved)
    put(moved, "2")
    put(path, "1")  # nothing is remembered there any more


def test_the_same_file_by_two_names_is_one_ledger(tmp_path):
    path, other = tmp_path / "north.ledger", tmp_path / "other.ledger"
    put(path, "1")
    other.symlink_to(path)
    put(other, "2")
    hard = tmp_path / "hard.ledger"
    hard.hardlink_to(path)
    put(hard, "3")


def test_an_older_ledger_gets_an_id_when_it_is_first_used(tmp_path):
    path = tmp_path / "north.ledger"
    put(path, "1")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM meta WHERE key = 'id'")
    with pytest.raises(LedgerReplaced):
        Ledger(path)
    assert in_process.command("ledger", "forget", path).returncode == 0
    put(path, "2")
    assert in_process.command("ledger", "forget", tmp_path / "never").returncode == 2


def test_what_is_remembered_lies_elsewhere_and_says_nothing_of_records(tmp_path, state):
    path = tmp_path / "ledgers" / "north.ledger"
    path.parent.mkdir()
    put(path, "1", "2", "3")
    files = list(state.rglob("*"))
    assert len([one for one in files if one.is_file()]) == 2
    assert os.listdir(path.parent) == ["north.ledger"]
    text = "".join(one.read_text() for one in files if one.is_file())
    assert "0.5" not in text
    assert len(text) < 400


def test_one_note_for_each_transaction_of_many_clients(tmp_path, monkeypatch):
    noted = []
    real = Witness.note

    def counted(self, *told):
        noted.append(told[2][0])
        real(self, *told)

    monkeypatch.setattr(Witness, "note", counted)
    put_many(tmp_path / "all.ledger", "1", "2")
    assert noted == [0, 3, 6]


@pytest.mark.parametrize("many", [False, True])
def test_a_run_on_an_old_copy_ends_before_anything_is_released(tmp_path, many):
    plan = aw.plan(aw.scenarios.london())
    kept = tmp_path / "ledgers" / ("all.ledger" if many else "")
    kept.parent.mkdir(exist_ok=True)
    policy = aw.Policy(9.0)
    aw.run(plan, ledgers=kept, policy=policy, folder=tmp_path / "1")
    before = tmp_path / "before"
    shutil.copytree(tmp_path / "ledgers", before)
    aw.run(plan, ledgers=kept, policy=policy, starts_at=100, folder=tmp_path / "2")
    shutil.rmtree(tmp_path / "ledgers")
    with pytest.raises(LedgerReplaced):
        aw.run(plan, ledgers=kept, policy=policy, starts_at=200)
    shutil.copytree(before, tmp_path / "ledgers")
    with pytest.raises(LedgerRolledBack):
        aw.run(plan, ledgers=kept, policy=policy, starts_at=200)


def test_ledgers_in_the_folder_of_a_run_come_and_go_with_it(tmp_path, state):
    problem = aw.scenarios.for_ever()
    for _ in range(2):
        aw.run(aw.plan(aw.scenarios.london()), folder=tmp_path / "run")
        shutil.rmtree(tmp_path / "run")
        aw.run_rounds(aw.plan(problem), rounds=2, folder=tmp_path / "rounds")
        shutil.rmtree(tmp_path / "rounds")
    aw.run_rounds(aw.plan(problem), np.random.default_rng(0), rounds=1)
    assert not state.exists()


def test_the_folder_is_the_users_own_by_default(monkeypatch, tmp_path):
    monkeypatch.delenv("AGEWISE_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert Witness().folder == tmp_path / "xdg" / "agewise" / "ledgers"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Witness().folder == tmp_path / ".local" / "state" / "agewise" / "ledgers"
