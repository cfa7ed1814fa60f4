"""Many releases against every string of outputs, and for ever against any number of them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agewise as aw
from attacks import attack, binary_outputs, laplace_outputs
from harness.seeds import seeds
from random_chains import random_chain, random_law

ROUNDING = 1e-11


def random_case(seed):
    """Releases at irregular gaps, of all two-output mechanisms or of Laplace means."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 5))
    chain = random_chain(rng, size)
    laplace = bool(rng.integers(2))
    most = 6 if laplace or size < 4 else 4
    count = int(rng.integers(1, most + 1))
    slots = np.cumsum(rng.integers(1, 6, count)).tolist()
    spent = rng.uniform(0.05, 1.5, count)
    outputs = [
        laplace_outputs(e, chain.states) if laplace else binary_outputs(e, size) for e in spent
    ]
    releases = [aw.Release(t, e) for t, e in zip(slots, spent.tolist(), strict=True)]
    return rng, chain, slots, releases, outputs, None if laplace else "any"


def ratios(seed):
    """How close the best attack comes to the total: now, and about a slot in between."""
    rng, chain, slots, releases, outputs, release = random_case(seed)
    law = random_law(rng, chain.states.size)
    between = int(rng.integers(slots[0], slots[-1] + 1))
    for prior, method, stated in ((chain.stationary, "exact", None), (law, "own_law", law)):
        for seen_at in (slots[-1] + int(rng.integers(0, 4)), between):
            total = aw.composed_epsilon(releases, chain, seen_at, method, stated, release).aged
            true = attack(chain.transition, prior, slots, outputs, seen_at)
            assert true <= total * (1 + ROUNDING) + ROUNDING, (seed, method, seen_at)
            if total > 1e-6 and (prior > 0).all():  # else a total counts values that cannot occur
                yield true / total


@pytest.mark.parametrize("seed", range(40))
def test_guarantee_no_string_of_outputs_tells_more_than_the_pairwise_total(seed):
    assert max(ratios(seed), default=1.0) > 0.3  # and the total is not idle


@pytest.mark.slow
def test_guarantee_no_string_of_outputs_tells_more_in_a_thousand_cases():
    found = [ratio for seed in range(100, 1100) for ratio in ratios(seed)]
    print(f"attack over total: median {np.median(found):.4f}, least {min(found):.3f}")
    assert np.median(found) > 0.99


@pytest.mark.parametrize("seed", seeds(8, 20))
def test_guarantee_for_ever_bounds_any_number_of_releases(seed):
    """Iterates approach the bound from below, so the last of many must nearly reach it."""
    rng = np.random.default_rng(seed)
    chain = random_chain(rng, int(rng.integers(2, 5)), "dense")
    every, spent, age = int(rng.integers(1, 4)), rng.uniform(0.05, 1), int(rng.integers(0, 3))
    release = [None, "any"][seed % 2]
    bound = aw.continual_epsilon(chain, every, spent, age, release=release)
    ever = aw.continual_epsilon(chain, every, spent, promise="every_moment", release=release)
    slots = [every * j for j in range(60)]
    releases = [aw.Release(slot, spent) for slot in slots]
    totals = [
        aw.composed_epsilon(releases[: j + 1], chain, slots[j] + age, release=release).aged
        for j in (0, 1, 5, 59)
    ]
    assert max(totals) <= bound * (1 + ROUNDING)
    assert totals[-1] >= bound * (1 - 1e-3)
    about = range(slots[28], slots[30])
    both = [aw.composed_epsilon(releases, chain, s, release=release).aged for s in about]
    assert max(both) <= ever * (1 + ROUNDING)
    assert max(both) >= ever * (1 - 1e-3)


def ergodic_chain(rng, size):
    """A chain of any kind that forgets its start: draws go on until one does."""
    while True:
        chain = random_chain(rng, size)
        if chain.is_ergodic:
            return chain


LONG = (0, 4, 13, 17)
"""Four states in every slot or two: they take as long as the other sixteen seeds three times."""


