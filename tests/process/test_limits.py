"""Limits on Δ: how often they are below the truth, for everything that they claim to allow for."""

import numpy as np
import pytest
from scipy.stats import binom

import agewise as aw
from agewise.process import limits as module
from agewise.process.limits import block_inflation, delta_limit, table_delta

CHAIN = aw.birth_death(0.3, 0.25, [1, 2, 3])
SKEWED = aw.MarkovChain([[0.97, 0.02, 0.01], [0.4, 0.5, 0.1], [0.3, 0.3, 0.4]], [1, 2, 3])


def true_joint(chain, age):
    return chain.stationary[:, None] * chain.kernel(1, 1 + age)


def misses(joint, pairs, failure, repetitions, rng, **choices):
    """How often the limit from independent pairs falls below the truth."""
    counts = rng.multinomial(pairs, joint.ravel(), size=repetitions).reshape(-1, *joint.shape)
    return np.mean([delta_limit(c, failure, **choices) < table_delta(joint) for c in counts])


@pytest.mark.parametrize("chain", [CHAIN, SKEWED], ids=["even", "sparse"])
@pytest.mark.parametrize("pairs", [30, 300, 3_000])
@pytest.mark.parametrize("age", [1, 4])
def test_guarantee_the_limit_covers_the_truth(chain, pairs, age):
    failure = 0.2
    rng = np.random.default_rng(pairs + age)
    assert misses(true_joint(chain, age), pairs, failure, 300, rng) <= failure


@pytest.mark.slow
@pytest.mark.parametrize("chain", [CHAIN, SKEWED], ids=["even", "sparse"])
@pytest.mark.parametrize("pairs", [30, 365, 5_000])
@pytest.mark.parametrize("failure", [0.05, 0.3])
def test_the_limit_covers_the_truth_in_two_thousand_repetitions(chain, pairs, failure):
    for age in (1, 2, 5, 12):
        rng = np.random.default_rng(age)
        assert misses(true_joint(chain, age), pairs, failure, 2_000, rng) <= failure


def test_the_coverage_test_would_notice_a_limit_without_room(monkeypatch):
    def estimate(inside, outside, needed):
        return inside / np.maximum(inside + outside, 1)

    monkeypatch.setattr(module, "_by_pairs", estimate)
    joint = true_joint(aw.birth_death(0.1, 0.1, [0, 1]), 4)
    assert misses(joint, 300, 0.2, 300, np.random.default_rng(0)) > 0.3


@pytest.mark.parametrize("size", [3, 9, 12])
def test_many_states_are_covered_too(size):
    chain = aw.birth_death(0.3, 0.3, list(range(size)))
    rng, joint = np.random.default_rng(size), true_joint(chain, 30)
    assert misses(joint, 4_000, 0.2, 60, rng) <= 0.2
    counts = np.rint(joint * 4_000_000)
    assert table_delta(joint) < delta_limit(counts, 0.05) < table_delta(joint) + 0.05


def test_independent_pairs_have_the_exact_binomial_limit():
    counts = np.array([[30.0, 12.0], [10.0, 48.0]])
    chance = 0.05 / (2 * 2)
    upper = module._by_pairs(counts, counts[::-1], np.full(2, -np.log(chance)))
    for x in (0, 1):
        for y in (0, 1):
            at_most = binom.cdf(counts[x, y], counts[:, y].sum(), upper[x, y])
            assert at_most == pytest.approx(chance, rel=1e-6)
    wanted = max(upper[x, y] - (1 - upper[1 - x, 1 - y]) for x in (0, 1) for y in (0, 1))
    assert delta_limit(counts, 0.05) == pytest.approx(wanted)


