"""The Flower engine from outside: a run's folder, what it keeps, and how a failed run goes on.

Flower's processes are left out: what is submitted runs on a grid in this process.
"""

import json

import numpy as np
import pytest
from flwr.app import Error, Message

import agewise as aw
import in_process
from agewise.federation import check_run
from agewise.federation.flower.publication import RESULT, STEPS, folder_in
from agewise.federation.flower.submission import Submission
from agewise.privacy import LedgerDamaged
from agewise.testing import Killed
from deployments import init_deployment

PROBLEM = aw.scenarios.london()
PLAN = aw.plan(PROBLEM)
NAMES = [c.name for c in PROBLEM.clients]


def refusing(kind, word):
    def fault(message):
        asked = "order" in message.content["agewise"]
        refused = asked and message.metadata.message_type.startswith(kind)
        return Message(Error(6, word), reply_to=message) if refused else None

    return fault


def events(folder, name):
    number = NAMES.index(name) + 1
    (path,) = (folder / "deployment" / "nodes").glob(f"{number:03d}-*/releases.ledger")
    with aw.Ledger.read(path) as ledger:
        return ledger.events()


def ordered(grid):
    return {n for n, m in grid.pushed if m.metadata.message_type == "train"}


@pytest.mark.parametrize("kind", ["train", "query"])
def test_guarantee_a_failed_run_is_resumed_once_its_reason_is_repaired(tmp_path, federation, kind):
    nodes, _ = federation
    folder, last = tmp_path / "run", NAMES[int(np.argmax(PLAN.collect_at))]
    nodes[last].fault = refusing(kind, "records")
    with pytest.raises(aw.RunIncomplete, match=rf"{last}.*records.* --resume {folder}"):
        aw.run(PLAN, "flower", folder=folder)
    record = json.loads((folder / "record.json").read_text())
    assert not record["complete"]
    heard = set(NAMES) - {last} if kind == "train" else set()
    released = {name: events(folder, name) for name in heard}
    nodes[last].fault = None
    result = aw.resume(folder)
    assert result.participants == tuple(NAMES)
    for name in NAMES:
        assert len(events(folder, name)) == 1
        assert events(folder, name) == released.get(name, events(folder, name))
    record = json.loads((folder / "record.json").read_text())
    assert record["complete"]
    assert len(record["earlier_failures"]) == 1
    assert last in record["earlier_failures"][0]
    app = "".join(p.read_text() for p in (folder / "app").rglob("*") if p.is_file())
    for name in heard:  # every node gets the app
        assert str(json.loads(released[name][0].payload)["value"][0]) not in app
    with pytest.raises(aw.InvalidInput, match="of a run that has ended"):
        aw.resume(folder)


def test_a_budget_that_is_refused_beforehand_has_its_exit_code(tmp_path, federation):
    nodes, grids = federation
    nodes["client 2"].fault = refusing("query", "budget")
    with pytest.raises(aw.BudgetExceeded, match=r"client 2 would not follow the plan \(budget\)"):
        aw.run(PLAN, "flower", folder=tmp_path / "run")
    assert not ordered(grids[0])
    nodes["client 2"].fault = refusing("query", "ledger")
    with pytest.raises(aw.RunIncomplete, match="ledger"):
        aw.resume(tmp_path / "run")


def published_in(folder, number=1):
    return folder_in(folder / "deployment" / "flwr", number)


def test_guarantee_a_result_is_taken_over_though_its_submitter_was_killed(
    tmp_path, federation, monkeypatch
):
    _, grids = federation
    folder, told = tmp_path / "run", []

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Submission, "wait", killed)
        with pytest.raises(Killed):
            aw.run(PLAN, "flower", np.random.default_rng(11), folder=folder)
    result = aw.resume(folder, watch=lambda step, *_: told.append(step.what))
    assert result.model == aw.run(PLAN, rng=np.random.default_rng(11)).model
    assert len(grids) == 1  # nobody was asked again
    assert told.count("uploaded") == len(NAMES)


