"""What policies promise over many releases, and the account that a ledger carries on for that."""

import json
import multiprocessing
import os
import signal
import sqlite3
from dataclasses import replace

import numpy as np
import pytest

import agewise as aw
import in_process
from agewise.privacy import Ledger, LedgerDamaged
from agewise.privacy import ledger as ledger_module
from agewise.privacy.account import BudgetExceeded, Event, Policy, enforce, now, promised_total
from agewise.privacy.pairwise import release_losses
from agewise.privacy.rows import hash_of
from agewise.privacy.standing import Standing, standing_after
from agewise.privacy.totals import mu_of, promised_anew
from attacks import attack, binary_outputs, laplace_outputs
from enumeration import random_mechanism, true_loss
from random_chains import random_chain

CHAIN = aw.birth_death(0.4, 0.4, [20, 50, 100, 200])
PRESENT = Policy(0.1, promise="present")


def event(slot, epsilon, chain=CHAIN, age=0, metric=True, **changes):
    shares = release_losses(1.0, chain.states) if metric else None
    facts = {
        "key": f"{slot}",
        "client": "north",
        "collect_at": slot,
        "aggregate_at": slot + age,
        "classical_epsilon": epsilon,
        "aged_epsilon": epsilon,
        "sensitivity": 1.0,
        "scale": 1.0,
        "private": True,
        "mixing": "exact",
        "fingerprint": chain.fingerprint,
        "made_at": now(),
        "payload": b"",
        "metric": None if shares is None else tuple(map(tuple, shares.tolist())),
    }
    return Event(**{**facts, **changes})


def put(ledger, made, policy=PRESENT, chain=CHAIN, method="exact"):
    return ledger.release(made.key, lambda _: made, policy, chain, method)


def carried(events, chain, method="exact"):
    """The events with the account that a ledger would let them carry."""
    known = []
    for one in events:
        after = standing_after(known, one, chain, method)
        known.append(replace(one, account="" if after is None else after.write()))
    return known


def anew(known, new, chain, promise, method="exact"):
    bare = [replace(one, account="") for one in known]
    return promised_anew(bare, new, chain, promise, method, None, new.aggregate_at).aged


@pytest.mark.parametrize("seed", range(12))
def test_guarantee_a_promise_is_kept_against_every_string_of_outputs(seed):
    """Never below the attack, and never above the full account but by rounding."""
    rng = np.random.default_rng(seed)
    chain = random_chain(rng, int(rng.integers(2, 4)), "dense")
    laplace, back, age = bool(seed % 2), int(rng.integers(1, 5)), int(rng.integers(0, 2))
    slots = np.cumsum(rng.integers(age + 1, 5, 5)).tolist()
    spent = rng.uniform(0.05, 1, 5)
    outputs = [
        laplace_outputs(e, chain.states) if laplace else binary_outputs(e, chain.states.size)
        for e in spent
    ]
    events = [event(t, e, chain, age, laplace) for t, e in zip(slots, spent.tolist(), strict=True)]
    known, law, step = carried(events, chain), chain.stationary, chain.transition
    for k in range(5):
        at, seen = slots[k] + age, (slots[: k + 1], outputs[: k + 1])

        def told(about, seen=seen):
            return max(attack(step, law, *seen, slot) for slot in about)

        now_or_late = range(max(at - back, slots[0]), at + 1)
        ever = range(slots[0], at + 1)
        for promise, about in (("present", [at]), (back, now_or_late), ("every_moment", ever)):
            total = promised_total(known[:k], events[k], chain, promise).aged
            assert told(about) <= total * (1 + 1e-11) + 1e-11, promise
            full = anew(known[:k], events[k], chain, promise)
            if promise == "every_moment":
                assert full <= total * (1 + 1e-9)  # which also bounds what is still to come
            else:
                assert total == pytest.approx(full, rel=1e-9)


