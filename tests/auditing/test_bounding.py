"""The bound from samples: never too large more often than it says, and sharp."""

import numpy as np
import pytest
from benchmarks.correct_mechanisms import accused, random_case
from scipy.stats import beta, binom, norm

from agewise.auditing.bounding import Counts, _Test, detectable, lower_bound, refutes
from agewise.auditing.sampled import bound_from_scores
from agewise.auditing.tails import choose, lowest_bit


def clopper_pearson(counts, error, delta=0.0):
    low = beta.ppf(error / 2, counts.hits, counts.runs - counts.hits + 1)
    high = beta.ppf(1 - error / 2, counts.other_hits + 1, counts.other_runs - counts.other_hits)
    return float(np.log((low - delta) / high))


def chance_of_refuting(runs, p, q, epsilon, error, delta=0.0, guess=0.0):
    """Exactly: over all pairs of counts of few runs."""
    total = 0.0
    for hits in range(runs + 1):
        for other in range(runs + 1):
            weight = binom.pmf(hits, runs, p) * binom.pmf(other, runs, q)
            if weight > 1e-12:
                counts = Counts(hits, runs, other, runs)
                total += weight * refutes(counts, epsilon, error, delta, guess)
    return total


@pytest.mark.parametrize("guess", [0.0, 0.4, 3.0])
@pytest.mark.parametrize(
    ("p", "q", "delta"), [(0.5, 0.25, 0.0), (0.3, 0.3, 0.0), (0.9, 0.05, 0.0), (0.45, 0.2, 0.05)]
)
def test_guarantee_a_true_claim_is_refuted_no_more_often_than_stated(p, q, delta, guess):
    epsilon = float(np.log((p - delta) / q))
    assert chance_of_refuting(15, p, q, epsilon, 0.2, delta, guess) <= 0.2


def test_the_test_has_power():
    assert chance_of_refuting(25, 0.9, 0.1, 0.0, 0.2) > 0.95
    assert chance_of_refuting(25, 0.5, 0.5, 0.0, 0.2) > 0.02


def test_the_tail_is_never_below_the_true_one(rng):
    for _ in range(30):
        runs, other = int(rng.integers(5, 60)), int(rng.integers(5, 60))
        p, q = rng.uniform(0.02, 0.98, 2)
        counts = Counts(
            int(rng.integers(0, runs + 1)), runs, int(rng.integers(0, other + 1)), other
        )
        test = _Test(counts, 0.1, 0.0, float(rng.uniform(0, 2)))
        observed = counts.hits - test.weight * counts.other_hits
        k1, k0 = np.arange(runs + 1)[:, None], np.arange(other + 1)
        reached = k1 - test.weight * k0 >= observed - 1e-9
        true = (binom.pmf(k1, runs, p) * binom.pmf(k0, other, q) * reached).sum()
        found = float(test.tail(np.array([p]), np.array([q]))[0])
        assert found >= true - 1e-12
        assert found == pytest.approx(true, abs=1e-9)


def test_large_counts_are_summed_in_blocks_that_err_upward():
    runs = 200_000
    counts = Counts(100_000, runs, 90_000, runs)
    test = _Test(counts, 0.01, 0.0, 0.1)
    p, q = 0.4985, 0.451
    mean = runs * p - test.weight * runs * q
    spread = np.sqrt(runs * p * (1 - p) + test.weight**2 * runs * q * (1 - q))
    near = norm.sf((100_000 - test.weight * 90_000 - mean) / spread)
    found = float(test.tail(np.array([p]), np.array([q]))[0])
    assert near * 0.99 <= found <= near * 1.25


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0])
def test_the_bound_is_sharper_than_two_clopper_pearson_limits(epsilon):
    runs = 20_000
    hits, other = runs // 2, int(runs / 2 * np.exp(-epsilon))
    counts = Counts(hits, runs, other, runs)
    bound = lower_bound(counts, 0.01, guess=0.95 * epsilon)
    assert clopper_pearson(counts, 0.01) < bound < epsilon


