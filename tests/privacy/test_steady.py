"""Releases for ever: slots of the day, other adversaries, what is refused."""

import inspect
import math

import numpy as np
import pytest

import agewise as aw
from agewise.cli.console import read_problem
from agewise.explore.choices import Choices
from agewise.privacy import gaps
from attacks import aged_by_program, attack, backward, laplace_outputs
from parties import Profile

CALM, BUSY = [[0.95, 0.05], [0.1, 0.9]], [[0.6, 0.4], [0.3, 0.7]]
DAY = aw.PeriodicChain([CALM, BUSY, CALM], [0, 1])


def by_hand(slots, spent, about):
    """Losses of releases in these slots about another one, step by step with linear programs."""
    each = spent * (1 - np.eye(2))
    past, at = None, None
    for slot in (s for s in slots if s <= about):
        if past is not None:
            past = aged_by_program(past, backward(DAY.law(at), DAY.kernel(at, slot))[0])
        past, at = each if past is None else past + each, slot
    total = aged_by_program(past, backward(DAY.law(at), DAY.kernel(at, about))[0])
    future, at = None, None
    for slot in (s for s in reversed(slots) if s > about):
        if future is not None:
            future = aged_by_program(future, DAY.kernel(slot, at))
        future, at = each if future is None else future + each, slot
    if future is not None:
        total = total + aged_by_program(future, DAY.kernel(about, at))
    return total.max()


@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_day_profile_has_the_worst_slot_of_its_day(every):
    """Whichever slot the first release is in: rounds of two slots meet every slot of three."""
    starts = range(1, 4)
    slots = {start: list(range(start, start + 16 * every, every)) for start in starts}
    for age in (0, 1):
        wanted = max(by_hand(slots[start], 0.3, slots[start][-1] + age) for start in starts)
        found = aw.continual_epsilon(DAY, every, 0.3, age)
        assert wanted <= found * (1 + 1e-12)
        assert found == pytest.approx(wanted, rel=1e-3)
    wanted = max(
        by_hand(slots[start], 0.3, slots[start][8] + after)
        for start in starts
        for after in range(every)
    )
    found = aw.continual_epsilon(DAY, every, 0.3, promise="every_moment")
    assert wanted <= found * (1 + 1e-12)
    assert found == pytest.approx(wanted, rel=2e-2 if every == 1 else 1e-3)
    for promise in ("present", "every_moment"):
        rule = aw.privacy.rule_epsilon(DAY, every, 0.3, promise=promise)
        assert rule >= aw.continual_epsilon(DAY, every, 0.3, promise=promise) * (1 - 1e-8)


def test_a_moment_between_two_collections_can_be_the_worst():
    """It is so for an attack, too: one slot after a collection it learns a quarter more."""
    cycle = [[0, 0.25, 0, 0.75], [0, 0.15, 0.68, 0.17], [0, 0, 0, 1], [0.82, 0, 0, 0.18]]
    chain = aw.MarkovChain(cycle, [-55, 12, 15, 34])
    slots, outputs = [0, 2, 4, 6, 8, 10], [laplace_outputs(2.0, chain.states)] * 6
    at, after = (
        attack(chain.transition, chain.stationary, slots, outputs, about) for about in (4, 5)
    )
    assert after > 1.2 * at
    ever = aw.continual_epsilon(chain, 2, 2.0, promise="every_moment")
    assert after <= ever < 1.1 * after


def test_a_chain_that_nearly_alternates_has_its_bound():
    chain = aw.birth_death(0.58, 0.41, [9, 10, 16, 33])
    losses = [aw.Release(5 * j, 0.56) for j in range(300)]
    total = aw.composed_epsilon(losses, chain, 5 * 299, release=None).aged
    assert aw.continual_epsilon(chain, 5, 0.56) == pytest.approx(total, rel=1e-6)


