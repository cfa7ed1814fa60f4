"""A run's own documents against its ledgers: nothing in them can be changed unnoticed."""

import contextlib
import json
import shutil

import numpy as np
import pytest

import agewise as aw
from agewise.federation import check_rounds
from agewise.federation.checking import check_run, compared_page
from agewise.federation.handover import REPORT
from agewise.report.pages import without_looks
from agewise.testing import damaged

LONDON = aw.scenarios.london()


def finished(folder, **choices):
    problem = LONDON.replace(**choices.pop("problem", {}))
    with contextlib.suppress(aw.RunIncomplete):
        aw.run(aw.plan(problem), folder=folder, **choices)
    return folder


CASES = {
    "complete": {},
    "tight": {"problem": {"mixing": "exact", "calibration": "tight"}},
    "stand-in": {"rng": "seeded"},
    "failed": {"drop": ["client 2"]},
    "renormalised": {"drop": ["client 2"], "on_missing": "renormalise"},
    "replanned": {"drop": ["client 2"], "on_missing": "replan"},
    "one draw": {"problem": {"noise": "server", "estimator": "best"}},
    "one draw, renormalised": {
        "problem": {"noise": "server"},
        "drop": ["client 2"],
        "on_missing": "renormalise",
    },
    "one draw, failed": {"problem": {"noise": "server"}, "drop": ["client 2"]},
}


@pytest.fixture(params=CASES)
def run(request, tmp_path):
    choices = dict(CASES[request.param])
    if choices.get("rng") == "seeded":
        choices["rng"] = np.random.default_rng(1)
    return finished(tmp_path / request.param, **choices)


def differs(folder):
    try:
        return bool(check_run(folder).differences)
    except aw.InvalidInput:
        return True


def test_a_run_as_it_was_written_follows_from_its_ledgers(run):
    report = check_run(run)
    assert not report.differences
    assert not report.as_told
    assert report.compared > 100


@pytest.mark.parametrize("rounds", [1, 3])
def test_honest_runs_with_gaussian_noise_by_the_server_follow_from_their_ledgers(tmp_path, rounds):
    """Clients state the larger of OpenDP's ε and ours, and so does whoever checks them."""
    chains = [aw.birth_death(0.1 + 0.05 * k, 0.2, [10.0, 20.0, 50.0]) for k in range(3)]
    problem = aw.Problem(
        [aw.Client(f"c{k}", one, samples=20 + 10 * k) for k, one in enumerate(chains)],
        aggregate_at=4,
        epsilon=0.7,
        delta=1e-5,
        mechanism="gaussian",
        noise="server",
        estimator="plain",
        mixing="any_prior",
        rounds=rounds,
        every=None if rounds == 1 else 4,
    )
    start = aw.run if rounds == 1 else aw.run_rounds
    start(aw.plan(problem), folder=tmp_path / "run", policy=aw.Policy(max_delta=0.5))
    check = check_run if rounds == 1 else check_rounds
    report = check(tmp_path / "run")
    assert not report.differences, report.differences[0]
    assert report.compared > 100


WHOLE = ("complete", "one draw")
"""Runs of which every leaf and line is tried; what compares them is the same in the others."""
every = pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])


@every
def test_guarantee_no_leaf_of_the_record_can_be_changed(run, every):
    path = run / "record.json"
    document = json.loads(path.read_text())
    unnoticed = []
    changes = list(damaged(document))
    if run.name == "replanned":  # planning anew takes its time
        every *= 3
    for where, other in changes[:: 1 if run.name in WHOLE else every]:
        path.write_text(json.dumps(other))
        if not differs(run):
            unnoticed.append(where)
    assert not unnoticed


@pytest.mark.parametrize("case", ["complete", "tight", "one draw"])
def test_guarantee_no_leaf_of_the_plan_can_be_changed(tmp_path, case):
    run = finished(tmp_path / "run", **CASES[case])
    path = run / "plan.json"
    unnoticed = []
    for where, other in damaged(json.loads(path.read_text())):
        path.write_text(json.dumps(other))
        if not differs(run):
            unnoticed.append(where)
    assert not unnoticed


