"""Readings that a scenario's model does not expect: its loss does not apply, and that is said."""

import json

import numpy as np
import pytest

import agewise as aw
from agewise.federation import check_run
from agewise.federation.result import unexpected

CHAIN = aw.birth_death(0.2, 0.2, [0, 10, 20])
LEVELLED = aw.Problem(
    [aw.Client(name, CHAIN, samples=20) for name in ("north", "south")],
    3,
    1.0,
    level=aw.Level([2.0, 4.0], 0.9),
)


class Readings:
    """Records that are `off` from the states; a reading of the client."""

    def __init__(self, off):
        self.off = off

    def check(self, slot, samples):
        pass

    def collect(self, slot, samples):
        states = CHAIN.states[np.arange(samples) % 3]
        return states + self.off


def ran(problem, off, folder):
    sources = {client.name: Readings(off) for client in problem.clients}
    plan = aw.evaluate(problem, [2, 3])
    return aw.run(plan, sources=sources, folder=folder / "run", ledgers=folder / "ledgers")


@pytest.mark.parametrize(
    ("level", "off", "odd"),
    [
        (None, 0.0, False),
        (None, 0.5, True),
        (LEVELLED.level, 0.5, False),  # within five standard deviations of 2
        (LEVELLED.level, 40.0, True),
        (LEVELLED.level, np.linspace(0.0, 1.0, 20), True),  # near states, but not by one level
    ],
)
def test_readings_beyond_the_model_are_noticed_and_said(tmp_path, level, off, odd):
    result = ran(LEVELLED.replace(level=level), off, tmp_path)
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    statement = (tmp_path / "run" / "statement.md").read_text()
    assert result.odd is odd
    assert (record.get("readings") == "odd") is odd
    assert ("The expected loss does not apply" in statement) is odd
    assert ("does not apply" in dict(result.facts())["expected loss"]) is odd
    checked = check_run(tmp_path / "run", tmp_path / "ledgers")
    assert checked.differences == ()
    assert checked.verified == 2
    assert any("readings" in told for told in checked.as_told) is odd


def test_the_word_cannot_be_taken_out(tmp_path):
    ran(LEVELLED.replace(level=None), 0.5, tmp_path)
    path = tmp_path / "run" / "record.json"
    record = json.loads(path.read_text())
    del record["readings"]
    path.write_text(json.dumps(record))
    found = check_run(tmp_path / "run", tmp_path / "ledgers").differences
    assert any("notes" in one.where or "statement" in one.where for one in found)


def test_no_count_leaves_the_client(tmp_path):
    ran(LEVELLED.replace(level=None), 0.5, tmp_path)
    files = list((tmp_path / "run").rglob("*.*"))
    assert {"record.json", "journal.jsonl"} <= {path.name for path in files}
    for path in files:
        assert b"clipped" not in path.read_bytes()


def test_simulated_records_are_as_modelled():
    assert not aw.run(aw.plan(LEVELLED), rng=np.random.default_rng(1)).odd


def test_states_of_measured_laws_stand_for_ranges():
    fitted = aw.scenarios.london_fitted()
    assert not unexpected(fitted, {fitted.clients[0].name: 50})
    assert unexpected(LEVELLED, {"north": 1})
    assert not unexpected(LEVELLED, {"north": 0})