def one_group(rng, entities, days, *, cold=0.0, sampled=False):
    """Counts by day or entity, and the law: households of two kinds, and days that move them all.

    One in ten keeps all day to what it was in the morning. On a cold day everybody uses much.
    """
    if sampled:
        stays = rng.random(entities) < 0.1
        weight = np.array([0.9, 0.1])
    else:
        stays = np.arange(entities) < max(1, entities // 10)
        weight = np.array([1 - stays.mean(), stays.mean()])
    high = np.where(stays, 0.9, 0.4)[:, None]
    now = rng.random((entities, days)) < high
    kept = rng.random((entities, days)) < np.where(stays, 1.0, 0.6)[:, None]
    later = np.where(kept, now, rng.random((entities, days)) < 0.4)
    frozen = rng.random(days) < cold
    now, later = (now | frozen).astype(int), (later | frozen).astype(int)
    joint = np.zeros((2, 2))
    for share, start, stay in zip(weight, (0.4, 0.9), (0.6, 1.0), strict=True):
        law = np.array([1 - start, start])
        move = stay * np.eye(2) + (1 - stay) * np.array([0.6, 0.4])
        joint += share * law[:, None] * move
    joint = (1 - cold) * joint + cold * np.diag([0.0, 1.0])
    unit = np.arange(entities)[:, None] if sampled else np.arange(days)[None]
    counts = np.zeros((entities if sampled else days, 2, 2))
    np.add.at(counts, (np.broadcast_to(unit, now.shape), now, later), 1)
    return counts, table_delta(joint)


def missed(repetitions, failure, rng, limit, **choices):
    found = 0
    for _ in range(repetitions):
        counts, truth = one_group(rng, **choices)
        found += limit(counts, failure) < truth
    return found / repetitions


def by_units(most):
    return lambda counts, failure: delta_limit(counts, failure, most=most)


def by_sums(most):
    return lambda counts, failure: delta_limit(
        counts.sum(axis=0), failure, units=len(counts), most=most
    )


@pytest.mark.parametrize("limit", [by_units, by_sums])
@pytest.mark.parametrize("cold", [0.0, 0.02, 0.3])
@pytest.mark.parametrize(("entities", "days"), [(3, 60), (30, 60), (50, 365)])
def test_guarantee_days_may_move_all_entities_together(limit, cold, entities, days):
    rng = np.random.default_rng(days + entities)
    rate = missed(100, 0.2, rng, limit(entities), entities=entities, days=days, cold=cold)
    assert rate <= 0.2


@pytest.mark.parametrize("limit", [by_units, by_sums])
@pytest.mark.parametrize("entities", [5, 30, 400])
def test_guarantee_entities_that_were_not_read_are_covered(limit, entities):
    """Rare kinds of households, which a sample of a few may not have at all."""
    rng = np.random.default_rng(entities)
    assert missed(100, 0.2, rng, limit(20), entities=entities, days=20, sampled=True) <= 0.2


def test_taking_what_moves_together_for_independent_would_be_noticed():
    rng = np.random.default_rng(4)

    def pooled(counts, failure):
        return delta_limit(counts.sum(axis=0), failure)

    assert missed(200, 0.05, rng, pooled, entities=1_000, days=60, cold=0.3) > 0.1
    assert missed(200, 0.05, rng, pooled, entities=30, days=300, sampled=True) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("failure", [0.05, 0.3])
def test_units_are_covered_in_two_thousand_repetitions(failure):
    rng = np.random.default_rng(7)
    for limit in (by_units, by_sums):
        for entities, days, cold in ((3, 365, 0.1), (20, 100, 0.02)):
            choices = {"entities": entities, "days": days, "cold": cold}
            assert missed(2_000, failure, rng, limit(entities), **choices) <= failure
        for entities in (5, 30, 300):
            choices = {"entities": entities, "days": 10, "sampled": True}
            assert missed(2_000, failure, rng, limit(10), **choices) <= failure


def test_units_that_are_single_pairs_cost_little_more_than_pairs():
    rng, joint = np.random.default_rng(2), true_joint(CHAIN, 3)
    units = rng.multinomial(1, joint.ravel(), size=4_000).reshape(-1, 3, 3)
    pairs, bets = delta_limit(units.sum(axis=0), 0.05), delta_limit(units, 0.05)
    assert pairs < bets < pairs + 0.05
    assert bets < delta_limit(units.sum(axis=0), 0.05, units=4_000)


def test_the_limit_tightens_at_the_expected_rate():
    rng, joint = np.random.default_rng(1), true_joint(CHAIN, 3)
    truth = table_delta(joint)
    room = []
    for pairs in (1_000, 100_000):
        counts = rng.multinomial(pairs, joint.ravel(), size=50).reshape(-1, 3, 3)
        room.append(np.mean([delta_limit(c, 0.05) for c in counts]) - truth)
    assert room[1] > 0
    assert room[0] / room[1] == pytest.approx(10, rel=0.3)  # √100


@pytest.mark.parametrize("ends", [0, 1])
def test_a_value_hardly_seen_may_have_any_law(ends):
    """Nothing is known of it, so that Δ is what is left beside the laws that are known."""
    counts = [[900, 0], [100, ends]]
    assert delta_limit(counts, 0.05) > 0.9
    assert delta_limit(counts, 0.05, units=1001) > 0.9
    assert 0.5 < delta_limit([[50_000, 0], [50_000, ends]], 0.05) < 0.51
    units = np.zeros((400, 2, 2))
    units[:, :, 0] = [9, 1]
    assert delta_limit(units, 0.05, most=10) > 0.9
    assert delta_limit(np.zeros((2, 2)), 0.05) == 1.0
    assert delta_limit(np.zeros((5, 2, 2)), 0.05) == 1.0
    assert delta_limit([[7]], 0.05) == 0.0


def test_inflation_and_slack_only_widen():
    counts = np.array([[90.0, 20], [60, 70]])
    wider = [delta_limit(counts, 0.05, inflation=f) for f in (1, 2, 5, 1e6, np.inf)]
    assert wider == sorted(wider)
    assert wider[-1] == 1.0
    slack = [delta_limit(counts, 0.05, slack=s) for s in (0, 1, 5, 100)]
    assert slack == sorted(slack)
    assert slack[-1] == 1.0
    for off in ([[1, -1], [-1, 1]], [[-1, 1], [1, -1]], [[1, 1], [1, 1]]):
        assert delta_limit(counts + np.array(off), 0.05) <= slack[1]
        assert delta_limit(counts + np.array(off), 0.05, units=240) <= delta_limit(
            counts, 0.05, units=240, slack=1
        )


def test_neighbours_that_depend_count_for_less():
    rng = np.random.default_rng(3)
    joint = true_joint(CHAIN, 2)
    alone = rng.multinomial(1, joint.ravel(), size=2_800).reshape(-1, 3, 3)
    blocks = np.arange(2_800) // 7
    assert block_inflation(alone, blocks).max() < 1.5
    weeks = rng.multinomial(1, joint.ravel(), size=400).reshape(-1, 3, 3)
    factor = block_inflation(np.repeat(weeks, 7, axis=0), blocks)  # every day of a week is the same
    assert factor == pytest.approx([7, 7, 7], rel=0.25)
    assert (block_inflation(alone[:7], blocks[:7]) == np.inf).all()  # no two weeks to compare


@pytest.mark.parametrize(
    ("arguments", "choices", "words"),
    [
        (([[1, 2]], 0.05), {}, "square tables"),
        (([[1, -2], [1, 1]], 0.05), {}, "none negative"),
        (([[1, 2], [3, 4]], 0), {}, "failure is 0"),
        (([[1, 2], [3, 4]], 1), {}, "failure is 1"),
        (([[1, 2], [3, 4]], 0.1), {"inflation": 0.5}, "inflation is 0.5"),
        (([[1, 2], [3, 4]], 0.1), {"inflation": np.nan}, "inflation is nan"),
        (([[1, 2], [3, 4]], 0.1), {"slack": -1}, "slack is -1"),
        (([[1, 2], [3, 4]], 0.1), {"units": 0}, "units is 0"),
        (([[1, 2], [3, 4]], 0.1), {"units": 3, "most": 0}, "most is 0"),
        (([[1, np.nan], [3, 4]], 0.1), {}, "counts"),
        (([[[1, 2], [3, 4]]], 0.1), {"most": 9}, "most is 9"),
        (([[[1, 2], [3, 4]]], 0.1), {"most": 10, "units": 1}, "sums of counts"),
        ((3.0, 0.1), {}, "counts"),
    ],
)
def test_bad_counts_are_refused(arguments, choices, words):
    with pytest.raises(aw.InvalidInput, match=words):
        delta_limit(*arguments, **choices)


def test_bad_units_are_refused():
    with pytest.raises(aw.InvalidInput, match="units"):
        block_inflation(np.ones((4, 2)), [0, 0, 1, 1])
    with pytest.raises(aw.InvalidInput, match="one label a unit"):
        block_inflation(np.ones((4, 2, 2)), [0, 1])