def test_a_run_that_left_no_result_is_submitted_again(tmp_path, federation, monkeypatch):
    _, grids = federation
    folder = tmp_path / "run"

    def die(*_):
        (published_in(folder) / RESULT).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Submission, "wait", die)
        with pytest.raises(KeyboardInterrupt):
            aw.run(PLAN, "flower", np.random.default_rng(11), folder=folder)
    result = aw.resume(folder)
    assert result.model == aw.run(PLAN, rng=np.random.default_rng(11)).model
    assert len(grids) == 2
    for name in NAMES:
        assert len(events(folder, name)) == 1


@pytest.mark.parametrize(
    ("name", "damage", "why"),
    [
        (RESULT, lambda text: text[: len(text) // 2], "EOF while parsing"),
        (RESULT, lambda text: text.replace('"run": "', '"run": "other '), "of run 'other "),
        (RESULT, lambda text: text.replace('"version": 2', '"version": 1'), "version"),
        (RESULT, lambda _: "[]", "should be an object"),
        (STEPS, lambda text: text + "{}\n", "line 19"),
    ],
)
def test_what_no_serverapp_of_this_run_wrote_is_refused(
    tmp_path, federation, monkeypatch, name, damage, why
):
    folder, wait = tmp_path / "run", Submission.wait

    def tampered(submission):
        path = published_in(folder) / name
        path.write_text(damage(path.read_text()))
        return wait(submission)

    with monkeypatch.context() as patch:
        patch.setattr(Submission, "wait", tampered)
        with pytest.raises(aw.RunIncomplete, match=why) as refusal:
            aw.run(PLAN, "flower", np.random.default_rng(11), folder=folder)
    assert str(published_in(folder) / name) in str(refusal.value)
    assert not (folder / "record.json").exists()
    (folder / "submission.json").unlink()  # as it says
    assert aw.resume(folder).model == aw.run(PLAN, rng=np.random.default_rng(11)).model


def test_a_result_on_another_machine_is_copied_and_taken_over(tmp_path, federation, monkeypatch):
    _, grids = federation
    there, wait = tmp_path / "there", Submission.wait

    def out_of_sight(submission):
        submission.publication.folder.rename(there)
        return wait(submission)

    with monkeypatch.context() as patch:
        patch.setattr(Submission, "wait", out_of_sight)
        patch.setenv("COLUMNS", "1000")
        command = ["run", "--engine", "flower", "--seed", "11", "--out", tmp_path / "runs"]
        told = in_process.command(*command).stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert "not on this machine: it is where the ServerApp ran, in the folder agewise/1 of" in told
    assert f"Copy that folder to {published_in(folder)}, then resume the run" in told
    assert "Released already: nothing (as far as this folder tells" in told
    there.rename(published_in(folder))
    assert aw.resume(folder).participants == tuple(NAMES)
    assert len(grids) == 1


ONCE = aw.plan(PROBLEM.replace(noise="server", estimator="best", mixing="exact"))
KINDS = {
    "best": ONCE,
    "plain": aw.plan(PROBLEM.replace(noise="server")),
    "gaussian": aw.plan(PROBLEM.replace(noise="server", mechanism="gaussian", delta=1e-6)),
    "histogram": aw.plan(PROBLEM.replace(noise="server", learner=aw.Histogram())),
    "ridge": aw.plan(
        PROBLEM.replace(
            noise="server", learner=aw.Ridge([0, 1, 3, 2], [20, 50, 100, 200]), epsilon=1.0
        )
    ),
}


def server_draws(folder):
    """What the ServerApp's own ledger holds of its draws."""
    (path,) = (folder / "deployment" / "flwr" / "agewise").glob("*.draws")
    with aw.Ledger.read(path) as ledger:
        made = [json.loads(event.payload) for event in ledger.events()]
    return [one["aggregate"] for one in made if "aggregate" in one]


@pytest.mark.parametrize("kind", KINDS)
def test_guarantee_one_draw_on_flower_is_the_local_engines(tmp_path, federation, kind):
    folder = tmp_path / "run"
    result = aw.run(KINDS[kind], "flower", np.random.default_rng(11), folder=folder)
    alone = aw.run(KINDS[kind], rng=np.random.default_rng(11))
    assert result.aggregate == alone.aggregate
    assert server_draws(folder) == [list(result.aggregate)]
    assert not check_run(folder).differences


def test_guarantee_a_serverapp_that_is_killed_after_its_draw_does_not_draw_again(
    tmp_path, federation, monkeypatch
):
    _, grids = federation
    folder = tmp_path / "run"

    def die(*_):
        (published_in(folder) / RESULT).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Submission, "wait", die)
        with pytest.raises(KeyboardInterrupt):
            aw.run(ONCE, "flower", folder=folder)
    (made,) = server_draws(folder)
    result = aw.resume(folder)
    assert len(grids) == 2
    assert list(result.aggregate) == made
    assert server_draws(folder) == [made]
    assert not check_run(folder).differences


def test_a_run_that_was_submitted_is_not_published_without_the_serverapps_ledger(
    tmp_path, federation, monkeypatch
):
    folder = tmp_path / "run"

    def die(*_):
        (published_in(folder) / RESULT).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Submission, "wait", die)
        with pytest.raises(KeyboardInterrupt):
            aw.run(ONCE, "flower", folder=folder)
    (path,) = (folder / "deployment" / "flwr" / "agewise").glob("*.draws")
    path.unlink()
    with pytest.raises(LedgerDamaged, match=r"server's ledger .* is missing: nothing is published"):
        aw.resume(folder)
    assert not json.loads((folder / "record.json").read_text())["complete"]
    assert not path.exists()


