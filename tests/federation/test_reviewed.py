"""Ways in which a run's account could be wrong, each found once and kept out."""

import json

import numpy as np
import polars as pl
import pytest

import agewise as aw
from agewise.calibration import slot_table
from agewise.federation import SimulatedRecords
from agewise.privacy import Ledger
from agewise.privacy.account import Event, enforce, now, total_of
from attacks import aged_by_program, backward
from parties import ClientAgent, OrderRefused, Profile, Server, load_readings, private_noise
from random_problems import achieved_epsilon

LONDON = aw.scenarios.london()
PLAN = aw.plan(LONDON)


def event(collect_at, aggregate_at, epsilon=0.5, process=None, **changes):
    chain = process or LONDON.clients[0].process
    facts = {
        "key": f"{collect_at} {aggregate_at}",
        "client": "c",
        "collect_at": collect_at,
        "aggregate_at": aggregate_at,
        "classical_epsilon": epsilon,
        "aged_epsilon": epsilon,
        "sensitivity": 1.0,
        "scale": 1 / epsilon,
        "private": True,
        "mixing": "exact",
        "fingerprint": chain.fingerprint,
        "made_at": now(),
        "payload": b"",
    }
    return Event(**{**facts, **changes})


def test_a_shift_that_only_looks_like_whole_days_is_refused():
    day = aw.PeriodicChain([[[0.99, 0.01], [0.01, 0.99]], [[0.5, 0.5], [0.5, 0.5]]], [0.0, 1.0])
    plan = aw.plan(aw.Problem([aw.Client("c", day, samples=10)], 3, 0.1, estimator="plain"))
    with pytest.raises(aw.InvalidInput, match="whole days"):
        aw.run(plan, starts_at=1)
    assert aw.run(plan, starts_at=2).private


def test_what_was_collected_later_counts_too():
    chain = LONDON.clients[0].process
    early, late = event(2, 4, 0.3), event(8, 40, 0.9)
    total = total_of([late, early], chain, 4)
    assert total.classical == pytest.approx(1.2)
    apart, (rows, _) = 1 - np.eye(4), backward(chain.stationary, chain.steps(2))
    before, after = aged_by_program(0.3 * apart, rows), aged_by_program(0.9 * apart, chain.steps(4))
    assert total.aged == pytest.approx((before + after).max(), rel=1e-9)
    policy = aw.Policy(max_classical_epsilon=1.0)
    with pytest.raises(aw.BudgetExceeded):
        enforce(policy, [late], early, chain, "exact", None)


def test_a_far_aggregation_does_not_open_a_window():
    chain = LONDON.clients[0].process
    policy = aw.Policy(max_classical_epsilon=1.0, window=50)
    known = []
    for k in (1, 2):
        known.append(event(k, 1000 * k))
        enforce(policy, known[:-1], known[-1], chain, "exact", None)
    with pytest.raises(aw.BudgetExceeded):
        enforce(policy, known, event(3, 3000), chain, "exact", None)
    enforce(policy, known, event(52, 60), chain, "exact", None)  # both are out of its window
    with pytest.raises(aw.BudgetExceeded):  # a window that ends later holds three
        enforce(policy, [*known, event(40, 60)], event(30, 60), chain, "exact", None)


@pytest.mark.parametrize("mapping", [True, False])
def test_real_records_never_get_the_stand_in(tmp_path, mapping):
    path = tmp_path / "r.csv"
    rows = [
        {"client": c.name, "slot": t, "value": 50.0}
        for c in LONDON.clients
        for t in range(1, 11)
        for _ in range(100)
    ]
    pl.DataFrame(rows).write_csv(path)
    sources = load_readings(path, 10) if mapping else path
    with pytest.raises(aw.InvalidInput, match="simulated records only"):
        aw.run(PLAN, rng=np.random.default_rng(1), sources=sources, ledgers=tmp_path / "l")


def agent(problem, index=0, policy=aw.Policy(), ledger=None):  # noqa: B008
    client = problem.clients[index]
    profile = Profile(client, problem.epsilon, problem.mixing, policy)
    return ClientAgent(profile, SimulatedRecords(client, 3), ledger, private_noise)


@pytest.mark.parametrize("scale", [1e301, 1.79e308])
def test_a_huge_noise_scale_does_not_switch_the_noise_off(scale):
    chain = aw.MarkovChain([[0.9, 0.1], [0.1, 0.9]], [-1.0, 1.0])
    problem = aw.Problem([aw.Client("c", chain)], 150, 0.1)
    server = Server(aw.plan(problem), "run")
    order = server.orders(server.plan.collect_at[0])[0]
    with pytest.raises(OrderRefused, match="up to 1e300"):
        agent(problem).answer(order.model_copy(update={"noise_scale": scale}))


