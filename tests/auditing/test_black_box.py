"""Any function as a black box: what it is given, and what is refused of it."""

import time

import numpy as np
import pytest

import agewise as aw
from agewise.auditing import BlackBox
from agewise.auditing.black_box import Draws
from agewise.auditing.sampled import sample

CHAIN = aw.birth_death(0.1, 0.2, [20, 50, 100, 200])


def release(records, rng):
    return float(np.round(records.mean() + rng.laplace(0, 180.0), 3))


def refused(match, mechanism=release, **changes):
    given = {"process": CHAIN, "claim": 1.0, "draws": 500, **changes}
    with pytest.raises(aw.InvalidInput, match=match) as caught:
        aw.audit(mechanism, **given)
    assert caught.value.exit_code == 2
    assert len(str(caught.value).splitlines()) == 1


def test_records_follow_the_process_given_the_present_value(rng):
    box = BlackBox(release, CHAIN, 1.0, collect_at=[1, 4, 9], about=6)
    draws = Draws(box)
    assert draws.values.tolist() == [20, 50, 100, 200]
    drawn = draws(3, 40_000, rng)
    rows = CHAIN.joint(4, 6).backward
    shares = [(drawn[:, 1] == state).mean() for state in CHAIN.states]
    assert shares == pytest.approx(rows[3], abs=0.015)
    after = CHAIN.kernel(6, 9)[3]
    assert [(drawn[:, 2] == s).mean() for s in CHAIN.states] == pytest.approx(after, abs=0.015)
    at_50 = drawn[drawn[:, 1] == 50][:, 0]
    assert [(at_50 == s).mean() for s in CHAIN.states] == pytest.approx(
        CHAIN.joint(1, 4).backward[1], abs=0.05
    )


def test_a_stated_law_is_the_prior_and_rules_values_out(rng):
    chain = aw.birth_death(0.1, 0.2, [20, 50, 100, 200])
    box = BlackBox(release, chain, 1.0, collect_at=1, about=2, law=[0.8, 0.2, 0, 0])
    draws = Draws(box)
    assert draws.values.tolist() == [20, 50, 100]
    drawn = draws(0, 40_000, rng)[:, 0]
    rows = chain.joint(1, 2, [0.8, 0.2, 0, 0]).backward
    assert (drawn == 20).mean() == pytest.approx(rows[0, 0], abs=0.01)


def test_the_others_records_are_fixed_and_known():
    seen = []

    def spy(records, rng):
        seen.append(records)
        return rng.normal()

    aw.audit(
        spy,
        process=CHAIN,
        claim=5.0,
        samples=3,
        others=7.0,
        draws=200,
        rng=np.random.default_rng(1),
    )
    assert all(records[1:].tolist() == [7.0, 7.0] for records in seen)
    assert {float(records[0]) for records in seen} == set(CHAIN.states)


def test_a_correct_mechanism_is_not_refuted_and_a_wrong_one_is():
    correct = aw.audit(release, process=CHAIN, claim=1.0, draws=8_000, rng=np.random.default_rng(2))
    assert not correct.refuted
    finding = correct.findings[0]
    assert finding.tier == "sampled"
    assert 0.5 < finding.at_least < 1.0 < finding.would_find < 1.5
    assert finding.draws == 8_000
    wrong = aw.audit(release, process=CHAIN, claim=0.6, draws=8_000, rng=np.random.default_rng(2))
    assert wrong.refuted
    assert wrong.verdict.startswith("REFUTED")


def test_ageing_is_counted(rng):
    old = aw.audit(release, process=CHAIN, claim=0.4, age=6, draws=8_000, rng=rng)
    assert not old.refuted
    assert old.findings[0].claim == "ε about slot 7"


def test_claims_with_a_failure_probability(rng):
    def gaussian(records, rng):
        return np.round(records[:, 0] / 180 + rng.normal(0, 0.8, len(records)), 3)

    box = BlackBox(gaussian, CHAIN, 1.0, delta=0.3, batched=True)
    assert not sample(box, 40_000, 0.01, rng).refuted
    small = BlackBox(gaussian, CHAIN, 1.0, delta=0.01, batched=True)
    found = sample(small, 40_000, 0.01, rng)
    assert found.refuted
    assert "δ = 0.01" in found.claim


