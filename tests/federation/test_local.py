"""The local engine: clocks, folders, interruptions."""

import errno
import json
import os
import re

import numpy as np
import pytest

import agewise as aw
from agewise.federation import SimulatedRecords
from agewise.federation.files import ledger_file
from agewise.privacy import Laplace
from agewise.testing import Clock
from parties import RunFolder

PROBLEM = aw.scenarios.london()
PLAN = aw.plan(PROBLEM)
A = PROBLEM.aggregate_at


def seeded(**choices):
    return aw.run(PLAN, rng=np.random.default_rng(11), **choices)


def test_with_a_seed_two_runs_are_the_same():
    first, again = seeded(), seeded()
    assert first.model == again.model
    assert first.realised_loss == again.realised_loss
    assert not first.private
    assert aw.run(PLAN).private


def test_a_run_leaves_its_folder(tmp_path):
    result = aw.run(PLAN, folder=tmp_path / "run")
    assert {p.name for p in (tmp_path / "run").iterdir()} == {
        "run.json",
        "plan.json",
        "journal.jsonl",
        "record.json",
        "statement.md",
        "ledgers",
    }
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record == json.loads(result.to_json())
    assert record["complete"]
    for row in record["statement"]["clients"]:
        with aw.Ledger.read(tmp_path / "run" / "ledgers" / f"{row['client']}.ledger") as ledger:
            (event,) = ledger.events()
        assert event.classical_epsilon == row["classical_epsilon"]
        assert event.private


def test_the_model_does_not_depend_on_the_order_of_clients():
    turned = PROBLEM.replace(clients=PROBLEM.clients[::-1])
    other = aw.run(aw.plan(turned), rng=np.random.default_rng(11))
    assert other.model == pytest.approx(seeded().model, rel=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"mixing": "exact", "estimator": "propagated", "calibration": "tight"},
        {"mixing": "any_prior", "epsilon": 1.0},
    ],
)
def test_guarantee_the_mean_loss_is_the_planned_gap(change):
    plan = aw.plan(PROBLEM.replace(**change))
    loss = aw.rehearse(plan, 400, np.random.default_rng(2))
    assert abs(loss - plan.gap) < 4 * loss.standard_error
    assert loss.standard_error < 0.12 * plan.gap  # noise a third off would be noticed: see below


def test_rehearsals_would_notice_noise_that_is_a_third_off(monkeypatch):
    whole = Laplace.imitate_each

    def loud(self, values, *, scale, **more):
        return whole(self, values, scale=1.3 * scale, **more)

    monkeypatch.setattr(Laplace, "imitate_each", loud)
    loss = aw.rehearse(PLAN, 500, np.random.default_rng(2))
    assert loss - PLAN.gap > 4 * loss.standard_error


class Interrupting(SimulatedRecords):
    """A source that is cut off the first time a chosen client collects."""

    def __init__(self, client, seed, when):
        super().__init__(client, seed)
        self.when = when

    def collect(self, slot, samples):
        if self.when.pop(self.client.name, False):
            raise KeyboardInterrupt
        return super().collect(slot, samples)


@pytest.mark.parametrize("victim", [c.name for c in PROBLEM.clients])
@pytest.mark.parametrize("cut", [0, 7])
def test_guarantee_an_interrupted_run_ends_with_the_same_model(tmp_path, victim, cut):
    seed = int(np.random.default_rng(11).integers(2**63))
    when = {victim: True}
    sources = {c.name: Interrupting(c, seed, when) for c in PROBLEM.clients}
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        seeded(folder=folder, sources=sources)
    assert not (folder / "record.json").exists()
    journal = folder / "journal.jsonl"
    if cut and journal.stat().st_size:  # the machine went down while a line was written
        os.truncate(journal, journal.stat().st_size - cut)
    sent = {p.name: p.read_bytes() for p in (folder / "ledgers").glob("*.ledger")}
    result = aw.resume(folder, sources=sources)
    assert result.model == seeded().model
    assert result.realised_loss == seeded().realised_loss
    assert {p.name for p in (folder / "ledgers").glob("*.ledger")} >= set(sent)
    for client in PROBLEM.clients:
        with aw.Ledger.read(ledger_file(folder / "ledgers", client.name)) as ledger:
            assert ledger.verify() == 1
    with pytest.raises(aw.InvalidInput, match="of a run that has ended"):
        aw.resume(folder)


