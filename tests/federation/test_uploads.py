"""Uploads of clients alike as arrays: the same bytes, taken or rejected as one by one."""

import dataclasses
import json
import math

import numpy as np
import pytest

import agewise as aw
from agewise.documents import with_rows
from agewise.federation import check_run
from parties import LocalRun, Received, Server, Settings, Upload, Uploads

NAMES = ["plain", 'quo"ted', "back\\slash", "Île é 漢字", '","value":[]', "client"]
CHAIN = aw.birth_death(0.2, 0.3, [20, 50, 100, 200])
PROBLEM = aw.Problem([aw.Client(name, CHAIN, samples=10) for name in NAMES], 3, 0.5)
PLAN = aw.plan(PROBLEM)
RUN = 'run "client":"", "value":[]'


def uploads(private=False, **changes):
    """What the clients of the plan send together."""
    settings = Settings(run=RUN, seed=3, stand_in=not private)
    sent = []
    run = LocalRun(PLAN, settings, None, None)
    receive = run.server.receive_alike
    run.server.receive_alike = lambda one, slot: (sent.append(one), receive(one, slot))
    run.carry_out(None, None)
    [one] = sent
    return Uploads(
        one.first.model_copy(update=changes.pop("first", {})),
        changes.pop("names", one.names),
        changes.pop("rows", one.rows),
    )


def server(private=False):
    made = Server(PLAN, RUN, "renormalise", private=private)
    for slot in range(1, PLAN.assignments[0].collect_at):
        made.close(slot)
    return made


SLOT = PLAN.assignments[0].collect_at


@pytest.mark.parametrize("width", [1, 3])
def test_the_bytes_are_those_that_each_would_send(width):
    odd = np.array([1e-7, 1e22, -0.0, 5e-324, 1.7976931348623157e308, 1 / 3])
    rows = np.stack([odd] * width, axis=1)
    one = uploads(rows=rows)
    for place, payload in enumerate(one.payloads):
        assert payload == one.upload(place).encode()
        told = Upload.decode(payload)
        assert told.client == NAMES[place]
        assert told.value == rows[place].tolist()
        assert one[NAMES[place]] == payload
    assert dict(one.items()) == dict(zip(NAMES, one.payloads, strict=True))


def test_a_journal_brings_them_back():
    one = uploads()
    again = Uploads.from_entry(json.loads(json.dumps(one.to_entry())))
    assert again.payloads == one.payloads
    assert again.hashes == one.hashes


def test_a_journal_of_the_first_such_version_brings_them_back_too():
    one = uploads()
    entry = one.to_entry() | {"values": one.rows.tolist()}
    again = Uploads.from_entry(json.loads(json.dumps(entry)))
    assert again.payloads == one.payloads


def one_by_one(made, several):
    for name, payload in zip(several.names, several.payloads, strict=True):
        made.receive(payload, SLOT, name)


def state(made):
    return dict(made.received), dict(made.late), made.rejected, made.steps, dict(made.missing)