def test_several_numbers_are_told_apart_together(rng):
    def both(records, rng):
        return np.round(records[0, 0] / 180 + rng.normal(0, 1, 2), 3)

    box = BlackBox(both, CHAIN, 0.2, collect_at=[1, 2], about=2)
    assert sample(box, 8_000, 0.01, rng).refuted


def test_what_raises_is_refused():
    def broken(records):
        raise ZeroDivisionError("no such thing")

    refused("raised ZeroDivisionError: no such thing", broken)


@pytest.mark.parametrize(
    ("output", "match"),
    [
        (float("nan"), "not finite"),
        (float("inf"), "not finite"),
        ("words", "'words'"),
        (None, "None|not finite"),
        ([[1.0, 2.0], [3.0, 4.0]], r"shape \(2, 2\)"),
        ([], r"shape \(0,\)"),
    ],
)
def test_what_is_no_number_is_refused(output, match):
    refused(match, lambda records: output)


def test_other_shapes_from_run_to_run_are_refused():
    refused("after one of", lambda records, rng: rng.random(int(rng.integers(1, 4))))


def test_a_batched_function_must_return_one_row_per_run():
    refused("one per run", lambda records, rng: rng.random(3), batched=True)


def test_what_is_not_random_is_refused_unless_that_is_meant():
    refused("not random", lambda records: records[0])
    refused("not random", lambda records: records[:, 0], batched=True)
    old = aw.audit(
        lambda records: records[0], process=CHAIN, claim=3.0, age=9, draws=2_000, noiseless=True
    )
    assert not old.refuted


def test_a_rare_answer_is_random_enough(rng):
    def seldom(records, rng):
        return float(rng.random() < 0.02)

    assert not aw.audit(seldom, process=CHAIN, claim=0.5, draws=500, rng=rng).refuted


def test_what_takes_too_long_is_stopped():
    begun = time.monotonic()
    refused("not done after 0.3 s", lambda records: time.sleep(60), time_limit=0.3)
    refused(
        "not done after 0.3 s",
        lambda records, rng: (time.sleep(0.01), rng.random())[1],
        time_limit=0.3,
    )
    assert time.monotonic() - begun < 40


def test_a_function_that_swallows_everything_is_stopped_too():
    def stubborn(records):
        try:
            time.sleep(60)
        except Exception:
            return 1.0

    refused("not done after 0.2 s", stubborn, time_limit=0.2)


@pytest.mark.parametrize("claim", [0.0, -1.0, float("nan"), float("inf")])
def test_claims_that_are_none_are_refused(claim):
    refused("claim is", claim=claim)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"delta": -0.1}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"draws": 10}, "draws"),
        ({"error": 0.0}, "error"),
        ({"error": 1.5}, "error"),
        ({"time_limit": 0.0}, "time_limit"),
        ({"samples": 0}, "samples"),
        ({"collect_at": [3, 1]}, "earliest first"),
        ({"collect_at": []}, "earliest first"),
        ({"law": [0.5, 0.5]}, "law"),
        ({"tiers": ["guessed"]}, "tier"),
        ({"rng": 5}, "rng"),
        ({"process": "a chain"}, "process"),
        ({"process": lambda y, runs, rng: np.zeros(runs)}, "present"),
        ({"process": lambda y, runs, rng: np.zeros(3), "present": [0, 1]}, "shape"),
        ({"process": lambda y, runs, rng: 1 / 0, "present": [0, 1]}, "ZeroDivisionError"),
        ({"claim": None}, "claim is None"),
        ({"process": None}, "process is None"),
    ],
)
def test_bad_questions_are_refused(changes, match):
    refused(match, **changes)


def test_a_process_of_one_state_is_refused():
    with pytest.raises(aw.InvalidInput, match="one state"):
        aw.MarkovChain([[1.0]], [5.0])
    somebodys = aw.birth_death(0.1, 0.2, [20, 50])
    somebodys.states = np.array([20.0])
    refused("process is one state", process=somebodys)