def test_a_total_is_never_below_one_of_its_parts(tmp_path):
    problem = LONDON.replace(mixing="own_law")
    client = problem.clients[2]
    with Ledger(tmp_path / "c.ledger") as ledger:
        one = agent(problem, 2, ledger=ledger)
        server = Server(aw.plan(problem), "first")
        slot = server.plan.collect_at[2]
        order = next(o for o in server.orders(slot) if o.client == client.name)
        one.answer(order.model_copy(update={"noise_scale": 1e9, "collect_at": 1}))
        payload = one.answer(order.model_copy(update={"run": "second"}))
    upload = json.loads(payload)
    assert upload["releases"] == 2
    assert upload["total_aged"] >= upload["aged_epsilon"]


def test_a_tight_claim_includes_rounding():
    chain = aw.MarkovChain([[0.6, 0.4], [0.4, 0.6]], [1e9, 1e9 + 1e-4])
    problem = aw.Problem(
        [aw.Client("c", chain, samples=10_000)], 2, 0.1, calibration="tight", estimator="plain"
    )
    table = slot_table(problem.clients[0], problem)
    claimed = achieved_epsilon(table, 0)
    moved = np.mean([1e9] * 10_000) - np.mean([1e9] * 9_999 + [1e9 + 1e-4])
    assert claimed <= 0.1
    assert claimed >= 0.99 * min(0.1, abs(moved) / table.scale[0] * table.delta[0])


def test_a_run_with_its_own_sources_is_not_resumed_without_them(tmp_path):
    class Cut(SimulatedRecords):
        def collect(self, *_):
            raise KeyboardInterrupt

    sources = {c.name: Cut(c, 1) for c in LONDON.clients}
    with pytest.raises(KeyboardInterrupt):
        aw.run(PLAN, folder=tmp_path / "run", sources=sources, ledgers=tmp_path / "l")
    with pytest.raises(aw.InvalidInput, match="sources is missing"):
        aw.resume(tmp_path / "run")


def test_no_room_to_replan_is_not_the_end():
    plan = aw.plan(LONDON.replace(aggregate_at=3, capacity=1))
    first = next(a.client for a in plan.assignments if a.collect_at == 1)
    result = aw.run(plan, rng=np.random.default_rng(1), drop=[first], on_missing="replan")
    assert result.missing == {first: "no upload, and no slot left"}


def test_a_single_releases_own_bound_holds_for_its_own_method_and_process_only():
    chain, slow = LONDON.clients[0].process, aw.birth_death(0.01, 0.01, [20, 50, 100, 200])
    one = event(1, 10, 0.5, aged_epsilon=0.01)
    assert total_of([one], chain, 10).aged == 0.01
    assert total_of([one], chain, 10, "any_prior").aged > 0.1
    assert total_of([one], slow, 10).aged > 0.1


@pytest.mark.parametrize(
    "lie",
    [
        {"releases": -5},
        {"releases": 0},
        {"delta": 0.0},
        {"mixing": "own_law"},
        {"samples": 1},
        {"aged_epsilon": 0.0},
        {"total_aged": 0.0},
        {"total_classical": 0.0},
        {"classical_epsilon": 0.0, "total_classical": 0.0},
        {"sensitivity": 0.0},
    ],
)
def test_claims_that_the_plan_contradicts_are_rejected(lie):
    server = Server(PLAN, "run")
    order = server.orders(1)[0]
    index = [c.name for c in LONDON.clients].index(order.client)
    honest = json.loads(agent(LONDON, index).answer(order))
    assert server.receive(json.dumps({**honest, **lie}).encode(), 1) == "false claim"
    assert server.receive(json.dumps(honest).encode(), 1) is None


def test_a_flood_of_rubbish_is_counted_not_kept():
    server = Server(PLAN, "run")
    for _ in range(3_000):
        server.receive(b"x" * 10_000, 1)
    assert server.rejected["malformed"] == 3_000
    assert len(server.steps) == len(server.inputs) == 1_000


def test_an_unknown_name_is_not_kept():
    server = Server(PLAN, "run")
    order = server.orders(1)[0]
    index = [c.name for c in LONDON.clients].index(order.client)
    honest = json.loads(agent(LONDON, index).answer(order))
    forged = json.dumps({**honest, "client": "y" * 1_000}).encode()
    assert server.receive(forged, 1) == "unknown client"
    assert server.steps[-1].client == "?"


def test_long_past_releases_leave_room_for_the_next(tmp_path):
    for starts_at in (0, 1_000, 5_000_000):
        result = aw.run(PLAN, ledgers=tmp_path, starts_at=starts_at)
    assert [row.releases for row in result.statement.clients] == [3, 3, 3]
    assert all(row.total_aged_epsilon < 0.1 * (1 + 1e-8) for row in result.statement.clients)


def test_a_late_release_is_in_the_statement():
    server = Server(PLAN, "run", "renormalise")
    order = server.orders(1)[0]
    index = [c.name for c in LONDON.clients].index(order.client)
    payload = agent(LONDON, index).answer(order)
    server.close(1)
    assert server.receive(payload, 2) == "stale"
    told = server.state(None)
    assert [(row.client, row.aggregated) for row in told.clients] == [(order.client, False)]
    assert "released, not aggregated" in told.to_markdown()