@pytest.mark.parametrize("promise", ["present", 2])
def test_no_sequence_of_releases_breaks_a_promise(promise):
    """Whatever a policy let through, in any order of collection, by summing over every path."""
    rng, kept, refused = np.random.default_rng(1), 0, 0
    for _ in range(6):
        chain, limit = random_chain(rng, 2, "dense"), rng.uniform(0.1, 0.25)
        policy, known, tables = Policy(limit, promise=promise), [], {}
        for number in range(8):
            slot, age = int(rng.integers(1, 7)), int(rng.integers(0, 3))
            mechanism, epsilon = random_mechanism(rng, 2, 2, rng.uniform(0.1, 0.9))
            made = event(slot, epsilon, chain, age, metric=False, key=str(number))
            try:
                enforce(policy, known, made, chain, "exact", None)
            except BudgetExceeded:
                refused += 1
                continue
            known = carried([*known, made], chain)
            tables[made.key] = (slot, mechanism)
        for publication in {one.aggregate_at for one in known}:
            group = [tables[one.key] for one in known if one.aggregate_at <= publication]
            first = min(slot for slot, _ in group)
            back = 0 if promise == "present" else promise
            for about in range(max(publication - back, first), publication + 1):
                true = true_loss(chain.transition, chain.stationary, group, about)
                assert true <= limit * (1 + 1e-8)
                kept += len(group) > 1
    assert kept > 10
    assert refused > 5


@pytest.mark.parametrize("client", range(3))
def test_a_year_of_releases_under_present_and_not_one_larger(paper_chains, client):
    chain = paper_chains[client]
    spent = aw.per_release_epsilon(chain, 10, 0.1, promise="present")
    with Ledger(None) as ledger:
        for number in range(365):
            put(ledger, event(1 + 10 * number, spent, chain), chain=chain)
        last = ledger.known()[-1]
        standing = Standing.read(last.account)
        assert np.max(standing.losses) <= 0.1 * (1 + 1e-9)
        assert np.max(standing.losses) >= 0.1 * (1 - 1e-4)
        assert standing.classical == pytest.approx(365 * spent)
        with pytest.raises(BudgetExceeded, match=r"aged ε 0\.1\d+, its policy allows 0\.1"):
            put(ledger, event(3651, 1.01 * spent, chain), chain=chain)
        put(ledger, event(3651, spent, chain), chain=chain)
        ledger.check_account(chain)


def test_a_later_release_need_not_keep_what_was_said_about_an_earlier_publication():
    first, later = event(1, 0.1), event(3, 0.06)
    enforce(replace(PRESENT, max_aged_epsilon=0.11), [first], later, CHAIN, "exact", None)
    with pytest.raises(BudgetExceeded, match="about slot 1"):
        enforce(Policy(0.11), [first], later, CHAIN, "exact", None)
    with pytest.raises(BudgetExceeded):
        enforce(Policy(0.11, promise=2), [first], later, CHAIN, "exact", None)


def test_guarantee_a_release_reads_as_many_rows_after_many_as_after_few(monkeypatch):
    read = []
    plain = ledger_module.event_of
    monkeypatch.setattr(ledger_module, "event_of", lambda row: read.append(1) or plain(row))
    for policy in (PRESENT, Policy(0.2, promise=25), Policy(0.2, None, None, 0.0, True, "present")):
        counts = {}
        with Ledger(None) as ledger:
            for number in range(200):
                read.clear()
                put(ledger, event(1 + 10 * number, 0.09), policy)
                counts[number] = len(read)
        assert counts[10] == counts[199] < 15


def test_under_every_moment_no_more_rows_are_read_either(monkeypatch):
    read = []
    plain = ledger_module.event_of
    monkeypatch.setattr(ledger_module, "event_of", lambda row: read.append(1) or plain(row))
    policy, counts = Policy(0.11, promise="every_moment", every=10, max_release_epsilon=0.1), {}
    with Ledger(None) as ledger:
        for number in range(60):
            read.clear()
            put(ledger, event(1 + 10 * number, 0.1), policy)
            counts[number] = len(read)
    assert counts[10] == counts[59] < 10


RULE = Policy(0.11, promise="every_moment", every=10, max_release_epsilon=0.1)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (event(21, 0.11), r"classical ε 0\.11, its policy allows 0\.1 each time"),
        (event(20, 0.1), r"slot 20, and collects in slot 11: .* one release in any 10 slots"),
        (event(2, 0.1), r"slot 2, and collects in slot 1"),
        (event(11, 0.01, key="again"), "and collects in slot 11"),
    ],
)
def test_the_rule_is_kept_whatever_is_asked(made, words):
    with Ledger(None) as ledger:
        put(ledger, event(1, 0.1), RULE)
        put(ledger, event(11, 0.1), RULE)
        with pytest.raises(BudgetExceeded, match=words):
            put(ledger, made, RULE)
        assert ledger.verify() == 2
        put(ledger, event(21, 0.1), RULE)