def test_only_one_process_works_on_a_run(tmp_path):
    folder = tmp_path / "run"
    tried = []

    def second(*_):
        with pytest.raises(aw.InvalidInput, match="a run under way"):
            aw.resume(folder)
        tried.append(1)

    aw.run(PLAN, folder=folder, watch=second)
    assert tried


def test_folders_that_cannot_be_resumed(tmp_path):
    with pytest.raises(aw.InvalidInput, match=r"without run.json"):
        aw.resume(tmp_path)
    aw.run(PLAN, folder=tmp_path / "run")
    with pytest.raises(aw.InvalidInput, match="a folder without a run"):
        aw.run(PLAN, folder=tmp_path / "run")
    (tmp_path / "run" / "record.json").unlink()
    journal = tmp_path / "run" / "journal.jsonl"
    journal.write_text("nonsense\n" + journal.read_text())
    with pytest.raises(aw.InvalidInput, match=r"line 1 of .*ledgers keep their account"):
        aw.resume(tmp_path / "run")
    settings = tmp_path / "run" / "run.json"
    for version in (1, 7):
        text = settings.read_text()
        settings.write_text(re.sub(r'"version": \d+', f'"version": {version}', text))
        with pytest.raises(aw.InvalidInput, match=f"of version {version}; allowed: version 3 or 4"):
            aw.resume(tmp_path / "run")


def test_a_failed_run_leaves_a_record(tmp_path):
    with pytest.raises(aw.RunIncomplete, match="'client 2' missing in slot 1"):
        seeded(folder=tmp_path / "run", drop=["client 2"])
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["complete"] is False
    assert "client 2" in record["failure"]


class Failing(SimulatedRecords):
    """A source whose readings are gone when a chosen client collects, until they are repaired."""

    def __init__(self, client, seed, broken):
        super().__init__(client, seed)
        self.broken = broken

    def collect(self, slot, samples):
        if self.client.name in self.broken:
            raise aw.InvalidInput("readings", "gone", "there")
        return super().collect(slot, samples)


@pytest.mark.parametrize("on_missing", ["fail", "renormalise", "replan"])
def test_guarantee_a_failed_run_is_resumed_once_its_reason_is_repaired(tmp_path, on_missing):
    folder, broken = tmp_path / "run", {"client 1"}
    if on_missing != "fail":  # it goes on unless everybody is missing
        broken |= {c.name for c in PROBLEM.clients}
    sources = {c.name: Failing(c, 7, broken) for c in PROBLEM.clients}
    with pytest.raises(aw.RunIncomplete, match=f"--resume {folder}"):
        aw.run(
            PLAN,
            folder=folder,
            sources=sources,
            ledgers=tmp_path / "ledgers",
            on_missing=on_missing,
        )
    with pytest.raises(aw.RunIncomplete, match=f"--resume {folder}"):
        aw.resume(folder, sources=sources)
    assert not json.loads((folder / "record.json").read_text())["complete"]
    heard = {c.name for c in PROBLEM.clients} - broken
    before = {name: released(tmp_path / "ledgers", name) for name in heard}
    broken.clear()
    result = aw.resume(folder, sources=sources)
    assert result.participants == tuple(c.name for c in PROBLEM.clients)
    assert [s.what for s in result.steps].count("retried") == 2
    record = json.loads((folder / "record.json").read_text())
    assert record["complete"]
    assert len(record["earlier_failures"]) == 2
    for client in PROBLEM.clients:
        made = released(tmp_path / "ledgers", client.name)
        assert len(made) == 1
        assert made == before.get(client.name, made)
    with pytest.raises(aw.InvalidInput, match="of a run that has ended"):
        aw.resume(folder, sources=sources)


