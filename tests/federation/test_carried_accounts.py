"""The account that a ledger carries on is made anew from its events wherever it is relied upon."""

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from planting import held, rewrite, with_less

import agewise as aw
import in_process
from agewise.federation import check_rounds, check_run
from agewise.privacy import Ledger, LedgerDamaged, ledger_file
from agewise.privacy.standing import Standing
from agewise.privacy.totals import promised_total
from parties import Accounts

ROUNDS = 6
CHAIN = aw.birth_death(0.05, 0.08, [1, 2, 3])
PLAN = aw.plan(
    aw.Problem(
        [aw.Client("north", CHAIN, samples=5), aw.Client("south", CHAIN, samples=7)],
        4,
        0.5,
        calibration="sharp",
        rounds=ROUNDS + 1,
        every=5,
    )
)


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    folder = tmp_path_factory.mktemp("intact") / "run"
    aw.run_rounds(PLAN, rounds=ROUNDS, folder=folder)
    return folder


@pytest.fixture(autouse=True)
def _another_process(monkeypatch):
    """What this process has seen of ledgers would find some of these faults by itself."""
    monkeypatch.setattr(ledger_file, "_SEEN", {})


@pytest.fixture
def run(intact, tmp_path):
    shutil.copytree(intact, tmp_path / "run")
    return tmp_path / "run"


def zeroed(events):
    return [*events[:-1], with_less(events[-1])]


def halved(events):
    return [*events[:-1], with_less(events[-1], 0.5)]


def earlier_too(events):
    return [*events[:-2], *(with_less(one, 0.999) for one in events[-2:])]


def backdated(events):
    return [*events[:-1], replace(events[-1], made_at="2020-01-01T00:00:00+00:00")]


def shortened(events):
    return events[:-1]


def commands(run, ledger):
    check = in_process.command("check", run, "--ledgers", run / "ledgers")
    audit = in_process.command("audit", run, "--draws", "0", "--ledgers", run / "ledgers")
    return check, audit, in_process.command("ledger", "verify", ledger)


def test_an_intact_run_passes(run):
    codes = [one.returncode for one in commands(run, run / "ledgers" / "north.ledger")]
    assert codes == [0, 0, 0]


@pytest.mark.parametrize(
    ("fault", "words", "of_the_file"),
    [
        (zeroed, "the account that it carries on is not that of its events", True),
        (halved, "the account that it carries on is not that of its events", True),
        (earlier_too, "the account that it carries on is not that of its events", True),
        (backdated, "when the run began", False),
        (shortened, "no ledger that holds this run", False),
    ],
)
def test_guarantee_planted_faults_end_with_exit_code_5(run, fault, words, of_the_file):
    """Every hash is made anew, so that the chain is whole."""
    ledger = run / "ledgers" / "north.ledger"
    rewrite(ledger, fault(held(ledger)))
    check, audit, verify = commands(run, ledger)
    assert check.returncode == 5, check.stderr
    assert words in check.stdout.replace("\n", " ")
    assert audit.returncode == 5
    assert verify.returncode == (2 if of_the_file else 0)
    assert not of_the_file or words in verify.stderr
    for opening in (Ledger, Ledger.read) if of_the_file else ():
        with pytest.raises(LedgerDamaged, match=words):
            opening(ledger)


def test_a_row_that_is_simply_gone_ends_with_exit_code_5(run):
    ledger = run / "ledgers" / "north.ledger"
    with closing(sqlite3.connect(ledger)) as database, database:
        database.execute("DELETE FROM events WHERE number = ?", (ROUNDS,))
    check, audit, verify = commands(run, ledger)
    assert [check.returncode, audit.returncode, verify.returncode] == [5, 5, 2]


def test_a_release_that_the_intact_ledger_refuses_does_not_go_through(run, monkeypatch):
    """The client's own limit lies between what one release tells and what all of them do."""
    path = run / "ledgers" / "north.ledger"
    with Ledger(path, witnessed=False) as ledger:
        *known, last = ledger.events()
    spent = promised_total(known, last, CHAIN, "present").aged
    assert last.classical_epsilon < 0.9 * spent
    policy = aw.Policy(max_aged_epsilon=(last.classical_epsilon + spent) / 2, promise="present")
    later = {"collect_at": last.collect_at + 5, "aggregate_at": last.aggregate_at + 5}
    new = replace(last, key="new", **later, account="")

    def release():
        with Ledger(path, witnessed=False) as ledger:
            ledger.release("new", lambda _: new, policy, CHAIN)

    with pytest.raises(aw.BudgetExceeded):
        release()
    rewrite(path, zeroed(held(path)))
    with pytest.raises(LedgerDamaged, match="the account that it carries on"):
        release()
    monkeypatch.setattr(Standing, "covers", lambda *_: True)
    release()  # it is that comparison which has refused it