def test_a_law_that_leaves_one_value_is_refused():
    refused("one value that can occur", law=[1, 0, 0, 0])


def test_what_cannot_be_audited_is_refused():
    with pytest.raises(aw.InvalidInput, match="subject"):
        aw.audit(3.5)


def test_functions_of_the_process_draw_their_own_records(rng):
    def habit(present, runs, rng):
        return np.where(rng.random(runs) < 0.9, present, 1 - present)

    def mechanism(records, rng):
        return np.round(records[:, 0] + rng.laplace(0, 0.5, len(records)), 3)

    given = {"process": habit, "present": [0, 1], "batched": True, "draws": 20_000, "rng": rng}
    assert aw.audit(mechanism, claim=0.5, **given).refuted
    assert not aw.audit(mechanism, claim=2.0, **given).refuted


def test_a_client_app_of_flower_is_a_black_box(rng):
    flwr = pytest.importorskip("flwr.clientapp")
    from flwr.common import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

    app = flwr.ClientApp()

    @app.train()
    def train(message, context):
        records = np.array(context.state["records"]["values"])
        mean = float(np.round(records.mean() + rng.laplace(0, 180.0 / 2), 3))
        content = RecordDict({"metrics": MetricRecord({"mean": mean})})
        return Message(content, reply_to=message)

    def request(records):
        state = RecordDict({"records": ConfigRecord({"values": [float(x) for x in records]})})
        context = Context(run_id=1, node_id=1, node_config={}, state=state, run_config={})
        content = RecordDict({"arrays": ArrayRecord()})
        return Message(content, dst_node_id=1, message_type="train"), context

    given = {"process": CHAIN, "draws": 3_000, "request": request}
    assert aw.audit(app, claim=1.0, **given).refuted
    assert not aw.audit(app, claim=3.0, **given).refuted
    with pytest.raises(aw.InvalidInput, match="request"):
        aw.audit(app, process=CHAIN, claim=1.0)


def test_noise_that_shows_its_low_bits_is_caught(rng):
    """Noise of the right size, added as floats add: the sum tells what it was added to."""

    def naive(records, rng):
        return records[:, 0] / 100 + rng.laplace(0, 1.8, len(records))

    found = aw.audit(naive, process=CHAIN, claim=1.0, batched=True, draws=20_000, rng=rng)
    assert found.refuted
    assert found.findings[0].at_least > 1.5
    assert "lowest bit" in found.findings[0].detail

    def rounded(records, rng):
        return np.round(naive(records, rng), 4)

    assert not aw.audit(
        rounded, process=CHAIN, claim=1.0, batched=True, draws=20_000, rng=rng
    ).refuted


def test_a_mechanism_cannot_end_the_audit():
    def exits(records):
        raise SystemExit(0)

    with pytest.raises(aw.InvalidInput, match="SystemExit"):
        aw.audit(exits, claim=1.0, process=aw.birth_death(0.3, 0.3, [0, 1]), age=1, draws=1_000)


def test_noised_values_are_taken_as_they_are_and_nothing_is_no_number():
    chain = aw.birth_death(0.3, 0.3, [0, 1])

    def noised(records):
        return aw.privacy.laplace(float(np.mean(records)), sensitivity=1.0, epsilon=1.0)

    fresh = {"claim": 1.0, "process": chain, "age": 0, "draws": 2_000}
    assert not aw.audit(noised, error=1e-9, **fresh).refuted  # its noise takes no seed
    with pytest.raises(aw.InvalidInput, match="a number, or a vector of numbers"):
        aw.audit(lambda records: None, claim=1.0, process=chain, age=0, draws=1_000)


def test_other_tiers_do_not_apply_to_functions():
    with pytest.raises(aw.InvalidInput, match="tier is exact; allowed: sampled"):
        aw.audit(
            lambda records: 0.0,
            claim=1.0,
            process=aw.birth_death(0.3, 0.3, [0, 1]),
            tiers=["exact"],
        )