@pytest.mark.parametrize(
    "seed",
    [pytest.param(n, marks=pytest.mark.slow) if n in LONG or n > 9 else n for n in range(20)],
)
def test_guarantee_the_rule_bounds_every_sequence_that_keeps_to_it(seed):
    rng = np.random.default_rng(seed)
    chain = ergodic_chain(rng, int(rng.integers(2, 5)))
    every, most, age = int(rng.integers(1, 4)), rng.uniform(0.05, 1), int(rng.integers(0, 3))
    release = [None, "any"][seed // 2 % 2]
    now = aw.privacy.rule_epsilon(chain, every, most, age, "present", release)
    ever = aw.privacy.rule_epsilon(chain, every, most, promise="every_moment", release=release)
    assert now >= aw.continual_epsilon(chain, every, most, age, release=release) * (1 - 1e-7)
    for _ in range(5):
        slots = np.cumsum(every + rng.integers(0, 4, 12)).tolist()
        releases = [aw.Release(slot, most * rng.uniform(0.5, 1)) for slot in slots]
        later = slots[-1] + age + int(rng.integers(0, 3))
        assert aw.composed_epsilon(releases, chain, later, release=release).aged <= now
        about = int(rng.integers(slots[0], slots[-1] + 1))
        assert aw.composed_epsilon(releases, chain, about, release=release).aged <= ever


def one_number(chain, releases, seen_at):
    """The recursion with Δ, as it is written down."""
    total, at = 0.0, releases[0].collect_at
    for one in releases:
        if total:
            total = aw.aged_epsilon(total, aw.total_variation(chain, one.collect_at - at))
        total, at = total + one.classical_epsilon, one.collect_at
    return aw.aged_epsilon(total, aw.total_variation(chain, seen_at - at))


def leakage(chain, releases, seen_at):
    """Cao's recursion: one number, aged exactly."""
    total, at = 0.0, releases[0].collect_at
    for one in releases:
        if total:
            total = aw.Ageing(chain, one.collect_at - at).aged_epsilon(total)
        total, at = total + one.classical_epsilon, one.collect_at
    return aw.Ageing(chain, seen_at - at).aged_epsilon(total)


@pytest.mark.parametrize("seed", range(40))
def test_guarantee_the_pairwise_total_is_never_above_one_number_per_release(seed):
    _, chain, slots, releases, _, release = random_case(seed)
    pairwise = aw.composed_epsilon(releases, chain, slots[-1] + 2, release=release).aged
    assert pairwise <= one_number(chain, releases, slots[-1] + 2)
    assert pairwise <= leakage(chain, releases, slots[-1] + 2) + 1e-12


def test_pairs_tell_less_than_one_number_would():
    chain = aw.birth_death(0.4, 0.4, [20, 50, 100, 200])
    releases = [aw.Release(slot, 0.1) for slot in range(1, 31)]
    pairwise = aw.composed_epsilon(releases, chain, 30, release=None).aged
    assert one_number(chain, releases, 30) == pytest.approx(3.0)
    assert pairwise == pytest.approx(0.2356, abs=1e-4)


CHAINS = st.builds(
    lambda seed, size: random_chain(np.random.default_rng(seed), size, "dense"),
    st.integers(0, 10_000),
    st.integers(2, 4),
)


@given(CHAINS, st.integers(1, 5), st.floats(0.01, 2), st.sampled_from(["present", "every_moment"]))
def test_longer_gaps_never_cost_more(chain, every, spent, promise):
    near = aw.privacy.rule_epsilon(chain, every, spent, promise=promise)
    far = aw.privacy.rule_epsilon(chain, every + 2, spent, promise=promise)
    assert far <= near * (1 + 1e-7)


@given(CHAINS, st.floats(0.01, 2), st.floats(0.1, 0.9), st.integers(0, 3))
def test_splitting_a_release_never_helps(chain, spent, share, age):
    whole = [aw.Release(1, 0.3), aw.Release(4, spent)]
    parts = [aw.Release(1, 0.3), aw.Release(4, share * spent), aw.Release(4, (1 - share) * spent)]
    one = aw.composed_epsilon(whole, chain, 4 + age, release=None).aged
    two = aw.composed_epsilon(parts, chain, 4 + age, release=None).aged
    assert two >= one * (1 - 1e-12)


@given(CHAINS, st.integers(1, 5), st.floats(0.01, 2), st.integers(0, 4))
def test_guarantee_what_is_affordable_keeps_to_the_target_and_wastes_nothing(
    chain, every, target, age
):
    for promise in ("present", "every_moment", 2):
        spent = aw.per_release_epsilon(chain, every, target, age, promise)
        assert math.isfinite(spent) or promise != "every_moment"  # which counts the fresh record
        if math.isfinite(spent):
            assert aw.continual_epsilon(chain, every, spent, age, promise) <= target
            assert aw.continual_epsilon(chain, every, spent * 1.0001, age, promise) > target