def test_what_a_serverapp_publishes_of_means_is_for_its_owner_only(tmp_path, federation):
    folder = tmp_path / "run"
    aw.run(ONCE, "flower", folder=folder)
    value = str(json.loads(events(folder, NAMES[0])[0].payload)["value"][0])
    holding = [p for p in folder.rglob("*") if p.is_file() and value.encode() in p.read_bytes()]
    assert {p.name for p in holding} >= {RESULT, "journal.jsonl", "releases.ledger"}
    assert {p.stat().st_mode & 0o777 for p in holding} == {0o600}


def test_a_draw_that_no_serverapp_of_this_run_made_is_refused(tmp_path, federation, monkeypatch):
    folder, wait = tmp_path / "run", Submission.wait

    def tampered(submission):
        path = published_in(folder) / RESULT
        document = json.loads(path.read_text())
        draw = json.loads(document["draw"])
        document["draw"] = json.dumps(draw | {"drawn_scale": draw["drawn_scale"] / 2})
        path.write_text(json.dumps(document))
        return wait(submission)

    monkeypatch.setattr(Submission, "wait", tampered)
    with pytest.raises(LedgerDamaged, match="drawn_scale"):
        aw.run(ONCE, "flower", folder=folder)
    assert not (folder / "record.json").exists()


def test_means_travel_over_tls_only(tmp_path):
    made = init_deployment(tmp_path / "open", PROBLEM, tls=False)
    refused = "noise is 'server' without TLS; allowed: noise by each client, or TLS"
    with pytest.raises(aw.InvalidInput, match=refused):
        aw.run(ONCE, "flower", folder=tmp_path / "run", deployment=made.folder)
    with pytest.raises(aw.InvalidInput, match=refused):
        aw.run(ONCE, "flower", folder=tmp_path / "run", superlink="127.0.0.1:1")
    with pytest.raises(aw.InvalidInput, match=refused):
        init_deployment(tmp_path / "new", ONCE.problem, tls=False)
    assert {path.name for path in tmp_path.iterdir()} == {"open"}


def test_nodes_follow_noise_by_the_server_only_if_they_were_laid_out_for_it(tmp_path):
    """Their own configuration decides, and can forbid it."""
    forbidding = aw.Policy(allow_server_noise=False)
    for number, (problem, policy, words) in enumerate(
        [
            (PROBLEM.replace(estimator="best", mixing="exact"), None, "allows client only"),
            (ONCE.problem, forbidding, "allow_server_noise"),
        ]
    ):
        made = init_deployment(tmp_path / f"fed {number}", problem, policy=policy)
        with pytest.raises(aw.InvalidInput, match=words):
            aw.run(ONCE, "flower", folder=tmp_path / "run", deployment=made.folder)