def test_a_guess_that_is_far_off_costs_little():
    counts = Counts(6_400, 8_000, 60, 8_000)
    good = lower_bound(counts, 0.01, guess=4.3)
    assert lower_bound(counts, 0.01, guess=40.0) > 0.9 * good
    assert lower_bound(counts, 0.01, guess=0.0) > 0.9 * good


def test_nothing_seen_bounds_nothing_and_everything_is_bounded():
    assert lower_bound(Counts(0, 100, 0, 100), 0.05) == 0
    assert lower_bound(Counts(10, 100, 90, 100), 0.05) == 0
    all_or_none = lower_bound(Counts(1000, 1000, 0, 1000), 0.05)
    assert 5 < all_or_none < np.log(1000 / -np.log(0.05)) + 0.1
    assert lower_bound(Counts(50, 100, 10, 100), 0.05, delta=0.6) == 0


def test_the_bound_falls_with_the_error_and_with_delta():
    counts = Counts(5_000, 10_000, 2_000, 10_000)
    bounds = [lower_bound(counts, error) for error in (0.1, 0.01, 1e-6)]
    assert bounds == sorted(bounds, reverse=True)
    assert lower_bound(counts, 0.01, delta=0.1) < bounds[1]


def test_the_power_that_is_stated_is_the_power_there_is(rng):
    claim, q, runs, error = 0.5, 0.25, 4_000, 0.01
    found = detectable(claim, q, runs, error)
    p = float(np.exp(found)) * q
    times = 150
    hits, others = rng.binomial(runs, p, times), rng.binomial(runs, q, times)
    pairs = zip(hits.tolist(), others.tolist(), strict=True)
    seen = sum(refutes(Counts(a, runs, b, runs), claim, error, guess=claim) for a, b in pairs)
    assert 0.78 <= seen / times <= 0.98
    assert detectable(claim, 0.9, runs, error) is None


def test_scores_of_others_are_bounded_too(rng):
    likely, rare = rng.normal(1, 1, 20_000), rng.normal(0, 1, 20_000)
    bound = bound_from_scores(likely, rare, 0.01)
    assert 2.0 < bound < 6.0
    same = bound_from_scores(rng.normal(0, 1, 20_000), rare, 0.01)
    assert same < 0.1


def test_the_lowest_bit_is_found():
    values = np.array([1.0, 0.75, -6.0, 0.0, 2.0**-60, 3 * 2.0**-1074])
    assert lowest_bit(values).tolist() == [0, -2, 1, -1100, -60, -1074]


def test_events_are_chosen_for_the_two_values_that_differ_most(rng):
    outputs = [np.round(rng.laplace(mean, 1.0, (4_000, 1)), 4) for mean in (0.0, 0.3, 2.0)]
    choice = choose(outputs, 10_000, 0.01)
    assert {choice.likely, choice.rare} == {0, 2}
    assert choice.sure == pytest.approx(1.8, abs=0.4)


def test_few_correct_mechanisms_are_accused():
    """Claims as tight as can be: at this error for all together, none but by a rare chance."""
    times, error = 60, 0.05
    errors = [error, error / times / 100]
    found = []
    for number in range(times):
        rng = np.random.default_rng([99, number])
        found.append(accused(random_case(rng), 2_000, errors, rng))
    assert not any(exactly for exactly, _ in found)
    assert sum(loose for _, (loose, _) in found) <= binom.ppf(0.9999, times, error)
    assert not any(strict for _, (_, strict) in found)


@pytest.mark.slow
def test_thousands_of_correct_mechanisms_and_none_is_accused():
    times = 10_000
    accusations = [0, 0, 0]
    for number in range(times):
        rng = np.random.default_rng([7, number])
        exactly, (loose, strict) = accused(random_case(rng), 2_000, [0.05, 0.05 / times], rng)
        for place, one in enumerate((exactly, loose, strict)):
            accusations[place] += one
    assert accusations[0] == 0
    assert accusations[1] <= binom.ppf(0.9999, times, 0.05)
    assert accusations[2] == 0