def without_processes(path):
    """As ledgers were written before they held what their accounts rest on."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM meta WHERE key LIKE 'process %'")


def test_older_ledgers_are_made_anew_with_the_process_of_the_run_or_release(run):
    path = run / "ledgers" / "north.ledger"
    without_processes(path)
    verify = in_process.command("ledger", "verify", path)
    assert verify.returncode == 0
    assert f"Not made anew: accounts that rest on process {CHAIN.fingerprint}" in verify.stderr
    assert not check_rounds(run, run / "ledgers").differences
    rewrite(path, zeroed(held(path)))
    assert in_process.command("ledger", "verify", path).returncode == 0
    assert check_rounds(run, run / "ledgers").differences
    new = replace(held(path)[-1], key="new", aggregate_at=44, collect_at=40, account="")
    policy = aw.Policy(max_aged_epsilon=9.0, promise="present")
    with Ledger(path, witnessed=False) as ledger:
        with pytest.raises(LedgerDamaged, match="the account that it carries on"):
            ledger.release("new", lambda _: new, policy, CHAIN)
        assert ledger.find("new") is None


def test_a_process_that_was_changed_is_noticed(run):
    path = run / "ledgers" / "north.ledger"
    other = aw.birth_death(0.45, 0.45, [1, 2, 3])
    with closing(sqlite3.connect(path)) as database, database:
        key, text = database.execute(
            "SELECT key, value FROM meta WHERE key LIKE 'process %'"
        ).fetchone()
        document = {**json.loads(text), "transition": other.transition.tolist()}
        database.execute("UPDATE meta SET value = ? WHERE key = ?", (json.dumps(document), key))
    with pytest.raises(LedgerDamaged, match="a process that it holds"):
        Ledger.read(path)


def test_accounts_of_many_are_made_anew_once_for_those_alike(tmp_path, monkeypatch):
    clients = [aw.Client(f"c{i}", CHAIN, samples=5) for i in range(30)]
    problem = aw.Problem(clients, 4, 0.5, calibration="sharp", rounds=3, every=5)
    where = tmp_path / "all.ledger"
    aw.run_rounds(aw.plan(problem), folder=tmp_path / "run", ledgers=where)
    monkeypatch.setattr(ledger_file, "_SEEN", {})
    reckoned = []
    real = Standing.after

    def counted(self, event, process):
        reckoned.append(event.key)
        return real(self, event, process)

    monkeypatch.setattr(Standing, "after", counted)
    with Accounts.read(where) as accounts:
        assert len(accounts.events()) == 90
    assert len(reckoned) == 3
    with Accounts(where):
        assert len(reckoned) == 3  # what this process has seen is not reckoned again


def test_one_forged_account_among_many_is_noticed(tmp_path):
    clients = [aw.Client(f"c{i}", CHAIN, samples=5) for i in range(3)]
    problem = aw.Problem(clients, 4, 0.5, calibration="sharp", rounds=2, every=5)
    where = tmp_path / "all.ledger"
    aw.run_rounds(aw.plan(problem), folder=tmp_path / "run", ledgers=where)
    with Accounts(where) as accounts:
        (one,) = [e for e in accounts.events() if e.client == "c1" and e.number == 2]
        forged = with_less(one, 0.5)
        with closing(sqlite3.connect(tmp_path / "again.ledger")) as copy:
            accounts._database.backup(copy)
    again = tmp_path / "again.ledger"
    with closing(sqlite3.connect(again)) as database, database:
        database.execute(
            "UPDATE events SET account = ? WHERE client = 'c1' AND number = 2", (forged.account,)
        )
    reseal(again)
    with pytest.raises(LedgerDamaged, match="the account that it carries on"):
        Accounts.read(again)


def reseal(path):
    """Make every hash of a file of many anew."""
    from agewise.privacy.rows import COLUMNS, GENESIS, folded, hash_of

    names = ", ".join(COLUMNS)
    with closing(sqlite3.connect(path)) as database, database:
        rows = database.execute(f"SELECT place, {names} FROM events ORDER BY place").fetchall()
        last, seal = {}, GENESIS
        for place, *values in rows:
            row = dict(zip(COLUMNS, values, strict=True))
            row.pop("previous"), row.pop("hash")
            row["private"] = bool(row["private"])
            metric = json.loads(row["metric"])
            row["metric"] = None if metric is None else tuple(map(tuple, metric))
            event = aw.privacy.Event(**row)
            previous = last.get(event.client, GENESIS)
            own = hash_of(event, previous)
            last[event.client] = own
            seal = folded(seal, own)
            database.execute(
                "UPDATE events SET hash = ?, previous = ? WHERE place = ?", (own, previous, place)
            )
            database.execute("UPDATE heads SET hash = ? WHERE client = ?", (own, event.client))
        head = f"{len(rows)} {seal}"
        database.execute("UPDATE meta SET value = ? WHERE key = 'head'", (head,))


def test_the_releases_of_a_run_begin_when_it_does(tmp_path):
    folder = tmp_path / "run"
    aw.run(aw.plan(aw.scenarios.london()), folder=folder, rng=np.random.default_rng(0))
    assert not check_run(folder).differences
    settings = json.loads((folder / "run.json").read_text())
    settings["started"] += 3600.0
    (folder / "run.json").write_text(json.dumps(settings))
    assert all("made_at" in one.where for one in check_run(folder).differences)
    assert len(check_run(folder).differences) == 3
