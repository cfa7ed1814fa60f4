import mpmath
import numpy as np
import pytest

import agewise as aw
from agewise import Release
from agewise.privacy.composition import composed_totals


def test_one_release_is_plain_ageing(paper_chains):
    chain = paper_chains[2]
    total = aw.composed_epsilon([Release(4, 0.7)], chain, 10)
    assert total.aged == pytest.approx(aw.aged_epsilon(0.7, aw.delta(chain, 6)), rel=1e-14)
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
    first = aw.aged_epsilon(0.5, aw.delta(chain, 2, "own_law", law)) + 0.4
    wanted = aw.aged_epsilon(first, aw.delta(chain, 3, "own_law", law @ chain.steps(2)))
    assert total.aged == pytest.approx(wanted, rel=1e-12)


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
            return mpmath.log1p(abs(low - high) * mpmath.expm1(loss))

        later = [0.5 * long[0, y] + 0.5 * long[1, y] for y in (0, 1)]
        true = aged(1 + aged(mpmath.mpf(1e-6), [0.5, 0.5], long), later, last)
    releases = [Release(1, 1e-6), Release(4000, 1.0)]
    total = aw.composed_epsilon(releases, day, 4001, "own_law", [0.5, 0.5])
    assert true <= total.aged <= true + 3e-12


def test_a_day_profile_composes_slot_by_slot():
    calm, busy = [[0.95, 0.05], [0.05, 0.95]], [[0.6, 0.4], [0.4, 0.6]]
    day = aw.PeriodicChain([calm, busy, busy, calm], [0, 1])
    total = aw.composed_epsilon([Release(1, 1.0), Release(2, 1.0)], day, 4)
    carried = 1.0 + aw.aged_epsilon(1.0, 0.9)
    assert total.aged == pytest.approx(aw.aged_epsilon(carried, 0.2**2), rel=1e-10)


class LagLaw:
    """A process known only lag by lag, as measured data would give it."""

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
