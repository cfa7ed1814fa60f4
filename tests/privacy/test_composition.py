import math

import mpmath
import numpy as np
import pytest

import agewise as aw
from agewise import Release
from agewise.privacy.composition import composed_totals
from attacks import aged_by_program, backward


def test_one_release_is_plain_ageing(paper_chains):
    chain = paper_chains[2]
    total = aw.composed_epsilon([Release(4, 0.7)], chain, 10)
    assert total.aged == pytest.approx(aw.Ageing(chain, 6).aged_epsilon(0.7), rel=1e-11)
    assert total.classical == 0.7


def test_releases_of_one_slot_add_up_before_they_age(paper_chains):
    twice = aw.composed_epsilon([Release(4, 0.7), Release(4, 0.2)], paper_chains[0], 10)
    once = aw.composed_epsilon([Release(4, 0.9)], paper_chains[0], 10)
    assert twice.aged == pytest.approx(once.aged, rel=1e-14)


def test_release_in_the_slot_of_aggregation_gets_no_credit(paper_chains):
    total = aw.composed_epsilon([Release(10, 0.7)], paper_chains[0], 10)
    assert total.aged == total.classical == 0.7


def test_no_release_costs_nothing(paper_chains):
    assert aw.composed_epsilon([], paper_chains[0], 10) == aw.Total(0.0, 0.0)


def test_own_law_is_carried_forward():
    chain = aw.birth_death(0.2, 0.3, [1, 2, 3])
    law = np.array([0.7, 0.2, 0.1])
    total = aw.composed_epsilon([Release(1, 0.5), Release(3, 0.4)], chain, 6, "own_law", law)
    each = 1 - np.eye(3)
    first, _ = backward(law, chain.steps(2))
    second, _ = backward(law @ chain.steps(2), chain.steps(3))
    wanted = aged_by_program(aged_by_program(0.5 * each, first) + 0.4 * each, second)
    assert total.aged == pytest.approx(wanted.max(), rel=1e-11)


def test_a_law_carried_on_does_not_push_delta_above_one():
    frozen = aw.MarkovChain(np.eye(2), [0, 1])
    releases = [Release(1, 0.5), Release(3, 0.4)]
    total = aw.composed_epsilon(releases, frozen, 6, "own_law", [0.5, 0.5])
    assert total.aged == pytest.approx(0.9, rel=1e-15)


def test_a_law_carried_far_leaves_the_total_on_the_safe_side():
    """After thousands of products the law is off by more than the last step alone would explain."""
    slow, fast = [[1 - 2.07e-5, 2.07e-5], [7.1e-5, 1 - 7.1e-5]], [[0.832, 0.168], [0.233, 0.767]]
    day = aw.PeriodicChain([slow] * 3999 + [fast], [0, 1])
    with mpmath.workdps(50):
        long = mpmath.matrix(day.transitions[0].tolist()) ** 3999
        last = mpmath.matrix(day.transitions[-1].tolist())

        def aged(loss, law, kernel):
            low, high = (
                law[0] * kernel[0, y] / (law[0] * kernel[0, y] + law[1] * kernel[1, y])
                for y in (0, 1)
            )
            sides = (low, high), (high, low), (1 - low, 1 - high), (1 - high, 1 - low)
            k = mpmath.expm1(loss)
            return max(mpmath.log((1 + k * up) / (1 + k * down)) for up, down in sides)

        later = [0.5 * long[0, y] + 0.5 * long[1, y] for y in (0, 1)]
        true = aged(1 + aged(mpmath.mpf(1e-6), [0.5, 0.5], long), later, last)
    releases = [Release(1, 1e-6), Release(4000, 1.0)]
    total = aw.composed_epsilon(releases, day, 4001, "own_law", [0.5, 0.5])
    assert true <= total.aged <= true + 3e-11


def test_a_day_profile_composes_slot_by_slot():
    calm, busy = [[0.95, 0.05], [0.05, 0.95]], [[0.6, 0.4], [0.4, 0.6]]
    day = aw.PeriodicChain([calm, busy, busy, calm], [0, 1])
    total = aw.composed_epsilon([Release(1, 1.0), Release(2, 1.0)], day, 4)
    carried = 1.0 + two_sided(1.0, 0.95)
    assert total.aged == pytest.approx(two_sided(carried, 0.52), rel=1e-11)


def two_sided(loss, stay):
    """The worst aged loss of two values that each stay with this probability."""
    k = math.expm1(loss)
    return math.log((1 + k * stay) / (1 + k * (1 - stay)))


def test_releases_with_a_delta_or_without_noise_are_carried_on_as_one_number(paper_chains):
    """Of a δ and of an infinite ε pairwise losses say nothing."""
    chain = paper_chains[0]
    for first in (Release(2, 0.5, 1e-9), Release(2, math.inf)):
        total = aw.composed_epsilon([first, Release(6, 0.4)], chain, 12)
        carried = aw.aged_epsilon(first.classical_epsilon, aw.total_variation(chain, 4)) + 0.4
        assert total.aged == pytest.approx(
            aw.aged_epsilon(carried, aw.total_variation(chain, 6)), rel=1e-12
        )
    sharper = aw.composed_epsilon([Release(2, 0.5), Release(6, 0.4)], chain, 12).aged
    formula = aw.aged_epsilon(0.5, aw.total_variation(chain, 4)) + 0.4
    assert sharper < 0.95 * aw.aged_epsilon(formula, aw.total_variation(chain, 6))


