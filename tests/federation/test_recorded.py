"""Runs on recorded readings: what is averaged, what is refused, what is left of a budget."""

import numpy as np
import polars as pl
import pytest

import agewise as aw
from parties import load_readings

PROBLEM = aw.scenarios.london()
PLAN = aw.plan(PROBLEM)
A = PROBLEM.aggregate_at


def readings(path, rows=None, **more):
    rng = np.random.default_rng(0)
    if rows is None:
        rows = [
            {"client": c.name, "slot": t, "value": float(v)}
            for c in PROBLEM.clients
            for t in range(1, A + 1)
            for v in rng.choice(c.process.states, c.samples, p=c.law)
        ]
    frame = pl.DataFrame(rows)
    frame.write_parquet(path) if path.suffix == ".parquet" else frame.write_csv(path)
    return path


@pytest.mark.parametrize("name", ["r.csv", "r.parquet"])
def test_recorded_readings_are_what_is_averaged(tmp_path, name):
    path = readings(tmp_path / name)
    found = load_readings(path, A)
    result = aw.run(PLAN, folder=tmp_path / "run", sources=path, ledgers=tmp_path / "ledgers")
    assert result.realised_loss is None
    assert not result.clipped
    truth = sum(
        w * found[c.name].collect(t, 100).mean()
        for w, c, t in zip(PROBLEM.weights, PROBLEM.clients, PLAN.collect_at, strict=True)
    )
    spread = np.sqrt(
        sum((w * 2**0.5 * s) ** 2 for w, s in zip(PROBLEM.weights, PLAN.noise_scales, strict=True))
    )
    assert abs(result.model - truth) < 12 * spread
    assert (tmp_path / "ledgers" / "client 1.ledger").exists()


def test_readings_off_the_states_are_moved_and_counted_but_not_recorded(tmp_path):
    rows = [
        {"client": c.name, "slot": t, "value": 1e6 if i < 3 else 50.0}
        for c in PROBLEM.clients
        for t in range(1, A + 1)
        for i in range(c.samples)
    ]
    path = readings(tmp_path / "r.csv", rows)
    result = aw.run(PLAN, folder=tmp_path / "run", sources=path, ledgers=tmp_path / "ledgers")
    assert result.clipped == {c.name: 3 for c in PROBLEM.clients}
    assert "clipped" not in (tmp_path / "run" / "record.json").read_text()
    assert abs(result.model - (50 + 0.03 * 150)) < 200  # each counts as 200, not as a million


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("client,slot\na,1\n", "the columns client, slot, value"),
        ("client,slot,value\nclient 1,1,x\n", "line 2 of .*value x"),
        ("client,slot,value\nclient 1,1,5\nclient 1,one,5\n", "line 3 of .*slot one"),
        ("client,slot,value\nclient 1,1,nan\n", "finite number"),
        ("client,slot,value\nclient 1,1,inf\n", "finite number"),
        ("client,slot,value\n,1,5\n", "a name"),
        ("client,slot,value\n", "without rows"),
        ("", "r.csv"),
        (
            "client,slot,value\nclient 1,1,20\n",
            "1 records|missing; allowed: readings for every client",
        ),
    ],
)
def test_bad_readings_are_refused_before_anything_is_released(tmp_path, text, words):
    path = tmp_path / "r.csv"
    path.write_text(text)
    with pytest.raises(aw.InvalidInput, match=words):
        aw.run(PLAN, folder=tmp_path / "run", sources=path, ledgers=tmp_path / "ledgers")
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "ledgers").exists()


def test_files_that_are_no_readings(tmp_path):
    cases = {
        "missing.csv": "an existing file",
        "folder.csv": "an existing file",
        "odd.txt": ".csv or .parquet",
        "broken.parquet": "a Parquet file",
    }
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "odd.txt").write_text("x")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 not really")
    for name, words in cases.items():
        with pytest.raises(aw.InvalidInput, match=words):
            aw.run(PLAN, sources=tmp_path / name, ledgers=tmp_path / "ledgers")


def test_real_records_need_a_ledger_that_stays(tmp_path):
    with pytest.raises(aw.InvalidInput, match="from run to run"):
        aw.run(PLAN, folder=tmp_path / "run", sources=readings(tmp_path / "r.csv"))


def test_a_second_run_on_the_same_ledgers_is_over_budget(tmp_path):
    path, ledgers = readings(tmp_path / "r.csv"), tmp_path / "ledgers"
    aw.run(PLAN, sources=path, ledgers=ledgers)
    with pytest.raises(aw.BudgetExceeded, match="remains"):
        aw.run(PLAN, sources=path, ledgers=ledgers)
    # Much later the old releases have aged, and a policy with room lets the run pass.
    later = aw.run(
        PLAN,
        sources=path,
        ledgers=ledgers,
        starts_at=500,
        policy=aw.Policy(max_aged_epsilon=0.11),
    )
    assert all(row.releases == 2 for row in later.statement.clients)
    with pytest.raises(aw.BudgetExceeded):  # what goes on without is still a refusal to itself
        aw.run(PLAN, sources=path, ledgers=ledgers, starts_at=501)


def test_over_budget_clients_are_left_out_where_the_run_may_go_on(tmp_path):
    path, ledgers = readings(tmp_path / "r.csv"), tmp_path / "ledgers"
    policy = aw.Policy(max_classical_epsilon=0.5)
    result = aw.run(PLAN, sources=path, ledgers=ledgers, policy=policy, on_missing="renormalise")
    over = {a.client for a in PLAN.assignments if a.classical_epsilon > 0.5}
    assert over
    assert result.missing == dict.fromkeys(over, "budget")
