"""Many rounds in one process: time moves on, accounts are carried on, nothing is spent twice."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

import agewise as aw
from agewise import resume_rounds, run_rounds
from agewise.federation import check_rounds
from agewise.testing import Killed, releases
from parties import LocalTransport, RoundRecords

FOR_EVER = aw.plan(aw.scenarios.for_ever().replace(level=None))


def burning(fuse, least, most):
    """A watcher that kills after so many steps, drawn by chance."""
    left = int(fuse.integers(least, most))

    def watch(*_):
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed

    return watch


def events_of(folder, name="client 1"):
    return releases(folder / "ledgers").get(name, [])


def seeded(seed=1):
    return np.random.default_rng(seed)


def test_rounds_go_on_and_the_promise_is_kept(tmp_path):
    told = []
    result = run_rounds(
        FOR_EVER, rounds=6, folder=tmp_path / "run", heard=lambda one, total: told.append(one)
    )
    assert [one.number for one in result.rounds] == [1, 2, 3, 4, 5, 6]
    assert [one.published_at for one in result.rounds] == [10, 20, 30, 40, 50, 60]
    assert told == list(result.rounds)
    spent = FOR_EVER.classical_epsilons
    for number, one in enumerate(result.rounds, start=1):
        assert one.epsilon <= 0.1 * (1 + 1e-9)
        assert one.classical == pytest.approx(number * max(spent), rel=1e-6)
        assert one.estimate_gap <= one.expected_gap * (1 + 1e-9)
    events = events_of(tmp_path / "run")
    age = FOR_EVER.ages[0]
    assert [event.collect_at for event in events] == [10 * n - age for n in range(1, 7)]
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert [one["aggregate"] for one in record["rounds"]] == [
        list(one.aggregate) for one in result.rounds
    ]


@pytest.mark.slow
def test_guarantee_a_year_with_kills_is_accounted_for_exactly(tmp_path):
    plan, fuse = FOR_EVER, np.random.default_rng(5)
    folder, kills = tmp_path / "year", 0

    try:
        result = run_rounds(plan, rounds=365, folder=folder, watch=burning(fuse, 100, 900))
    except Killed:
        result = None
    while result is None:
        try:
            result = resume_rounds(folder, watch=burning(fuse, 100, 900) if kills < 20 else None)
        except Killed:
            kills += 1
    assert kills >= 5
    for client, one in zip(plan.problem.clients, plan.assignments, strict=True):
        events = events_of(folder, client.name)
        assert len(events) == 365
        assert [e.collect_at for e in events] == [10 * n + one.collect_at for n in range(365)]
        bound = aw.continual_epsilon(client.process, 10, events[-1].classical_epsilon, one.age)
        assert bound <= 0.1 * (1 + 1e-6)
    assert max(one.epsilon for one in result.rounds) <= 0.1 * (1 + 1e-9)
    worst = max(FOR_EVER.classical_epsilons)
    assert result.rounds[-1].classical == pytest.approx(365 * worst, rel=1e-6)


def test_more_rounds_of_a_plan_for_ever(tmp_path):
    first = run_rounds(FOR_EVER, seeded(), rounds=2, folder=tmp_path / "run")
    more = resume_rounds(tmp_path / "run", rounds=4)
    assert more.rounds[:2] == first.rounds
    assert len(more.rounds) == 4
    straight = run_rounds(FOR_EVER, seeded(), rounds=4)
    assert [one.estimate for one in more.rounds] == [one.estimate for one in straight.rounds]


def test_whoever_misses_a_round_is_not_in_it_and_the_estimate_goes_on(tmp_path):
    result = run_rounds(FOR_EVER, seeded(), rounds=3, on_missing="renormalise", drop=["client 2"])
    assert all(one.missing == ("client 2",) for one in result.rounds)
    assert all(one.participants == 2 for one in result.rounds)
    everybody = run_rounds(FOR_EVER, seeded(), rounds=3)
    assert result.rounds[-1].estimate_gap > everybody.rounds[-1].estimate_gap


@pytest.mark.slow
def test_mean_losses_are_as_promised():
    """The quick twin is in `end_to_end/test_promised_losses.py`: estimates from many rounds."""
    plan = aw.plan(FOR_EVER.problem.replace(epsilon=5.0))
    result = run_rounds(plan, seeded(2), rounds=60)
    losses = [(one.estimate[0] - one.truth[0]) ** 2 for one in result.rounds]
    error = np.std(losses) / np.sqrt(len(losses) / 3)  # rounds are not independent
    assert result.mean_loss == pytest.approx(np.mean(losses))
    assert abs(result.mean_loss - result.rounds[-1].estimate_gap) < 4 * error
    assert result.mean_loss < plan.nothing_collected


def test_simulated_records_follow_one_path():
    client = FOR_EVER.problem.clients[0]
    records = RoundRecords(client, 7)
    later = records.later(20)
    table = client.process.states[:, None]
    again = RoundRecords(client, 7).later(20)
    assert (later.collect(3, 100) == again.collect(3, 100)).all()
    assert later.present(3, 10, 100, table) == records.later(0).present(3, 30, 100, table)
    path = np.stack([records.at(slot) for slot in range(1, 2000)])
    moved = np.zeros((4, 4))
    np.add.at(moved, (path[:-1].ravel(), path[1:].ravel()), 1)
    assert moved / moved.sum(axis=1, keepdims=True) == pytest.approx(
        client.process.transition, abs=0.01
    )


def test_readings_go_on_from_round_to_round(tmp_path):
    problem = FOR_EVER.problem
    lines = ["client,slot,value"]
    for client in problem.clients:
        for slot in range(1, 31):
            lines += [f"{client.name},{slot},{50 + (slot > 10) * 50}"] * client.samples
    (tmp_path / "readings.csv").write_text("\n".join(lines))
    plan = aw.plan(problem.replace(epsilon=20.0, estimator="plain"))
    result = run_rounds(
        plan, rounds=3, sources=tmp_path / "readings.csv", ledgers=tmp_path / "ledgers"
    )
    assert result.rounds[0].aggregate[0] == pytest.approx(50, abs=5)
    assert result.rounds[2].aggregate[0] == pytest.approx(100, abs=5)


@pytest.mark.parametrize(
    ("choices", "told"),
    [
        ({}, "how many"),
        ({"rounds": 0}, "rounds"),
        ({"rounds": 2, "starts_at": -1}, "starts_at"),
        ({"rounds": 2, "on_missing": "hope"}, "on_missing"),
    ],
)
def test_bad_choices_are_refused_and_nothing_is_written(tmp_path, choices, told):
    with pytest.raises(aw.InvalidInput, match=told):
        run_rounds(FOR_EVER, seeded(), folder=tmp_path / "run", **choices)
    assert not (tmp_path / "run").exists()


def test_a_plan_for_one_round_or_for_fewer_is_refused():
    once = aw.plan(aw.scenarios.london())
    with pytest.raises(aw.InvalidInput, match="run"):
        run_rounds(once, seeded(), rounds=3)
    few = aw.plan(FOR_EVER.problem.replace(rounds=3))
    with pytest.raises(aw.InvalidInput, match="1 to 3"):
        run_rounds(few, seeded(), rounds=4)
    with pytest.raises(aw.InvalidInput, match="run_rounds"):
        aw.run(FOR_EVER, rng=seeded())


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"version": 9}', '{"version": 1}'])
def test_a_damaged_folder_is_refused(tmp_path, damage):
    run_rounds(FOR_EVER, seeded(), rounds=1, folder=tmp_path / "run")
    (tmp_path / "run" / "rounds.json").write_text(damage)
    with pytest.raises(aw.InvalidInput, match="run folder"):
        resume_rounds(tmp_path / "run")
    with pytest.raises(aw.InvalidInput, match="without a run"):
        run_rounds(FOR_EVER, seeded(), rounds=1, folder=tmp_path / "run")


def test_a_record_of_a_round_that_is_damaged_is_refused(tmp_path):
    run_rounds(FOR_EVER, seeded(), rounds=1, folder=tmp_path / "run")
    (tmp_path / "run" / "00001" / "round.json").write_text("[1]")
    with pytest.raises(aw.InvalidInput, match=r"round\.json"):
        resume_rounds(tmp_path / "run")


def test_the_picture_and_the_words(tmp_path):
    result = run_rounds(FOR_EVER, rounds=3)
    result.plot(tmp_path / "rounds.png")
    assert (tmp_path / "rounds.png").stat().st_size > 10_000
    told = str(result)
    assert "classical ε" in told
    assert "all releases up to then counted" in told
    assert "3 rounds" in repr(result)


@pytest.mark.parametrize("noise", ["client", "server"])
def test_guarantee_a_check_of_rounds_finds_what_was_changed(tmp_path, noise):
    plan = aw.plan(FOR_EVER.problem.replace(noise=noise))
    folder = tmp_path / "run"
    run_rounds(plan, rounds=3, folder=folder)
    assert check_rounds(folder).differences == ()
    text = (folder / "statement.md").read_text()
    assert "3 rounds" in text
    assert "each record's value at every publication" in text
    (folder / "statement.md").write_text(text.replace("Target", "Aim"))
    assert check_rounds(folder).differences
    (folder / "statement.md").write_text(text)
    for path in (folder / "00002" / "round.json", folder / "00002" / "record.json"):
        kept = path.read_text()
        document = json.loads(kept)
        for name in ("aggregate", "epsilon", "classical", "estimate", "model", "expected_gap"):
            if name in document and (name != "estimate" or noise == "client"):
                value = document[name]
                changed = [value[0] + 1] if isinstance(value, list) else value + 1
                path.write_text(json.dumps(document | {name: changed}))
                assert check_rounds(folder).differences, name
        path.write_text(kept)
    assert check_rounds(folder).differences == ()


def test_guarantee_a_round_that_was_drawn_for_is_not_drawn_for_again(tmp_path):
    plan, folder = aw.plan(FOR_EVER.problem.replace(noise="server")), tmp_path / "run"
    run_rounds(plan, rounds=2, folder=folder)
    shutil.rmtree(folder / "00002")
    with pytest.raises(aw.InvalidInput, match="drawn twice"):
        resume_rounds(folder)


def test_a_kill_between_record_and_round_is_made_good(tmp_path):
    done = run_rounds(FOR_EVER, rounds=3, folder=tmp_path / "run")
    (tmp_path / "run" / "00003" / "round.json").unlink()
    assert resume_rounds(tmp_path / "run").rounds == done.rounds


def test_guarantee_whoever_missed_the_last_round_is_still_accounted_for(tmp_path):
    folder = tmp_path / "run"
    first = run_rounds(FOR_EVER, rounds=2, folder=folder, on_missing="renormalise")
    document = json.loads((folder / "rounds.json").read_text())
    worst = FOR_EVER.assignments[int(np.argmax(FOR_EVER.classical_epsilons))].client
    document["settings"]["drop"] = [worst]
    (folder / "rounds.json").write_text(json.dumps(document))
    more = resume_rounds(folder, rounds=3)
    assert more.rounds[-1].missing == (worst,)
    assert more.rounds[-1].classical >= first.rounds[-1].classical
    text = (folder / "statement.md").read_text()
    assert f"| {worst} | 2 |" in text
    assert check_rounds(folder).differences == ()


def test_fewer_rounds_than_were_begun_are_refused(tmp_path):
    run_rounds(FOR_EVER, seeded(), rounds=3, folder=tmp_path / "run")
    with pytest.raises(aw.InvalidInput, match="3 or more"):
        resume_rounds(tmp_path / "run", rounds=2)


@pytest.mark.parametrize("rounds", [2, 3, None])
@pytest.mark.parametrize("promise", ["every_moment", "present", 4])
def test_what_is_planned_is_what_clients_accept(rounds, promise):
    plan = aw.plan(FOR_EVER.problem.replace(rounds=rounds, promise=promise))
    result = run_rounds(plan, rounds=2)
    assert max(one.epsilon for one in result.rounds) <= 0.1 * (1 + 1e-6)


def losing(monkeypatch, number, name, slot):
    """One order is lost on its way."""
    send = LocalTransport.send

    def lossy(self, orders, until):
        lost = (f"-{number:05d}", name, slot)
        kept = [o for o in orders if (o.run[-6:], o.client, o.collect_at) != lost]
        send(self, kept, until)

    monkeypatch.setattr(LocalTransport, "send", lossy)


def test_guarantee_whoever_misses_a_slot_comes_later_and_stays_there(tmp_path, monkeypatch):
    plan = aw.evaluate(FOR_EVER.problem, [6, 6, 6])
    losing(monkeypatch, 2, "client 2", 6)
    result = run_rounds(plan, rounds=4, folder=tmp_path / "run", on_missing="replan")
    assert all(one.missing == () and one.participants == 3 for one in result.rounds)
    slots = [event.collect_at for event in events_of(tmp_path / "run", "client 2")]
    assert slots[0] == 6
    assert slots[1] > 16
    assert np.diff(slots[1:]).tolist() == [10, 10]  # never closer than a round
    assert [e.collect_at for e in events_of(tmp_path / "run")] == [6, 16, 26, 36]
    assert max(one.epsilon for one in result.rounds) <= 0.1 * (1 + 1e-9)
    assert check_rounds(tmp_path / "run").differences == ()
    (tmp_path / "run" / "00004" / "round.json").unlink()
    assert resume_rounds(tmp_path / "run").rounds == result.rounds


def test_whoever_is_gone_is_missing_and_nobody_moves(tmp_path):
    plan = aw.evaluate(FOR_EVER.problem, [6, 6, 6])
    result = run_rounds(
        plan, rounds=3, folder=tmp_path / "run", on_missing="replan", drop=["client 2"]
    )
    assert all(one.missing == ("client 2",) for one in result.rounds)
    assert [e.collect_at for e in events_of(tmp_path / "run")] == [6, 16, 26]
    assert check_rounds(tmp_path / "run").differences == ()


TURNS = aw.plan(
    FOR_EVER.problem.replace(
        clients=[
            dataclasses.replace(client, turn=turn)
            for client, turn in zip(FOR_EVER.problem.clients, (2, 4, 2), strict=True)
        ]
    )
)


def test_rounds_without_anybody_publish_what_is_known(tmp_path):
    result = run_rounds(TURNS, rounds=5, folder=tmp_path / "run")
    assert [one.participants for one in result.rounds] == [3, 0, 2, 0, 3]
    for one in result.rounds[1::2]:
        assert one.aggregate == one.estimate
        assert one.truth is not None
    assert result.rounds[1].classical == result.rounds[0].classical
    assert result.rounds[1].estimate_gap > result.rounds[0].estimate_gap
    assert check_rounds(tmp_path / "run").differences == ()
    path = tmp_path / "run" / "00002" / "round.json"
    path.write_text(path.read_text().replace('"estimate_gap": ', '"estimate_gap": 1'))
    assert check_rounds(tmp_path / "run").differences


def test_nobody_of_that_name_can_be_dropped():
    with pytest.raises(aw.InvalidInput, match="nobody"):
        run_rounds(FOR_EVER, seeded(), rounds=2, drop=["nobody"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("round.json", '{"estimate": ["x"]}'),
        ("record.json", "[]"),
        ("record.json", '{"complete": true}'),
        ("record.json", "{"),
    ],
)
def test_what_a_round_left_is_checked_before_it_is_used(tmp_path, name, text):
    run_rounds(FOR_EVER, seeded(), rounds=1, folder=tmp_path / "run")
    (tmp_path / "run" / "00001" / name).write_text(text)
    for look in (resume_rounds, check_rounds):
        with pytest.raises(aw.InvalidInput, match="run folder"):
            look(tmp_path / "run")
