"""Clients try their orders before anybody releases."""

import numpy as np
import pytest
from grid import InProcessGrid, Node, failing
from london import NAMES, PLAN, PROBLEM, carry_out, kinds, node, run, settings

import agewise as aw
from agewise.federation.flower import client_app
from agewise.federation.flower.node import write_node


def cannot_pay(tmp_path):
    return node(tmp_path, "client 3", stand_in=False, policy=aw.Policy(max_classical_epsilon=0.01))


def has_no_readings(tmp_path):
    path = tmp_path / "client 3" / "node.toml"
    records = {"kind": "readings", "path": str(tmp_path / "none.csv")}
    write_node(path, PROBLEM, "client 3", records=records, policy=aw.Policy())
    return Node(client_app.app, {"agewise-config": str(path)})


def has_a_damaged_ledger(tmp_path):
    made = node(tmp_path, "client 3", stand_in=False)
    (tmp_path / "client 3" / "releases.ledger").write_bytes(b"SQLite format 3\0 but no more")
    return made


def has_a_ledger_that_cannot_be_made(tmp_path):
    made = node(tmp_path, "client 3", stand_in=False)
    path = tmp_path / "client 3" / "node.toml"
    path.write_text(path.read_text().replace('"releases.ledger"', '"/proc/none.ledger"'))
    return made


@pytest.mark.parametrize(
    ("trouble", "word"),
    [
        (cannot_pay, "budget"),
        (has_no_readings, "records"),
        (has_a_damaged_ledger, "ledger"),
        (has_a_ledger_that_cannot_be_made, "ledger"),
    ],
)
@pytest.mark.parametrize("keyed", [True, False])
def test_guarantee_nobody_releases_if_somebody_cannot(tmp_path, trouble, word, keyed):
    nodes = {name: node(tmp_path, name, stand_in=False) for name in NAMES}
    nodes["client 3"] = trouble(tmp_path)
    grid = InProcessGrid(nodes.values())
    numbers = dict(zip(NAMES, grid.nodes, strict=True)) if keyed else None
    with pytest.raises(aw.RunIncomplete, match=rf"client 3 would not follow the plan \({word}\)"):
        carry_out(grid, PLAN, settings(private=True, nodes=numbers))
    assert not kinds(grid, "train")
    assert not any((tmp_path / name / "releases.ledger").exists() for name in NAMES[:2])


def test_nodes_that_their_keys_name_are_not_asked_who_they_are(nodes):
    grid = InProcessGrid(nodes.values())
    numbers = dict(zip(NAMES, grid.nodes, strict=True))
    server = carry_out(grid, PLAN, settings(nodes=numbers))
    assert server.finish().model == aw.run(PLAN, rng=np.random.default_rng(11)).model
    assert sorted(kinds(grid, "query.agewise")) == [(n, {"order"}) for n in sorted(grid.nodes)]
    other = InProcessGrid(nodes.values())
    carry_out(other, PLAN, settings(run="b", nodes=numbers, on_missing="renormalise"))
    assert not kinds(other, "query.agewise")  # nothing has to be known beforehand


def test_by_the_wall_clock_keyed_nodes_are_asked_for_the_time(nodes, clock):
    def fault(message):
        if "query" not in message.metadata.message_type:
            return None
        return client_app.reply_to(message, client="client 2", time=clock.time() - 3600)

    nodes["client 2"].fault = fault
    grid = InProcessGrid(nodes.values())
    numbers = dict(zip(NAMES, grid.nodes, strict=True))
    with pytest.raises(aw.RunIncomplete, match="clock of client 'client 2' is off by 3600 s"):
        carry_out(
            grid,
            PLAN,
            settings(nodes=numbers, on_missing="renormalise", clock="wall", slot_seconds=60.0),
        )
    assert not kinds(grid, "train")


@pytest.mark.parametrize("answer", [failing(5), failing(6), lambda _: False])
def test_a_question_that_got_lost_is_asked_again(nodes, answer):
    """An error that is no word of ours is a failure, not a refusal."""
    faults = [answer]

    def fault(message):
        asked = "order" in message.content["agewise"]
        return faults.pop()(message) if asked and faults else None

    nodes["client 2"].fault = fault
    assert run(nodes).finish().participants == tuple(NAMES)
    assert not faults
