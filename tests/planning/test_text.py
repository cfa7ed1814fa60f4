"""The text of a plan: what `json.dumps` writes, though clients alike are written once."""

import hashlib
import json

import pytest

import agewise as aw
from agewise.planning import text
from agewise.planning.text import fingerprint, plan_json


def rows(*values, name="client"):
    return [{name: f"c{i}", "value": value, "unit": "Wh"} for i, value in enumerate(values)]


def document(assignments, clients, **more):
    return {"version": 4, "scenario": {"clients": clients}, "assignments": assignments, **more}


TABLE = {"kind": "chain", "transition": [[0.5, 0.5], [0.25, 0.75]]}
DOCUMENTS = {
    "alike": document(rows(1.5, 1.5, 1.5), rows(TABLE, TABLE, name="name")),
    "whole numbers and others": document(rows(1, 1.0, True, 1), rows(0, False, 0.0, name="name")),
    "zeros": document(rows(0.0, -0.0, 0.0), rows(-0.0, 0.0, name="name")),
    "tables that are equal": document(rows([1], [1], [1.0]), rows([TABLE], [TABLE], name="name")),
    "none": document(rows(None, "", "None"), []),
    "other keys": document(
        [{"client": "a", "x": 1}, {"client": "b", "y": 1}], rows(1, name="name")
    ),
    "names": document([{"client": 'a"}, {"'}, {"x": 1, "client": "ä\n"}], rows(2, name="name")),
    "like a gap": document(rows(1), rows(2, name="name"), notes={"clients": []}),
    "a gap in words": document(rows('"clients": []'), rows('"assignments": []', name="name")),
}


@pytest.mark.parametrize("given", DOCUMENTS.values(), ids=DOCUMENTS)
def test_texts_are_those_of_whole_documents(given):
    whole = json.dumps(given, sort_keys=True)
    assert fingerprint(given) == hashlib.sha256(whole.encode()).hexdigest()
    # As texts, for 1 and 1.0 are equal, and so are zeros of two signs.
    assert json.dumps(json.loads(plan_json(given))) == json.dumps(given)


def test_infinities_are_refused():
    for given in (document(rows(float("inf")), []), document([], [], gap=float("nan"))):
        for written in (fingerprint, plan_json):
            with pytest.raises(ValueError, match="not JSON compliant"):
                written(given)


def test_a_plan_has_a_client_on_each_line_and_its_digest_is_the_hash_of_all():
    chain = aw.birth_death(0.1, 0.2, [20, 50, 100, 200])
    clients = [aw.Client(f"meter {i}", chain, samples=10) for i in range(5)]
    plan = aw.plan(aw.Problem(clients, aggregate_at=4, epsilon=0.5))
    lines = [line.strip() for line in plan.to_json().splitlines()]
    for name, many in (("name", 5), ("client", 5)):
        assert sum(line.startswith(f'{{"{name}": "meter') for line in lines) == many
    whole = json.dumps(plan.to_dict(), sort_keys=True)
    assert plan.digest == hashlib.sha256(whole.encode()).hexdigest()[: len(plan.digest)]


def test_clients_alike_are_worked_out_once(monkeypatch):
    asked = []
    dumps = json.dumps
    monkeypatch.setattr(text.json, "dumps", lambda *a, **k: asked.append(a) or dumps(*a, **k))
    fingerprint(document(rows(*[2.5] * 100), rows(*[TABLE] * 100, name="name")))
    assert len(asked) == 3  # one of each, and what is around them


def test_a_process_that_many_share_is_told_once(monkeypatch):
    chain, told = aw.birth_death(0.1, 0.2, [20, 50, 100, 200]), []
    whole = aw.MarkovChain.to_dict
    monkeypatch.setattr(aw.MarkovChain, "to_dict", lambda one: told.append(1) or whole(one))
    clients = [aw.Client(f"meter {i}", chain, samples=10 + i) for i in range(5)]
    plan = aw.plan(aw.Problem(clients, aggregate_at=4, epsilon=0.5))
    told.clear()
    assert plan.digest
    assert len(told) == 1