@pytest.mark.parametrize(
    ("slot", "made_at", "allowed"),
    [
        (11, "2026-01-01T05:00:00+00:00", True),
        (11, "2026-01-01T04:30:00+00:00", True),  # late in slot 1, early in slot 11
        (11, "2026-01-01T04:29:00+00:00", False),
        (21, "2026-01-01T05:00:00+00:00", False),
        (11, "2025-12-31T23:00:00+00:00", False),
    ],
)
def test_guarantee_slots_that_have_not_passed_are_not_believed(slot, made_at, allowed):
    policy = Policy(5.0, slot_seconds=1800.0)
    with Ledger(None) as ledger:
        put(ledger, event(1, 0.1, made_at="2026-01-01T00:00:00+00:00"), policy)
        later = event(slot, 0.1, made_at=made_at)
        if allowed:
            put(ledger, later, policy)
        else:
            with pytest.raises(BudgetExceeded, match="a slot takes 1800 s"):
                put(ledger, later, policy)
        put(
            ledger,
            event(slot, 0.1, made_at=made_at, key="anyhow"),
            replace(policy, slot_seconds=None),
        )


def test_guarantee_a_release_with_which_the_rule_would_pass_its_limit_is_refused():
    """The limit is kept though the policy's own number would allow more, and says what would do."""
    loose = replace(RULE, max_release_epsilon=0.2)
    with Ledger(None) as ledger:
        with pytest.raises(BudgetExceeded, match=r"about every moment that is 0\.2\d+") as refused:
            put(ledger, event(1, 0.2), loose)
        allowed = float(str(refused.value).split("Plan with ")[1].split()[0])
        put(ledger, event(1, 0.05), loose)
        put(ledger, event(11, allowed), loose)
        with pytest.raises(BudgetExceeded, match="about every moment"):
            put(ledger, event(21, 1.02 * allowed), loose)
        put(ledger, event(21, allowed), loose)


def test_what_did_not_keep_to_the_rule_counts_in_full_beside_it():
    rule = aw.privacy.rule_epsilon(CHAIN, 10, 0.1, promise="every_moment")
    for earlier in (event(1, 0.3), event(1, 0.3, fingerprint="other"), event(1, 0.3, delta=1e-9)):
        new, about = event(50, 0.1), replace(RULE, max_delta=1e-6)
        tight = replace(about, max_aged_epsilon=0.29 + rule)
        with pytest.raises(BudgetExceeded):
            enforce(tight, [earlier], new, CHAIN, "exact", None)
        enforce(
            replace(about, max_aged_epsilon=0.3001 + rule), [earlier], new, CHAIN, "exact", None
        )


def strange(kind):
    """Releases that cannot simply be carried on."""
    return {
        "out of order": [event(1, 0.3), event(9, 0.2), event(5, 0.1)],
        "another process": [event(1, 0.3, fingerprint="other"), event(9, 0.2), event(12, 0.1)],
        "published late": [event(1, 0.3, age=20), event(9, 0.2), event(12, 0.1)],
        "with a delta": [event(1, 0.3, delta=1e-9), event(9, 0.2), event(12, 0.1)],
        "without noise": [event(1, float("inf")), event(9, 0.2), event(12, 0.1)],
        "a stand-in": [event(1, 0.3, private=False), event(9, 0.2), event(12, 0.1)],
    }[kind]


@pytest.mark.parametrize(
    "kind",
    ["out of order", "another process", "published late", "with a delta", "without noise"],
)
@pytest.mark.parametrize("method", ["exact", "any_prior"])
@pytest.mark.parametrize("promise", ["present", 6])
def test_what_cannot_be_carried_on_is_counted_anew(kind, method, promise):
    known = carried(strange(kind), CHAIN)  # by `exact`: another method starts anew too
    new = event(30, 0.2)
    total = promised_total(known, new, CHAIN, promise, method).aged
    assert total == pytest.approx(anew(known, new, CHAIN, promise, method), rel=1e-12)


def test_the_stand_in_changes_nothing():
    known = carried(strange("a stand-in"), CHAIN)
    assert Standing.read(known[-1].account).releases == 2
    assert Standing.read(known[0].account).losses == []