def test_any_prior_is_carried_on_by_the_tanh_law(paper_chains):
    total = aw.composed_epsilon(
        [Release(2, 0.5), Release(8, 0.4)], paper_chains[0], 14, "any_prior"
    )
    aged = aw.Ageing(paper_chains[0], 6, "any_prior").aged_epsilon
    assert total.aged == pytest.approx(aged(aged(0.5) + 0.4), rel=1e-13)
    assert total.aged < aw.aged_epsilon(0.9, aw.total_variation(paper_chains[0], 6, "any_prior"))


def test_many_states_are_all_given_the_worst_loss(paper_chains):
    """Beyond a few states one number is carried on, exactly aged, and never more than by Δ."""
    chain = aw.birth_death(0.2, 0.2, np.arange(9.0))
    total = aw.composed_epsilon([Release(2, 0.5), Release(30, 0.4)], chain, 60).aged
    carried = aw.Ageing(chain, 28).aged_epsilon(0.5) + 0.4
    assert total == pytest.approx(aw.Ageing(chain, 30).aged_epsilon(carried), rel=1e-9)


def test_what_is_said_of_a_release_counts(paper_chains):
    """A mean with Laplace noise tells neighbouring states apart less than those at the ends."""
    releases = [Release(t, 0.1) for t in range(1, 40)]
    mean, table, histogram, unknown = (
        aw.composed_epsilon(releases, paper_chains[2], 39, release=release).aged
        for release in (aw.Mean(), [[20], [50], [100], [200]], aw.Histogram(), "any")
    )
    assert mean == table == pytest.approx(0.2356, abs=5e-5)
    assert histogram == unknown > 1.5 * mean
    with pytest.raises(aw.InvalidInput, match="release is 'typo'; allowed: a learner, a table"):
        aw.composed_epsilon(releases, paper_chains[2], 39, release="typo")


class LagLaw:
    """A process known only lag by lag, as measured data would give it."""

    kind, day, confidence, assumes, basis, weeks = "lag", 1, 1.0, "", "", 0
    markov = False
    homogeneous = None
    fingerprint = "lag law"
    states = np.array([0.0, 1.0])

    def joint(self, collect_at, aggregate_at, law=None):
        keep = 0.5 + 0.5 * 0.5 ** (aggregate_at - collect_at)
        return aw.JointLaw([[keep / 2, (1 - keep) / 2], [(1 - keep) / 2, keep / 2]], self.states)

    def kernel(self, collect_at, aggregate_at):
        return self.joint(collect_at, aggregate_at).matrix * 2

    def knows(self, collect_at, aggregate_at):
        return True

    def to_dict(self):
        return {}

    def law(self, slot):
        return np.array([0.5, 0.5])

    def reachable(self, collect_at, aggregate_at):
        return self.kernel(collect_at, aggregate_at) > 0


def test_without_the_markov_property_several_releases_get_no_credit():
    single = aw.composed_epsilon([Release(1, 1.0)], LagLaw(), 3)
    assert single.aged == pytest.approx(aw.aged_epsilon(1.0, 0.25), rel=1e-12)
    several = aw.composed_epsilon([Release(1, 1.0), Release(2, 1.0)], LagLaw(), 3)
    assert several.aged == several.classical == 2.0
    later = aw.composed_epsilon([Release(5, 1.0)], LagLaw(), 3)
    assert later.aged == later.classical == 1.0
    before, after = composed_totals([Release(3, 1.0)], LagLaw(), [5, 2])
    assert (before.aged, after.aged) == (
        aw.composed_epsilon([Release(3, 1.0)], LagLaw(), 5).aged,
        1,
    )


def test_many_slots_at_once_are_what_they_are_one_by_one(paper_chains):
    releases = [Release(t, 0.1 * t) for t in (2, 3, 3, 7, 11)]
    slots = [1, 2, 3, 5, 7, 11, 40]
    for method in ("exact", "any_prior", "spectral"):
        together = composed_totals(releases, paper_chains[2], slots, method)
        assert together == [
            aw.composed_epsilon(releases, paper_chains[2], slot, method) for slot in slots
        ]
    law = np.array([0.1, 0.2, 0.3, 0.4])
    alone = aw.composed_epsilon(releases, paper_chains[2], 40, "own_law", law)
    assert composed_totals(releases, paper_chains[2], slots, "own_law", law)[-1] == alone


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: aw.composed_epsilon([Release(1, 0.5)], c, 1.5), "aggregate_at is 1.5"),
        (lambda c: aw.composed_epsilon([Release(1, 0.5)], c, 10, "typo"), "method"),
        (lambda c: aw.composed_epsilon([Release(1, 0.5)], c, 10, "own_law"), "law is None"),
        (lambda _: Release(1, 0), "classical_epsilon is 0"),
        (lambda _: Release(1, float("nan")), "classical_epsilon is nan"),
        (lambda _: Release(1.5, 0.5), "collect_at is 1.5"),
    ],
)
def test_bad_input_is_refused_in_one_clear_message(paper_chains, call, words):
    with pytest.raises(aw.InvalidInput, match=words):
        call(paper_chains[0])