def test_a_journal_holds_every_retry(tmp_path, monkeypatch):
    folder, broken = tmp_path / "run", {"client 1"}
    sources = {c.name: Failing(c, 7, broken) for c in PROBLEM.clients}
    with pytest.raises(aw.RunIncomplete):
        seeded(folder=folder, sources=sources)
    broken.clear()
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write", full_disk)
        with pytest.raises(OSError, match="No space left"):
            aw.resume(folder, sources=sources)
    result = aw.resume(folder, sources=sources)
    lines = (folder / "journal.jsonl").read_text().splitlines()
    retries = [line for line in lines if json.loads(line)["input"] == "retried"]
    assert len(retries) == [step.what for step in result.steps].count("retried") == 2


def full_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def released(ledgers, name):
    with aw.Ledger.read(ledger_file(ledgers, name)) as ledger:
        return ledger.events()


def test_a_resumed_run_checks_budgets_before_anybody_releases(tmp_path):
    folder, ledgers, broken = tmp_path / "run", tmp_path / "ledgers", {"client 2"}
    sources = {c.name: Failing(c, 7, broken) for c in PROBLEM.clients}
    first = min(PLAN.collect_at)
    assert PLAN.collect_at[1] == first < PLAN.collect_at[0]
    with pytest.raises(aw.RunIncomplete):
        aw.run(PLAN, folder=folder, sources=sources, ledgers=ledgers)
    aw.run(
        PLAN,
        ledgers=tmp_path / "other",
        sources={**sources, "client 2": sources["client 1"]},
        drop=["client 2"],
        on_missing="renormalise",
    )
    ledger_file(tmp_path / "other", "client 1").rename(ledger_file(ledgers, "client 1"))
    broken.clear()
    with pytest.raises(aw.BudgetExceeded):  # client 1 has spent it elsewhere meanwhile
        aw.resume(folder, sources=sources)
    assert not ledger_file(ledgers, "client 2").exists() or not released(ledgers, "client 2")


def test_a_run_that_failed_by_the_wall_clock_is_over(tmp_path, clock):
    small = aw.plan(PROBLEM.replace(aggregate_at=2))
    with pytest.raises(aw.RunIncomplete) as failed:
        aw.run(
            small,
            rng=np.random.default_rng(1),
            folder=tmp_path / "run",
            drop=["client 2"],
            clock="wall",
            slot_seconds=60.0,
        )
    assert "--resume" not in str(failed.value)
    with pytest.raises(aw.InvalidInput, match="start a new run"):
        aw.resume(tmp_path / "run")


def test_dropped_clients_are_replanned_then_left_out():
    result = seeded(drop=["client 3"], on_missing="replan")
    assert result.missing == {"client 3": "no upload by the deadline"}
    assert [c.name for c in result.plan.problem.clients] == ["client 1", "client 2"]
    loss = aw.rehearse(result.plan, 300, np.random.default_rng(4))
    assert abs(loss - result.plan.gap) < 4 * loss.standard_error


@pytest.fixture
def clock():
    with Clock().kept_by() as made:
        yield made


def test_the_wall_clock_waits_until_its_last_slot_is_over(clock):
    small = aw.plan(PROBLEM.replace(aggregate_at=4))
    begun = clock.time()
    result = aw.run(small, rng=np.random.default_rng(1), clock="wall", slot_seconds=60.0)
    assert clock.time() - begun == 240.0
    assert result.model == aw.run(small, rng=np.random.default_rng(1)).model


def test_an_upload_after_its_deadline_is_late(clock):
    class Slow(SimulatedRecords):
        def collect(self, slot, samples):
            clock.sleep(90.0 if self.client.name == "client 3" else 0.0)
            return super().collect(slot, samples)

    sources = {c.name: Slow(c, 1) for c in PROBLEM.clients}
    slots = dict(zip(sources, PLAN.collect_at, strict=True))
    assert slots["client 3"] == 1
    late = seeded(sources=sources, clock="wall", slot_seconds=60.0, on_missing="renormalise")
    assert late.missing == {"client 3": "no upload by the deadline"}
    assert late.rejected == {"stale": 1}
    assert [(s.slot, s.why) for s in late.steps if s.what == "rejected"] == [(2, "stale")]