FAULTS = {
    "nothing": {},
    "another run": {"first": {"run": "other"}},
    "another plan": {"first": {"plan": "0" * 64}},
    "too little noise": {"first": {"noise_scale": 1e-3}},
    "another slot": {"first": {"collect_at": 1 + SLOT % 3}},
    "noise by the server": {"first": {"noise": "server"}},
    "a false claim": {"first": {"samples": 11}},
    "a name twice": {"names": [*NAMES[:-1], NAMES[0]]},
    "a stranger": {"names": [*NAMES[:-1], "stranger"]},
    "too many values": {"rows": np.zeros((6, 2))},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_guarantee_together_is_taken_what_would_be_taken_one_by_one(fault):
    several, single, together = uploads(**FAULTS[fault]), server(), server()
    together.receive_alike(several, SLOT)
    one_by_one(single, several)
    assert state(together) == state(single)
    assert (len(together.received) == 6) == (fault == "nothing")
    assert [one["input"] for one in together.inputs].count("received alike") == (fault == "nothing")


def test_what_came_already_and_what_comes_late_is_rejected():
    several = uploads()
    for change in ("twice", "closed"):
        single, together = server(), server()
        if change == "twice":
            single.receive(several.payloads[2], SLOT)
            together.receive(several.payloads[2], SLOT)
        else:
            single.close(SLOT)
            together.close(SLOT)
        together.receive_alike(several, SLOT)
        one_by_one(single, several)
        assert state(together) == state(single)
        assert sum(together.rejected.values()) == (1 if change == "twice" else 6)


def test_values_that_are_no_numbers_move_nothing():
    rows = uploads().rows.copy()
    rows[1] = np.nan
    made = server()
    made.receive_alike(uploads(rows=rows), SLOT)
    assert NAMES[1] not in made.received
    assert len(made.received) == 5
    assert made.rejected.total() == 1


def test_the_stand_in_is_not_taken_for_private_noise():
    made = server(private=True)
    made.receive_alike(uploads(), SLOT)
    assert len(made.received) == 0
    assert made.rejected == {"wrong noise": 6}


def test_received_uploads_are_a_mapping_that_forgets_what_is_dropped():
    held, several = Received(), uploads()
    held.add(several)
    held.add(Uploads.single(several.upload(1), b"other"))
    assert len(held) == 6
    assert held[NAMES[1]][1] == b"other"
    assert held[NAMES[2]] == (several.upload(2), several.payloads[2])
    assert held.values_of([NAMES[3], NAMES[1]]).tolist() == several.rows[[3, 1]].tolist()
    held.drop([NAMES[1], "stranger"])
    assert NAMES[1] not in held
    assert held.collected() == {name: SLOT for name in NAMES if name != NAMES[1]}


@pytest.mark.parametrize(
    "damage",
    [
        {"first": "{"},
        {"values": ["[1.0]"]},
        {"values": ["nonsense"] * 130},
        {"clients": 5},
        {"clients": []},
        {"slot": None},
    ],
)
def test_a_damaged_journal_of_uploads_alike_is_refused(tmp_path, damage):
    clients = [aw.Client(f"client {i}", CHAIN, samples=10) for i in range(130)]
    aw.run(aw.plan(aw.Problem(clients, 3, 0.5)), folder=tmp_path / "run")
    (tmp_path / "run" / "record.json").unlink()
    journal = tmp_path / "run" / "journal.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    [place] = [i for i, line in enumerate(lines) if line["input"] == "received alike"]
    lines[place] |= damage
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(aw.InvalidInput, match="journal"):
        aw.resume(tmp_path / "run")


def test_a_changed_value_in_the_journal_contradicts_the_ledgers(tmp_path):
    clients = [aw.Client(f"client {i}", CHAIN, samples=10) for i in range(130)]
    aw.run(aw.plan(aw.Problem(clients, 3, 0.5)), folder=tmp_path / "run")
    assert check_run(tmp_path / "run").differences == ()
    journal = tmp_path / "run" / "journal.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    [place] = [i for i, line in enumerate(lines) if line["input"] == "received alike"]
    lines[place]["values"][7] = "[55.5]"
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = [str(one) for one in check_run(tmp_path / "run").differences]
    assert any("client 7" in one for one in found)


def test_statements_of_clients_alike_say_what_each_row_says():
    result = aw.run(PLAN, rng=np.random.default_rng(0))
    rows = result.statement.clients
    assert [row.client for row in rows] == NAMES
    assert [row["client"] for row in rows.to_dicts()] == NAMES
    for sort in (False, True):
        written = [json.dumps(row, sort_keys=sort) for row in rows.to_dicts()]
        assert list(rows.texts(sort=sort)) == written
    assert rows[1:3] == (rows[1], rows[2])
    assert rows == tuple(rows)
    assert rows != tuple(rows)[:-1]
    assert hash(rows) == hash(tuple(rows))
    assert len({row.upload_sha256 for row in rows}) == len(NAMES)
    changed = dataclasses.replace(rows[0], age=99)
    assert rows != (changed, *rows[1:])


def test_a_record_in_pieces_is_the_record(tmp_path):
    result = aw.run(PLAN, folder=tmp_path / "run")
    whole = json.loads(json.dumps(result.to_dict()))
    assert json.loads(result.to_json()) == whole
    assert list(json.loads(result.to_json())) == list(result.to_dict())
    assert json.loads((tmp_path / "run" / "record.json").read_text()) == whole
    lines = result.to_json().splitlines()
    rows = [line for line in lines if '"upload_sha256"' in line]
    assert len(rows) == len(NAMES)  # a client on each line
    odd = dataclasses.replace(result, realised_loss=math.nan)
    with pytest.raises(ValueError, match="not JSON compliant"):
        odd.to_json()


def test_tables_that_are_not_empty_or_not_there_are_not_filled():
    rows = {'"steps": []': ["1", "2"]}
    assert json.loads("".join(with_rows({"steps": [], "x": 1}, rows))) == {"steps": [1, 2], "x": 1}
    assert json.loads("".join(with_rows({"steps": []}, {'"steps": []': []}))) == {"steps": []}
    for document in ({"steps": [1]}, {}, {"steps": [], "within": {"steps": []}}):
        with pytest.raises(ValueError, match="not once"):
            list(with_rows(document, rows))