def killed_while_inserting(path):
    ledger = Ledger(path)
    ledger._database.set_trace_callback(
        lambda statement: (
            os.kill(os.getpid(), signal.SIGKILL)
            if statement.startswith("INSERT OR REPLACE INTO meta")
            else None
        )
    )
    put(ledger, event(11, 0.05))


def test_guarantee_event_and_account_are_recorded_together_or_not_at_all(tmp_path):
    path = tmp_path / "north.ledger"
    with Ledger(path) as ledger:
        put(ledger, event(1, 0.05))
    child = multiprocessing.get_context("spawn").Process(
        target=killed_while_inserting, args=(path,)
    )
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    with Ledger(path) as ledger:
        assert ledger.verify() == 1
        assert Standing.read(ledger.events()[-1].account).releases == 1
        put(ledger, event(11, 0.05))
        ledger.check_account(CHAIN)
        assert Standing.read(ledger.events()[-1].account).releases == 2


def test_a_changed_account_is_noticed(tmp_path):
    path = tmp_path / "north.ledger"
    with Ledger(path) as ledger:
        for slot in (1, 11, 21):
            made = put(ledger, event(slot, 0.05))
        previous = ledger.events()[1].hash
        ledger.check_account(CHAIN)
    less = json.loads(made.account)
    less["losses"] = (np.array(less["losses"]) / 2).tolist()
    forged = replace(made, account=json.dumps(less), hash="")
    with sqlite3.connect(path) as database:
        database.execute("UPDATE events SET account = ? WHERE number = 3", (forged.account,))
    with pytest.raises(LedgerDamaged, match="event 3 is not what was written"):
        Ledger(path)
    number = hash_of(forged, previous)  # with every hash forged as well
    with sqlite3.connect(path) as database:
        database.execute("UPDATE events SET hash = ? WHERE number = 3", (number,))
        database.execute("UPDATE meta SET value = ? WHERE key = 'head'", (f"3 {number}",))
    database.close()
    for opening in (Ledger.read, Ledger):
        with pytest.raises(LedgerDamaged, match="the account that it carries"):
            opening(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"promise": "past"}, "promise is 'past'; allowed: present, every_moment or"),
        ({"promise": -1}, "promise is -1"),
        ({"promise": True}, "promise is True"),
        ({"promise": "present", "max_aged_epsilon": None}, "max_aged_epsilon is None"),
        ({"promise": "present", "window": 5}, "window is 5; allowed: none with a promise"),
        ({"promise": "every_moment", "every": 5}, "max_release_epsilon is None; allowed: a number"),
        ({"promise": "every_moment", "max_release_epsilon": 0.1}, "every is None"),
        ({"every": 0}, "every is 0; allowed: a whole number from 1"),
        ({"max_release_epsilon": 0.0}, r"max_release_epsilon is 0\.0"),
    ],
)
def test_bad_promises_are_refused(changes, words):
    with pytest.raises(aw.InvalidInput, match=words):
        Policy(**{"max_aged_epsilon": 0.1, **changes})


@pytest.mark.parametrize("metric", [((0.0, 2.0), (2.0, 0.0)), ((0.0,), (1.0,))])
def test_a_metric_is_a_share_for_each_two_states(metric):
    with pytest.raises(aw.InvalidInput, match="metric"):
        event(1, 0.1, metric=False).__class__(**{**vars(event(1, 0.1)), "metric": metric})


def test_a_ledger_shows_what_it_carries_on(tmp_path):
    with Ledger(tmp_path / "north.ledger") as ledger:
        put(ledger, event(1, 0.05))
    shown = in_process.command("ledger", "show", tmp_path / "north.ledger")
    assert "about the value in slot 1, by all so far: ε 0.05 (exact" in shown.stdout


def test_noise_of_which_the_grid_matters_is_known_by_its_pair_only():
    """Noise over ten million times what a record moves: long vectors are on a coarser grid."""
    known = {"kind": "gaussian", "delta": 1e-6, "sensitivity": 1.0}
    assert mu_of(event(1, 0.3, **known, scale=4.0)) == pytest.approx(0.25)
    assert mu_of(event(1, 0.3, **known, scale=4.0)) > 0.25
    assert mu_of(event(1, 0.3, **known, scale=2e7)) == 0.0
    assert mu_of(event(1, 0.3, **{**known, "kind": "laplace"}, scale=4.0)) == 0.0