def test_nobody_releases_after_the_deadline(clock, tmp_path):
    class Slow(SimulatedRecords):
        def collect(self, slot, samples):
            clock.sleep(90.0)
            return super().collect(slot, samples)

    sources = {c.name: Slow(c, 1) for c in PROBLEM.clients}
    first = [c.name for c, t in zip(PROBLEM.clients, PLAN.collect_at, strict=True) if t == 1]
    assert len(first) == 2
    with pytest.raises(aw.RunIncomplete):
        seeded(folder=tmp_path / "run", sources=sources, clock="wall", slot_seconds=60.0)
    assert [p.stem for p in (tmp_path / "run" / "ledgers").iterdir()] == first[:1]


def test_a_ledger_folder_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(aw.InvalidInput, match="Nothing was released"):
        aw.run(PLAN, folder=tmp_path / "run", ledgers=tmp_path / "file")
    assert not (tmp_path / "run").exists()
    with pytest.raises(aw.InvalidInput, match=r"/proc/none"):
        aw.run(PLAN, folder="/proc/none/run")


def test_a_damaged_ledger_stops_the_run_before_anything_is_released(tmp_path):
    ledgers = tmp_path / "ledgers"
    ledgers.mkdir()
    (ledgers / "client 3.ledger").write_bytes(b"SQLite format 3\0 but no more")
    with pytest.raises(aw.LedgerDamaged, match="Set it aside"):
        aw.run(PLAN, folder=tmp_path / "run", ledgers=ledgers)
    assert {p.name for p in ledgers.iterdir()} == {"client 3.ledger"}


def test_a_day_has_to_be_shifted_whole(tmp_path):
    plan = aw.plan(aw.scenarios.day_profile())
    with pytest.raises(aw.InvalidInput, match="whole days"):
        aw.run(plan, ledgers=tmp_path, starts_at=5)
    aw.run(plan, ledgers=tmp_path, starts_at=24)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"on_missing": "shrug"}, "fail, renormalise, replan"),
        ({"clock": "sundial"}, "virtual, wall"),
        ({"clock": "wall", "slot_seconds": 0}, "slot_seconds is 0"),
        ({"clock": "wall", "slot_seconds": float("nan")}, "slot_seconds is nan"),
        ({"drop": ["nobody"]}, "drop is 'nobody'"),
        ({"starts_at": -1}, "starts_at is -1"),
        ({"rng": 7}, "rng is 7"),
        ({"engine": "steam"}, "engine is 'steam'"),
    ],
)
def test_bad_choices_are_refused(choices, words):
    with pytest.raises(aw.InvalidInput, match=words):
        aw.run(PLAN, **choices)


def test_simulated_records_follow_the_clients_law():
    client = PROBLEM.clients[0]
    drawn = SimulatedRecords(client, 5).collect(3, 20_000)
    share = [(drawn == s).mean() for s in client.process.states]
    assert np.allclose(share, client.law, atol=0.02)
    table = client.process.states[:, None]
    (later,) = SimulatedRecords(client, 5).present(3, 10, 20_000, table)
    wanted = np.asarray(client.law) @ client.process.kernel(3, 10) @ client.process.states
    assert later == pytest.approx(wanted, rel=0.02)


def test_names_make_safe_file_names(tmp_path):
    for name in ("a/b", "../up", "ä ö", "x" * 300, "."):
        path = ledger_file(tmp_path, name)
        assert path.parent == tmp_path
        assert path.name.endswith(".ledger")
    assert ledger_file(tmp_path, "a/b") != ledger_file(tmp_path, "a_b")
    assert ledger_file(tmp_path, "x" * 300) != ledger_file(tmp_path, "x" * 299)
