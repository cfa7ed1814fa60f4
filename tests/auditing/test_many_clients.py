"""Runs of so many clients that one file holds their ledgers and one journal entry their uploads."""

import json

import pytest

import agewise as aw
from agewise.federation.ledgers import MANY

CLIENTS = MANY + 5
SURE = 1e-9
"""The probability that an honest run is accused: its noise takes no seed."""
CHAIN = aw.birth_death(0.2, 0.3, [1, 2, 3])


def crowd(count=CLIENTS, **choices):
    clients = [aw.Client(f"c{i}", CHAIN, samples=5) for i in range(count)]
    return aw.plan(aw.Problem(clients, 4, 0.5, **choices))


def test_a_run_of_many_clients_is_audited_and_a_changed_upload_is_found(tmp_path):
    folder = tmp_path / "run"
    aw.run(crowd(), folder=folder)
    journal = folder / "journal.jsonl"
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    (alike,) = (one for one in entries if one["input"] == "received alike")
    found = aw.audit(str(folder), draws=0, error=SURE)
    assert not found.refuted
    claims = [one.claim for one in found.findings]
    assert claims.count("what left is what was recorded") == CLIENTS
    assert claims.count("total ε about slot 4, 1 release") == CLIENTS
    assert next(one for one in found.findings if one.draws).draws == CLIENTS

    alike["values"][7] = "[1.5]"
    journal.write_text("".join(json.dumps(one) + "\n" for one in entries))
    refuted = [one for one in aw.audit(str(folder), draws=0).findings if one.refuted]
    assert "client 'c7'" in {one.subject for one in refuted}


@pytest.mark.parametrize("many", [7, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("named", [False, True])
def test_rounds_of_many_clients_are_audited(tmp_path, monkeypatch, named, many):
    monkeypatch.setattr("agewise.federation.ledgers.MANY", many)
    where = tmp_path / "all.ledger" if named else None
    plan = crowd(many + 5, rounds=2, every=10, calibration="sharp")
    aw.run_rounds(plan, folder=tmp_path / "rounds", ledgers=where)
    assert named or (tmp_path / "rounds" / "clients.ledger").is_file()
    found = aw.audit(str(tmp_path / "rounds"), draws=0, error=SURE)
    assert not found.refuted
    totals = [one for one in found.findings if one.claim.endswith("2 releases")]
    assert len(totals) == many + 5