def test_the_last_slots_are_counted_one_by_one(paper_chains):
    """H: about each of the last slots, what was published by then."""
    chain, every, age = paper_chains[0], 3, 2
    slots = [every * j for j in range(60)]
    releases = [aw.Release(slot, 0.2) for slot in slots]
    before = 0.0
    for last in range(12):
        about = range(slots[-1] + age - last, slots[-1] + age + 1)
        totals = [aw.composed_epsilon(releases, chain, s, release=None).aged for s in about]
        found = aw.continual_epsilon(chain, every, 0.2, age, promise=last)
        assert found == pytest.approx(max(totals), rel=1e-6)
        assert found >= before
        before = found
    ever = aw.continual_epsilon(chain, every, 0.2, age, promise="every_moment")
    far = aw.continual_epsilon(chain, every, 0.2, age, promise=10_000)
    assert before < far == ever


@pytest.mark.parametrize("method", ["any_prior", "spectral"])
def test_other_adversaries_are_carried_on_as_one_number(paper_chains, method):
    chain, spent = paper_chains[0], 0.1
    total = 0.0
    for _ in range(200):
        if method == "any_prior":
            total = spent + (aw.Ageing(chain, 12, method).aged_epsilon(total) if total else 0.0)
        else:
            total = spent + (
                aw.aged_epsilon(total, aw.total_variation(chain, 12, method)) if total else 0.0
            )
    found = aw.continual_epsilon(chain, 12, spent, method=method)
    assert total <= found * (1 + 1e-12)
    assert found == pytest.approx(total, rel=1e-7)
    assert found > aw.continual_epsilon(chain, 12, spent)
    aged = aw.continual_epsilon(chain, 12, spent, 3, method=method)
    wanted = aw.Ageing(chain, 3, method).aged_epsilon(found)
    assert aged == pytest.approx(wanted, rel=1e-12)
    rule = aw.privacy.rule_epsilon(chain, 12, spent, method=method)
    assert rule == pytest.approx(found, rel=1e-6)


def test_no_bound_is_said_to_be_none(paper_chains):
    """Data that are one slot old tell everything to those of whom only Δ is known: it adds up."""
    assert aw.continual_epsilon(paper_chains[0], 1, 0.1, method="spectral") == math.inf
    assert aw.privacy.rule_epsilon(paper_chains[2], 1, 0.1, method="spectral") == math.inf
    ever = aw.continual_epsilon(paper_chains[0], 1, 0.1, promise="every_moment", method="any_prior")
    assert ever == math.inf
    assert aw.per_release_epsilon(paper_chains[0], 1, 0.1, method="spectral") == 0


def arguments(function):
    given = inspect.signature(function).parameters
    return {name: given[name].default for name in given if not name.endswith("epsilon")}


def test_what_is_affordable_is_the_inverse_with_the_defaults_of_all(paper_chains):
    """0.1 led to 0.0728, and that to 0.0864."""
    for chain in (*paper_chains, aw.birth_death(0.1, 0.2, range(8))):
        spent = aw.per_release_epsilon(chain, 10, 0.1)
        assert 0.1 * (1 - 1e-6) <= aw.continual_epsilon(chain, 10, spent) <= 0.1
    steady = arguments(aw.continual_epsilon)
    assert arguments(aw.per_release_epsilon) == steady
    assert arguments(aw.privacy.reached_epsilon).items() <= steady.items()
    assert arguments(aw.privacy.rule_epsilon).items() <= steady.items()
    asked = read_problem("for_ever")  # as the command reads it
    seen = Choices.of("for_ever", aw.scenarios.for_ever())
    policy = Profile.__dataclass_fields__["promise"].default
    assert asked.promise == seen.promise == policy == steady["promise"] == "present"


def test_old_enough_data_need_no_noise(paper_chains):
    chain = paper_chains[2]
    rows = chain.joint(1, 21).backward
    enough = math.log((rows.max(axis=0) / rows.min(axis=0)).max())
    assert aw.per_release_epsilon(chain, 10, enough * 1.01, 20, "present") == math.inf
    assert aw.per_release_epsilon(chain, 10, enough * 1.01, 25, promise=5) == math.inf
    assert aw.per_release_epsilon(chain, 10, enough * 0.99, 20, "present") < math.inf
    assert aw.per_release_epsilon(chain, 10, enough * 1.01, 20, "every_moment") <= enough * 1.01
    assert aw.per_release_epsilon(chain, 10, 0.1, release=[1, 1, 1, 1]) == math.inf
    assert aw.continual_epsilon(chain, 10, 0.1, release=[1, 1, 1, 1]) == 0


