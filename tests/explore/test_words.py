import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agewise as aw
from agewise.explore.words import assumptions_of, collected_sentence, factor_in_words, odds_sentence


@given(st.floats(0, math.log(1000)))
def test_a_factor_is_never_rounded_down(epsilon):
    said = float(factor_in_words(epsilon).replace(",", ""))
    assert math.exp(epsilon) <= said <= math.exp(epsilon) * 1.011 + 0.01


@pytest.mark.parametrize("mixing", ["exact", "any_prior", "own_law", "spectral"])
def test_only_any_prior_says_whatever_somebody_believed(mixing):
    plan = aw.plan(aw.scenarios.common_level().replace(mixing=mixing))
    said = odds_sentence(plan)
    assert said.startswith("Whatever an adversary") == (mixing == "any_prior")
    assert ("believed of a record's own part when it was collected" in said) == (
        mixing == "any_prior"
    )
    assert ("long run" in said) == (mixing in ("exact", "spectral"))
    assert ("stated law" in said) == (mixing == "own_law")
    assert "by at most a factor 1.11." in said
    assert any(one.startswith("ε assumes") for one in assumptions_of(plan))


@pytest.mark.parametrize("mixing", ["exact", "any_prior"])
def test_with_a_level_only_a_records_own_part_is_promised_to_whoever_knows_the_level(mixing):
    problem = aw.scenarios.common_level().replace(mixing=mixing)
    said = odds_sentence(aw.plan(problem))
    assert "who knew the common level" in said
    assert "the odds about its own part now" in said
    assert said.endswith(
        "compares the day with the same day had that part been another; "
        "what is learnt of the common level is not covered."
    )
    collected = collected_sentence(aw.plan(problem))
    assert collected.startswith("About a record's own part when it was collected, the factor is ")
    alone = aw.plan(problem.replace(level=None))
    plain = odds_sentence(alone) + collected_sentence(alone)
    assert "the odds about its value now" in plain
    assert "About the value that was collected" in plain
    assert "level" not in plain
    assert "own part" not in plain


def test_the_factor_is_that_of_the_least_protected():
    clients = list(aw.scenarios.london().clients)
    clients[1] = replace(clients[1], epsilon=0.5)
    plan = aw.plan(aw.scenarios.common_level().replace(clients=clients, mixing="any_prior"))
    assert "by at most a factor 1.65." in odds_sentence(plan)  # e^0.5 = 1.6487
    assert factor_in_words(max(plan.classical_epsilons)) in collected_sentence(plan)


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (1, "1.00"),
        (9.985, "9.99"),
        (10.01, "10.1"),
        (99.81, "99.9"),
        (100.2, "101"),
        (999.2, "1000"),
    ],
)
def test_factors_have_three_digits_and_are_rounded_up(factor, said):
    assert factor_in_words(math.log(factor)) == said


def test_measured_laws_point_to_what_they_assume():
    plan = aw.plan(aw.scenarios.london_fitted())
    assert "what the fit grants them" in odds_sentence(plan)
    assert any("confidence 0.95" in one for one in assumptions_of(plan))


def test_what_epsilon_is_about_is_said():
    forever = aw.scenarios.for_ever()
    assert "all releases together" in odds_sentence(aw.plan(forever))
    assert "of each release by itself" in collected_sentence(aw.plan(forever))
    assert "this release" in odds_sentence(aw.plan(aw.scenarios.london()))
    assert "by itself" not in collected_sentence(aw.plan(aw.scenarios.london()))
    assert "all releases" in odds_sentence(aw.plan(forever.replace(rounds=2)))
    forever = forever.replace(level=None)
    assert "value now" in odds_sentence(aw.plan(forever))
    moment = aw.plan(forever.replace(promise="every_moment"))
    assert "value at any time" in odds_sentence(moment)
    last = aw.plan(forever.replace(promise=5))
    assert "values in the last 5 slots" in odds_sentence(last)


def test_gaussian_noise_says_its_failure():
    problem = aw.scenarios.london().replace(
        mechanism="gaussian", delta=1e-6, calibration="sharp", mixing="exact"
    )
    assert "but for a failure of probability 1e-06" in odds_sentence(aw.plan(problem))


def test_what_was_collected_has_a_factor_of_its_own():
    plan = aw.plan(aw.scenarios.common_level())
    assert f"classical ε {max(plan.classical_epsilons):.4g}" in collected_sentence(plan)
    same = aw.MarkovChain([[0.5, 0.5], [0.5, 0.5]], [0, 1])
    bare = aw.evaluate(aw.Problem([aw.Client("one", same)], 3, 0.1), [1])
    assert math.isinf(bare.classical_epsilons[0])
    assert "not protected at all" in collected_sentence(bare)
