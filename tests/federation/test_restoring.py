"""What the journals of runs prove is played into an old copy of a ledger again."""

import json
import shutil
from dataclasses import replace

import pytest
from planting import held

import agewise as aw
import in_process
from agewise.privacy import Ledger, LedgerReplaced, LedgerRolledBack
from agewise.privacy.accounts import read_ledger

CHAIN = aw.birth_death(0.2, 0.3, [1, 2, 3])
POLICY = aw.Policy(99.0)


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("AGEWISE_STATE", str(tmp_path / "state"))


def rounds_of(clients=3):
    crowd = [aw.Client(f"c{i}", CHAIN, samples=5) for i in range(clients)]
    return aw.plan(aw.Problem(crowd, 4, 0.5, calibration="sharp", rounds=4, every=5))


def facts(path):
    """What ledgers hold, but for when it was recorded."""
    with read_ledger(path) as ledger:
        events = sorted(ledger.events(), key=lambda one: (one.client, one.number))
    return [replace(one, made_at="", hash="") for one in events]


def restore(path, *runs):
    return in_process.command("ledger", "restore", path, *runs)


@pytest.mark.parametrize("many", [False, True])
def test_guarantee_an_old_copy_gets_back_what_the_runs_prove(tmp_path, many):
    kept, run = tmp_path / "kept", tmp_path / "run"
    kept.mkdir()
    where = kept / "all.ledger" if many else kept
    path = where if many else kept / "c1.ledger"
    plan = rounds_of()
    aw.run_rounds(plan, rounds=1, folder=run, ledgers=where)
    shutil.copy(path, tmp_path / "old")
    aw.resume_rounds(run, rounds=3)
    before = facts(path)
    shutil.copy(tmp_path / "old", path)
    with pytest.raises(LedgerRolledBack):
        aw.resume_rounds(run, rounds=4)
    done = restore(path, run)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{6 if many else 2} releases played in again" in done.stdout
    assert facts(path) == before
    aw.resume_rounds(run, rounds=4)
    assert in_process.command("check", run).returncode == 0
    assert "0 releases played in again" in restore(path, run).stdout


def test_a_deleted_ledger_is_made_anew_from_the_runs(tmp_path):
    run, kept = tmp_path / "run", tmp_path / "kept"
    aw.run_rounds(rounds_of(), rounds=2, folder=run, ledgers=kept)
    before = facts(kept / "c2.ledger")
    (kept / "c2.ledger").unlink()
    with pytest.raises(LedgerReplaced):
        aw.resume_rounds(run, rounds=3)
    assert restore(kept / "c2.ledger", run).returncode == 0
    assert facts(kept / "c2.ledger") == before
    aw.resume_rounds(run, rounds=3)


@pytest.mark.parametrize("noise", ["client", "server"])
def test_runs_of_one_round_prove_theirs_and_what_is_missing_is_said(tmp_path, noise):
    kept = tmp_path / "ledgers"
    plan = aw.plan(aw.scenarios.london().replace(noise=noise, mixing="exact"))
    for number in range(3):
        aw.run(
            plan,
            ledgers=kept,
            policy=POLICY,
            starts_at=100 * number,
            folder=tmp_path / str(number),
        )
        if number == 0:
            shutil.copytree(kept, tmp_path / "old")
    path = kept / "client 1.ledger"
    before = facts(path)
    shutil.copy(tmp_path / "old" / "client 1.ledger", path)
    done = restore(path, tmp_path / "2")
    assert done.returncode == 6
    assert "Still missing: 1 release that these runs do not prove" in done.stderr
    with pytest.raises(LedgerRolledBack):
        Ledger(path)
    shutil.copy(tmp_path / "old" / "client 1.ledger", path)
    assert restore(path, tmp_path / "2", tmp_path / "1").returncode == 0
    assert facts(path) == before
    for number in range(3):
        done = in_process.command("check", tmp_path / str(number), "--ledgers", kept)
        assert done.returncode == 0, done.stdout
    aw.run(plan, ledgers=kept, policy=POLICY, starts_at=300)


def test_a_journal_that_contradicts_the_ledger_is_refused(tmp_path):
    kept, run = tmp_path / "kept", tmp_path / "run"
    aw.run(aw.plan(aw.scenarios.london()), ledgers=kept, folder=run)
    path = kept / "client 1.ledger"
    mine = held(path)[0].payload.decode()
    other = json.dumps({**json.loads(mine), "value": [1.5]}, separators=(",", ":"))
    journal = run / "journal.jsonl"
    journal.write_text(journal.read_text().replace(json.dumps(mine), json.dumps(other)))
    assert restore(path, run).returncode == 7
    assert restore(tmp_path / "new.ledger", run).returncode == 2  # whose is it?
    assert restore(path, tmp_path / "nowhere").returncode == 2