def test_a_rule_holds_for_gaps_beyond_those_tried(paper_chains, monkeypatch):
    """With hardly any gap tried, what is beyond is all the looser, and still a bound."""
    wanted = aw.privacy.rule_epsilon(paper_chains[0], 2, 0.1, promise="every_moment")
    monkeypatch.setattr(gaps, "GAPS", 1)
    loose = aw.privacy.rule_epsilon(paper_chains[0], 2, 0.1, promise="every_moment")
    assert wanted * 1.001 < loose < math.inf


JOINTS = [[[0.4, 0.1], [0.1, 0.4]], [[0.5, 0], [0, 0.5]]]
MEASURED = aw.MeasuredLaw(JOINTS, [0.7, 1], [0, 1], confidence=0.95)


@pytest.mark.parametrize(
    "call", [aw.continual_epsilon, aw.privacy.rule_epsilon, aw.per_release_epsilon]
)
@pytest.mark.parametrize(
    ("process", "words"),
    [
        (aw.MarkovChain(np.eye(2), [0, 1]), "never forgets where it started.*composed_epsilon"),
        (aw.MarkovChain([[0, 1], [1, 0]], [0, 1]), "never forgets"),
        (aw.MarkovChain([[0.8, 0.2], [0, 1]], [0, 1]), "never forgets"),
        (aw.PeriodicChain([np.eye(2), np.eye(2)], [0, 1]), "never forgets"),
        (aw.PeriodicChain([[[0, 1], [1, 0]], np.eye(2)], [0, 1]), "never forgets"),
        (MEASURED, "known lag by lag only; allowed: a Markov process.*add up"),
    ],
)
def test_processes_without_a_steady_state_are_refused(call, process, words):
    with pytest.raises(aw.InvalidInput, match=words):
        call(process, 3, 0.1)


def test_a_day_that_starts_afresh_forgets(paper_chains):
    """All go through one state at night: the night's release tells nothing of the next day."""
    night = [[1, 0], [1, 0]]
    day = aw.PeriodicChain([[[0.5, 0.5], [0.2, 0.8]], night], [0, 1])
    assert aw.continual_epsilon(day, 2, 0.3) == pytest.approx(0.3, rel=1e-6)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"every": 0}, "every is 0; allowed: a whole number from 1"),
        ({"every": 1.5}, "every is 1.5"),
        ({"every": 1_000_000}, "every is 1000000; allowed: a whole number from 1 to 100000"),
        ({"age": -1}, "age is -1; allowed: a whole number from 0"),
        ({"classical_epsilon": 0}, "classical_epsilon is 0; allowed: a finite number above 0"),
        ({"promise": "always"}, "promise is 'always'; allowed: .*every_moment"),
        ({"promise": -1}, "promise is -1; allowed: a whole number"),
        ({"promise": True}, "promise is True"),
        ({"method": "own_law"}, "method is 'own_law'; allowed: one of exact, any_prior, spectral"),
        ({"release": "typo"}, "release is 'typo'"),
        ({"release": [1, 2]}, "table is of shape"),
    ],
)
def test_bad_input_is_refused_in_one_clear_message(paper_chains, given, words):
    usual = {"every": 10, "classical_epsilon": 0.1}
    with pytest.raises(aw.InvalidInput, match=words):
        aw.continual_epsilon(paper_chains[0], **(usual | given))


def test_a_rule_is_about_the_present_or_every_moment(paper_chains):
    with pytest.raises(
        aw.InvalidInput, match="promise is 5; allowed: one of present, every_moment"
    ):
        aw.privacy.rule_epsilon(paper_chains[0], 10, 0.1, promise=5)
    with pytest.raises(aw.InvalidInput, match="epsilon is 0; allowed"):
        aw.per_release_epsilon(paper_chains[0], 10, 0)


def test_one_old_release_tells_its_classical_epsilon_about_some_moment(paper_chains):
    """What was collected is such a moment: at any age, and with one round as with many."""
    for rounds in (1, 2):
        told = aw.continual_epsilon(paper_chains[0], 10, 0.1, 4, "every_moment", rounds=rounds)
        assert told >= 0.1 * (1 - 1e-12)
    assert aw.per_release_epsilon(paper_chains[0], 10, 0.1, 4, "every_moment", rounds=1) <= 0.1