@every
def test_guarantee_no_line_of_the_statement_can_be_changed(run, every):
    path = run / "statement.md"
    lines = path.read_text().splitlines()
    for index in range(0, len(lines), 1 if run.name in WHOLE else every):
        line = lines[index]
        for other in (line + " ", line[:-1]) if line else ("x",):
            path.write_text("\n".join([*lines[:index], other, *lines[index + 1 :], ""]))
            assert differs(run), line
    path.write_text("\n".join(lines[:-1]))
    assert differs(run)
    path.unlink()
    assert differs(run)


@pytest.mark.parametrize("case", [name for name in CASES if "failed" not in name])
def test_a_report_follows_from_the_ledgers_too(tmp_path, case):
    choices = dict(CASES[case])
    if choices.get("rng") == "seeded":
        choices["rng"] = np.random.default_rng(1)
    problem = LONDON.replace(**choices.pop("problem", {}))
    result = aw.run(aw.plan(problem), folder=tmp_path / "run", **choices)
    page = result.to_html()
    (tmp_path / "run" / REPORT).write_text(page, encoding="utf-8")
    report = check_run(tmp_path / "run")
    assert not report.differences
    assert report.as_told == ("report.html: its pictures and its style",)
    (tmp_path / "run" / REPORT).write_text(page.replace("expected loss", "least loss"))
    assert differs(tmp_path / "run")


def test_guarantee_no_line_of_the_report_can_be_changed(tmp_path):
    page = aw.run(aw.plan(LONDON)).to_html()
    path = tmp_path / REPORT
    path.write_text(page, encoding="utf-8")
    assert not list(compared_page(path, page, []))
    words = without_looks(page).splitlines()
    assert len(words) > 60
    for index, line in enumerate(words):
        for other in (line + " ", line[:-1], line + "<svg></svg>") if line else ("x",):
            path.write_text("\n".join([*words[:index], other, *words[index + 1 :]]))
            assert list(compared_page(path, page, [])), line
    path.write_text("\n".join(words[:-1]))
    assert list(compared_page(path, page, []))


def test_a_forged_run_needs_its_ledgers_forged(tmp_path):
    """A faster matrix with everything computed anew from it does not fit what was recorded."""
    run = finished(tmp_path / "run")
    client = LONDON.clients[0]
    faster = aw.Client(client.name, aw.birth_death(0.4, 0.4, [20, 50, 100, 200]), client.law)
    forged = aw.plan(LONDON.replace(clients=[faster, *LONDON.clients[1:]]))
    (run / "plan.json").write_text(forged.to_json())
    words = [str(one) for one in check_run(run).differences]
    assert any("plan.json: digest" in one for one in words)


def test_the_ledgers_may_lie_elsewhere(tmp_path):
    run = finished(tmp_path / "run")
    shutil.move(run / "ledgers", tmp_path / "elsewhere")
    words = [str(one) for one in check_run(run).differences]
    assert sum("no ledger that holds this run" in one for one in words) == 3
    assert not check_run(run, tmp_path / "elsewhere").differences
    with pytest.raises(aw.InvalidInput, match="a folder of ledgers"):
        check_run(run, tmp_path / "nowhere")


def test_a_later_run_does_not_change_an_earlier_ones_check(tmp_path):
    ledgers, policy = tmp_path / "ledgers", aw.Policy(max_aged_epsilon=2.0)
    for number, starts_at in enumerate((0, 4, 40)):
        finished(tmp_path / str(number), ledgers=ledgers, starts_at=starts_at, policy=policy)
    for number in range(3):
        assert not check_run(tmp_path / str(number)).differences


def test_a_statement_made_before_its_releases_is_noticed(tmp_path):
    run = finished(tmp_path / "run")
    path = run / "record.json"
    document = json.loads(path.read_text())
    document["statement"]["made_at"] = "2020-01-01T00:00:00+00:00"
    path.write_text(json.dumps(document))
    assert any("made_at" in one.where for one in check_run(run).differences)


def test_what_is_no_finished_run_is_refused(tmp_path):
    with pytest.raises(aw.InvalidInput, match=r"without record\.json"):
        check_run(tmp_path)
    run = finished(tmp_path / "run")
    (run / "record.json").write_text("{")
    with pytest.raises(aw.InvalidInput, match="a JSON document"):
        check_run(run)
