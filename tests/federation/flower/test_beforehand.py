"""Clients try their orders before anybody releases."""

import numpy as np
import pytest
from london import NAMES, PLAN, PROBLEM, carry_out, kinds, node, run, settings

import agewise as aw
from agewise.federation.flower import client_app
from agewise.privacy.witness import LedgerReplaced, Witness
from agewise.testing import FlowerGrid, FlowerNode, failing
from deployments import init_deployment


def cannot_pay(tmp_path):
    return node(tmp_path, "client 3", stand_in=False, policy=aw.Policy(max_classical_epsilon=0.01))


def has_no_readings(tmp_path):
    records = {"kind": "readings", "path": str(tmp_path / "none.csv")}
    return FlowerNode.of(tmp_path, PROBLEM, "client 3", records=records)


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
    grid = FlowerGrid(nodes.values())
    numbers = dict(zip(NAMES, grid.nodes, strict=True)) if keyed else None
    with pytest.raises(aw.RunIncomplete, match=rf"client 3 would not follow the plan \({word}\)"):
        carry_out(grid, PLAN, settings(private=True, nodes=numbers))
    assert not kinds(grid, "train")
    assert not any((tmp_path / name / "releases.ledger").exists() for name in NAMES[:2])


def test_nodes_that_their_keys_name_are_not_asked_who_they_are(nodes):
    grid = FlowerGrid(nodes.values())
    numbers = dict(zip(NAMES, grid.nodes, strict=True))
    server = carry_out(grid, PLAN, settings(nodes=numbers))
    assert server.finish().model == aw.run(PLAN, rng=np.random.default_rng(11)).model
    assert sorted(kinds(grid, "query.agewise")) == [(n, {"order"}) for n in sorted(grid.nodes)]
    other = FlowerGrid(nodes.values())
    carry_out(other, PLAN, settings(run="b", nodes=numbers, on_missing="renormalise"))
    assert not kinds(other, "query.agewise")  # nothing has to be known beforehand


def test_by_the_wall_clock_keyed_nodes_are_asked_for_the_time(nodes, clock):
    def fault(message):
        if "query" not in message.metadata.message_type:
            return None
        return client_app.reply_to(message, client="client 2", time=clock.time() - 3600)

    nodes["client 2"].fault = fault
    grid = FlowerGrid(nodes.values())
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


def test_a_deployment_that_is_laid_out_anew_begins_new_ledgers(tmp_path, monkeypatch):
    import shutil

    from agewise.federation.flower.node import LEDGER
    from agewise.privacy import Ledger

    monkeypatch.setenv("AGEWISE_STATE", str(tmp_path / "state"))
    for _ in range(2):
        laid_out = init_deployment(tmp_path / "federation", aw.scenarios.london(), tls=False)
        ledger = laid_out.folder / laid_out.nodes[0].folder / LEDGER
        Ledger(ledger).close()
        shutil.rmtree(laid_out.folder)
    ledger.parent.mkdir(parents=True)
    with pytest.raises(LedgerReplaced):
        Ledger(ledger)


def test_guarantee_a_node_whose_ledger_was_set_back_between_rounds_refuses(tmp_path):
    """Each round has a ServerApp of its own, in one home; the node's machine remembers nothing."""
    nodes = [node(tmp_path, name, policy=aw.Policy(99.0)) for name in NAMES]
    home, path = tmp_path / "home", tmp_path / NAMES[0] / "releases.ledger"

    def carry_out_round(number, old=None):
        if old is not None:
            path.write_bytes(old)
            Witness().forget(path.resolve())
        told = settings(run=f"rounds-{number:05d}")
        return carry_out(FlowerGrid(nodes), PLAN, told, home / str(number))

    first = carry_out_round(1)
    old = path.read_bytes()
    assert carry_out_round(2).heads == first.newest()
    (kept,) = home.glob("*.heads.json")
    assert kept.stat().st_mode & 0o077 == 0
    with pytest.raises(aw.RunIncomplete, match=r"would not follow the plan \(ledger\)"):
        carry_out_round(3, old)