def test_a_release_that_the_run_was_replanned_without_is_in_the_statement():
    server = Server(PLAN, "run", "replan")
    order = server.orders(1)[0]
    index = [c.name for c in LONDON.clients].index(order.client)
    server.refuse(order.client, 1, "ledger")
    server.close(1)
    assert order.client not in {c.name for c in server.plan.problem.clients}
    payload = agent(LONDON, index).answer(order)  # the order was on its way a second time
    assert server.receive(payload, 2) == "stale"
    told = server.state(None)
    assert [(row.client, row.aggregated) for row in told.clients] == [(order.client, False)]


def test_the_statement_carries_the_plans_warnings():
    result = aw.run(PLAN)
    page = result.statement.to_markdown()
    assert "start from another stated law" in page
    assert repr(result.model) in page


@pytest.mark.parametrize("name", ["a\n\nApproved", "tab\t", "", " ", "x" * 201, "\u2028"])
def test_names_that_could_forge_a_page_are_refused(name):
    with pytest.raises(aw.InvalidInput, match="client name"):
        aw.Client(name, LONDON.clients[0].process)


def test_markup_in_a_name_stays_text():
    client = aw.Client("<script>|x", LONDON.clients[0].process)
    page = aw.run(aw.plan(aw.Problem([client], 3, 0.1))).statement.to_markdown()
    assert "<script>" not in page
    assert "\\|x" in page


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        ([1.5, 2.5], "slot 1.5"),
        (pl.Series(["2020-01-01"] * 2).str.to_datetime(), "allowed: numbers"),
    ],
)
def test_odd_slots_of_parquet_are_refused(tmp_path, slots, words):
    path = tmp_path / "r.parquet"
    pl.DataFrame({"client": ["a", "a"], "slot": slots, "value": [1.0, 2.0]}).write_parquet(path)
    with pytest.raises(aw.InvalidInput, match=words):
        load_readings(path, 10)


def test_patterns_are_not_file_names(tmp_path):
    (tmp_path / "r1.csv").write_text("client,slot,value\na,1,1\n")
    with pytest.raises(aw.InvalidInput, match="an existing file"):
        load_readings(tmp_path / "r*.csv", 10)


def interrupted(folder, **choices):
    with pytest.raises(KeyboardInterrupt):
        aw.run(PLAN, folder=folder, watch=stop, **choices)


def stop(step, *_):
    if step.what == "uploaded":
        raise KeyboardInterrupt


def test_a_forged_journal_is_refused(tmp_path):
    interrupted(tmp_path / "run")
    journal = tmp_path / "run" / "journal.jsonl"
    entry = json.loads(journal.read_text().splitlines()[0])
    upload = json.loads(entry["payload"])
    entry["payload"] = json.dumps({**upload, "value": [5000.0]})
    journal.write_text(json.dumps(entry) + "\n")
    with pytest.raises(aw.InvalidInput, match="its ledger does not hold"):
        aw.resume(tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"policy": 3}, "policy"),
        ({"policy": {"odd": 1}}, "policy.odd is not a known key; allowed: max_aged_epsilon"),
        ({"policy": {"window": 5}}, "policy.max_aged_epsilon is missing"),
        ({"drop": None}, "drop"),
        ({"odd": 5}, "odd is not a known key"),
        (
            {"policy": {**vars(aw.Policy()), "window": 0}},
            "policy.window is 0; allowed: a whole number",
        ),
        ({"seed": -5}, "seed"),
        ({"run": 5}, "run"),
        ({"readings": 5}, "readings"),
        ({"started": "x"}, "started"),
        ({"starts_at": -7}, "starts_at"),
        ({"clock": "sundial"}, "clock"),
        ({"slot_seconds": 1e300}, "slot_seconds"),
    ],
)
def test_odd_settings_are_refused(tmp_path, change, words):
    interrupted(tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(aw.InvalidInput, match=words):
        aw.resume(tmp_path / "run")


def test_a_journal_that_is_no_text_is_refused(tmp_path):
    interrupted(tmp_path / "run")
    path = tmp_path / "run" / "journal.jsonl"
    path.write_bytes(b"\xff" + path.read_bytes())
    with pytest.raises(aw.InvalidInput, match="journal"):
        aw.resume(tmp_path / "run")


def test_ledgers_made_at_once_by_many_are_whole(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    def begin(index):
        with Ledger(tmp_path / f"{index % 40}.ledger") as ledger:
            return ledger.verify()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(begin, range(320))) == {0}
    assert len(list(tmp_path.iterdir())) == 40


def test_reading_leaves_nothing_beside_the_ledger(tmp_path):
    with Ledger(tmp_path / "c.ledger"):
        pass
    with Ledger.read(tmp_path / "c.ledger") as ledger:
        assert [p.name for p in tmp_path.iterdir()] == ["c.ledger"]
        assert ledger.verify() == 0
